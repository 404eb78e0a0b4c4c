/* life -- one computer's way through its states.
 *
 * Theory of operation. A computer in the making has a set of answers it waits for (keeper, guest, door, limits); when the
 * set is empty it is made: its row is written, and only then the one who asked hears of it. Ending is the other way round:
 * everything tied to it is cut at once, the keeper removes it, then the tombstone is written and whoever waits hears of it. The end
 * can come at any moment, also while it is being made: the keeper's answer then finds the state `ending` and goes on from there. */
#include "machine/machine_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"

#define KILL_RETRY_MS 200
#define KILL_TELL 5                  /* after so many failures whoever waits is told */
#define NET_RETRY_MS 50
#define NET_RETRIES 100

static void kill_now(struct computer *c);
static void net_again(struct computer *c);

/* ---- being made ---- */

static void answer_waits(struct computer *c, const struct err *e)
{
	while (!list_empty(&c->waits)) {
		struct machine_wait *w = container_of(c->waits.next, struct machine_wait, node);

		list_unlink(&w->node);
		w->done(w, e ? NULL : c, e);
	}
}

/* It can't be made. What there is of it is taken away. */
static void fail(struct computer *c, const struct err *why)
{
	struct err e = *why;

	if (c->state != MS_CREATING && c->state != MS_RUNNING)
		return;
	if (c->pooled)
		log_warn("a computer for the pool (%s) couldn't be made: %s", c->real, e.msg);
	answer_waits(c, &e);
	/* a create that isn't answered yet may make it all the same: its answer goes on from there */
	if (c->pid || (c->kc.keeper && c->kc.type == K_CREATE))
		machine_end(c, "failed", e.msg, "server", NULL);
	else
		life_gone(c, "failed", e.msg);
}

/* Keeps the row, tells who asked. */
static void made(struct computer *c)
{
	struct err e;

	life_clear_envs(c);
	loop_disarm(c->ms->o.loop, &c->watch);
	if (c->pooled) {
		computer_move(c, ME_POOLED);
		pool_made(c);
		return;
	}
	if (c->state == MS_CREATING)
		computer_move(c, ME_MADE);
	if (store_put(c->ms->o.store, &c->row, &e) < 0) {
		fail(c, &e);
		return;
	}
	c->told = true;
	lifetime_arm(c);
	answer_waits(c, NULL);
	pool_wake(c->ms);
}

static void step_done(struct computer *c, enum why_step step)
{
	if (!(c->waits_for & step))
		return;
	c->waits_for &= ~(unsigned)step;
	if (!c->waits_for && (c->state == MS_CREATING || (c->state == MS_RUNNING && !c->told)))
		made(c);
}

static void on_configured(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct computer *c = container_of(k, struct computer, gc);
	struct err mine;

	if (c->state == MS_ENDING)
		return;
	if (e) {
		mine = *e;
		err_wrap(&mine, "set up the new computer");
		fail(c, &mine);
		return;
	}
	step_done(c, ST_CONFIGURE);
}

static void on_late(struct timer *t)
{
	struct computer *c = container_of(t, struct computer, watch);
	struct err e;

	err_set(&e, ETIMEDOUT, "the new computer doesn't answer");
	fail(c, &e);
}

static int configure(struct computer *c, struct err *e)
{
	c->gc.on = on_configured;
	c->waits_for |= ST_CONFIGURE;
	if (c->pooled)
		return guest_hello(c->guest, &c->gc, e);
	return guest_configure(c->guest, &c->gc, c->row.id, HOSTNAME, (const char *const *)c->envs, c->nenvs, c->due, e);
}

void life_link(struct computer *c, int fd)
{
	struct err e;

	if (guest_open(c->ms->o.loop, fd, adopt_guest_gone, c, &c->guest, &e) < 0)
		log_error("%s: %s", c->row.id, e.msg);
}

static void hand_sockets(struct computer *c, struct keeper_answer *a, unsigned first)
{
	if (a->nfds > first && door_add(c->ms->door, c->row.id, c->row.net, a->fds + first, a->nfds - first) == 0) {
		c->opening = true;
		c->door_wanted = false;
	} else if (a->nfds > first) {
		c->door_wanted = true;
		if (door_up(c->ms->door))        /* it doesn't take more now */
			net_again(c);
	}
	for (unsigned i = first; i < a->nfds; i++)
		fd_drop(&a->fds[i]);
}

