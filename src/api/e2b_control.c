#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/e2b_req.h"
#include "core/clock.h"
#include "core/str.h"
#include "http/url.h"

/* The control plane: /sandboxes, /v2/sandboxes and their kin. What this server doesn't have is answered 501 by name, so that
 * nobody believes that something happened. */

enum { MAX_BODY = 1 << 20, MAX_IDS = 100, LIST_MAX = 10000 };

struct control {
	struct e2b_req q;
	const struct route *route;
	json_t *body;            /* the request's, or NULL */
	json_t *list;            /* answers gathered over several operations */
	char *ids, *at;          /* metrics of many: what's left to ask */
	int64_t timeout_ms;
	char *once;              /* create: its Idempotency-Key, until it's answered */
};

struct route {
	const char *method, *path;       /* "*" is one segment: the sandbox's id, the first time */
	void (*run)(struct control *c);
	const char *missing;             /* 501: this feature */
	bool body;
};

static void control_drop(struct e2b_req *q)
{
	struct control *c = container_of(q, struct control, q);

	json_decref(c->body);
	json_decref(c->list);
	free(c->ids);
	if (c->once)
		e2b_once_end(q->api->e2b, c->once, NULL);        /* the client left before the answer */
	free(c->once);
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* Where ports of sandboxes are found. Without a domain of our own: below "localhost", which browsers take to this machine, when
 * that's where the client is. */
static const char *domain(struct e2b_req *q)
{
	char host[256];
	uint16_t port;
	const char *s = http_req_host(q->r);

	if (q->api->domain)
		return q->api->domain;
	if (http_split_host(s, strlen(s), host, sizeof host, &port) < 0 || (!str_eq(host, "localhost") && !str_starts(host, "127.")))
		return NULL;
	if (port)
		snprintf(q->what, sizeof q->what, "localhost:%u", port);
	else
		str_copy(q->what, sizeof q->what, "localhost");
	return q->what;
}

/* 404; for one that has ended: why and when. */
static void no_sandbox(struct e2b_req *q, const json_t *tombstone)
{
	const char *why = text_of(tombstone, "why_text");
	const json_t *ended = json_object_get(tombstone, "ended_at");
	char when[32];

	if (!*why)
		why = text_of(tombstone, "why");
	if (*why && !json_is_integer(ended)) {       /* it is being taken down */
		e2b_status(q->r, 404, "sandbox \"%s\" doesn't exist any more: it has just ended (%s)", q->id, why);
		return;
	}
	if (!json_is_integer(ended)) {
		e2b_status(q->r, 404, "sandbox \"%s\" doesn't exist or you don't have access to it", q->id);
		return;
	}
	clock_rfc3339(json_integer_value(ended), when);
	e2b_status(q->r, 404, "sandbox \"%s\" doesn't exist any more: it ended at %s (%s)", q->id, when, why);
}

static void after_look(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	no_sandbox(q, e ? NULL : res);
}

/* A failure of an operation on one sandbox. "Not there" is told with its tombstone. */
static void fail(struct e2b_req *q, const struct err *e)
{
	enum op_life life = ops_life(q->api->ops, q->id);

	if (e->code == ENOENT || life == OP_LIFE_UNKNOWN || life == OP_LIFE_ENDED)
		e2b_ask(q, "sandbox.get", json_pack("{s:s}", "id", q->id), after_look);
	else
		e2b_fail(q, e);
}

static void after_empty(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e)
		fail(q, e);
	else
		e2b_empty(q, 204);
}

static void after_create(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct control *c = container_of(q, struct control, q);

	if (c->once) {
		e2b_once_end(q->api->e2b, c->once, e ? NULL : text_of(res, "id"));
		free(c->once);
		c->once = NULL;
	}
	if (e)
		e2b_fail(q, e);
	else
		e2b_json(q, 201, e2b_sandbox(res, domain(q), E2B_SANDBOX));
}

static void after_made(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e || ops_life(q->api->ops, q->id) == OP_LIFE_ENDED)
		e2b_status(q->r, 409, "sandbox \"%s\", which was made with this Idempotency-Key, has ended", q->id);
	else
		e2b_json(q, 201, e2b_sandbox(res, domain(q), E2B_SANDBOX));
}

