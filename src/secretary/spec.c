/* spec -- the job file's tables into structs; what belongs together across tables is checked in spec_check.c. */
#include "secretary/spec.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include "core/str.h"
#include "secretary/fill.h"
#include "secretary/spec_priv.h"

#define AT(type, field) offsetof(struct type, field)

static const struct fill job_fields[] = {
	{ "name", FILL_STR, AT(spec_top, name), 0, 0 },
	{ "title", FILL_STR, AT(spec_top, title), 0, 0 },
	{ "description", FILL_STR, AT(spec_top, description), 0, 0 },
	{ "limits", FILL_TABLE, AT(spec_top, limits), 0, 0 },
	{ "computer", FILL_TABLE, AT(spec_top, computer), 0, 0 },
	{ "inputs", FILL_TABLE, AT(spec_top, inputs), 0, 0 },
	{ "task", FILL_ARRAY, AT(spec_top, task), 0, 0 },
};
static const struct fill limit_fields[] = {
	{ "computers", FILL_INT, AT(spec_limits, computers), 1, 1000 },
	{ "retries", FILL_INT, AT(spec_limits, retries), 0, 100 },
	{ "job_time", FILL_MS, AT(spec_limits, job_ms), 0, 0 },
	{ "task_time", FILL_MS, AT(spec_limits, task_ms), 0, 0 },
	{ "keep_going", FILL_BOOL, AT(spec_limits, keep_going), 0, 0 },
};
static const struct fill computer_fields[] = {
	{ "template", FILL_STR, AT(spec_computer, template), 0, 0 },
	{ "net", FILL_STR, AT(spec_computer, net), 0, 0 },
	{ "user", FILL_STR, AT(spec_computer, user), 0, 0 },
	{ "memory", FILL_BYTES, AT(spec_computer, memory), 0, 0 },
	{ "disk", FILL_BYTES, AT(spec_computer, disk), 0, 0 },
	{ "cpus", FILL_MILLI, AT(spec_computer, cpus), 1, 1024000 },
	{ "pids", FILL_INT, AT(spec_computer, pids), 1, 4194304 },
	{ "env", FILL_TABLE, AT(spec_computer, env), 0, 0 },
};
static const struct fill task_fields[] = {
	{ "id", FILL_STR, AT(spec_task, id), 0, 0 },
	{ "title", FILL_STR, AT(spec_task, title), 0, 0 },
	{ "each", FILL_STR, AT(spec_task, each), 0, 0 },
	{ "needs", FILL_ARRAY, AT(spec_task, needs_node), 0, 0 },
	{ "worker", FILL_STR, AT(spec_task, worker), 0, 0 },
	{ "computer", FILL_TABLE, AT(spec_task, computer_node), 0, 0 },
	{ "env", FILL_TABLE, AT(spec_task, env), 0, 0 },
	{ "timeout", FILL_MS, AT(spec_task, timeout_ms), 0, 0 },
	{ "retries", FILL_INT, AT(spec_task, retries), 0, 100 },
	{ "once", FILL_BOOL, AT(spec_task, once), 0, 0 },
	{ "accept_failed", FILL_BOOL, AT(spec_task, accept_failed), 0, 0 },
	{ "step", FILL_ARRAY, AT(spec_task, steps_node), 0, 0 },
	{ "check", FILL_ARRAY, AT(spec_task, checks_node), 0, 0 },
};
static const struct fill step_fields[] = {
	{ "title", FILL_STR, AT(spec_step, title), 0, 0 },
	{ "run", FILL_ARRAY, AT(spec_step, run), 0, 0 },
	{ "shell", FILL_STR, AT(spec_step, shell), 0, 0 },
	{ "put", FILL_STR, AT(spec_step, put), 0, 0 },
	{ "put_part", FILL_BOOL, AT(spec_step, put_part), 0, 0 },
	{ "put_files", FILL_STR, AT(spec_step, put_files), 0, 0 },
	{ "write", FILL_STR, AT(spec_step, write), 0, 0 },
	{ "get", FILL_STR, AT(spec_step, get), 0, 0 },
	{ "exists", FILL_STR, AT(spec_step, exists), 0, 0 },
	{ "to", FILL_STR, AT(spec_step, to), 0, 0 },
	{ "content", FILL_STR, AT(spec_step, content), 0, 0 },
	{ "mode", FILL_INT, AT(spec_step, mode), 1, 0777 },
	{ "cwd", FILL_STR, AT(spec_step, cwd), 0, 0 },
	{ "user", FILL_STR, AT(spec_step, user), 0, 0 },
	{ "input", FILL_STR, AT(spec_step, input), 0, 0 },
	{ "env", FILL_TABLE, AT(spec_step, env), 0, 0 },
	{ "expect", FILL_TABLE, AT(spec_step, expect_node), 0, 0 },
	{ "capture", FILL_TABLE, AT(spec_step, capture), 0, 0 },
	{ "timeout", FILL_MS, AT(spec_step, timeout_ms), 0, 0 },
	{ "show", FILL_BOOL, AT(spec_step, show), 0, 0 },
	{ "optional", FILL_BOOL, AT(spec_step, optional), 0, 0 },
};
static const struct fill expect_fields[] = {
	{ "exit", FILL_ANY, AT(spec_expect, exit), 0, 0 },
	{ "stdout_equals", FILL_STR, AT(spec_expect, stdout_equals), 0, 0 },
	{ "stdout_contains", FILL_STR, AT(spec_expect, stdout_contains), 0, 0 },
	{ "stdout_matches", FILL_STR, AT(spec_expect, stdout_matches), 0, 0 },
	{ "stderr_contains", FILL_STR, AT(spec_expect, stderr_contains), 0, 0 },
	{ "stderr_matches", FILL_STR, AT(spec_expect, stderr_matches), 0, 0 },
};
static const struct fill input_fields[] = {
	{ "csv", FILL_STR, AT(spec_input, csv), 0, 0 },
	{ "jsonl", FILL_STR, AT(spec_input, jsonl), 0, 0 },
	{ "rows", FILL_ARRAY, AT(spec_input, rows), 0, 0 },
	{ "split", FILL_TABLE, AT(spec_input, split_node), 0, 0 },
};
static const struct fill split_fields[] = {
	{ "file", FILL_STR, AT(spec_input, split.file), 0, 0 },
	{ "host_file", FILL_STR, AT(spec_input, split.host_file), 0, 0 },
	{ "separator", FILL_STR, AT(spec_input, split.separator), 0, 0 },
	{ "parts", FILL_INT, AT(spec_input, split.parts), 1, 1000 },
};

