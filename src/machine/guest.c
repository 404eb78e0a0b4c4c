/* guest -- calls in flight on one link.
 *
 * Theory of operation. A request's id is its place in a table and that place's generation, so an answer finds its call at once and an
 * answer to something else is a fault. A cancelled call leaves its place behind as a ghost: what still comes for it is decoded
 * (descriptors closed) and dropped, until its answer or its last event. A ghost of a stream that goes on is detached; its place is
 * free when the guest has confirmed that, since events may be under way until then.
 * Each place has the time at which its answer is overdue: one timer, set for the earliest that was ever due, looks at all of them. A
 * call that is overdue becomes a ghost. A program with a time limit is the guest's to end, and overdue a while after it, unless
 * it's our side that holds its last output back.
 * Callbacks may close the link at any time: after one, look at `closed` before touching anything. */
#include "machine/guest_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/fd.h"
#include "core/loop.h"
#include "wire/sock.h"

#define QUEUE_MAX (4u << 20)
#define ITEMS_MAX 100000             /* entries or programs in one answer... */
#define ITEMS_BYTES (96u << 20)      /* ...and what they may cost together: it all waits in memory for the last of them */
#define ITEM_COST 512                /* in memory, of an item beside its bytes... */
#define STRING_COST 80               /* ...and of each string in a list of its: an empty one is five bytes on the link */

struct place {
	struct guest_call *call;     /* NULL: free, or a ghost */
	uint16_t gen, type;
	bool used, answered, detaching;
	uint32_t detach_of;          /* G_DETACH: the ghost it ends */
	int64_t due;                 /* loop time; 0 = whenever it likes */
};

struct guest {
	struct loop *loop;
	struct link *link;
	void (*gone)(void *ctx, const struct err *e);
	void *ctx;
	struct place *places;
	uint32_t nplaces, free_hint;
	struct job fault_job;
	struct timer patience;
	char fault[160];
	unsigned busy;
	bool closed, lost;
};

uint8_t guest_mem[MSG_MAX];
static struct msg_writer writer;

static struct place *place_of(struct guest *g, uint32_t id)
{
	uint32_t i = id & 0xffff;

	return i < g->nplaces && g->places[i].used && g->places[i].gen == id >> 16 ? &g->places[i] : NULL;
}

static uint32_t id_of(struct guest *g, struct place *p)
{
	return (uint32_t)(p - g->places) | (uint32_t)p->gen << 16;
}

static void release(struct guest *g, struct place *p)
{
	p->used = p->answered = p->detaching = false;
	p->call = NULL;
	p->due = 0;
	p->gen = p->gen == UINT16_MAX ? 1 : (uint16_t)(p->gen + 1);
	if ((uint32_t)(p - g->places) < g->free_hint)
		g->free_hint = (uint32_t)(p - g->places);
}

static struct place *claim(struct guest *g)
{
	for (uint32_t i = g->free_hint; i < g->nplaces; i++)
		if (!g->places[i].used) {
			g->free_hint = i + 1;
			return &g->places[i];
		}
	if (g->nplaces < GUEST_CALLS) {
		uint32_t n = g->nplaces ? g->nplaces * 2 : 8, i = g->nplaces;
		struct place *p = reallocarray(g->places, n, sizeof *p);

		if (!p)
			return NULL;
		memset(p + i, 0, (n - i) * sizeof *p);
		for (uint32_t j = i; j < n; j++)
			p[j].gen = 1;
		g->places = p;
		g->nplaces = n;
		g->free_hint = i + 1;
		return &p[i];
	}
	return NULL;
}

static void guest_destroy(struct guest *g)
{
	loop_cancel(g->loop, &g->fault_job);
	loop_disarm(g->loop, &g->patience);
	free(g->places);
	free(g);
}

/* The call is over: its owner may reuse or free it inside on(). */
static void end_call(struct guest *g, struct place *p, const struct guest_msg *m, const struct err *e)
{
	struct guest_call *k = p->call;

	release(g, p);
	if (k) {
		k->guest = NULL;
		k->on(k, m, e);
	}
}

static void end_all(struct guest *g, const struct err *why)
{
	for (uint32_t i = 0; i < g->nplaces; i++)
		if (g->places[i].used)
			end_call(g, &g->places[i], NULL, why);
}

