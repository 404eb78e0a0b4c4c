/* spec_check -- what belongs together across the tables of a job file. All of it is checked before the first computer starts. */
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include "core/str.h"
#include "secretary/fill.h"
#include "secretary/spec_priv.h"
#include "secretary/subst.h"

struct kind {
	const char *name;
	size_t field;                  /* of struct spec_step */
	enum step_kind kind;
	const char *also;              /* other keys it may have */
	bool in_check;                 /* may stand in [[task.check]] */
};
static const struct kind kinds[] = {
	{ "run", offsetof(struct spec_step, run), STEP_RUN, " env cwd user input expect capture timeout ", true },
	{ "shell", offsetof(struct spec_step, shell), STEP_SHELL, " env cwd user input expect capture timeout ", true },
	{ "put", offsetof(struct spec_step, put), STEP_PUT, " to mode user ", false },
	{ "put_part", offsetof(struct spec_step, put_part), STEP_PUT_PART, " to mode user ", false },
	{ "put_files", offsetof(struct spec_step, put_files), STEP_PUT_FILES, " to user ", false },
	{ "write", offsetof(struct spec_step, write), STEP_WRITE, " content mode user ", false },
	{ "get", offsetof(struct spec_step, get), STEP_GET, " to user show optional capture ", false },
	{ "exists", offsetof(struct spec_step, exists), STEP_EXISTS, " user ", true },
};
#define NKINDS (sizeof kinds / sizeof *kinds)

const char *step_kind_name(enum step_kind k)
{
	for (size_t i = 0; i < NKINDS; i++) {
		if (kinds[i].kind == k)
			return kinds[i].name;
	}
	return "?";
}

struct names { const struct spec *s; const struct spec_task *t; const json_t *rows; /* NULL: not read yet */ };

static int results_name(const struct names *n, const char *rest, struct err *e)
{
	const char *dot = strchr(rest, '.');
	char id[72];
	bool needed = false;
	int i;

	if (!dot || (size_t)(dot - rest) >= sizeof id)
		return err_set(e, EINVAL, "write {{tasks.ID.result.NAME}} or {{tasks.ID.results}}");
	memcpy(id, rest, (size_t)(dot - rest));
	id[dot - rest] = '\0';
	i = spec_find(n->s, id);
	if (i < 0)
		return err_set(e, EINVAL, "there is no task '%s'", id);
	for (int k = 0; k < n->t->nneeds; k++)
		needed |= n->t->needs[k] == i;
	if (!needed)
		return err_set(e, EINVAL, "'%s' must be in needs of '%s' before its result can be used", id, n->t->id);
	if (str_eq(dot, ".results"))
		return 0;
	if (str_starts(dot, ".result.") && n->s->tasks[i].input < 0)
		return 0;
	return err_set(e, EINVAL, n->s->tasks[i].input < 0 ? "write {{tasks.%s.result.NAME}} or {{tasks.%s.results}}" :
		"'%s' is one task a row: write {{tasks.%s.results}}", id, id);
}

/* Rows of JSON Lines need not be alike: one that has it will do, and a row without it fails its own task. */
static bool has_column(const json_t *rows, const char *name)
{
	json_t *row;
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
		if (json_object_get(row, name))
			return true;
	}
	return false;
}

static int check_name(void *ctx, const char *name, struct err *e)
{
	static const char *const fixed[] = { "job.id", "job.name", "task.id", "task.attempt" };
	const struct names *n = ctx;

	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
		if (str_eq(name, fixed[i]))
			return 0;
	}
	if (str_starts(name, "row.") && name[4]) {
		if (n->t->input < 0)
			return err_set(e, EINVAL, "{{%s}}: '%s' has no rows (each = \"INPUT\")", name, n->t->id);
		return !n->rows || has_column(n->rows, name + 4) ? 0 : err_set(e, EINVAL, "{{%.60s}}: no row of input '%s' has '%.60s'", name, n->t->each, name + 4);
	}
	if (str_starts(name, "tasks."))
		return results_name(n, name + 6, e);
	return err_set(e, EINVAL, "{{%.60s}} is not known", name);
}

