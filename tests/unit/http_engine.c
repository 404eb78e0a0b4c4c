/* Server, client and proxy on one loop, over real sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/str.h"
#include "http/client.h"
#include "http/proxy.h"
#include "http/server.h"
#include "http/stream.h"
#include "tap.h"

static struct loop *loop;
static struct http_server *app, *front;
static struct http_client *client;
static char app_at[64], front_at[64], unix_at[128], dir[100];
static int ends[4];             /* on_end by why */
static int proxy_results[3];
static struct http_req *held;
static char big[1 << 20];

static bool spin(bool (*until)(void), int ms)
{
	int64_t end = clock_mono_ms() + ms;

	while (!until() && clock_mono_ms() < end)
		loop_turn(loop, 20);
	return until();
}

/* ---- the app ---- */

static void count_end(void *ctx, struct http_req *r, enum http_why why)
{
	ends[why]++;
	if (held == r)
		held = NULL;
}

static void got_body(void *ctx, struct http_req *r, char *p, size_t n)
{
	http_setf(r, "X-Got", "%zu", n);
	http_reply(r, 200, "text/plain", p, n);
}

static void echo_data(void *ctx, struct http_req *r, const char *p, size_t n)
{
	http_write(r, p, n);
	if (http_pending(r) > 65536)
		http_req_pause(r);
}

static void echo_drain(void *ctx, struct http_req *r)
{
	http_req_resume(r);
}

static void echo_end(void *ctx, struct http_req *r)
{
	http_end(r);
}

static void stored(void *ctx, struct http_req *r, int64_t n)
{
	int fd = (int)(intptr_t)ctx;

	close(fd);
	http_replyf(r, n < 0 ? 507 : 200, "text/plain", "%lld", (long long)n);
}

struct flood { uint64_t left; };

static void flood_more(void *ctx, struct http_req *r)
{
	struct flood *f = ctx;

	while (f->left && http_pending(r) < 262144) {
		size_t n = f->left < sizeof big ? (size_t)f->left : sizeof big;

		if (n > 50000)
			n = 50000;
		if (http_write(r, big + (f->left & 4095), n) < 0)
			return;
		f->left -= n;
	}
	if (!f->left)
		http_end(r);
}

static void flood_end(void *ctx, struct http_req *r, enum http_why why)
{
	ends[why]++;
	free(ctx);
}

static int broken;
static struct http_stream *taken;

static void taken_event(void *ctx, unsigned what)
{
	char b[4096];
	ssize_t n = http_stream_read(taken, b, sizeof b);

	if (n > 0) {
		http_stream_write(taken, b, (size_t)n);
	} else if (n != -EAGAIN) {
		http_stream_free(taken);
		taken = NULL;
	}
}

static void app_odd(struct http_req *r)
{
	const char *p = http_req_path(r), *v;

	if (str_eq(p, "/short")) {
		http_reply_start(r, 200, NULL, 100000);
		http_write(r, big, 50000);
		http_end(r);
	} else if (str_eq(p, "/break")) {
		if (broken++ == 0)
			http_abort(r);
		else
			http_reply(r, 200, NULL, "again", 5);
	} else if (str_eq(p, "/nothing")) {
		return;
	} else if (str_eq(p, "/info")) {
		v = http_req_header(r, "x-forwarded-for");
		http_replyf(r, 200, "text/plain", "%s %s host=%s q=%s fwd=%s loop=%d peer=%s secret=%s", http_req_method(r), p, http_req_host(r),
			http_req_query(r, "q") ? http_req_query(r, "q") : "-", v ? v : "-", http_req_is_loopback(r), http_req_peer(r),
			http_req_header(r, "x-secret") ? http_req_header(r, "x-secret") : "-");
	} else {
		http_set(r, "Bad", "a\r\nb");
		http_replyf(r, 404, "text/plain", "no %s\n", p);
	}
}

