/* A whole connection: bytes in pieces, with turns of the loop between them, to handlers that do each thing a handler may do
 * (the path's first letter says which), proxying to ourselves included. Found here: uses after free, lost on_end calls, spins. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/proxy.h"
#include "http/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct loop *loop;
static struct http_server *server;
static unsigned open_ends;              /* on_end calls that are owed */
static char block[70000];

struct hold { struct http_req *r; struct timer t; int mode; };

static void hold_end(void *ctx, struct http_req *r, enum http_why why)
{
	struct hold *h = ctx;

	open_ends--;
	loop_disarm(loop, &h->t);
	free(h);
}

static void hold_fire(struct timer *t)
{
	struct hold *h = container_of(t, struct hold, t);

	switch (h->mode) {
	case 'h': http_replyf(h->r, 200, "text/plain", "late"); break;
	case 'r': http_req_resume(h->r); break;
	case 'x': http_abort(h->r); break;
	case 's':
		http_write(h->r, block, 100);
		http_end(h->r);
		break;
	}
}

static struct hold *hold(struct http_req *r, int mode)
{
	struct hold *h = calloc(1, sizeof *h);

	h->r = r;
	h->mode = mode;
	h->t.fire = hold_fire;
	open_ends++;
	http_req_on_end(r, hold_end, h);
	loop_arm(loop, &h->t, 0);
	return h;
}

static void collected(void *ctx, struct http_req *r, char *p, size_t n)
{
	if (strlen(p) > n)
		abort();
	http_reply(r, 200, NULL, p, n);
}

static void data(void *ctx, struct http_req *r, const char *p, size_t n)
{
	struct hold *h = ctx;

	if (n == 0)
		abort();
	http_req_pause(r);
	loop_arm(loop, &h->t, 0);
	http_write(r, p, n);
}

static void end(void *ctx, struct http_req *r)
{
	http_end(r);
}

static void stored(void *ctx, struct http_req *r, int64_t n)
{
	http_reply_file(r, NULL, (int)(intptr_t)ctx);
}

static void drained(void *ctx, struct http_req *r)
{
	if (http_write(r, block, sizeof block) < 0 || http_pending(r) == 0)
		http_end(r);
}

static void proxied(void *ctx, struct http_req *r, enum http_proxy_result result, const char *why)
{
	open_ends--;
	if ((result == HTTP_PROXY_FAILED) != (r != NULL))
		abort();
	if (r)
		http_replyf(r, 502, "text/plain", "%s", why);
}

static int body(void *ctx, bool response, const char *p, size_t n, bool last, struct buf *out)
{
	buf_add(out, p, n);
	return last ? buf_addc(out, '.') : 0;
}

static void proxy(struct http_req *r, const char *target, bool look)
{
	struct http_proxy_opts o = { .fd = -1, .target = target, .forwarded = true, .done = proxied, .body = look ? body : NULL };
	struct err e = { 0 };
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		abort();
	o.fd = fd[0];
	http_server_serve(server, fd[1], NULL, NULL, &e);
	if (http_proxy_start(r, &o, NULL, &e) < 0)
		http_replyf(r, 502, "text/plain", "%s", e.msg);
	else
		open_ends++;
}

static void on_request(void *ctx, struct http_req *r)
{
	const char *p = http_req_path(r);
	char mode = *p == '/' ? p[1] : *p;
	struct http_stream *st;
	const char *a, *b;

	http_set(r, "X-Host", http_req_host(r));
	for (unsigned i = 0; http_req_query_at(r, i, &a, &b); i++)
		http_set(r, a, b);
	switch (mode) {
	case 'c': http_req_collect(r, 1000, collected, NULL); break;
	case 'e':
		http_reply_start(r, 200, NULL, http_req_body_length(r));
		http_req_read(r, data, end, hold(r, 'r'));
		break;
	case 'f': {
		int fd = memfd_create("x", MFD_CLOEXEC);

		http_req_to_fd(r, fd, 5000, stored, (void *)(intptr_t)fd);
		http_req_on_end(r, NULL, NULL);
		break;
	}
	case 'h': case 'x': hold(r, mode); break;
	case 's':
		http_sse_start(r);
		http_sse(r, "a", NULL, "b\nc\r", 4);
		hold(r, 's');
		break;
	case 'd':
		http_reply_start(r, 200, NULL, -1);
		http_on_drain(r, 10, drained, NULL);
		http_write(r, block, sizeof block);
		break;
	case 'a': http_abort(r); break;
	case 'n': break;
	case 't':
		if (http_takeover(r, 101, &st) == 0)
			http_stream_free(st);
		break;
	case 'p': proxy(r, strlen(http_req_target(r)) > 2 ? http_req_target(r) + 2 : "/h", false); break;
	case 'q': proxy(r, strlen(http_req_target(r)) > 2 ? http_req_target(r) + 2 : "/c", true); break;
	default: http_replyf(r, 404, "text/plain", "no %s", p);
	}
}

static void turns(int fd, int n)
{
	char sink[65536];

	while (n--) {
		loop_turn(loop, 0);
		if (recv(fd, sink, sizeof sink, MSG_DONTWAIT) < 0)
			continue;
	}
}

static void init(void)
{
	struct http_server_opts o = { .on_request = on_request };
	struct err e;

	if (loop_create(&loop, &e) < 0 || http_server_create(loop, &o, &server, &e) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct err e = { 0 };
	int fd[2];

	if (!loop)
		init();
	if (n < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		return 0;
	size_t step = p[0] < 128 ? 1 + p[0] * 4u : n;
	bool half = p[1] & 1, rude = p[1] & 2;

	if (http_server_serve(server, fd[1], NULL, NULL, &e) < 0)
		abort();
	for (size_t at = 2; at < n; at += step) {
		if (send(fd[0], p + at, n - at < step ? n - at : step, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		turns(fd[0], 2);
	}
	turns(fd[0], rude ? 1 : 12);
	if (half) {
		shutdown(fd[0], SHUT_WR);
		turns(fd[0], 6);
	}
	close(fd[0]);
	for (int i = 0; i < 400 && (http_server_conns(server) || open_ends); i++)
		loop_turn(loop, i > 50);
	if (http_server_conns(server) || open_ends)
		abort();
	return 0;
}