/* Every text below v */
static int check_texts(const struct names *n, const struct toml *v, struct err *e)
{
	struct err why = { 0 };

	if (v->type == TOML_STR && subst_names(v->str, check_name, (void *)(uintptr_t)n, &why) < 0)
		return fill_error(n->s->file, v, e, "%s", why.msg);
	toml_each(m, v) {
		int r = check_texts(n, m, e);

		if (r < 0)
			return r;
	}
	return 0;
}

/* The argument of run that is a program's text for this interpreter, or NULL. */
static const struct toml *code_argument(const struct toml *run)
{
	static const struct { const char *program, *flag; } interpreters[] = {
		{ "sh", "c" }, { "bash", "c" }, { "dash", "c" }, { "zsh", "c" }, { "python3", "c" }, { "python", "c" }, { "node", "e" }, { "perl", "e" },
		{ "ruby", "e" },
	};
	const struct toml *a = run->first, *b = a ? a->next : NULL;
	const char *base, *slash;

	if (!b || !b->next || b->str[0] != '-')
		return NULL;
	slash = strrchr(a->str, '/');
	base = slash ? slash + 1 : a->str;
	for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters; i++) {
		if (str_eq(base, interpreters[i].program) && strstr(b->str, interpreters[i].flag))
			return b->next;
	}
	return NULL;
}

static int check_run(const struct spec *s, const struct spec_step *st, struct err *e)
{
	const struct toml *code;

	if (!st->run->count)
		return fill_error(s->file, st->run, e, "run is empty");
	toml_each(a, st->run) {
		if (a->type != TOML_STR)
			return fill_error(s->file, a, e, "run is an array of strings: [\"program\", \"argument\"]");
	}
	code = code_argument(st->run);
	if (code && subst_has(code->str))
		return fill_error(s->file, code, e, "no {{}} in a program's text: pass the value as an argument or in env");
	return 0;
}

static int check_env(const struct spec *s, const struct toml *env, struct err *e)
{
	if (!env)
		return 0;
	toml_each(v, env) {
		if (v->type != TOML_STR || !*v->key || strchr(v->key, '='))
			return fill_error(s->file, v, e, "env holds NAME = \"text\"");
	}
	return 0;
}

static int check_capture(const struct spec *s, const struct spec_step *st, struct err *e)
{
	static const char *const of_run[] = { "stdout", "stderr", "json", "exit", NULL }, *const of_get[] = { "text", "json", NULL };

	if (!st->capture)
		return 0;
	toml_each(v, st->capture) {
		const char *const *set = st->kind == STEP_GET ? of_get : of_run;

		while (*set && (v->type != TOML_STR || !str_eq(*set, v->str)))
			set++;
		if (!*set)
			return fill_error(s->file, v, e, st->kind == STEP_GET ? "capture from get: \"text\" or \"json\"" :
				"capture: \"stdout\", \"stderr\", \"json\" or \"exit\"");
	}
	return 0;
}

static int check_expect(const struct spec *s, const struct spec_step *st, struct err *e)
{
	const char *const patterns[] = { st->expect.stdout_matches, st->expect.stderr_matches };
	const struct toml *x = st->expect.exit;

	for (int i = 0; i < 2; i++) {
		regex_t re;

		if (!patterns[i] || subst_has(patterns[i]))
			continue;
		if (regcomp(&re, patterns[i], REG_EXTENDED | REG_NOSUB))
			return fill_error(s->file, st->expect_node, e, "'%.60s' is not an extended regular expression", patterns[i]);
		regfree(&re);
	}
	if (!x || x->type == TOML_INT)
		return 0;
	if (x->type != TOML_ARRAY || !x->count)
		return fill_error(s->file, x, e, "exit is a number or an array of numbers");
	toml_each(v, x) {
		if (v->type != TOML_INT)
			return fill_error(s->file, v, e, "exit is a number or an array of numbers");
	}
	return 0;
}

