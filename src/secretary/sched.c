/* sched -- theory of operation.
 *
 * Life of a task: waiting → starting → working → claimed → done. An attempt that fails parks the task and it waits again later,
 * on a fresh computer. `edges` is the whole truth; a report that fits no edge comes from an attempt that is over and is dropped.
 *
 * Choosing is done in a job of the loop (kick), never inside a report, so a worker may report from anywhere. A task is ready when
 * the tasks of every [[task]] it needs are done; blocked as soon as one of them ended otherwise.
 *
 * How many at once: at most the limit; when the server has no computer to give (FAIL_BUSY) the number goes down to what runs now,
 * and up again by one with each task that is done. */
#include "secretary/sched.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/clock.h"
#include "core/str.h"

struct group { int first, n, done, over; };

struct sched {
	struct loop *loop;
	const struct spec *spec;
	json_t *const *rows;
	struct sched_ops ops;
	void *ctx;
	struct task *tasks;
	int n, running, over;
	int64_t limit, allowed;
	struct group groups[SPEC_TASKS];
	char stop_why[200];
	bool begun, broken, told;
	struct job kick;
	struct timer wake, deadline;
};

static const struct task_edge edges[] = {
	{ TASK_WAITING, EV_START, TASK_STARTING },
	{ TASK_STARTING, EV_UP, TASK_WORKING },
	{ TASK_WORKING, EV_CLAIM, TASK_CLAIMED },
	{ TASK_CLAIMED, EV_VERIFY, TASK_DONE },
	{ TASK_STARTING, EV_PARK, TASK_PARKED },
	{ TASK_WORKING, EV_PARK, TASK_PARKED },
	{ TASK_CLAIMED, EV_PARK, TASK_PARKED },
	{ TASK_PARKED, EV_WAKE, TASK_WAITING },
	{ TASK_STARTING, EV_FAIL, TASK_FAILED },
	{ TASK_WORKING, EV_FAIL, TASK_FAILED },
	{ TASK_CLAIMED, EV_FAIL, TASK_FAILED },
	{ TASK_WAITING, EV_BLOCK, TASK_BLOCKED },
	{ TASK_WAITING, EV_STOP, TASK_STOPPED },
	{ TASK_PARKED, EV_STOP, TASK_STOPPED },
	{ TASK_STARTING, EV_STOP, TASK_STOPPED },
	{ TASK_WORKING, EV_STOP, TASK_STOPPED },
	{ TASK_CLAIMED, EV_STOP, TASK_STOPPED },
	{ TASK_STARTING, EV_CUT, TASK_WAITING },
	{ TASK_WORKING, EV_CUT, TASK_WAITING },
	{ TASK_CLAIMED, EV_CUT, TASK_WAITING },
	{ TASK_PARKED, EV_CUT, TASK_WAITING },
	{ TASK_FAILED, EV_REOPEN, TASK_WAITING },
	{ TASK_BLOCKED, EV_REOPEN, TASK_WAITING },
	{ TASK_STOPPED, EV_REOPEN, TASK_WAITING },
};
static const char *const state_names[] = { "waiting", "parked", "starting", "working", "claimed", "done", "failed", "blocked", "stopped" };
static const char *const event_names[] = { "start", "up", "claim", "verify", "park", "wake", "fail", "block", "stop", "cut", "reopen" };

const struct task_edge *sched_edges(size_t *ret_n)
{
	*ret_n = sizeof edges / sizeof *edges;
	return edges;
}

const char *task_state_name(enum task_state s) { return state_names[s]; }

static json_t *line_of(const struct task *t, enum task_event ev, enum task_state to, int64_t now)
{
	json_t *v = json_pack("{s:I, s:s, s:s, s:s, s:i, s:i}", "t", (json_int_t)now, "task", t->id, "ev", event_names[ev], "to", state_names[to],
		"attempt", (int)t->attempt, "failures", (int)t->failures);

	if (!v)
		return NULL;
	if (*t->computer)
		json_object_set_new(v, "computer", json_string(t->computer));
	if (*t->why)
		json_object_set_new(v, "why", json_string(t->why));
	/* a claim that isn't verified is worth nothing after a restart: the result is written once, with the end */
	if (to == TASK_DONE && t->result)
		json_object_set(v, "result", t->result);
	return v;
}

static void apply(struct sched *s, struct task *t, enum task_state to, int64_t now)
{
	struct group *g = &s->groups[t->spec];

	if (task_over(t->state)) {
		g->over--;
		s->over--;
		g->done -= t->state == TASK_DONE;
	}
	t->state = to;
	if (task_over(to)) {
		g->over++;
		s->over++;
		g->done += to == TASK_DONE;
		t->ended = now;
	}
	if (to == TASK_STARTING && !t->started)
		t->started = now;
}

