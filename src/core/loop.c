#include "core/loop.h"
#include "core/clock.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { LOOP_BATCH = 128, LOOP_LAST_TURNS = 16 };

/* A silent source keeps its place in epoll, edge-triggered: a level-triggered one would report a hang-up at every turn. */
#define SILENT EPOLLET
#define ALWAYS ((uint32_t)(EPOLLERR | EPOLLHUP))

struct slot { int64_t due; uint64_t seq; struct timer *t; };
struct queue { struct job *first, **last; };

struct loop {
	int epfd;
	bool quit, turning;
	int code;
	int64_t now;
	struct epoll_event batch[LOOP_BATCH];
	int batch_at, batch_n;          /* batch[batch_at..batch_n) is still to be dispatched */
	struct slot *heap;              /* by due, then by seq: equal times fire in the order they were armed */
	uint32_t heap_n, heap_cap;
	uint64_t seq;
	struct queue jobs, running;     /* running: this turn's jobs, while they run */
	size_t sources;
	struct source sig;
	void (*on_signal)(void *ctx, int signo);
	void *sig_ctx;
};

static void queue_init(struct queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}

int loop_create(struct loop **ret, struct err *e)
{
	struct loop *l = calloc(1, sizeof *l);

	if (!l)
		return err_set(e, ENOMEM, "make an event loop: no memory");
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epfd < 0) {
		int r = err_sys(e, "make an event loop");

		free(l);
		return r;
	}
	l->sig.fd = -1;
	queue_init(&l->jobs);
	queue_init(&l->running);
	l->now = clock_mono_ms();
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	if (l->sig.events) {
		loop_remove(l, &l->sig);
		close(l->sig.fd);
	}
	assert(l->sources == 0);
	assert(l->heap_n == 0);
	assert(!l->jobs.first);
	close(l->epfd);
	free(l->heap);
	free(l);
}

int64_t loop_now(struct loop *l)
{
	return l->now;
}

/* ---- sources ---- */

int loop_add(struct loop *l, struct source *s, uint32_t events, struct err *e)
{
	struct epoll_event ev = { .events = events ? events : SILENT, .data.ptr = s };

	if (s->events)
		return err_set(e, EEXIST, "watch %s: already watched", s->name ? s->name : "a descriptor");
	if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, s->fd, &ev) < 0)
		return err_sys(e, "watch %s", s->name ? s->name : "a descriptor");
	s->events = ev.events;
	l->sources++;
	return 0;
}

int loop_mod(struct loop *l, struct source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events ? events : SILENT, .data.ptr = s };

	if (!s->events)
		return -ENOENT;
	if (s->events == ev.events)
		return 0;
	if (epoll_ctl(l->epfd, EPOLL_CTL_MOD, s->fd, &ev) < 0)
		return -errno;
	s->events = ev.events;
	return 0;
}

void loop_remove(struct loop *l, struct source *s)
{
	if (!s->events)
		return;
	epoll_ctl(l->epfd, EPOLL_CTL_DEL, s->fd, NULL);
	s->events = 0;
	l->sources--;
	for (int i = l->batch_at; i < l->batch_n; i++)
		if (l->batch[i].data.ptr == s)
			l->batch[i].data.ptr = NULL;
}

static void dispatch(struct loop *l)
{
	while (l->batch_at < l->batch_n) {
		struct epoll_event *ev = &l->batch[l->batch_at++];
		struct source *s = ev->data.ptr;
		uint32_t events;

		if (!s || s->events == SILENT)
			continue;
		/* what an earlier callback of this batch no longer wants isn't reported */
		events = ev->events & (s->events | ALWAYS);
		if (events)
			s->ready(s, events);
	}
	l->batch_at = l->batch_n = 0;
}

/* ---- timers: a binary heap whose slots carry the key, so sifting doesn't touch the owners ---- */

static bool before(const struct slot *a, const struct slot *b)
{
	return a->due != b->due ? a->due < b->due : a->seq < b->seq;
}

static void place(struct loop *l, uint32_t i, struct slot x)
{
	l->heap[i] = x;
	x.t->pos = i + 1;
}

