/* rest_body -- bytes that aren't JSON: files in and out, a program's input, ports.
 *
 * File contents go between the socket and the descriptor that the computer handed out; nothing of them is kept here. A pipe (a file
 * in /proc, a device) has no size: it is read as the client takes it. */
#include "api/rest_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/fd.h"
#include "core/str.h"
#include "http/proxy.h"

#define PIECE 32768                  /* of input, in one message */
#define INPUT_PENDING (256u << 10)
#define AGAIN_MS 10
#define PIPE_LOW (64u << 10)

void rest_bytes_drop(struct rest_call *c)
{
	if (c->pipe_on)
		loop_remove(c->api->loop, &c->pipe);
	c->pipe_on = false;
	fd_drop(&c->fd);
	ops_tie_drop(&c->tie);
}

/* The computer has ended: what a client still reads or writes of it would keep its files alive, counted by nobody. */
static void on_ended(struct op_tie *t)
{
	struct rest_call *c = container_of(t, struct rest_call, tie);

	if (!c->r)
		return;
	if (c->pipe_on)
		rest_bytes_drop(c);
	http_abort(c->r);
}

/* ---- out: a pipe ---- */

static void on_pipe_drain(void *ctx, struct http_req *r)
{
	struct rest_call *c = ctx;

	if (c->pipe_on)
		loop_mod(c->api->loop, &c->pipe, EPOLLIN);
}

static void on_pipe(struct source *s, uint32_t events)
{
	struct rest_call *c = container_of(s, struct rest_call, pipe);
	char mem[65536];
	ssize_t n = fd_read_pipe(s->fd, mem, sizeof mem);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		rest_bytes_drop(c);
		if (n < 0)
			http_abort(c->r);
		else
			http_end(c->r);
		return;
	}
	if (http_write(c->r, mem, (size_t)n) > (ssize_t)PIPE_LOW)
		loop_mod(c->api->loop, s, 0);
}

static void send_pipe(struct rest_call *c, int fd)
{
	struct err e;

	c->fd = fd;
	fd_nonblock(fd, 1);
	c->pipe.fd = fd;
	c->pipe.name = "file";
	c->pipe.ready = on_pipe;
	if (loop_add(c->api->loop, &c->pipe, EPOLLIN, &e) < 0) {
		rest_fail(c->r, &e);
		return;
	}
	c->pipe_on = true;
	http_reply_start(c->r, 200, "application/octet-stream", -1);
	http_on_drain(c->r, PIPE_LOW, on_pipe_drain, c);
}

/* ---- in: a file ---- */

static void on_written(void *ctx, struct http_req *r, int64_t result)
{
	struct rest_call *c = ctx;
	json_t *entry;
	struct err e;

	if (result < 0) {
		errno = (int)-result;
		err_sys(&e, "write the file");
		rest_fail(r, &e);
		return;
	}
	fd_drop(&c->fd);
	ops_tie_drop(&c->tie);
	entry = json_object_get(c->result, "entry");
	if (entry)
		json_object_set_new(entry, "size", json_integer(result));
	rest_json(r, 200, c->result);
}

/* ---- a port as a plain tunnel: it outlives its request, and is cut when its computer ends ---- */

struct plain { struct op_tie tie; struct http_tunnel *tunnel; };

static void on_tunnel_cut(struct op_tie *t)
{
	struct plain *p = container_of(t, struct plain, tie);

	http_tunnel_stop(p->tunnel, true);
	free(p);
}

static void on_tunnel_done(void *ctx, uint64_t in, uint64_t out)
{
	struct plain *p = ctx;

	ops_tie_drop(&p->tie);
	free(p);
}

static void join(struct rest_call *c, struct http_stream *port)
{
	struct plain *p = calloc(1, sizeof *p);
	struct http_stream *client = NULL;
	struct err e;

	if (!p || ops_tie(c->api->ops, c->id, &p->tie) < 0) {
		err_set(&e, p ? ENOENT : ENOMEM, p ? "computer '%s' has ended" : "no memory", c->id);
		http_stream_free(port);
		free(p);
		rest_fail(c->r, &e);
		return;
	}
	p->tie.cut = on_tunnel_cut;
	http_set(c->r, "Connection", "upgrade");
	http_set(c->r, "Upgrade", "tcp");
	if (http_takeover(c->r, 101, &client) < 0 || !client) {
		http_stream_free(port);
		on_tunnel_done(p, 0, 0);
	} else if (http_tunnel_start(client, port, on_tunnel_done, p, &p->tunnel, &e) < 0) {
		on_tunnel_done(p, 0, 0);
	}
}

