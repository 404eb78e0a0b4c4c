#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/e2b_req.h"
#include "core/str.h"

/* Bytes for a program: SendInput, and StreamInput (a stream from the client). A program's queue is small; when it is full the
 * bytes wait here and are offered again, until the client gives up. */

enum { PIECE = 32 << 10, RETRY_MS = 20, MAX_BYTES = 16 << 20, STREAM_MESSAGE = 4 << 20 };

struct input {
	struct e2b_req q;
	json_t *args;                    /* of process.input: id, selector, pty */
	struct buf bytes;                /* still to be given */
	struct timer retry;
	bool busy;
	/* StreamInput */
	bool stream, selected, finished, over, walking;
	struct buf in;
};

static void offer(struct input *in);
static void next_message(struct input *in);

static void input_drop(struct e2b_req *q)
{
	struct input *in = container_of(q, struct input, q);

	loop_disarm(q->api->loop, &in->retry);
	json_decref(in->args);
	buf_done(&in->bytes);
	buf_done(&in->in);
}

static struct input *input_set(struct input *in)
{
	if (!in)
		return NULL;
	in->q.drop = input_drop;
	buf_init(&in->bytes, MAX_BYTES);
	buf_init(&in->in, STREAM_MESSAGE + E2B_ENV_HEAD + (256 << 10));
	in->args = json_pack("{s:s}", "id", in->q.id);
	return in;
}

/* The end of a client stream is an answer stream: one message and its end, or the end alone with the error. */
static void reply_stream(struct input *in, const char *word, const char *text)
{
	struct buf b = BUF_INIT(16384), error = BUF_INIT(8192);

	in->over = true;
	if (!word) {
		e2b_env_text(&b, 0, "{}", 2);
		e2b_env_text(&b, E2B_ENV_END, "{}", 2);
	} else {
		buf_adds(&error, "{\"error\":");
		e2b_error_json(&error, word, text);
		buf_addc(&error, '}');
		e2b_env_text(&b, E2B_ENV_END, buf_at(&error), error.len);
		http_close_after(in->q.r);       /* the rest of what the client sends is not read */
	}
	http_reply_buf(in->q.r, 200, "application/connect+json", &b);
	buf_done(&b);
	buf_done(&error);
}

static void fail_input(struct input *in, const struct err *e)
{
	char text[640];
	const char *word = e2b_error_text(&in->q, e, text, sizeof text);

	if (e->code == EINVAL)                   /* stdin for a terminal, or the other way round */
		word = "internal";
	if (e2b_is_gone(&in->q))
		e2b_gone(in->q.r, in->q.id);
	else if (in->stream)
		reply_stream(in, word, text);
	else
		e2b_fail_word(&in->q, word, "%s", text);
	in->over = true;
}

static void offered(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct input *in = container_of(q, struct input, q);

	if (e && e->code == EAGAIN) {
		loop_arm(q->api->loop, &in->retry, RETRY_MS);
		return;
	}
	if (e) {
		fail_input(in, e);
		return;
	}
	buf_consume(&in->bytes, in->bytes.len < PIECE ? in->bytes.len : PIECE);
	offer(in);
}

static void on_retry(struct timer *t)
{
	offer(container_of(t, struct input, retry));
}

/* Gives the next piece, or goes on when all is given. */
static void offer(struct input *in)
{
	static const struct e2b_sink to = { .done = offered };

	if (in->bytes.len) {
		size_t n = in->bytes.len < PIECE ? in->bytes.len : PIECE;

		in->busy = true;
		in->retry.fire = on_retry;
		e2b_run(&in->q, "process.input", json_incref(in->args), buf_at(&in->bytes), n, &to);
		return;
	}
	in->busy = false;
	if (in->stream)
		next_message(in);
	else
		http_reply(in->q.r, 200, "application/json", "{}", 2);
}

/* ProcessInput into in->bytes and in->args; NULL = fine, else what's wrong. */
static const char *take_bytes(struct input *in, const json_t *input)
{
	const json_t *in_pty = e2b_member(input, "pty", NULL), *v = in_pty ? in_pty : e2b_member(input, "stdin", NULL);

	if (!json_is_string(v))
		return "input (stdin or pty) is missing";
	if (str_base64_decode(json_string_value(v), json_string_length(v), &in->bytes) < 0 || !buf_ok(&in->bytes))
		return "input isn't base64, or is too long";
	json_object_set_new(in->args, "pty", json_boolean(in_pty != NULL));
	return NULL;
}

void e2b_input(struct e2b_req *q, const json_t *msg)
{
	struct input *in = input_set((struct input *)e2b_req_grow(q, sizeof *in));
	const char *why;

	if (!in || !e2b_select(&in->q, msg, in->args))
		return;
	why = take_bytes(in, e2b_member(msg, "input", NULL));
	if (why)
		e2b_fail_word(&in->q, "invalid_argument", "%s", why);
	else
		offer(in);
}

/* ---- StreamInput ---- */

static void one_message(struct input *in, const char *p, size_t n)
{
	json_t AUTO_JSON *msg = NULL;
	const json_t *v;
	const char *why = NULL;
	struct err e;

	if (js_parse(p, n, &msg, &e) < 0)
		why = "a message isn't JSON";
	else if ((v = e2b_member(msg, "start", NULL)))
		in->selected = e2b_select(&in->q, v, in->args);
	else if ((v = e2b_member(msg, "data", NULL)))
		why = in->selected ? take_bytes(in, e2b_member(v, "input", NULL)) : "data came before start";
	in->over = http_replied(in->q.r);
	if (why)
		reply_stream(in, "invalid_argument", why);
	else if (!in->over && in->bytes.len)
		offer(in);
}

/* The next whole message is taken; false when there is none, or nothing more is to be read. */
static bool take_message(struct input *in)
{
	const char *p;
	uint8_t flags;
	size_t n;
	int r = e2b_env_next(buf_at(&in->in), in->in.len, STREAM_MESSAGE, &flags, &p, &n);

	if (r < 0) {
		reply_stream(in, "invalid_argument", "the body isn't made of Connect envelopes");
		return false;
	}
	if (r == 0) {
		if (!in->finished)
			http_req_resume(in->q.r);
		else if (in->in.len)
			reply_stream(in, "invalid_argument", "the last envelope is cut off");
		else
			reply_stream(in, NULL, NULL);
		return false;
	}
	if (!(flags & E2B_ENV_END))
		one_message(in, p, n);
	buf_consume(&in->in, E2B_ENV_HEAD + n);
	return true;
}

/* Takes what is there, until a message waits for its program: the client is held back meanwhile. A message that is taken at once
 * comes back here through offer(), so only the outermost call walks. */
static void next_message(struct input *in)
{
	if (in->walking)
		return;
	in->walking = true;
	while (!in->over && !in->busy && take_message(in))
		;
	in->walking = false;
}

static void on_body(void *ctx, struct http_req *r, const char *p, size_t n)
{
	struct input *in = ctx;

	if (in->over)
		return;
	if (buf_add(&in->in, p, n) < 0) {
		reply_stream(in, "resource_exhausted", "a message is too long");
		return;
	}
	http_req_pause(r);
	next_message(in);
}

static void on_body_end(void *ctx, struct http_req *r)
{
	struct input *in = ctx;

	in->finished = true;
	next_message(in);
}

void e2b_input_stream(struct api *a, struct http_req *r, const struct e2b_req *from)
{
	struct input *in = input_set((struct input *)e2b_req_open(a, r, sizeof *in, from));

	if (!in)
		return;
	in->stream = true;
	http_req_read(r, on_body, on_body_end, in);
}
