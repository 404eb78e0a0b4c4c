/* report_task -- one task in the page: its attempts, steps, output and files; and the files that are shown up front. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include "core/str.h"
#include "secretary/input.h"
#include "secretary/report_priv.h"

#define INLINE_IMAGE (4u << 20)
#define INLINE_TEXT (64u << 10)
#define CSV_ROWS 200

/* How a file is shown, by its name. */
enum look { LOOK_LINK, LOOK_TEXT, LOOK_CSV, LOOK_IMAGE };
static const struct { const char *end; enum look look; const char *type; } looks[] = {
	{ ".svg", LOOK_IMAGE, "image/svg+xml" }, { ".png", LOOK_IMAGE, "image/png" }, { ".jpg", LOOK_IMAGE, "image/jpeg" },
	{ ".jpeg", LOOK_IMAGE, "image/jpeg" }, { ".gif", LOOK_IMAGE, "image/gif" }, { ".webp", LOOK_IMAGE, "image/webp" },
	{ ".csv", LOOK_CSV, "" }, { ".txt", LOOK_TEXT, "" }, { ".md", LOOK_TEXT, "" }, { ".json", LOOK_TEXT, "" }, { ".log", LOOK_TEXT, "" },
};

static int read_artifact(struct secretary *s, const char *task, const char *path, size_t max, char **ret, size_t *ret_n)
{
	char at[PATH_MAX], self[40];
	AUTO_FD int fd = -1;
	struct stat st;

	snprintf(at, sizeof at, "files/%s/%s", task, path);
	fd = input_open_below(s->dirfd, at, NULL);
	if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size > max)
		return -1;
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	return fd_read_file(AT_FDCWD, self, max, ret, ret_n, NULL);
}

static void link_to(struct buf *b, const char *task, const char *path, int64_t bytes)
{
	char size[16];

	buf_adds(b, "<a href=\"files/");
	str_percent_encode(b, task);
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");
		char part[PATH_MAX];

		snprintf(part, sizeof part, "%.*s", (int)n, p);
		buf_addc(b, '/');
		str_percent_encode(b, part);
		p += n + (p[n] == '/');
	}
	str_size_human((uint64_t)bytes, size);
	buf_adds(b, "\">");
	html_text(b, path);
	buf_printf(b, "</a> <span class=\"soft\">%s</span>", size);
}

static void csv_table(struct buf *b, const char *text, size_t n)
{
	AUTO_JSON json_t *rows = NULL;
	const char *key;
	json_t *row, *v;
	size_t i;

	if (input_csv(text, n, &rows, NULL) < 0) {
		buf_adds(b, "<pre>");
		str_html(b, text, n);
		buf_adds(b, "</pre>");
		return;
	}
	buf_adds(b, "<div class=\"wide\"><table><tr>");
	json_object_foreach(json_array_get(rows, 0), key, v) {
		buf_adds(b, "<th>");
		html_text(b, key);
	}
	buf_adds(b, "</tr>");
	json_array_foreach(rows, i, row) {
		if (i == CSV_ROWS) {
			buf_printf(b, "</table><p class=\"soft\">%zu more rows in the file</p></div>", json_array_size(rows) - CSV_ROWS);
			return;
		}
		buf_adds(b, "<tr>");
		json_object_foreach(row, key, v) {
			buf_adds(b, "<td>");
			html_text(b, json_string_value(v));
		}
		buf_adds(b, "</tr>\n");
	}
	buf_adds(b, "</table></div>");
}

static void show_file(struct secretary *s, struct buf *b, const char *task, const char *path, int64_t bytes)
{
	enum look look = LOOK_LINK;
	const char *type = "";
	AUTO_FREE char *text = NULL;
	size_t n = 0;

	for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
		if (str_ends(path, looks[i].end)) {
			look = looks[i].look;
			type = looks[i].type;
		}
	}
	buf_adds(b, "<h3>");
	link_to(b, task, path, bytes);
	buf_adds(b, "</h3>");
	if (look == LOOK_LINK || read_artifact(s, task, path, look == LOOK_IMAGE ? INLINE_IMAGE : INLINE_TEXT, &text, &n) < 0)
		return;
	if (look == LOOK_IMAGE) {
		buf_printf(b, "<img alt=\"\" src=\"data:%s;base64,", type);
		str_base64(b, text, n);
		buf_adds(b, "\">");
	} else if (look == LOOK_CSV) {
		csv_table(b, text, n);
	} else {
		buf_adds(b, "<pre>");
		str_html(b, text, n);
		buf_adds(b, "</pre>");
	}
}

void report_shown(struct secretary *s, struct buf *b, const json_t *doc)
{
	json_t *t, *step, *f;
	size_t i, k, m;

	json_array_foreach(json_object_get(doc, "tasks"), i, t) {
		json_t *log = json_object_get(t, "log"), *last = json_array_get(log, json_array_size(log) - 1);
		const char *id = json_string_value(json_object_get(t, "id"));

		if (!str_eq(json_string_value(json_object_get(t, "state")), "done"))
			continue;
		json_array_foreach(json_object_get(last, "steps"), k, step) {
			json_array_foreach(json_object_get(step, "files"), m, f) {
				const char *path = json_string_value(json_object_get(f, "path"));

				if (path && json_is_true(json_object_get(f, "show")))
					show_file(s, b, id, path, json_integer_value(json_object_get(f, "bytes")));
			}
		}
	}
}

