#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fd.h"
#include "http/stream_impl.h"

/* Theory of operation. Two flows, each from one stream to the other. A flow reads into memory shared by all tunnels and
 * writes at once; only what the other side doesn't take is kept (`rest`), and then the reading side waits. So a quiet
 * tunnel holds no buffer. A flow that fills the memory several times in a row is bulk: with both sides plain it goes on
 * by splice through a pipe, which never copies. End of input is passed on as a half-close once all before it was written. */

enum { BLOCK = 65536, BULK_AFTER = 4, BUDGET = 1 << 20 };
static char block[BLOCK];

int http_pipe_open(struct http_pipe *p)
{
	if (p->fd[0] >= 0)
		return 0;
	p->len = 0;
	return pipe2(p->fd, O_CLOEXEC | O_NONBLOCK) < 0 ? -errno : 0;
}

void http_pipe_close(struct http_pipe *p)
{
	fd_drop(&p->fd[0]);
	fd_drop(&p->fd[1]);
	p->len = 0;
}

ssize_t http_pipe_fill(struct http_pipe *p, int from, size_t n)
{
	/* for a socket SPLICE_F_NONBLOCK counts for nothing, its own flags do: see http_stream_splices() */
	ssize_t r = splice(from, NULL, p->fd[1], NULL, n, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

	if (r < 0)
		return -errno;
	p->len += (size_t)r;
	return r;
}

ssize_t http_pipe_drain(struct http_pipe *p, int to)
{
	ssize_t r = splice(p->fd[0], NULL, to, NULL, p->len, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

	if (r <= 0)
		return r < 0 ? -errno : -EIO;
	p->len -= (size_t)r;
	return r;
}

struct flow {
	char *rest;
	size_t off, len;
	struct http_pipe pipe;
	unsigned full;          /* reads in a row that filled the block */
	bool ended, shut;       /* input has ended; and that was passed on */
	uint64_t total;
};

struct http_tunnel {
	struct http_stream *end[2];
	struct flow flow[2];    /* flow[i]: from end[i] to end[1 - i] */
	struct loop *loop;
	struct job job;
	void (*done)(void *ctx, uint64_t a_to_b, uint64_t b_to_a);
	void *ctx;
	bool closing;
};

static size_t held(const struct flow *f)
{
	return f->len + f->pipe.len;
}

/* Writes what is held. 0 = all gone, -EAGAIN, other = broken. */
static int flow_flush(struct http_tunnel *t, int i)
{
	struct flow *f = &t->flow[i];
	struct http_stream *to = t->end[1 - i];

	while (held(f)) {
		ssize_t r = f->len ? http_stream_write(to, f->rest + f->off, f->len) : http_pipe_drain(&f->pipe, http_stream_fd(to));

		if (r < 0)
			return (int)r;
		f->total += (uint64_t)r;
		if (!f->len)
			continue;
		f->off += (size_t)r;
		f->len -= (size_t)r;
		if (!f->len) {
			free(f->rest);
			f->rest = NULL;
		}
	}
	return 0;
}

static int flow_keep(struct flow *f, const char *p, size_t n)
{
	f->rest = malloc(n);
	if (!f->rest)
		return -ENOMEM;
	memcpy(f->rest, p, n);
	f->off = 0;
	f->len = n;
	return -EAGAIN;
}

/* One block across. 1 = moved and the input may have more, 0 = input ended, -EAGAIN = wait, other = broken. */
static int flow_step(struct http_tunnel *t, int i)
{
	struct flow *f = &t->flow[i];
	struct http_stream *from = t->end[i], *to = t->end[1 - i];

	if (f->full >= BULK_AFTER && http_stream_splices(from) && http_stream_splices(to) && !http_stream_unread_len(from) &&
	    http_pipe_open(&f->pipe) == 0) {
		ssize_t r = http_pipe_fill(&f->pipe, http_stream_fd(from), BLOCK);

		if (r <= 0)
			return (int)r;
		r = flow_flush(t, i);
		return r < 0 ? (int)r : 1;
	}
	ssize_t n = http_stream_read(from, block, sizeof block), w = 0;

	if (n <= 0)
		return (int)n;
	f->full = n == sizeof block ? f->full + 1 : 0;
	w = http_stream_write(to, block, (size_t)n);
	if (w < 0 && w != -EAGAIN)
		return (int)w;
	if (w > 0)
		f->total += (uint64_t)w;
	else
		w = 0;
	return w < n ? flow_keep(f, block + w, (size_t)(n - w)) : 1;
}

/* Moves what can be moved. Returns -1 when the tunnel is broken. */
static int flow_run(struct http_tunnel *t, int i)
{
	struct flow *f = &t->flow[i];
	uint64_t start = f->total;
	int r = flow_flush(t, i);

	while (r == 0 && !f->ended && f->total - start < BUDGET) {
		r = flow_step(t, i);
		if (r == 0)
			f->ended = true;
		r = r == 1 ? 0 : r == 0 ? 1 : r;
	}
	if (r < 0 && r != -EAGAIN)
		return -1;
	if (f->ended && !held(f) && !f->shut) {
		f->shut = true;
		http_stream_shut(t->end[1 - i]);
	}
	return 0;
}

static void tunnel_close(struct http_tunnel *t, bool reset)
{
	for (int i = 0; i < 2; i++) {
		if (reset)
			http_stream_abort(t->end[i]);
		else
			http_stream_free(t->end[i]);
		free(t->flow[i].rest);
		http_pipe_close(&t->flow[i].pipe);
		t->end[i] = NULL;
		t->flow[i].rest = NULL;
	}
	t->closing = true;
}

static void tunnel_want(struct http_tunnel *t)
{
	for (int i = 0; i < 2; i++) {
		unsigned want = 0;

		if (!t->flow[i].ended && !held(&t->flow[i]))
			want |= HTTP_READABLE;
		if (held(&t->flow[1 - i]))
			want |= HTTP_WRITABLE;
		http_stream_want(t->end[i], want);
	}
}

static void tunnel_run(struct http_tunnel *t)
{
	if (t->closing)
		return;
	int bad = flow_run(t, 0) < 0 ? 1 : flow_run(t, 1) < 0;

	if (bad || (t->flow[0].shut && t->flow[1].shut)) {
		tunnel_close(t, bad);
		loop_defer(t->loop, &t->job);
	} else {
		tunnel_want(t);
	}
}

static void on_event(void *ctx, unsigned what)
{
	tunnel_run(ctx);
}

static void on_job(struct job *j)
{
	struct http_tunnel *t = container_of(j, struct http_tunnel, job);

	if (!t->closing) {
		tunnel_run(t);
		return;
	}
	if (t->done)
		t->done(t->ctx, t->flow[0].total, t->flow[1].total);
	free(t);
}

int http_tunnel_start(struct http_stream *a, struct http_stream *b,
	void (*done)(void *ctx, uint64_t a_to_b, uint64_t b_to_a), void *ctx, struct http_tunnel **ret, struct err *e)
{
	struct http_tunnel *t = calloc(1, sizeof *t);

	if (!t) {
		http_stream_free(a);
		http_stream_free(b);
		return err_set(e, ENOMEM, "join two connections: no memory");
	}
	*t = (struct http_tunnel){
		.end = { a, b }, .flow = { { .pipe = HTTP_PIPE_NONE }, { .pipe = HTTP_PIPE_NONE } }, .loop = http_stream_loop(a),
		.job = { .run = on_job }, .done = done, .ctx = ctx,
	};
	http_stream_on(a, on_event, t);
	http_stream_on(b, on_event, t);
	loop_defer(t->loop, &t->job);
	if (ret)
		*ret = t;
	return 0;
}

void http_tunnel_stop(struct http_tunnel *t, bool reset)
{
	if (!t->closing)
		tunnel_close(t, reset);
	loop_cancel(t->loop, &t->job);
	free(t);
}
