/* output -- from a program's pipes or terminal, through its ring, to its readers.
 *
 * A reader has a place (offset) and credit. What is read from the program goes into the ring and from there to each reader
 * whose connection takes it. While somebody reads, nothing he hasn't been sent is overwritten: when the ring is full of it
 * we stop reading and the program waits in write(). With no reader the oldest bytes go. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/proc.h"

#define TURN_READS 4
#define DRAIN_READS 64       /* a child that goes on writing doesn't keep its dead parent from ending */

static uint8_t kind_of(const struct proc *p, const struct source *s)
{
	if (s == &p->err)
		return GUEST_STDERR;
	return p->flags & GS_PTY ? GUEST_PTY : GUEST_STDOUT;
}

/* Nothing from here on may be overwritten. */
static uint64_t needed_from(const struct proc *p)
{
	uint64_t min = UINT64_MAX;

	list_each(it, &p->streams) {
		struct stream *s = container_of(it, struct stream, in_proc);

		if (s->at < min)
			min = s->at;
	}
	return min;
}

void output_close(struct proc *p, struct source *s)
{
	loop_remove(p->g->loop, s);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

static void pump_all(struct proc *p)
{
	list_each(it, &p->streams)
		stream_pump(container_of(it, struct stream, in_proc));
}

/* One read into the ring. Bytes, 0: nothing now or no room, -1: the end (closed). */
static ssize_t take(struct proc *p, struct source *s)
{
	size_t room = ring_room(p->ring, kind_of(p, s), needed_from(p));
	ssize_t n;

	if (room == 0)
		return 0;
	n = read(s->fd, guest_scratch, room < GUEST_CHUNK ? room : GUEST_CHUNK);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (p->drain && errno == EAGAIN) {
			output_close(p, s);
			return -1;
		}
		return 0;
	}
	if (n <= 0) {         /* EIO is how a terminal ends */
		output_close(p, s);
		return -1;
	}
	if (!p->ring)
		p->ring = ring_create();
	if (p->ring)
		ring_append(p->ring, kind_of(p, s), guest_scratch, (size_t)n);
	return n;
}

static void take_some(struct proc *p, struct source *s)
{
	int i, most = p->drain ? DRAIN_READS : TURN_READS;

	for (i = 0; i < most && s->fd >= 0; i++) {
		ssize_t n = take(p, s);

		if (n <= 0)
			return;
		pump_all(p);
		if (n < GUEST_CHUNK && !p->drain)
			return;
	}
	if (p->drain && i == most)
		output_close(p, s);
}

static uint32_t out_events(const struct proc *p, const struct source *s)
{
	uint32_t ev = ring_room(p->ring, kind_of(p, s), needed_from(p)) ? EPOLLIN : 0;

	return (p->flags & GS_PTY) && p->input.len ? ev | EPOLLOUT : ev;
}

void output_flow(struct proc *p)
{
	if (p->out.fd >= 0)
		loop_mod(p->g->loop, &p->out, out_events(p, &p->out));
	if (p->err.fd >= 0)
		loop_mod(p->g->loop, &p->err, out_events(p, &p->err));
}

/* Writes queued input. The end of it closes stdin where that was asked for. */
static void write_input(struct proc *p, int fd)
{
	while (p->input.len) {
		ssize_t n = write(fd, buf_at(&p->input), p->input.len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			buf_done(&p->input);
			if (fd == p->in.fd)
				output_close(p, &p->in);
			return;
		}
		buf_consume(&p->input, (size_t)n);
	}
	buf_done(&p->input);
	if (p->input_close && fd == p->in.fd)
		output_close(p, &p->in);
}

void output_ready(struct source *s, uint32_t events)
{
	struct proc *p = s->name[0] == 'e' ? container_of(s, struct proc, err) : container_of(s, struct proc, out);

	if (events & EPOLLOUT)
		write_input(p, s->fd);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		take_some(p, s);
	output_flow(p);
	proc_check_end(p);
}

void input_ready(struct source *s, uint32_t events)
{
	struct proc *p = container_of(s, struct proc, in);

	if (p->input.len)
		write_input(p, s->fd);
	else if (events & (EPOLLERR | EPOLLHUP))      /* nobody will read it any more */
		output_close(p, s);
	if (s->fd >= 0)
		loop_mod(p->g->loop, s, p->input.len ? EPOLLOUT : 0);
}