static void pre(struct buf *b, const char *label, const json_t *v)
{
	if (!json_is_string(v))
		return;
	buf_printf(b, "<div class=\"soft\">%s</div><pre>", label);
	str_html(b, json_string_value(v), json_string_length(v));
	buf_adds(b, "</pre>");
}

static void command(struct buf *b, const json_t *step)
{
	json_t *arg;
	size_t i;

	buf_adds(b, " <code>");
	html_text(b, json_string_value(json_object_get(step, "cmd")));
	json_array_foreach(json_object_get(step, "args"), i, arg) {
		buf_addc(b, ' ');
		html_text(b, json_string_value(arg));
		if (i == 20) {
			buf_adds(b, " …");
			break;
		}
	}
	buf_adds(b, "</code>");
}

static void show_step(struct buf *b, const char *task, const json_t *step, size_t number)
{
	static const char *const facts[] = { "from", "to", "path" };
	json_t *f, *v;
	size_t i;

	buf_printf(b, "<h3>%s %zu: ", json_is_true(json_object_get(step, "check")) ? "Check" : "Step", number);
	html_text(b, json_string_value(json_object_get(step, json_object_get(step, "title") ? "title" : "kind")));
	buf_adds(b, "</h3><div>");
	html_text(b, json_string_value(json_object_get(step, "kind")));
	if (json_object_get(step, "cmd"))
		command(b, step);
	for (i = 0; i < 3; i++) {
		if (!json_object_get(step, facts[i]))
			continue;
		buf_printf(b, " %s <code>", facts[i]);
		html_text(b, json_string_value(json_object_get(step, facts[i])));
		buf_adds(b, "</code>");
	}
	if ((v = json_object_get(step, "exit")))
		buf_printf(b, " &middot; exit %lld", (long long)json_integer_value(v));
	if ((v = json_object_get(step, "ended"))) {
		buf_adds(b, " &middot; ");
		html_ms(b, json_integer_value(v) - json_integer_value(json_object_get(step, "started")));
	}
	buf_adds(b, "</div>");
	if ((v = json_object_get(step, "error"))) {
		buf_adds(b, "<p class=\"bad\">");
		html_text(b, json_string_value(v));
		buf_adds(b, "</p>");
	}
	pre(b, "stdout", json_object_get(step, "stdout"));
	pre(b, "stderr", json_object_get(step, "stderr"));
	json_array_foreach(json_object_get(step, "files"), i, f) {
		if (json_is_string(json_object_get(f, "path"))) {
			buf_adds(b, "<div>");
			link_to(b, task, json_string_value(json_object_get(f, "path")), json_integer_value(json_object_get(f, "bytes")));
			buf_adds(b, "</div>");
		}
	}
}

static void show_attempt(struct buf *b, const char *task, const json_t *a, bool several)
{
	json_t *step;
	size_t k;

	if (several) {
		buf_printf(b, "<h3>Attempt %lld</h3>", (long long)json_integer_value(json_object_get(a, "attempt")));
		if (json_is_string(json_object_get(a, "error"))) {
			buf_adds(b, "<p class=\"bad\">");
			html_text(b, json_string_value(json_object_get(a, "error")));
			buf_adds(b, "</p>");
		}
	}
	json_array_foreach(json_object_get(a, "steps"), k, step)
		show_step(b, task, step, k + 1);
}

void report_task(struct secretary *s, struct buf *b, const json_t *t)
{
	const char *id = json_string_value(json_object_get(t, "id")), *state = json_string_value(json_object_get(t, "state"));
	json_t *log = json_object_get(t, "log"), *a;
	AUTO_BUF struct buf js = BUF_INIT(64u << 10);
	size_t i;

	buf_adds(b, "<details id=\"t-");
	html_text(b, id);
	buf_printf(b, "\"%s><summary><b>", str_eq(state, "done") ? "" : " open");
	html_text(b, id);
	buf_printf(b, "</b> <span class=\"s %s\">%s</span> ", state, state);
	html_text(b, json_string_value(json_object_get(t, "title")));
	buf_adds(b, "</summary>");
	if (json_is_string(json_object_get(t, "error"))) {
		buf_adds(b, "<p class=\"bad\">");
		html_text(b, json_string_value(json_object_get(t, "error")));
		buf_adds(b, "</p>");
	}
	if (json_object_get(t, "row") && js_dump(json_object_get(t, "row"), &js) == 0) {
		buf_adds(b, "<div class=\"soft\">row</div><pre>");
		str_html(b, buf_at(&js), js.len);
		buf_adds(b, "</pre>");
	}
	json_array_foreach(log, i, a)
		show_attempt(b, id, a, json_array_size(log) > 1);
	buf_clear(&js);
	if (json_object_size(json_object_get(t, "result")) && js_dump_pretty(json_object_get(t, "result"), &js) == 0) {
		buf_adds(b, "<div class=\"soft\">result</div><pre>");
		str_html(b, buf_at(&js), js.len);
		buf_adds(b, "</pre>");
	}
	buf_adds(b, "</details>\n");
}
