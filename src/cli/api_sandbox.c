/* api_sandbox -- create, list, show, kill, timeout, metrics, ports, watch. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "cli/api.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"

static void set_int(json_t *o, const char *key, int64_t v)
{
	if (v)
		json_object_set_new(o, key, json_integer(v));
}

static void set_str(json_t *o, const char *key, const char *v)
{
	if (v)
		json_object_set_new(o, key, json_string(v));
}

int api_sandbox_create(struct api *a)
{
	AUTO_JSON json_t *box = NULL;
	json_t *args = json_object(), *v;
	struct err e = { 0 };
	size_t i;

	set_str(args, "template", a->o.template);
	set_str(args, "net", a->o.net);
	set_int(args, "memory", (int64_t)a->o.memory);
	set_int(args, "disk", (int64_t)a->o.disk);
	set_int(args, "cpu", a->o.cpus);
	set_int(args, "pids", a->o.pids);
	if (a->o.timed)
		json_object_set_new(args, "timeout_ms", json_integer((json_int_t)a->o.timeout_ms));
	if (a->o.envs)
		json_object_set(args, "envs", a->o.envs);
	if (a->o.metadata)
		json_object_set(args, "metadata", a->o.metadata);
	if (a->o.insecure)
		json_object_set_new(args, "secure", json_false());
	if (api_call(a, "POST", "/v1/sandboxes", args, &box, &e) < 0)
		return api_fail(&e);
	if (a->o.json) {
		api_json(box);
		return API_OK;
	}
	json_array_foreach(json_object_get(box, "unenforced"), i, v)
		fprintf(stderr, "bureau: this machine can't enforce the limit on %s\n", json_string_value(v));
	if (json_is_string(json_object_get(box, "notice")))
		fprintf(stderr, "bureau: %s\n", json_string_value(json_object_get(box, "notice")));
	api_text(json_string_value(json_object_get(box, "id")));
	putchar('\n');
	return API_OK;
}

static void member(const json_t *row, const char *key, char *out, size_t size)
{
	const char *s = json_string_value(json_object_get(row, key));

	snprintf(out, size, "%s", s ? s : "-");
}

/* To the nearest unit: what was just given five minutes has 5m left, not 4m */
static void span(int64_t ms, char *out, size_t size)
{
	if (ms < 0)
		ms = 0;
	if (ms < 120000)
		snprintf(out, size, "%llds", (long long)((ms + 500) / 1000));
	else if (ms < 7200000)
		snprintf(out, size, "%lldm", (long long)((ms + 30000) / 60000));
	else
		snprintf(out, size, "%lldh", (long long)((ms + 1800000) / 3600000));
}

static void cell_id(const json_t *r, char *o, size_t n) { member(r, "id", o, n); }
static void cell_template(const json_t *r, char *o, size_t n) { member(r, "template", o, n); }
static void cell_age(const json_t *r, char *o, size_t n) { span(clock_wall_ms() - json_integer_value(json_object_get(r, "started_at")), o, n); }

static void cell_state(const json_t *r, char *o, size_t n)
{
	const char *why = json_string_value(json_object_get(r, "why")), *state = json_string_value(json_object_get(r, "state"));

	snprintf(o, n, "%s%s%s%s", state ? state : "-", why ? " (" : "", why ? why : "", why ? ")" : "");
}

static void cell_left(const json_t *r, char *o, size_t n)
{
	json_t *ends = json_object_get(r, "ends_at");
	const char *state = json_string_value(json_object_get(r, "state"));

	if (state && str_eq(state, "ended"))
		snprintf(o, n, "-");
	else if (!json_is_integer(ends))
		snprintf(o, n, "never");
	else
		span(json_integer_value(ends) - clock_wall_ms(), o, n);
}

static void cell_metadata(const json_t *r, char *o, size_t n)
{
	const char *key;
	size_t len = 0;
	json_t *v;

	json_object_foreach(json_object_get(r, "metadata"), key, v) {
		int w = snprintf(o + len, n - len, "%s%s=%s", len ? " " : "", key, json_is_string(v) ? json_string_value(v) : "");

		if (w < 0 || (size_t)w >= n - len)
			return;
		len += (size_t)w;
	}
}