/* False: it's answered, or will be. */
static bool first_time(struct control *c)
{
	const char *key = http_req_header(c->q.r, "idempotency-key");

	if (!key)
		return true;
	if (!e2b_once_key(key)) {
		e2b_status(c->q.r, 400, "Idempotency-Key must be 1 to 255 lower-case letters, digits and hyphens");
		return false;
	}
	switch (e2b_once_begin(c->q.api->e2b, key, c->q.id)) {
	case E2B_ONCE_NEW:
		c->once = strdup(key);
		if (!c->once)
			e2b_once_end(c->q.api->e2b, key, NULL);
		return true;
	case E2B_ONCE_BUSY:
		e2b_status(c->q.r, 409, "a sandbox is being made with this Idempotency-Key");
		return false;
	default:
		e2b_ask(&c->q, "sandbox.get", json_pack("{s:s}", "id", c->q.id), after_made);
		return false;
	}
}

static void create(struct control *c, bool v2)
{
	json_t *args;
	struct err e;

	if (e2b_create_args(c->body, v2, &args, &e) < 0)
		e2b_fail(&c->q, &e);
	else if (first_time(c))
		e2b_ask(&c->q, "sandbox.create", args, after_create);
	else
		json_decref(args);
}

static void create_v1(struct control *c) { create(c, false); }
static void create_v2(struct control *c) { create(c, true); }

static void after_get(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e)
		fail(q, e);
	else if (str_eq(text_of(res, "state"), "ended") || str_eq(text_of(res, "state"), "failed"))
		no_sandbox(q, res);
	else
		e2b_json(q, 200, e2b_sandbox(res, domain(q), E2B_DETAIL));
}

static json_t *id_only(struct control *c)
{
	return json_pack("{s:s}", "id", c->q.id);
}

static void get(struct control *c) { e2b_ask(&c->q, "sandbox.get", id_only(c), after_get); }
static void kill_it(struct control *c) { e2b_ask(&c->q, "sandbox.kill", id_only(c), after_empty); }

/* The seconds named `field` of the body: false when they're wrong, which is answered. */
static bool seconds(struct control *c, const char *field, int64_t otherwise, int64_t max, int64_t *ret_ms)
{
	int64_t s = otherwise;
	struct err e;

	if (c->body && js_get_int(c->body, field, 0, max, &s, &e) < 0) {
		e2b_fail(&c->q, &e);
		return false;
	}
	*ret_ms = s * 1000;
	return true;
}

static void set_timeout(struct control *c, bool extend, void (*done)(struct e2b_req *, const struct err *, const json_t *, int))
{
	json_t *args = json_pack("{s:s, s:I, s:b}", "id", c->q.id, "timeout_ms", (json_int_t)c->timeout_ms, "extend_only", extend);

	e2b_ask(&c->q, "sandbox.timeout", args, done);
}

static void timeout(struct control *c)
{
	if (!c->body || !json_object_get(c->body, "timeout"))
		e2b_status(c->q.r, 400, "'timeout' is missing");
	else if (seconds(c, "timeout", 0, 2000000000, &c->timeout_ms))
		set_timeout(c, false, after_empty);
}

static void refresh(struct control *c)
{
	if (seconds(c, "duration", 15, 3600, &c->timeout_ms))
		set_timeout(c, true, after_empty);
}

static void after_connect(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e)
		fail(q, e);
	else
		e2b_json(q, 200, e2b_sandbox(res, domain(q), E2B_SANDBOX));
}

static void connect_it(struct control *c)
{
	if (seconds(c, "timeout", 300, 2000000000, &c->timeout_ms))
		set_timeout(c, true, after_connect);
}

static void after_resume(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e)
		fail(q, e);
	else if (str_eq(text_of(res, "state"), "running"))
		e2b_status(q->r, 409, "sandbox \"%s\" is already running", q->id);
	else
		no_sandbox(q, res);
}

static void resume(struct control *c) { e2b_ask(&c->q, "sandbox.get", id_only(c), after_resume); }

/* ---- lists ---- */

static json_t *listed(const json_t *res)
{
	const json_t *from = json_object_get(res, "sandboxes");
	json_t *out = json_array();

	for (size_t i = 0; i < json_array_size(from); i++)
		json_array_append_new(out, e2b_sandbox(json_array_get(from, i), NULL, E2B_LISTED));
	return out;
}

