#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/e2b_req.h"
#include "core/clock.h"
#include "core/str.h"

/* Which requests are E2B's, and which sandbox they are for.
 *
 * The data plane is addressed by fields (E2b-Sandbox-Id and -Port: SDKs with a sandbox URL), else by host (PORT-ID.DOMAIN: SDKs with
 * a domain, browsers), else, for what old SDKs and signed links send to a plain URL, by the token or signature alone. What
 * names no sandbox may be the control plane's. */

#define UNAUTHORIZED "unauthorized access, please provide a valid access token or method signing if supported"

struct signed_by { struct e2b_sign sign; const char *id; };

int e2b_create(struct api *a, struct err *e)
{
	struct e2b *d = calloc(1, sizeof *d);

	if (!d || map_create(&d->watchers) < 0 || map_create(&d->once) < 0) {
		if (d)
			map_free(d->watchers);
		free(d);
		return err_set(e, ENOMEM, "no memory for the E2B dialect");
	}
	d->api = a;
	list_init(&d->watcher_list);
	list_init(&d->once_list);
	a->e2b = d;
	return 0;
}

void e2b_free(struct api *a)
{
	if (!a->e2b)
		return;
	e2b_watchers_free(a->e2b);
	map_free(a->e2b->watchers);
	e2b_once_free(a->e2b);
	free(a->e2b);
	a->e2b = NULL;
}

/* ---- signatures of /files ---- */

static bool read_signature(struct http_req *r, struct e2b_sign *s)
{
	const char *path = http_req_query(r, "path"), *user = http_req_query(r, "username");
	const char *expires = http_req_query(r, "signature_expiration");
	uint64_t at;

	*s = (struct e2b_sign){ .path = path ? path : "", .user = user ? user : "",
		.op = http_req_is(r, "POST") ? "write" : "read", .signature = http_req_query(r, "signature") };
	if (expires) {
		if (str_u64(expires, INT64_MAX, &at) < 0)
			return false;
		s->has_expires = true;
		s->expires = (int64_t)at;
	}
	return s->signature != NULL;
}

static bool signs(void *ctx, const char *id, const char *token)
{
	struct signed_by *b = ctx;

	return (!b->id || str_eq(b->id, id)) && e2b_sign_ok(&b->sign, token);
}

/* NULL = the signature is good; else why not. */
static const char *check_signature(struct api *a, struct http_req *r, const char *id)
{
	struct signed_by b = { .id = id };

	if (!http_req_query(r, "signature"))
		return "missing signature query parameter";
	if (!read_signature(r, &b.sign) || !ops_each_token(a->ops, signs, &b))
		return "invalid signature";
	if (b.sign.has_expires && b.sign.expires < clock_wall_ms() / 1000)
		return "signature is already expired";
	return NULL;
}

/* A request that names no sandbox: by its token, or by its signature. A token that is nobody's (any more) was one of a sandbox that
 * has ended: ret->id stays "". */
static bool find_unnamed(struct api *a, struct http_req *r, struct e2b_addr *ret)
{
	const char *path = http_req_path(r), *token = http_req_header(r, "x-access-token"), *id = NULL;
	bool files = str_eq(path, "/files"), rpc = str_starts(path, "/process.Process/") || str_starts(path, "/filesystem.Filesystem/");
	struct signed_by b = { .id = NULL };

	if (!files && !rpc && !str_eq(path, "/health") && !str_eq(path, "/metrics") && !str_eq(path, "/envs"))
		return false;
	if (token)
		id = ops_find_by_token(a->ops, token);
	else if (files && read_signature(r, &b.sign))
		id = ops_each_token(a->ops, signs, &b);
	ret->port = E2B_ENVD_PORT;
	return (id && str_copy(ret->id, sizeof ret->id, id) == 0) || token;
}

/* ---- envd ---- */

static bool allowed(struct e2b_req *q, bool files)
{
	const char *token = http_req_header(q->r, "x-access-token"), *why = UNAUTHORIZED;
	struct principal who;
	struct err e;
	int r = ops_auth_token(q->api->ops, q->id, token, &who, &e);

	if (r == -ENOENT) {
		e2b_gone(q->r, q->id);
		return false;
	}
	/* an open sandbox (secure=false) is open to programs, not to whatever page a browser shows */
	if (r == 0 && !token && api_same_site(q->api, q->r, &e) < 0) {
		e2b_status(q->r, 403, "%s", e.msg);
		return false;
	}
	if (r < 0 && !token && files) {
		why = check_signature(q->api, q->r, q->id);
		/* the link was made by who holds the token, for this path and act */
		who = (struct principal){ .rights = OP_USE, .only_computer = q->id, .name = "link" };
		if (!why)
			r = 0;
	}
	if (r == 0) {
		e2b_req_as(q, &who);
		return true;
	}
	if (q->face == E2B_FACE_RPC)
		e2b_fail_word(q, "unauthenticated", "%s", why);
	else
		e2b_status(q->r, 401, "%s", why);
	return false;
}

