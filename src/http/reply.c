#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"
#include "http/server_impl.h"

/* Theory of operation. `out` holds what the socket hasn't taken: a head and small writes gather there and leave in one
 * send at the end of the turn; a whole reply or a large write goes out at once with what was gathered, from the caller's
 * memory, and only what's refused is copied. Behind `out` may come a file (or the proxy's pipe), sent by the kernel.
 * Everything that can fail notes it in the connection and returns; the connection is closed by conn_run. */

/* ---- head ---- */

/* Fields that we write ourselves, from what's really sent */
static bool is_ours(const char *name)
{
	return strcasecmp(name, "content-length") == 0 || strcasecmp(name, "transfer-encoding") == 0;
}

int http_set(struct http_req *r, const char *name, const char *value)
{
	size_t nn = strlen(name), vn = strlen(value), before = r->set.len;

	if (!http_is_token(name, nn) || !http_is_value(value, vn) || is_ours(name))
		return -EINVAL;
	if (r->set.len + nn + vn + 4 > SET_MAX)
		return -ENOSPC;
	if (strcasecmp(name, "connection") == 0 && http_list_has(value, "close")) {
		r->close_after = true;
		return 0;
	}
	r->has_date |= strcasecmp(name, "date") == 0;
	r->has_server |= strcasecmp(name, "server") == 0;
	r->has_type |= strcasecmp(name, "content-type") == 0;
	if (buf_add(&r->set, name, nn) < 0 || buf_add(&r->set, ": ", 2) < 0 || buf_add(&r->set, value, vn) < 0 ||
	    buf_add(&r->set, "\r\n", 2) < 0) {
		r->set.len = before;
		r->set.bad = false;
		return -ENOMEM;
	}
	return 0;
}

int http_setf(struct http_req *r, const char *name, const char *fmt, ...)
{
	AUTO_BUF struct buf b = BUF_INIT(SET_MAX);
	va_list ap;

	va_start(ap, fmt);
	int bad = buf_vprintf(&b, fmt, ap);

	va_end(ap);
	return bad < 0 ? bad : http_set(r, name, buf_at(&b));
}

static const char *date(struct http_server *s)
{
	int64_t now = clock_wall_ms() / 1000;

	if (now != s->date_at) {
		http_date(now, s->date);
		s->date_at = now;
	}
	return s->date;
}

static void put(struct buf *b, const char *name, const char *value)
{
	buf_adds(b, name);
	buf_adds(b, value);
	buf_add(b, "\r\n", 2);
}

/* length: bytes, -1 = not known, -2 = a head without a body after which the connection changes its protocol */
int http_reply_head(struct http_req *c, int status, const char *type, int64_t length)
{
	struct buf *b = &c->out;
	bool bodiless = status < 200 || status == 204 || status == 304;

	if (c->replied || c->failed)
		return c->failed ? -EPIPE : -EINVAL;
	c->replied = true;
	c->no_body = c->method_head || bodiless;
	c->chunked_out = length == -1 && !c->no_body && c->head.minor == 1;
	c->out_left = length >= 0 ? length : -1;
	c->body_wanted &= !c->collect_done;     /* a collected body that is refused isn't read on */
	if ((length == -1 && !c->no_body && !c->chunked_out) || c->srv->draining || (!c->body_wanted && http_hopeless(c)))
		c->close_after = true;
	bool keep = c->head.keep_alive && !c->close_after;
	char line[64];

	snprintf(line, sizeof line, "HTTP/1.1 %03d %s", status % 1000, http_reason(status));
	put(b, line, "");
	if (!c->has_date)
		put(b, "Date: ", date(c->srv));
	if (c->srv->o.server_name && !c->has_server)
		put(b, "Server: ", c->srv->o.server_name);
	if (type && !c->has_type && http_is_value(type, strlen(type)))
		put(b, "Content-Type: ", type);
	buf_add(b, buf_at(&c->set), c->set.len);
	if (length >= 0 && !bodiless) {
		snprintf(line, sizeof line, "%lld", (long long)length);
		put(b, "Content-Length: ", line);
	} else if (c->chunked_out) {
		put(b, "Transfer-Encoding: chunked", "");
	}
	if (length != -2 && (!keep || c->head.minor == 0))
		put(b, "Connection: ", keep ? "keep-alive" : "close");
	buf_add(b, "\r\n", 2);
	if (!buf_ok(b)) {
		http_conn_fail(c, HTTP_GONE);
		return -ENOMEM;
	}
	return 0;
}