/* All pages, at most 10,000 */
static int list_all(struct api *a, json_t **ret, struct err *e)
{
	AUTO_JSON json_t *all = json_array();
	char cursor[300] = "";

	do {
		AUTO_JSON json_t *page = NULL;
		json_t *args = json_object(), *list = NULL;
		const char *next = NULL;

		if (a->o.all && !str_eq(a->o.life ? a->o.life : "", "live"))
			json_object_set_new(args, "state", json_string("creating,running,paused,ended"));
		set_str(args, "template", a->o.template);
		set_str(args, "cursor", *cursor ? cursor : NULL);
		if (a->o.metadata)
			json_object_set(args, "metadata", a->o.metadata);
		if (api_call(a, "GET", "/v1/sandboxes", args, &page, e) < 0 || js_get_arr(page, "sandboxes", &list, e) < 0
			|| js_get_str(page, "next", &next, e) < 0)
			return -e->code;
		json_array_extend(all, list);
		if (str_copy(cursor, sizeof cursor, next ? next : "") < 0)
			cursor[0] = '\0';
	} while (*cursor && json_array_size(all) < 10000);
	*ret = json_incref(all);
	return 0;
}

int api_sandbox_list(struct api *a)
{
	static const struct api_column columns[] = {
		{ "ID", cell_id }, { "TEMPLATE", cell_template }, { "STATE", cell_state }, { "AGE", cell_age }, { "LEFT", cell_left }, { "METADATA", cell_metadata },
	};
	AUTO_JSON json_t *all = NULL;
	struct err e = { 0 };

	if (list_all(a, &all, &e) < 0)
		return api_fail(&e);
	if (a->o.json)
		api_json(all);
	else if (!json_array_size(all))
		fputs("no sandboxes; start one: bureau sandbox create\n", stderr);
	else
		api_table(all, columns, sizeof columns / sizeof *columns);
	return API_OK;
}

/* A number as people read it: these members are bytes, and cpu is thousandths */
static bool print_number(const char *key, int64_t v)
{
	static const char *const bytes[] = { "memory", "disk", "mem_used", "mem_total", "mem_cache", "disk_used", "disk_total" };
	char text[16];

	for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
		if (!str_eq(key, bytes[i]))
			continue;
		str_size_human((uint64_t)v, text);
		fputs(text, stdout);
		return true;
	}
	if (!str_eq(key, "cpu"))
		return false;
	printf("%g", (double)v / 1000);
	return true;
}

static void print_limits(const json_t *o)
{
	const char *key, *between = "";
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)o, key, v) {
		printf("%s%s ", between, key);
		if (!print_number(key, json_integer_value(v)))
			printf("%lld", (long long)json_integer_value(v));
		between = ", ";
	}
}

/* "name  value" lines of an object, nested ones as JSON */
static void print_members(const json_t *o)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)o, key, v) {
		AUTO_BUF struct buf b = BUF_INIT(65536);
		char when[32];

		printf("%-14s ", key);
		if (json_is_string(v)) {
			api_text(json_string_value(v));
		} else if (json_is_integer(v) && print_number(key, json_integer_value(v))) {
		} else if (json_is_object(v) && str_eq(key, "limits")) {
			print_limits(v);
		} else if (json_is_integer(v) && (str_ends(key, "_at") || str_eq(key, "time"))) {
			clock_rfc3339(json_integer_value(v), when);
			fputs(when, stdout);
		} else {
			js_dump(v, &b);
			api_text(buf_at(&b));
		}
		putchar('\n');
	}
}

static int show(struct api *a, const char *rest)
{
	AUTO_JSON json_t *v = NULL;
	struct err e = { 0 };
	char path[128];

	if (api_path(path, sizeof path, a->argv[0], rest, &e) < 0 || api_call(a, "GET", path, NULL, &v, &e) < 0)
		return api_fail(&e);
	if (!a->o.json && !*rest && json_is_string(json_object_get(v, "access_token")))
		json_object_set_new(v, "access_token", json_string("(shown with --json)"));
	if (a->o.json)
		api_json(v);
	else
		print_members(v);
	return API_OK;
}

int api_sandbox_show(struct api *a) { return show(a, ""); }
int api_sandbox_metrics(struct api *a) { return show(a, "metrics"); }

/* What became of each: {"ended":[id...],"failed":[{"id","message"}...]} */
static int kill_one(struct api *a, const char *id, bool may_be_gone, json_t *report)
{
	struct err e = { 0 };
	char path[128];
	int r = api_path(path, sizeof path, id, "", &e);

	if (r >= 0)
		r = api_call(a, "DELETE", path, NULL, NULL, &e);
	if (r >= 0 || (may_be_gone && e.code == ENOENT)) {
		json_array_append_new(json_object_get(report, "ended"), json_string(id));
		return API_OK;
	}
	json_array_append_new(json_object_get(report, "failed"), json_pack("{s:s, s:s}", "id", id, "message", e.msg));
	return api_fail(&e);
}