static void on_created(struct keeper_call *k, struct keeper_answer *a, const struct err *e)
{
	struct computer *c = container_of(k, struct computer, kc);
	struct err mine;

	if (e) {
		mine = *e;
		err_wrap(&mine, "start a computer");
		if (c->state == MS_ENDING)
			life_gone(c, c->row.why, c->row.why_text);
		else
			fail(c, &mine);
		return;
	}
	c->pid = a->pid;
	c->start = a->start;
	c->row.unenforced = a->unenforced;
	if (c->state == MS_ENDING) {
		for (unsigned i = 0; i < a->nfds; i++)
			fd_drop(&a->fds[i]);
		kill_now(c);
		return;
	}
	life_link(c, a->fds[0]);
	a->fds[0] = -1;
	hand_sockets(c, a, 1);
	if (c->opening)
		c->waits_for |= ST_DOOR;
	if (!c->guest || configure(c, &mine) < 0) {
		if (!c->guest)
			err_set(&mine, EIO, "link to the new computer");
		fail(c, &mine);
		return;
	}
	step_done(c, ST_KEEPER);
}

void life_make(struct computer *c, const char *template, uint8_t net, const struct store_limits *l)
{
	const struct keeper_create_args a = { .id = c->row.id, .slot = c->row.slot, .template = template, .net = net, .limits = *l, .hostname = HOSTNAME };

	str_copy(c->real, sizeof c->real, template);
	c->row.net = net;
	c->row.limits = *l;
	c->waits_for = ST_KEEPER;
	c->kc.on = on_created;
	c->watch.fire = on_late;
	/* longer than the keeper's own patience, so that its clearer words come first */
	loop_arm(c->ms->o.loop, &c->watch, KEEPER_GIVE_UP_MS + ANSWER_MS);
	keeper_create(c->ms->keeper, &c->kc, &a);
}

static void on_limited(struct keeper_call *k, struct keeper_answer *a, const struct err *e)
{
	struct computer *c = container_of(k, struct computer, kc);
	struct err mine;

	if (e) {
		mine = *e;
		err_wrap(&mine, "set the limits of the new computer");
		fail(c, &mine);
		return;
	}
	/* a limit that stays as it was is in force as it was, also one that couldn't be changed now */
	c->row.unenforced = (c->row.unenforced & c->kept) | (a->unenforced & ~c->kept);
	step_done(c, ST_LIMITS);
}

static uint32_t same_limits(const struct store_limits *a, const struct store_limits *b)
{
	return (a->memory == b->memory ? KL_MEMORY : 0) | (a->cpu == b->cpu ? KL_CPU : 0) | (a->pids == b->pids ? KL_PIDS : 0) |
		(a->disk == b->disk ? KL_DISK : 0) | (a->inodes == b->inodes ? KL_INODES : 0) | (a->files == b->files ? KL_FILES : 0);
}

/* Can a pooled one still get these? Without a control group the number of processes and of open files is fixed at the start. */
static bool pool_serves(const struct machines *ms, const struct store_limits *l)
{
	uint32_t same = same_limits(l, &ms->defaults);

	return same & KL_FILES && (same & KL_PIDS || keeper_features(ms->keeper) & KF_PIDS);
}

/* A pooled one becomes somebody's. */
static int take_over(struct computer *c, const struct store_limits *l, struct err *e)
{
	bool same = memcmp(l, &c->row.limits, sizeof *l) == 0;

	c->kept = same_limits(l, &c->row.limits);
	c->row.limits = *l;
	c->waits_for = same ? 0 : ST_LIMITS;
	if (configure(c, e) < 0)
		return -e->code;
	c->watch.fire = on_late;
	loop_arm(c->ms->o.loop, &c->watch, ANSWER_MS);
	if (!same) {
		c->kc.on = on_limited;
		keeper_limits(c->ms->keeper, &c->kc, c->row.id, l);
	}
	return 0;
}

static struct store_limits limits_or_default(const struct machines *ms, const struct store_limits *l)
{
	const struct store_limits *d = &ms->defaults;
	uint64_t memory = l->memory ? l->memory : d->memory;
	/* what it writes lives in its memory too: half of that unless asked */
	uint64_t disk = l->disk ? l->disk : memory / 2;

	return (struct store_limits){ memory, l->cpu ? l->cpu : d->cpu, l->pids ? l->pids : d->pids, disk,
		l->inodes ? l->inodes : d->inodes, l->files ? l->files : d->files };
}

static int copy_request(struct computer *c, const struct machine_create *a)
{
	c->metadata = a->metadata ? strdup(a->metadata) : NULL;
	c->row.metadata = c->metadata;
	c->envs = a->nenvs ? calloc(a->nenvs, sizeof *c->envs) : NULL;
	if ((a->metadata && !c->metadata) || (a->nenvs && !c->envs))
		return -ENOMEM;
	for (; c->nenvs < a->nenvs; c->nenvs++) {
		c->envs[c->nenvs] = strdup(a->envs[c->nenvs]);
		if (!c->envs[c->nenvs])
			return -ENOMEM;
	}
	return 0;
}

