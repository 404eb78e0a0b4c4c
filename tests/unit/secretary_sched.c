/* The scheduler with a worker that is only a list: states, dependencies, retries, limits, replay. */
#include "secretary/sched.h"

#include <stdlib.h>
#include "core/fd.h"
#include "tap.h"

struct fake {
	struct loop *loop;
	struct sched *s;
	struct task *running[64];
	int n, peak, starts, finished;
	json_t *lines;
	bool broken;
};

static int on_journal(void *ctx, json_t *line, bool durable)
{
	struct fake *f = ctx;

	json_array_append_new(f->lines, line);
	return f->broken ? -28 : 0;
}

static void on_start(void *ctx, struct task *t)
{
	struct fake *f = ctx;

	f->running[f->n++] = t;
	f->starts++;
	f->peak = f->n > f->peak ? f->n : f->peak;
}

static void take_out(struct fake *f, struct task *t)
{
	for (int i = 0; i < f->n; i++) {
		if (f->running[i] == t)
			f->running[i] = f->running[--f->n];
	}
}

static void on_stop(void *ctx, struct task *t)
{
	struct fake *f = ctx;

	take_out(f, t);
	sched_stopped(f->s, t);
	sched_release(f->s, t);
}

static void on_finished(void *ctx)
{
	struct fake *f = ctx;

	f->finished++;
	loop_quit(f->loop, 0);
}

static const struct sched_ops ops = { .journal = on_journal, .start = on_start, .stop = on_stop, .finished = on_finished };

static struct spec *spec_of(const char *text)
{
	struct spec *s = NULL;
	struct err e = { 0 };

	if (spec_parse(text, strlen(text), "t.toml", &s, &e) < 0)
		printf("# %s\n", e.msg);
	return s;
}

static json_t *rows[SPEC_INPUTS];

static void begin(struct fake *f, struct spec *spec)
{
	struct err e = { 0 };

	*f = (struct fake){ .lines = json_array() };
	loop_create(&f->loop, &e);
	ok(sched_create(f->loop, spec, rows, &ops, f, &f->s, &e) == 0, "a schedule");
}

static void end(struct fake *f)
{
	sched_free(f->s);
	loop_free(f->loop);
	json_decref(f->lines);
}

static void good(struct fake *f, struct task *t)
{
	take_out(f, t);
	sched_up(f->s, t, "i23456789");
	sched_claimed(f->s, t, json_pack("{s:s}", "x", t->id));
	sched_verified(f->s, t);
	sched_release(f->s, t);
}

static void bad(struct fake *f, struct task *t, enum fail_kind kind)
{
	take_out(f, t);
	sched_up(f->s, t, "i23456789");
	sched_failed(f->s, t, kind, 0, "because");
	sched_release(f->s, t);
}

#define STEP "[[task.step]]\nrun=[\"true\"]\n"
static const char diamond[] = "name=\"d\"\n[limits]\ncomputers=2\nretries=1\n"
	"[[task]]\nid=\"a\"\n" STEP "[[task]]\nid=\"b\"\nneeds=[\"a\"]\n" STEP "[[task]]\nid=\"c\"\nneeds=[\"a\"]\n" STEP
	"[[task]]\nid=\"d\"\nneeds=[\"b\",\"c\"]\n" STEP "[[task]]\nid=\"e\"\nneeds=[\"d\"]\naccept_failed=true\n" STEP;

static void edges(void)
{
	size_t n;
	const struct task_edge *e = sched_edges(&n);
	bool ends[TASK_STATES] = { false };

	for (int s = 0; s < TASK_STATES; s++) {
		bool leaves = false;

		for (size_t i = 0; i < n; i++) {
			leaves |= e[i].from == (enum task_state)s;
			for (size_t k = i + 1; k < n; k++)
				if (e[i].from == e[k].from && e[i].event == e[k].event)
					ok(0, "two edges for one event");
		}
		ok(leaves || s == TASK_DONE, "%s can be left", task_state_name((enum task_state)s));
		ends[s] = task_over((enum task_state)s);
	}
	for (int round = 0; round < TASK_STATES; round++)
		for (size_t i = 0; i < n; i++)
			ends[e[i].from] |= ends[e[i].to];
	for (int s = 0; s < TASK_STATES; s++)
		ok(ends[s], "%s leads to an end", task_state_name((enum task_state)s));
}

