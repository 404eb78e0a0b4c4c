/* adopt -- finding computers again: after our own death (rows in the store), the keeper's (its list), a guest's link's.
 *
 * The truth about what runs is the keeper's list. A computer with a row that isn't in it has ended while nobody looked; one in
 * it that nobody was told about (the pool's, or one whose create was never answered) is ended. */
#include "machine/machine_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"
#include "wire/sock.h"

#define LINK_RETRY_MS 20
#define LINK_RETRY_MOST 50           /* times that, at most, between two tries */

/* ---- the guest's link ---- */

static void adopt_watch(struct timer *t);

/* However it fails (nobody listens, or it's let go of again and again): ANSWER_MS after the first time it is over. */
static void link_again(struct computer *c)
{
	int64_t now = loop_now(c->ms->o.loop);

	if (!c->down)
		c->down = now;
	if (now - c->down > ANSWER_MS) {
		machine_end(c, "crash", c->up >= c->down ? "its PID 1 closes its link again and again" : "its PID 1 doesn't answer", "server", NULL);
		return;
	}
	if (c->tries < LINK_RETRY_MOST)
		c->tries++;
	c->watch.fire = adopt_watch;
	loop_arm(c->ms->o.loop, &c->watch, LINK_RETRY_MS * c->tries);
}

static void on_hello(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct computer *c = container_of(k, struct computer, gc);

	if (e || c->state == MS_ENDING)
		return;                  /* gone() comes, or it is over */
	if (!str_eq(m->name, c->row.id)) {
		machine_end(c, "failed", "its PID 1 says it is another computer", "server", NULL);
		return;
	}
	c->up = loop_now(c->ms->o.loop);
	loop_disarm(c->ms->o.loop, &c->watch);
	lifetime_tell(c);                /* the wall clock may have been set since it was told */
}

static void on_silent(struct timer *t)
{
	struct computer *c = container_of(t, struct computer, watch);

	machine_end(c, "crash", "its PID 1 doesn't answer", "server", NULL);
}

static void adopt_watch(struct timer *t)
{
	struct computer *c = container_of(t, struct computer, watch);
	struct err e;
	int fd;

	if (sock_connect_at(c->ms->run_fd, c->row.id, &fd, &e) < 0) {
		link_again(c);
		return;
	}
	life_link(c, fd);
	c->gc.on = on_hello;
	if (!c->guest || guest_hello(c->guest, &c->gc, &e) < 0) {
		link_again(c);
		return;
	}
	c->watch.fire = on_silent;
	loop_arm(c->ms->o.loop, &c->watch, ANSWER_MS);
}

void adopt_guest_gone(void *ctx, const struct err *e)
{
	struct computer *c = ctx;
	struct guest *g = c->guest;
	char text[240];

	c->guest = NULL;
	guest_close(g, e);
	if (c->state == MS_ENDING || c->ms->stopping)
		return;
	if (c->up && loop_now(c->ms->o.loop) - c->up >= STEADY_MS)
		c->down = c->tries = 0;
	if (e->code == EPROTO) {
		snprintf(text, sizeof text, "its PID 1 broke the protocol: %.180s", e->msg);
		log_warn("%s: %s", c->row.id, text);
		machine_end(c, "failed", text, "server", NULL);
	} else if (!c->told) {
		machine_end(c, "crash", "its PID 1 closed its link", "server", NULL);
	} else {
		link_again(c);
	}
}

/* ---- the keeper's list ---- */

struct sweep { struct keeper_call call; struct machines *ms; uint32_t slot; };

static void on_swept(struct keeper_call *k, struct keeper_answer *a, const struct err *e)
{
	struct sweep *s = container_of(k, struct sweep, call);

	if (e && e->code != ENOENT)
		log_warn("a computer that nobody knows can't be removed: %s", e->msg);
	else
		slot_free(s->ms, s->slot);
	s->ms->sweeps--;
	free(s);
}

static void sweep(struct machines *ms, const char *id, uint32_t slot)
{
	struct sweep *s = calloc(1, sizeof *s);

	if (!s)
		return;
	s->ms = ms;
	s->slot = slot;
	s->call.on = on_swept;
	ms->sweeps++;
	keeper_ask(ms->keeper, &s->call, K_KILL, id);
}

/* Programs that were ended for want of memory before we looked aren't news. */
static void on_stats(struct keeper_call *k, struct keeper_answer *a, const struct err *e)
{
	struct computer *c = container_of(k, struct computer, kc);

	if (!e && a->oom > c->oom_seen)
		c->oom_seen = a->oom;
}

