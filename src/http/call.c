#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/str.h"
#include "http/client_impl.h"

/* Theory of operation. A call finds a connection (a spare one of its origin, else name, address, TLS), sends its request as
 * the socket takes it and reads the answer meanwhile: an answer that comes before the body was sent counts. call_run() does
 * all of that from events; it's also where callbacks are made, so a call that is cancelled in one is only marked and freed
 * when call_run() leaves.
 *
 * A spare connection may have been closed by the server just as we took it. When it breaks before the first byte of an
 * answer the request is sent once more, on a new connection, if that can do no harm: none of it went out, or its method
 * may be repeated. A POST that broke is the caller's to judge. */

static int call_connect(struct http_call *k);
static int begin(struct http_call *k, struct err *e);

static void close_stream(struct http_call *k)
{
	http_stream_free(k->st);
	k->st = NULL;
	k->connected = false;
}

void http_call_cancel(struct http_call *k)
{
	struct loop *l = k->client->loop;

	http_resolve_stop(&k->resolve);
	close_stream(k);
	loop_disarm(l, &k->timer);
	loop_cancel(l, &k->job);
	list_unlink(&k->link);
	k->dead = true;
	if (k->running)
		return;
	http_reader_done(&k->rd);
	buf_done(&k->request);
	free(k->origin);
	free(k);
}

static void call_end(struct http_call *k, const struct err *err)
{
	if (k->dead || k->ended)
		return;
	k->ended = true;
	bool was = k->running;

	k->running = true;
	k->s.end(k->s.ctx, k, err);
	k->running = was;
	http_call_cancel(k);
}

/* Methods that may be sent twice and do the same as once */
static bool repeatable(const char *method)
{
	static const char *const list[] = { "GET", "HEAD", "OPTIONS", "PUT", "DELETE" };

	for (size_t i = 0; i < sizeof list / sizeof *list; i++)
		if (str_eq(method, list[i]))
			return true;
	return false;
}

/* The connection broke, or couldn't be made. Tries what is left to try, else ends the call. */
static void call_broken(struct http_call *k, int code, const char *why)
{
	bool fresh = !k->connected, again = k->reused && k->rd.total == 0 && (k->sent == 0 || repeatable(k->method));
	char tls[160] = "";

	if (k->st)
		str_copy(tls, sizeof tls, http_stream_tls_error(k->st));
	close_stream(k);
	if (again || (fresh && !*tls && k->next_addr < k->addrs.n)) {
		k->reused = false;
		if ((again ? begin(k, &k->err) : call_connect(k)) == 0)
			return;
	}
	if (*tls)
		err_set(&k->err, code, "%s %.150s: TLS: %s", k->method, k->url.authority, tls);
	else if (!k->err.code)
		err_set(&k->err, code, "%s %.150s: %s", k->method, k->url.authority, why);
	call_end(k, &k->err);
}

/* ---- sending ---- */

static void want(struct http_call *k)
{
	unsigned w = 0;

	if (!k->st || k->dead)
		return;
	if (!k->connected || (!k->deaf && (k->sent < k->request.len || k->file_left)))
		w |= HTTP_WRITABLE;
	if (k->connected && !k->paused)
		w |= HTTP_READABLE;
	http_stream_want(k->st, w);
}

static void send_some(struct http_call *k)
{
	ssize_t n = 1;

	while (!k->deaf && k->sent < k->request.len) {
		n = http_stream_write(k->st, buf_at(&k->request) + k->sent, k->request.len - k->sent);
		if (n <= 0)
			break;
		k->sent += (size_t)n;
		k->last = loop_now(k->client->loop);
	}
	while (!k->deaf && n > 0 && k->file_left && k->sent == k->request.len) {
		n = http_stream_sendfile(k->st, k->s.body_fd, &k->file_off, k->file_left < 1 << 20 ? (size_t)k->file_left : 1 << 20);
		if (n == 0)
			n = -EIO;       /* the file is shorter than promised: the server must not take it for whole */
		if (n > 0) {
			k->file_left -= (uint64_t)n;
			k->last = loop_now(k->client->loop);
		}
	}
	if (n < 0 && n != -EAGAIN)
		k->deaf = true;         /* it may have answered: reading will tell */
}

