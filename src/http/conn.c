#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/server_impl.h"

/* Theory of operation. See server_impl.h for the phases. conn_run() makes steps while they get somewhere, then conn_settle()
 * says what is waited for: readiness (to the stream) and for how long (a place in one of the server's lists).
 *
 * A request costs one recv and one send when all goes well: after a short read the socket is taken as empty until epoll
 * says otherwise, EPOLLIN stays registered while a handler works and is only dropped when it fires unwanted, EPOLLOUT is asked
 * for only after -EAGAIN.
 *
 * Timeouts. Each kind of wait has one limit, so each kind's list is ordered by itself: joining goes to the tail, the
 * server's one timer looks at the heads. A head's clock starts with its first byte and bytes don't restart it (slow loris);
 * a stalled body's or reply's clock is restarted by bytes; a quiet stream is in no list. */

enum { STEPS = 64 };

char *http_pool_get(struct http_server *s)
{
	return s->npool ? s->pool[--s->npool] : malloc(IN_SIZE);
}

void http_pool_put(struct http_server *s, char *p)
{
	if (!p)
		return;
	if (s->npool < POOL_MAX)
		s->pool[s->npool++] = p;
	else
		free(p);
}

void http_conn_kick(struct http_req *c)
{
	if (!c->running && c->phase != PHASE_DEAD)
		loop_defer(c->srv->loop, &c->job);
}

void http_conn_fail(struct http_req *c, enum http_why why)
{
	if (!c->failed) {
		c->failed = true;
		c->why = why;
	}
	http_conn_kick(c);
}

ssize_t http_conn_read(struct http_req *c)
{
	if (!c->in && !(c->in = http_pool_get(c->srv)))
		return -ENOMEM;
	if (c->in_len == 0) {
		c->in_off = 0;
	} else if (c->in_off) {
		memmove(c->in, c->in + c->in_off, c->in_len);
		c->in_off = 0;
	}
	size_t room = IN_SIZE - c->in_len;
	ssize_t n = http_stream_read(c->st, c->in + c->in_len, room);

	if (n > 0) {
		c->in_len += (uint32_t)n;
		c->moved = true;
		if ((size_t)n < room && http_stream_plain(c->st))
			c->may_read = false;
	} else if (n == -EAGAIN) {
		c->may_read = false;
	}
	return n;
}

/* ---- the end of a connection ---- */

static void conn_release(struct http_req *c)
{
	http_stream_free(c->st);
	c->st = NULL;
	http_pool_put(c->srv, c->in);
	c->in = NULL;
	list_unlink(&c->link);
	list_append(&c->srv->dead, &c->link);
	c->srv->nconns--;
}

static void conn_over(struct http_req *c, enum http_why why)
{
	bool live = c->phase == PHASE_REQ && !c->finished;

	c->phase = PHASE_DEAD;
	c->failed = true;
	conn_release(c);
	if (live && c->on_end)
		c->on_end(c->on_end_ctx, c, why);
	loop_defer(c->srv->loop, &c->job);
}

void http_conn_free(struct http_req *c)
{
	if (c->phase != PHASE_DEAD)
		conn_over(c, HTTP_ABORTED);
	loop_cancel(c->srv->loop, &c->job);
	list_unlink(&c->link);
	http_req_reset(c);
	buf_done(&c->set);
	buf_done(&c->out);
	free(c);
}

static void on_job(struct job *j)
{
	struct http_req *c = container_of(j, struct http_req, job);

	if (c->phase == PHASE_DEAD)
		http_conn_free(c);
	else
		http_conn_run(c);
}

/* ---- steps ---- */

/* Answers what never became a request, then closes. */
static void refuse(struct http_req *c, int status, const char *why)
{
	if (!c->arena) {
		c->small[0] = 0;
		c->head.base = c->small;
		c->head.method = c->head.target = 0;
	}
	c->head.nfields = 0;
	c->head.minor = 1;
	c->head.keep_alive = false;
	c->body_done = true;
	c->method_head = 0;
	c->phase = PHASE_REQ;
	http_req_refuse(c, status, "", why);
}

