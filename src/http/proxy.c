#include "http/proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/str.h"
#include "http/proxy_impl.h"

/* Theory of operation. Two flows that never wait for each other: the request's body from r into `out` and the upstream, and
 * the answer from the upstream into r's reply. Each is held back by what its far side hasn't taken (HOLD bytes): the first by
 * pausing r, the second by not reading the upstream until r has drained.
 *
 * The end. Whatever happens is first noted in `outcome` and closes the upstream; done is called and the proxy freed by the
 * job, so never inside a callback of r or of the stream. When the client's side has to end with it, r is aborted and its on_end
 * brings the job. An upstream that stops reading a body early isn't an error: its answer still counts. */

enum { HOLD = 65536, TURN = 1 << 20, PROXY_HEAD_MAX = 65536 };

void http_proxy_over(struct http_proxy *p, enum http_proxy_result outcome, const char *why)
{
	if (p->over)
		return;
	p->over = true;
	p->outcome = outcome;
	p->why = why;
	loop_disarm(p->loop, &p->timer);
	loop_defer(p->loop, &p->job);
}

static void drop_upstream(struct http_proxy *p, bool reset)
{
	if (reset)
		http_stream_abort(p->up);
	else
		http_stream_free(p->up);
	p->up = NULL;
}

/* It can't go on. Before the answer's first byte the caller may still make one; else the client's connection is cut. */
static void fail(struct http_proxy *p, const char *why)
{
	if (p->over)
		return;
	p->why = why;
	drop_upstream(p, false);
	if (!p->r || !http_replied(p->r)) {
		http_proxy_over(p, p->r ? HTTP_PROXY_FAILED : HTTP_PROXY_CUT, why);
		return;
	}
	http_abort(p->r);       /* on_end follows */
}

/* ---- request body ---- */

static void up_want(struct http_proxy *p)
{
	unsigned want = 0;

	if (!p->up || p->tunnel)
		return;
	if (!p->held && !p->answered)
		want |= HTTP_READABLE;
	if ((p->out.len || p->up_pipe.len) && !p->deaf)
		want |= HTTP_WRITABLE;
	http_stream_want(p->up, want);
}

static void up_flush(struct http_proxy *p)
{
	while (p->out.len && !p->deaf) {
		ssize_t n = http_stream_write(p->up, buf_at(&p->out), p->out.len);

		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			p->deaf = true;         /* it may have answered: reading will tell */
			buf_done(&p->out);
			break;
		}
		buf_consume(&p->out, (size_t)n);
	}
	while (p->up_pipe.len && !p->out.len && !p->deaf) {
		ssize_t n = http_pipe_drain(&p->up_pipe, http_stream_fd(p->up));

		if (n == -EAGAIN)
			break;
		p->deaf = n < 0;
	}
	if (p->deaf)
		http_pipe_close(&p->up_pipe);
	if (!p->out.len)
		buf_done(&p->out);
	if (p->paused && p->r && p->out.len < HOLD / 2 && !p->up_pipe.len) {
		p->paused = false;
		http_req_resume(p->r);
	}
}

static int put_body(struct http_proxy *p, const char *data, size_t n)
{
	if (n == 0)
		return 0;
	if (p->req_chunked)
		buf_printf(&p->out, "%zx\r\n", n);
	buf_add(&p->out, data, n);
	if (p->req_chunked)
		buf_add(&p->out, "\r\n", 2);
	return buf_ok(&p->out) ? 0 : -ENOMEM;
}

static int filter_body(struct http_proxy *p, bool response, const char *data, size_t n, bool end, struct buf *out)
{
	int bad = p->o.body(p->o.ctx, response, data, n, end, out);

	return bad < 0 ? bad : buf_ok(out) ? 0 : -ENOMEM;
}