static void after_list_v2(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	const char *next = e ? "" : text_of(res, "next");

	if (e) {
		e2b_fail(q, e);
		return;
	}
	if (*next)
		http_set(q->r, "X-Next-Token", next);
	http_setf(q->r, "X-Total-Running", "%lld", (long long)json_integer_value(json_object_get(res, "total_running")));
	e2b_json(q, 200, listed(res));
}

static bool metadata(struct control *c, json_t *args)
{
	const char *s = http_req_query(c->q.r, "metadata");
	json_t *filter = NULL;
	struct err e;

	if (e2b_metadata_filter(s, &filter, &e) < 0) {
		e2b_fail(&c->q, &e);
		return false;
	}
	if (filter)
		json_object_set_new(args, "metadata", filter);
	return true;
}

/* Query members that sandbox.list takes as they are. */
static bool list_query(struct control *c, json_t *args)
{
	const char *limit = http_req_query(c->q.r, "limit"), *after = http_req_query(c->q.r, "startedAfter");
	static const char *const same[][2] = { { "state", "state" }, { "order", "order" }, { "template", "template" }, { "nextToken", "cursor" } };
	uint64_t n;
	int64_t ms;

	for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
		const char *v = http_req_query(c->q.r, same[i][0]);

		if (v && *v)
			json_object_set_new(args, same[i][1], json_string(v));
	}
	if (limit && (str_u64(limit, 100, &n) < 0 || n == 0)) {
		e2b_status(c->q.r, 400, "'limit' must be from 1 to 100");
		return false;
	}
	if (limit)
		json_object_set_new(args, "limit", json_integer((json_int_t)n));
	if (after && *after && clock_parse_rfc3339(after, &ms) < 0) {
		e2b_status(c->q.r, 400, "'startedAfter' must be a time such as 2026-01-31T12:00:00Z");
		return false;
	}
	if (after && *after)
		json_object_set_new(args, "started_after", json_integer(ms));
	return true;
}

static void list_v2(struct control *c)
{
	json_t *args = json_pack("{s:s}", "state", "running,paused");

	if (list_query(c, args) && metadata(c, args))
		e2b_ask(&c->q, "sandbox.list", args, after_list_v2);
	else
		json_decref(args);
}

static void list_page(struct control *c, const char *cursor);

static void after_list_v1(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct control *c = container_of(q, struct control, q);
	const char *next = e ? "" : text_of(res, "next");
	json_t *page;

	if (e) {
		e2b_fail(q, e);
		return;
	}
	page = listed(res);
	json_array_extend(c->list, page);
	json_decref(page);
	if (*next && json_array_size(c->list) < LIST_MAX)
		list_page(c, next);
	else
		e2b_json(q, 200, json_incref(c->list));
}

static void list_page(struct control *c, const char *cursor)
{
	json_t *args = json_pack("{s:s}", "state", "running");

	if (cursor)
		json_object_set_new(args, "cursor", json_string(cursor));
	if (metadata(c, args))
		e2b_ask(&c->q, "sandbox.list", args, after_list_v1);
	else
		json_decref(args);
}

/* The old list has no pages: all of them are gathered. */
static void list_v1(struct control *c)
{
	c->list = json_array();
	list_page(c, NULL);
}

/* ---- metrics ---- */

static json_t *metric(const json_t *m)
{
	int64_t ms = json_integer_value(json_object_get(m, "time"));
	char when[32];

	clock_rfc3339(ms, when);
	return json_pack("{s:s, s:I, s:O, s:O, s:O, s:O, s:O, s:O, s:O}", "timestamp", when, "timestampUnix", (json_int_t)(ms / 1000),
		"cpuCount", json_object_get(m, "cpus"), "cpuUsedPct", json_object_get(m, "cpu_pct"),
		"memUsed", json_object_get(m, "mem_used"), "memTotal", json_object_get(m, "mem_total"),
		"memCache", json_object_get(m, "mem_cache"), "diskUsed", json_object_get(m, "disk_used"),
		"diskTotal", json_object_get(m, "disk_total"));
}