static void order(struct spec *spec)
{
	struct fake f;
	struct err e = { 0 };

	begin(&f, spec);
	sched_begin(f.s, 2, INT64_MAX, false, false, &e);
	loop_turn(f.loop, 0);
	ok(f.n == 1 && !strcmp(f.running[0]->id, "a"), "only the first can start");
	good(&f, f.running[0]);
	loop_turn(f.loop, 0);
	ok(f.n == 2, "then two at once");
	good(&f, f.running[0]);
	loop_turn(f.loop, 0);
	ok(f.n == 1, "the last waits for both");
	good(&f, f.running[0]);
	loop_turn(f.loop, 0);
	good(&f, f.running[0]);
	loop_turn(f.loop, 0);
	good(&f, f.running[0]);
	loop_turn(f.loop, 0);
	ok(f.finished == 1 && sched_ok(f.s) && f.peak == 2, "all done, told once");
	end(&f);
}

static void failures(struct spec *spec)
{
	struct fake f;
	struct err e = { 0 };
	int count[TASK_STATES], n;
	struct task *t;

	begin(&f, spec);
	t = sched_tasks(f.s, &n);
	sched_begin(f.s, 2, INT64_MAX, false, false, &e);
	loop_turn(f.loop, 0);
	good(&f, f.running[0]);
	loop_turn(f.loop, 0);
	for (int i = 0; i < 200 && t[1].state != TASK_FAILED; i++) {
		while (f.n)
			bad(&f, f.running[0], FAIL_TRY);
		loop_turn(f.loop, 20);
	}
	ok(t[1].attempt == 2 && t[1].state == TASK_FAILED, "one retry, then failed");
	sched_verified(f.s, &t[1]);
	ok(t[1].state == TASK_FAILED, "a late report changes nothing");
	for (int i = 0; i < 200 && !f.finished; i++) {
		while (f.n) {
			if (f.running[0] == &t[4])
				good(&f, f.running[0]);
			else
				bad(&f, f.running[0], FAIL_TRY);
		}
		loop_turn(f.loop, 20);
	}
	sched_count(f.s, count);
	ok(count[TASK_BLOCKED] == 1 && t[3].state == TASK_BLOCKED && (strstr(t[3].why, "'b'") || strstr(t[3].why, "'c'")), "what needs it is blocked, by name: %s", t[3].why);
	ok(t[4].state == TASK_DONE && !sched_ok(f.s), "accept_failed goes on");
	end(&f);
}

static void busy(struct spec *spec)
{
	struct fake f;
	struct err e = { 0 };
	int n;
	struct task *t;

	begin(&f, spec);
	t = sched_tasks(f.s, &n);
	sched_begin(f.s, 2, INT64_MAX, false, false, &e);
	loop_turn(f.loop, 0);
	take_out(&f, &t[0]);
	sched_failed(f.s, &t[0], FAIL_BUSY, 0, "no room");
	ok(t[0].state == TASK_PARKED && t[0].failures == 0, "no room isn't a failure");
	for (int i = 0; i < 10; i++)
		loop_turn(f.loop, 50);
	ok(t[0].state == TASK_PARKED, "not again while its computer may still be there");
	sched_release(f.s, &t[0]);
	for (int i = 0; i < 40 && !f.n; i++)
		loop_turn(f.loop, 50);
	ok(f.n == 1 && t[0].attempt == 2, "then again, as attempt 2");
	sched_stop(f.s, "enough");
	loop_turn(f.loop, 0);
	ok(f.finished == 1 && t[0].state == TASK_STOPPED && t[3].state == TASK_STOPPED, "a stop ends all");
	end(&f);
}