void http_send_continue(struct http_req *c)
{
	if (c->replied)
		return;
	buf_adds(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
	int r = c->blocked ? 0 : http_flush_out(c);

	if (r < 0 && r != -EAGAIN)
		http_conn_fail(c, HTTP_GONE);
}

/* ---- sending ---- */

static int sent_some(struct http_req *c, ssize_t r)
{
	if (r == -EAGAIN) {
		c->blocked = true;
		return -EAGAIN;
	}
	if (r <= 0)
		return r < 0 ? (int)r : -EIO;
	c->moved = true;
	return 0;
}

int http_flush_out(struct http_req *c)
{
	uint64_t budget = TURN_BUDGET;

	c->blocked = false;
	while (c->out.len) {
		ssize_t n = http_stream_write(c->st, buf_at(&c->out), c->out.len);
		int r = sent_some(c, n);

		if (r < 0)
			return r;
		buf_consume(&c->out, (size_t)n);
	}
	while (c->file_left) {
		ssize_t n = c->file_is_pipe ? http_pipe_drain(c->pipe, http_stream_fd(c->st))
			: http_stream_sendfile(c->st, c->file, &c->file_off, c->file_left < budget ? (size_t)c->file_left : (size_t)budget);
		int r = sent_some(c, n);

		if (r < 0)
			return r;
		c->file_left -= (uint64_t)n;
		if ((uint64_t)n >= budget && c->file_left) {
			loop_defer(c->srv->loop, &c->job);
			return 0;
		}
		budget -= (uint64_t)n < budget ? (uint64_t)n : budget;
	}
	return 0;
}

bool http_sent(const struct http_req *c)
{
	return c->ended && !c->out.len && !c->file_left;
}

size_t http_pending(const struct http_req *r)
{
	return r->out.len + (size_t)r->file_left;
}

/* Sends what was gathered and v[1..nv) after it; what the socket refuses of v is copied behind. v[0] is filled here. */
static void send_now(struct http_req *c, struct iovec *v, int nv)
{
	ssize_t n = 0;

	v[0] = (struct iovec){ .iov_base = (char *)buf_at(&c->out), .iov_len = c->out.len };
	if (!c->blocked && c->st) {
		n = v[0].iov_len ? http_stream_writev(c->st, v, nv) : http_stream_writev(c->st, v + 1, nv - 1);
		if (n < 0 && n != -EAGAIN) {
			http_conn_fail(c, HTTP_GONE);
			return;
		}
		c->blocked = n == -EAGAIN;
		c->moved |= n > 0;
		n = n > 0 ? n : 0;
	}
	size_t left = (size_t)n, head = v[0].iov_len < left ? v[0].iov_len : left;

	buf_consume(&c->out, head);
	left -= head;
	for (int i = 1; i < nv; i++) {
		size_t skip = v[i].iov_len < left ? v[i].iov_len : left;

		left -= skip;
		if (buf_add(&c->out, (const char *)v[i].iov_base + skip, v[i].iov_len - skip) < 0)
			http_conn_fail(c, HTTP_GONE);
	}
}

void http_reply(struct http_req *r, int status, const char *type, const void *body, size_t n)
{
	if (http_reply_head(r, status, type, (int64_t)n) < 0)
		return;
	struct iovec v[2] = { [1] = { .iov_base = (void *)body, .iov_len = r->no_body ? 0 : n } };

	send_now(r, v, v[1].iov_len ? 2 : 1);
	r->out_left = 0;
	r->ended = true;
	http_conn_kick(r);
}

void http_replyf(struct http_req *r, int status, const char *type, const char *fmt, ...)
{
	AUTO_BUF struct buf b = BUF_INIT(1 << 20);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	http_reply(r, status, type, buf_at(&b), b.len);
}

void http_reply_buf(struct http_req *r, int status, const char *type, struct buf *b)
{
	if (b->len < COALESCE || r->method_head || http_reply_head(r, status, type, (int64_t)b->len) < 0) {
		http_reply(r, status, type, buf_at(b), b->len);
		buf_done(b);
		return;
	}
	struct iovec v[2] = { { (char *)buf_at(&r->out), r->out.len }, { (char *)buf_at(b), r->no_body ? 0 : b->len } };
	ssize_t n = r->blocked ? -EAGAIN : http_stream_writev(r->st, v, 2);

	if (n < 0 && n != -EAGAIN)
		http_conn_fail(r, HTTP_GONE);
	r->blocked = n == -EAGAIN;
	n = n > 0 ? n : 0;
	size_t head = (size_t)n < r->out.len ? (size_t)n : r->out.len;

	buf_consume(&r->out, head);
	if (r->out.len == 0 && !r->no_body) {   /* the head is out: the body's memory becomes ours */
		buf_consume(b, (size_t)n - head);
		buf_done(&r->out);
		r->out = *b;
		r->out.max = SIZE_MAX / 2;
		*b = (struct buf)BUF_INIT(b->max);
	} else if (!r->no_body && buf_add(&r->out, buf_at(b), b->len) < 0) {
		http_conn_fail(r, HTTP_GONE);
	}
	buf_done(b);
	r->out_left = 0;
	r->ended = true;
	http_conn_kick(r);
}

/* ---- streams ---- */

int http_reply_start(struct http_req *r, int status, const char *type, int64_t length)
{
	int bad = http_reply_head(r, status, type, length < 0 ? -1 : length);

	http_conn_kick(r);
	return bad;
}

ssize_t http_write(struct http_req *r, const void *p, size_t n)
{
	size_t pending = http_pending(r);
	char size[24];
	int sn = 0;

	if (r->failed)
		return -EPIPE;
	if (!r->replied || r->ended || (r->out_left >= 0 && !r->no_body && n > (uint64_t)r->out_left))
		return -EINVAL;
	if (r->no_body || n == 0)
		return (ssize_t)pending;
	if (pending && pending + n > r->srv->o.max_pending)
		return -ENOSPC;
	if (r->out_left >= 0)
		r->out_left -= (int64_t)n;
	if (r->chunked_out)
		sn = snprintf(size, sizeof size, "%zx\r\n", n);
	struct iovec v[4] = { [1] = { size, (size_t)sn }, { (void *)p, n }, { (char *)"\r\n", r->chunked_out ? 2 : 0 } };

	if (r->out.len + n <= COALESCE || r->blocked) {
		for (int i = 1; i < 4; i++)
			buf_add(&r->out, v[i].iov_base, v[i].iov_len);
		if (!buf_ok(&r->out))
			http_conn_fail(r, HTTP_GONE);
	} else if (r->chunked_out) {
		send_now(r, v, 4);
	} else {
		v[1] = v[2];
		send_now(r, v, 2);
	}
	r->above |= http_pending(r) > r->drain_low;
	http_conn_kick(r);
	return r->failed ? -EPIPE : (ssize_t)http_pending(r);
}

void http_flush(struct http_req *r)
{
	int bad = r->failed || r->blocked || !r->st ? 0 : http_flush_out(r);

	if (bad < 0 && bad != -EAGAIN)
		http_conn_fail(r, HTTP_GONE);
	http_conn_kick(r);
}

void http_end(struct http_req *r)
{
	if (r->failed || r->ended || !r->replied)
		return;
	if (r->out_left > 0 && !r->no_body) {
		http_abort(r);          /* less than promised: the client must not take it for whole */
		return;
	}
	if (r->chunked_out && buf_adds(&r->out, "0\r\n\r\n") < 0)
		http_conn_fail(r, HTTP_GONE);
	r->ended = true;
	http_conn_kick(r);
}

void http_on_drain(struct http_req *r, size_t low, void (*fn)(void *ctx, struct http_req *r), void *ctx)
{
	r->on_drain = fn;
	r->drain_ctx = ctx;
	r->drain_low = low;
	r->above = http_pending(r) > low;
}

bool http_replied(const struct http_req *r) { return r->replied; }
bool http_is_gone(const struct http_req *r) { return r->failed; }
void http_close_after(struct http_req *r) { r->close_after = true; }

void http_abort(struct http_req *r)
{
	if (r->failed)
		return;
	http_stream_abort(r->st);
	r->st = NULL;
	http_conn_fail(r, HTTP_ABORTED);
}

int http_takeover(struct http_req *r, int status, struct http_stream **ret)
{
	struct http_stream *st = r->st;

	*ret = NULL;
	if (r->failed)
		return -EPIPE;
	if (r->replied || !r->body_done)
		return -EBUSY;
	if (http_reply_head(r, status, NULL, -2) < 0 || http_flush_out(r) < 0 ||
	    http_stream_unread(st, r->in_len ? r->in + r->in_off : "", r->in_len) < 0) {
		http_conn_fail(r, HTTP_GONE);
		return -EPIPE;
	}
	http_stream_on(st, NULL, NULL);
	http_stream_want(st, 0);
	r->st = NULL;
	r->ended = true;
	http_conn_fail(r, HTTP_TAKEN);
	*ret = st;
	return 0;
}

bool http_can_splice(const struct http_req *r)
{
	return r->st && r->replied && !r->chunked_out && !r->no_body && http_stream_splices(r->st) && !r->file_left;
}

void http_write_pipe(struct http_req *r, struct http_pipe *p)
{
	r->pipe = p;
	r->file_is_pipe = true;
	r->file_left = p->len;
	if (r->out_left >= 0)
		r->out_left -= (int64_t)p->len;
	r->above = true;
	http_flush(r);
}

int http_sse_start(struct http_req *r)
{
	http_set(r, "Cache-Control", "no-cache");
	http_set(r, "X-Accel-Buffering", "no");
	int bad = http_reply_start(r, 200, "text/event-stream", -1);

	http_flush(r);
	return bad;
}

ssize_t http_sse(struct http_req *r, const char *event, const char *id, const char *data, size_t n)
{
	AUTO_BUF struct buf b = BUF_INIT(n * 7 + 4096);
	const char *end = data + n;

	if ((event && strpbrk(event, "\r\n")) || (id && strpbrk(id, "\r\n")))
		return -EINVAL;
	if (event)
		buf_printf(&b, "event: %s\n", event);
	if (id)
		buf_printf(&b, "id: %s\n", id);
	for (const char *p = data, *eol; p <= end; p = eol + 1) {
		for (eol = p; eol < end && *eol != '\n' && *eol != '\r';)
			eol++;
		buf_adds(&b, "data: ");
		buf_add(&b, p, (size_t)(eol - p));
		buf_addc(&b, '\n');
		if (eol + 1 < end && eol[0] == '\r' && eol[1] == '\n')
			eol++;
	}
	buf_addc(&b, '\n');
	return buf_ok(&b) ? http_write(r, buf_at(&b), b.len) : -ENOMEM;
}