/* The only way from one state to another. False: no such edge (a late report), nothing happened. */
static bool sched_move(struct sched *s, struct task *t, enum task_event ev, const char *why)
{
	int64_t now = clock_wall_ms();

	for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
		enum task_state to = edges[i].to;

		if (edges[i].from != t->state || edges[i].event != ev)
			continue;
		str_copy(t->why, sizeof t->why, why ? why : "");
		if (!s->broken && s->ops.journal(s->ctx, line_of(t, ev, to, now), task_over(to)) < 0) {
			s->broken = true;       /* what can't be written down isn't done any more */
			sched_stop(s, "the journal can't be written");
			if (t->state != edges[i].from)  /* that was its end: nothing takes it out of there */
				return false;
		}
		if (s->broken && to == TASK_DONE)
			to = TASK_STOPPED;
		apply(s, t, to, now);
		t->now[0] = '\0';
		if (s->ops.changed)
			s->ops.changed(s->ctx, t);
		loop_defer(s->loop, &s->kick);
		return true;
	}
	return false;
}

static bool blocked_by(const struct sched *s, const struct task *t, const char **ret_by)
{
	const struct spec_task *st = &s->spec->tasks[t->spec];

	for (int i = 0; i < st->nneeds && !st->accept_failed; i++) {
		const struct group *g = &s->groups[st->needs[i]];

		if (g->over > g->done) {
			*ret_by = s->spec->tasks[st->needs[i]].id;
			return true;
		}
	}
	return false;
}

static bool ready(const struct sched *s, const struct task *t)
{
	const struct spec_task *st = &s->spec->tasks[t->spec];

	for (int i = 0; i < st->nneeds; i++) {
		if (s->groups[st->needs[i]].over < s->groups[st->needs[i]].n)
			return false;
	}
	return !t->slot;
}

static void block_some(struct sched *s)
{
	bool again = true;

	while (again) {
		again = false;
		for (int i = 0; i < s->n; i++) {
			char why[120];
			const char *by;

			if (s->tasks[i].state != TASK_WAITING || !blocked_by(s, &s->tasks[i], &by))
				continue;
			snprintf(why, sizeof why, "'%s', which it needs, wasn't done", by);
			again |= sched_move(s, &s->tasks[i], EV_BLOCK, why);
		}
	}
}

static void start_some(struct sched *s)
{
	for (int i = 0; i < s->n && s->running < s->allowed && !*s->stop_why; i++) {
		struct task *t = &s->tasks[i];

		if (t->state != TASK_WAITING || !ready(s, t))
			continue;
		t->attempt++;
		t->computer[0] = '\0';
		if (!sched_move(s, t, EV_START, NULL) || *s->stop_why)
			continue;
		t->slot = true;
		s->running++;
		s->ops.start(s->ctx, t);
	}
}

static void on_kick(struct job *j)
{
	struct sched *s = container_of(j, struct sched, kick);

	if (!s->begun)
		return;
	block_some(s);
	start_some(s);
	if (s->over == s->n && !s->running && !s->told) {
		s->told = true;
		loop_disarm(s->loop, &s->wake);
		loop_disarm(s->loop, &s->deadline);
		s->ops.finished(s->ctx);
	}
}

static void on_wake(struct timer *timer)
{
	struct sched *s = container_of(timer, struct sched, wake);
	int64_t now = clock_mono_ms(), next = INT64_MAX;

	for (int i = 0; i < s->n; i++) {
		struct task *t = &s->tasks[i];

		if (t->state != TASK_PARKED)
			continue;
		if (t->wake <= now && !t->slot)
			sched_move(s, t, EV_WAKE, t->why);
		else if (t->wake < next)
			next = t->slot && t->wake <= now ? now + 50 : t->wake;
	}
	if (next != INT64_MAX)
		loop_arm(s->loop, &s->wake, next > now ? next - now : 1);
}

static void on_deadline(struct timer *timer)
{
	sched_stop(container_of(timer, struct sched, deadline), SCHED_TIME_OVER " (limits.job_time)");
}

static int expand(struct sched *s, int *ret_n, struct err *e)
{
	int total = 0;

	for (int i = 0; i < s->spec->ntasks; i++) {
		int in = s->spec->tasks[i].input;
		size_t n = in < 0 ? 1 : json_array_size(s->rows[in]);

		if (n > (size_t)(SPEC_EXPANDED - total))
			return err_set(e, E2BIG, "the job has more than %d tasks", SPEC_EXPANDED);
		s->groups[i] = (struct group){ .first = total, .n = (int)n };
		total += (int)n;
	}
	*ret_n = total;
	return 0;
}

