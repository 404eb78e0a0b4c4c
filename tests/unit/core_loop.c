#include "core/loop.h"
#include "core/clock.h"
#include "core/fd.h"
#include "tap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

static struct loop *loop;
static struct err e;

/* ---- sources ---- */

struct end { struct source s; int fd, peer, calls; uint32_t got; struct end *kills; };

static void end_ready(struct source *s, uint32_t events)
{
	struct end *x = container_of(s, struct end, s);

	x->calls++;
	x->got = events;
	if (x->kills) {
		loop_remove(loop, &x->kills->s);
		/* poison: a later touch of it shows */
		memset(&x->kills->s, 0, sizeof x->kills->s);
	}
}

static void end_open(struct end *x, const char *name)
{
	int sv[2];

	memset(x, 0, sizeof *x);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv) < 0)
		abort();
	x->fd = sv[0];
	x->peer = sv[1];
	x->s = (struct source){ .fd = sv[0], .name = name, .ready = end_ready };
}

static void end_close(struct end *x)
{
	loop_remove(loop, &x->s);
	close(x->fd);
	if (x->peer >= 0)
		close(x->peer);
}

static void test_sources(void)
{
	struct end a;
	char c;

	end_open(&a, "a");
	ok(loop_mod(loop, &a.s, EPOLLIN) == -ENOENT, "mod of a stranger is refused");
	loop_remove(loop, &a.s);
	ok(loop_add(loop, &a.s, EPOLLIN, &e) == 0 && a.s.events == EPOLLIN, "add");
	ok(loop_add(loop, &a.s, EPOLLIN, &e) == -EEXIST, "adding twice is refused");
	loop_turn(loop, 0);
	ok(a.calls == 0, "nothing there, nothing called");
	ok(write(a.peer, "x", 1) == 1, "a byte arrives");
	loop_turn(loop, 1000);
	loop_turn(loop, 1000);
	ok(a.calls == 2 && a.got == EPOLLIN, "level-triggered: told until it is read");
	ok(loop_mod(loop, &a.s, 0) == 0 && a.s.events != 0, "silent, but still registered");
	loop_turn(loop, 0);
	ok(a.calls == 2, "silent means silent");
	close(a.peer);
	a.peer = -1;
	for (int i = 0; i < 5; i++)
		loop_turn(loop, 0);
	ok(a.calls == 2, "even when the peer hangs up");
	int64_t t = clock_mono_ms();
	loop_turn(loop, 30);
	loop_turn(loop, 30);
	ok(clock_mono_ms() - t >= 25, "and the hang-up doesn't spin the loop");
	ok(loop_mod(loop, &a.s, EPOLLIN) == 0, "awake again");
	loop_turn(loop, 1000);
	ok(a.calls == 3 && (a.got & EPOLLHUP) && (a.got & EPOLLIN), "it learns of both the byte and the hang-up");
	ok(read(a.fd, &c, 1) == 1, "the byte is there");
	end_close(&a);
	ok(a.s.events == 0, "removed");
	loop_remove(loop, &a.s);
	struct source bad = { .fd = 9999, .name = "nothing", .ready = end_ready };
	ok(loop_add(loop, &bad, EPOLLIN, &e) == -EBADF && bad.events == 0, "a bad descriptor is an error");
	is_str(e.msg, "watch nothing: Bad file descriptor", "that names the source");
}

/* Whichever of the two is dispatched first removes the other, which must not be called. */
static void test_remove_in_batch(void)
{
	struct end a, b;

	end_open(&a, "a");
	end_open(&b, "b");
	a.kills = &b;
	b.kills = &a;
	loop_add(loop, &a.s, EPOLLIN, &e);
	loop_add(loop, &b.s, EPOLLIN, &e);
	ok(write(a.peer, "x", 1) == 1 && write(b.peer, "x", 1) == 1, "two are ready in one batch");
	loop_turn(loop, 1000);
	ok(a.calls + b.calls == 1, "the removed one is not called");
	end_close(&a);
	end_close(&b);
	end_open(&a, "self");
	a.kills = &a;
	loop_add(loop, &a.s, EPOLLIN, &e);
	ok(write(a.peer, "x", 1) == 1, "a source may");
	loop_turn(loop, 1000);
	loop_turn(loop, 0);
	ok(a.calls == 1, "remove itself");
	end_close(&a);
}

static struct end other;

static void silence_other(struct source *s, uint32_t events)
{
	struct end *x = container_of(s, struct end, s);

	x->calls++;
	loop_mod(loop, &other.s, EPOLLOUT);
}

