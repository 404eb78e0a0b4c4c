/* A host whose wall clock is set neither ends nor prolongs a computer. The clocks are ours: clock_gettime() of this program goes before
 * libc's, and the host's isn't touched. */
#include "machine/machine_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"
#include "tap.h"

#define HOUR (3600 * INT64_C(1000))
static int64_t wall_off, boot_off;       /* ms */
static unsigned ended;
static struct err e;

int clock_gettime(clockid_t id, struct timespec *t)
{
	long r = syscall(SYS_clock_gettime, id, t);
	int64_t off = id == CLOCK_REALTIME ? wall_off : id == CLOCK_BOOTTIME ? boot_off : 0, ns = t->tv_nsec + off % 1000 * 1000000;

	t->tv_sec += off / 1000 + (ns < 0 ? -1 : ns / 1000000000);
	t->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
	return (int)r;
}

/* life.c isn't linked: what ends a computer is this. */
void machine_end(struct computer *c, const char *why, const char *why_text, const char *by, struct machine_wait *w)
{
	ended += str_eq(why, "timeout");
}

static struct machines ms = { .clock.fd = -1 };
static struct computer c = { .ms = &ms, .told = true, .state = MS_RUNNING };

static int64_t stored(void)
{
	struct store_sandbox row;

	return store_get(ms.o.store, c.row.id, &row, &e) == 1 ? row.ends : -1;
}

/* Turns of the loop until something has ended, or 40 ms have passed. */
static unsigned turns(void)
{
	int64_t until = clock_mono_ms() + 40;

	ended = 0;
	while (!ended && clock_mono_ms() < until)
		loop_turn(ms.o.loop, 5);
	return ended;
}

static void begin(int64_t left)
{
	wall_off = boot_off = 0;
	ok(machine_set_ends(&c, clock_wall_ms() + left, &e) == 0 && stored() == c.row.ends, "ends in %lld ms", (long long)left);
}

static int near(int64_t a, int64_t b)
{
	return llabs(a - b) < 500;
}

static void test_steps(void)
{
	int64_t ends;

	begin(HOUR);
	ends = c.row.ends;
	wall_off = 1000 * HOUR;
	ok(turns() == 0 && !lifetime_over(&c), "the clock goes on by weeks: it goes on too");
	lifetime_clock_set(&ms);
	ok(near(c.row.ends, ends + wall_off) && stored() == c.row.ends, "its end is shown and stored by the new clock");
	wall_off = -1000 * HOUR;
	lifetime_clock_set(&ms);
	ok(near(c.row.ends, ends + wall_off) && stored() == c.row.ends && turns() == 0, "the clock goes back by weeks: so does the end");
	boot_off = HOUR + 1000;
	ok(lifetime_over(&c), "its time is over all the same when it has passed");
	lifetime_arm(&c);
	ok(turns() == 1, "and then it ends");

	begin(20);
	wall_off = -1000 * HOUR;
	ok(turns() == 1, "a timer that runs ends it in time, on a clock that went back");

	begin(HOUR);
	ends = c.row.ends;
	wall_off = 400;
	lifetime_clock_set(&ms);
	ok(c.row.ends == ends && stored() == ends, "a small correction is written nowhere");
	begin(HOUR);
	boot_off = wall_off = HOUR + 1;          /* both: the host slept */
	lifetime_clock_set(&ms);
	ok(turns() == 1, "a host that wakes up ends what is over by then");
}

static void test_next_run(void)
{
	int64_t ends;

	begin(HOUR);
	wall_off = 5 * HOUR;
	lifetime_clock_set(&ms);
	ends = stored();
	lifetime_set(&c, ends);
	ok(near(c.due, clock_boot_ms() + HOUR), "the next run reads the moved end: an hour is left");
	lifetime_set(&c, 5);
	ok(lifetime_over(&c) && c.due > 0, "one that ended before the host's start is over, not without end");
	lifetime_set(&c, 0);
	ok(!lifetime_over(&c) && c.due == 0, "one without end has none");
	lifetime_clock_set(&ms);
	ok(c.row.ends == 0, "nor gets one by the clock");
	lifetime_arm(&c);
	ok(c.deadline.pos == 0, "nor a timer");
}

static void test_watch(void)
{
	ok(lifetime_watch(&ms, &e) == 0, "the kernel is asked to tell");
	ok(turns() == 0, "and says nothing while nobody sets the clock");
	lifetime_unwatch(&ms);
	lifetime_unwatch(&ms);
	ok(ms.clock.fd < 0, "no more");
}

int main(void)
{
	char dir[] = "/tmp/bureau-lifetime-XXXXXX";

	if (!mkdtemp(dir) || loop_create(&ms.o.loop, &e) < 0 || store_open(dir, &ms.o.store, &e) < 0)
		return 1;
	list_init(&ms.all);
	list_append(&ms.all, &c.node);
	str_copy(c.row.id, sizeof c.row.id, "i0123456789");
	str_copy(c.row.state, sizeof c.row.state, "running");
	str_copy(c.row.template, sizeof c.row.template, "host");
	c.row.slot = 1;
	c.row.started = clock_wall_ms();
	ok(store_put(ms.o.store, &c.row, &e) == 0, "a computer");
	test_steps();
	test_next_run();
	test_watch();
	loop_disarm(ms.o.loop, &c.deadline);
	loop_free(ms.o.loop);
	store_close(ms.o.store);
	fd_remove_tree(AT_FDCWD, dir, &e);
	return done_testing();
}