int api_sandbox_kill(struct api *a)
{
	AUTO_JSON json_t *all = NULL;
	AUTO_JSON json_t *report = json_pack("{s:[], s:[]}", "ended", "failed");
	struct err e = { 0 };
	int out = API_OK, r;
	json_t *box;
	size_t i;

	if (a->o.all == (a->argc > 0)) {
		err_set(&e, EINVAL, "give ids, or --all");
		return api_fail(&e);
	}
	for (int k = 0; k < a->argc; k++)
		if ((r = kill_one(a, a->argv[k], false, report)) != API_OK)
			out = r;
	a->o.life = "live";
	if (a->o.all && list_all(a, &all, &e) < 0)
		return api_fail(&e);
	json_array_foreach(all, i, box) {
		const char *id = json_string_value(json_object_get(box, "id"));

		/* one that ended meanwhile is what was wanted */
		if (id && (r = kill_one(a, id, true, report)) != API_OK)
			out = r;
	}
	if (a->o.json)
		api_json(report);
	else if (a->o.all)
		printf("%zu ended\n", json_array_size(json_object_get(report, "ended")));
	return out;
}

int api_sandbox_timeout(struct api *a)
{
	AUTO_JSON json_t *box = NULL;
	struct err e = { 0 };
	char path[128], left[32];
	uint64_t ms = 0;

	if (!str_eq(a->argv[1], "never") && (str_duration(a->argv[1], &ms, &e) < 0 || !ms)) {
		err_set(&e, EINVAL, "'%.40s' is not a time such as 90s, 30m, 2h, never", a->argv[1]);
		return api_fail(&e);
	}
	if (api_path(path, sizeof path, a->argv[0], "timeout", &e) < 0
		|| api_call(a, "POST", path, json_pack("{s:I}", "timeout_ms", (json_int_t)ms), &box, &e) < 0)
		return api_fail(&e);
	cell_left(box, left, sizeof left);
	if (a->o.json)
		api_json(box);
	else if (str_eq(left, "never"))
		puts("it never ends by itself now; 'bureau sandbox kill' ends it");
	else
		printf("ends in %s\n", left);
	return API_OK;
}

int api_sandbox_ports(struct api *a)
{
	AUTO_JSON json_t *v = NULL;
	struct err e = { 0 };
	char path[128];
	json_t *p;
	size_t i;

	if (api_path(path, sizeof path, a->argv[0], "ports", &e) < 0 || api_call(a, "GET", path, NULL, &v, &e) < 0)
		return api_fail(&e);
	if (a->o.json)
		api_json(v);
	else if (!json_array_size(json_object_get(v, "ports")))
		fputs("nothing in it listens on a port\n", stderr);
	else {
		json_array_foreach(json_object_get(v, "ports"), i, p)
			printf("%-6lld %s/v1/sandboxes/%s/ports/%lld/proxy/\n", (long long)json_integer_value(p), a->where.url, a->argv[0],
				(long long)json_integer_value(p));
	}
	return API_OK;
}

struct watching { struct api *a; struct err err; };

static void on_line(void *ctx, const char *p, size_t n)
{
	struct watching *w = ctx;
	AUTO_JSON json_t *v = NULL;
	json_t *ev = NULL;
	const char *type = "", *name = "";

	if (js_parse(p, n, &v, NULL) < 0)
		return;
	if (js_get_obj(v, "error", &ev, NULL) == 1) {
		js_get_str(ev, "message", &name, NULL);
		err_set(&w->err, EIO, "%s", name);
		return;
	}
	if (js_get_obj(v, "watch", &ev, NULL) != 1)
		return;
	if (w->a->o.json) {
		AUTO_BUF struct buf b = BUF_INIT(65536);

		js_dump(ev, &b);
		puts(buf_at(&b));
	} else {
		js_get_str(ev, "type", &type, NULL);
		js_get_str(ev, "name", &name, NULL);
		printf("%-8s ", type);
		api_text(name);
		putchar('\n');
	}
	fflush(stdout);
}

static void on_watch_end(void *ctx, const struct client_answer *ans)
{
	struct watching *w = ctx;

	if (ans->e && !w->err.code)
		w->err = *ans->e;
	loop_quit(w->a->loop, 0);
}

int api_sandbox_watch(struct api *a)
{
	struct watching w = { .a = a };
	json_t *args = json_pack("{s:s, s:b}", "path", a->argv[1], "recursive", (int)a->o.recursive);
	struct err e = { 0 };
	char path[128];

	set_str(args, "user", a->o.user);
	if (api_path(path, sizeof path, a->argv[0], "files/watch", &e) < 0) {
		json_decref(args);
		return api_fail(&e);
	}
	if (!client_follow(a->client, path, args, on_line, on_watch_end, &w))
		return API_FAILED;
	loop_run(a->loop);
	return w.err.code ? api_fail(&w.err) : API_OK;
}