static void lose(struct guest *g, const struct err *e)
{
	struct err lost;

	if (g->lost || g->closed)
		return;
	g->lost = true;
	loop_disarm(g->loop, &g->patience);
	if (e->code)
		err_set(&lost, EAGAIN, "the computer's PID 1 was lost: %.200s", e->msg);
	else
		err_set(&lost, EAGAIN, "the computer's PID 1 closed its link");
	g->busy++;
	end_all(g, &lost);
	if (!g->closed)
		g->gone(g->ctx, e);
	if (--g->busy == 0 && g->closed)
		guest_destroy(g);
}

static void on_fault(struct job *j)
{
	struct guest *g = container_of(j, struct guest, fault_job);
	struct err e;

	err_set(&e, EPROTO, "it %s", g->fault);
	lose(g, &e);
}

/* Noticed where gone() mustn't be called. */
static void fault_later(struct guest *g, const char *what)
{
	snprintf(g->fault, sizeof g->fault, "%s", what);
	loop_defer(g->loop, &g->fault_job);
}

/* ---- patience ---- */

static void wait_until(struct guest *g, struct place *p, int64_t ms)
{
	/* a program's limit may be any number */
	if (ms > INT32_MAX)
		ms = INT32_MAX;
	p->due = loop_now(g->loop) + ms;
	if (!g->patience.pos || g->patience.due_ms > p->due)
		loop_arm(g->loop, &g->patience, ms);
}

static int64_t grace(const struct guest_call *k)
{
	return k->limit_ms ? k->limit_ms : GUEST_OVER_MS;
}

/* A stream has begun, or goes on: it's overdue when its program's time is. */
static void stream_goes_on(struct guest *g, struct place *p, const struct guest_call *k)
{
	int64_t now = loop_now(g->loop);

	if (p->answered && !p->due)
		return;                              /* no limit */
	if (!p->answered && !k->run_ms)
		p->due = 0;
	else if (!p->answered)
		wait_until(g, p, k->run_ms > INT32_MAX ? INT32_MAX : (int64_t)k->run_ms + grace(k));
	else if (p->due < now + grace(k))
		p->due = now + grace(k);
}

static void detach(struct guest *g, struct place *p);

static void overdue(struct guest *g, struct place *p)
{
	struct guest_call *k = p->call;
	struct err e;

	if (p->answered && (!k->credit || k->run_ms > INT32_MAX)) {
		p->due = loop_now(g->loop) + grace(k);
		return;
	}
	p->due = 0;
	p->call = NULL;
	k->guest = NULL;
	if (p->answered) {
		err_set(&e, ETIMEDOUT, "the computer didn't end the program at its time limit of %llu ms", (unsigned long long)k->run_ms);
		detach(g, p);
	} else {
		err_set(&e, ETIMEDOUT, "the computer didn't answer in %u s", (k->limit_ms ? k->limit_ms : GUEST_ANSWER_MS) / 1000);
	}
	err_hint(&e, "it may be out of memory or processor time, or broken: look at its metrics, or kill it and create another");
	k->on(k, NULL, &e);
}

static void on_patience(struct timer *t)
{
	struct guest *g = container_of(t, struct guest, patience);
	int64_t now = loop_now(g->loop), next = 0;

	g->busy++;
	for (uint32_t i = 0; i < g->nplaces && !g->closed; i++) {       /* a callback may move the places */
		if (g->places[i].call && g->places[i].due && g->places[i].due <= now)
			overdue(g, &g->places[i]);
		if (!g->closed && g->places[i].call && g->places[i].due && (!next || g->places[i].due < next))
			next = g->places[i].due;
	}
	if (next && !g->closed && !g->lost && (!t->pos || t->due_ms > next))
		loop_arm(g->loop, t, next - now);
	if (--g->busy == 0 && g->closed)
		guest_destroy(g);
}

/* ---- what comes ---- */

static const char *count(struct guest_call *k, const struct guest_msg *m)
{
	if (m->what == GW_OUT) {
		if (m->len > k->credit)
			return "sent more output than it may";
		k->credit -= m->len;
	}
	return NULL;
}