static int new_token(struct computer *c)
{
	AUTO_BUF struct buf b = BUF_INIT(80);
	uint8_t raw[32];

	str_random(raw, sizeof raw);
	if (str_hex(&b, raw, sizeof raw) < 0)
		return -ENOMEM;
	return computer_set_token(c, buf_at(&b));
}

static int fill_row(struct computer *c, const struct machine_create *a, const char *notice)
{
	str_copy(c->row.template, sizeof c->row.template, a->template);
	c->notice = notice;
	c->row.secure = a->secure;
	c->row.started = clock_wall_ms();
	lifetime_set(c, a->ends);
	str_copy(c->row.state, sizeof c->row.state, state_name(c->state));
	if (copy_request(c, a) < 0)
		return -ENOMEM;
	return a->secure ? new_token(c) : 0;
}

static struct computer *new_cold(struct machines *ms, struct err *e)
{
	struct computer *c = NULL;
	uint32_t slot = slot_take(ms);
	char id[24];

	str_new_id(id);
	if (slot)
		c = computer_new(ms, id, slot);
	if (slot && !c)
		slot_free(ms, slot);
	if (!c)
		err_set(e, slot ? ENOMEM : EAGAIN, slot ? "no memory for one more computer" : "every id range is in use");
	return c;
}

/* One that was begun and can't go on, before anything was asked of anybody. */
static void give_up(struct computer *c, struct machine_wait *w, const struct err *e)
{
	list_unlink(&w->node);
	w->done(w, NULL, e);
	fail(c, e);
}

void machine_create(struct machines *ms, const struct machine_create *a, struct machine_wait *w)
{
	struct store_limits l = limits_or_default(ms, &a->limits);
	const char *notice;
	struct computer *c;
	char real[65];
	struct err e;
	bool pooled;

	list_init(&w->node);
	w->making = true;
	if (ms->ending) {
		err_set(&e, EAGAIN, "the server is stopping");
		w->done(w, NULL, &e);
		return;
	}
	/* which slots are free only the keeper's first list tells */
	if (!ms->heard) {
		err_set(&e, EAGAIN, "the keeper isn't there yet");
		err_hint(&e, "its supervisor starts it; ask again in a second");
		w->done(w, NULL, &e);
		return;
	}
	if (template_resolve(ms->dir, a->template, real, &notice, &e) < 0) {
		w->done(w, NULL, &e);
		return;
	}
	c = pool_serves(ms, &l) ? pool_take(ms, real, a->net) : NULL;
	pooled = c != NULL;
	if (!c && ms->total >= ms->max && !pool_evict(ms)) {
		err_set(&e, EAGAIN, "this server runs %u computers at most, and has as many", ms->max);
		err_hint(&e, "end one, wait, or start the server with a higher --max");
		w->done(w, NULL, &e);
		return;
	}
	if (!c)
		c = new_cold(ms, &e);
	if (!c) {
		w->done(w, NULL, &e);
		return;
	}
	list_append(&c->waits, &w->node);
	if (fill_row(c, a, notice) < 0) {
		err_set(&e, ENOMEM, "no memory for one more computer");
		give_up(c, w, &e);
		return;
	}
	if (pooled) {
		if (take_over(c, &l, &e) < 0)
			give_up(c, w, &e);
		return;
	}
	life_make(c, real, a->net, &l);
	if (!a->early)
		return;
	if (store_put(ms->o.store, &c->row, &e) < 0) {
		log_error("%s: %s", c->row.id, e.msg);       /* whoever asked waits until it is made */
		return;
	}
	c->told = true;
	answer_waits(c, NULL);
}

void machine_wait_cancel(struct machine_wait *w)
{
	struct list *at = w->node.next;

	if (list_empty(&w->node))
		return;
	list_unlink(&w->node);
	if (!w->making)
		return;
	/* the last one who waited for one that is being made: the head of its list is left, pointing at itself */
	if (list_empty(at)) {
		struct computer *c = container_of(at, struct computer, waits);

		if (!c->told && (c->state == MS_CREATING || c->state == MS_RUNNING))
			machine_end(c, "killed", "whoever asked for it went away", "server", NULL);
	}
}

/* ---- its network ---- */

static void on_net_timer(struct timer *t)
{
	life_net(container_of(t, struct computer, net_timer));
}

static void net_again(struct computer *c)
{
	c->net_timer.fire = on_net_timer;
	if (++c->net_tries > NET_RETRIES) {
		log_error("%s: its network couldn't be opened", c->row.id);
		return;
	}
	loop_arm(c->ms->o.loop, &c->net_timer, NET_RETRY_MS);
}

static void on_net_open(struct keeper_call *k, struct keeper_answer *a, const struct err *e)
{
	struct computer *c = container_of(k, struct computer, kc_net);

	if (e) {
		/* EBUSY: the door that died is still letting go of the old ones */
		if (e->code == EBUSY || e->code == EAGAIN)
			net_again(c);
		else
			log_error("%s: open its network again: %s", c->row.id, e->msg);
		return;
	}
	hand_sockets(c, a, 0);
}