static int begin_request(struct http_req *c, size_t len)
{
	const char *why = "";
	int bad;

	c->scanned = 0;
	c->finished = false;
	c->served = true;
	bad = http_req_begin(c, len, &why);
	c->in_off += (uint32_t)len;
	c->in_len -= (uint32_t)len;
	if (bad) {
		refuse(c, bad, why);
		return 1;
	}
	c->phase = PHASE_REQ;
	c->srv->o.on_request(c->srv->o.ctx, c);
	if (!c->failed && !c->replied && !c->body_wanted && !c->on_end)
		http_req_refuse(c, 500, c->path, "no answer was made");
	return 1;
}

static int step_head(struct http_req *c)
{
	for (;;) {
		if (c->in_len) {
			ssize_t end = http_head_end(c->in + c->in_off, c->in_len, &c->scanned);

			if (end > 0)
				return begin_request(c, (size_t)end);
			if (end < 0) {
				refuse(c, end == -E2BIG ? 431 : 400, end == -E2BIG ? "the head is too large" : "a byte that no head may hold");
				return 1;
			}
		}
		if (!c->may_read)
			return 0;
		ssize_t n = http_conn_read(c);

		if (n == -EAGAIN)
			return 0;
		if (n <= 0)
			return -1;
	}
}

static void start_linger(struct http_req *c)
{
	/* With nothing unread a plain close can't turn into a reset that eats our reply. */
	if (c->body_done && !c->in_len && !c->may_read) {
		http_conn_fail(c, HTTP_DONE);
		return;
	}
	http_stream_shut(c->st);
	c->in_len = 0;
	c->discarded = 0;
	c->phase = PHASE_LINGER;
}

static int step_linger(struct http_req *c)
{
	while (c->may_read && c->discarded < 64 * DISCARD_MAX) {
		c->in_len = 0;
		ssize_t n = http_conn_read(c);

		if (n == -EAGAIN)
			return 0;
		if (n <= 0)
			return -1;
		c->discarded += (uint64_t)n;
	}
	c->in_len = 0;
	return c->may_read ? -1 : 0;
}

bool http_hopeless(const struct http_req *c)
{
	return !c->body_done && (c->continue_due || (c->head.framing == HTTP_LENGTH && c->body_left > DISCARD_MAX));
}

/* The reply is with the kernel. 1 = went on to something else, 0 = the rest of the body is being thrown away. */
static int finish(struct http_req *c)
{
	if (!c->finished) {
		c->finished = true;
		c->collect_done = NULL;
		c->to_done = NULL;
		c->on_drain = NULL;
		c->body_wanted = false;
		if (c->on_end)
			c->on_end(c->on_end_ctx, c, HTTP_DONE);
		if (c->failed)
			return -1;
	}
	if (!c->head.keep_alive || c->close_after || c->srv->draining || http_hopeless(c)) {
		start_linger(c);
		return 1;
	}
	if (!c->body_done) {
		c->discarding = c->body_wanted = true;
		c->paused = false;
		return 0;
	}
	http_req_reset(c);
	c->phase = PHASE_HEAD;
	return 1;
}

static int step_request(struct http_req *c)
{
	int r = (c->out.len || c->file_left) && !c->blocked ? http_flush_out(c) : 0;

	if (r < 0 && r != -EAGAIN) {
		http_conn_fail(c, HTTP_GONE);
		return -1;
	}
	if (c->on_drain && c->above && http_pending(c) <= c->drain_low) {
		c->above = false;
		c->on_drain(c->drain_ctx, c);
		return 1;
	}
	if (http_sent(c)) {
		r = finish(c);
		if (r != 0)
			return r;
	}
	/* A client that has ended its side while we owe it an answer has left, unless all that's left is to send it. */
	if (c->peer_shut && c->body_done && !c->body_wanted && !c->ended)
		return -1;
	return http_body_run(c);
}

/* ---- what is waited for ---- */

