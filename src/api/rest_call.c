/* rest_call -- one operation for one request; values and streams. */
#include "api/rest_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/fd.h"
#include "core/str.h"

#define LINE_MAX_ (2u << 20)
#define LOW (64u << 10)              /* the client has read all but this: it gets more */
#define WINDOW 262144
#define ALIVE_MS 25000

static void on_end(void *ctx, struct http_req *r, enum http_why why)
{
	struct rest_call *c = ctx;

	c->r = NULL;
	loop_disarm(c->api->loop, &c->alive);
	loop_disarm(c->api->loop, &c->again);
	ops_cancel(c->call);             /* sets it to NULL */
	rest_free_if_over(c);
}

struct rest_call *rest_call_new(struct api *a, struct http_req *r, const struct op_info *op, const struct principal *who)
{
	struct rest_call *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->api = a;
	c->r = r;
	c->op = op;
	c->fd = -1;
	c->args = json_object();
	snprintf(c->who_name, sizeof c->who_name, "%s", who->name ? who->name : "");
	snprintf(c->only, sizeof c->only, "%s", who->only_computer ? who->only_computer : "");
	c->who = (struct principal){ .rights = who->rights, .name = c->who_name, .only_computer = c->only[0] ? c->only : NULL };
	buf_init(&c->line, LINE_MAX_);
	buf_init(&c->body, LINE_MAX_);
	http_req_on_end(r, on_end, c);
	return c;
}

void rest_free_if_over(struct rest_call *c)
{
	if (c->r || c->call || c->busy)
		return;
	rest_bytes_drop(c);
	loop_disarm(c->api->loop, &c->alive);
	loop_disarm(c->api->loop, &c->again);
	json_decref(c->args);
	json_decref(c->result);
	buf_done(&c->line);
	buf_done(&c->body);
	free(c);
}

void rest_run(struct rest_call *c)
{
	struct op_in in = { .args = c->args, .window = WINDOW };
	const char *id = json_string_value(json_object_get(c->args, "id"));

	str_copy(c->id, sizeof c->id, id ? id : "");

	c->args = NULL;
	c->busy++;
	ops_run(c->api->ops, c->op->name, &c->who, &in, rest_sink(c->op), c, &c->call);
	c->busy--;
	rest_free_if_over(c);
}

/* ---- a value ---- */

static void value_done(void *ctx, const struct err *e, const json_t *result, int fd)
{
	struct rest_call *c = ctx;

	fd_drop(&fd);
	if (!c->r)
		return;
	if (e)
		rest_fail(c->r, e);
	else if (!result)
		http_reply(c->r, 204, NULL, NULL, 0);
	else
		rest_json(c->r, str_eq(c->op->name, "sandbox.create") ? 201 : 200, result);
}

static void no_event(void *ctx, const json_t *event)
{
}

static void no_data(void *ctx, enum op_stream s, const void *p, size_t n)
{
}

/* ---- a stream: one JSON object a line. What is written leaves at the end of the loop's turn: at once, and together ---- */

static void on_alive(struct timer *t)
{
	struct rest_call *c = container_of(t, struct rest_call, alive);

	if (!c->r)
		return;
	http_write(c->r, "\n", 1);
	loop_arm(c->api->loop, t, ALIVE_MS);
}

static void on_drain(void *ctx, struct http_req *r)
{
	struct rest_call *c = ctx;
	uint32_t n = c->owed;

	c->owed = 0;
	if (n)
		ops_credit(c->call, n);
}

static void begin_stream(struct rest_call *c)
{
	if (c->started)
		return;
	c->started = true;
	http_set(c->r, "Cache-Control", "no-store");
	http_set(c->r, "X-Content-Type-Options", "nosniff");
	http_reply_start(c->r, 200, "application/x-ndjson", -1);
	http_on_drain(c->r, LOW, on_drain, c);
	c->alive.fire = on_alive;
	loop_arm(c->api->loop, &c->alive, ALIVE_MS);
}

static void write_line(struct rest_call *c)
{
	if (buf_ok(&c->line) && http_write(c->r, buf_at(&c->line), c->line.len) == -ENOSPC)
		http_abort(c->r);        /* can't be: credit bounds what is under way */
	buf_clear(&c->line);
}

static void stream_event(void *ctx, const json_t *event)
{
	struct rest_call *c = ctx;

	if (!c->r)
		return;
	begin_stream(c);
	js_dump(event, &c->line);
	buf_addc(&c->line, '\n');
	write_line(c);
}

/* How many bytes at the end of p[0..n) begin a character that goes on in what comes next? */
static size_t open_tail(const char *p, size_t n)
{
	for (size_t k = 1; k <= 3 && k <= n; k++) {
		unsigned char b = (unsigned char)p[n - k];
		size_t want = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;

		if ((b & 0xc0) == 0x80)
			continue;
		return want > k ? k : 0;
	}
	return 0;
}

static void add_text(struct rest_call *c, enum op_stream s, const char *p, size_t n)
{
	AUTO_BUF struct buf b = BUF_INIT(n + 8);
	uint8_t *nt = &c->ntail[s - 1];
	size_t keep;

	buf_add(&b, c->tail[s - 1], *nt);
	buf_add(&b, p, n);
	keep = open_tail(buf_at(&b), b.len);
	memcpy(c->tail[s - 1], buf_at(&b) + b.len - keep, keep);
	*nt = (uint8_t)keep;
	str_json(&c->line, buf_at(&b), b.len - keep);
}

static void stream_data(void *ctx, enum op_stream s, const void *p, size_t n)
{
	static const char *const names[] = { [OP_STDOUT] = "stdout", [OP_STDERR] = "stderr", [OP_PTY] = "pty" };
	struct rest_call *c = ctx;

	if (!c->r)
		return;
	begin_stream(c);
	buf_printf(&c->line, "{\"%s\":", names[s]);
	if (c->text) {
		add_text(c, s, p, n);
		buf_adds(&c->line, "}\n");
	} else {
		buf_addc(&c->line, '"');
		str_base64(&c->line, p, n);
		buf_adds(&c->line, "\"}\n");
	}
	write_line(c);
	c->owed += (uint32_t)n;
	if (http_pending(c->r) <= LOW)
		on_drain(c, c->r);
}

static void stream_done(void *ctx, const struct err *e, const json_t *result, int fd)
{
	struct rest_call *c = ctx;

	fd_drop(&fd);
	if (!c->r)
		return;
	loop_disarm(c->api->loop, &c->alive);
	if (e && !c->started) {
		rest_fail(c->r, e);
		return;
	}
	begin_stream(c);
	loop_disarm(c->api->loop, &c->alive);
	if (e) {
		buf_printf(&c->line, "{\"error\":{\"code\":\"%s\",\"message\":", ops_code_name(rest_code(e->code)));
		str_json(&c->line, e->msg, strlen(e->msg));
		buf_adds(&c->line, "}}\n");
		write_line(c);
	}
	http_end(c->r);
}

static const struct op_sink value_sink = { no_event, no_data, value_done };
static const struct op_sink stream_sink = { stream_event, stream_data, stream_done };
static const struct op_sink bytes_sink = { no_event, no_data, rest_bytes_done };

const struct op_sink *rest_sink(const struct op_info *op)
{
	return op->stream ? &stream_sink : op->gives_fd ? &bytes_sink : &value_sink;
}