static void take_over(struct rest_call *c, int fd)
{
	struct http_stream *port = NULL;
	const char *up = http_req_header(c->r, "upgrade");
	struct err e;

	if (!up || !str_eq(up, "tcp") || !http_req_head(c->r)->upgrade) {
		fd_drop(&fd);
		err_set(&e, EINVAL, "a port is reached through an upgrade");
		err_hint(&e, "send 'Connection: upgrade' and 'Upgrade: tcp', or use .../ports/PORT/proxy/");
		rest_fail(c->r, &e);
		return;
	}
	if (http_stream_open(c->api->loop, fd, &port, &e) < 0) {
		rest_fail(c->r, &e);
		return;
	}
	http_stream_share(port);
	join(c, port);
}

void rest_bytes_done(void *ctx, const struct err *e, const json_t *result, int fd)
{
	struct rest_call *c = ctx;
	const char *kind;
	struct err mine;

	if (!c->r) {
		fd_drop(&fd);
		return;
	}
	if (e) {
		rest_fail(c->r, e);
		return;
	}
	kind = json_string_value(json_object_get(result, "kind"));
	c->tie.cut = on_ended;
	if (!result) {
		take_over(c, fd);
	} else if (ops_tie(c->api->ops, c->id, &c->tie) < 0) {
		fd_drop(&fd);
		err_set(&mine, ENOENT, "computer '%s' has ended", c->id);
		rest_fail(c->r, &mine);
	} else if (c->op->takes_body) {
		c->fd = fd;
		c->result = json_deep_copy(result);
		http_req_to_fd(c->r, fd, UINT64_MAX, on_written, c);
	} else if (kind && str_eq(kind, "pipe") && fd_is_pipe(fd)) {
		send_pipe(c, fd);
	} else {
		http_set(c->r, "X-Content-Type-Options", "nosniff");
		http_reply_file(c->r, "application/octet-stream", fd);
	}
}

/* ---- in: a program's input. A program that doesn't read holds the client back, as a pipe would ---- */

static void give(struct rest_call *c);

static void on_again(struct timer *t)
{
	give(container_of(t, struct rest_call, again));
}

static void on_given(void *ctx, const struct err *e, const json_t *result, int fd)
{
	struct rest_call *c = ctx;
	json_t *at = json_object_get(c->args, "at");

	c->waiting = false;
	if (!c->r)
		return;
	if (e && e->code == EAGAIN && c->body.len) {
		c->again.fire = on_again;
		loop_arm(c->api->loop, &c->again, AGAIN_MS);
		return;
	}
	if (e) {
		rest_fail(c->r, e);
		http_close_after(c->r);
		buf_clear(&c->body);
		return;
	}
	buf_consume(&c->body, c->given);
	if (json_is_integer(at))
		json_integer_set(at, json_integer_value(at) + (json_int_t)c->given);
	if (c->body.len < INPUT_PENDING)
		http_req_resume(c->r);
	/* not from inside the operation's own answer */
	c->again.fire = on_again;
	if (c->body.len || c->body_ended)
		loop_arm(c->api->loop, &c->again, 0);
}

static void no_event(void *ctx, const json_t *event)
{
}

static void no_data(void *ctx, enum op_stream s, const void *p, size_t n)
{
}

static const struct op_sink input_sink = { no_event, no_data, on_given };

static void give(struct rest_call *c)
{
	struct op_in in = { .data = buf_at(&c->body), .len = c->body.len < PIECE ? c->body.len : PIECE };

	if (c->waiting || !c->r || http_replied(c->r))
		return;
	if (!c->body.len) {
		if (c->body_ended)
			http_reply(c->r, 204, NULL, NULL, 0);
		return;
	}
	c->waiting = true;
	c->given = in.len;
	in.args = json_deep_copy(c->args);
	c->busy++;
	ops_run(c->api->ops, c->op->name, &c->who, &in, &input_sink, c, &c->call);
	c->busy--;
	rest_free_if_over(c);
}

static void on_input(void *ctx, struct http_req *r, const char *p, size_t n)
{
	struct rest_call *c = ctx;
	struct err e;

	if (buf_add(&c->body, p, n) < 0) {
		err_set(&e, ENOMEM, "no memory for a program's input");
		rest_fail(r, &e);
		return;
	}
	if (c->body.len >= INPUT_PENDING)
		http_req_pause(r);
	if (!c->again.pos)
		give(c);
}