static void after_metrics(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e)
		fail(q, e);
	else
		e2b_json(q, 200, json_pack("[o]", metric(res)));
}

/* One sample, taken now: no history is kept. A window that doesn't reach until now holds none. */
static void metrics(struct control *c)
{
	const char *end = http_req_query(c->q.r, "end");
	uint64_t until;

	if (end && str_u64(end, UINT32_MAX, &until) == 0 && (int64_t)until < clock_wall_ms() / 1000)
		e2b_json(&c->q, 200, json_array());
	else
		e2b_ask(&c->q, "sandbox.metrics", id_only(c), after_metrics);
}

static void next_metrics(struct control *c);

static void after_one_of_many(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct control *c = container_of(q, struct control, q);

	if (!e)
		json_object_set_new(c->list, q->id, metric(res));
	next_metrics(c);
}

static void next_metrics(struct control *c)
{
	for (;;) {
		char *id = strsep(&c->at, ",");

		if (!id) {
			e2b_json(&c->q, 200, json_pack("{s:O}", "sandboxes", c->list));
			return;
		}
		if (e2b_id(id, strlen(id), c->q.id)) {
			e2b_ask(&c->q, "sandbox.metrics", id_only(c), after_one_of_many);
			return;
		}
	}
}

static void metrics_many(struct control *c)
{
	const char *ids = http_req_query(c->q.r, "sandbox_ids");
	size_t n = 1;

	for (const char *p = ids; p && *p; p++)
		n += *p == ',';
	if (!ids || !*ids || n > MAX_IDS) {
		e2b_status(c->q.r, 400, "'sandbox_ids' must name 1 to %d sandboxes", MAX_IDS);
		return;
	}
	c->ids = c->at = strdup(ids);
	c->list = json_object();
	next_metrics(c);
}

/* ---- templates ---- */

static void after_templates(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	const json_t *from = json_object_get(res, "templates");
	json_t *out = json_array();

	if (e) {
		json_decref(out);
		e2b_fail(q, e);
		return;
	}
	for (size_t i = 0; i < json_array_size(from); i++) {
		const char *name = text_of(json_array_get(from, i), "name");

		json_array_append_new(out, json_pack("{s:s, s:s, s:[s], s:[s], s:b, s:i, s:i}", "templateID", name, "buildID", name,
			"aliases", name, "names", name, "public", 1, "cpuCount", 0, "memoryMB", 0));
	}
	e2b_json(q, 200, out);
}

static void templates(struct control *c) { e2b_ask(&c->q, "template.list", json_object(), after_templates); }

static void after_alias(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	const json_t *from = json_object_get(res, "templates");

	if (e) {
		e2b_fail(q, e);
		return;
	}
	for (size_t i = 0; i < json_array_size(from); i++)
		if (str_eq(text_of(json_array_get(from, i), "name"), q->what)) {
			e2b_json(q, 200, json_pack("{s:s, s:b}", "templateID", q->what, "public", 1));
			return;
		}
	e2b_status(q->r, 404, "template '%s' not found", q->what);
}

static void alias(struct control *c)
{
	str_copy(c->q.what, sizeof c->q.what, http_req_path(c->q.r) + strlen("/templates/aliases/"));
	e2b_ask(&c->q, "template.list", json_object(), after_alias);
}

/* ---- routes ---- */