static void replay(struct spec *spec)
{
	struct fake f, g;
	struct err e = { 0 };
	json_t *line;
	size_t i;
	int n;
	struct task *t;

	begin(&f, spec);
	sched_begin(f.s, 2, INT64_MAX, false, false, &e);
	loop_turn(f.loop, 0);
	good(&f, f.running[0]);
	loop_turn(f.loop, 0);
	sched_up(f.s, f.running[0], "i99999999");
	begin(&g, spec);
	json_array_foreach(f.lines, i, line)
		ok(sched_replay(g.s, line, &e) == 0, "line %zu", i);
	t = sched_tasks(g.s, &n);
	ok(t[0].state == TASK_DONE && !strcmp(json_string_value(json_object_get(t[0].result, "x")), "a"), "what was done is done, with its result");
	ok(t[1].state == TASK_WORKING && t[2].state == TASK_STARTING, "the others as they were");
	sched_begin(g.s, 2, INT64_MAX, true, false, &e);
	loop_turn(g.loop, 0);
	ok(g.starts == 2 && t[1].attempt == 2 && t[0].attempt == 1, "what was cut starts again under a new number; what was done doesn't");
	line = json_pack("{s:s,s:s}", "task", "nix", "to", "done");
	ok(sched_replay(g.s, line, &e) < 0, "an unknown task is refused");
	json_decref(line);
	sched_stop(g.s, "over");
	sched_stop(f.s, "over");
	loop_turn(g.loop, 0);
	loop_turn(f.loop, 0);
	end(&f);
	end(&g);
}

static void no_journal(struct spec *spec)
{
	struct fake f;
	struct err e = { 0 };
	int n;

	begin(&f, spec);
	sched_begin(f.s, 2, INT64_MAX, false, false, &e);
	loop_turn(f.loop, 0);
	f.broken = true;
	good(&f, f.running[0]);
	loop_turn(f.loop, 0);
	ok(f.finished && sched_tasks(f.s, &n)[0].state != TASK_DONE && sched_stop_why(f.s), "what can't be written down isn't done: all stops");
	end(&f);

	/* a task that is just being started, or has just got its computer */
	for (int up = 0; up < 2; up++) {
		begin(&f, spec);
		f.broken = !up;
		sched_begin(f.s, 2, INT64_MAX, false, false, &e);
		loop_turn(f.loop, 0);
		f.broken = true;
		if (up)
			sched_up(f.s, f.running[0], "c");
		for (int i = 0; i < 3; i++)
			loop_turn(f.loop, 0);
		ok(f.finished && sched_tasks(f.s, &n)[0].state == TASK_STOPPED, "and no task is left behind that nobody runs (%d)", up);
		end(&f);
	}
}

static void many(void)
{
	struct spec *spec = spec_of("name=\"m\"\n[inputs.r]\nrows=[{a=1}]\n[[task]]\nid=\"x\"\neach=\"r\"\n" STEP "[[task]]\nid=\"y\"\nneeds=[\"x\"]\n" STEP);
	struct fake f;
	struct err e = { 0 };
	int n;
	struct task *t;

	rows[0] = json_array();
	for (int i = 0; i < 200; i++)
		json_array_append_new(rows[0], json_pack("{s:i}", "a", i));
	begin(&f, spec);
	t = sched_tasks(f.s, &n);
	ok(n == 201 && !strcmp(t[7].id, "x.008") && json_integer_value(json_object_get(sched_row(f.s, &t[7]), "a")) == 7, "a task a row");
	sched_begin(f.s, 20, INT64_MAX, false, false, &e);
	for (int i = 0; i < 5000 && !f.finished; i++) {
		loop_turn(f.loop, 0);
		if (f.n)
			good(&f, f.running[i % f.n]);
	}
	ok(f.finished && sched_ok(f.s) && f.peak == 20 && f.starts == 201, "200 rows, 20 at once, each once");
	end(&f);
	spec_free(spec);
	json_decref(rows[0]);
}

int main(void)
{
	struct spec *spec = spec_of(diamond);

	ok(spec, "a job file");
	if (!spec)
		return done_testing();
	edges();
	order(spec);
	failures(spec);
	busy(spec);
	replay(spec);
	no_journal(spec);
	spec_free(spec);
	many();
	return done_testing();
}