int output_watch(struct proc *p, struct err *e)
{
	struct source *all[] = { &p->out, &p->err, &p->in };

	for (size_t i = 0; i < 3; i++) {
		int rc;

		if (all[i]->fd < 0)
			continue;
		rc = loop_add(p->g->loop, all[i], all[i] == &p->in ? 0 : EPOLLIN, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Deferred: a reader made room. While draining nothing may ever become readable again, so it's tried. */
static void resume(struct job *j)
{
	struct proc *p = container_of(j, struct proc, later);

	if (p->drain)
		output_drain(p);
	else
		output_flow(p);
	proc_check_end(p);
}

void output_resume(struct proc *p)
{
	p->later.run = resume;
	loop_defer(p->g->loop, &p->later);
}

void output_drain(struct proc *p)
{
	p->drain = true;
	if (p->out.fd >= 0)
		take_some(p, &p->out);
	if (p->err.fd >= 0)
		take_some(p, &p->err);
	output_flow(p);
}

int input_add(struct proc *p, const void *bytes, size_t n)
{
	struct source *s = p->flags & GS_PTY ? &p->out : &p->in;
	ssize_t done = 0;

	if (s->fd < 0 || p->input_close)
		return -EPIPE;
	if (n > GUEST_STDIN_MAX - p->input.len)
		return -EAGAIN;
	if (!p->input.len) {
		done = write(s->fd, bytes, n);
		if (done < 0 && errno != EAGAIN && errno != EINTR) {
			if (s == &p->in)
				output_close(p, s);
			return -EPIPE;
		}
		if (done < 0)
			done = 0;
	}
	p->input_taken += (uint64_t)done;
	if ((size_t)done == n)
		return 0;
	if (buf_add(&p->input, (const char *)bytes + done, n - (size_t)done) < 0)
		return -EAGAIN;
	p->input_taken += n - (size_t)done;
	if (s == &p->in)
		loop_mod(p->g->loop, s, EPOLLOUT);
	else
		output_flow(p);
	return 0;
}

void input_close(struct proc *p)
{
	p->input_close = true;
	if (!p->input.len && p->in.fd >= 0)
		output_close(p, &p->in);
}

/* ---- readers ---- */

struct stream *stream_add(struct conn *c, struct proc *p, uint32_t id, uint64_t at, uint32_t credit)
{
	struct stream *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->c = c;
	s->p = p;
	s->id = id;
	s->at = at > ring_head(p->ring) ? ring_head(p->ring) : at;
	s->credit = credit;
	list_append(&p->streams, &s->in_proc);
	list_append(&c->streams, &s->in_conn);
	return s;
}

void stream_free(struct stream *s)
{
	struct guest *g = s->p->g;

	list_unlink(&s->in_proc);
	list_unlink(&s->in_conn);
	free(s);
	if (g->ending)
		life_end(g, false);
}

struct stream *stream_find(struct conn *c, uint32_t id)
{
	list_each(it, &c->streams) {
		struct stream *s = container_of(it, struct stream, in_conn);

		if (s->id == id)
			return s;
	}
	return NULL;
}

/* What was overwritten before this reader got it. */
static void send_gap(struct stream *s)
{
	struct msg_writer w;

	conn_begin(&w, G_GAP, s->id);
	msg_put_u64(&w, ring_tail(s->p->ring) - s->at);
	conn_send(s->c, &w);
	s->at = ring_tail(s->p->ring);
}

static void send_exit(struct stream *s)
{
	struct msg_writer w;
	uint32_t how, code;

	proc_how(s->p, &how, &code);
	conn_begin(&w, G_EXIT, s->id);
	msg_put_u32(&w, how);
	msg_put_u32(&w, code);
	msg_put_u8(&w, how == GUEST_SIGNALED && (s->p->status & 0x80) != 0);
	conn_send(s->c, &w);
	stream_free(s);
}

void stream_pump(struct stream *s)
{
	struct ring *r = s->p->ring;

	while (!link_full(s->c->link)) {
		const uint8_t *bytes;
		struct msg_writer w;
		uint8_t kind;
		size_t n;

		if (s->at < ring_tail(r)) {
			send_gap(s);
			continue;
		}
		if (s->at == ring_head(r)) {
			if (s->p->ended)
				send_exit(s);
			return;
		}
		if (!s->credit)
			return;
		n = ring_peek(r, s->at, s->credit < GUEST_CHUNK ? s->credit : GUEST_CHUNK, &bytes, &kind);
		if (n == 0)
			return;
		conn_begin(&w, G_OUT, s->id);
		msg_put_u8(&w, kind);
		msg_put_u64(&w, s->at);
		msg_put_bytes(&w, bytes, n);
		if (conn_send(s->c, &w) < 0)
			return;
		s->at += n;
		if (s->credit != UINT32_MAX)
			s->credit -= (uint32_t)n;
	}
}

void stream_pump_conn(struct conn *c)
{
	list_each(it, &c->streams) {
		struct stream *s = container_of(it, struct stream, in_conn);

		output_resume(s->p);
		stream_pump(s);
	}
}

void output_pump(struct proc *p)
{
	pump_all(p);
}
