/* pool -- ready computers, so that a create is one question to a running guest.
 *
 * Theory of operation. For each kind (template and network) that was asked for of late, some computers are kept set up with
 * the default limits and no owner. A create claims one; others are made behind it, but not while creates that nobody can serve
 * from here are under way. While at least half are left, refilling waits for a calm moment: whoever just got a computer is about
 * to use it, and should have the processors. Below half it starts at once, two at a time. Pooled computers have no row in the store and no name that anybody knows: after a crash of
 * ours the keeper is asked to end them. Where there may be no more computers they are the first to go, and none
 * is made while the host has little memory to give. */
#include "machine/machine_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"

#define SOON_MS 1
#define CALM_MS 20
#define MAKING_MAX 2
#define FORGET_MS (10 * 60 * 1000)
#define FAILS_MAX 3
#define FREE_MIN_KB (512 * 1024)     /* nothing is made in advance when the host has less to give */

static struct pool_kind *find_kind(struct machines *ms, const char *template, uint8_t net)
{
	for (int i = 0; i < POOL_KINDS; i++)
		if (ms->kinds[i].used && ms->kinds[i].net == net && str_eq(ms->kinds[i].template, template))
			return &ms->kinds[i];
	return NULL;
}

/* The kind's entry, made at need in a free or the oldest place. */
static struct pool_kind *touch(struct machines *ms, const char *template, uint8_t net)
{
	struct pool_kind *k = find_kind(ms, template, net), *old = NULL;

	for (int i = 0; !k && i < POOL_KINDS; i++) {
		struct pool_kind *it = &ms->kinds[i];

		if (!it->used || (!it->ready && !it->making && (!old || !old->used || it->last_used < old->last_used)))
			old = !old || old->used ? it : old;
	}
	if (!k && old) {
		*old = (struct pool_kind){ .used = true, .net = net };
		str_copy(old->template, sizeof old->template, template);
		k = old;
	}
	if (k)
		k->last_used = clock_mono_ms();
	return k;
}

static bool is_low(const struct machines *ms, const struct pool_kind *k)
{
	return k->ready + k->making < (ms->o.pool + 1) / 2;
}

void pool_wake(struct machines *ms)
{
	bool low = false;

	if (!ms->o.pool || ms->stopping || ms->ending || !ms->ready)
		return;
	for (int i = 0; i < POOL_KINDS; i++)
		low = low || (ms->kinds[i].used && is_low(ms, &ms->kinds[i]));
	loop_arm(ms->o.loop, &ms->refill, low || clock_mono_ms() - ms->busy_at > CALM_MS ? SOON_MS : CALM_MS);
}

static bool of_kind(const struct computer *c, const struct pool_kind *k)
{
	return c->pooled && c->row.net == k->net && str_eq(c->real, k->template);
}

void pool_start(struct machines *ms)
{
	const char *notice;
	char real[65];

	/* what most ask for first */
	if (template_resolve(ms->dir, "base", real, &notice, NULL) == 0)
		touch(ms, real, ms->door && keeper_features(ms->keeper) & KF_NET ? KEEPER_NET_ALL : KEEPER_NET_NONE);
	pool_wake(ms);
}

struct computer *pool_take(struct machines *ms, const char *template, uint8_t net)
{
	struct pool_kind *k;

	ms->busy_at = clock_mono_ms();
	if (!ms->o.pool)
		return NULL;
	k = touch(ms, template, net);
	if (!k)
		return NULL;
	k->fails = 0;
	pool_wake(ms);
	if (!k->ready)
		return NULL;
	list_each(it, &ms->all) {
		struct computer *c = container_of(it, struct computer, node);

		if (c->state == MS_READY && of_kind(c, k) && c->guest) {
			c->pooled = false;
			k->ready--;
			computer_move(c, ME_CLAIM);
			return c;
		}
	}
	return NULL;
}

void pool_made(struct computer *c)
{
	struct pool_kind *k = find_kind(c->ms, c->real, c->row.net);

	if (k) {
		k->making--;
		k->ready++;
		k->fails = 0;
	}
	pool_wake(c->ms);
}

void pool_lost(struct computer *c)
{
	struct pool_kind *k = find_kind(c->ms, c->real, c->row.net);

	if (!c->pooled)
		return;
	c->pooled = false;
	if (!k)
		return;
	if (c->state == MS_READY)
		k->ready--;
	else {
		k->making--;
		k->fails++;
	}
	pool_wake(c->ms);
}

bool pool_evict(struct machines *ms)
{
	list_each(it, &ms->all) {
		struct computer *c = container_of(it, struct computer, node);

		if (c->pooled && c->state == MS_READY) {
			machine_end(c, "shutdown", "room for others", "server", NULL);
			return true;
		}
	}
	return false;
}

bool pool_affords(const char *meminfo)
{
	const char *at = strstr(meminfo, "MemAvailable:");
	unsigned long long kb;

	return !at || sscanf(at, "MemAvailable: %llu", &kb) != 1 || kb > FREE_MIN_KB;
}

static bool affords(void)
{
	AUTO_FREE char *text = NULL;

	return fd_read_file(AT_FDCWD, "/proc/meminfo", 16384, &text, NULL, NULL) < 0 || pool_affords(text);
}

static void make_one(struct machines *ms, struct pool_kind *k)
{
	char id[24];
	uint32_t slot = slot_take(ms);
	struct computer *c;

	str_new_id(id);
	c = slot ? computer_new(ms, id, slot) : NULL;
	if (!c) {
		slot_free(ms, slot);
		return;
	}
	c->pooled = true;
	k->making++;
	life_make(c, k->template, k->net, &ms->defaults);
}

/* A kind that nobody asked for in a long time gives its computers back. */
static void forget(struct machines *ms, struct pool_kind *k)
{
	list_each(it, &ms->all) {
		struct computer *c = container_of(it, struct computer, node);

		if (c->state == MS_READY && of_kind(c, k))
			machine_end(c, "shutdown", "nobody asked for it", "server", NULL);
	}
	if (!k->ready && !k->making)
		k->used = false;
}

/* Makes one more of the first kind that lacks some. */
static bool refill(struct machines *ms, const struct pool_kind *newest)
{
	int64_t now = clock_mono_ms();

	for (int i = 0; i < POOL_KINDS; i++) {
		struct pool_kind *k = &ms->kinds[i];

		if (!k->used || k->fails >= FAILS_MAX)
			continue;
		if (k != newest && now - k->last_used > FORGET_MS) {
			forget(ms, k);
			continue;
		}
		if (k->ready + k->making >= ms->o.pool || (k->making && !is_low(ms, k)))
			continue;
		if (ms->total + 1 < ms->max && affords()) {
			make_one(ms, k);
			return true;
		}
	}
	return false;
}

void pool_fire(struct timer *t)
{
	struct machines *ms = container_of(t, struct machines, refill);
	struct pool_kind *newest = NULL;
	unsigned making = 0;

	if (ms->stopping || ms->ending || !keeper_up(ms->keeper))
		return;
	for (int i = 0; i < POOL_KINDS; i++) {
		if (ms->kinds[i].used) {
			making += ms->kinds[i].making;
			newest = !newest || ms->kinds[i].last_used > newest->last_used ? &ms->kinds[i] : newest;
		}
	}
	if (ms->count[MS_CREATING] > making) {
		loop_arm(ms->o.loop, t, CALM_MS);
		return;
	}
	while (making < MAKING_MAX && refill(ms, newest))
		making++;
	if (!making)             /* full: look again in a while, for kinds to forget. Otherwise the end of a making wakes us */
		loop_arm(ms->o.loop, t, 60 * 1000);
}
