#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/str.h"
#include "http/server_impl.h"
#include "http/url.h"

/* Moves a parsed head out of the input buffer, so that the buffer is free for the body and a quiet request holds little. Behind
 * the head: the decoded path (never longer than the target). */
static int keep_head(struct http_req *c)
{
	struct http_head *h = &c->head;
	size_t need = (size_t)h->len + h->target_len + 2;

	c->arena = need <= sizeof c->small ? c->small : malloc(need);
	if (!c->arena)
		return -ENOMEM;
	memcpy(c->arena, h->base, h->len);
	h->base = c->arena;
	c->path = c->arena + h->len;
	return 0;
}

/* An absolute target is cut into the authority, which stands for Host, and the path. */
static void split_absolute(struct http_req *c)
{
	struct http_head *h = &c->head;
	char *t = h->base + h->target, *host = strchr(t, ':') + 3;
	size_t n = strcspn(host, "/?");

	/* two bytes to the left, over the "//": room for a NUL and for a '/' that the path may lack */
	memmove(host - 2, host, n);
	(host + n)[-2] = 0;     /* n may be 1 */
	c->host = host - 2;
	h->target_len = (uint16_t)(h->target_len - (host + n - t));
	h->target = (uint16_t)(host + n - h->base);
	if (!h->target_len || h->base[h->target] == '?') {
		h->base[--h->target] = '/';
		h->target_len++;
	}
}

int http_req_begin(struct http_req *c, size_t head_len, const char **ret_why)
{
	struct http_head *h = &c->head;
	int bad = http_parse_request(c->in + c->in_off, head_len, h, ret_why);

	if (bad)
		return bad;
	if (keep_head(c) < 0)
		return *ret_why = "no memory", 503;
	c->host = NULL;
	if (h->form == HTTP_ABSOLUTE)
		split_absolute(c);
	else if (h->form == HTTP_AUTHORITY)
		c->host = h->base + h->target;
	else
		c->host = (char *)http_head_get(h, "host");
	if (h->form == HTTP_AUTHORITY)
		*c->path = 0;
	else if (http_path_decode(h->base + h->target, h->target_len, c->path) < 0)
		return *ret_why = "a bad escape in the path", 400;
	c->method_head = strcmp(h->base, "HEAD") == 0;
	c->body_left = h->length;
	c->body_done = h->framing == HTTP_NO_BODY;
	c->continue_due = h->expect_continue;
	http_chunked_init(&c->chunked);
	return 0;
}

void http_req_reset(struct http_req *c)
{
	if (c->arena != c->small)
		free(c->arena);
	free(c->query);
	c->arena = c->path = c->host = c->query = NULL;
	c->nquery = 0;
	c->query_bad = false;
	c->on_end = NULL;
	c->on_data = NULL;
	c->on_body_end = NULL;
	c->on_splice = NULL;
	c->collect_done = NULL;
	c->to_done = NULL;
	c->on_drain = NULL;
	c->body_wanted = c->body_done = c->paused = c->discarding = c->continue_due = false;
	c->discarded = 0;
	buf_done(&c->collect);
	c->to_fd = -1;
	if (c->set.cap > OUT_KEEP)
		buf_done(&c->set);
	else
		buf_clear(&c->set);
	if (c->out.cap > OUT_KEEP)
		buf_done(&c->out);
	else
		buf_clear(&c->out);
	c->has_date = c->has_server = c->has_type = c->close_after = false;
	c->replied = c->ended = c->chunked_out = c->no_body = c->above = false;
	c->out_left = -1;
	if (c->file >= 0 && !c->file_is_pipe)
		close(c->file);
	c->file = -1;
	c->file_is_pipe = false;
	c->file_left = 0;
	c->pipe = NULL;
}

void http_req_forget(struct http_req *c)
{
	c->on_end = NULL;
	c->on_data = NULL;
	c->on_body_end = NULL;
	c->on_splice = NULL;
	c->on_drain = NULL;
	c->body_wanted = c->paused = false;
}

void http_req_refuse(struct http_req *c, int status, const char *path, const char *why)
{
	if (c->srv->o.on_refuse)
		c->srv->o.on_refuse(c->srv->o.ctx, c, status, path, why);
	else
		http_replyf(c, status, "text/plain", "%s: %s\n", http_reason(status), why);
}

/* ---- accessors ---- */