/* A list that is too long isn't the guest's fault: a folder may have that many files. Its call ends here, and what still comes is dropped. */
static bool list_ended(struct place *p, const struct guest_msg *m, size_t bytes)
{
	size_t strings = m->what == GW_PROC ? m->prog.nargs : 2 * m->entry.nmeta;
	struct guest_call *k = p->call;
	struct err e;

	if (m->what != GW_ENTRY && m->what != GW_PROC)
		return false;
	k->items++;
	k->item_bytes += (uint32_t)(bytes + ITEM_COST + strings * STRING_COST);
	if (k->items <= ITEMS_MAX && k->item_bytes <= ITEMS_BYTES)
		return false;
	p->call = NULL;
	k->guest = NULL;
	err_set(&e, E2BIG, "the list has more than %d items, or needs more than %u MiB", ITEMS_MAX, ITEMS_BYTES >> 20);
	err_hint(&e, "ask for a part of it, or have a program in the computer list it");
	k->on(k, NULL, &e);
	return true;
}

static void detach(struct guest *g, struct place *p)
{
	struct guest_call dummy = { 0 };
	struct msg_writer *w;
	struct place *d;
	uint32_t target = id_of(g, p);
	struct err e;

	if (p->detaching)
		return;
	w = guest_begin(g, &dummy, G_DETACH, &e);      /* may move the places */
	if (!w)
		return;
	msg_put_u32(w, target);
	d = place_of(g, dummy.id);
	if (guest_commit(g, &dummy, &e) < 0)
		return;
	d->call = NULL;
	d->detach_of = target;
	place_of(g, target)->detaching = true;
}

/* A message for a call that was cancelled. */
static void ghost_message(struct guest *g, struct place *p, const struct guest_msg *m)
{
	struct place *of;

	if (p->type == G_DETACH && m->last) {
		of = place_of(g, p->detach_of);
		release(g, p);
		if (of && of->detaching)
			release(g, of);
		return;
	}
	if (m->last) {
		release(g, p);
		return;
	}
	if (m->what == GW_OK)
		p->answered = true;
	if (guest_is_stream(p->type))
		detach(g, p);
}

static void deliver(struct guest *g, struct place *p, struct guest_msg *m)
{
	struct guest_call *k = p->call;
	struct err e;

	if (guest_is_stream(p->type) && !m->last)
		stream_goes_on(g, p, k);
	if (m->what == GW_OK && !m->last)
		p->answered = k->answered = true;
	if (m->what == GW_END && m->last && (!p->answered || m->code)) {
		err_set(&e, m->code > 0 && m->code < 4096 ? (int)m->code : EIO, "%s", m->name);
		end_call(g, p, NULL, &e);
		return;
	}
	if (m->last)
		end_call(g, p, m, NULL);
	else
		k->on(k, m, NULL);
}

static void on_message(void *ctx, struct msg_reader *r)
{
	struct guest *g = ctx;
	struct place *p = place_of(g, r->id);
	struct guest_msg m;
	size_t bytes = (size_t)(r->end - r->p);
	const char *fault;
	AUTO_FD int fd = -1;

	if (!p) {
		snprintf(g->fault, sizeof g->fault, "answered a request that wasn't made");
		r->bad = true;
		return;
	}
	fault = guest_decode(r, p->type, p->answered, &fd, &m);
	if (!fault && (r->bad || r->p != r->end))
		fault = "sent a message that can't be read";
	if (!fault && p->call)
		fault = count(p->call, &m);
	if (fault) {
		snprintf(g->fault, sizeof g->fault, "%s", fault);
		r->bad = true;
	} else {
		g->busy++;
		if (!p->call)
			ghost_message(g, p, &m);
		else if (!list_ended(p, &m, bytes))
			deliver(g, p, &m);
		if (--g->busy == 0 && g->closed)
			guest_destroy(g);
	}
}

int guest_take_fd(const struct guest_msg *m)
{
	return fd_take(m->fd);
}