static void set_wait(struct http_req *c, enum http_wait kind)
{
	struct http_server *s = c->srv;

	if (kind == c->kind && !(c->moved && kind == WAIT_STALL))
		return;
	c->kind = kind;
	c->since = loop_now(s->loop);
	list_unlink(&c->link);
	list_append(kind == WAIT_NONE ? &s->quiet : &s->wait[kind], &c->link);
	if (kind != WAIT_NONE && (!s->timer.pos || c->since + s->limit[kind] < s->timer.due_ms))
		loop_arm(s->loop, &s->timer, s->limit[kind]);
}

static void conn_settle(struct http_req *c)
{
	unsigned want = 0;
	enum http_wait kind = WAIT_NONE;

	if (!c->in_len) {
		http_pool_put(c->srv, c->in);
		c->in = NULL;
	}
	if (c->phase == PHASE_HEAD) {
		want = HTTP_READABLE;
		kind = c->in_len || !c->served ? WAIT_HEAD : WAIT_IDLE;
	} else if (c->phase == PHASE_LINGER) {
		want = HTTP_READABLE;
		kind = WAIT_LINGER;
	} else {
		if (c->body_wanted && !c->paused && !c->body_done)
			want = HTTP_READABLE;
		if (c->blocked)
			want |= HTTP_WRITABLE;
		if (want)
			kind = WAIT_STALL;
	}
	set_wait(c, kind);
	c->moved = false;
	want |= c->want & HTTP_READABLE;        /* dropped when it fires unwanted */
	if (want != c->want) {
		c->want = want;
		http_stream_want(c->st, want);
	}
}

void http_conn_run(struct http_req *c)
{
	int r = 1;

	if (c->running || c->phase == PHASE_DEAD)
		return;
	c->running = true;
	for (int i = 0; r > 0 && !c->failed; i++) {
		if (i == STEPS) {               /* others want a turn too */
			loop_defer(c->srv->loop, &c->job);
			break;
		}
		r = c->phase == PHASE_HEAD ? step_head(c) : c->phase == PHASE_REQ ? step_request(c) : step_linger(c);
	}
	c->running = false;
	if (r < 0 && !c->failed)
		http_conn_fail(c, HTTP_GONE);
	if (c->failed)
		conn_over(c, c->why);
	else
		conn_settle(c);
}

static void on_event(void *ctx, unsigned what)
{
	struct http_req *c = ctx;

	if (what & HTTP_READABLE) {
		bool unwanted = c->phase == PHASE_REQ && !(c->body_wanted && !c->paused && !c->body_done);

		c->may_read = true;
		if (unwanted) {
			c->want &= ~(unsigned)HTTP_READABLE;
			http_stream_want(c->st, c->want);
		}
	}
	if (what & HTTP_WRITABLE)
		c->blocked = false;
	if (what & (HTTP_READABLE | HTTP_WRITABLE))
		http_conn_run(c);
	if (c->phase == PHASE_DEAD)
		return;
	if (what & HTTP_HANGUP)
		http_conn_fail(c, HTTP_GONE);
	if (what & HTTP_PEER_SHUT && c->phase == PHASE_REQ)
		c->peer_shut = c->close_after = true;
	if (what & (HTTP_HANGUP | HTTP_PEER_SHUT))
		http_conn_run(c);
}

int http_conn_new(struct http_server *s, struct http_stream *st, const struct sockaddr *sa, socklen_t len, void *tag, struct err *e)
{
	struct http_req *c = calloc(1, sizeof *c);

	if (!c) {
		http_stream_free(st);
		return err_set(e, ENOMEM, "serve a connection: no memory");
	}
	c->srv = s;
	c->st = st;
	c->tag = tag;
	c->job.run = on_job;
	c->kind = WAIT_NONE;
	c->peer.sa.sa_family = AF_UNIX;
	if (sa && len >= sizeof(sa_family_t) && len <= sizeof c->peer)
		memcpy(&c->peer, sa, len);
	buf_init(&c->set, SET_MAX);
	buf_init(&c->out, SIZE_MAX / 2);
	buf_init(&c->collect, 0);
	c->file = -1;
	http_req_reset(c);
	list_init(&c->link);
	list_append(&s->quiet, &c->link);
	s->nconns++;
	c->want = 0;
	http_stream_on(st, on_event, c);
	c->may_read = !http_stream_handshaking(st);
	http_conn_run(c);
	return 0;
}
