/* call -- one operation over HTTP, with its retries.
 *
 * Theory of operation. A call goes: send → head → body → over, or → wait → send again. What decides whether it may be sent again is
 * whether anything can have happened: a refused connection and 429/503 say that nothing did; a connection that broke says
 * nothing, so only calls marked repeatable go again. One deadline, give_up, bounds all tries together. `done` frees nothing of the
 * caller's and is the last thing that happens: the call is freed right before it (its parts are moved to the stack). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "client/client_priv.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"

#define LONG_TRY_MS 2000
#define LONG_TRIES 20

int client_create(struct loop *l, const struct client_where *w, const struct client_opts *o, struct client **ret, struct err *e)
{
	struct http_client_opts ho = { .max_spare = 8 };
	struct client *c = calloc(1, sizeof *c);
	int r;

	if (!c)
		return err_set(e, ENOMEM, "no memory");
	c->loop = l;
	c->where = *w;
	c->patience_ms = o && o->patience_ms ? o->patience_ms : 5000;
	snprintf(c->bearer, sizeof c->bearer, "Bearer %s", w->key);
	r = http_client_create(l, &ho, &c->http, e);
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	http_client_free(c->http);
	explicit_bzero(c->bearer, sizeof c->bearer);
	explicit_bzero(c->where.key, sizeof c->where.key);
	free(c);
}

static void call_free(struct client_call *k)
{
	loop_disarm(k->c->loop, &k->wait);
	buf_done(&k->body);
	buf_done(&k->answer);
	free(k->method);
	free(k->url);
	free(k);
}

void client_cancel(struct client_call *k)
{
	if (!k)
		return;
	if (k->http)
		http_call_cancel(k->http);
	call_free(k);
}

static void query_add(struct buf *url, char *sep, const char *key, const char *member, const json_t *v)
{
	char num[32];
	const char *s = json_string_value(v);

	if (json_is_integer(v))
		snprintf(num, sizeof num, "%lld", (long long)json_integer_value(v));
	buf_addc(url, *sep);
	*sep = '&';
	buf_adds(url, key);
	if (member) {
		buf_addc(url, '.');
		str_percent_encode(url, member);
	}
	buf_addc(url, '=');
	str_percent_encode(url, s ? s : json_is_integer(v) ? num : json_is_true(v) ? "true" : "false");
}

struct client_call *call_new(struct client *c, const char *method, const char *path, json_t *query)
{
	AUTO_BUF struct buf url = BUF_INIT(16384);
	struct client_call *k = calloc(1, sizeof *k);
	const char *key, *member;
	json_t *v, *mv;
	char sep = '?';

	if (!k)
		return NULL;
	k->c = c;
	k->fd = -1;
	k->total = 0;
	buf_init(&k->body, CLIENT_BODY_MAX);
	buf_init(&k->answer, CLIENT_BODY_MAX);
	buf_adds(&url, c->where.url);
	buf_adds(&url, path);
	json_object_foreach(query, key, v) {
		if (!json_is_object(v)) {
			query_add(&url, &sep, key, NULL, v);
			continue;
		}
		json_object_foreach(v, member, mv)
			query_add(&url, &sep, key, member, mv);
	}
	k->method = strdup(method);
	k->url = buf_take(&url);
	if (!k->method || !k->url) {
		call_free(k);
		return NULL;
	}
	return k;
}

static void over(struct client_call *k)
{
	struct client_answer a = { .status = k->status, .retry_ms = k->retry_ms };
	struct err err = k->err;
	AUTO_JSON json_t *result = NULL;
	client_fn_done = k->done;
	void *ctx = k->ctx;

	if (!err.code && !k->recv_fd && !k->follow && k->answer.len && js_parse(buf_at(&k->answer), k->answer.len, &result, &err) < 0)
		err_wrap(&err, "the server's answer");
	call_free(k);
	a.e = err.code ? &err : NULL;
	a.result = result;
	done(ctx, &a);
}

static void send_call(struct client_call *k);

static void on_wait(struct timer *t)
{
	struct client_call *k = container_of(t, struct client_call, wait);

	if (k->err.code && !k->tries)
		over(k);        /* it couldn't even be sent: told from the loop */
	else
		send_call(k);
}

