#include "api/e2b_req.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/str.h"

/* One operation of a request. It has its own life, because the call may be over before ops_run() returns, and then again
 * another may have been asked for: it's freed when both have happened. */
struct e2b_step {
	struct e2b_req *q;               /* NULL when nobody listens any more */
	struct op_call *call;
	struct e2b_sink to;
	bool returned, over;
};

static void step_drop(struct e2b_step *s)
{
	if (s->returned && s->over)
		free(s);
}

static void step_event(void *ctx, const json_t *event)
{
	struct e2b_step *s = ctx;

	if (s->q && s->to.event)
		s->to.event(s->q, event);
}

static void step_data(void *ctx, enum op_stream o, const void *p, size_t n)
{
	struct e2b_step *s = ctx;

	if (s->q && s->to.data)
		s->to.data(s->q, o, p, n);
}

static void step_done(void *ctx, const struct err *e, const json_t *res, int fd)
{
	struct e2b_step *s = ctx;
	struct e2b_req *q = s->q;

	s->over = true;
	s->call = NULL;
	s->q = NULL;
	if (q && q->step == s)
		q->step = NULL;
	if (q)
		s->to.done(q, e, res, fd);
	else if (fd >= 0)
		close(fd);
	step_drop(s);
}

static const struct op_sink step_sink = { .event = step_event, .data = step_data, .done = step_done };

void e2b_run(struct e2b_req *q, const char *op, json_t *args, const void *data, size_t len, const struct e2b_sink *to)
{
	struct op_in in = { .args = args, .data = data, .len = len };
	struct e2b_step *s = args ? calloc(1, sizeof *s) : NULL;
	struct err e;

	if (!s) {
		json_decref(args);
		err_set(&e, ENOMEM, "no memory for this request");
		to->done(q, &e, NULL, -1);
		return;
	}
	s->q = q;
	s->to = *to;
	q->step = s;
	ops_run(q->api->ops, op, &q->who, &in, &step_sink, s, &s->call);
	s->returned = true;
	step_drop(s);
}

void e2b_ask(struct e2b_req *q, const char *op, json_t *args,
	void (*done)(struct e2b_req *q, const struct err *e, const json_t *res, int fd))
{
	const struct e2b_sink to = { .done = done };

	e2b_run(q, op, args, NULL, 0, &to);
}

void e2b_credit(struct e2b_req *q, uint32_t bytes)
{
	if (q->step && q->step->call)
		ops_credit(q->step->call, bytes);
}

/* The operation that runs, if any. */
static void step_cancel(struct e2b_req *q)
{
	struct e2b_step *s = q->step;

	if (!s)
		return;
	q->step = NULL;
	s->q = NULL;
	if (s->returned && !s->over) {
		ops_cancel(s->call);
		s->over = true;
	}
	step_drop(s);
}

static void on_end(void *ctx, struct http_req *r, enum http_why why)
{
	struct e2b_req *q = ctx;

	step_cancel(q);
	if (q->drop)
		q->drop(q);
	free(q);
}

struct e2b_req *e2b_req_open(struct api *a, struct http_req *r, size_t size, const struct e2b_req *from)
{
	struct e2b_req *q = calloc(1, size);

	if (!q) {
		e2b_status(r, 503, "no memory for this request");
		return NULL;
	}
	if (from) {
		*q = *from;
		q->step = NULL;
		q->drop = NULL;
		q->who.name = q->who_name;       /* what borrowed from the other struct borrows from this one */
		if (q->who.only_computer)
			q->who.only_computer = q->id;
	}
	q->api = a;
	q->r = r;
	http_req_on_end(r, on_end, q);
	return q;
}

void e2b_req_release(struct e2b_req *q)
{
	http_req_on_end(q->r, NULL, NULL);
	step_cancel(q);
	free(q);
}

struct e2b_req *e2b_req_grow(struct e2b_req *q, size_t size)
{
	struct e2b_req from = *q;

	e2b_req_release(q);
	return e2b_req_open(from.api, from.r, size, &from);
}

void e2b_req_as(struct e2b_req *q, const struct principal *p)
{
	char name[sizeof q->who_name];

	snprintf(name, sizeof name, "%s", p->name ? p->name : "");
	q->who = *p;
	memcpy(q->who_name, name, sizeof name);
	q->who.name = q->who_name;
	if (p->only_computer)            /* a sandbox's token is only ever used for that sandbox */
		q->who.only_computer = q->id;
}

json_t *e2b_args(const struct e2b_req *q)
{
	json_t *args = json_pack("{s:s}", "id", q->id);

	if (args && *q->user)
		json_object_set_new(args, "user", json_string(q->user));
	return args;
}

bool e2b_is_gone(const struct e2b_req *q)
{
	enum op_life life = ops_life(q->api->ops, q->id);

	return life == OP_LIFE_ENDED || life == OP_LIFE_UNKNOWN;
}

struct buf *e2b_scratch(void)
{
	static struct buf b = BUF_INIT(8 << 20);

	buf_clear(&b);
	return &b;
}