/* b wants input until a, dispatched before it, changes its mind. */
static void test_mod_in_batch(void)
{
	struct end a;

	end_open(&a, "a");
	end_open(&other, "other");
	a.s.ready = silence_other;
	int fill[64] = { 0 };
	while (write(other.fd, fill, sizeof fill) > 0)
		;
	loop_add(loop, &a.s, EPOLLIN, &e);
	loop_add(loop, &other.s, EPOLLIN, &e);
	ok(write(a.peer, "x", 1) == 1 && write(other.peer, "x", 1) == 1, "both readable, a first");
	loop_turn(loop, 1000);
	ok(a.calls == 1 && other.calls == 0, "an event no longer wanted isn't delivered");
	end_close(&a);
	end_close(&other);
}

/* ---- timers ---- */

struct tick { struct timer t; int id; struct tick *disarms; int again; };
static int order[4096], order_n;

static void tick_fire(struct timer *t)
{
	struct tick *x = container_of(t, struct tick, t);

	if (order_n < 4096)
		order[order_n++] = x->id;
	if (x->disarms)
		loop_disarm(loop, &x->disarms->t);
	if (x->again-- > 0)
		loop_arm(loop, t, 0);
}

static void run_ms(int ms)
{
	int64_t end = clock_mono_ms() + ms;

	while (clock_mono_ms() < end)
		loop_turn(loop, (int)(end - clock_mono_ms()) > 0 ? (int)(end - clock_mono_ms()) : 0);
}

static void test_timer_order(void)
{
	enum { N = 1000 };
	static struct tick t[N];
	int sorted = 1, left = 0;
	unsigned seed = 3;

	memset(t, 0, sizeof t);
	order_n = 0;
	for (int i = 0; i < N; i++) {
		t[i].t.fire = tick_fire;
		seed = seed * 1103515245 + 12345;
		t[i].id = (int)(seed >> 16 & 63);
		loop_arm(loop, &t[i].t, t[i].id);
	}
	/* every third is disarmed, every fifth re-armed for another time */
	for (int i = 0; i < N; i++) {
		if (i % 5 == 0) {
			t[i].id = 63 - t[i].id;
			loop_arm(loop, &t[i].t, t[i].id);
		}
		if (i % 3 == 0)
			loop_disarm(loop, &t[i].t);
		else
			left++;
	}
	int64_t dues[N];
	int64_t last = 0;
	for (int i = 0; i < N; i++)
		dues[i] = t[i].t.due_ms;
	run_ms(120);
	ok(order_n == left, "%d of %d timers fired", order_n, left);
	for (int i = 0; i < N; i++)
		sorted &= t[i].t.pos == 0;
	ok(sorted, "none is armed any more");
	sorted = 1;
	for (int i = 0; i < order_n; i++) {
		/* ids are delays; arming took a few ms, so allow their order to slip by that much and no more */
		sorted &= order[i] + 20 >= (int)last;
		if (order[i] > last)
			last = order[i];
	}
	ok(sorted && dues[0] > 0, "in the order of their times");
}

static void test_timer_rules(void)
{
	struct tick a = { .t.fire = tick_fire, .id = 1 }, b = { .t.fire = tick_fire, .id = 2 }, c = { .t.fire = tick_fire, .id = 3 };

	order_n = 0;
	loop_arm(loop, &a.t, 0);
	loop_arm(loop, &b.t, 0);
	loop_arm(loop, &c.t, 0);
	loop_turn(loop, 1000);
	ok(order_n == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3, "equal times fire in the order they were armed");
	order_n = 0;
	a.disarms = &b;
	loop_arm(loop, &a.t, 0);
	loop_arm(loop, &b.t, 0);
	loop_turn(loop, 1000);
	loop_turn(loop, 0);
	ok(order_n == 1, "a timer may disarm one that is due in the same turn");
	order_n = 0;
	a.disarms = NULL;
	a.again = 3;
	loop_arm(loop, &a.t, 0);
	loop_turn(loop, 1000);
	ok(order_n == 1, "re-armed with 0 it waits for the next turn");
	for (int i = 0; i < 5; i++)
		loop_turn(loop, 0);
	ok(order_n == 4, "and fires there");
	loop_arm(loop, &a.t, 60000);
	ok(a.t.pos != 0, "armed far away");
	loop_arm(loop, &a.t, -5);
	order_n = 0;
	a.again = 0;
	loop_turn(loop, 1000);
	ok(order_n == 1 && a.t.pos == 0, "a delay below 0 is 0");
	loop_arm(loop, &a.t, INT64_MAX);
	int64_t t0 = clock_mono_ms();
	loop_turn(loop, 20);
	ok(clock_mono_ms() - t0 < 1000 && a.t.pos, "the largest delay doesn't overflow");
	loop_disarm(loop, &a.t);
	loop_disarm(loop, &a.t);
	ok(a.t.pos == 0, "disarming twice is fine");
	t0 = clock_mono_ms();
	loop_arm(loop, &a.t, 20);
	while (a.t.pos)
		loop_turn(loop, -1);
	ok(clock_mono_ms() - t0 >= 20, "never early");
	ok(loop_now(loop) >= t0 + 20, "loop_now moves on with the turns");
}