static void on_req_data(void *ctx, struct http_req *r, const char *data, size_t n)
{
	struct http_proxy *p = ctx;
	AUTO_BUF struct buf b = BUF_INIT(16 << 20);
	int bad;

	if (p->over || p->deaf || !p->up)
		return;
	if (!p->o.body && !p->req_chunked && !p->out.len) {     /* straight through */
		ssize_t w = http_stream_write(p->up, data, n);

		p->deaf = w < 0 && w != -EAGAIN;
		if (p->deaf)
			return;
		data += w > 0 ? w : 0;
		n -= w > 0 ? (size_t)w : 0;
	}
	if (p->o.body)
		bad = filter_body(p, false, data, n, false, &b);
	else
		bad = 0;
	if (bad == 0)
		bad = p->o.body ? put_body(p, buf_at(&b), b.len) : put_body(p, data, n);
	if (bad < 0) {
		fail(p, "the request's body was refused");
		return;
	}
	up_flush(p);
	if (p->out.len > HOLD) {
		p->paused = true;
		http_req_pause(r);
	}
	up_want(p);
}

/* A long run of the body, socket to socket. http_body_run never calls it while r is paused, so the pipe is empty. */
static ssize_t on_req_splice(void *ctx, struct http_req *r, size_t max)
{
	struct http_proxy *p = ctx;

	if (p->over || p->deaf || !p->up || p->out.len || !http_stream_splices(p->up) || http_pipe_open(&p->up_pipe) < 0)
		return 0;
	ssize_t n = http_pipe_fill(&p->up_pipe, http_stream_fd(http_req_stream(r)), max);

	if (n <= 0)
		return n < 0 ? n : -ENODATA;
	up_flush(p);
	if (p->up_pipe.len) {
		p->paused = true;
		http_req_pause(r);
	}
	up_want(p);
	return n;
}

static void on_req_end(void *ctx, struct http_req *r)
{
	struct http_proxy *p = ctx;
	AUTO_BUF struct buf b = BUF_INIT(16 << 20);

	if (p->over || p->deaf || !p->up)
		return;
	if (p->o.body && (filter_body(p, false, "", 0, true, &b) < 0 || put_body(p, buf_at(&b), b.len) < 0)) {
		fail(p, "the request's body was refused");
		return;
	}
	if (p->req_chunked)
		buf_adds(&p->out, "0\r\n\r\n");
	p->req_done = true;
	up_flush(p);
	up_want(p);
}

/* ---- answer ---- */

static int begin_answer(struct http_proxy *p)
{
	const struct http_head *h = &p->rd.head;
	const char *cl = http_head_get(h, "content-length");
	int64_t length = -1;
	int bad = http_proxy_set_fields(p, h);

	if (bad < 0) {          /* the caller's own answer has none of these */
		buf_clear(&p->r->set);
		p->r->has_date = p->r->has_server = p->r->has_type = false;
		return bad;
	}
	if (!p->o.body && (h->framing == HTTP_LENGTH || (h->framing == HTTP_NO_BODY && cl)))
		length = (int64_t)h->length;
	else if (h->framing == HTTP_NO_BODY && !http_req_is(p->r, "HEAD"))
		length = 0;
	loop_disarm(p->loop, &p->timer);
	return http_reply_start(p->r, h->status, NULL, length);
}

static int answer_data(struct http_proxy *p, const char *data, size_t n)
{
	AUTO_BUF struct buf b = BUF_INIT(16 << 20);
	ssize_t r;
	int bad;

	if (!p->o.body) {
		r = http_write(p->r, data, n);
	} else {
		bad = filter_body(p, true, data, n, p->rd.done, &b);
		if (bad < 0)
			return bad;
		r = http_write(p->r, buf_at(&b), b.len);
	}
	return r < 0 ? (int)r : 0;
}

static void end_answer(struct http_proxy *p)
{
	if (p->o.body && !p->filtered_end && p->rd.head.framing != HTTP_NO_BODY) {
		p->filtered_end = true;
		if (answer_data(p, "", 0) < 0) {
			fail(p, "the answer's body was refused");
			return;
		}
	}
	p->answered = true;
	http_end(p->r);         /* on_end follows */
	up_want(p);
}

