#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/server_impl.h"

/* Theory of operation. Whoever reads a body sets on_data and on_body_end; collecting and writing to a file are two
 * such readers of our own. Bytes are handed out from the input buffer where they lie; a paused reader leaves them there, and
 * with the buffer full the socket isn't read: that's the back-pressure. Long plain runs for a file skip the buffer: socket to
 * pipe to file by splice. */

/* Small reads go through memory: a splice of less isn't worth its pipe. */
enum { SPLICE_MIN = 65536, PIPE_SIZE = 1 << 20 };

static void want_body(struct http_req *r)
{
	r->body_wanted = true;
	http_conn_kick(r);
}

void http_req_read(struct http_req *r, void (*data)(void *ctx, struct http_req *r, const char *p, size_t n),
	void (*end)(void *ctx, struct http_req *r), void *ctx)
{
	if (r->failed || r->finished)
		return;
	r->on_data = data;
	r->on_body_end = end;
	r->body_ctx = ctx;
	want_body(r);
}

void http_req_pause(struct http_req *r)
{
	r->paused = true;
}

void http_req_resume(struct http_req *r)
{
	if (!r->paused || r->finished)
		return;
	r->paused = false;
	http_conn_kick(r);
}

/* ---- into memory ---- */

static void too_large(struct http_req *r, size_t max)
{
	char why[64];

	snprintf(why, sizeof why, "the body is larger than %zu bytes", max);
	http_req_refuse(r, 413, r->path, why);
}

static void collect_data(void *ctx, struct http_req *r, const char *p, size_t n)
{
	if (r->replied)
		return;
	if (r->collect.len + n > r->collect_max) {
		too_large(r, r->collect_max);
		buf_done(&r->collect);
	} else if (buf_add(&r->collect, p, n) < 0) {
		http_req_refuse(r, 503, r->path, "no memory");
	}
}

static void collect_end(void *ctx, struct http_req *r)
{
	if (r->replied || !r->collect_done)
		return;
	if (!buf_reserve(&r->collect, 1))       /* so that there is a NUL behind nothing, too */
		http_req_refuse(r, 503, r->path, "no memory");
	else
		r->collect_done(ctx, r, r->collect.data + r->collect.off, r->collect.len);
}

void http_req_collect(struct http_req *r, size_t max, void (*done)(void *ctx, struct http_req *r, char *p, size_t n), void *ctx)
{
	if (r->failed || r->finished)
		return;
	if (r->head.framing == HTTP_LENGTH && r->head.length > max) {
		too_large(r, max);
		return;
	}
	buf_init(&r->collect, max + 1);
	r->collect_max = max;
	r->collect_done = done;
	http_req_read(r, collect_data, collect_end, ctx);
}

/* ---- into a file ---- */

static void to_finish(struct http_req *r)
{
	void (*done)(void *ctx, struct http_req *r, int64_t result) = r->to_done;

	if (!done)
		return;
	r->to_done = NULL;
	r->to_fd = -1;
	r->body_wanted = false;
	done(r->body_ctx, r, r->to_err < 0 ? r->to_err : (int64_t)r->to_got);
}

static void to_data(void *ctx, struct http_req *r, const char *p, size_t n)
{
	if (r->to_err == 0 && (r->to_got + n > r->to_max || r->to_got + n < r->to_got))
		r->to_err = -EFBIG;
	while (n && r->to_err == 0) {
		ssize_t w = write(r->to_fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			r->to_err = w < 0 ? -errno : -EIO;
			break;
		}
		p += w;
		n -= (size_t)w;
		r->to_got += (uint64_t)w;
	}
	if (r->to_err < 0)
		to_finish(r);
}

static void to_end(void *ctx, struct http_req *r)
{
	to_finish(r);
}

void http_req_to_fd(struct http_req *r, int fd, uint64_t max, void (*done)(void *ctx, struct http_req *r, int64_t result), void *ctx)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);

	if (r->failed || r->finished)
		return;
	r->to_fd = fd;
	r->to_max = max;
	r->to_got = 0;
	r->to_done = done;
	r->to_err = 0;
	if (fstat(fd, &st) < 0 || flags < 0)
		r->to_err = -errno;
	else if (!S_ISREG(st.st_mode))
		r->to_err = -EINVAL;    /* anything else could block the loop */
	else if (r->head.framing == HTTP_LENGTH && r->head.length > max)
		r->to_err = -EFBIG;
	r->to_copy = flags & O_APPEND;
	http_req_read(r, to_data, to_end, ctx);
}

/* The pipe holds bytes that this file refused. Through memory, when splice just isn't supported; away, when the disk is full. */
static void to_unpipe(struct http_req *r, struct http_pipe *p, int why)
{
	char *tmp = http_pool_get(r->srv);

	r->to_copy = true;
	if (why != -EINVAL)
		r->to_err = why;
	else if (!tmp)
		r->to_err = -ENOMEM;
	while (p->len && r->to_err == 0) {
		ssize_t n = read(p->fd[0], tmp, p->len < IN_SIZE ? p->len : IN_SIZE);

		if (n <= 0) {
			r->to_err = -EIO;
			break;
		}
		p->len -= (size_t)n;
		for (ssize_t w, at = 0; at < n && r->to_err == 0; at += w) {
			w = write(r->to_fd, tmp + at, (size_t)(n - at));
			if (w <= 0) {
				r->to_err = w < 0 ? -errno : -EIO;
				break;
			}
			r->to_got += (uint64_t)w;
		}
	}
	http_pool_put(r->srv, tmp);
	if (r->to_err < 0)
		http_pipe_close(p);
}

