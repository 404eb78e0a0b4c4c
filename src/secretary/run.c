/* run -- the worker "steps": one attempt of a task on a computer of its own.
 *
 * Theory of operation. run_start asks for a computer that carries the job, task and attempt in its metadata, and ends by itself soon
 * after the task's time is over, so nothing of a dead secretary stays for ever. Then step after step (step.c), then the checks, each
 * ending in run_step_done(). outcome() is the one place where an attempt ends: it tells the scheduler, writes the record, and has the
 * computer killed; only when that is answered is the slot given back and the run freed. When creating was cut so that nobody knows
 * whether there is a computer, it's looked for by its metadata instead.
 *
 * A timer bounds the attempt. A stop from outside goes the same way out. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "core/clock.h"
#include "core/str.h"
#include "secretary/run_priv.h"

#define LEASE_EXTRA_MS 120000
#define ATTEMPTS_KEPT 20

const struct spec_step *run_spec(const struct run *r)
{
	return r->checking ? &r->spec->checks[r->step] : &r->spec->steps[r->step];
}

const json_t *run_steps(const struct task *t)
{
	const struct run *r = t->run;

	return r ? r->steps : NULL;
}

static void run_free(struct run *r)
{
	loop_disarm(r->s->loop, &r->limit);
	step_cancel(r);
	keep_done(&r->out);
	keep_done(&r->err);
	json_decref(r->steps);
	json_decref(r->record);
	json_decref(r->result);
	json_decref(r->files);
	free(r->input);
	r->t->run = NULL;
	free(r);
}

static void released(struct run *r)
{
	struct secretary *s = r->s;
	struct task *t = r->t;

	run_free(r);
	sched_release(s->sched, t);
}

static void on_killed(void *ctx, const struct client_answer *a)
{
	struct run *r = ctx;

	r->call = NULL;
	/* gone already is fine; a server that doesn't answer will end it by its lease, and the sweep at the job's end tries again */
	released(r);
}

static void on_swept(void *ctx, int killed, const struct err *e)
{
	struct run *r = ctx;

	r->sweep = NULL;
	released(r);
}