/* ---- receiving ---- */

static void call_done(struct http_call *k)
{
	bool whole = k->sent == k->request.len && !k->file_left && !k->deaf;

	if (k->rd.head.keep_alive && whole && !k->rd.len) {
		http_spare_put(k->client, k->origin, k->st);
		k->st = NULL;
	}
	call_end(k, NULL);
}

/* What the buffer holds. 1 = progress, 0 = needs bytes, -1 = over */
static int receive_step(struct http_call *k)
{
	const char *why = "a malformed body", *data;
	size_t n;
	int got;

	if (!k->rd.have_head) {
		got = http_reader_head(&k->rd, k->method, &why);
		if (got > 0 && k->rd.head.status < 200 && k->rd.head.status != 101)
			k->rd.have_head = k->rd.done = false;
		else if (got > 0 && k->s.head)
			k->s.head(k->s.ctx, k, k->rd.head.status, &k->rd.head);
	} else {
		got = http_reader_body(&k->rd, &data, &n);
		if (got > 0 && n && k->s.data)
			k->s.data(k->s.ctx, k, data, n);
	}
	if (k->dead)
		return -1;
	if (got < 0) {
		k->reused = false;
		call_broken(k, EBADMSG, why);
		return -1;
	}
	return got;
}

static void receive(struct http_call *k)
{
	for (size_t moved = 0; !k->paused;) {
		if (k->rd.have_head && k->rd.done) {
			call_done(k);
			return;
		}
		int r = receive_step(k);

		if (r < 0)
			return;
		if (r > 0)
			continue;
		if (!k->rd.may_read)
			return;
		if (moved > 1 << 20) {
			loop_defer(k->client->loop, &k->job);
			return;
		}
		ssize_t n = http_reader_fill(&k->rd, k->st);

		if (n == -EAGAIN)
			return;
		if (n < 0 || (n == 0 && http_reader_eof(&k->rd) < 0)) {
			call_broken(k, n < 0 ? (int)-n : ECONNRESET, k->rd.have_head ? "the answer was cut" : "the server closed the connection without an answer");
			return;
		}
		moved += (size_t)n;
		k->last = loop_now(k->client->loop);
	}
}

static void call_run(struct http_call *k)
{
	if (k->running || k->dead)
		return;
	k->running = true;
	if (k->st && k->connected)
		send_some(k);
	if (k->st && k->connected)
		receive(k);
	k->running = false;
	if (k->dead)
		http_call_cancel(k);
	else
		want(k);
}

static void on_event(void *ctx, unsigned what)
{
	struct http_call *k = ctx;
	int bad = 0;

	if (!k->connected && (what & (HTTP_WRITABLE | HTTP_HANGUP)) && !http_stream_handshaking(k->st)) {
		bad = *http_stream_tls_error(k->st) ? -EPROTO : http_stream_error(k->st);
		if (bad < 0 || what & HTTP_HANGUP) {
			k->running = true;
			call_broken(k, bad < 0 ? -bad : ECONNREFUSED, bad < 0 ? strerror(-bad) : "the connection was refused");
			k->running = false;
			if (k->dead)
				http_call_cancel(k);
			return;
		}
		k->connected = true;
		k->last = loop_now(k->client->loop);
	}
	if (what & (HTTP_READABLE | HTTP_HANGUP))
		k->rd.may_read = true;
	call_run(k);
}

static void on_job(struct job *j)
{
	struct http_call *k = container_of(j, struct http_call, job);

	call_run(k);
}