/* Exactly one kind, and only the keys that go with it. */
static int check_keys(const struct spec *s, struct spec_step *st, const struct toml *node, bool in_check, struct err *e)
{
	const struct kind *k = NULL;

	for (size_t i = 0; i < NKINDS; i++) {
		if (!toml_get(node, kinds[i].name))
			continue;
		if (k)
			return fill_error(s->file, node, e, "a step does one thing: '%s' or '%s'", k->name, kinds[i].name);
		k = &kinds[i];
	}
	if (!k)
		return fill_error(s->file, node, e, "a step needs one of run, shell, put, put_part, put_files, write, get, exists");
	if (in_check && !k->in_check)
		return fill_error(s->file, node, e, "a check may run, shell or exists, not %s", k->name);
	st->kind = k->kind;
	toml_each(v, node) {
		char word[40];

		snprintf(word, sizeof word, " %.30s ", v->key);
		if (!str_eq(v->key, k->name) && !str_eq(v->key, "title") && !strstr(k->also, word))
			return fill_error(s->file, v, e, "'%s' doesn't go with '%s'", v->key, k->name);
	}
	return 0;
}

static int check_files(struct spec *s, const struct spec_task *t, struct spec_step *st, const struct toml *node, struct err *e)
{
	bool needed = false;

	if ((st->kind == STEP_PUT || st->kind == STEP_PUT_PART || st->kind == STEP_PUT_FILES) && !st->to)
		return fill_error(s->file, node, e, "'to' is missing: where in the computer");
	if (st->kind == STEP_WRITE && !st->content)
		return fill_error(s->file, node, e, "'content' is missing");
	if (st->kind == STEP_PUT_PART && (t->input < 0 || !s->inputs[t->input].split_node))
		return fill_error(s->file, node, e, "put_part needs each = \"INPUT\" of an input with split");
	if (st->kind != STEP_PUT_FILES)
		return 0;
	st->files_of = spec_find(s, st->put_files);
	for (int k = 0; k < t->nneeds; k++)
		needed |= t->needs[k] == st->files_of;
	if (st->files_of < 0 || !needed)
		return fill_error(s->file, node, e, "put_files: '%.60s' must be in needs of '%s'", st->put_files, t->id);
	return 0;
}