static void app_request(void *ctx, struct http_req *r)
{
	const char *p = http_req_path(r);

	if (str_eq(p, "/hello")) {
		http_reply(r, 200, "text/plain", "hello\n", 6);
	} else if (str_eq(p, "/collect")) {
		http_req_collect(r, 1 << 20, got_body, NULL);
	} else if (str_eq(p, "/echo")) {
		http_reply_start(r, 200, "application/octet-stream", http_req_body_length(r));
		http_on_drain(r, 16384, echo_drain, NULL);
		http_req_read(r, echo_data, echo_end, NULL);
	} else if (str_eq(p, "/file")) {
		char path[400];

		snprintf(path, sizeof path, "%s/file", dir);
		int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

		http_req_to_fd(r, fd, 256 << 20, stored, (void *)(intptr_t)fd);
	} else if (str_eq(p, "/get")) {
		char path[400];

		snprintf(path, sizeof path, "%s/file", dir);
		http_reply_file(r, "application/octet-stream", open(path, O_RDONLY | O_CLOEXEC));
	} else if (str_eq(p, "/hold")) {
		held = r;
		http_req_on_end(r, count_end, NULL);
	} else if (str_eq(p, "/stream")) {
		held = r;
		http_req_on_end(r, count_end, NULL);
		http_sse_start(r);
		http_sse(r, "one", "1", "a\nb", 3);
	} else if (str_eq(p, "/flood")) {
		struct flood *f = calloc(1, sizeof *f);

		f->left = strtoull(http_req_query(r, "n"), NULL, 10);
		http_req_on_end(r, flood_end, f);
		http_reply_start(r, 200, NULL, http_req_query(r, "known") ? (int64_t)f->left : -1);
		http_on_drain(r, 65536, flood_more, f);
		flood_more(f, r);
	} else if (str_eq(p, "/upgrade")) {
		http_set(r, "Connection", "Upgrade");
		http_set(r, "Upgrade", "echo");
		if (http_takeover(r, 101, &taken) == 0) {
			http_stream_on(taken, taken_event, NULL);
			http_stream_want(taken, HTTP_READABLE);
		}
	} else {
		app_odd(r);
	}
}

/* ---- the proxy before it ---- */

static struct http_stream *spare_up;
static int spares;
static char proxy_why[128];

static void proxied(void *ctx, struct http_req *r, enum http_proxy_result result, const char *why)
{
	proxy_results[result]++;
	str_copy(proxy_why, sizeof proxy_why, why);
	if (result == HTTP_PROXY_FAILED)
		http_replyf(r, 502, "text/plain", "%s\n", why);
}

static void keep_spare(void *ctx, struct http_stream *up)
{
	http_stream_free(spare_up);
	spare_up = up;
	spares++;
}

static const char *refused = "";

static int edit(void *ctx, bool response, const char *name, const char *value, struct buf *out)
{
	if (response && str_eq(name, refused))
		return -EPERM;
	if (!response && str_eq(name, "x-secret") && str_eq(value, "standin")) {
		buf_adds(out, "real");
		return HTTP_EDIT_REPLACE;
	}
	return HTTP_EDIT_KEEP;
}

/* capitals to small letters in requests; the letter e to 3 in answers */
static int rewrite(void *ctx, bool response, const char *p, size_t n, bool end, struct buf *out)
{
	for (size_t i = 0; i < n; i++)
		buf_addc(out, response && p[i] == 'e' ? '3' : p[i]);
	if (end && response)
		buf_adds(out, "!end");
	return 0;
}

static void front_request(void *ctx, struct http_req *r)
{
	static const char *const drop[] = { "x-drop", NULL };
	static const char *const add[] = { "X-Added", "1", NULL };
	struct http_proxy_opts o = { .fd = -1, .forwarded = true, .drop = drop, .add = add, .done = proxied };
	const char *to = http_req_header(r, "x-to");
	struct err e = { 0 };

	if (http_req_header(r, "x-spare"))
		o.spare = keep_spare;
	if (http_req_header(r, "x-edit"))
		o.edit = edit, o.body = rewrite;
	if (spare_up && o.spare) {
		o.upstream = spare_up;
		spare_up = NULL;
	} else if (http_stream_connect(loop, to ? to : app_at, &o.upstream, &e) < 0) {
		http_replyf(r, 502, "text/plain", "%s\n", e.msg);
		return;
	}
	if (http_proxy_start(r, &o, NULL, &e) < 0)
		http_replyf(r, 502, "text/plain", "%s\n", e.msg);
}