/* One limit until there's a connection; then one between bytes, not running while paused */
static void on_timer(struct timer *t)
{
	struct http_call *k = container_of(t, struct http_call, timer);
	struct http_client *c = k->client;
	int64_t limit = k->connected ? c->idle_ms : c->connect_ms, left = k->last + limit - loop_now(c->loop);

	if (k->paused)
		left = limit;
	if (left > 0) {
		loop_arm(c->loop, t, left);
		return;
	}
	err_set(&k->err, ETIMEDOUT, "%s %.150s: no %s in %lld s", k->method, k->url.authority, k->connected ? "byte" : "connection",
		(long long)limit / 1000);
	call_end(k, &k->err);
}

/* ---- connecting ---- */

static int adopt(struct http_call *k, struct http_stream *st, bool connected)
{
	k->st = st;
	k->connected = connected;
	k->deaf = false;
	k->sent = 0;
	k->file_off = k->file_start;
	k->file_left = k->s.has_body_fd ? k->s.body_fd_len : 0;
	http_reader_done(&k->rd);
	http_reader_reset(&k->rd);
	http_stream_on(st, on_event, k);
	want(k);
	if (connected)
		loop_defer(k->client->loop, &k->job);
	return 0;
}

static int connect_to(struct http_call *k, const char *address)
{
	struct http_stream *st;
	SSL_CTX *tls;
	int r = http_stream_connect(k->client->loop, address, &st, &k->err);

	if (r == 0 && k->url.tls) {
		r = http_client_tls(k->client, &tls, &k->err);
		if (r == 0)
			r = http_stream_tls_client(st, tls, k->url.host, true, &k->err);
		if (r < 0)
			http_stream_free(st);
	}
	if (r < 0)
		return err_wrap(&k->err, "%s %.150s", k->method, k->url.authority);
	k->err = (struct err){ 0 };
	return adopt(k, st, false);
}

static void on_resolved(struct http_resolve *q, const struct http_addrs *a)
{
	struct http_call *k = container_of(q, struct http_call, resolve);

	k->addrs = *a;
	if (!a->n)
		err_set(&k->err, EHOSTUNREACH, "%s %.150s: no such host", k->method, k->url.authority);
	if (!a->n || call_connect(k) < 0)
		call_end(k, &k->err);
}

/* Starts the next attempt. 0 = under way; negative = nothing is left, k->err says why. */
static int call_connect(struct http_call *k)
{
	int r = -EHOSTUNREACH;

	if (str_starts(k->connect_to, "unix:"))
		return connect_to(k, k->connect_to);
	while (k->next_addr < k->addrs.n && r < 0)
		r = connect_to(k, k->addrs.addr[k->next_addr++]);
	return r;
}

/* ---- starting ---- */

static bool overrides(const char *const *headers, const char *name)
{
	for (; headers && headers[0] && headers[1]; headers += 2)
		if (strcasecmp(headers[0], name) == 0)
			return true;
	return false;
}

static int make_request(struct http_call *k, const struct http_call_spec *s, struct err *e)
{
	struct buf *b = &k->request;
	const char *slash = k->url.target_len && *k->url.target == '/' ? "" : "/";
	bool body = s->body || s->has_body_fd || str_eq(s->method, "POST") || str_eq(s->method, "PUT") || str_eq(s->method, "PATCH");

	buf_printf(b, "%s %s%.*s HTTP/1.1\r\n", s->method, slash, (int)k->url.target_len, k->url.target);
	if (!overrides(s->headers, "host"))
		buf_printf(b, "Host: %s\r\n", k->url.authority);
	if (!overrides(s->headers, "user-agent"))
		buf_printf(b, "User-Agent: %s\r\n", k->client->user_agent);
	if (!overrides(s->headers, "accept"))
		buf_adds(b, "Accept: */*\r\n");
	for (const char *const *h = s->headers; h && h[0] && h[1]; h += 2) {
		if (!http_is_token(h[0], strlen(h[0])) || !http_is_value(h[1], strlen(h[1])) || strcasecmp(h[0], "content-length") == 0 ||
		    strcasecmp(h[0], "transfer-encoding") == 0)
			return err_set(e, EINVAL, "the header '%.60s' can't be sent", h[0]);
		buf_printf(b, "%s: %s\r\n", h[0], h[1]);
	}
	if (body)
		buf_printf(b, "Content-Length: %llu\r\n", (unsigned long long)(s->body ? s->body_len : s->has_body_fd ? s->body_fd_len : 0));
	buf_adds(b, "\r\n");
	if (s->body)
		buf_add(b, s->body, s->body_len);
	return buf_ok(b) ? 0 : err_set(e, ENOMEM, "make a request: no memory");
}