static uint64_t plain_run(const struct http_req *r)
{
	return r->head.framing == HTTP_LENGTH ? r->body_left : http_chunked_run(&r->chunked);
}

static bool can_splice_in(const struct http_req *r)
{
	uint64_t run = plain_run(r);

	if (run < SPLICE_MIN || !http_stream_splices(r->st) || http_stream_unread_len(r->st) || r->discarding)
		return false;
	return r->on_splice || (r->to_done && r->to_fd >= 0 && !r->to_copy && run <= r->to_max - r->to_got);
}

static void passed(struct http_req *r, uint64_t n)
{
	r->moved = true;
	if (r->head.framing == HTTP_LENGTH)
		r->body_left -= n;
	else
		http_chunked_skip(&r->chunked, n);
}

/* One pipe full from the socket past us. As http_conn_read: > 0, 0 = end, -EAGAIN, other. */
static ssize_t splice_in(struct http_req *r)
{
	struct http_pipe *p = &r->srv->pipe;
	uint64_t run = plain_run(r);
	size_t ask = run < PIPE_SIZE ? (size_t)run : PIPE_SIZE;

	if (r->on_splice) {
		ssize_t n = r->on_splice(r->body_ctx, r, ask);

		if (n == 0)
			return http_conn_read(r);
		if (n > 0)
			passed(r, (uint64_t)n);
		else if (n == -EAGAIN)
			r->may_read = false;
		return n == -ENODATA ? 0 : n;
	}
	if (p->fd[0] < 0) {
		if (http_pipe_open(p) < 0) {
			r->to_copy = true;
			return http_conn_read(r);
		}
		(void)fcntl(p->fd[0], F_SETPIPE_SZ, PIPE_SIZE);
	}
	ssize_t n = http_pipe_fill(p, http_stream_fd(r->st), ask);

	if (n == -EINVAL) {
		r->to_copy = true;
		return http_conn_read(r);
	}
	if (n <= 0) {
		if (n == -EAGAIN)
			r->may_read = false;
		return n;
	}
	passed(r, (uint64_t)n);
	while (p->len && r->to_err == 0) {
		ssize_t w = http_pipe_drain(p, r->to_fd);

		if (w > 0)
			r->to_got += (uint64_t)w;
		else
			to_unpipe(r, p, (int)w);
	}
	return n;
}

/* ---- running ---- */

static void deliver(struct http_req *c, const char *p, size_t n)
{
	if (c->discarding) {
		c->discarded += n;
		if (c->discarded > DISCARD_MAX)
			c->close_after = true;
	} else if (n && c->on_data) {
		c->on_data(c->body_ctx, c, p, n);
	}
}

/* Hands out what lies in the buffer. 0, or negative when it isn't HTTP. */
static int take_buffered(struct http_req *c)
{
	const char *p = c->in + c->in_off, *data = p;
	size_t n = c->in_len, len;

	if (c->head.framing == HTTP_LENGTH) {
		len = n < c->body_left ? n : (size_t)c->body_left;
		n = len;
		c->body_left -= len;
		c->body_done = c->body_left == 0;
	} else {
		ssize_t used = http_chunked_next(&c->chunked, p, n, &data, &len);

		if (used < 0)
			return (int)used;
		n = (size_t)used;
		c->body_done = http_chunked_done(&c->chunked);
	}
	c->in_off += (uint32_t)n;
	c->in_len -= (uint32_t)n;
	deliver(c, data, len);
	return 0;
}

static int bad_body(struct http_req *c)
{
	static const char answer[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

	if (!c->replied && !c->out.len)
		(void)http_stream_write(c->st, answer, sizeof answer - 1);
	return -1;
}

static bool reading(const struct http_req *c)
{
	return c->body_wanted && !c->paused && !c->failed && !(c->discarding && c->close_after);
}

static int end_of_body(struct http_req *c)
{
	void (*end)(void *ctx, struct http_req *r) = c->on_body_end;

	c->body_wanted = false;
	c->on_body_end = NULL;
	if (end && !c->discarding)
		end(c->body_ctx, c);
	return 1;
}

int http_body_run(struct http_req *c)
{
	size_t budget = TURN_BUDGET;

	if (!reading(c))
		return c->discarding && c->close_after;
	if (c->to_done && c->to_err < 0) {
		to_finish(c);
		return 1;
	}
	if (c->continue_due && !c->body_done)
		http_send_continue(c);
	c->continue_due = false;
	while (reading(c) && !c->body_done) {
		if (!c->in_len) {
			if (!c->may_read)
				return 0;
			bool past = can_splice_in(c);
			ssize_t n = past ? splice_in(c) : http_conn_read(c);

			if (n == -EAGAIN)
				return 0;
			if (n <= 0)
				return -1;
			if (past && !c->in_len) {
				c->body_done = c->head.framing == HTTP_LENGTH && c->body_left == 0;
				if (c->to_err < 0)
					to_finish(c);
			}
			if ((size_t)n >= budget) {
				loop_defer(c->srv->loop, &c->job);
				return 0;
			}
			budget -= (size_t)n;
		} else if (take_buffered(c) < 0) {
			return bad_body(c);
		}
	}
	if (c->failed)
		return -1;
	if (reading(c) && c->body_done)
		return end_of_body(c);
	return 1;
}
