#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/e2b_req.h"
#include "core/clock.h"
#include "core/str.h"

/* Methods that answer with a stream: Start, Connect, WatchDir.
 *
 * Theory of operation. The HTTP status is always 200 and comes with the first message; a failure is the last envelope
 * (flag 2). `start` leaves at once: clients wait for it under a short timeout. Output is encoded straight into one scratch buffer and
 * handed to the server, and the guest gets new credit only for what the client has taken, so a slow client holds its
 * program back and nobody's memory fills. A quiet stream says keepalive. The client leaving ends nothing but the stream; the
 * deadline of Start (Connect-Timeout-Ms) is the guest's to keep, and kills. A sandbox that ends cuts its streams with a reset: an end
 * frame would look like an answer from a program that lives. */

enum { KEEPALIVE_S = 90, KEEPALIVE_MAX_S = 3600, WINDOW = 256 << 10, CREDIT_STEP = 64 << 10, PENDING_LOW = 128 << 10 };
enum kind { START, ATTACH, WATCH };

struct stream {
	struct e2b_req q;
	enum kind kind;
	struct op_tie tie;
	struct timer keep, deadline;
	int64_t keep_ms, deadline_ms, last_ms;   /* last: when something was written */
	uint32_t owed;                           /* bytes taken from the guest and not yet given back as credit */
	bool started, ended;
	json_t *args;                            /* Connect: of the operation that comes after the look */
};

static struct stream *stream_of(struct e2b_req *q)
{
	return container_of(q, struct stream, q);
}

static void stream_drop(struct e2b_req *q)
{
	struct stream *s = stream_of(q);

	ops_tie_drop(&s->tie);
	loop_disarm(q->api->loop, &s->keep);
	loop_disarm(q->api->loop, &s->deadline);
	json_decref(s->args);
}

/* Over: nothing of this stream is sent any more. */
static void settle(struct stream *s)
{
	s->ended = true;
	ops_tie_drop(&s->tie);
	loop_disarm(s->q.api->loop, &s->keep);
	loop_disarm(s->q.api->loop, &s->deadline);
}

static void cut(struct stream *s)
{
	settle(s);
	http_abort(s->q.r);
}

static void on_kill(struct op_tie *t)
{
	struct stream *s = container_of(t, struct stream, tie);

	if (!s->ended)
		cut(s);
}

static void write_out(struct stream *s, struct buf *b)
{
	if (!buf_ok(b) || http_write(s->q.r, buf_at(b), b->len) == -ENOSPC) {
		cut(s);                          /* events that a client doesn't read: it can't be told in order any more */
		return;
	}
	s->last_ms = loop_now(s->q.api->loop);
}

static void open_reply(struct stream *s)
{
	if (http_replied(s->q.r))
		return;
	http_set(s->q.r, "Cache-Control", "no-store");
	http_reply_start(s->q.r, 200, "application/connect+json", -1);
}

static void finish_text(struct stream *s, const char *json, size_t n)
{
	struct buf *b = e2b_scratch();

	open_reply(s);
	e2b_env_text(b, E2B_ENV_END, json, n);
	write_out(s, b);
	if (s->ended)
		return;
	settle(s);                               /* what still runs for it is cancelled when the request has ended */
	http_end(s->q.r);
}

static void finish_error(struct stream *s, const char *word, const char *text)
{
	struct buf AUTO_BUF b = BUF_INIT(8192);

	buf_adds(&b, "{\"error\":");
	e2b_error_json(&b, word, text);
	buf_addc(&b, '}');
	finish_text(s, buf_at(&b), b.len);
}

static void on_keep(struct timer *t)
{
	static const char proc[] = "{\"event\":{\"keepalive\":{}}}", watch[] = "{\"keepalive\":{}}";
	struct stream *s = container_of(t, struct stream, keep);
	struct loop *l = s->q.api->loop;
	int64_t quiet = loop_now(l) - s->last_ms;

	if (quiet < s->keep_ms) {                /* something was said meanwhile */
		loop_arm(l, &s->keep, s->keep_ms - quiet);
		return;
	}
	if (http_pending(s->q.r) == 0) {
		struct buf *b = e2b_scratch();

		if (s->kind == WATCH)
			e2b_env_text(b, 0, watch, sizeof watch - 1);
		else
			e2b_env_text(b, 0, proc, sizeof proc - 1);
		write_out(s, b);
	}
	if (!s->ended)
		loop_arm(l, &s->keep, s->keep_ms);
}

static void on_deadline(struct timer *t)
{
	struct stream *s = container_of(t, struct stream, deadline);

	finish_error(s, "deadline_exceeded", "context deadline exceeded");
}

/* ---- what comes from the operation ---- */

static void give_credit(struct stream *s)
{
	uint32_t n = s->owed;

	s->owed = 0;
	if (n)
		e2b_credit(&s->q, n);
}

static void on_drain(void *ctx, struct http_req *r)
{
	give_credit(ctx);
}

