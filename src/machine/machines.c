/* machines -- the set of all computers: finding, counting, places, what the daemon asks about them. */
#include "machine/machine_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"

#define PRUNE_MS (3600 * 1000)
#define PRUNE_MORE_MS 1000          /* others get the loop in between */
#define READY_MS 5000                /* without a keeper we start to answer all the same */
#define GIB (1024ULL * 1024 * 1024)

/* ---- places: ids of its own for each computer, while it has a process or a file ---- */

void slot_use(struct machines *ms, uint32_t slot)
{
	if (slot >= 1 && slot <= KEEPER_SLOTS)
		ms->slots[slot / 64] |= 1ULL << (slot % 64);
}

void slot_free(struct machines *ms, uint32_t slot)
{
	if (slot >= 1 && slot <= KEEPER_SLOTS)
		ms->slots[slot / 64] &= ~(1ULL << (slot % 64));
}

/* Lowest first: the keeper keeps namespaces and mounts of a slot ready for the next one. */
uint32_t slot_take(struct machines *ms)
{
	for (uint32_t i = 0; i < SLOT_WORDS; i++) {
		uint64_t free_bits = ~ms->slots[i];
		uint32_t slot;

		if (i == 0)
			free_bits &= ~1ULL;
		if (!free_bits)
			continue;
		slot = i * 64 + (uint32_t)__builtin_ctzll(free_bits);
		if (slot > KEEPER_SLOTS)
			break;
		slot_use(ms, slot);
		return slot;
	}
	return 0;
}

/* ---- one computer's place among the others ---- */

struct computer *computer_new(struct machines *ms, const char *id, uint32_t slot)
{
	struct computer *c = calloc(1, sizeof *c);

	if (!c || map_put(ms->by_id, id, c) < 0) {
		free(c);
		return NULL;
	}
	c->ms = ms;
	str_copy(c->row.id, sizeof c->row.id, id);
	c->row.slot = slot;
	c->state = MS_CREATING;
	ms->count[MS_CREATING]++;
	ms->total++;
	list_append(&ms->all, &c->node);
	list_init(&c->waits);
	list_init(&c->kill_waits);
	return c;
}

void computer_move(struct computer *c, enum machine_event ev)
{
	int next = state_next(c->state, ev);

	if (next < 0) {
		log_error("%s: '%s' isn't possible while %s", c->row.id, event_name(ev), state_name(c->state));
		return;
	}
	c->ms->count[c->state]--;
	c->state = (enum machine_state)next;
	c->ms->count[c->state]++;
	str_copy(c->row.state, sizeof c->row.state, state_name(c->state));
}

int computer_set_token(struct computer *c, const char *token)
{
	str_copy(c->row.token, sizeof c->row.token, token);
	return token[0] ? map_put(c->ms->by_token, token, c) : 0;
}

void life_clear_envs(struct computer *c)
{
	for (size_t i = 0; i < c->nenvs; i++)
		free(c->envs[i]);
	free(c->envs);
	c->envs = NULL;
	c->nenvs = 0;
}

void computer_free(struct computer *c)
{
	struct machines *ms = c->ms;
	struct err e;

	err_set(&e, ECANCELED, "the server is stopping");
	guest_close(c->guest, &e);
	c->guest = NULL;
	keeper_cancel(&c->kc);
	keeper_cancel(&c->kc_net);
	loop_disarm(ms->o.loop, &c->deadline);
	loop_disarm(ms->o.loop, &c->watch);
	loop_disarm(ms->o.loop, &c->net_timer);
	if (c->row.token[0])
		map_del(ms->by_token, c->row.token);
	map_del(ms->by_id, c->row.id);
	slot_free(ms, c->row.slot);
	ms->count[c->state]--;
	ms->total--;
	list_unlink(&c->node);
	life_clear_envs(c);
	free(c->metadata);
	free(c);
}

/* ---- looking ---- */

struct computer *machine_find(struct machines *ms, const char *id)
{
	struct computer *c = map_get(ms->by_id, id);

	return c && c->told && state_is_live(c->state) ? c : NULL;
}

struct computer *machine_find_any(struct machines *ms, const char *id)
{
	struct computer *c = map_get(ms->by_id, id);