/* ---- client calls ---- */

static struct { int status, done; struct buf body; struct err err; char got[64]; uint64_t n; bool slow, etag; } res;

static void on_head(void *ctx, struct http_call *k, int status, const struct http_head *h)
{
	const char *v = http_head_get(h, "x-got");

	res.status = status;
	res.etag = http_head_get(h, "etag") != NULL;
	str_copy(res.got, sizeof res.got, v ? v : "");
}

static void on_data(void *ctx, struct http_call *k, const char *p, size_t n)
{
	res.n += n;
	if (res.body.len < 1 << 20)
		buf_add(&res.body, p, n < 1 << 19 ? n : 1 << 19);
}

static void on_end(void *ctx, struct http_call *k, const struct err *err)
{
	if (err)
		res.err = *err;
	res.done = 1;
}

static bool is_done(void) { return res.done; }

static int call_spec(struct http_call_spec *s)
{
	struct err e = { 0 };

	buf_done(&res.body);
	memset(&res, 0, sizeof res);
	buf_init(&res.body, 4 << 20);
	s->head = on_head;
	s->data = on_data;
	s->end = on_end;
	if (http_call_start(client, s, NULL, &e) < 0) {
		res.err = e;
		res.done = 1;
	}
	if (!spin(is_done, 20000))
		printf("# no end within 20 s\n");
	if (res.err.code)
		printf("# error: %s\n", res.err.msg);
	return res.status;
}

static int call(const char *method, const char *at, const char *path, const char *const *headers, const void *body, size_t n)
{
	char url[256];

	snprintf(url, sizeof url, "http://%s%s", at, path);
	return call_spec(&(struct http_call_spec){ .method = method, .url = url, .headers = headers, .body = body, .body_len = n });
}

/* ---- raw sockets ---- */

static char raw_buf[1 << 16];
static size_t raw_len;
static int raw_fd;
static int raw_end;             /* 1 = EOF, -errno */
static const char *raw_want;

static bool raw_ready(void)
{
	if (raw_end)
		return true;
	ssize_t n = recv(raw_fd, raw_buf + raw_len, sizeof raw_buf - 1 - raw_len, MSG_DONTWAIT);

	if (n > 0)
		raw_len += (size_t)n;
	raw_buf[raw_len] = 0;
	if (n == 0)
		raw_end = 1;
	else if (n < 0 && errno != EAGAIN)
		raw_end = -errno;
	return raw_end || (raw_want && strstr(raw_buf, raw_want));
}

static void raw_open(const char *at)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	sa.sin_port = htons((uint16_t)atoi(strchr(at, ':') + 1));
	raw_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(raw_fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		perror("connect");
	raw_len = 0;
	raw_end = 0;
	raw_want = NULL;
}

static void raw_send(const char *s)
{
	if (send(raw_fd, s, strlen(s), MSG_NOSIGNAL) < 0)
		perror("send");
}

/* Sends and reads until `want` is in the answer (NULL: until the end). */
static bool raw(const char *at, const char *text, const char *want)
{
	if (at)
		raw_open(at);
	raw_send(text);
	raw_want = want;
	if (want)
		raw_len = 0, raw_buf[0] = 0;
	return spin(raw_ready, 5000);
}

static bool nothing_held(void) { return !held; }
static bool something_held(void) { return held != NULL; }

