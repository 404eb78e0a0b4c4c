/* sweep -- ends computers that carry this job in their metadata: what a dead secretary left, what a cut create may have made. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/str.h"
#include "secretary/secretary.h"

#define SWEEP_MAX 10000

struct sweep {
	struct secretary *s;
	char task[64], attempt[16];
	struct client_call *call;
	json_t *ids;
	size_t at;
	int killed;
	char cursor[256];
	struct err err;
	void (*done)(void *ctx, int killed, const struct err *e);
	void *ctx;
};

static void sweep_free(struct sweep *w)
{
	client_cancel(w->call);
	json_decref(w->ids);
	free(w);
}

void sweep_cancel(struct sweep *w)
{
	if (w)
		sweep_free(w);
}

static void finish(struct sweep *w)
{
	struct err err = w->err;
	void (*done)(void *, int, const struct err *) = w->done;
	void *ctx = w->ctx;
	int killed = w->killed;

	sweep_free(w);
	done(ctx, killed, err.code ? &err : NULL);
}

static void kill_next(struct sweep *w);

static void on_killed(void *ctx, const struct client_answer *a)
{
	struct sweep *w = ctx;

	w->call = NULL;
	if (!a->e)
		w->killed++;
	else if (a->e->code != ENOENT)
		w->err = *a->e;
	w->at++;
	kill_next(w);
}

static void kill_next(struct sweep *w)
{
	char path[96];

	if (w->at == json_array_size(w->ids) || w->err.code == ECONNREFUSED) {
		finish(w);
		return;
	}
	snprintf(path, sizeof path, "/v1/sandboxes/%.40s", json_string_value(json_array_get(w->ids, w->at)));
	w->call = client_json(w->s->client, "DELETE", path, NULL, false, on_killed, w);
	if (!w->call)
		finish(w);
}

static bool ours(const struct sweep *w, const json_t *sandbox)
{
	json_t *m = json_object_get(sandbox, "metadata");
	const char *job = json_string_value(json_object_get(m, "job")), *task = json_string_value(json_object_get(m, "task")),
		*attempt = json_string_value(json_object_get(m, "attempt"));

	return job && str_eq(job, w->s->id) && (!*w->task || (task && attempt && str_eq(task, w->task) && str_eq(attempt, w->attempt)));
}

static void list_next(struct sweep *w);

static void on_list(void *ctx, const struct client_answer *a)
{
	struct sweep *w = ctx;
	json_t *list = NULL, *v;
	const char *next = NULL, *id;
	size_t i;

	w->call = NULL;
	if (a->e) {
		w->err = *a->e;
		finish(w);
		return;
	}
	js_get_arr(a->result, "sandboxes", &list, NULL);
	js_get_str(a->result, "next", &next, NULL);
	json_array_foreach(list, i, v) {
		id = json_string_value(json_object_get(v, "id"));
		if (id && str_id(id) && ours(w, v) && json_array_size(w->ids) < SWEEP_MAX)
			json_array_append_new(w->ids, json_string(id));
	}
	if (next && *next && str_copy(w->cursor, sizeof w->cursor, next) == 0)
		list_next(w);
	else
		kill_next(w);
}

static void list_next(struct sweep *w)
{
	json_t *args = json_pack("{s:{s:s}}", "metadata", "job", w->s->id);

	if (*w->cursor)
		json_object_set_new(args, "cursor", json_string(w->cursor));
	w->call = client_json(w->s->client, "GET", "/v1/sandboxes", args, false, on_list, w);
	if (!w->call)
		finish(w);
}

struct sweep *sweep_start(struct secretary *s, const char *task, unsigned attempt, void (*done)(void *, int, const struct err *), void *ctx)
{
	struct sweep *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	w->s = s;
	w->ids = json_array();
	w->done = done;
	w->ctx = ctx;
	if (task) {
		str_copy(w->task, sizeof w->task, task);
		snprintf(w->attempt, sizeof w->attempt, "%u", attempt);
	}
	list_next(w);
	return w;
}