static void on_input_end(void *ctx, struct http_req *r)
{
	struct rest_call *c = ctx;

	c->body_ended = true;
	if (!c->again.pos)
		give(c);
}

void rest_input(struct rest_call *c)
{
	http_req_read(c->r, on_input, on_input_end, c);
}

/* ---- a port, by HTTP ---- */

struct passing {
	struct api *api;
	struct http_req *r;
	struct op_call *call;
	struct http_proxy *proxy;
	struct op_tie tie;
	char id[40], host[32];
	char *target;
	bool proxying;
};

static void passing_free(struct passing *p)
{
	ops_tie_drop(&p->tie);
	free(p->target);
	free(p);
}

static void on_cut(struct op_tie *t)
{
	struct passing *p = container_of(t, struct passing, tie);

	if (p->proxying)
		http_proxy_abort(p->proxy);
}

static void on_passed(void *ctx, struct http_req *r, enum http_proxy_result result, const char *why)
{
	struct passing *p = ctx;
	struct err e;

	p->proxying = false;
	if (result == HTTP_PROXY_FAILED) {
		err_set(&e, ECONNREFUSED, "the port didn't answer: %.100s", why ? why : "");
		rest_fail(r, &e);
	}
	passing_free(p);
}

static void on_gone(void *ctx, struct http_req *r, enum http_why why)
{
	struct passing *p = ctx;

	p->r = NULL;
	ops_cancel(p->call);
	passing_free(p);
}

static void on_dialled(void *ctx, const struct err *e, const json_t *result, int fd)
{
	struct passing *p = ctx;
	struct http_proxy_opts o = { .fd = fd, .host = p->host, .target = p->target, .forwarded = true, .done = on_passed, .ctx = p };
	struct http_req *r = p->r;
	/* our keys are not for what runs in there; an Authorization beside one of ours is its own, unless it is one too */
	static const char *const drop[] = { "authorization", "x-api-key", "x-access-token", NULL };
	struct err mine;

	p->call = NULL;
	http_req_on_end(r, NULL, NULL);
	if (e) {
		rest_fail(r, e);
		passing_free(p);
		return;
	}
	o.drop = (http_req_header(r, "x-api-key") || http_req_header(r, "x-access-token")) && !api_auth_is_ours(p->api, r) ? drop + 1 : drop;
	p->tie.cut = on_cut;
	p->proxying = ops_tie(p->api->ops, p->id, &p->tie) == 0;
	if (!p->proxying)
		fd_drop(&fd);
	if (!p->proxying || http_proxy_start(r, &o, &p->proxy, &mine) < 0) {
		err_set(&mine, ECONNREFUSED, "the port can't be reached");
		rest_fail(r, &mine);
		passing_free(p);
	}
}

static const struct op_sink dial_sink = { no_event, no_data, on_dialled };

void rest_proxy(struct api *a, struct http_req *r, const struct principal *who, const char *id, const char *port, const char *target)
{
	const char *dest = http_req_header(r, "sec-fetch-dest");
	struct passing *p;
	struct op_in in = { .args = NULL };
	uint64_t n = 0;
	struct err e;

	/* A page or script of a computer's, shown by a browser under our own address, could use us as if it were ours. */
	if (dest && !str_eq(dest, "empty")) {
		err_set(&e, EPERM, "a browser doesn't get pages of a computer under the API's own address");
		err_hint(&e, "open http://%s-%s.localhost:PORT/ (the server's port) instead", port, id);
		rest_fail(r, &e);
		return;
	}
	p = calloc(1, sizeof *p);
	if (!p || asprintf(&p->target, "%s%s", target[0] == '/' ? "" : "/", target) < 0) {
		free(p);
		err_set(&e, ENOMEM, "no memory");
		rest_fail(r, &e);
		return;
	}
	str_u64(port, 65535, &n);
	p->api = a;
	p->r = r;
	snprintf(p->id, sizeof p->id, "%s", id);
	snprintf(p->host, sizeof p->host, "localhost:%u", (unsigned)n);
	http_req_on_end(r, on_gone, p);
	in.args = json_pack("{s:s,s:I}", "id", id, "port", (json_int_t)n);
	ops_run(a->ops, "port.dial", who, &in, &dial_sink, p, &p->call);
}
