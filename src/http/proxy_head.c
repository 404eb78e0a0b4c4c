#include <errno.h>
#include <string.h>

#include "core/str.h"
#include "http/proxy_impl.h"

static bool listed(const char *const *list, const char *name)
{
	for (; list && *list; list++)
		if (str_eq(*list, name))
			return true;
	return false;
}

/* Never forwarded as they came: of one connection, ours to say, or not to be believed. */
static bool withheld(const struct http_proxy *p, const struct http_head *h, const char *name)
{
	static const char *const ours[] = { "host", "content-length", "expect", NULL };
	static const char *const claims[] = { "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip", NULL };

	return listed(ours, name) || (p->o.forwarded && listed(claims, name)) || listed(p->o.drop, name) || http_is_hop(h, name);
}

static void put(struct buf *b, const char *name, const char *value)
{
	buf_adds(b, name);
	buf_adds(b, ": ");
	buf_adds(b, value);
	buf_adds(b, "\r\n");
}

/* The value to forward: *value may be changed to what edit wrote. 1 = forward, 0 = drop, negative = refuse. */
static int edited(struct http_proxy *p, bool response, const char *name, const char **value, struct buf *tmp)
{
	if (!p->o.edit)
		return 1;
	buf_clear(tmp);
	int how = p->o.edit(p->o.ctx, response, name, *value, tmp);

	if (how < 0)
		return how;
	if (how == HTTP_EDIT_DROP)
		return 0;
	if (how == HTTP_EDIT_REPLACE) {
		if (!buf_ok(tmp) || !http_is_value(buf_at(tmp), tmp->len) || strlen(buf_at(tmp)) != tmp->len)
			return -EINVAL;
		*value = buf_at(tmp);
	}
	return 1;
}

static int put_fields(struct http_proxy *p, const struct http_head *h, struct err *e)
{
	AUTO_BUF struct buf tmp = BUF_INIT(HTTP_MAX_HEAD);

	for (unsigned i = 0; i < h->nfields; i++) {
		const char *name = http_field_name(h, i), *value = http_field_value(h, i);

		if (withheld(p, h, name))
			continue;
		int how = edited(p, false, name, &value, &tmp);

		if (how < 0)
			return err_set(e, -how, "forward a request: its field '%.60s' was refused", name);
		if (how)
			put(&p->out, name, value);
	}
	return 0;
}

static void put_framing(struct http_proxy *p, const struct http_head *h)
{
	p->req_chunked = h->framing == HTTP_CHUNKED || (p->o.body && h->framing == HTTP_LENGTH);
	if (p->req_chunked)
		put(&p->out, "Transfer-Encoding", "chunked");
	else if (h->framing == HTTP_LENGTH || http_head_get(h, "content-length"))
		buf_printf(&p->out, "Content-Length: %llu\r\n", (unsigned long long)h->length);
}

int http_proxy_request_head(struct http_proxy *p, struct err *e)
{
	const struct http_head *h = http_req_head(p->r);
	const char *target = p->o.target ? p->o.target : http_req_target(p->r), *host = p->o.host ? p->o.host : http_req_host(p->r);
	struct buf *b = &p->out;

	for (const char *c = target; *c; c++)
		if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f)
			return err_set(e, EINVAL, "forward a request: a character in its target that must be escaped");
	if (!http_is_value(host, strlen(host)))
		return err_set(e, EINVAL, "forward a request: a malformed host");
	buf_printf(b, "%s %s HTTP/1.1\r\n", http_req_method(p->r), *target ? target : "/");
	put(b, "Host", host);
	int bad = put_fields(p, h, e);

	if (bad < 0)
		return bad;
	if (p->o.forwarded) {
		put(b, "X-Forwarded-For", http_req_peer(p->r));
		put(b, "X-Forwarded-Host", http_req_host(p->r));
		put(b, "X-Forwarded-Proto", http_req_tls(p->r) ? "https" : "http");
	}
	for (const char *const *add = p->o.add; add && add[0] && add[1]; add += 2) {
		if (!http_is_token(add[0], strlen(add[0])) || !http_is_value(add[1], strlen(add[1])))
			return err_set(e, EINVAL, "forward a request: a malformed field '%.60s' to add", add[0]);
		put(b, add[0], add[1]);
	}
	put_framing(p, h);
	if (h->upgrade) {
		put(b, "Connection", "Upgrade");
		put(b, "Upgrade", http_head_get(h, "upgrade"));
	} else if (!p->o.spare) {
		put(b, "Connection", "close");
	}
	buf_adds(b, "\r\n");
	return buf_ok(b) ? 0 : err_set(e, E2BIG, "forward a request: its head is too large");
}

int http_proxy_set_fields(struct http_proxy *p, const struct http_head *h)
{
	AUTO_BUF struct buf tmp = BUF_INIT(HTTP_MAX_HEAD);

	for (unsigned i = 0; i < h->nfields; i++) {
		const char *name = http_field_name(h, i), *value = http_field_value(h, i);

		if (http_is_hop(h, name) || str_eq(name, "content-length"))
			continue;
		int how = edited(p, true, name, &value, &tmp);

		if (how > 0)
			how = http_set(p->r, name, value);
		if (how < 0)
			return how;
	}
	return 0;
}

static int over(struct http_proxy *p, const char *why)
{
	http_stream_free(p->up);
	p->up = NULL;
	if (p->r)
		http_proxy_over(p, HTTP_PROXY_FAILED, why);
	else
		http_proxy_over(p, HTTP_PROXY_CUT, why);
	return -1;
}

/* 101 from the upstream, or a CONNECT: the two connections become a tunnel. */
int http_proxy_upgrade(struct http_proxy *p)
{
	const struct http_head *asked = http_req_head(p->r), *h = &p->rd.head;
	struct http_stream *client;

	loop_disarm(p->loop, &p->timer);
	if (!p->connect) {
		if (!asked->upgrade || !http_head_get(h, "upgrade") || !p->req_done || p->out.len || p->up_pipe.len)
			return over(p, "an upgrade that wasn't asked for");
		if (http_proxy_set_fields(p, h) < 0 || http_set(p->r, "Connection", "Upgrade") < 0 ||
		    http_set(p->r, "Upgrade", http_head_get(h, "upgrade")) < 0 ||
		    http_stream_unread(p->up, p->rd.len ? p->rd.in + p->rd.off : "", p->rd.len) < 0)
			return over(p, "the upgrade's answer was refused");
	}
	int bad = http_takeover(p->r, p->connect ? 200 : 101, &client);

	if (bad == -EPIPE)      /* the client left: its on_end ends this */
		return -1;
	if (bad < 0)
		return over(p, "an upgrade in the middle of a body");
	http_reader_done(&p->rd);
	struct http_stream *up = p->up;

	p->up = NULL;
	if (http_tunnel_start(client, up, http_proxy_tunnel_done, p, &p->tunnel, NULL) < 0)
		http_proxy_over(p, HTTP_PROXY_CUT, "no memory");
	return -1;
}
