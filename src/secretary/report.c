/* report -- what was done, by whom, with what evidence: report.json for programs, report.html for people.
 *
 * The page is one file: no script, no link to another host (its own policy forbids both), every text escaped. What computers handed in
 * is shown as text, or as an image inside an <img>, where a script in an SVG never runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/clock.h"
#include "core/str.h"
#include "secretary/report_priv.h"

#define PAGE_MAX (96u << 20)
#define DETAILS 400                /* tasks told in full; of more, only those that weren't done */

static const char style[] =
	":root{color-scheme:light dark;--fg:#1c1e21;--bg:#fff;--soft:#5d6570;--line:#d9dde3;--card:#f6f7f9;--ok:#1a7f45;--bad:#b3261e;--warn:#8a5a00;"
	"--bar:#3d6fd6}"
	"@media(prefers-color-scheme:dark){:root{--fg:#e4e6ea;--bg:#15171a;--soft:#9aa3ae;--line:#33383f;--card:#1e2126;--ok:#5fce8d;--bad:#ff8a80;"
	"--warn:#f0c060;--bar:#7aa2f7}}"
	"*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:1100px;margin:0 auto;padding:24px}"
	"h1{margin:0 0 4px;font-size:26px}h2{margin:32px 0 8px;font-size:19px}h3{margin:16px 0 4px;font-size:15px}.soft{color:var(--soft)}"
	"table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}"
	".wide{overflow-x:auto}pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:8px 10px;overflow:auto;max-height:420px;"
	"white-space:pre-wrap;word-break:break-word;margin:4px 0 10px;font-size:13px}code{font-size:13px}"
	"details{border:1px solid var(--line);border-radius:8px;margin:8px 0;padding:6px 12px}summary{cursor:pointer}"
	".s{display:inline-block;border-radius:10px;padding:0 9px;font-size:13px;border:1px solid currentColor}"
	".done{color:var(--ok)}.failed,.bad{color:var(--bad)}.blocked,.stopped,.parked{color:var(--warn)}.waiting,.starting,.working,.claimed{color:var(--soft)}"
	"img{max-width:100%;background:#fff;border:1px solid var(--line);border-radius:6px}a{color:var(--bar)}"
	"svg .bar{fill:var(--bar)}svg .cut{fill:var(--bad)}svg .rest{fill:var(--warn)}svg text{fill:var(--soft);font:11px system-ui,sans-serif}svg line{stroke:var(--line)}";

void html_text(struct buf *b, const char *s)
{
	if (s)
		str_html(b, s, strlen(s));
}

void html_ms(struct buf *b, int64_t ms)
{
	if (ms < 60000)
		buf_printf(b, "%.1f s", (double)ms / 1000);
	else
		buf_printf(b, "%lld min %lld s", (long long)(ms / 60000), (long long)(ms / 1000 % 60));
}

static json_t *task_json(struct secretary *s, const struct task *t)
{
	json_t *o = json_pack("{s:s, s:s, s:i}", "id", t->id, "state", task_state_name(t->state), "attempts", (int)t->attempt);
	AUTO_FREE char *text = NULL;
	json_t *log = NULL;
	char path[96];
	size_t n;

	json_object_set_new(o, "computer", *t->computer ? json_string(t->computer) : json_null());
	json_object_set_new(o, "started", t->started ? json_integer(t->started) : json_null());
	json_object_set_new(o, "ended", task_over(t->state) ? json_integer(t->ended) : json_null());
	json_object_set_new(o, "error", t->state != TASK_DONE && *t->why ? json_string(t->why) : json_null());
	if (s->spec->tasks[t->spec].title)
		json_object_set_new(o, "title", json_string(s->spec->tasks[t->spec].title));
	if (sched_row(s->sched, t))
		json_object_set(o, "row", (json_t *)(uintptr_t)sched_row(s->sched, t));
	if (t->result)
		json_object_set(o, "result", t->result);
	snprintf(path, sizeof path, "tasks/%s.json", t->id);
	if (fd_read_file(s->dirfd, path, 64u << 20, &text, &n, NULL) >= 0 && js_parse(text, n, &log, NULL) >= 0)
		json_object_set_new(o, "log", log);
	return o;
}

json_t *report_document(struct secretary *s)
{
	const char *state = sched_ok(s->sched) ? "done" : sched_stop_why(s->sched) ? "stopped" : "failed";
	json_t *tasks = json_array(), *doc = json_object(), *counts = json_object();
	int count[TASK_STATES], n;
	struct task *t = sched_tasks(s->sched, &n);
	char report[PATH_MAX + 32];

	snprintf(report, sizeof report, "%s/report.html", s->dir);
	sched_count(s->sched, count);
	for (int i = 0; i < TASK_STATES; i++) {
		if (count[i])
			json_object_set_new(counts, task_state_name((enum task_state)i), json_integer(count[i]));
	}
	for (int i = 0; i < n; i++)
		json_array_append_new(tasks, task_json(s, &t[i]));
	json_object_set_new(doc, "job", json_pack("{s:s, s:s, s:s, s:s}", "id", s->id, "name", s->spec->name, "title", s->spec->title, "file", s->file));
	if (s->spec->description)
		json_object_set_new(json_object_get(doc, "job"), "description", json_string(s->spec->description));
	json_object_set_new(doc, "state", json_string(state));
	if (sched_stop_why(s->sched))
		json_object_set_new(doc, "why", json_string(sched_stop_why(s->sched)));
	json_object_set_new(doc, "server", json_string(s->where.url));
	json_object_set_new(doc, "created", json_integer(s->created));
	json_object_set_new(doc, "began", json_integer(s->began));
	json_object_set_new(doc, "ended", json_integer(s->ended));
	json_object_set_new(doc, "ran_ms", json_integer(job_ran(s)));
	json_object_set_new(doc, "runs", json_integer(s->runs));
	json_object_set_new(doc, "counts", counts);
	json_object_set_new(doc, "asked", report_asked(s->spec));
	json_object_set_new(doc, "tasks", tasks);
	json_object_set_new(doc, "report", json_string(report));
	return doc;
}