int spec_find(const struct spec *s, const char *id)
{
	for (int i = 0; i < s->ntasks; i++) {
		if (s->tasks[i].id && str_eq(s->tasks[i].id, id))
			return i;
	}
	return -1;
}

static int parse_steps(const struct spec *s, const struct toml *node, struct spec_step **ret, int *ret_n, struct err *e)
{
	struct spec_step *steps;
	int i = 0;

	if (!node)
		return 0;
	if (node->count > SPEC_STEPS)
		return fill_error(s->file, node, e, "more than %d steps", SPEC_STEPS);
	steps = calloc(node->count + 1, sizeof *steps);
	if (!steps)
		return err_set(e, ENOMEM, "no memory");
	*ret = steps;
	*ret_n = (int)node->count;
	toml_each(v, node) {
		struct spec_step *st = &steps[i++];
		int r;

		if (v->type != TOML_TABLE)
			return fill_error(s->file, v, e, "a step must be a table");
		st->line = v->line;
		st->files_of = -1;
		r = FILL(v, step_fields, st, s->file, e);
		if (r >= 0 && st->expect_node)
			r = FILL(st->expect_node, expect_fields, &st->expect, s->file, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int parse_task(struct spec *s, const struct toml *v, struct spec_task *t, struct err *e)
{
	int r;

	if (v->type != TOML_TABLE)
		return fill_error(s->file, v, e, "write tasks as [[task]]");
	t->line = v->line;
	t->input = -1;
	t->retries = s->limits.retries;
	t->timeout_ms = s->limits.task_ms;
	t->worker = "steps";
	t->computer = s->computer;
	r = FILL(v, task_fields, t, s->file, e);
	if (r >= 0 && t->computer_node)
		r = FILL(t->computer_node, computer_fields, &t->computer, s->file, e);
	if (r >= 0)
		r = parse_steps(s, t->steps_node, &t->steps, &t->nsteps, e);
	if (r >= 0)
		r = parse_steps(s, t->checks_node, &t->checks, &t->nchecks, e);
	return r;
}

static int parse_inputs(struct spec *s, const struct toml *node, struct err *e)
{
	toml_each(v, node) {
		struct spec_input *in;
		int r;

		if (s->ninputs == SPEC_INPUTS)
			return fill_error(s->file, v, e, "more than %d inputs", SPEC_INPUTS);
		if (v->type != TOML_TABLE || !str_name(v->key))
			return fill_error(s->file, v, e, "inputs are tables with a plain name: [inputs.rows]");
		in = &s->inputs[s->ninputs++];
		in->name = v->key;
		in->line = v->line;
		r = FILL(v, input_fields, in, s->file, e);
		if (r >= 0 && in->split_node)
			r = FILL(in->split_node, split_fields, in, s->file, e);
		if (r < 0)
			return r;
		if (!!in->csv + !!in->jsonl + !!in->rows + !!in->split_node != 1)
			return fill_error(s->file, v, e, "an input has exactly one of csv, jsonl, rows, split");
		if (in->split_node && (!in->split.file + !in->split.host_file != 1 || !in->split.parts))
			return fill_error(s->file, in->split_node, e, "split needs file (or host_file) and parts");
		if (in->split_node && in->split.separator && !*in->split.separator)
			return fill_error(s->file, in->split_node, e, "separator may not be empty");
	}
	return 0;
}

static int parse_all(struct spec *s, struct err *e)
{
	struct spec_top top = { 0 };
	int r = FILL(s->root, job_fields, &top, s->file, e);

	if (r < 0)
		return r;
	s->name = top.name;
	s->title = top.title ? top.title : top.name;
	s->description = top.description;
	if (!s->name || !str_name(s->name))
		return fill_error(s->file, s->root, e, "a job needs a name of small letters, digits, '.', '_', '-'");
	s->limits = (struct spec_limits){ .computers = 4, .retries = 1, .job_ms = 3600000, .task_ms = 600000, .keep_going = true };
	s->computer = (struct spec_computer){ .template = "base", .net = "none" };
	if (top.limits)
		r = FILL(top.limits, limit_fields, &s->limits, s->file, e);
	if (r >= 0 && top.computer)
		r = FILL(top.computer, computer_fields, &s->computer, s->file, e);
	if (r >= 0 && top.inputs)
		r = parse_inputs(s, top.inputs, e);
	if (r < 0)
		return r;
	if (!top.task || !top.task->count)
		return fill_error(s->file, s->root, e, "a job needs at least one [[task]]");
	if (top.task->count > SPEC_TASKS)
		return fill_error(s->file, top.task, e, "more than %d [[task]] entries", SPEC_TASKS);
	s->tasks = calloc(top.task->count, sizeof *s->tasks);
	if (!s->tasks)
		return err_set(e, ENOMEM, "no memory");
	toml_each(v, top.task) {
		r = parse_task(s, v, &s->tasks[s->ntasks++], e);
		if (r < 0)
			return r;
	}
	return spec_check(s, e);
}

void spec_free(struct spec *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->ntasks; i++) {
		free(s->tasks[i].steps);
		free(s->tasks[i].checks);
	}
	free(s->tasks);
	toml_free(s->root);
	free(s->file);
	free(s);
}

int spec_parse(const char *text, size_t n, const char *name, struct spec **ret, struct err *e)
{
	struct spec *s = calloc(1, sizeof *s);
	int r;

	if (s)
		s->file = strdup(name);
	if (!s || !s->file) {
		spec_free(s);
		return err_set(e, ENOMEM, "no memory");
	}
	r = toml_parse(text, n, name, &s->root, e);
	if (r >= 0)
		r = parse_all(s, e);
	if (r < 0) {
		spec_free(s);
		return r;
	}
	*ret = s;
	return 0;
}
