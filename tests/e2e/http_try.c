/* http-try: the HTTP engine with a few routes, for tests with real clients.
 *   http-try serve ADDRESS [CERT KEY [plain]]   prints the bound address; runs until its standard input ends. plain: TLS only inside CONNECT
 *   http-try call URL [CA]              one request with the blocking client; prints status and body */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/str.h"
#include "http/client.h"
#include "http/multipart.h"
#include "http/proxy.h"
#include "http/server.h"

static struct loop *loop;
static struct http_server *server;
static SSL_CTX *tls;
static char own[128];

static void got_body(void *ctx, struct http_req *r, char *p, size_t n)
{
	http_reply(r, 200, "text/plain", p, n);
}

static void stored(void *ctx, struct http_req *r, int64_t n)
{
	close((int)(intptr_t)ctx);
	http_replyf(r, n < 0 ? 507 : 200, "text/plain", "%lld\n", (long long)n);
}

static void proxied(void *ctx, struct http_req *r, enum http_proxy_result result, const char *why)
{
	if (result == HTTP_PROXY_FAILED)
		http_replyf(r, 502, "text/plain", "%s\n", why);
}

static void forward(struct http_req *r, const char *target)
{
	struct http_proxy_opts o = { .fd = -1, .target = target, .forwarded = true, .done = proxied };
	struct err e = { 0 };

	if (http_stream_connect(loop, own, &o.upstream, &e) < 0 || http_proxy_start(r, &o, NULL, &e) < 0)
		http_replyf(r, 502, "text/plain", "%s\n", e.msg);
}

struct form { struct http_multipart *m; struct buf out; size_t n; struct err e; };

static int part_begin(void *ctx, const struct http_part *p)
{
	struct form *f = ctx;

	f->n = 0;
	return buf_printf(&f->out, "%s %s ", p->name, p->filename ? p->filename : "-");
}

static int part_data(void *ctx, const char *p, size_t n)
{
	((struct form *)ctx)->n += n;
	return 0;
}

static int part_end(void *ctx)
{
	struct form *f = ctx;

	return buf_printf(&f->out, "%zu\n", f->n);
}

static void form_data(void *ctx, struct http_req *r, const char *p, size_t n)
{
	struct form *f = ctx;

	if (!f->e.code)
		http_multipart_feed(f->m, p, n, &f->e);
}

static void form_end(void *ctx, struct http_req *r)
{
	struct form *f = ctx;

	if (!f->e.code)
		http_multipart_finish(f->m, &f->e);
	http_reply(r, f->e.code ? 400 : 200, "text/plain", buf_at(&f->out), f->out.len);
}

static void form_done(void *ctx, struct http_req *r, enum http_why why)
{
	struct form *f = ctx;

	http_multipart_free(f->m);
	buf_done(&f->out);
	free(f);
}

static void form(struct http_req *r)
{
	static const struct http_multipart_cb cb = { part_begin, part_data, part_end };
	struct form *f = calloc(1, sizeof *f);
	const char *type = http_req_header(r, "content-type");

	if (!f) {
		http_replyf(r, 503, "text/plain", "no memory\n");
		return;
	}
	buf_init(&f->out, 65536);
	if (http_multipart_create(type ? type : "", &cb, f, &f->m, &f->e) < 0) {
		free(f);
		http_replyf(r, 400, "text/plain", "no form\n");
		return;
	}
	http_req_on_end(r, form_done, f);
	http_req_read(r, form_data, form_end, f);
}

/* After an upgrade: sends back what comes, reading no more than it can write. */
struct echo { struct http_stream *st; char b[65536]; size_t at, n; };

static void on_echo(void *ctx, unsigned what)
{
	struct echo *x = ctx;
	ssize_t r = 1;

	while (r > 0) {
		if (x->at == x->n) {
			x->at = x->n = 0;
			r = http_stream_read(x->st, x->b, sizeof x->b);
			x->n = r > 0 ? (size_t)r : 0;
		} else {
			r = http_stream_write(x->st, x->b + x->at, x->n - x->at);
			x->at += r > 0 ? (size_t)r : 0;
		}
	}
	if (r == -EAGAIN) {
		http_stream_want(x->st, x->at < x->n ? HTTP_WRITABLE : HTTP_READABLE);
		return;
	}
	http_stream_free(x->st);
	free(x);
}

