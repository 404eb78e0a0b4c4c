/* exec -- a program in a computer, followed to its end.
 *
 * Theory of operation. Each program gets a random tag. START sends process.start; its stream brings {"start"}, output, {"end"}.
 * When the stream breaks first, CONNECT asks for the program of that tag: found, output goes on after the bytes already handed on
 * (counted over all streams together, as the computer counts), with a {"gap"} when the computer doesn't keep them any more; not
 * found, and no {"start"} was ever seen, it wasn't started, so START again. That makes a start happen once whatever breaks. A stream
 * that ends with an {"error"} "unavailable" (the server lost the computer for the moment) is one that broke. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "client/client_priv.h"
#include "core/clock.h"
#include "core/str.h"

#define MAX_BREAKS 20

struct client_run {
	struct client *c;
	struct client_exec x;       /* strings of it live in body */
	json_t *body;
	void *ctx;
	char path[96], tag[24];
	struct client_call *call;
	struct timer wait;
	bool connecting, started, ended;
	unsigned breaks;
	uint64_t got, pos;          /* output bytes handed on; place in the output of the stream being read */
	struct client_exit exit;
	struct err err;
};

static void run_free(struct client_run *r)
{
	loop_disarm(r->c->loop, &r->wait);
	client_cancel(r->call);
	json_decref(r->body);
	free(r);
}

void client_exec_cancel(struct client_run *r)
{
	if (r)
		run_free(r);
}

static void finish(struct client_run *r)
{
	struct client_exit x = r->exit;
	struct err err = r->err;
	void (*end)(void *, const struct client_exit *) = r->x.end;
	void *ctx = r->ctx;

	run_free(r);
	x.e = err.code ? &err : NULL;
	end(ctx, &x);
}

static int on_output(struct client_run *r, enum client_stream s, const json_t *v)
{
	AUTO_BUF struct buf b = BUF_INIT(CLIENT_LINE_MAX);
	size_t skip;

	if (!json_is_string(v) || str_base64_decode(json_string_value(v), json_string_length(v), &b) < 0)
		return err_set(&r->err, EBADMSG, "the server sent bad output");
	skip = r->got > r->pos ? (r->got - r->pos < b.len ? (size_t)(r->got - r->pos) : b.len) : 0;
	r->pos += b.len;
	if (r->pos > r->got)
		r->got = r->pos;
	if (skip < b.len && r->x.output)
		r->x.output(r->ctx, s, buf_at(&b) + skip, b.len - skip);
	return 0;
}

static int on_exit_event(struct client_run *r, const json_t *v)
{
	const char *how = "";
	int64_t code = 0;

	if (js_get_str(v, "how", &how, &r->err) < 0 || js_get_int(v, "code", 0, INT32_MAX, &code, &r->err) < 0
		|| js_get_bool(v, "oom", &r->exit.oom, &r->err) < 0)
		return -1;
	r->exit.how = str_eq(how, "signaled") ? CLIENT_SIGNALED : str_eq(how, "timeout") ? CLIENT_TIMED_OUT : CLIENT_EXITED;
	r->exit.code = (int)code;
	r->ended = true;
	return 0;
}

static int on_gap(struct client_run *r, const json_t *v)
{
	int64_t n = 0;

	if (js_get_int(v, "bytes", 0, INT64_MAX / 4, &n, &r->err) < 0)
		return -1;
	r->pos += (uint64_t)n;
	if (r->pos > r->got) {
		r->got = r->pos;
		r->exit.lost = true;
	}
	return 0;
}

static void on_start_event(struct client_run *r, const json_t *v)
{
	int64_t pid = 0;

	if (js_get_int(v, "pid", 1, INT32_MAX, &pid, NULL) == 1 && !r->started) {
		r->started = true;
		if (r->x.start)
			r->x.start(r->ctx, pid);
	}
}

static void on_error_event(struct client_run *r, const json_t *v)
{
	const char *msg = "the stream ended", *code = "";

	js_get_str(v, "message", &msg, NULL);
	js_get_str(v, "code", &code, NULL);
	if (str_eq(code, "unavailable") || str_eq(code, "canceled"))
		return;
	err_set(&r->err, EIO, "%s", msg);
}