	return c && c->told ? c : NULL;
}

struct computer *machine_find_token(struct machines *ms, const char *token)
{
	struct computer *c = map_get(ms->by_token, token);

	return c && c->told && state_is_live(c->state) ? c : NULL;
}

void machine_each(struct machines *ms, bool (*fn)(void *ctx, struct computer *c), void *ctx)
{
	list_each(it, &ms->all) {
		struct computer *c = container_of(it, struct computer, node);

		if (c->told && state_is_live(c->state) && fn(ctx, c))
			return;
	}
}

const struct store_sandbox *computer_row(const struct computer *c)
{
	return &c->row;
}

enum machine_state computer_state(const struct computer *c)
{
	return c->state;
}

struct guest *computer_guest(const struct computer *c)
{
	return c->guest;
}

const char *computer_notice(const struct computer *c)
{
	return c->notice && c->notice[0] ? c->notice : NULL;
}

void **computer_slot(struct computer *c)
{
	return &c->above;
}

uint64_t computer_oom_seen(const struct computer *c)
{
	return c->oom_seen;
}

void computer_set_oom_seen(struct computer *c, uint64_t n)
{
	c->oom_seen = n;
}

void machine_stats(struct computer *c, struct keeper_call *k)
{
	keeper_ask(c->ms->keeper, k, K_STATS, c->row.id);
}

void machines_status(const struct machines *ms, struct machine_status *ret)
{
	*ret = (struct machine_status){ .creating = ms->count[MS_CREATING], .running = ms->count[MS_RUNNING], .paused = ms->count[MS_PAUSED],
		.pooled = ms->count[MS_READY], .max = ms->max, .keeper = keeper_up(ms->keeper), .door = door_up(ms->door),
		.features = keeper_features(ms->keeper), .missing = keeper_missing(ms->keeper), .uptime_ms = clock_mono_ms() - ms->started };
}

struct store *machines_store(struct machines *ms)
{
	return ms->o.store;
}

const char *machines_dir(const struct machines *ms)
{
	return ms->dir;
}

const char *machine_limit_name(unsigned bit)
{
	static const char *const names[] = { "memory", "cpu", "pids", "disk", "inodes", "files" };

	return bit < sizeof names / sizeof names[0] ? names[bit] : NULL;
}

/* ---- the door ---- */

static int on_spawn(void *ctx, int *ret_fd, struct err *e)
{
	struct machines *ms = ctx;

	return ms->o.spawn_door(ms->o.ctx, ret_fd, e);
}

static void on_door_up(void *ctx)
{
	struct machines *ms = ctx;

	list_each(it, &ms->all) {
		struct computer *c = container_of(it, struct computer, node);

		if (c->row.net && c->pid && c->state != MS_ENDING) {
			c->opening = false;
			c->door_wanted = true;
			c->net_tries = 0;
			life_net(c);
		}
	}
}

static void on_door_opened(void *ctx, const char *id, const struct err *e)
{
	struct machines *ms = ctx;
	struct computer *c = map_get(ms->by_id, id);

	if (c)
		life_net_opened(c, e);
}

static void on_door_denied(void *ctx, const char *id, const char *what, const char *rule)
{
	struct machines *ms = ctx;

	if (ms->o.on_denied)
		ms->o.on_denied(ms->o.ctx, id, what, rule);
}

static const struct door_events door_events = { on_spawn, on_door_up, on_door_opened, on_door_denied };
static const struct keeper_events keeper_events = { adopt_listed, adopt_exited };

/* ---- the whole ---- */

static void on_prune(struct timer *t)
{
	struct machines *ms = container_of(t, struct machines, prune);
	struct err e;
	int more = store_prune(ms->o.store, clock_wall_ms(), &e);

	if (more < 0)
		log_error("%s", e.msg);
	loop_arm(ms->o.loop, t, more > 0 ? PRUNE_MORE_MS : PRUNE_MS);
}