static void upgrade(struct http_req *r)
{
	struct echo *x = calloc(1, sizeof *x);

	http_set(r, "Connection", "Upgrade");
	http_set(r, "Upgrade", "echo");
	if (!x || http_takeover(r, 101, &x->st) < 0) {
		free(x);
		return;
	}
	http_stream_on(x->st, on_echo, x);
	http_stream_want(x->st, HTTP_READABLE);
}

/* Stands in for any host, as the door does: what's in the tunnel is TLS for us, and the request in it is served here. */
static void stand_in(struct http_req *r)
{
	struct http_stream *st;
	struct err e = { 0 };

	if (!tls) {
		http_replyf(r, 501, "text/plain", "no certificate\n");
		return;
	}
	if (http_takeover(r, 200, &st) < 0)
		return;
	if (http_stream_tls_server(st, tls, &e) < 0)
		http_stream_free(st);
	else
		http_server_serve_stream(server, st, NULL, &e);
}

static void on_request(void *ctx, struct http_req *r)
{
	const char *p = http_req_path(r), *file = http_req_query(r, "file");

	if (http_req_is(r, "CONNECT")) {
		stand_in(r);
	} else if (str_eq(p, "/upgrade")) {
		upgrade(r);
	} else if (str_eq(p, "/hello")) {
		http_reply(r, 200, "text/plain", "hello\n", 6);
	} else if (str_eq(p, "/info")) {
		http_replyf(r, 200, "text/plain", "%s tls=%d host=%s proto=%s\n", http_req_method(r), http_req_tls(r), http_req_host(r),
			http_req_header(r, "x-forwarded-proto") ? http_req_header(r, "x-forwarded-proto") : "-");
	} else if (str_eq(p, "/collect")) {
		http_req_collect(r, 1 << 20, got_body, NULL);
	} else if (str_eq(p, "/form")) {
		form(r);
	} else if (str_eq(p, "/file") && file && http_req_is(r, "GET")) {
		http_reply_file(r, "application/octet-stream", open(file, O_RDONLY | O_CLOEXEC));
	} else if (str_eq(p, "/file") && file) {
		int fd = open(file, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

		http_req_to_fd(r, fd, UINT64_MAX, stored, (void *)(intptr_t)fd);
	} else if (str_starts(http_req_target(r), "/via/")) {
		forward(r, http_req_target(r) + 4);
	} else {
		http_replyf(r, 404, "text/plain", "no %s\n", p);
	}
}

static void on_stdin(struct source *s, uint32_t events)
{
	char b[64];

	if (read(s->fd, b, sizeof b) <= 0)
		loop_quit(loop, 0);
}

static int serve(int argc, char **argv)
{
	struct http_server_opts o = { .on_request = on_request, .server_name = "try" };
	struct http_listen li = { .address = argv[2] }, plain = { .address = "127.0.0.1:0" };
	struct source in = { .fd = 0, .name = "stdin", .ready = on_stdin };
	struct err e = { 0 };
	char at[128];

	if (loop_create(&loop, &e) < 0 || http_server_create(loop, &o, &server, &e) < 0 ||
	    (argc > 4 && http_tls_server_ctx(argv[3], argv[4], &tls, &e) < 0)) {
		fprintf(stderr, "http-try: %s\n", e.msg);
		return 1;
	}
	li.tls = argc > 5 ? NULL : tls;
	if (http_server_listen(server, &li, at, sizeof at, &e) < 0 ||
	    http_server_listen(server, &plain, own, sizeof own, &e) < 0 || loop_add(loop, &in, EPOLLIN, &e) < 0) {
		fprintf(stderr, "http-try: %s\n", e.msg);
		return 1;
	}
	printf("%s\n", at);
	fflush(stdout);
	loop_run(loop);
	loop_remove(loop, &in);
	http_server_free(server);
	SSL_CTX_free(tls);
	loop_turn(loop, 0);
	loop_free(loop);
	return 0;
}

static int call(int argc, char **argv)
{
	struct err e = { 0 };
	int status;
	char *body;
	size_t n;

	if (http_client_call("GET", argv[2], NULL, argc > 3 ? argv[3] : NULL, NULL, NULL, 0, 1 << 20, &status, &body, &n, &e) < 0) {
		printf("error %s\n", e.msg);
		return 1;
	}
	printf("%d %s", status, body);
	free(body);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 3 && str_eq(argv[1], "serve"))
		return serve(argc, argv);
	if (argc >= 3 && str_eq(argv[1], "call"))
		return call(argc, argv);
	fprintf(stderr, "usage: http-try serve ADDRESS [CERT KEY] | call URL [CA]\n");
	return 2;
}