static void test_basic(void)
{
	static const char *const drop[] = { "X-Drop", "1", NULL };

	ok(call("GET", app_at, "/hello", NULL, NULL, 0) == 200 && str_eq(buf_at(&res.body), "hello\n"), "hello");
	ok(call("GET", app_at, "/a%20b", NULL, NULL, 0) == 404 && str_eq(buf_at(&res.body), "no /a b\n"), "404, a bad field isn't sent");
	ok(call("HEAD", app_at, "/hello", NULL, NULL, 0) == 200 && res.n == 0, "HEAD");
	ok(call("GET", app_at, "/nothing", NULL, NULL, 0) == 500, "a handler that does nothing");
	ok(call("POST", app_at, "/collect", NULL, "abc", 3) == 200 && str_eq(res.got, "3"), "collect");
	ok(call("POST", app_at, "/collect", NULL, NULL, 0) == 200 && str_eq(res.got, "0"), "collect nothing");
	ok(call("POST", app_at, "/collect", NULL, big, 1 << 20) == 200 && res.n == 1 << 20, "collect 1 MiB");
	char *large = calloc(1, 3 << 20);

	ok(call("POST", app_at, "/collect", NULL, large, 3 << 20) == 413, "collect too much");
	free(large);
	ok(call("POST", app_at, "/echo", NULL, big, sizeof big) == 200 && res.n == sizeof big && !memcmp(buf_at(&res.body), big, 1 << 18), "echo");
	ok(call("GET", app_at, "/flood?n=30000000", NULL, NULL, 0) == 200 && res.n == 30000000, "30 MB chunked");
	ok(call("GET", app_at, "/flood?n=30000000&known=1", NULL, NULL, 0) == 200 && res.n == 30000000, "30 MB of known length");
	ok(call("GET", app_at, "/short", NULL, NULL, 0) == 200 && res.err.code, "a reply cut short is an error");
	ok(call("GET", app_at, "/info?q=a%26b", drop, NULL, 0) == 200, "info");
	is_str(strstr(buf_at(&res.body), "q="), "q=a&b fwd=- loop=1 peer=127.0.0.1 secret=-", "what the handler sees");
}