/* Socket to socket when nothing looks inside and much is due. 1 = moved, 0 = not this way, negative as http_stream_read but -ENODATA = end. */
static ssize_t splice_answer(struct http_proxy *p)
{
	if (p->o.body || p->rd.len || p->rd.head.framing != HTTP_LENGTH || p->rd.left < HOLD || !http_can_splice(p->r) ||
	    !http_stream_splices(p->up) || http_stream_unread_len(p->up) || http_pipe_open(&p->pipe) < 0)
		return 0;
	ssize_t n = http_pipe_fill(&p->pipe, http_stream_fd(p->up), p->rd.left < TURN ? (size_t)p->rd.left : TURN);

	if (n <= 0)
		return n < 0 ? n : -ENODATA;
	p->rd.left -= (uint64_t)n;
	p->rd.done = p->rd.left == 0;
	http_write_pipe(p->r, &p->pipe);
	return n;
}

/* Bytes into the reader or past it. > 0, 0 = end of stream, -EAGAIN, other. */
static ssize_t answer_fill(struct http_proxy *p)
{
	ssize_t n = p->rd.have_head ? splice_answer(p) : 0;

	if (n == -EAGAIN)
		p->rd.may_read = false;
	if (n == 0)
		n = http_reader_fill(&p->rd, p->up);
	return n == -ENODATA ? 0 : n;
}

/* One step with what is in the reader. 1 = progress, 0 = needs bytes, -1 = over. */
static int answer_step(struct http_proxy *p)
{
	const char *why = "", *data;
	size_t n;
	int got;

	if (!p->rd.have_head) {
		got = http_reader_head(&p->rd, http_req_method(p->r), &why);
		if (got < 0) {
			fail(p, why);
			return -1;
		}
		if (got == 0)
			return 0;
		if (p->rd.head.status == 101)
			return http_proxy_upgrade(p);
		if (p->rd.head.status < 200) {
			p->rd.have_head = p->rd.done = false;
			return 1;
		}
		if (begin_answer(p) < 0) {
			fail(p, "the answer was refused");
			return -1;
		}
		return 1;
	}
	got = http_reader_body(&p->rd, &data, &n);
	if (got < 0) {
		fail(p, "a malformed body");
		return -1;
	}
	if (got && p->rd.done)
		p->filtered_end = true;
	if (got && (n || p->rd.done) && answer_data(p, data, n) < 0) {
		fail(p, "the answer's body was refused");
		return -1;
	}
	return got;
}

static void up_read(struct http_proxy *p)
{
	for (size_t moved = 0; !p->over && p->up && !p->answered && !p->tunnel;) {
		if (p->rd.have_head && p->rd.done) {
			end_answer(p);
			return;
		}
		if (http_pending(p->r) > HOLD || p->pipe.len) {
			p->held = true;
			return;
		}
		int r = answer_step(p);

		if (r < 0)
			return;
		if (r > 0)
			continue;
		if (!p->rd.may_read || moved > TURN)
			return;
		ssize_t n = answer_fill(p);

		if (n == -EAGAIN)
			return;
		if (n < 0 || (n == 0 && http_reader_eof(&p->rd) < 0)) {
			fail(p, p->rd.have_head ? "the answer was cut" : *http_stream_tls_error(p->up) ? "TLS with the upstream failed" :
				"the upstream closed the connection without an answer");
			return;
		}
		moved += (size_t)n;
	}
}

static void on_up(void *ctx, unsigned what)
{
	struct http_proxy *p = ctx;

	if (p->over || !p->up)
		return;
	if (what & (HTTP_READABLE | HTTP_HANGUP))
		p->rd.may_read = true;
	if (what & (HTTP_WRITABLE | HTTP_HANGUP))
		up_flush(p);
	if (what & HTTP_HANGUP && p->answered)
		p->spoiled = true;
	if (p->rd.may_read && !p->held)
		up_read(p);
	up_want(p);
}

static void on_drain(void *ctx, struct http_req *r)
{
	struct http_proxy *p = ctx;

	if (p->over || !p->up)
		return;
	p->held = false;
	up_read(p);
	up_want(p);
}

/* ---- the ends ---- */

