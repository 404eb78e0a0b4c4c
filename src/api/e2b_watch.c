#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/e2b_req.h"
#include "core/clock.h"
#include "core/str.h"

/* Polled watchers (CreateWatcher, GetWatcherEvents, RemoveWatcher): a watch that goes on between requests and keeps its events
 * until they are asked for. Kept in the order of their last poll, so that the forgotten ones are found at the front. */

enum { EVENTS_MAX = 10000, WATCHERS_MAX = 4096, PER_SANDBOX = 64, FORGOTTEN_MS = 3600 * 1000, SWEEP_MS = 60 * 1000 };

struct watcher {
	struct list link;
	struct e2b *d;
	char id[24], sandbox[E2B_ID_SIZE];
	struct principal who;
	struct op_call *call;
	struct op_tie tie;
	json_t *events;
	int64_t polled_ms;
	unsigned lost;                   /* events that found no room */
	struct e2b_req *waiting;         /* CreateWatcher, until the watch has started */
	bool started, over, in_run, dead;
	struct err why;                  /* over: why */
};

/* What CreateWatcher's request holds, so that either may go first. */
struct creating {
	struct e2b_req q;
	struct watcher *w;
};

static void watcher_free(struct watcher *w)
{
	if (w->in_run) {                 /* ops_run() is on the stack and knows w */
		w->dead = true;
		return;
	}
	list_unlink(&w->link);
	map_del(w->d->watchers, w->id);
	w->d->nwatchers--;
	ops_tie_drop(&w->tie);
	ops_cancel(w->call);
	if (w->waiting)
		container_of(w->waiting, struct creating, q)->w = NULL;
	json_decref(w->events);
	free(w);
}

static void on_kill(struct op_tie *t)
{
	struct watcher *w = container_of(t, struct watcher, tie);
	struct e2b_req *q = w->waiting;

	w->waiting = NULL;
	if (q) {
		container_of(q, struct creating, q)->w = NULL;
		e2b_gone(q->r, q->id);
	}
	watcher_free(w);
}

static void sweep(struct timer *t)
{
	struct e2b *d = container_of(t, struct e2b, sweep);
	int64_t before = loop_now(d->api->loop) - FORGOTTEN_MS;

	list_each(it, &d->watcher_list) {
		struct watcher *w = container_of(it, struct watcher, link);

		if (w->polled_ms > before)
			break;
		watcher_free(w);
	}
	if (!list_empty(&d->watcher_list))
		loop_arm(d->api->loop, &d->sweep, SWEEP_MS);
}

void e2b_watchers_free(struct e2b *d)
{
	loop_disarm(d->api->loop, &d->sweep);
	list_each(it, &d->watcher_list)
		watcher_free(container_of(it, struct watcher, link));
}

static void polled(struct watcher *w)
{
	w->polled_ms = loop_now(w->d->api->loop);
	list_unlink(&w->link);
	list_append(&w->d->watcher_list, &w->link);
}

static void on_event(void *ctx, const json_t *event)
{
	struct watcher *w = ctx;
	const json_t *v = json_object_get(event, "watch");
	struct e2b_req *q = w->waiting;

	if (json_object_get(event, "start")) {
		w->started = true;
		w->waiting = NULL;
		if (q) {
			container_of(q, struct creating, q)->w = NULL;
			e2b_json(q, 200, json_pack("{s:s}", "watcherId", w->id));
		}
	} else if (v) {
		if (json_array_size(w->events) >= EVENTS_MAX || json_array_append_new(w->events, e2b_watch_event(v)) < 0)
			w->lost++;
	}
}

static void on_done(void *ctx, const struct err *e, const json_t *res, int fd)
{
	struct watcher *w = ctx;
	struct e2b_req *q = w->waiting;

	w->call = NULL;
	w->over = true;
	w->waiting = NULL;
	if (e)
		w->why = *e;
	else
		err_set(&w->why, ENOENT, "the watched directory is gone");
	if (q) {
		container_of(q, struct creating, q)->w = NULL;
		e2b_fail(q, &w->why);
	}
	if (!w->started)
		watcher_free(w);
}

static const struct op_sink watch_sink = { .event = on_event, .done = on_done };

static void creating_drop(struct e2b_req *q)
{
	struct watcher *w = container_of(q, struct creating, q)->w;

	if (w)                           /* the client left before it knew the id */
		watcher_free(w);
}