static int check_steps(struct spec *s, const struct spec_task *t, const struct toml *nodes, struct spec_step *steps, bool in_check, struct err *e)
{
	const struct names names = { .s = s, .t = t };
	int i = 0, r;

	if (!nodes)
		return 0;
	toml_each(node, nodes) {
		struct spec_step *st = &steps[i++];

		r = check_keys(s, st, node, in_check, e);
		if (r >= 0 && st->run)
			r = check_run(s, st, e);
		if (r >= 0 && st->shell && subst_has(st->shell))
			r = fill_error(s->file, node, e, "no {{}} in shell: put the value into env and write \"$NAME\"");
		if (r >= 0)
			r = check_env(s, st->env, e);
		if (r >= 0)
			r = check_files(s, t, st, node, e);
		if (r >= 0)
			r = check_capture(s, st, e);
		if (r >= 0)
			r = check_expect(s, st, e);
		if (r >= 0)
			r = check_texts(&names, node, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_needs(const struct spec *s, struct spec_task *t, struct err *e)
{
	if (!t->needs_node)
		return 0;
	toml_each(v, t->needs_node) {
		int i = v->type == TOML_STR ? spec_find(s, v->str) : -1;

		if (i < 0)
			return fill_error(s->file, v, e, "needs: there is no task '%.60s'", v->type == TOML_STR ? v->str : "?");
		for (int k = 0; k < t->nneeds; k++) {
			if (t->needs[k] == i)
				return fill_error(s->file, v, e, "needs: '%s' is there twice", v->str);
		}
		t->needs[t->nneeds++] = i;      /* at most ntasks different ones */
	}
	return 0;
}

/* Depth first; a task met again on its own path is a cycle, told with the names on it. */
static int walk(const struct spec *s, int i, char *mark, int *path, int depth, struct err *e)
{
	char text[160] = "";

	if (mark[i] == 2)
		return 0;
	path[depth] = i;
	if (mark[i] == 1) {
		int from = 0;

		while (path[from] != i)
			from++;
		for (int k = from; k <= depth; k++) {
			size_t n = strlen(text);

			snprintf(text + n, sizeof text - n, "%s%s", k > from ? " needs " : "", s->tasks[path[k]].id);
		}
		return err_set(e, ELOOP, "%.60s:%d: tasks wait for each other: %s", s->file, s->tasks[i].line, text);
	}
	mark[i] = 1;
	for (int k = 0; k < s->tasks[i].nneeds; k++) {
		int r = walk(s, s->tasks[i].needs[k], mark, path, depth + 1, e);

		if (r < 0)
			return r;
	}
	mark[i] = 2;
	return 0;
}

static int check_computer(const struct spec *s, const struct spec_computer *c, int line, struct err *e)
{
	const struct toml at = { .line = line };

	if (!str_name(c->template))
		return fill_error(s->file, &at, e, "'%.60s' is not a template's name", c->template);
	if (!str_eq(c->net, "none") && !str_eq(c->net, "all"))
		return fill_error(s->file, &at, e, "net is \"none\" or \"all\"");
	return check_env(s, c->env, e);
}

static int check_task(struct spec *s, int index, struct err *e)
{
	struct spec_task *t = &s->tasks[index];
	const struct toml at = { .line = t->line };

	if (!t->id || !str_name(t->id) || strchr(t->id, '.') || strlen(t->id) > 40)
		return fill_error(s->file, &at, e, "a task needs an id of small letters, digits, '_', '-' (at most 40)");
	if (spec_find(s, t->id) != index)
		return fill_error(s->file, &at, e, "there are two tasks '%s'", t->id);
	if (!str_eq(t->worker, "steps"))
		return fill_error(s->file, &at, e, "worker '%.40s' is not known (this version has \"steps\")", t->worker);
	if (!t->nsteps)
		return fill_error(s->file, &at, e, "task '%s' has no [[task.step]]", t->id);
	for (int i = 0; t->each && i < s->ninputs; i++) {
		if (str_eq(s->inputs[i].name, t->each))
			t->input = i;
	}
	if (t->each && t->input < 0)
		return fill_error(s->file, &at, e, "each: there is no input '%.60s'", t->each);
	return check_computer(s, &t->computer, t->line, e);
}

int spec_check(struct spec *s, struct err *e)
{
	char mark[SPEC_TASKS] = { 0 };
	int path[SPEC_TASKS + 1], r = 0;

	for (int i = 0; i < s->ntasks && r >= 0; i++)
		r = check_task(s, i, e);
	for (int i = 0; i < s->ntasks && r >= 0; i++)
		r = check_needs(s, &s->tasks[i], e);
	for (int i = 0; i < s->ntasks && r >= 0; i++)
		r = walk(s, i, mark, path, 0, e);
	for (int i = 0; i < s->ntasks && r >= 0; i++) {
		struct spec_task *t = &s->tasks[i];
		const struct names names = { .s = s, .t = t };

		r = check_env(s, t->env, e);
		if (r >= 0 && t->env)
			r = check_texts(&names, t->env, e);
		if (r >= 0)
			r = check_steps(s, t, t->steps_node, t->steps, false, e);
		if (r >= 0)
			r = check_steps(s, t, t->checks_node, t->checks, true, e);
	}
	return r < 0 ? r : 0;
}

int spec_check_rows(const struct spec *s, json_t *const *rows, struct err *e)
{
	for (int i = 0; i < s->ntasks; i++) {
		const struct spec_task *t = &s->tasks[i];
		const struct toml *texts[] = { t->env, t->steps_node, t->checks_node };
		const struct names names = { .s = s, .t = t, .rows = t->input < 0 ? NULL : rows[t->input] };

		for (size_t k = 0; names.rows && k < 3; k++) {
			int r = texts[k] ? check_texts(&names, texts[k], e) : 0;

			if (r < 0)
				return r;
		}
	}
	return 0;
}
