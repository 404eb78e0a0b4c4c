/* A hostile server: its bytes, in pieces, answer a request of our client or one that we forward. First byte: which request;
 * second: piece size. What must hold: exactly one end for each, and our side of the connection never waits for nothing. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/str.h"
#include "http/client.h"
#include "http/proxy.h"
#include "http/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct loop *loop;
static struct http_server *server;
static struct http_client *client;
static int listener, upstream_fd;
static char where[128];
static unsigned mode;
static int ends;

static void on_done(void *ctx, struct http_req *r, enum http_proxy_result result, const char *why)
{
	ends++;
	if ((result == HTTP_PROXY_FAILED) != (r != NULL))
		abort();
	if (r)
		http_replyf(r, 502, "text/plain", "%s", why);
}

static int edit(void *ctx, bool response, const char *name, const char *value, struct buf *out)
{
	if (!http_is_token(name, strlen(name)) || !http_is_value(value, strlen(value)))
		abort();
	if (name[0] == 'x') {
		buf_adds(out, value);
		return HTTP_EDIT_REPLACE;
	}
	return name[0] == 'd' ? HTTP_EDIT_DROP : HTTP_EDIT_KEEP;
}

static int body(void *ctx, bool response, const char *p, size_t n, bool end, struct buf *out)
{
	return buf_add(out, p, n);
}

static void spare(void *ctx, struct http_stream *up)
{
	http_stream_free(up);
}

static void on_request(void *ctx, struct http_req *r)
{
	struct http_proxy_opts o = { .fd = upstream_fd, .done = on_done, .edit = mode & 8 ? edit : NULL, .body = mode & 16 ? body : NULL,
		.spare = mode & 32 ? spare : NULL };
	struct err e;

	if (http_proxy_start(r, &o, NULL, &e) < 0)
		abort();
}

static void call_head(void *ctx, struct http_call *k, int status, const struct http_head *h)
{
	if (status < 100 || h->status != status)
		abort();
	if (mode & 16)
		http_call_pause(k);
	if (mode & 32)
		http_call_resume(k);
}

static void call_data(void *ctx, struct http_call *k, const char *p, size_t n)
{
	if (n == 0)
		abort();
	if (mode & 8) {
		ends++;
		http_call_cancel(k);
	}
}

static void call_end(void *ctx, struct http_call *k, const struct err *err)
{
	ends++;
}

static char dir[] = "/tmp/fuzz-upstream-XXXXXX";

static void clean(void)
{
	unlink(where + strlen("unix:"));
	rmdir(dir);
}

static void init(void)
{
	struct http_server_opts o = { .on_request = on_request };
	struct http_client_opts co = { .connect_ms = 200, .idle_ms = 200 };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct err e;

	if (!mkdtemp(dir) || loop_create(&loop, &e) < 0 || http_server_create(loop, &o, &server, &e) < 0 ||
	    http_client_create(loop, &co, &client, &e) < 0)
		abort();
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s/s", dir);
	snprintf(where, sizeof where, "unix:%s", sa.sun_path);
	atexit(clean);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(listener, (struct sockaddr *)&sa, sizeof sa) < 0 || listen(listener, 64) < 0)
		abort();
}

static void drain(int fd)
{
	char sink[65536];

	while (recv(fd, sink, sizeof sink, MSG_DONTWAIT) > 0)
		;
}

/* Plays the server on fd; me: the client's end of what we forward, or -1 */
static void play(int fd, int me, const uint8_t *p, size_t n)
{
	size_t step = p[1] < 128 ? 1 + p[1] * 4u : n;

	for (size_t at = 2; at < n; at += step) {
		if (send(fd, p + at, n - at < step ? n - at : step, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		loop_turn(loop, 0);
		loop_turn(loop, 0);
		drain(fd);
		if (me >= 0)
			drain(me);
	}
	close(fd);
	for (int i = 0; i < 20; i++) {
		loop_turn(loop, 0);
		if (me >= 0)
			drain(me);
	}
}

static void forwarded(const uint8_t *p, size_t n)
{
	static const char *const requests[] = {
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "GET / HTTP/1.0\r\n\r\n",
	};
	const char *rq = requests[mode >> 1 & 3];
	int me[2], up[2];
	struct err e;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, me) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, up) < 0)
		abort();
	upstream_fd = up[0];
	if (send(me[0], rq, strlen(rq), MSG_NOSIGNAL) < 0 || http_server_serve(server, me[1], NULL, NULL, &e) < 0)
		abort();
	for (int i = 0; i < 3; i++)
		loop_turn(loop, 0);
	play(up[1], me[0], p, n);
	close(me[0]);
	for (int i = 0; i < 100 && (http_server_conns(server) || !ends); i++)
		loop_turn(loop, i > 20);
	if (http_server_conns(server))
		abort();
}

static void called(const uint8_t *p, size_t n)
{
	struct http_call_spec s = { .method = mode & 2 ? "HEAD" : "GET", .url = "http://a/", .connect_to = where, .head = call_head, .data = call_data,
		.end = call_end };
	struct http_call *k;
	struct err e;

	if (http_call_start(client, &s, &k, &e) < 0)
		return;
	int fd = -1;

	for (int i = 0; i < 10 && fd < 0; i++) {
		loop_turn(loop, 0);
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	}
	if (fd < 0)
		abort();
	play(fd, -1, p, n);
	if (!ends) {            /* it may wait only because we paused it */
		if (!(mode & 16))
			abort();
		http_call_cancel(k);
		ends++;
	}
	/* whatever it kept as spare is closed by now */
	for (int i = 0; i < 3; i++)
		loop_turn(loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	if (n < 3)
		return 0;
	if (!loop)
		init();
	mode = p[0];
	ends = 0;
	if (mode & 1)
		called(p, n);
	else
		forwarded(p, n);
	if (ends != 1)
		abort();
	return 0;
}
