#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/str.h"
#include "http/client_impl.h"

enum { SPARE_MS = 60000, SPARES_MAX = 64 };

/* ---- spare connections ---- */

static void spare_free(struct http_spare *sp)
{
	list_unlink(&sp->link);
	http_stream_free(sp->st);
	free(sp);
}

/* Anything that a spare connection says is its end: nobody asked. */
static void on_spare(void *ctx, unsigned what)
{
	spare_free(ctx);
}

struct http_stream *http_spare_take(struct http_client *c, const char *origin)
{
	/* the newest: the one least likely to be closed by now */
	for (struct list *it = c->spares.prev; it != &c->spares; it = it->prev) {
		struct http_spare *sp = container_of(it, struct http_spare, link);
		struct http_stream *st = sp->st;

		if (!str_eq(sp->origin, origin))
			continue;
		sp->st = NULL;
		spare_free(sp);
		http_stream_on(st, NULL, NULL);
		return st;
	}
	return NULL;
}

void http_spare_put(struct http_client *c, const char *origin, struct http_stream *st)
{
	struct http_spare *oldest = NULL, *sp;
	unsigned same = 0, all = 0;

	list_each(it, &c->spares) {
		sp = container_of(it, struct http_spare, link);
		all++;
		if (str_eq(sp->origin, origin) && same++ == 0)
			oldest = sp;
	}
	if (same >= c->max_spare && oldest)
		spare_free(oldest);
	else if (all >= SPARES_MAX)
		spare_free(container_of(c->spares.next, struct http_spare, link));
	sp = calloc(1, sizeof *sp + strlen(origin) + 1);
	if (!sp) {
		http_stream_free(st);
		return;
	}
	memcpy(sp->origin, origin, strlen(origin) + 1);
	sp->client = c;
	sp->st = st;
	sp->since = loop_now(c->loop);
	list_append(&c->spares, &sp->link);
	http_stream_on(st, on_spare, sp);
	http_stream_want(st, HTTP_READABLE);
	if (!c->sweep.pos)
		loop_arm(c->loop, &c->sweep, SPARE_MS);
}

static void on_sweep(struct timer *t)
{
	struct http_client *c = container_of(t, struct http_client, sweep);
	int64_t now = loop_now(c->loop);

	list_each(it, &c->spares) {
		struct http_spare *sp = container_of(it, struct http_spare, link);

		if (now - sp->since < SPARE_MS) {
			loop_arm(c->loop, t, SPARE_MS - (now - sp->since));
			return;
		}
		spare_free(sp);
	}
}

/* ---- the client ---- */

int http_client_tls(struct http_client *c, SSL_CTX **ret, struct err *e)
{
	int r = c->tls ? 0 : http_tls_client_ctx(c->ca_file, &c->tls, e);

	*ret = c->tls;
	return r;
}

int http_client_create(struct loop *l, const struct http_client_opts *o, struct http_client **ret, struct err *e)
{
	static const struct http_client_opts none;
	struct http_client *c = calloc(1, sizeof *c);

	if (!o)
		o = &none;
	if (c) {
		c->ca_file = o->ca_file ? strdup(o->ca_file) : NULL;
		c->user_agent = strdup(o->user_agent ? o->user_agent : "bureau/" BUREAU_VERSION);
	}
	if (!c || !c->user_agent || (o->ca_file && !c->ca_file)) {
		if (c) {
			free(c->ca_file);
			free(c->user_agent);
		}
		free(c);
		return err_set(e, ENOMEM, "make an HTTP client: no memory");
	}
	c->loop = l;
	c->connect_ms = o->connect_ms ? o->connect_ms : 20000;
	c->idle_ms = o->idle_ms ? o->idle_ms : 300000;
	c->max_spare = o->max_spare ? o->max_spare : 2;
	c->sweep.fire = on_sweep;
	list_init(&c->calls);
	list_init(&c->spares);
	*ret = c;
	return 0;
}

void http_client_free(struct http_client *c)
{
	if (!c)
		return;
	while (!list_empty(&c->calls))
		http_call_cancel(container_of(c->calls.next, struct http_call, link));
	while (!list_empty(&c->spares))
		spare_free(container_of(c->spares.next, struct http_spare, link));
	loop_disarm(c->loop, &c->sweep);
	SSL_CTX_free(c->tls);
	free(c->ca_file);
	free(c->user_agent);
	free(c);
}

/* ---- one call at a time ---- */

struct blocking {
	struct loop *loop;
	struct buf body;
	int status;
	struct err err;
};

static void on_head(void *ctx, struct http_call *k, int status, const struct http_head *h)
{
	struct blocking *b = ctx;

	b->status = status;
}

static void on_data(void *ctx, struct http_call *k, const char *p, size_t n)
{
	struct blocking *b = ctx;

	if (buf_add(&b->body, p, n) == 0)
		return;
	err_set(&b->err, EFBIG, "the answer is larger than %zu bytes", b->body.max);
	http_call_cancel(k);
	loop_quit(b->loop, 0);
}

static void on_end(void *ctx, struct http_call *k, const struct err *err)
{
	struct blocking *b = ctx;

	if (err)
		b->err = *err;
	loop_quit(b->loop, 0);
}

int http_client_call(const char *method, const char *url, const char *connect_to, const char *ca_file, const char *const *headers,
	const void *body, size_t body_len, size_t max_body, int *ret_status, char **ret_body, size_t *ret_len, struct err *e)
{
	struct blocking b = { .body = BUF_INIT(max_body) };
	struct http_client_opts o = { .ca_file = ca_file };
	struct http_call_spec s = { .method = method, .url = url, .connect_to = connect_to, .headers = headers, .body = body,
		.body_len = body_len, .head = on_head, .data = on_data, .end = on_end, .ctx = &b };
	struct http_client *c = NULL;
	int r = loop_create(&b.loop, e);

	if (r < 0)
		return r;
	r = http_client_create(b.loop, &o, &c, e);
	if (r == 0)
		r = http_call_start(c, &s, NULL, e);
	if (r == 0) {
		loop_run(b.loop);
		r = b.err.code ? err_set(e, b.err.code, "%s", b.err.msg) : 0;
	}
	http_client_free(c);
	loop_free(b.loop);
	if (r == 0) {
		size_t len = b.body.len;
		char *p = len ? buf_take(&b.body) : strdup("");

		if (!p)
			r = err_set(e, ENOMEM, "keep an answer: no memory");
		else
			*ret_status = b.status, *ret_body = p, *ret_len = len;
	}
	buf_done(&b.body);
	return r;
}