static void on_data(struct e2b_req *q, enum op_stream o, const void *p, size_t n)
{
	struct stream *s = stream_of(q);
	const char *at = p;

	if (s->ended || !s->started)
		return;
	s->owed += (uint32_t)n;
	while (n && !s->ended) {
		size_t part = n > 32768 ? 32768 : n;
		struct buf *b = e2b_scratch();

		e2b_env_data(b, o, at, part);
		write_out(s, b);
		at += part;
		n -= part;
	}
	if (!s->ended && s->owed >= CREDIT_STEP && http_pending(q->r) <= PENDING_LOW)
		give_credit(s);
}

static void write_json(struct stream *s, json_t *v)
{
	struct buf *b = e2b_scratch();

	if (!v || e2b_env_json(b, 0, v) < 0)
		finish_error(s, "internal", "an event could not be written");
	else
		write_out(s, b);
	json_decref(v);
}

static void on_start(struct stream *s, const json_t *start)
{
	json_t *pid = json_object_get(start, "pid");

	s->started = true;
	open_reply(s);
	http_on_drain(s->q.r, PENDING_LOW, on_drain, s);
	write_json(s, s->kind == WATCH ? json_pack("{s:{}}", "start") : json_pack("{s:{s:{s:O?}}}", "event", "start", "pid", pid));
	if (s->ended)
		return;
	http_flush(s->q.r);
	loop_arm(s->q.api->loop, &s->keep, s->keep_ms);
	if (s->deadline_ms && s->kind != START)
		loop_arm(s->q.api->loop, &s->deadline, s->deadline_ms);
}

static void on_event(struct e2b_req *q, const json_t *event)
{
	struct stream *s = stream_of(q);
	const json_t *v;
	const char *how;

	if (s->ended)
		return;
	if ((v = json_object_get(event, "start"))) {
		on_start(s, v);
	} else if ((v = json_object_get(event, "watch"))) {
		write_json(s, json_pack("{s:o}", "filesystem", e2b_watch_event(v)));
	} else if ((v = json_object_get(event, "end"))) {
		how = json_string_value(json_object_get(v, "how"));
		if (s->kind == START && how && str_eq(how, "timeout"))
			finish_error(s, "deadline_exceeded", "context deadline exceeded");
		else
			write_json(s, json_pack("{s:{s:o}}", "event", "end", e2b_end_event(v)));
	}
	/* {"gap"}: this protocol has no word for it */
}

/* The computer's side broke off: not an answer of the program. */
static bool is_break(int code)
{
	return code == ECONNRESET || code == EPIPE || code == ENOTCONN || code == EHOSTDOWN || code == ECANCELED;
}

static const char *start_error(struct stream *s, const struct err *e, char *text, size_t size)
{
	const char *word = e2b_error_text(&s->q, e, text, size);

	if (s->kind != START)
		return word;
	if (e->code == ENOENT)                   /* the cwd or the program: it's the request that is wrong */
		return "invalid_argument";
	return word;
}

static void on_done(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct stream *s = stream_of(q);
	char text[640];
	const char *word;

	if (s->ended)
		return;
	if (!e) {
		finish_text(s, "{}", 2);
		return;
	}
	if (e2b_is_gone(q) || (s->started && is_break(e->code))) {
		if (s->started) {
			cut(s);
		} else {
			settle(s);
			e2b_gone(q->r, q->id);
		}
		return;
	}
	word = start_error(s, e, text, sizeof text);
	finish_error(s, word, text);
}

static const struct e2b_sink stream_sink = { .event = on_event, .data = on_data, .done = on_done };

/* ---- the three methods ---- */

static int64_t keepalive_ms(struct http_req *r)
{
	const char *v = http_req_header(r, "keepalive-ping-interval");
	uint64_t s;

	if (!v || str_u64(v, KEEPALIVE_MAX_S, &s) < 0 || s == 0)
		s = KEEPALIVE_S;
	return (int64_t)s * 1000;
}

static struct stream *open_stream(struct e2b_req *q, enum kind kind)
{
	int64_t deadline = e2b_connect_timeout(q->r);
	struct stream *s;

	if (deadline < 0) {
		e2b_fail_word(q, "invalid_argument", "Connect-Timeout-Ms isn't a number");
		return NULL;
	}
	s = (struct stream *)e2b_req_grow(q, sizeof *s);
	if (!s)
		return NULL;
	s->q.drop = stream_drop;
	s->kind = kind;
	s->keep.fire = on_keep;
	s->deadline.fire = on_deadline;
	s->deadline_ms = deadline;
	s->keep_ms = keepalive_ms(s->q.r);
	s->tie.cut = on_kill;
	if (ops_tie(s->q.api->ops, s->q.id, &s->tie) < 0) {
		e2b_gone(s->q.r, s->q.id);
		return NULL;
	}
	return s;
}

static bool strings_only(const json_t *v, bool object)
{
	const char *key;
	json_t *item;

	if (object) {
		json_object_foreach((json_t *)(uintptr_t)v, key, item)
			if (!json_is_string(item))
				return false;
		return json_is_object(v);
	}
	for (size_t i = 0; i < json_array_size(v); i++)
		if (!json_is_string(json_array_get(v, i)))
			return false;
	return json_is_array(v);
}