static void test_raw(void)
{
	raw(app_at, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\nGET /nope HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", NULL);
	char *one = strstr(raw_buf, "hello\n"), *two = one ? strstr(one, "no /nope") : NULL;

	ok(two && strstr(two, "hello\n") && raw_end == 1, "three in one packet, in order, then closed");
	close(raw_fd);
	raw(app_at, "GET /hello HTTP/1.0\r\n\r\n", NULL);
	ok(raw_end == 1 && strstr(raw_buf, "Connection: close"), "1.0 closes");
	close(raw_fd);
	raw(app_at, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "hello\n");
	ok(raw_end == 0 && strstr(raw_buf, "Connection: keep-alive"), "1.0 kept alive");
	close(raw_fd);
	raw(app_at, "GET /flood?n=10 HTTP/1.0\r\n\r\n", NULL);
	ok(raw_end == 1 && !strstr(raw_buf, "chunked"), "1.0 gets no chunks");
	close(raw_fd);
	raw(app_at, "POST /collect HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", NULL);
	ok(raw_end == 1 && strstr(raw_buf, "400 Bad Request"), "smuggling is refused and closed");
	close(raw_fd);
	raw(app_at, "POST /collect HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX", NULL);
	ok(raw_end && strstr(raw_buf, "400 Bad Request"), "bad chunks are refused and closed");
	close(raw_fd);
	raw(app_at, "POST /collect HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", "\r\n\r\n");
	ok(strstr(raw_buf, "HTTP/1.1 100 Continue\r\n\r\n") == raw_buf, "100-continue");
	raw(NULL, "abc", "abc");
	ok(strstr(raw_buf, "200 OK") && strstr(raw_buf, "X-Got: 3"), "and the answer");
	close(raw_fd);
	raw(app_at, "POST /collect HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3000000\r\n\r\n", NULL);
	ok(raw_end == 1 && !strstr(raw_buf, "100 Continue") && strstr(raw_buf, "413"), "too large is said before it is sent");
	close(raw_fd);
	raw(app_at, "POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcdeGET /nope HTTP/1.1\r\nHost: a\r\n\r\n", "no /nope");
	ok(strstr(raw_buf, "hello") && !raw_end, "an unread body is thrown away");
	close(raw_fd);
	raw(app_at, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "no *");
	ok(strstr(raw_buf, "404") != NULL, "OPTIONS *");
	close(raw_fd);
	raw(app_at, "GET http://other:8/info?q=1 HTTP/1.1\r\nHost: a\r\n\r\n", "host=");
	ok(strstr(raw_buf, "/info host=other:8 q=1") != NULL, "absolute target");
	close(raw_fd);
	raw(app_at, "GET http://other?q=1 HTTP/1.1\r\nHost: a\r\n\r\n", "no /\n");
	ok(strstr(raw_buf, "404") != NULL, "absolute target without a path");
	close(raw_fd);
	raw(app_at, "\x16\x03\x01", NULL);
	ok(raw_end == 1 && strstr(raw_buf, "400"), "not HTTP");
	close(raw_fd);
}

static void test_gone(void)
{
	int gone = ends[HTTP_GONE], aborted = ends[HTTP_ABORTED];

	raw_open(app_at);
	raw_send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
	ok(spin(something_held, 2000), "a request waits");
	close(raw_fd);
	ok(spin(nothing_held, 2000) && ends[HTTP_GONE] == gone + 1, "the client closes: on_end");
	raw(app_at, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", "data: b\n");
	ok(strstr(raw_buf, "event: one\nid: 1\ndata: a\ndata: b\n\n") != NULL, "an event");
	shutdown(raw_fd, SHUT_WR);
	ok(spin(nothing_held, 2000) && ends[HTTP_GONE] == gone + 2, "a half-close in a quiet stream: on_end");
	close(raw_fd);
	raw(app_at, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n", "data: b\n");
	ok(http_write(held, "x", 1) >= 0, "still there");
	http_abort(held);
	raw_want = NULL;
	ok(spin(raw_ready, 2000) && spin(nothing_held, 2000), "abort");
	ok(raw_end == -ECONNRESET && ends[HTTP_ABORTED] == aborted + 1, "is a reset (%d)", raw_end);
	close(raw_fd);
	raw(app_at, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /nope HTTP/1.1\r\nHost: a\r\n\r\n", "never");
	ok(held != NULL && raw_len == 0, "the second waits for the first");
	http_reply(held, 200, NULL, "late", 4);
	raw_want = "no /nope";
	ok(spin(raw_ready, 2000) && strstr(raw_buf, "late") < strstr(raw_buf, "no /nope"), "and comes after it");
	close(raw_fd);
}

static void test_file(void)
{
	size_t size = 64 << 20;
	char *p = malloc(size), path[400];
	struct stat st;

	for (size_t i = 0; i < size; i += 4096)
		memcpy(p + i, &i, sizeof i);
	ok(call("PUT", app_at, "/file", NULL, p, size) == 200 && atoll(buf_at(&res.body)) == (long long)size, "64 MiB into a file");
	snprintf(path, sizeof path, "%s/file", dir);
	int fd = open(path, O_RDONLY);
	char *q = malloc(size);

	ok(read(fd, q, size) == (ssize_t)size && memcmp(p, q, size) == 0, "and it's the same");
	ok(call("GET", app_at, "/get", NULL, NULL, 0) == 200 && res.n == size, "and comes back");
	static const char *const range[] = { "Range", "bytes=4096-4103", NULL };

	ok(call("GET", app_at, "/get", range, NULL, 0) == 206 && res.n == 8 && memcmp(buf_at(&res.body), p + 4096, 8) == 0, "a range");
	static const char *const beyond[] = { "Range", "bytes=99999999-", NULL };

	ok(call("GET", app_at, "/get", beyond, NULL, 0) == 416, "a range beyond the end");
	ok(call("HEAD", app_at, "/get", NULL, NULL, 0) == 200 && res.n == 0, "HEAD of a file");
	char url[128];

	snprintf(url, sizeof url, "http://%s/file", app_at);
	lseek(fd, 100, SEEK_SET);
	ok(call_spec(&(struct http_call_spec){ .method = "PUT", .url = url, .body_fd = fd, .has_body_fd = true, .body_fd_len = 1000 }) == 200 &&
		fstat(fd, &st) == 0, "a body from a descriptor");
	ok(atoll(buf_at(&res.body)) <= 1000, "of its part of the file");
	close(fd);
	free(p);
	free(q);
}

static bool proxy_ended(void) { return proxy_results[0] + proxy_results[1] + proxy_results[2] > 0; }

static void test_proxy(void)
{
	static const char *const drop[] = { "X-Drop", "1", "X-Forwarded-For", "6.6.6.6", NULL };
	static const char *const spare[] = { "X-Spare", "1", NULL };
	static const char *const edits[] = { "X-Edit", "1", "X-Secret", "standin", NULL };

	ok(call("GET", front_at, "/info?q=a%2520b", drop, NULL, 0) == 200, "through the proxy");
	ok(strstr(buf_at(&res.body), "q=a%20b fwd=127.0.0.1 loop=1") != NULL, "query as sent, forwarded address ours: %s", buf_at(&res.body));
	ok(call("POST", front_at, "/collect", NULL, big, sizeof big) == 200 && res.n == sizeof big, "a body both ways");
	ok(call("POST", front_at, "/echo", NULL, big, sizeof big) == 200 && res.n == sizeof big, "a body both ways at once");
	ok(call("GET", front_at, "/flood?n=50000000", NULL, NULL, 0) == 200 && res.n == 50000000, "50 MB chunked");
	ok(call("GET", front_at, "/flood?n=50000000&known=1", NULL, NULL, 0) == 200 && res.n == 50000000, "50 MB spliced");
	ok(call("HEAD", front_at, "/hello", NULL, NULL, 0) == 200 && res.n == 0, "HEAD");
	ok(call("GET", front_at, "/hello", spare, NULL, 0) == 200 && spares == 1, "the upstream is offered");
	ok(call("POST", front_at, "/collect", spare, "abc", 3) == 200 && str_eq(res.got, "3") && spares == 2, "and used again");
	http_stream_free(spare_up);
	spare_up = NULL;
	call("GET", front_at, "/info", edits, NULL, 0);
	ok(strstr(buf_at(&res.body), "s3cr3t=r3al!end"), "edited: %s", buf_at(&res.body));
	ok(call("POST", front_at, "/collect", edits, "hello", 5) == 200 && str_eq(buf_at(&res.body), "h3llo!end") && str_eq(res.got, "5"), "filtered");
	refused = "last-modified";
	ok(call("GET", front_at, "/get", edits, NULL, 0) == 502 && !res.etag, "an answer that is refused leaves no field behind");
	refused = "";
	memset(proxy_results, 0, sizeof proxy_results);
	ok(call("GET", front_at, "/short", NULL, NULL, 0) == 200 && res.err.code, "an answer that is cut is cut");
	ok(spin(proxy_ended, 1000) && proxy_results[HTTP_PROXY_CUT] == 1, "and said so");
	static const char *const closed[] = { "X-To", "127.0.0.1:1", NULL };

	call("GET", front_at, "/hello", closed, NULL, 0);
	ok(res.status == 502, "a closed port: %s", buf_at(&res.body));
	memset(proxy_results, 0, sizeof proxy_results);
	raw_open(front_at);
	raw_send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
	ok(spin(something_held, 2000), "a request waits behind the proxy");
	close(raw_fd);
	ok(spin(nothing_held, 2000) && spin(proxy_ended, 1000) && proxy_results[HTTP_PROXY_CUT], "the client leaves: so does the proxy");
	raw_open(front_at);
	raw_send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
	raw_want = "data: b";
	ok(spin(raw_ready, 2000), "a quiet stream's first event comes through");
	http_abort(held);
	raw_want = NULL;
	ok(spin(raw_ready, 2000), "upstream reset: the client's connection ends too");
	close(raw_fd);
}

static void test_upgrade(const char *at, const char *name)
{
	memset(proxy_results, 0, sizeof proxy_results);
	raw(at, "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly", "early");
	ok(strstr(raw_buf, "101 Switching Protocols") && strcasestr(raw_buf, "upgrade: echo"), "%s: upgraded, early bytes kept", name);
	ok(raw(NULL, "ping", "ping"), "%s: bytes both ways", name);
	shutdown(raw_fd, SHUT_WR);
	raw_want = NULL;
	ok(spin(raw_ready, 2000) && raw_end == 1, "%s: the end comes through", name);
	close(raw_fd);
	if (at == front_at)
		ok(spin(proxy_ended, 1000) && proxy_results[HTTP_PROXY_OK] == 1, "%s: done is called", name);
}

static void test_more(void)
{
	char url[256];
	struct err e = { 0 };

	ok(call_spec(&(struct http_call_spec){ .method = "GET", .url = "http://box/hello", .connect_to = unix_at }) == 200, "over a unix socket");
	ok(call_spec(&(struct http_call_spec){ .method = "GET", .url = "http://box/info", .connect_to = unix_at }) == 200 &&
		strstr(buf_at(&res.body), "host=box q=- fwd=- loop=1 peer=unix"), "which counts as loopback");
	call("GET", "127.0.0.1:1", "/", NULL, NULL, 0);
	ok(res.err.code == ECONNREFUSED, "refused: %s", res.err.msg);
	call("GET", "no..such..name", "/", NULL, NULL, 0);
	ok(res.err.code == EHOSTUNREACH, "no such name: %s", res.err.msg);
	snprintf(url, sizeof url, "http://localhost:%s/hello", strchr(app_at, ':') + 1);
	ok(call_spec(&(struct http_call_spec){ .method = "GET", .url = url }) == 200, "localhost");
	static const char *const bad[] = { "X", "a\r\nb", NULL };

	ok(call("GET", app_at, "/hello", bad, NULL, 0) == 0 && res.err.code == EINVAL, "a header with a line break isn't sent");
	unsigned before = http_server_conns(app);

	for (int i = 0; i < 20; i++)
		call("GET", app_at, "/hello", NULL, NULL, 0);
	ok(http_server_conns(app) <= before + 1, "connections are used again (%u, %u)", before, http_server_conns(app));
	broken = 0;
	ok(call("GET", app_at, "/break", NULL, NULL, 0) == 200 && broken == 2, "a GET on a spare connection that breaks is sent again");
	broken = 0;
	ok(call("POST", app_at, "/break", NULL, "x", 1) == 0 && res.err.code && broken == 1, "a POST isn't");
	broken = 0;
	ok(call("GET", app_at, "/break", NULL, NULL, 0) == 0 && broken == 1, "nor what breaks on a fresh one");
	struct http_call *k;
	struct http_call_spec s = { .method = "GET", .url = url, .head = on_head, .data = on_data, .end = on_end };

	res.done = 0;
	snprintf(url, sizeof url, "http://%s/hold", app_at);
	ok(http_call_start(client, &s, &k, &e) == 0 && spin(something_held, 2000), "a call that waits");
	http_call_cancel(k);
	ok(spin(nothing_held, 2000) && !res.done, "is cancelled without a callback");
}

static void test_server_limits(void)
{
	struct http_server_opts o = { .on_request = app_request, .max_conns = 2, .head_ms = 150, .idle_ms = 150, .stall_ms = 150 };
	struct http_listen li = { .address = "127.0.0.1:0" };
	struct http_server *s;
	char at[64];
	struct err e = { 0 };

	ok(http_server_create(loop, &o, &s, &e) == 0 && http_server_listen(s, &li, at, sizeof at, &e) == 0, "a server with small limits");
	raw(at, "GET /hel", NULL);
	ok(raw_end == 1 && raw_len == 0, "a head that doesn't come: closed");
	close(raw_fd);
	raw(at, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n", NULL);
	ok(raw_end == 1 && raw_len > 0, "an idle connection: closed");
	close(raw_fd);
	raw(at, "POST /collect HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab", NULL);
	ok(raw_end == 1, "a body that stalls: closed");
	close(raw_fd);
	raw(at, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", "data: b");
	int64_t until = clock_mono_ms() + 400;

	while (clock_mono_ms() < until)
		loop_turn(loop, 50);
	ok(held != NULL, "a quiet stream: not closed");
	int one = raw_fd;

	raw(at, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n", "hello\n");
	int two = raw_fd;

	raw_open(at);
	ok(spin(raw_ready, 2000) && raw_end && raw_len == 0, "one too many: closed at once");
	close(raw_fd);
	close(one);
	close(two);
	ok(spin(nothing_held, 2000), "the quiet one ends");
	http_server_free(s);
}

static void setup(void)
{
	struct err e = { 0 };
	struct http_server_opts o = { .on_request = app_request }, fo = { .on_request = front_request };
	struct http_listen li = { .address = "127.0.0.1:0" }, ul = { .address = unix_at };

	if (!mkdtemp(tap_tmp(dir, sizeof dir, "http-engine")))
		perror("mkdtemp");
	snprintf(unix_at, sizeof unix_at, "unix:%s/s", dir);
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (char)(i * 7 + i / 251);
	if (loop_create(&loop, &e) < 0 || http_server_create(loop, &o, &app, &e) < 0 || http_server_create(loop, &fo, &front, &e) < 0 ||
	    http_server_listen(app, &li, app_at, sizeof app_at, &e) < 0 || http_server_listen(front, &li, front_at, sizeof front_at, &e) < 0 ||
	    http_server_listen(app, &ul, NULL, 0, &e) < 0 || http_client_create(loop, NULL, &client, &e) < 0) {
		printf("Bail out! %s\n", e.msg);
		exit(1);
	}
}

/* A socket that a computer sent: it holds the same open file, and makes it blocking and slow to close. */
static void test_shared(void)
{
	struct linger slow = { .l_onoff = 1, .l_linger = 60 };
	struct http_stream *st;
	struct err e;
	ssize_t n = 1;
	int p[2], theirs;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
		return;
	theirs = dup(p[0]);
	alarm(20);
	ok(http_stream_open(loop, p[0], &st, &e) == 0 && http_stream_splices(st), "a socket of our own may be spliced");
	http_stream_share(st);
	ok(!http_stream_splices(st) && http_stream_plain(st), "a shared one isn't");
	fcntl(theirs, F_SETFL, 0);
	setsockopt(theirs, SOL_SOCKET, SO_LINGER, &slow, sizeof slow);
	ok(http_stream_read(st, big, sizeof big) == -EAGAIN, "reading it waits for nobody");
	for (int i = 0; i < 1000 && n > 0; i++)
		n = http_stream_write(st, big, sizeof big);
	ok(n == -EAGAIN, "nor does writing: %zd", n);
	http_stream_free(st);
	alarm(0);
	close(theirs);
	close(p[1]);
}

int main(void)
{
	char path[400];

	setvbuf(stdout, NULL, _IOLBF, 0);
	setup();
	test_basic();
	test_raw();
	test_gone();
	test_file();
	test_proxy();
	test_upgrade(app_at, "direct");
	test_upgrade(front_at, "proxied");
	test_more();
	test_server_limits();
	test_shared();
	http_client_free(client);
	http_server_free(front);
	http_server_free(app);
	for (int i = 0; i < 3; i++)
		loop_turn(loop, 0);
	loop_free(loop);
	buf_done(&res.body);
	snprintf(path, sizeof path, "%s/file", dir);
	unlink(path);
	ok(rmdir(dir) == 0, "nothing is left behind");
	return done_testing();
}
