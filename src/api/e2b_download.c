#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/e2b_req.h"
#include "core/fd.h"
#include "core/str.h"

/* GET /files: a regular file goes out by descriptor (ranges, conditions, sendfile are http's work); what has no size, such as
 * /proc, comes as a pipe and is passed on as it comes. */

enum { CHUNK = 64 << 10, PENDING_HIGH = 512 << 10, PENDING_LOW = 64 << 10 };

struct download {
	struct e2b_req q;
	struct source pipe;
	struct op_tie tie;
	bool over;
};

static struct download *download_of(struct e2b_req *q)
{
	return container_of(q, struct download, q);
}

static void pipe_close(struct download *d)
{
	loop_remove(d->q.api->loop, &d->pipe);
	fd_drop(&d->pipe.fd);
}

static void download_drop(struct e2b_req *q)
{
	struct download *d = download_of(q);

	ops_tie_drop(&d->tie);
	pipe_close(d);
}

static void on_kill(struct op_tie *t)
{
	struct download *d = container_of(t, struct download, tie);

	if (d->over)
		return;
	d->over = true;
	pipe_close(d);
	http_abort(d->q.r);
}

static void on_drain(void *ctx, struct http_req *r)
{
	struct download *d = ctx;

	if (!d->over)
		loop_mod(d->q.api->loop, &d->pipe, EPOLLIN);
}

static void on_pipe(struct source *s, uint32_t events)
{
	static char chunk[CHUNK];
	struct download *d = container_of(s, struct download, pipe);
	ssize_t n = fd_read_pipe(s->fd, chunk, sizeof chunk);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		if (http_write(d->q.r, chunk, (size_t)n) > PENDING_HIGH)
			loop_mod(d->q.api->loop, s, 0);
		return;
	}
	d->over = true;
	pipe_close(d);
	if (n < 0)
		http_abort(d->q.r);              /* cut, so that nobody takes a part for the whole */
	else
		http_end(d->q.r);
}

static void send_pipe(struct download *d, int fd)
{
	struct err e;

	d->pipe = (struct source){ .fd = fd, .name = "e2b file", .ready = on_pipe };
	if (fd_nonblock(fd, 1) < 0 || loop_add(d->q.api->loop, &d->pipe, EPOLLIN, &e) < 0) {
		fd_drop(&d->pipe.fd);
		e2b_status(d->q.r, 500, "the file could not be read");
		return;
	}
	http_on_drain(d->q.r, PENDING_LOW, on_drain, d);
	http_reply_start(d->q.r, 200, "application/octet-stream", -1);
}

/* The name for a browser that saves it: quoted where it's plain, and as UTF-8 where it isn't. */
static void disposition(struct http_req *r, const char *name)
{
	struct buf AUTO_BUF b = BUF_INIT(4096);
	bool plain = true;

	for (const char *p = name; *p; p++)
		if (*p < ' ' || *p > '~')
			plain = false;
	if (plain) {
		buf_adds(&b, "inline; filename=\"");
		for (const char *p = name; *p; p++) {
			if (*p == '"' || *p == '\\')
				buf_addc(&b, '\\');
			buf_addc(&b, *p);
		}
		buf_addc(&b, '"');
	} else {
		buf_adds(&b, "inline; filename*=utf-8''");
		str_percent_encode(&b, name);
	}
	if (buf_ok(&b))
		http_set(r, "Content-Disposition", buf_at(&b));
}

static void failed(struct e2b_req *q, const struct err *e)
{
	if (e2b_is_gone(q))
		e2b_gone(q->r, q->id);
	else if (e->code == ENOENT || e->code == ENOTDIR)
		e2b_status(q->r, 404, "%s", e->msg);
	else if (e->code == EISDIR)
		e2b_status(q->r, 400, "%s", e->msg);
	else if (e2b_no_user(e))
		e2b_status(q->r, 401, "%s", e->msg);
	else
		e2b_fail(q, e);
}

static void opened(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct download *d = download_of(q);
	const char *name = json_string_value(json_object_get(json_object_get(res, "entry"), "name"));
	struct stat st;

	if (e) {
		failed(q, e);
		return;
	}
	if (fd < 0 || fstat(fd, &st) < 0) {
		fd_drop(&fd);
		e2b_status(q->r, 500, "the file could not be opened");
		return;
	}
	disposition(q->r, name ? name : "file");
	/* the bytes are the sandbox's: no browser shall run them as a page of this address */
	http_set(q->r, "X-Content-Type-Options", "nosniff");
	http_set(q->r, "Content-Security-Policy", "sandbox");
	if (ops_tie(q->api->ops, q->id, &d->tie) < 0) {
		close(fd);
		e2b_gone(q->r, q->id);
	} else if (S_ISREG(st.st_mode)) {
		http_reply_file(q->r, "application/octet-stream", fd);
	} else if (S_ISFIFO(st.st_mode)) {
		send_pipe(d, fd);
	} else {
		close(fd);
		e2b_status(q->r, 400, "this is neither a file nor a stream");
	}
}

void e2b_download(struct api *a, struct http_req *r, const struct e2b_req *from)
{
	const char *path = http_req_query(r, "path"), *coding = http_req_header(r, "accept-encoding");
	struct download *d;
	json_t *args;

	if (coding && http_list_has(coding, "identity;q=0")) {
		e2b_status(r, 406, "files are sent as they are (identity)");
		return;
	}
	d = (struct download *)e2b_req_open(a, r, sizeof *d, from);
	if (!d)
		return;
	d->q.drop = download_drop;
	d->pipe.fd = -1;
	d->tie.cut = on_kill;
	args = e2b_args(&d->q);
	json_object_set_new(args, "path", json_string(path ? path : ""));
	e2b_ask(&d->q, "file.read", args, opened);
}
