/* values -- what {{row.NAME}}, {{tasks.ID.result.NAME}}, {{tasks.ID.results}}, {{task.…}} and {{job.…}} stand for. */
#include <errno.h>
#include <stdio.h>
#include "core/str.h"
#include "secretary/secretary.h"

/* All results of a [[task]]: [{"task":"a.1","row":{…},"result":{…}}…], only of those that are done. */
static json_t *results_of(struct secretary *s, int spec)
{
	json_t *all = json_array();
	int n;
	struct task *t = sched_of_spec(s->sched, spec, &n);

	for (int i = 0; all && i < n; i++) {
		json_t *o;

		if (t[i].state != TASK_DONE)
			continue;
		o = json_pack("{s:s}", "task", t[i].id);
		if (sched_row(s->sched, &t[i]))
			json_object_set(o, "row", (json_t *)(uintptr_t)sched_row(s->sched, &t[i]));
		json_object_set_new(o, "result", t[i].result ? json_incref(t[i].result) : json_object());
		json_array_append_new(all, o);
	}
	return all;
}

static int task_value(struct secretary *s, const char *rest, json_t **ret, struct err *e)
{
	const char *dot = strchr(rest, '.');
	char id[72];
	int spec, n;
	struct task *t;
	json_t *v;

	if (!dot || (size_t)(dot - rest) >= sizeof id)
		return err_set(e, ENOENT, "{{tasks.%.60s}} is not known", rest);
	memcpy(id, rest, (size_t)(dot - rest));
	id[dot - rest] = '\0';
	spec = spec_find(s->spec, id);
	if (spec < 0)
		return err_set(e, ENOENT, "there is no task '%s'", id);
	if (str_eq(dot, ".results")) {
		*ret = results_of(s, spec);
		return *ret ? 0 : err_set(e, ENOMEM, "no memory");
	}
	t = sched_of_spec(s->sched, spec, &n);
	v = str_starts(dot, ".result.") ? json_object_get(t->result, dot + 8) : NULL;
	if (!v)
		return err_set(e, ENOENT, "task '%s' has no result '%.60s'", id, str_starts(dot, ".result.") ? dot + 8 : dot);
	*ret = json_incref(v);
	return 0;
}

int values_get(void *values, const char *name, json_t **ret, struct err *e)
{
	struct values *v = values;
	json_t *m = NULL;

	if (str_starts(name, "tasks."))
		return task_value(v->s, name + 6, ret, e);
	if (str_starts(name, "row.")) {
		m = json_object_get(sched_row(v->s->sched, v->t), name + 4);
		if (!m)
			return err_set(e, ENOENT, "the row has no '%.60s'", name + 4);
		*ret = json_incref(m);
		return 0;
	}
	if (str_eq(name, "job.id"))
		m = json_string(v->s->id);
	else if (str_eq(name, "job.name"))
		m = json_string(v->s->spec->name);
	else if (str_eq(name, "task.id"))
		m = json_string(v->t->id);
	else if (str_eq(name, "task.attempt"))
		m = json_integer(v->t->attempt);
	if (!m)
		return err_set(e, ENOENT, "{{%.60s}} is not known", name);
	*ret = m;
	return 0;
}