static int fill(struct http_call *k, const struct http_call_spec *s, struct err *e)
{
	if (http_url_parse(s->url, &k->url, e) < 0)
		return -EINVAL;
	if (!http_is_token(s->method, strlen(s->method)) || str_copy(k->method, sizeof k->method, s->method) < 0)
		return err_set(e, EINVAL, "'%.40s' isn't a method", s->method);
	if (s->connect_to && str_copy(k->connect_to, sizeof k->connect_to, s->connect_to) < 0)
		return err_set(e, EINVAL, "'%.100s' isn't an address", s->connect_to);
	if (asprintf(&k->origin, "%s %s %s", k->url.tls ? "https" : "http", k->url.authority, k->connect_to) < 0) {
		k->origin = NULL;
		return err_set(e, ENOMEM, "start a request: no memory");
	}
	if (s->has_body_fd && !s->body && (k->file_start = lseek(s->body_fd, 0, SEEK_CUR)) < 0)
		return err_sys(e, "send a file");
	k->s.has_body_fd = s->has_body_fd && !s->body;
	return make_request(k, s, e);
}

static int started(struct http_call *k, struct err *e)
{
	int r = call_connect(k);

	if (r < 0 && e != &k->err)
		*e = k->err;
	return r;
}

/* Names to addresses, then the first attempt */
static int begin(struct http_call *k, struct err *e)
{
	struct http_client *c = k->client;
	char host[256];
	uint16_t port = k->url.port, given = 0;

	if (str_starts(k->connect_to, "unix:"))
		return started(k, e);
	str_copy(host, sizeof host, k->url.host);
	if (*k->connect_to) {
		if (http_split_host(k->connect_to, strlen(k->connect_to), host, sizeof host, &given) < 0)
			return err_set(e, EINVAL, "'%.100s' isn't an address", k->connect_to);
		port = given ? given : port;
	}
	if (http_resolve_now(host, port, &k->addrs) == 0)
		return started(k, e);
	k->resolve.done = on_resolved;
	return http_resolve_start(&k->resolve, c->loop, host, port, e);
}

int http_call_start(struct http_client *c, const struct http_call_spec *s, struct http_call **ret, struct err *e)
{
	struct http_call *k = calloc(1, sizeof *k);
	struct err own = { 0 };
	struct http_stream *spare;

	if (!e)
		e = &own;
	if (!k)
		return err_set(e, ENOMEM, "start a request: no memory");
	k->client = c;
	k->s = *s;
	k->timer.fire = on_timer;
	k->job.run = on_job;
	list_init(&k->link);
	buf_init(&k->request, SIZE_MAX / 2);
	k->last = loop_now(c->loop);
	int r = fill(k, s, e);

	k->url.target = NULL;           /* the caller's string */
	if (r == 0) {
		list_append(&c->calls, &k->link);
		loop_arm(c->loop, &k->timer, c->connect_ms < c->idle_ms ? c->connect_ms : c->idle_ms);
		spare = s->once ? NULL : http_spare_take(c, k->origin);
		k->reused = spare != NULL;
		r = spare ? adopt(k, spare, true) : begin(k, e);
	}
	if (r < 0) {
		http_call_cancel(k);
		return r;
	}
	if (ret)
		*ret = k;
	return 0;
}

void http_call_pause(struct http_call *k)
{
	k->paused = true;
	if (!k->running)
		want(k);
}

void http_call_resume(struct http_call *k)
{
	if (!k->paused)
		return;
	k->paused = false;
	k->last = loop_now(k->client->loop);
	loop_defer(k->client->loop, &k->job);
}