static void badge(struct buf *b, const char *state)
{
	buf_printf(b, "<span class=\"s %s\">%s</span>", state, state);
}

static void head(struct secretary *s, struct buf *b, const json_t *doc)
{
	const char *key, *state = json_string_value(json_object_get(doc, "state"));
	char when[32];
	json_t *v;

	buf_adds(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
		"<meta name=\"referrer\" content=\"no-referrer\"><title>");
	html_text(b, s->spec->title);
	buf_printf(b, "</title><style>%s</style></head><body><h1>", style);
	html_text(b, s->spec->title);
	buf_adds(b, " ");
	badge(b, state);
	buf_adds(b, "</h1><p class=\"soft\">");
	html_text(b, s->id);
	clock_rfc3339(s->began, when);
	buf_printf(b, " &middot; began %s &middot; took ", when);
	html_ms(b, job_ran(s));
	if (s->runs > 1)
		buf_printf(b, " in %u runs", s->runs);
	json_object_foreach(json_object_get(doc, "counts"), key, v)
		buf_printf(b, " &middot; %lld %s", (long long)json_integer_value(v), key);
	buf_adds(b, "</p>");
	if (s->spec->description) {
		buf_adds(b, "<p>");
		html_text(b, s->spec->description);
		buf_adds(b, "</p>");
	}
	if (sched_stop_why(s->sched)) {
		buf_adds(b, "<p class=\"bad\">Stopped: ");
		html_text(b, sched_stop_why(s->sched));
		buf_adds(b, "</p>");
	}
	for (int i = 0; i < s->spec->ninputs; i++) {
		if (!s->spec->inputs[i].split.host_file)
			continue;
		buf_adds(b, "<p class=\"soft\">Input from this machine: <code>");
		html_text(b, s->spec->inputs[i].split.host_file);
		buf_adds(b, "</code></p>");
	}
}

static void table(struct buf *b, const json_t *doc)
{
	json_t *t;
	size_t i;

	buf_adds(b, "<h2>Tasks</h2><div class=\"wide\"><table><tr><th>task<th>state<th>attempts<th>computer<th>took<th>why</tr>\n");
	json_array_foreach(json_object_get(doc, "tasks"), i, t) {
		int64_t from = json_integer_value(json_object_get(t, "started")), to = json_integer_value(json_object_get(t, "ended"));

		buf_adds(b, "<tr><td><a href=\"#t-");
		html_text(b, json_string_value(json_object_get(t, "id")));
		buf_adds(b, "\">");
		html_text(b, json_string_value(json_object_get(t, "id")));
		buf_adds(b, "</a><td>");
		badge(b, json_string_value(json_object_get(t, "state")));
		buf_printf(b, "<td>%lld<td><code>", (long long)json_integer_value(json_object_get(t, "attempts")));
		html_text(b, json_string_value(json_object_get(t, "computer")));
		buf_adds(b, "</code><td>");
		if (from && to)
			html_ms(b, to - from);
		buf_adds(b, "<td>");
		html_text(b, json_string_value(json_object_get(t, "error")));
		buf_adds(b, "</tr>\n");
	}
	buf_adds(b, "</table></div>");
}

static void details(struct secretary *s, struct buf *b, const json_t *doc)
{
	size_t i, told = 0, left = 0;
	json_t *t;

	buf_adds(b, "<h2>What each task did</h2>");
	json_array_foreach(json_object_get(doc, "tasks"), i, t) {
		bool done = str_eq(json_string_value(json_object_get(t, "state")), "done");

		if ((done && told >= DETAILS) || b->len > PAGE_MAX / 2) {
			left++;
			continue;
		}
		told++;
		report_task(s, b, t);
	}
	if (left)
		buf_printf(b, "<p class=\"soft\">%zu more tasks are in report.json.</p>", left);
}

int report_write(struct secretary *s, json_t **ret, struct err *e)
{
	AUTO_JSON json_t *doc = report_document(s);
	AUTO_BUF struct buf page = BUF_INIT(PAGE_MAX), js = BUF_INIT(512u << 20);
	int r;

	js_dump_pretty(doc, &js);
	if (!buf_ok(&js))
		return err_set(e, E2BIG, "write the report: it's too large");
	r = fd_write_file(s->dirfd, "report.json", 0600, buf_at(&js), js.len, e);
	if (r < 0)
		return r;
	head(s, &page, doc);
	report_asked_page(&page, json_object_get(doc, "asked"));
	report_shown(s, &page, doc);
	report_timeline(&page, doc);
	table(&page, doc);
	details(s, &page, doc);
	buf_adds(&page, "</body></html>\n");
	if (!buf_ok(&page))
		return err_set(e, E2BIG, "write the report: the page is too large (report.json is there)");
	r = fd_write_file(s->dirfd, "report.html", 0600, buf_at(&page), page.len, e);
	if (r >= 0 && ret)
		*ret = json_incref(doc);
	return r;
}
