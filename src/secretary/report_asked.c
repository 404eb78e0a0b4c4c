/* report_asked -- what the job asked for, from its file as it stands: also of tasks that never came to run. No values of variables. */
#include <stdlib.h>
#include "core/fd.h"
#include "core/str.h"
#include "secretary/report_priv.h"

#define STEP_TEXT 400

/* A step in a few words: its kind, what it's about, its title. */
static json_t *step_asked(const struct spec_step *st)
{
	const char *const about[] = { [STEP_SHELL] = st->shell, [STEP_PUT] = st->put, [STEP_PUT_PART] = "", [STEP_PUT_FILES] = st->put_files,
		[STEP_WRITE] = st->write, [STEP_GET] = st->get, [STEP_EXISTS] = st->exists };
	AUTO_BUF struct buf b = BUF_INIT(1u << 20);
	json_t *o = json_pack("{s:s}", "kind", step_kind_name(st->kind));

	if (st->kind == STEP_RUN) {
		toml_each(v, st->run) {
			if (b.len)
				buf_addc(&b, ' ');
			buf_adds(&b, v->str);
		}
	} else {
		buf_adds(&b, about[st->kind]);
	}
	if (b.len > STEP_TEXT) {
		size_t n = STEP_TEXT;

		while (n && ((unsigned char)buf_at(&b)[n] & 0xc0) == 0x80)
			n--;            /* not in the middle of a character */
		json_object_set_new(o, "what", json_stringn(buf_at(&b), n));
		json_object_set_new(o, "cut", json_true());
	} else if (b.len) {
		json_object_set_new(o, "what", json_stringn(buf_at(&b), b.len));
	}
	if (st->title)
		json_object_set_new(o, "title", json_string(st->title));
	return o;
}

static json_t *steps_asked(const struct spec_step *steps, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, step_asked(&steps[i]));
	return list;
}

json_t *report_asked(const struct spec *spec)
{
	json_t *all = json_array();

	for (int i = 0; i < spec->ntasks; i++) {
		const struct spec_task *t = &spec->tasks[i];
		json_t *needs = json_array(), *o = json_pack("{s:s, s:o, s:o, s:o}", "id", t->id, "needs", needs, "steps", steps_asked(t->steps, t->nsteps),
			"checks", steps_asked(t->checks, t->nchecks));

		for (int k = 0; k < t->nneeds; k++)
			json_array_append_new(needs, json_string(spec->tasks[t->needs[k]].id));
		if (t->title)
			json_object_set_new(o, "title", json_string(t->title));
		if (t->each)
			json_object_set_new(o, "each", json_string(t->each));
		json_array_append_new(all, o);
	}
	return all;
}

static void steps_page(struct buf *b, const json_t *steps, const char *word)
{
	json_t *st;
	size_t i;

	json_array_foreach(steps, i, st) {
		buf_printf(b, "<li>%s", word);
		html_text(b, json_string_value(json_object_get(st, "kind")));
		if (json_object_get(st, "what")) {
			buf_adds(b, " <code>");
			html_text(b, json_string_value(json_object_get(st, "what")));
			buf_printf(b, "%s</code>", json_object_get(st, "cut") ? " …" : "");
		}
		if (json_object_get(st, "title")) {
			buf_adds(b, " <span class=\"soft\">");
			html_text(b, json_string_value(json_object_get(st, "title")));
			buf_adds(b, "</span>");
		}
	}
}

void report_asked_page(struct buf *b, const json_t *asked)
{
	json_t *t, *need;
	size_t i, k;

	buf_adds(b, "<details><summary>What was asked</summary>");
	json_array_foreach(asked, i, t) {
		buf_adds(b, "<h3>");
		html_text(b, json_string_value(json_object_get(t, "id")));
		buf_adds(b, "</h3><div>");
		html_text(b, json_string_value(json_object_get(t, "title")));
		if (json_object_get(t, "each")) {
			buf_adds(b, " <span class=\"soft\">for each row of ");
			html_text(b, json_string_value(json_object_get(t, "each")));
			buf_adds(b, "</span>");
		}
		json_array_foreach(json_object_get(t, "needs"), k, need) {
			buf_adds(b, k ? ", " : " <span class=\"soft\">after ");
			html_text(b, json_string_value(need));
		}
		buf_printf(b, "%s</div><ol>", k ? "</span>" : "");
		steps_page(b, json_object_get(t, "steps"), "");
		steps_page(b, json_object_get(t, "checks"), "check: ");
		buf_adds(b, "</ol>");
	}
	buf_adds(b, "</details>\n");
}
