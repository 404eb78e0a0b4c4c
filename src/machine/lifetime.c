/* lifetime -- when a computer ends by itself.
 *
 * Theory of operation. What is stored and shown is a time of the wall clock (row.ends), which a person or NTP may set. A lifetime is a span,
 * so it's measured on CLOCK_BOOTTIME, which nobody sets and which goes on while the host sleeps: `due`, made from row.ends once, when that
 * is given or read from the store. So the wall clock counts only from one run of the daemon to the next. When it's set while we run,
 * the kernel tells (a timer that is cancelled by that), and row.ends follows: what is shown is again when it will really end,
 * and the next run starts from the right time. The guest is told `due`: its clock is the same one. */
#include "machine/machine_priv.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"

#define LOOK_MS (3600 * 1000)        /* timers don't count the host's sleep; after it, too, the clock is set and we are told */
#define STEP_MS 1000                 /* less isn't worth a write */

void lifetime_set(struct computer *c, int64_t ends)
{
	c->row.ends = ends;
	c->due = ends ? clock_boot_ms() + (ends - clock_wall_ms()) : 0;
	if (ends && c->due < 1)      /* before the host's start: over, but 0 is never */
		c->due = 1;
}

bool lifetime_over(const struct computer *c)
{
	return c->due && c->due <= clock_boot_ms();
}

static void on_deadline(struct timer *t)
{
	struct computer *c = container_of(t, struct computer, deadline);

	if (lifetime_over(c))
		machine_end(c, "timeout", "its time was over", "server", NULL);
	else
		lifetime_arm(c);
}

void lifetime_arm(struct computer *c)
{
	struct loop *l = c->ms->o.loop;
	int64_t left = c->due - clock_boot_ms();

	if (!c->due) {
		loop_disarm(l, &c->deadline);
		return;
	}
	c->deadline.fire = on_deadline;
	loop_arm(l, &c->deadline, left < 0 ? 0 : left > LOOK_MS ? LOOK_MS : left);
}

static void on_told(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
}

void lifetime_tell(struct computer *c)
{
	struct err e;

	guest_cancel(&c->gc_deadline);
	c->gc_deadline.on = on_told;
	if (c->guest)
		guest_deadline(c->guest, &c->gc_deadline, c->due, &e);
}

int machine_set_ends(struct computer *c, int64_t ends, struct err *e)
{
	int r = store_set_ends(c->ms->o.store, c->row.id, ends, e);

	if (r < 0)
		return r;
	lifetime_set(c, ends);
	if (c->state != MS_CREATING)
		lifetime_arm(c);
	lifetime_tell(c);
	return 0;
}

/* ---- the wall clock is set ---- */

void lifetime_clock_set(struct machines *ms)
{
	int64_t ahead = clock_wall_ms() - clock_boot_ms();
	struct err e;

	list_each(it, &ms->all) {
		struct computer *c = container_of(it, struct computer, node);
		int64_t ends = c->due + ahead, moved = ends - c->row.ends;

		if (!c->due)
			continue;
		if (c->deadline.pos)
			lifetime_arm(c);
		if (moved > -STEP_MS && moved < STEP_MS)
			continue;
		c->row.ends = ends < 1 ? 1 : ends;
		if (c->told && store_set_ends(ms->o.store, c->row.id, c->row.ends, &e) < 0)
			log_warn("%s: %s", c->row.id, e.msg);
	}
}

static void arm_watch(int fd)
{
	const struct itimerspec never = { .it_value.tv_sec = 9000000000 };      /* the year 2255 */

	timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL);
}

static void on_watch(struct source *s, uint32_t events)
{
	struct machines *ms = container_of(s, struct machines, clock);
	uint64_t times;

	if (read(s->fd, &times, sizeof times) < 0 && errno == EAGAIN)
		return;
	arm_watch(s->fd);
	lifetime_clock_set(ms);
}

int lifetime_watch(struct machines *ms, struct err *e)
{
	ms->clock = (struct source){ .name = "clock", .ready = on_watch };
	ms->clock.fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (ms->clock.fd < 0)
		return err_sys(e, "watch the clock");
	arm_watch(ms->clock.fd);
	return loop_add(ms->o.loop, &ms->clock, EPOLLIN, e);
}

void lifetime_unwatch(struct machines *ms)
{
	loop_remove(ms->o.loop, &ms->clock);
	fd_drop(&ms->clock.fd);
}