static const struct route routes[] = {
	{ "POST",   "/v2/sandboxes", .run = create_v2, .body = true },
	{ "POST",   "/sandboxes", .run = create_v1, .body = true },
	{ "GET",    "/v2/sandboxes", .run = list_v2 },
	{ "GET",    "/sandboxes", .run = list_v1 },
	{ "GET",    "/sandboxes/metrics", .run = metrics_many },
	{ "GET",    "/sandboxes/*", .run = get },
	{ "DELETE", "/sandboxes/*", .run = kill_it },
	{ "POST",   "/v2/sandboxes/*/connect", .run = connect_it, .body = true },
	{ "POST",   "/sandboxes/*/connect", .run = connect_it, .body = true },
	{ "POST",   "/sandboxes/*/resume", .run = resume },
	{ "POST",   "/sandboxes/*/timeout", .run = timeout, .body = true },
	{ "POST",   "/sandboxes/*/refreshes", .run = refresh, .body = true },
	{ "GET",    "/sandboxes/*/metrics", .run = metrics },
	{ "GET",    "/templates", .run = templates },
	{ "GET",    "/v2/templates", .run = templates },
	{ "GET",    "/templates/aliases/*", .run = alias },
	{ "POST",   "/sandboxes/*/pause", .missing = "pausing a sandbox" },
	{ "PUT",    "/sandboxes/*/network", .missing = "changing the network rules of a running sandbox" },
	{ "POST",   "/sandboxes/*/snapshots", .missing = "snapshots" },
	{ "GET",    "/snapshots", .missing = "snapshots" },
	{ "POST",   "/sandboxes/*/fork", .missing = "forking a sandbox" },
	{ "GET",    "/sandboxes/*/logs", .missing = "sandbox logs" },
	{ "GET",    "/v2/sandboxes/*/logs", .missing = "sandbox logs" },
	{ NULL,     "/v3/templates", .missing = "building templates through this API" },
	{ NULL,     "/v2/templates/**", .missing = "building templates through this API" },
	{ NULL,     "/templates/**", .missing = "building templates through this API" },
	{ NULL,     "/volumes", .missing = "volumes" },
	{ NULL,     "/volumes/**", .missing = "volumes" },
	{ NULL,     "/volumecontent/**", .missing = "volumes" },
	{ NULL,     "/secrets", .missing = "secrets through this API" },
	{ NULL,     "/secrets/**", .missing = "secrets through this API" },
};

/* "**" matches the rest, "*" one segment; the first "*" is where ret_seg points. */
static bool path_is(const char *pattern, const char *path, const char **ret_seg, size_t *ret_n)
{
	*ret_seg = NULL;
	while (*pattern && *path) {
		size_t n;

		if (str_eq(pattern, "**"))
			return true;
		if (*pattern != '*') {
			if (*pattern++ != *path++)
				return false;
			continue;
		}
		n = strcspn(path, "/");
		if (!n)
			return false;
		if (!*ret_seg) {
			*ret_seg = path;
			*ret_n = n;
		}
		path += n;
		pattern++;
	}
	return !*pattern && !*path;
}

static void have_body(void *ctx, struct http_req *r, char *p, size_t n)
{
	struct control *c = ctx;
	struct err e;

	if (n && js_parse(p, n, &c->body, &e) < 0)
		e2b_fail(&c->q, &e);
	else if (c->body && !json_is_object(c->body))
		e2b_status(r, 400, "the body must be a JSON object");
	else
		c->route->run(c);
}

static void serve(struct api *a, struct http_req *r, const struct route *t, const char *seg, size_t n)
{
	struct control *c;
	struct e2b_req from = { .face = E2B_FACE_REST };
	struct principal who;
	struct err e;

	if (api_same_site(a, r, &e) < 0) {
		e2b_status(r, 403, "%s", e.msg);
		return;
	}
	if (api_auth(a, r, &who, &e) < 0) {
		e2b_status(r, 401, "%s", e.msg);
		return;
	}
	if (t->missing) {
		e2b_status(r, 501, "%s is not supported by this server", t->missing);
		return;
	}
	if (seg && strstr(t->path, "/sandboxes/") && !e2b_id(seg, n, from.id)) {
		e2b_status(r, 404, "sandbox \"%.*s\" doesn't exist or you don't have access to it", (int)(n < 64 ? n : 64), seg);
		return;
	}
	e2b_req_as(&from, &who);
	c = (struct control *)e2b_req_open(a, r, sizeof *c, &from);
	if (!c)
		return;
	c->q.drop = control_drop;
	c->route = t;
	if (t->body)
		http_req_collect(r, MAX_BODY, have_body, c);
	else
		t->run(c);
}

bool e2b_control(struct api *a, struct http_req *r)
{
	const char *path = http_req_path(r), *seg;
	bool known = false;
	size_t n = 0;

	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
		if (!path_is(routes[i].path, path, &seg, &n))
			continue;
		known = true;
		if (routes[i].method && !http_req_is(r, routes[i].method))
			continue;
		serve(a, r, &routes[i], seg, n);
		return true;
	}
	if (known)
		e2b_status(r, 405, "%s isn't a method of %.200s", http_req_method(r), path);
	return known;
}