static void after_metrics(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	int64_t total = json_integer_value(json_object_get(res, "mem_total")), used = json_integer_value(json_object_get(res, "mem_used"));

	if (e) {
		e2b_fail(q, e);
		return;
	}
	e2b_json(q, 200, json_pack("{s:I, s:O?, s:O?, s:O?, s:O?, s:O?, s:O?, s:O?, s:I, s:I}", "ts",
		(json_int_t)(json_integer_value(json_object_get(res, "time")) / 1000),
		"cpu_count", json_object_get(res, "cpus"), "cpu_used_pct", json_object_get(res, "cpu_pct"),
		"mem_total", json_object_get(res, "mem_total"), "mem_used", json_object_get(res, "mem_used"),
		"mem_cache", json_object_get(res, "mem_cache"), "disk_used", json_object_get(res, "disk_used"),
		"disk_total", json_object_get(res, "disk_total"), "mem_total_mib", (json_int_t)(total >> 20), "mem_used_mib", (json_int_t)(used >> 20)));
}

static void after_envs(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e)
		e2b_fail(q, e);
	else
		e2b_json(q, 200, json_incref(json_object_get(res, "envs")));
}

static void ask_now(struct e2b_req *from, const char *op, void (*done)(struct e2b_req *, const struct err *, const json_t *, int))
{
	struct e2b_req *q = e2b_req_open(from->api, from->r, sizeof *q, from);

	if (q)
		e2b_ask(q, op, json_pack("{s:s}", "id", q->id), done);
}

static void files(struct e2b_req *q)
{
	const char *user = http_req_query(q->r, "username");

	if (http_req_query_bad(q->r))
		e2b_status(q->r, 400, "the query can't be decoded");
	else if (user && *user && str_copy(q->user, sizeof q->user, user) < 0)
		e2b_status(q->r, 401, "invalid username");
	else if (http_req_is(q->r, "GET") || http_req_is(q->r, "HEAD"))
		e2b_download(q->api, q->r, q);
	else if (http_req_is(q->r, "POST"))
		e2b_upload(q->api, q->r, q);
	else
		e2b_status(q->r, 405, "%s isn't a method of /files", http_req_method(q->r));
}

static void envd(struct api *a, struct http_req *r, const struct e2b_addr *to)
{
	const char *path = http_req_path(r);
	struct e2b_req q = { .api = a, .r = r, .port = to->port, .data_plane = true };

	memcpy(q.id, to->id, sizeof q.id);
	if (str_eq(path, "/health")) {
		http_reply(r, 204, NULL, "", 0);
		return;
	}
	if (str_starts(path, "/process.Process/") || str_starts(path, "/filesystem.Filesystem/"))
		q.face = E2B_FACE_RPC;
	if (!allowed(&q, str_eq(path, "/files")))
		return;
	if (q.face == E2B_FACE_RPC) {
		if (e2b_basic_user(http_req_header(r, "authorization"), q.user, sizeof q.user) < 0)
			e2b_fail_word(&q, "unauthenticated", "the user in the Authorization header can't be read");
		else
			e2b_rpc(a, r, &q);
	} else if (str_eq(path, "/files")) {
		files(&q);
	} else if (str_eq(path, "/metrics") && http_req_is(r, "GET")) {
		ask_now(&q, "sandbox.metrics", after_metrics);
	} else if (str_eq(path, "/envs") && http_req_is(r, "GET")) {
		ask_now(&q, "sandbox.envs", after_envs);
	} else {
		e2b_status(r, 404, "%.200s not found", path);   /* /init, /freeze and the like are nobody's business */
	}
}

/* ---- */

static void to_sandbox(struct api *a, struct http_req *r, const struct e2b_addr *to)
{
	switch (ops_life(a->ops, to->id)) {
	case OP_LIFE_RUNNING:
		if (to->port == E2B_ENVD_PORT)
			envd(a, r, to);
		else
			e2b_port(a, r, to);
		return;
	case OP_LIFE_CREATING:
		e2b_status(r, 409, "the sandbox is starting");
		return;
	default:
		e2b_gone(r, to->id);
	}
}

static void bad_address(struct http_req *r, const char *why)
{
	http_replyf(r, 400, "text/plain; charset=utf-8", "%s\n", why);
}

bool e2b_try(struct api *a, struct http_req *r)
{
	const char *why = "missing header", *path = http_req_path(r);
	struct e2b_addr to = { .port = 0 };
	struct err e;
	int n = e2b_addr_fields(http_req_header(r, "e2b-sandbox-id"), http_req_header(r, "e2b-sandbox-port"), &to, &why);

	/* some SDKs send the fields of their last sandbox with requests to the API too: what envd doesn't serve can only be for the API */
	if (n > 0 && to.port == E2B_ENVD_PORT && e2b_control(a, r))
		return true;
	if (n > 0 && api_same_site(a, r, &e) < 0) {
		e2b_status(r, 403, "%s", e.msg);
		return true;
	}
	if (n == 0)
		n = e2b_addr_host(http_req_host(r), a->domain, &to, &why);
	if (n < 0) {
		bad_address(r, why);
		return true;
	}
	if (n > 0 || find_unnamed(a, r, &to)) {
		to_sandbox(a, r, &to);
		return true;
	}
	if (str_eq(path, "/files") || str_starts(path, "/process.Process/") || str_starts(path, "/filesystem.Filesystem/")) {
		bad_address(r, "missing header");
		return true;
	}
	return e2b_control(a, r);
}