/* An answer whose descriptor didn't fit into our table: its call fails, the computer is not to blame. */
static void on_no_fds(void *ctx, uint16_t type, uint32_t id)
{
	struct guest *g = ctx;
	struct place *p = place_of(g, id);
	struct err e;

	if (!p || type != G_OK || guest_is_stream(p->type)) {
		fault_later(g, "sent descriptors that nobody asked for");
		return;
	}
	err_set(&e, EAGAIN, "the server has no descriptor left for this");
	err_hint(&e, "ask again when others have finished, or raise the server's limit of open files");
	g->busy++;
	end_call(g, p, NULL, &e);
	if (--g->busy == 0 && g->closed)
		guest_destroy(g);
}

static void on_gone(void *ctx, const struct err *e)
{
	struct guest *g = ctx;
	struct err mine;

	if (g->fault[0]) {
		err_set(&mine, EPROTO, "it %s", g->fault);
		e = &mine;
	}
	lose(g, e);
}

static const struct link_ops link_ops = { .message = on_message, .gone = on_gone, .no_fds = on_no_fds };

int guest_open(struct loop *l, int fd, void (*gone)(void *ctx, const struct err *e), void *ctx, struct guest **ret, struct err *e)
{
	struct guest *g = calloc(1, sizeof *g);
	int r;

	if (!g) {
		close(fd);
		return err_set(e, ENOMEM, "open a computer's link: no memory");
	}
	g->loop = l;
	g->gone = gone;
	g->ctx = ctx;
	g->fault_job.run = on_fault;
	g->patience.fire = on_patience;
	r = link_create(l, fd, QUEUE_MAX, &link_ops, g, "guest", &g->link, e);
	if (r < 0) {
		free(g);
		return r;
	}
	*ret = g;
	return 0;
}

void guest_close(struct guest *g, const struct err *why)
{
	if (!g || g->closed)
		return;
	g->busy++;
	g->closed = true;
	end_all(g, why);
	link_free(g->link);
	g->link = NULL;
	if (--g->busy == 0)
		guest_destroy(g);
}

/* ---- requests ---- */

struct msg_writer *guest_begin(struct guest *g, struct guest_call *k, uint16_t type, struct err *e)
{
	struct place *p = g && !g->closed && !g->lost ? claim(g) : NULL;

	if (!p) {
		err_set(e, EAGAIN, g && !g->closed && !g->lost ? "too many requests to this computer are open" : "the computer's PID 1 isn't reachable now");
		return NULL;
	}
	p->used = true;
	p->call = k;
	p->type = type;
	k->guest = g;
	k->type = type;
	k->id = id_of(g, p);
	k->answered = false;
	k->items = k->item_bytes = k->owed = 0;
	k->run_ms = 0;
	wait_until(g, p, k->limit_ms ? k->limit_ms : GUEST_ANSWER_MS);
	msg_writer_init(&writer, guest_mem, sizeof guest_mem, type, k->id);
	return &writer;
}

int guest_commit(struct guest *g, struct guest_call *k, struct err *e)
{
	struct place *p = place_of(g, k->id);
	int r = writer.bad ? -E2BIG : link_send(g->link, &writer);

	if (r == 0)
		return 0;
	release(g, p);
	k->guest = NULL;
	if (r == -E2BIG)
		return err_set(e, E2BIG, "the request is longer than %d bytes", MSG_MAX);
	return err_set(e, EAGAIN, "the computer's PID 1 doesn't take requests now");
}

void guest_cancel(struct guest_call *k)
{
	struct guest *g = k->guest;
	struct place *p;

	if (!g)
		return;
	k->guest = NULL;
	p = place_of(g, k->id);
	p->call = NULL;
	if (g->lost || g->closed)
		release(g, p);
	else if (guest_is_stream(p->type) && p->answered)
		detach(g, p);
}

void guest_credit(struct guest_call *k, uint32_t bytes)
{
	struct guest *g = k->guest;

	if (!g || !guest_is_stream(k->type))
		return;
	k->owed += bytes;
	if (k->owed < k->window / 2 || g->lost || g->closed || !k->owed)
		return;
	msg_writer_init(&writer, guest_mem, sizeof guest_mem, G_CREDIT, 0);
	msg_put_u32(&writer, k->id);
	msg_put_u32(&writer, k->owed);
	if (link_send(g->link, &writer) < 0) {
		fault_later(g, "doesn't read its link");
		return;
	}
	k->credit += k->owed;
	k->owed = 0;
}