/* True when the call will be sent again; `nothing_done`: the server did nothing with this try. */
static bool again(struct client_call *k, bool nothing_done)
{
	int64_t now = clock_mono_ms(), pause = 100;
	uint32_t dice;

	if (k->once || (!nothing_done && !k->repeatable) || (k->follow && k->moved))
		return false;
	/* patience is for a server that isn't there; a transfer that took its time before it broke has all of it again */
	if (now - k->sent > LONG_TRY_MS && k->long_tries++ < LONG_TRIES)
		k->give_up = now + k->c->patience_ms;
	if (k->recv_fd && k->at < 0 && k->moved)
		return false;           /* what went into a pipe can't be taken back */
	for (unsigned i = 1; i < k->tries && pause < 5000; i++)
		pause *= 2;
	str_random(&dice, sizeof dice);
	pause = pause / 2 + dice % (uint32_t)pause;
	if (k->retry_ms > pause)
		pause = k->retry_ms;
	if (now + pause > k->give_up)
		return false;
	k->err = (struct err){ 0 };
	loop_arm(k->c->loop, &k->wait, pause);
	return true;
}

static int errno_of_status(int status)
{
	static const struct { int status, code; } map[] = {
		{ 400, EINVAL }, { 401, EACCES }, { 403, EPERM }, { 404, ENOENT }, { 408, ETIMEDOUT }, { 409, EBUSY }, { 410, ENOENT }, { 413, EFBIG },
		{ 429, EAGAIN }, { 501, ENOSYS }, { 502, EPIPE }, { 503, EAGAIN }, { 504, ETIMEDOUT }, { 507, ENOSPC },
	};

	for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
		if (map[i].status == status)
			return map[i].code;
	}
	return status >= 400 && status < 500 ? EINVAL : EIO;
}

/* {"error":{message, hint}} of the server, in our own words when it sent something else */
static void status_error(struct client_call *k)
{
	AUTO_JSON json_t *v = NULL;
	json_t *in = NULL;
	const char *msg = NULL, *hint = NULL, *word = "";
	int code = errno_of_status(k->status);

	if (k->answer.len && js_parse(buf_at(&k->answer), k->answer.len, &v, NULL) == 0 && js_get_obj(v, "error", &in, NULL) == 1) {
		js_get_str(in, "message", &msg, NULL);
		js_get_str(in, "hint", &hint, NULL);
		js_get_str(in, "code", &word, NULL);
		/* of a program, not of the sandbox or the key */
		code = str_eq(word, "no_program") ? ENOPKG : str_eq(word, "not_executable") ? ENOEXEC : code;
	}
	if (msg)
		err_set(&k->err, code, "%s", msg);
	else
		err_set(&k->err, code, "the server answered %d", k->status);
	if (hint && *hint)
		err_hint(&k->err, "%s", hint);
	else if (code == EACCES && !*k->c->where.key)
		err_hint(&k->err, "no key is known: set BUREAU_API_KEY");
}

static void on_head(void *ctx, struct http_call *h, int status, const struct http_head *head)
{
	struct client_call *k = ctx;
	const char *after = http_head_get(head, "retry-after");
	uint64_t sec;

	k->status = status;
	k->total = head->framing == HTTP_LENGTH && head->length < INT64_MAX ? (int64_t)head->length : 0;
	if (after && str_u64(after, 86400, &sec) == 0)
		k->retry_ms = (int64_t)sec * 1000;
	if (status == 200 && k->recv_fd && k->len && (uint64_t)k->total > k->len)
		err_set(&k->err, EFBIG, "the file is larger than %llu bytes", (unsigned long long)k->len);
}

static void take_lines(struct client_call *k)
{
	for (;;) {
		const char *p = buf_at(&k->answer), *nl = k->answer.len ? memchr(p, '\n', k->answer.len) : NULL;
		size_t n;

		if (!nl)
			break;
		n = (size_t)(nl - p);
		k->moved++;
		if (n)
			k->line(k->ctx, p, n);
		buf_consume(&k->answer, n + 1);
	}
	if (k->answer.len > CLIENT_LINE_MAX)
		err_set(&k->err, EBADMSG, "the server sent a line that is too long");
}

/* The call is over for us, whatever the server still sends. */
static void fail_later(struct client_call *k)
{
	http_call_cancel(k->http);
	k->http = NULL;
	k->tries = 0;
	loop_arm(k->c->loop, &k->wait, 0);
}

static void on_data(void *ctx, struct http_call *h, const char *p, size_t n)
{
	struct client_call *k = ctx;

	if (k->err.code) {      /* its head said that it's too much */
		fail_later(k);
		return;
	}
	if (k->status / 100 == 2 && k->recv_fd) {
		k->moved += n;
		if (k->len && k->moved > k->len)
			err_set(&k->err, EFBIG, "the file is larger than %llu bytes", (unsigned long long)k->len);
		else if (fd_write_all(k->fd, p, n, &k->err) == 0 && k->progress)
			k->progress(k->ctx, k->moved, (uint64_t)k->total);
		if (k->err.code)
			fail_later(k);
		return;
	}
	if (buf_add(&k->answer, p, n) < 0)
		err_set(&k->err, EFBIG, "the server's answer is too large");
	else if (k->status / 100 == 2 && k->follow)
		take_lines(k);
	if (k->err.code)
		fail_later(k);
}

