#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/e2b_req.h"
#include "http/proxy.h"

/* Other ports of a sandbox: dialled by the guest, then HTTP is passed through, upgrades (WebSocket) too. As on E2B these are open to
 * who knows the address; the program in the sandbox decides whom it serves. */

struct port {                    /* one proxied request */
	struct api *api;
	struct http_proxy *proxy;
	struct op_tie tie;
	char id[E2B_ID_SIZE];
	uint16_t port;
};

/* Ours alone: a program in a sandbox must not get keys and tokens that its caller sent along. The first only when it holds one. */
static const char *const private_fields[] = { "authorization", "x-access-token", "x-api-key", "e2b-sandbox-id", "e2b-sandbox-port",
	"e2b-traffic-access-token", NULL };

static void on_kill(struct op_tie *t)
{
	http_proxy_abort(container_of(t, struct port, tie)->proxy);
}

static void proxied(void *ctx, struct http_req *r, enum http_proxy_result result, const char *why)
{
	struct port *p = ctx;
	enum op_life life = ops_life(p->api->ops, p->id);

	ops_tie_drop(&p->tie);
	if (result == HTTP_PROXY_FAILED) {
		if (life == OP_LIFE_RUNNING)
			e2b_port_closed(r, p->id, p->port);
		else
			e2b_gone(r, p->id);
	}
	free(p);
}

static void dialled(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct http_req *r = q->r;
	struct port *p;
	struct http_proxy_opts o = { .fd = fd, .forwarded = true, .drop = private_fields + !api_auth_is_ours(q->api, r), .done = proxied };
	struct err err;

	if (e || fd < 0) {
		if (e && e->code != ECONNREFUSED)
			e2b_fail(q, e);
		else
			e2b_port_closed(r, q->id, q->port);
		return;
	}
	p = calloc(1, sizeof *p);
	if (!p) {
		close(fd);
		e2b_status(r, 503, "no memory for this request");
		return;
	}
	p->api = q->api;
	p->port = q->port;
	memcpy(p->id, q->id, sizeof p->id);
	p->tie.cut = on_kill;
	o.ctx = p;
	e2b_req_release(q);              /* from here on the request is the proxy's */
	if (http_proxy_start(r, &o, &p->proxy, &err) < 0) {
		e2b_port_closed(r, p->id, p->port);
		free(p);
		return;
	}
	if (ops_tie(p->api->ops, p->id, &p->tie) < 0)
		http_proxy_abort(p->proxy);
}

void e2b_port(struct api *a, struct http_req *r, const struct e2b_addr *to)
{
	struct e2b_req from = { .port = to->port, .data_plane = true }, *q;
	const struct principal who = { .rights = OP_USE, .only_computer = from.id, .name = "port" };

	memcpy(from.id, to->id, sizeof from.id);
	e2b_req_as(&from, &who);
	q = e2b_req_open(a, r, sizeof *q, &from);
	if (q)
		e2b_ask(q, "port.dial", json_pack("{s:s, s:i}", "id", q->id, "port", (int)q->port), dialled);
}