int sched_create(struct loop *l, const struct spec *spec, json_t *const *rows, const struct sched_ops *ops, void *ctx, struct sched **ret, struct err *e)
{
	struct sched *s = calloc(1, sizeof *s);
	int n = 0, r;

	if (!s)
		return err_set(e, ENOMEM, "no memory");
	s->loop = l;
	s->spec = spec;
	s->rows = rows;
	s->ops = *ops;
	s->ctx = ctx;
	s->kick.run = on_kick;
	s->wake.fire = on_wake;
	s->deadline.fire = on_deadline;
	r = expand(s, &n, e);
	if (r >= 0) {
		s->tasks = calloc((size_t)n + 1, sizeof *s->tasks);
		r = s->tasks ? 0 : err_set(e, ENOMEM, "no memory");
	}
	if (r < 0) {
		sched_free(s);
		return r;
	}
	s->n = n;
	for (int i = 0; i < spec->ntasks; i++) {
		int width = snprintf(NULL, 0, "%d", s->groups[i].n);

		for (int k = 0; k < s->groups[i].n; k++) {
			struct task *t = &s->tasks[s->groups[i].first + k];

			t->spec = i;
			t->row = spec->tasks[i].input < 0 ? -1 : k;
			if (t->row < 0)
				snprintf(t->id, sizeof t->id, "%s", spec->tasks[i].id);
			else
				snprintf(t->id, sizeof t->id, "%s.%0*d", spec->tasks[i].id, width, k + 1);
		}
	}
	*ret = s;
	return 0;
}

void sched_free(struct sched *s)
{
	if (!s)
		return;
	loop_disarm(s->loop, &s->wake);
	loop_disarm(s->loop, &s->deadline);
	loop_cancel(s->loop, &s->kick);
	for (int i = 0; i < s->n; i++)
		json_decref(s->tasks[i].result);
	free(s->tasks);
	free(s);
}

static int find_word(const char *const *words, int n, const char *word)
{
	for (int i = 0; i < n; i++) {
		if (word && str_eq(words[i], word))
			return i;
	}
	return -1;
}

int sched_replay(struct sched *s, const json_t *line, struct err *e)
{
	const char *id = NULL, *to = NULL, *computer = NULL, *why = "";
	int64_t attempt = 0, failures = 0, at = 0;
	struct task *t = NULL;
	int state;

	if (js_get_str(line, "task", &id, e) < 0 || js_get_str(line, "to", &to, e) < 0 || js_get_str(line, "computer", &computer, e) < 0
		|| js_get_str(line, "why", &why, e) < 0 || js_get_int(line, "attempt", 0, UINT32_MAX, &attempt, e) < 0
		|| js_get_int(line, "failures", 0, UINT32_MAX, &failures, e) < 0 || js_get_int(line, "t", 0, INT64_MAX, &at, e) < 0)
		return -EINVAL;
	if (!id)
		return 0;               /* a line of the job's own */
	for (int i = 0; i < s->n && !t; i++) {
		if (str_eq(s->tasks[i].id, id))
			t = &s->tasks[i];
	}
	state = find_word(state_names, TASK_STATES, to);
	if (!t || state < 0)
		return err_set(e, EBADMSG, "task '%.60s' or its state isn't known", id);
	t->attempt = (unsigned)attempt;
	t->failures = (unsigned)failures;
	str_copy(t->computer, sizeof t->computer, computer ? computer : "");
	str_copy(t->why, sizeof t->why, why);
	json_decref(t->result);
	t->result = json_incref(json_object_get(line, "result"));
	apply(s, t, (enum task_state)state, at);
	return 0;
}

int sched_begin(struct sched *s, int64_t computers, int64_t time, bool reopen, bool reopen_failed, struct err *e)
{
	s->limit = s->allowed = computers;
	for (int i = 0; i < s->n; i++) {
		struct task *t = &s->tasks[i];

		if (task_running(t->state) && s->spec->tasks[t->spec].once && t->state != TASK_STARTING)
			sched_move(s, t, EV_FAIL, "cut in the middle, and the task may not be repeated (once)");
		else if (task_running(t->state) || t->state == TASK_PARKED)
			sched_move(s, t, EV_CUT, NULL);
		else if (reopen && (t->state == TASK_STOPPED || (reopen_failed && (t->state == TASK_FAILED || t->state == TASK_BLOCKED)))) {
			t->failures = 0;
			sched_move(s, t, EV_REOPEN, NULL);
		}
	}
	if (s->broken)
		return err_set(e, EIO, "the journal can't be written");
	s->begun = true;
	if (*s->stop_why) {             /* a signal came before it began */
		char why[sizeof s->stop_why];

		str_copy(why, sizeof why, s->stop_why);
		s->stop_why[0] = '\0';
		sched_stop(s, why);
	}
	if (time <= 0)
		on_deadline(&s->deadline);
	else if (time < INT64_MAX)
		loop_arm(s->loop, &s->deadline, time);
	loop_defer(s->loop, &s->kick);
	return 0;
}