static void on_end(void *ctx, struct http_call *h, const struct err *err)
{
	struct client_call *k = ctx;

	k->http = NULL;
	if (err && !k->err.code) {
		bool refused = err->code == ECONNREFUSED || err->code == ENOENT || err->code == EHOSTUNREACH || err->code == ENETUNREACH;

		if (again(k, refused && !k->status))
			return;
		k->err = *err;
		if (k->status || !refused) {
			k->err.code = EPIPE;
			err_wrap(&k->err, "talk to the server");
		} else {
			k->err.code = ECONNREFUSED;
			err_wrap(&k->err, "reach the server at %.120s", k->c->where.url);
			err_hint(&k->err, "is it running? start one: bureau serve");
		}
	} else if (!k->err.code && k->status >= 300) {
		if ((k->status == 429 || k->status == 503) && again(k, true))
			return;
		status_error(k);
	}
	over(k);
}

static void send_call(struct client_call *k)
{
	const char *headers[9];
	int n = 0, r;
	struct http_call_spec s = { .method = k->method, .url = k->url, .headers = headers, .head = on_head, .data = on_data, .end = on_end, .ctx = k,
		.once = !k->repeatable };

	if (*k->c->where.key) {
		headers[n++] = "Authorization";
		headers[n++] = k->c->bearer;
	}
	if (k->type) {
		headers[n++] = "Content-Type";
		headers[n++] = k->type;
	}
	headers[n] = NULL;
	k->tries++;
	k->sent = clock_mono_ms();
	k->status = 0;
	k->retry_ms = 0;
	k->moved = 0;
	buf_clear(&k->answer);
	if (k->fd >= 0 && k->at >= 0 && lseek(k->fd, k->at, SEEK_SET) < 0)
		r = err_sys(&k->err, "seek");
	else {
		if (k->recv_fd && k->tries > 1 && k->at >= 0 && ftruncate(k->fd, k->at) < 0)
			err_sys(&k->err, "truncate");
		if (k->send_fd) {
			s.has_body_fd = true;
			s.body_fd = k->fd;
			s.body_fd_len = k->len;
		} else if (k->type) {
			s.body = buf_at(&k->body);
			s.body_len = k->body.len;
		}
		r = http_call_start(k->c->http, &s, &k->http, &k->err);
	}
	if (r < 0) {
		k->http = NULL;
		k->tries = 0;
		loop_arm(k->c->loop, &k->wait, 0);
	}
}

static void on_first(struct timer *t)
{
	struct client_call *k = container_of(t, struct client_call, wait);

	k->wait.fire = on_wait;
	send_call(k);
}

struct client_call *call_start(struct client_call *k, client_fn_done, void *ctx)
{
	if (!k)
		return NULL;
	k->done = done;
	k->ctx = ctx;
	k->give_up = clock_mono_ms() + k->c->patience_ms;
	if (k->fd >= 0)
		k->at = lseek(k->fd, 0, SEEK_CUR);
	k->wait.fire = on_first;
	if (!buf_ok(&k->body))
		err_set(&k->err, E2BIG, "the request is too large");
	if (k->err.code) {
		k->wait.fire = on_wait;
		k->tries = 0;
	}
	loop_arm(k->c->loop, &k->wait, 0);
	return k;
}

struct client_call *client_json(struct client *c, const char *method, const char *path, json_t *args, bool once, client_fn_done, void *ctx)
{
	AUTO_JSON json_t *own = args;
	bool in_query = str_eq(method, "GET") || str_eq(method, "DELETE");
	struct client_call *k = call_new(c, method, path, in_query ? own : NULL);

	if (!k)
		return NULL;
	if (!in_query) {
		k->type = "application/json";
		if (own)
			js_dump(own, &k->body);
		else
			buf_adds(&k->body, "{}");
	}
	k->once = once;
	k->repeatable = in_query;
	return call_start(k, done, ctx);
}

struct client_call *client_follow(struct client *c, const char *path, json_t *args, void (*line)(void *ctx, const char *p, size_t n), client_fn_done, void *ctx)
{
	AUTO_JSON json_t *own = args;
	struct client_call *k = call_new(c, "POST", path, NULL);

	if (!k)
		return NULL;
	k->type = "application/json";
	k->follow = true;
	k->line = line;
	js_dump(own, &k->body);
	return call_start(k, done, ctx);
}