static unsigned count_of(struct e2b *d, const char *sandbox)
{
	unsigned n = 0;

	list_each(it, &d->watcher_list)
		n += str_eq(container_of(it, struct watcher, link)->sandbox, sandbox);
	return n;
}

static struct watcher *watcher_new(struct e2b *d, struct e2b_req *q)
{
	struct watcher *w = calloc(1, sizeof *w);

	if (!w || !(w->events = json_array())) {
		free(w);
		return NULL;
	}
	list_init(&w->link);
	w->d = d;
	str_new_id(w->id);
	memcpy(w->sandbox, q->id, sizeof w->sandbox);
	w->who = (struct principal){ .rights = q->who.rights, .only_computer = w->sandbox, .name = "watcher" };
	w->tie.cut = on_kill;
	if (map_put(d->watchers, w->id, w) < 0) {
		json_decref(w->events);
		free(w);
		return NULL;
	}
	d->nwatchers++;
	polled(w);
	return w;
}

void e2b_watcher_create(struct e2b_req *old, const json_t *msg)
{
	struct e2b *d = old->api->e2b;
	const char *path = json_string_value(e2b_member(msg, "path", NULL));
	struct op_in in = { .args = NULL };
	struct creating *c;
	struct watcher *w;

	if (d->nwatchers >= WATCHERS_MAX || count_of(d, old->id) >= PER_SANDBOX) {
		e2b_fail_word(old, "resource_exhausted", "too many watchers: remove some (%d for a sandbox)", PER_SANDBOX);
		return;
	}
	c = (struct creating *)e2b_req_grow(old, sizeof *c);
	if (!c)
		return;
	w = watcher_new(d, &c->q);
	if (!w || ops_tie(d->api->ops, w->sandbox, &w->tie) < 0) {
		if (w)
			watcher_free(w);
		e2b_gone(c->q.r, c->q.id);
		return;
	}
	c->w = w;
	c->q.drop = creating_drop;
	w->waiting = &c->q;
	in.args = e2b_args(&c->q);
	json_object_set_new(in.args, "path", json_string(path ? path : ""));
	json_object_set_new(in.args, "recursive", json_boolean(json_is_true(e2b_member(msg, "recursive", NULL))));
	json_object_set_new(in.args, "entries", json_boolean(json_is_true(e2b_member(msg, "includeEntry", "include_entry"))));
	json_object_set_new(in.args, "network_mounts", json_boolean(json_is_true(e2b_member(msg, "allowNetworkMounts", "allow_network_mounts"))));
	if (!d->sweep.pos) {
		d->sweep.fire = sweep;
		loop_arm(d->api->loop, &d->sweep, SWEEP_MS);
	}
	w->in_run = true;
	ops_run(d->api->ops, "file.watch", &w->who, &in, &watch_sink, w, &w->call);
	w->in_run = false;
	if (w->dead)
		watcher_free(w);
}

/* The watcher a message names, if it's one of this sandbox. */
static struct watcher *find(struct e2b_req *q, const json_t *msg)
{
	const char *id = json_string_value(e2b_member(msg, "watcherId", "watcher_id"));
	struct watcher *w = id ? map_get(q->api->e2b->watchers, id) : NULL;

	if (w && str_eq(w->sandbox, q->id))
		return w;
	e2b_fail_word(q, "not_found", "watcher with id %.64s not found", id ? id : "");
	return NULL;
}

void e2b_watcher_events(struct e2b_req *q, const json_t *msg)
{
	struct watcher *w = find(q, msg);
	json_t *events;

	if (!w)
		return;
	polled(w);
	if (w->lost) {                   /* told once; what came after starts afresh */
		e2b_fail_word(q, "resource_exhausted", "%u events were lost: more than %d came before they were asked for", w->lost, EVENTS_MAX);
		w->lost = 0;
		json_array_clear(w->events);
		return;
	}
	if (w->over && json_array_size(w->events) == 0) {
		e2b_fail(q, &w->why);
		return;
	}
	events = w->events;
	w->events = json_array();
	e2b_json(q, 200, json_pack("{s:o}", "events", events));
}

void e2b_watcher_remove(struct e2b_req *q, const json_t *msg)
{
	struct watcher *w = find(q, msg);

	if (!w)
		return;
	watcher_free(w);
	http_reply(q->r, 200, "application/json", "{}", 2);
}