void sched_stop(struct sched *s, const char *why)
{
	if (*s->stop_why)
		return;
	str_copy(s->stop_why, sizeof s->stop_why, why);
	for (int i = 0; i < s->n; i++) {
		struct task *t = &s->tasks[i];

		if (t->slot && task_running(t->state))
			s->ops.stop(s->ctx, t);
		else if (!task_over(t->state))
			sched_move(s, t, EV_STOP, s->stop_why);
	}
	loop_defer(s->loop, &s->kick);
}

const char *sched_stop_why(const struct sched *s) { return *s->stop_why ? s->stop_why : NULL; }

void sched_up(struct sched *s, struct task *t, const char *computer)
{
	str_copy(t->computer, sizeof t->computer, computer);
	t->busy = 0;
	sched_move(s, t, EV_UP, NULL);
}

void sched_claimed(struct sched *s, struct task *t, json_t *result)
{
	json_decref(t->result);
	t->result = result;
	sched_move(s, t, EV_CLAIM, NULL);
}

void sched_verified(struct sched *s, struct task *t)
{
	if (sched_move(s, t, EV_VERIFY, NULL) && s->allowed < s->limit)
		s->allowed++;
}

static void park(struct sched *s, struct task *t, int64_t wait, const char *why)
{
	uint32_t dice;

	str_random(&dice, sizeof dice);
	wait += dice % (uint32_t)(wait / 2 + 1);
	if (!sched_move(s, t, EV_PARK, why))
		return;
	t->wake = clock_mono_ms() + wait;
	on_wake(&s->wake);
}

void sched_failed(struct sched *s, struct task *t, enum fail_kind kind, int64_t wait_ms, const char *why)
{
	int64_t wait = 200;
	unsigned times = kind == FAIL_BUSY ? t->busy++ : t->failures;

	for (unsigned i = 0; i < times && wait < 15000; i++)
		wait *= 2;
	if (wait_ms > wait)
		wait = wait_ms;
	if (kind == FAIL_BUSY) {
		/* this task's own slot is still counted */
		s->allowed = s->running > 2 ? s->running - 1 : 1;
		park(s, t, wait, why);
		return;
	}
	t->failures++;
	if (kind == FAIL_TRY && t->failures <= (unsigned)s->spec->tasks[t->spec].retries && !s->spec->tasks[t->spec].once) {
		park(s, t, wait, why);
		return;
	}
	if (sched_move(s, t, EV_FAIL, why) && !s->spec->limits.keep_going) {
		char text[160];

		snprintf(text, sizeof text, "task '%s' failed and keep_going is off", t->id);
		sched_stop(s, text);
	}
}

void sched_stopped(struct sched *s, struct task *t)
{
	sched_move(s, t, EV_STOP, s->stop_why);
}

void sched_release(struct sched *s, struct task *t)
{
	if (!t->slot)
		return;
	t->slot = false;
	s->running--;
	loop_defer(s->loop, &s->kick);
}

struct task *sched_tasks(struct sched *s, int *ret_n)
{
	*ret_n = s->n;
	return s->tasks;
}

struct task *sched_of_spec(struct sched *s, int spec, int *ret_n)
{
	*ret_n = s->groups[spec].n;
	return &s->tasks[s->groups[spec].first];
}

const json_t *sched_row(const struct sched *s, const struct task *t)
{
	return t->row < 0 ? NULL : json_array_get(s->rows[s->spec->tasks[t->spec].input], (size_t)t->row);
}

void sched_count(const struct sched *s, int count[TASK_STATES])
{
	for (int i = 0; i < TASK_STATES; i++)
		count[i] = 0;
	for (int i = 0; i < s->n; i++)
		count[s->tasks[i].state]++;
}


bool sched_ok(const struct sched *s)
{
	for (int i = 0; i < s->n; i++) {
		if (s->tasks[i].state != TASK_DONE)
			return false;
	}
	return true;
}