static void sift_up(struct loop *l, uint32_t i, struct slot x)
{
	for (; i > 0 && before(&x, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
		place(l, i, l->heap[(i - 1) / 2]);
	place(l, i, x);
}

static void sift_down(struct loop *l, uint32_t i, struct slot x)
{
	for (;;) {
		uint32_t kid = 2 * i + 1;

		if (kid + 1 < l->heap_n && before(&l->heap[kid + 1], &l->heap[kid]))
			kid++;
		if (kid >= l->heap_n || !before(&l->heap[kid], &x))
			break;
		place(l, i, l->heap[kid]);
		i = kid;
	}
	place(l, i, x);
}

void loop_disarm(struct loop *l, struct timer *t)
{
	uint32_t i = t->pos - 1;
	struct slot last;

	if (!t->pos)
		return;
	t->pos = 0;
	last = l->heap[--l->heap_n];
	if (last.t == t)
		return;
	if (i > 0 && before(&last, &l->heap[(i - 1) / 2]))
		sift_up(l, i, last);
	else
		sift_down(l, i, last);
}

void loop_arm(struct loop *l, struct timer *t, int64_t delay_ms)
{
	int64_t now = clock_mono_ms();

	if (t->pos)
		loop_disarm(l, t);
	if (l->heap_n == l->heap_cap) {
		uint32_t cap = l->heap_cap ? l->heap_cap * 2 : 64;
		struct slot *heap = reallocarray(l->heap, cap, sizeof *heap);

		/* Arming can't fail for its callers. A process that can't get these few bytes is lost anyway. */
		if (!heap)
			abort();
		l->heap = heap;
		l->heap_cap = cap;
	}
	if (delay_ms < 0)
		delay_ms = 0;
	t->due_ms = delay_ms > INT64_MAX - now ? INT64_MAX : now + delay_ms;
	l->heap_n++;
	sift_up(l, l->heap_n - 1, (struct slot){ .due = t->due_ms, .seq = l->seq++, .t = t });
}

/* A timer armed while these fire waits for the next turn, even with delay 0: descriptors get their share. */
static void fire_due(struct loop *l)
{
	uint64_t limit = l->seq;

	while (l->heap_n && l->heap[0].due <= l->now && l->heap[0].seq < limit) {
		struct timer *t = l->heap[0].t;

		loop_disarm(l, t);
		t->fire(t);
	}
}

/* ---- deferred jobs ---- */

void loop_defer(struct loop *l, struct job *j)
{
	if (j->queued)
		return;
	j->queued = true;
	j->next = NULL;
	*l->jobs.last = j;
	l->jobs.last = &j->next;
}

static bool queue_drop(struct queue *q, struct job *j)
{
	for (struct job **at = &q->first; *at; at = &(*at)->next) {
		if (*at != j)
			continue;
		*at = j->next;
		if (!*at)
			q->last = at;
		return true;
	}
	return false;
}

void loop_cancel(struct loop *l, struct job *j)
{
	if (!j->queued)
		return;
	if (!queue_drop(&l->jobs, j))
		queue_drop(&l->running, j);
	j->queued = false;
}

static void run_jobs(struct loop *l)
{
	if (!l->jobs.first)
		return;
	l->running = l->jobs;
	queue_init(&l->jobs);
	while (l->running.first) {
		struct job *j = l->running.first;

		l->running.first = j->next;
		if (!j->next)
			l->running.last = &l->running.first;
		j->queued = false;
		j->run(j);      /* may free j */
	}
	queue_init(&l->running);
}

/* ---- turns ---- */

static int wait_ms(struct loop *l, int max_wait_ms)
{
	int64_t ms;

	if (l->jobs.first)
		return 0;
	if (!l->heap_n)
		return max_wait_ms;
	ms = l->heap[0].due - clock_mono_ms();
	if (ms < 0)
		ms = 0;
	if (max_wait_ms >= 0 && ms > max_wait_ms)
		return max_wait_ms;
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

void loop_turn(struct loop *l, int max_wait_ms)
{
	int n;

	assert(!l->turning);
	l->turning = true;
	n = epoll_wait(l->epfd, l->batch, LOOP_BATCH, wait_ms(l, max_wait_ms));
	l->now = clock_mono_ms();
	l->batch_at = 0;
	l->batch_n = n > 0 ? n : 0;
	dispatch(l);
	fire_due(l);
	run_jobs(l);
	l->turning = false;
}

int loop_run(struct loop *l)
{
	l->quit = false;
	while (!l->quit)
		loop_turn(l, -1);
	/* owners free themselves in jobs: let them, but not for ever */
	for (int i = 0; i < LOOP_LAST_TURNS && l->jobs.first; i++)
		run_jobs(l);
	return l->code;
}

void loop_quit(struct loop *l, int code)
{
	l->code = code;
	l->quit = true;
}

/* ---- signals ---- */

static void signal_ready(struct source *s, uint32_t events)
{
	struct loop *l = container_of(s, struct loop, sig);
	struct signalfd_siginfo si;

	while (read(s->fd, &si, sizeof si) == (ssize_t)sizeof si)
		l->on_signal(l->sig_ctx, (int)si.ssi_signo);
}

int loop_signals(struct loop *l, const int *signals, int n, void (*on_signal)(void *ctx, int signo), void *ctx, struct err *e)
{
	sigset_t set;
	int r;

	if (l->sig.events)
		return err_set(e, EEXIST, "signals are already taken");
	sigemptyset(&set);
	for (int i = 0; i < n; i++)
		sigaddset(&set, signals[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_sys(e, "block signals");
	l->sig.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (l->sig.fd < 0)
		return err_sys(e, "take signals as events");
	l->on_signal = on_signal;
	l->sig_ctx = ctx;
	l->sig.name = "signals";
	l->sig.ready = signal_ready;
	r = loop_add(l, &l->sig, EPOLLIN, e);
	if (r < 0) {
		close(l->sig.fd);
		l->sig.fd = -1;
	}
	return r;
}