static void on_end(void *ctx, struct http_req *r, enum http_why why)
{
	struct http_proxy *p = ctx;
	bool whole = why == HTTP_DONE && p->answered;

	p->r = NULL;
	if (why == HTTP_TAKEN)
		return;         /* the tunnel reports */
	if (!whole) {
		drop_upstream(p, p->aborted);
		p->outcome = HTTP_PROXY_CUT;    /* also when it had failed: there's nobody to answer any more */
		http_proxy_over(p, HTTP_PROXY_CUT, p->why ? p->why : "the client left");
		return;
	}
	if (p->o.spare && p->up && !p->spoiled && !p->deaf && p->req_done && !p->out.len && !p->up_pipe.len && p->rd.head.keep_alive && !p->rd.len) {
		struct http_stream *up = p->up;

		p->up = NULL;
		http_stream_on(up, NULL, NULL);
		http_stream_want(up, 0);
		p->o.spare(p->o.ctx, up);
	}
	http_proxy_over(p, HTTP_PROXY_OK, "");
}

void http_proxy_tunnel_done(void *ctx, uint64_t a_to_b, uint64_t b_to_a)
{
	struct http_proxy *p = ctx;

	p->tunnel = NULL;
	http_proxy_over(p, HTTP_PROXY_OK, "");
}

static void on_job(struct job *j)
{
	struct http_proxy *p = container_of(j, struct http_proxy, job);

	if (!p->over) {
		if (p->connect)
			http_proxy_upgrade(p);
		return;
	}
	if (p->r && !http_is_gone(p->r))
		http_req_forget(p->r);
	else if (p->r) {        /* the client left meanwhile: its on_end ends this */
		p->over = false;
		return;
	}
	drop_upstream(p, false);
	http_pipe_close(&p->pipe);
	http_pipe_close(&p->up_pipe);
	http_reader_done(&p->rd);
	buf_done(&p->out);
	if (p->o.done)
		p->o.done(p->o.ctx, p->r, p->outcome, p->why);
	free(p);
}

static void on_timer(struct timer *t)
{
	fail(container_of(t, struct http_proxy, timer), "the upstream didn't answer in time");
}

void http_proxy_abort(struct http_proxy *p)
{
	p->aborted = true;
	if (p->over)
		return;
	if (p->tunnel) {
		http_tunnel_stop(p->tunnel, true);
		p->tunnel = NULL;
		http_proxy_over(p, HTTP_PROXY_CUT, "aborted");
		return;
	}
	p->why = "aborted";
	drop_upstream(p, true);
	if (p->r)
		http_abort(p->r);
}

int http_proxy_start(struct http_req *r, const struct http_proxy_opts *o, struct http_proxy **ret, struct err *e)
{
	struct http_proxy *p = calloc(1, sizeof *p);
	struct http_stream *up = o->upstream;
	int bad = p ? 0 : err_set(e, ENOMEM, "forward a request: no memory");

	if (bad == 0 && !up && (bad = http_stream_open(http_req_loop(r), o->fd, &up, e)) == 0)
		http_stream_share(up);
	else if (bad < 0 && !up)
		close(o->fd);
	if (bad == 0) {
		p->r = r;
		p->up = up;
		p->loop = http_req_loop(r);
		p->o = *o;
		p->pipe = p->up_pipe = (struct http_pipe)HTTP_PIPE_NONE;
		p->job.run = on_job;
		p->timer.fire = on_timer;
		p->connect = http_req_is(r, "CONNECT");
		buf_init(&p->out, PROXY_HEAD_MAX + (32 << 20));
		http_reader_reset(&p->rd);
		bad = p->connect ? 0 : http_proxy_request_head(p, e);
	}
	if (bad < 0) {
		http_stream_free(up);
		if (p)
			buf_done(&p->out);
		free(p);
		return bad;
	}
	if (ret)
		*ret = p;
	http_req_on_end(r, on_end, p);
	if (p->connect) {
		loop_defer(p->loop, &p->job);
		return 0;
	}
	http_stream_on(up, on_up, p);
	http_on_drain(r, 0, on_drain, p);
	if (o->head_ms)
		loop_arm(p->loop, &p->timer, o->head_ms);
	p->req_done = http_req_head(r)->framing == HTTP_NO_BODY;
	if (!p->req_done)
		http_req_read(r, on_req_data, on_req_end, p);
	if (!p->req_done && !p->req_chunked && !o->body)
		r->on_splice = on_req_splice;
	up_flush(p);
	up_want(p);
	return 0;
}