static void on_ready_late(struct timer *t)
{
	struct machines *ms = container_of(t, struct machines, ready_timer);

	if (ms->ready)
		return;
	ms->ready = true;
	if (!keeper_up(ms->keeper))
		log_warn("no keeper yet: computers can't be made until there is one");
	if (ms->o.on_ready)
		ms->o.on_ready(ms->o.ctx);
	pool_start(ms);
}

/* What a computer gets when nobody says: half of the host at most, so that one can't take it all. */
static void set_defaults(struct machines *ms)
{
	struct sysinfo si;
	struct rlimit rl;
	uint64_t half = 2 * GIB;

	if (sysinfo(&si) == 0)
		half = (uint64_t)si.totalram * si.mem_unit / 2;
	ms->defaults.memory = half < 4 * GIB ? half : 4 * GIB;
	ms->defaults.memory &= ~0xfffffULL;
	ms->defaults.cpu = 0;
	ms->defaults.pids = 4096;
	ms->defaults.disk = ms->defaults.memory / 2;
	ms->defaults.inodes = 500000;
	ms->defaults.files = 65536;
	ms->max = ms->o.max ? ms->o.max : 2000;
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur / 4 < ms->max)
		ms->max = (unsigned)(rl.rlim_cur / 4);
}

int machines_create(const struct machines_opts *o, struct machines **ret, struct err *e)
{
	struct machines *ms = calloc(1, sizeof *ms);
	int r = 0;

	if (!ms)
		return err_set(e, ENOMEM, "computers: no memory");
	ms->o = *o;
	ms->run_fd = -1;
	ms->clock.fd = -1;
	ms->started = clock_mono_ms();
	list_init(&ms->all);
	ms->refill.fire = pool_fire;
	ms->prune.fire = on_prune;
	ms->ready_timer.fire = on_ready_late;
	set_defaults(ms);
	ms->dir = strdup(o->state_dir);
	if (!ms->dir || asprintf(&ms->run_dir, "%s/run", o->state_dir) < 0 || map_create(&ms->by_id) < 0 || map_create(&ms->by_token) < 0)
		r = err_set(e, ENOMEM, "computers: no memory");
	if (r == 0) {
		ms->run_fd = open(ms->run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (ms->run_fd < 0)
			r = err_sys(e, "open folder '%s'", ms->run_dir);
	}
	if (r == 0)
		r = adopt_rows(ms, e);
	if (r == 0)
		r = lifetime_watch(ms, e);
	if (r == 0)
		r = keeper_open(o->loop, ms->run_dir, o->keeper_name, &keeper_events, ms, &ms->keeper, e);
	if (r == 0 && o->spawn_door)
		r = door_open(o->loop, &door_events, ms, &ms->door, e);
	if (r < 0) {
		machines_free(ms);
		return r;
	}
	loop_arm(o->loop, &ms->prune, 10000);
	loop_arm(o->loop, &ms->ready_timer, READY_MS);
	*ret = ms;
	return 0;
}

void machines_end_all(struct machines *ms, const char *why, const char *why_text, const char *by)
{
	ms->ending = true;
	loop_disarm(ms->o.loop, &ms->refill);
	for (struct list *it = ms->all.next; it != &ms->all;) {
		struct computer *c = container_of(it, struct computer, node);

		it = it->next;
		if (c->state == MS_ENDING)
			continue;
		machine_end(c, why, why_text, by, NULL);
		it = ms->all.next;       /* whatever its end did to the list */
	}
}

unsigned machines_left(const struct machines *ms)
{
	/* until the keeper has told its list, who knows what it has */
	return ms->total + ms->sweeps + !keeper_up(ms->keeper);
}

void machines_free(struct machines *ms)
{
	if (!ms)
		return;
	ms->stopping = true;
	list_each(it, &ms->all)
		computer_free(container_of(it, struct computer, node));
	keeper_close(ms->keeper);
	door_close(ms->door);
	loop_disarm(ms->o.loop, &ms->refill);
	loop_disarm(ms->o.loop, &ms->prune);
	loop_disarm(ms->o.loop, &ms->ready_timer);
	lifetime_unwatch(ms);
	map_free(ms->by_id);
	map_free(ms->by_token);
	fd_drop(&ms->run_fd);
	free(ms->dir);
	free(ms->run_dir);
	free(ms);
}