const char *http_req_method(const struct http_req *r) { return r->head.base + r->head.method; }
bool http_req_is(const struct http_req *r, const char *method) { return str_eq(http_req_method(r), method); }
const char *http_req_path(const struct http_req *r) { return r->path; }
const char *http_req_target(const struct http_req *r) { return r->head.base + r->head.target; }
const char *http_req_header(const struct http_req *r, const char *name) { return http_head_get(&r->head, name); }
const char *http_req_host(const struct http_req *r) { return r->host ? r->host : ""; }
const struct http_head *http_req_head(const struct http_req *r) { return &r->head; }
void *http_req_tag(const struct http_req *r) { return r->tag; }
struct http_stream *http_req_stream(struct http_req *r) { return r->st; }
struct loop *http_req_loop(const struct http_req *r) { return r->srv->loop; }
bool http_req_tls(const struct http_req *r) { return r->st && !http_stream_plain(r->st); }

const char *http_req_raw_query(const struct http_req *r)
{
	const char *q = strchr(http_req_target(r), '?');

	return q ? q + 1 : "";
}

int64_t http_req_body_length(const struct http_req *r)
{
	return r->head.framing == HTTP_CHUNKED ? -1 : r->head.framing == HTTP_LENGTH ? (int64_t)r->head.length : 0;
}

void http_req_on_end(struct http_req *r, void (*fn)(void *ctx, struct http_req *r, enum http_why why), void *ctx)
{
	r->on_end = fn;
	r->on_end_ctx = ctx;
}

/* name NUL value NUL for each pair that decodes; others are left out */
static void decode_query(struct http_req *r)
{
	const char *q = http_req_raw_query(r);
	size_t n = strlen(q), pos = 0, at = 0;
	char *name = NULL, *value;
	int more;

	r->query = malloc(2 * n + 4);
	name = malloc(2 * (n + 1));
	if (!r->query || !name) {
		free(name);
		return;
	}
	value = name + n + 1;
	while ((more = http_query_next(q, n, &pos, name, value)) != 0) {
		if (more < 0) {
			r->query_bad = true;
			continue;
		}
		size_t nl = strlen(name) + 1, vl = strlen(value) + 1;

		/* "a&b": each pair costs at most its bytes and two NULs */
		memcpy(r->query + at, name, nl);
		memcpy(r->query + at + nl, value, vl);
		at += nl + vl;
		r->nquery++;
	}
	free(name);
}

bool http_req_query_bad(struct http_req *r)
{
	if (!r->query)
		decode_query(r);
	return r->query_bad || !r->query;
}

bool http_req_query_at(struct http_req *r, unsigned i, const char **ret_name, const char **ret_value)
{
	if (!r->query)
		decode_query(r);
	if (i >= r->nquery)
		return false;
	const char *p = r->query;

	for (; i; i--) {
		p += strlen(p) + 1;
		p += strlen(p) + 1;
	}
	*ret_name = p;
	*ret_value = p + strlen(p) + 1;
	return true;
}

const char *http_req_query(struct http_req *r, const char *name)
{
	const char *n, *v;

	if (!r->query)
		decode_query(r);
	const char *p = r->query;

	for (unsigned i = 0; i < r->nquery; i++) {
		n = p;
		v = n + strlen(n) + 1;
		if (str_eq(n, name))
			return v;
		p = v + strlen(v) + 1;
	}
	return NULL;
}

bool http_req_is_loopback(const struct http_req *r)
{
	static const unsigned char mapped[13] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127 };

	switch (r->peer.sa.sa_family) {
	case AF_UNIX:
		return true;
	case AF_INET:
		return ntohl(r->peer.v4.sin_addr.s_addr) >> 24 == 127;
	case AF_INET6:
		return IN6_IS_ADDR_LOOPBACK(&r->peer.v6.sin6_addr) || memcmp(&r->peer.v6.sin6_addr, mapped, sizeof mapped) == 0;
	default:
		return false;
	}
}

const char *http_req_peer(const struct http_req *r)
{
	struct http_req *c = (struct http_req *)r;      /* the text is a cache */

	if (r->peer.sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &r->peer.v4.sin_addr, c->peer_text, sizeof c->peer_text);
	else if (r->peer.sa.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &r->peer.v6.sin6_addr, c->peer_text, sizeof c->peer_text);
	else
		str_copy(c->peer_text, sizeof c->peer_text, "unix");
	if (str_starts(c->peer_text, "::ffff:") && strchr(c->peer_text, '.'))
		memmove(c->peer_text, c->peer_text + 7, strlen(c->peer_text + 7) + 1);
	return c->peer_text;
}