void life_net(struct computer *c)
{
	if (!c->door_wanted || c->opening || c->kc_net.keeper || !door_up(c->ms->door) || c->state == MS_ENDING)
		return;
	c->kc_net.on = on_net_open;
	keeper_ask(c->ms->keeper, &c->kc_net, K_NET_OPEN, c->row.id);
}

void life_net_opened(struct computer *c, const struct err *e)
{
	c->opening = false;
	if (e) {
		c->door_wanted = true;
		if (e->code != EAGAIN)
			log_error("%s: the door didn't open it: %s", c->row.id, e->msg);
		net_again(c);
	} else {
		c->net_tries = 0;
	}
	step_done(c, ST_DOOR);
}

/* ---- its end ---- */

static void answer_kills(struct computer *c, const struct err *e)
{
	while (!list_empty(&c->kill_waits)) {
		struct machine_wait *w = container_of(c->kill_waits.next, struct machine_wait, node);

		list_unlink(&w->node);
		w->done(w, NULL, e);
	}
}

static void on_kill_retry(struct timer *t)
{
	kill_now(container_of(t, struct computer, watch));
}

static void on_killed(struct keeper_call *k, struct keeper_answer *a, const struct err *e)
{
	struct computer *c = container_of(k, struct computer, kc);
	struct err mine;

	if (!e || e->code == ENOENT) {
		life_gone(c, c->row.why, c->row.why_text);
		return;
	}
	if (e->code != EAGAIN)
		log_error("%s: can't be removed yet: %s", c->row.id, e->msg);
	if (++c->kill_tries >= KILL_TELL) {
		mine = *e;
		err_wrap(&mine, "remove computer '%s'", c->row.id);
		answer_kills(c, &mine);
	}
	c->watch.fire = on_kill_retry;
	loop_arm(c->ms->o.loop, &c->watch, KILL_RETRY_MS * (c->kill_tries < 50 ? c->kill_tries : 50));
}

static void kill_now(struct computer *c)
{
	c->kc.on = on_killed;
	keeper_ask(c->ms->keeper, &c->kc, K_KILL, c->row.id);
}

/* Nobody may use it any more. */
static void cut(struct computer *c, const char *why)
{
	struct machines *ms = c->ms;
	struct guest *g = c->guest;
	struct err e;

	err_set(&e, ENOENT, "computer '%s' has ended: %.100s", c->row.id, why);
	answer_waits(c, &e);
	if (c->told && ms->o.on_end)
		ms->o.on_end(ms->o.ctx, c);
	c->guest = NULL;
	guest_close(g, &e);
	loop_disarm(ms->o.loop, &c->deadline);
	loop_disarm(ms->o.loop, &c->watch);
	loop_disarm(ms->o.loop, &c->net_timer);
	keeper_cancel(&c->kc_net);
	if (c->row.net)
		door_drop(ms->door, c->row.id);
}

void machine_end(struct computer *c, const char *why, const char *why_text, const char *by, struct machine_wait *w)
{
	if (w) {
		w->making = false;
		list_init(&w->node);
		list_append(&c->kill_waits, &w->node);
	}
	if (c->state == MS_ENDING)
		return;
	str_copy(c->row.why, sizeof c->row.why, why);
	snprintf(c->row.why_text, sizeof c->row.why_text, "%s", why_text);
	str_copy(c->row.by, sizeof c->row.by, by);
	if (c->pooled)
		pool_lost(c);
	computer_move(c, ME_END);
	cut(c, why);
	if (c->kc.keeper && c->kc.type == K_CREATE)
		return;                  /* its answer goes on from here */
	keeper_cancel(&c->kc);
	kill_now(c);
}

/* Nothing of it is left (or it never was). Frees it. */
void life_gone(struct computer *c, const char *why, const char *text)
{
	bool failed = c->state == MS_CREATING, told = c->told;
	struct err e;

	if (c->row.why != why)
		str_copy(c->row.why, sizeof c->row.why, why);
	if (c->row.why_text != text)
		snprintf(c->row.why_text, sizeof c->row.why_text, "%s", text);
	if (c->pooled)
		pool_lost(c);
	if (c->state != MS_ENDING)
		cut(c, c->row.why);
	computer_move(c, failed ? ME_FAIL : ME_GONE);
	if (told && store_end(c->ms->o.store, c->row.id, state_name(c->state), clock_wall_ms(), c->row.why, c->row.why_text, c->row.by, &e) < 0)
		log_error("%s: %s", c->row.id, e.msg);
	answer_kills(c, NULL);
	computer_free(c);
}