static void on_line(void *ctx, const char *p, size_t n)
{
	struct client_run *r = ctx;
	AUTO_JSON json_t *v = NULL;
	json_t *m;

	if (r->ended || r->err.code)
		return;
	if (js_parse(p, n, &v, &r->err) < 0 || !json_is_object(v)) {
		err_set(&r->err, EBADMSG, "the server sent a line that isn't a JSON object");
		return;
	}
	if ((m = json_object_get(v, "stdout")))
		on_output(r, CLIENT_STDOUT, m);
	else if ((m = json_object_get(v, "stderr")))
		on_output(r, CLIENT_STDERR, m);
	else if ((m = json_object_get(v, "pty")))
		on_output(r, CLIENT_PTY, m);
	else if ((m = json_object_get(v, "start")))
		on_start_event(r, m);
	else if ((m = json_object_get(v, "end")))
		on_exit_event(r, m);
	else if ((m = json_object_get(v, "gap")))
		on_gap(r, m);
	else if ((m = json_object_get(v, "error")))
		on_error_event(r, m);
}

static void begin(struct client_run *r);

static void on_wait(struct timer *t) { begin(container_of(t, struct client_run, wait)); }

static void stream_over(void *ctx, const struct client_answer *a)
{
	struct client_run *r = ctx;
	bool broke = a->e ? a->e->code == EPIPE && a->status < 300 : true;

	r->call = NULL;
	if (r->ended || r->err.code) {
		finish(r);
		return;
	}
	if (a->e && a->e->code == ENOENT && r->connecting && !r->started) {
		r->connecting = false;     /* it never began */
		loop_arm(r->c->loop, &r->wait, 0);
		return;
	}
	if (broke && r->breaks++ < MAX_BREAKS) {
		r->connecting = true;
		loop_arm(r->c->loop, &r->wait, r->breaks < 3 ? 100 : 1000);
		return;
	}
	if (a->e)
		r->err = *a->e;
	else
		err_set(&r->err, EPIPE, "the server ended the stream too early, again and again");
	r->exit.retry_ms = a->retry_ms;
	finish(r);
}

static void begin(struct client_run *r)
{
	char path[128];
	struct client_call *k;

	snprintf(path, sizeof path, "%s/%s", r->path, r->connecting ? "processes/connect" : "exec");
	k = call_new(r->c, "POST", path, NULL);
	if (k) {
		AUTO_JSON json_t *who = json_pack("{s:s, s:I}", "tag", r->tag, "from", (json_int_t)r->got);

		k->type = "application/json";
		k->follow = true;
		k->line = on_line;
		js_dump(r->connecting ? who : r->body, &k->body);
		r->pos = r->connecting ? r->got : 0;
		k = call_start(k, stream_over, r);
	}
	r->call = k;
	if (!k) {
		err_set(&r->err, ENOMEM, "no memory");
		finish(r);
	}
}

static json_t *start_args(const struct client_exec *x, const char *tag)
{
	json_t *b = json_pack("{s:s, s:s}", "cmd", x->cmd, "tag", tag);

	if (!b)
		return NULL;
	if (x->args)
		json_object_set(b, "args", x->args);
	if (x->envs)
		json_object_set(b, "envs", x->envs);
	if (x->cwd)
		json_object_set_new(b, "cwd", json_string(x->cwd));
	if (x->user)
		json_object_set_new(b, "user", json_string(x->user));
	if (x->stdin_open)
		json_object_set_new(b, "stdin", json_true());
	if (x->timeout_ms)
		json_object_set_new(b, "timeout_ms", json_integer((json_int_t)x->timeout_ms));
	if (x->cols && x->rows)
		json_object_set_new(b, "pty", json_pack("{s:i, s:i}", "cols", (int)x->cols, "rows", (int)x->rows));
	return b;
}

struct client_run *client_exec(struct client *c, const struct client_exec *x, void *ctx)
{
	struct client_run *r = calloc(1, sizeof *r);
	unsigned char dice[8];

	if (!r)
		return NULL;
	r->c = c;
	r->x = *x;
	r->ctx = ctx;
	r->wait.fire = on_wait;
	str_random(dice, sizeof dice);
	snprintf(r->tag, sizeof r->tag, "x%02x%02x%02x%02x%02x%02x%02x%02x", dice[0], dice[1], dice[2], dice[3], dice[4], dice[5], dice[6], dice[7]);
	snprintf(r->path, sizeof r->path, "/v1/sandboxes/%.40s", x->id);
	r->body = start_args(x, r->tag);
	if (!r->body) {
		free(r);
		return NULL;
	}
	loop_arm(c->loop, &r->wait, 0);
	return r;
}