/* tasks/TASK.json: every attempt so far, the newest last */
static void record_write(struct run *r)
{
	char path[96];
	AUTO_BUF struct buf b = BUF_INIT(64u << 20);
	AUTO_FREE char *text = NULL;
	AUTO_JSON json_t *all = NULL;
	AUTO_FD int fd = -1;
	struct err e;
	size_t n;

	snprintf(path, sizeof path, "tasks/%s.json", r->t->id);
	if (fd_read_file(r->s->dirfd, path, 64u << 20, &text, &n, &e) < 0 || js_parse(text, n, &all, &e) < 0 || !json_is_array(all)) {
		json_decref(all);
		all = json_array();
	}
	while (json_array_size(all) >= ATTEMPTS_KEPT)
		json_array_remove(all, 0);
	json_array_append(all, r->record);
	js_dump(all, &b);
	if (!buf_ok(&b))
		return;
	/* no fsync: the journal decides what was done, this only tells how */
	fd = openat(r->s->dirfd, "tasks/.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && fd_write_all(fd, buf_at(&b), b.len, &e) == 0)
		renameat(r->s->dirfd, "tasks/.new", r->s->dirfd, path);
}

static void record_end(struct run *r, const char *why)
{
	json_object_set_new(r->record, "ended", json_integer(clock_wall_ms()));
	json_object_set_new(r->record, "computer", json_string(r->id));
	if (why)
		json_object_set_new(r->record, "error", json_string(why));
	record_write(r);
}

/* The attempt is over. why NULL = done. */
static void outcome(struct run *r, enum fail_kind kind, int64_t wait_ms, const char *why)
{
	struct secretary *s = r->s;
	struct task *t = r->t;
	bool known = *r->id || !r->late;
	char path[96];

	if (r->ended)
		return;
	r->ended = true;
	loop_disarm(s->loop, &r->limit);
	step_cancel(r);
	record_end(r, r->stopping ? "stopped" : why);
	if (r->stopping)
		sched_stopped(s->sched, t);
	else if (why)
		sched_failed(s->sched, t, kind, wait_ms, why);
	else
		sched_verified(s->sched, t);
	if (!known) {
		r->sweep = sweep_start(s, t->id, t->attempt, on_swept, r);
		if (!r->sweep)
			released(r);
		return;
	}
	if (!*r->id) {
		released(r);
		return;
	}
	snprintf(path, sizeof path, "/v1/sandboxes/%s", r->id);
	r->call = client_json(s->client, "DELETE", path, NULL, false, on_killed, r);
	if (!r->call)
		released(r);
}

static void step_next(struct run *r)
{
	int n = r->checking ? r->spec->nchecks : r->spec->nsteps;

	if (r->step < n) {
		const struct spec_step *st = run_spec(r);

		snprintf(r->t->now, sizeof r->t->now, "%s %d/%d %.40s", r->checking ? "check" : "step", r->step + 1, n,
			st->title ? st->title : step_kind_name(st->kind));
		progress_task(r->s->progress, r->t);
		step_begin(r);
		return;
	}
	if (r->checking) {
		outcome(r, FAIL_TRY, 0, NULL);
		return;
	}
	sched_claimed(r->s->sched, r->t, json_incref(r->result));
	r->checking = true;
	r->step = 0;
	if (!r->ended)
		step_next(r);
}

void run_step_done(struct run *r, int kind, int64_t wait_ms, const char *why, ...)
{
	const struct spec_step *st = run_spec(r);
	json_t *step = json_array_get(r->steps, json_array_size(r->steps) - 1);
	char text[320] = "", full[320];
	va_list ap;

	if (r->ended)
		return;
	if (why) {
		va_start(ap, why);
		vsnprintf(text, sizeof text, why, ap);
		va_end(ap);
	}
	json_object_set_new(step, "ended", json_integer(clock_wall_ms()));
	if (r->out.total)
		json_object_set_new(step, "stdout", keep_text(&r->out));
	if (r->err.total)
		json_object_set_new(step, "stderr", keep_text(&r->err));
	if (json_array_size(r->files)) {
		json_object_set_new(step, "files", r->files);
		r->files = json_array();
	}
	if (why)
		json_object_set_new(step, "error", json_string(text));
	keep_done(&r->out);
	keep_done(&r->err);
	keep_init(&r->out);
	keep_init(&r->err);
	if (why) {
		snprintf(full, sizeof full, "%s %d (%.60s): %.220s", r->checking ? "check" : "step", r->step + 1,
			st->title ? st->title : step_kind_name(st->kind), text);
		outcome(r, kind, wait_ms, full);
		return;
	}
	r->step++;
	step_next(r);
}

/* What a dead computer died of: its tombstone knows. */
static void on_tombstone(void *ctx, const struct client_answer *a)
{
	struct run *r = ctx;
	const char *state = "", *why = NULL;

	r->call = NULL;
	js_get_str(a->result, "state", &state, NULL);
	js_get_str(a->result, "why_text", &why, NULL);
	if (!why)
		js_get_str(a->result, "why", &why, NULL);
	if (!a->e && str_eq(state, "ended"))
		run_step_done(r, FAIL_TRY, 0, "the computer ended: %s", why ? why : "for no known reason");
	else
		run_step_done(r, FAIL_TRY, 0, "%s", r->t->why);
}

void run_step_failed(struct run *r, const struct err *e, int64_t retry_ms)
{
	char path[96];

	if (r->ended)
		return;
	if (e->code == EAGAIN || e->code == ECONNREFUSED) {
		run_step_done(r, FAIL_BUSY, retry_ms, "%s", e->msg);
		return;
	}
	str_copy(r->t->why, sizeof r->t->why, e->msg);
	snprintf(path, sizeof path, "/v1/sandboxes/%s", r->id);
	if (e->code == ENOENT || e->code == EIO || e->code == EPIPE)
		r->call = client_json(r->s->client, "GET", path, NULL, false, on_tombstone, r);
	if (!r->call)
		run_step_done(r, e->code == EINVAL || e->code == EACCES || e->code == EPERM ? FAIL_FINAL : FAIL_TRY, 0, "%s", e->msg);
}

static void on_limit(struct timer *timer)
{
	struct run *r = container_of(timer, struct run, limit);
	char why[120], *at = why;

	snprintf(at, sizeof why, "the task's time is over (%llu s)", (unsigned long long)(r->spec->timeout_ms / 1000));
	if (*r->id && json_array_size(r->steps)) {
		run_step_done(r, FAIL_TRY, 0, "%s", why);
		return;
	}
	r->late = !*r->id;
	outcome(r, FAIL_TRY, 0, why);
}

static void on_created(void *ctx, const struct client_answer *a)
{
	struct run *r = ctx;
	const char *id = NULL;
	struct err e = { 0 };

	r->call = NULL;
	if (!a->e && js_get_str(a->result, "id", &id, &e) == 1 && str_id(id)) {
		str_copy(r->id, sizeof r->id, id);
		sched_up(r->s->sched, r->t, id);
		if (r->stopping)
			outcome(r, FAIL_TRY, 0, NULL);
		else
			step_next(r);
		return;
	}
	if (a->e)
		e = *a->e;
	else
		err_set(&e, EPIPE, "the server's answer has no id");
	err_wrap(&e, "start a computer");
	if (e.code == ENOENT && *e.hint)
		snprintf(e.msg + strlen(e.msg), sizeof e.msg - strlen(e.msg), " (%s)", e.hint);
	if (e.code == EPIPE) {
		/* there may be a computer or not: look for it, then try again */
		r->late = true;
		outcome(r, FAIL_BUSY, 0, e.msg);
	} else if (e.code == EAGAIN || e.code == ECONNREFUSED) {
		outcome(r, FAIL_BUSY, a->retry_ms, e.msg);
	} else {
		outcome(r, e.code == EINVAL || e.code == EACCES || e.code == EPERM || e.code == ENOENT ? FAIL_FINAL : FAIL_TRY, 0, e.msg);
	}
}

static json_t *create_args(const struct run *r)
{
	const struct spec_computer *c = &r->spec->computer;
	uint64_t life = r->spec->timeout_ms ? r->spec->timeout_ms + LEASE_EXTRA_MS : 0;
	char attempt[16];
	json_t *a;

	snprintf(attempt, sizeof attempt, "%u", r->t->attempt);
	a = json_pack("{s:s, s:s, s:I, s:{s:s, s:s, s:s}}", "template", c->template, "net", c->net, "timeout_ms", (json_int_t)life, "metadata",
		"job", r->s->id, "task", r->t->id, "attempt", attempt);
	if (a && c->memory)
		json_object_set_new(a, "memory", json_integer((json_int_t)c->memory));
	if (a && c->disk)
		json_object_set_new(a, "disk", json_integer((json_int_t)c->disk));
	if (a && c->cpus)
		json_object_set_new(a, "cpu", json_integer(c->cpus));
	if (a && c->pids)
		json_object_set_new(a, "pids", json_integer(c->pids));
	if (a && c->env) {
		json_t *envs = json_object();

		toml_each(v, c->env)
			json_object_set_new(envs, v->key, json_string(v->str));
		json_object_set_new(a, "envs", envs);
	}
	return a;
}

/* What an earlier attempt handed in doesn't count. */
static void old_files_remove(const struct run *r)
{
	AUTO_FD int files = openat(r->s->dirfd, "files", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (files >= 0)
		fd_remove_tree(files, r->t->id, NULL);
}

void run_start(void *secretary, struct task *t)
{
	struct secretary *s = secretary;
	struct run *r = calloc(1, sizeof *r);

	if (!r) {
		sched_failed(s->sched, t, FAIL_BUSY, 1000, "no memory");
		sched_release(s->sched, t);
		return;
	}
	t->run = r;
	r->s = s;
	r->t = t;
	r->spec = &s->spec->tasks[t->spec];
	r->values = (struct values){ s, t };
	r->subst = (struct subst){ values_get, &r->values };
	r->fd = -1;
	r->limit.fire = on_limit;
	keep_init(&r->out);
	keep_init(&r->err);
	r->steps = json_array();
	r->files = json_array();
	r->result = json_object();
	r->record = json_pack("{s:i, s:I, s:O}", "attempt", (int)t->attempt, "started", (json_int_t)clock_wall_ms(), "steps", r->steps);
	old_files_remove(r);
	if (r->spec->timeout_ms) {
		r->deadline = clock_mono_ms() + (int64_t)r->spec->timeout_ms;
		loop_arm(s->loop, &r->limit, (int64_t)r->spec->timeout_ms);
	}
	r->call = client_json(s->client, "POST", "/v1/sandboxes", create_args(r), true, on_created, r);
	if (!r->call || !r->record)
		outcome(r, FAIL_BUSY, 1000, "no memory");
}

void run_stop(void *secretary, struct task *t)
{
	struct run *r = t->run;

	if (!r || r->ended || r->stopping)
		return;
	r->stopping = true;
	/* a computer that is being made is waited for, so that it can be ended */
	if (*r->id)
		outcome(r, FAIL_TRY, 0, NULL);
}