static void adopt_one(struct computer *c, const struct keeper_item *it)
{
	char real[65];

	c->pid = it->pid;
	c->start = it->start;
	str_copy(c->real, sizeof c->real, it->template);
	if (!str_eq(c->real, c->row.template) && template_resolve(c->ms->dir, c->row.template, real, &c->notice, NULL) < 0)
		c->notice = NULL;
	c->kc.on = on_stats;
	keeper_ask(c->ms->keeper, &c->kc, K_STATS, c->row.id);
	if (it->net) {
		c->door_wanted = true;
		life_net(c);
	}
	if (!c->guest) {
		c->tries = 0;
		c->down = 0;
		adopt_watch(&c->watch);
	}
}

/* The keeper may still be sweeping up after it: only its answer to a kill frees id and slot. */
static void lost(struct computer *c)
{
	struct timespec up;
	int64_t boot = clock_wall_ms();

	if (clock_gettime(CLOCK_BOOTTIME, &up) == 0)
		boot -= up.tv_sec * 1000LL;
	if (c->row.started && c->row.started < boot)
		machine_end(c, "host_restart", "the host was restarted", "", NULL);
	else if (lifetime_over(c))
		machine_end(c, "timeout", "its time was over", "", NULL);
	else
		machine_end(c, "crash", "it ended while the server wasn't looking", "", NULL);
}

/* It has a process as far as we know, or should have one by its row. */
static bool should_be_there(const struct computer *c)
{
	return c->state != MS_ENDING && !(c->kc.keeper && c->kc.type == K_CREATE);
}

static void set_ready(struct machines *ms)
{
	if (!ms->ready)
		loop_arm(ms->o.loop, &ms->ready_timer, 0);
}

void adopt_listed(void *ctx, const struct keeper_item *items, size_t n)
{
	struct machines *ms = ctx;

	list_each(it, &ms->all)
		container_of(it, struct computer, node)->seen = false;
	for (size_t i = 0; i < n; i++) {
		struct computer *c = map_get(ms->by_id, items[i].id);

		slot_use(ms, items[i].slot);
		if (!c) {
			sweep(ms, items[i].id, items[i].slot);
			continue;
		}
		c->seen = items[i].pid != 0;
		if (c->seen && should_be_there(c) && !c->pid)
			adopt_one(c, &items[i]);
	}
	for (struct list *it = ms->all.next; it != &ms->all;) {
		struct computer *c = container_of(it, struct computer, node);

		it = it->next;
		if (c->seen || !should_be_there(c))
			continue;
		lost(c);
		it = ms->all.next;       /* whatever its end did to the list */
	}
	ms->heard = true;
	set_ready(ms);
	pool_wake(ms);
}

void adopt_exited(void *ctx, const struct keeper_exit *x)
{
	struct machines *ms = ctx;
	struct computer *c = map_get(ms->by_id, x->id);
	char text[200];

	if (!c || c->state == MS_ENDING)
		return;
	if (x->how == 1 && x->oom > c->oom_seen)
		life_gone(c, "oom", "it used more memory than its limit, and its PID 1 was ended by the kernel");
	else if (lifetime_over(c))
		life_gone(c, "timeout", "its time was over");
	else {
		snprintf(text, sizeof text, "its PID 1 %s %u", x->how == 1 ? "was ended by signal" : "ended with code", x->code);
		life_gone(c, "crash", text);
	}
}

/* ---- rows of the life before ---- */

static bool take_row(void *ctx, const struct store_sandbox *row)
{
	struct machines *ms = ctx;
	struct computer *c;

	if (!str_id(row->id) || row->slot < 1 || row->slot > KEEPER_SLOTS)
		return true;
	c = computer_new(ms, row->id, row->slot);
	if (!c)
		return false;
	slot_use(ms, row->slot);
	c->row = *row;
	lifetime_set(c, row->ends);
	c->row.token[0] = '\0';
	c->metadata = row->metadata ? strdup(row->metadata) : NULL;
	c->row.metadata = c->metadata;
	c->told = true;
	if (row->secure)
		computer_set_token(c, row->token);
	if (!str_eq(row->state, state_name(MS_CREATING))) {
		computer_move(c, ME_MADE);
		if (str_eq(row->state, state_name(MS_PAUSED)))
			computer_move(c, ME_PAUSE);
		lifetime_arm(c);
	}
	return true;
}

static bool count_creating(void *ctx, struct computer *c)
{
	if (computer_state(c) != MS_CREATING)
		return false;
	*(struct computer **)ctx = c;
	return true;
}

int adopt_rows(struct machines *ms, struct err *e)
{
	const struct store_query q = { .live = true };
	struct computer *c;
	int r = store_each(ms->o.store, &q, take_row, ms, e);

	/* one that was still being made: nobody has its guest's first link, and nothing ran in it. The sweep takes what there is of it */
	for (c = NULL; r == 0; c = NULL) {
		machine_each(ms, count_creating, &c);
		if (!c)
			break;
		life_gone(c, "failed", "the server was restarted while it was being made");
	}
	return r;
}