/* ---- jobs ---- */

struct work { struct job j; int runs; int again; struct work *cancels; bool frees; };
static int freed;

static void work_run(struct job *j)
{
	struct work *w = container_of(j, struct work, j);

	w->runs++;
	if (w->again-- > 0)
		loop_defer(loop, j);
	if (w->cancels)
		loop_cancel(loop, &w->cancels->j);
	if (w->frees) {
		free(w);
		freed++;
	}
}

static void test_jobs(void)
{
	struct work a = { .j.run = work_run, .again = 1 }, b = { .j.run = work_run }, c = { .j.run = work_run };
	struct work *d = calloc(1, sizeof *d);

	loop_defer(loop, &a.j);
	loop_defer(loop, &a.j);
	loop_defer(loop, &b.j);
	loop_turn(loop, -1);
	ok(a.runs == 1 && b.runs == 1, "queued twice runs once, and a turn with jobs doesn't wait");
	loop_turn(loop, -1);
	ok(a.runs == 2, "queued by itself: next turn");
	a.cancels = &b;
	loop_defer(loop, &a.j);
	loop_defer(loop, &b.j);
	loop_defer(loop, &c.j);
	loop_turn(loop, 0);
	ok(a.runs == 3 && b.runs == 1 && c.runs == 1, "a job may cancel one of the same turn");
	loop_defer(loop, &b.j);
	loop_defer(loop, &c.j);
	loop_cancel(loop, &c.j);
	loop_defer(loop, &c.j);
	loop_cancel(loop, &b.j);
	loop_cancel(loop, &b.j);
	loop_turn(loop, 0);
	ok(b.runs == 1 && c.runs == 2, "cancel takes out the right one, wherever it is");
	d->j.run = work_run;
	d->frees = true;
	loop_defer(loop, &d->j);
	loop_turn(loop, 0);
	ok(freed == 1, "a job may free its owner");
	ok(!a.j.queued && !b.j.queued && !c.j.queued, "nothing is left queued");
}

/* ---- run, quit, signals ---- */

static void quit_fire(struct timer *t)
{
	struct work *d = calloc(1, sizeof *d);

	d->j.run = work_run;
	d->frees = true;
	loop_defer(loop, &d->j);
	loop_quit(loop, 42);
}

static int signals[8], signals_n;

static void on_signal(void *ctx, int signo)
{
	if (signals_n < 8)
		signals[signals_n++] = signo;
	if (ctx != &signals_n)
		abort();
}

static void test_run(void)
{
	struct timer t = { .fire = quit_fire };
	int want[] = { SIGUSR1, SIGTERM };

	freed = 0;
	loop_arm(loop, &t, 1);
	ok(loop_run(loop) == 42, "run returns what quit said");
	ok(freed == 1, "and jobs deferred on the way out have run");
	ok(loop_signals(loop, want, 2, on_signal, &signals_n, &e) == 0, "signals as events");
	raise(SIGTERM);
	raise(SIGUSR1);
	loop_turn(loop, 1000);
	ok(signals_n == 2 && signals[0] + signals[1] == SIGUSR1 + SIGTERM, "both arrive");
	ok(loop_signals(loop, want, 2, on_signal, NULL, &e) == -EEXIST, "only one taker");
}

static void test_many(void)
{
	enum { N = 300 };
	static struct end x[N];
	int all = 1;

	for (int i = 0; i < N; i++) {
		end_open(&x[i], "many");
		loop_add(loop, &x[i].s, EPOLLIN, &e);
		all &= write(x[i].peer, "x", 1) == 1;
	}
	for (int i = 0; i < 6; i++)
		loop_turn(loop, 0);
	for (int i = 0; i < N; i++)
		all &= x[i].calls > 0;
	ok(all, "more ready sources than fit one batch are all served");
	for (int i = 0; i < N; i++)
		end_close(&x[i]);
}

int main(void)
{
	fd_raise_limit();
	if (loop_create(&loop, &e) < 0)
		return 1;
	test_sources();
	test_remove_in_batch();
	test_mod_in_batch();
	test_timer_order();
	test_timer_rules();
	test_jobs();
	test_run();
	test_many();
	loop_free(loop);
	loop_free(NULL);
	return done_testing();
}