/* The request's variables, and those by which programs find out where they are; the request's own come first. */
static json_t *with_names(struct e2b_req *q, const json_t *envs)
{
	json_t *out = json_pack("{s:s, s:s}", "E2B_SANDBOX", "true", "E2B_SANDBOX_ID", q->id);

	if (out && envs)
		json_object_update(out, (json_t *)(uintptr_t)envs);
	return out;
}

/* Arguments of process.start from a StartRequest; NULL and why. */
static json_t *start_args(struct e2b_req *q, const json_t *msg, int64_t deadline, const char **why)
{
	const json_t *p = e2b_member(msg, "process", NULL), *v, *size = e2b_member(e2b_member(msg, "pty", NULL), "size", NULL);
	const char *cmd = json_string_value(e2b_member(p, "cmd", NULL));
	json_t *args = e2b_args(q);

	*why = NULL;
	json_object_set_new(args, "cmd", json_string(cmd ? cmd : ""));
	if (!cmd || !*cmd)
		*why = "process.cmd is missing";
	if ((v = e2b_member(p, "args", NULL)) && json_object_set(args, "args", (json_t *)(uintptr_t)v) == 0 && !strings_only(v, false))
		*why = "process.args must be strings";
	v = e2b_member(p, "envs", NULL);
	if (v && !strings_only(v, true))
		*why = "process.envs must be strings";
	else
		json_object_set_new(args, "envs", with_names(q, v));
	if ((v = e2b_member(p, "cwd", NULL)) && json_string_length(v))
		json_object_set(args, "cwd", (json_t *)(uintptr_t)v);
	if ((v = e2b_member(msg, "tag", NULL)) && json_string_length(v))
		json_object_set(args, "tag", (json_t *)(uintptr_t)v);
	if (e2b_member(msg, "pty", NULL)) {
		json_int_t cols = json_integer_value(e2b_member(size, "cols", NULL)), rows = json_integer_value(e2b_member(size, "rows", NULL));

		json_object_set_new(args, "pty", json_pack("{s:I, s:I}", "cols", cols > 0 ? cols : 80, "rows", rows > 0 ? rows : 24));
	} else {
		v = e2b_member(msg, "stdin", NULL);      /* old clients don't say, and want to be able to write */
		json_object_set_new(args, "stdin", json_boolean(!v || json_is_true(v)));
	}
	if (deadline)
		json_object_set_new(args, "timeout_ms", json_integer(deadline));
	if (*why)
		json_decref(args);
	return *why ? NULL : args;
}

void e2b_stream_start(struct e2b_req *q, const json_t *msg)
{
	struct stream *s = open_stream(q, START);
	const char *why;
	json_t *args;

	if (!s)
		return;
	args = start_args(&s->q, msg, s->deadline_ms, &why);
	if (!args)
		finish_error(s, "invalid_argument", why);
	else
		e2b_run(&s->q, "process.start", args, NULL, 0, &stream_sink);
}

/* A program that has ended is told with all that was kept of it; one that runs from now on only, as clients expect. */
static void after_look(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct stream *s = stream_of(q);
	const json_t *all = json_object_get(res, "processes"), *pid = json_object_get(s->args, "pid"), *tag = json_object_get(s->args, "tag");
	bool live = true;
	json_t *args = s->args;

	if (s->ended)
		return;
	if (e) {
		on_done(q, e, NULL, -1);
		return;
	}
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *p = json_array_get(all, i);

		if (pid ? json_equal(json_object_get(p, "pid"), pid) : json_equal(json_object_get(p, "tag"), tag))
			live = !json_is_true(json_object_get(p, "ended"));
	}
	json_object_set_new(args, "live", json_boolean(live));
	s->args = NULL;
	e2b_run(q, "process.connect", args, NULL, 0, &stream_sink);
}

void e2b_stream_connect(struct e2b_req *q, const json_t *msg)
{
	json_t *args = json_pack("{s:s}", "id", q->id);
	struct stream *s;

	if (!e2b_select(q, msg, args) || !(s = open_stream(q, ATTACH))) {
		json_decref(args);
		return;
	}
	s->args = args;
	e2b_ask(&s->q, "process.list", json_pack("{s:s, s:b}", "id", s->q.id, "ended", 1), after_look);
}

void e2b_stream_watch(struct e2b_req *q, const json_t *msg)
{
	struct stream *s = open_stream(q, WATCH);
	const char *path = json_string_value(e2b_member(msg, "path", NULL));
	json_t *args;

	if (!s)
		return;
	args = e2b_args(&s->q);
	json_object_set_new(args, "path", json_string(path ? path : ""));
	json_object_set_new(args, "recursive", json_boolean(json_is_true(e2b_member(msg, "recursive", NULL))));
	json_object_set_new(args, "entries", json_boolean(json_is_true(e2b_member(msg, "includeEntry", "include_entry"))));
	json_object_set_new(args, "network_mounts", json_boolean(json_is_true(e2b_member(msg, "allowNetworkMounts", "allow_network_mounts"))));
	e2b_run(&s->q, "file.watch", args, NULL, 0, &stream_sink);
}
