/* rest -- our own API, made from the table of operations: routes, arguments, answers. See docs/API.md.
 *
 * A request becomes one operation: arguments from path, query and a JSON body together. What the operation gives decides the
 * answer: a value (JSON), a stream (one JSON object a line), or a descriptor (bytes). */
#include "api/rest_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "core/str.h"
#include "http/url.h"

#define BODY_MAX (4u << 20)
#define PATH_ARGS 4

void rest_json(struct http_req *r, int status, const json_t *v)
{
	AUTO_BUF struct buf b = BUF_INIT(256u << 20);

	if (js_dump(v, &b) < 0)
		http_replyf(r, 500, "application/json", "{\"error\":{\"code\":\"internal\",\"message\":\"no memory for the answer\"}}\n");
	else {
		buf_addc(&b, '\n');
		http_reply_buf(r, status, "application/json", &b);
	}
}

/* word: one of the API's stable codes. */
static void fail_as(struct http_req *r, const char *word, int status, const struct err *e)
{
	AUTO_JSON json_t *v = json_pack("{s:{s:s,s:s}}", "error", "code", word, "message", e->msg);

	if (!v)      /* words of a computer that aren't UTF-8 */
		v = json_pack("{s:{s:s,s:s}}", "error", "code", word, "message", "(the message isn't text)");
	json_object_set_new(json_object_get(v, "error"), "hint", json_string(e->hint[0] ? e->hint : ops_code_hint(e->code)));
	if (status == 503 || status == 429)
		http_set(r, "Retry-After", "1");
	if (status == 401)
		http_set(r, "WWW-Authenticate", "Bearer");
	rest_json(r, status, v);
}

/* Who asks is known here: a file or a user of a computer says EACCES, and no other key would help. */
int rest_code(int code)
{
	return code == EACCES ? EPERM : code;
}

void rest_fail(struct http_req *r, const struct err *e)
{
	struct err mine = *e;

	if (e->code == EACCES && !e->hint[0])
		err_hint(&mine, "that is the sandbox's own answer: another of its users may, such as user or root (--user, argument 'user')");
	mine.code = rest_code(e->code);
	fail_as(r, ops_code_name(mine.code), ops_http_status(mine.code), &mine);
}

/* What never became an operation: the HTTP server's own refusals. Their status is HTTP's, the word the nearest of ours. */
void rest_refuse(struct http_req *r, int status, const char *path, const char *why)
{
	bool large = status == 413 || status == 414 || status == 431;
	struct err e;

	err_set(&e, large ? E2BIG : status == 503 ? ENOMEM : status == 501 || status == 505 ? ENOSYS : status < 500 ? EINVAL : EIO, "%s", why);
	if (path[0])
		err_wrap(&e, "%s %.120s", http_req_method(r), path);
	else
		err_wrap(&e, "read the request");
	fail_as(r, ops_code_name(e.code), status, &e);
}

/* ---- routes ---- */

struct part { const char *p; size_t n; };

/* Does path fit route? The {parts} are noted in order, names from the route. */
static int fits(const char *route, const char *path, struct part *names, struct part *values)
{
	int n = 0;

	while (*route && *path) {
		if (*route == '{') {
			size_t len = strcspn(path, "/");
			const char *end = strchr(route, '}');

			if (!len || !end || n == PATH_ARGS)
				return -1;
			names[n] = (struct part){ route + 1, (size_t)(end - route - 1) };
			values[n++] = (struct part){ path, len };
			route = end + 1;
			path += len;
		} else if (*route++ != *path++) {
			return -1;
		}
	}
	return *route || *path ? -1 : n;
}

static const struct op_info *find_route(struct http_req *r, struct part *names, struct part *values, int *ret_n, bool *ret_other)
{
	const char *method = http_req_is(r, "HEAD") ? "GET" : http_req_method(r), *path = http_req_path(r);
	size_t nops;
	const struct op_info *ops = ops_table(&nops);

	*ret_other = false;
	for (size_t i = 0; i < nops; i++) {
		int n = ops[i].route ? fits(ops[i].route, path, names, values) : -1;

		if (n < 0)
			continue;
		if (str_eq(ops[i].method, method)) {
			*ret_n = n;
			return &ops[i];
		}
		*ret_other = true;
	}
	return NULL;
}

/* ---- arguments ---- */

static const struct op_arg *arg_of(const struct op_info *op, const char *name, size_t n)
{
	for (size_t i = 0; i < op->nargs; i++)
		if (strlen(op->args[i].name) == n && strncmp(op->args[i].name, name, n) == 0)
			return &op->args[i];
	return NULL;
}

/* A value that came as text. What can't be read stays text: the schema's check says what is wrong with it. */
static json_t *from_text(const struct op_arg *a, const char *s)
{
	uint64_t n;

	switch (a ? a->kind : OP_STR) {
	case OP_INT:
		return str_u64(s, INT64_MAX, &n) == 0 ? json_integer((json_int_t)n) : json_string(s);
	case OP_BOOL:
		if (str_eq(s, "true") || str_eq(s, "1"))
			return json_true();
		return str_eq(s, "false") || str_eq(s, "0") ? json_false() : json_string(s);
	default:
		return json_string(s);
	}
}

static int add_query(const struct op_info *op, json_t *args, const char *name, const char *value, struct err *e)
{
	const char *dot = strchr(name, '.');
	const struct op_arg *a = arg_of(op, name, strlen(name)), *map = dot ? arg_of(op, name, (size_t)(dot - name)) : NULL;
	json_t *o;

	if (map && map->kind == OP_MAP) {
		o = json_object_get(args, map->name);
		if (!o) {
			o = json_object();
			json_object_set_new(args, map->name, o);
		}
		return json_object_set_new(o, dot + 1, json_string(value)) < 0 ? err_set(e, EINVAL, "the query isn't UTF-8") : 0;
	}
	if (a && a->kind == OP_STRV) {
		o = json_object_get(args, name);
		if (!json_is_array(o)) {
			o = json_array();
			json_object_set_new(args, name, o);
		}
		return json_array_append_new(o, json_string(value)) < 0 ? err_set(e, EINVAL, "the query isn't UTF-8") : 0;
	}
	if (json_object_get(args, name))
		return err_set(e, EINVAL, "'%.80s' is given twice", name);
	return json_object_set_new(args, name, from_text(a, value)) < 0 ? err_set(e, EINVAL, "the query isn't UTF-8") : 0;
}

static int read_path_and_query(struct rest_call *c, const struct part *names, const struct part *values, int n, struct err *e)
{
	const char *name, *value;

	for (int i = 0; i < n; i++) {
		char key[32], text[512];

		if (names[i].n >= sizeof key || values[i].n >= sizeof text)
			return err_set(e, ENOENT, "'%.40s' names nothing", values[i].p);
		memcpy(key, names[i].p, names[i].n);
		key[names[i].n] = '\0';
		memcpy(text, values[i].p, values[i].n);
		text[values[i].n] = '\0';
		if (json_object_set_new(c->args, key, from_text(arg_of(c->op, key, names[i].n), text)) < 0)
			return err_set(e, EINVAL, "the path isn't UTF-8");
	}
	if (http_req_query_bad(c->r))
		return err_set(e, EINVAL, "the query can't be decoded");
	for (unsigned i = 0; http_req_query_at(c->r, i, &name, &value); i++) {
		if (str_eq(name, "text") && c->op->stream) {
			c->text = str_eq(value, "true") || str_eq(value, "1");
			continue;
		}
		if (add_query(c->op, c->args, name, value, e) < 0)
			return -e->code;
	}
	return 0;
}

static void on_body(void *ctx, struct http_req *r, char *p, size_t n)
{
	struct rest_call *c = ctx;
	AUTO_JSON json_t *v = NULL;
	const char *key;
	struct err e;
	json_t *it;

	if (n && js_parse(p, n, &v, &e) < 0)
		goto bad;
	if (n && !json_is_object(v)) {
		err_set(&e, EINVAL, "the body must be a JSON object");
		goto bad;
	}
	json_object_foreach(v, key, it) {
		if (json_object_get(c->args, key)) {
			err_set(&e, EINVAL, "'%.80s' is given twice", key);
			goto bad;
		}
		json_object_set(c->args, key, it);
	}
	rest_run(c);
	return;
bad:
	err_wrap(&e, "%s", c->op->name);
	rest_fail(r, &e);
}

/* ---- one request ---- */

static void not_found(struct http_req *r, bool other_method)
{
	const char *code = other_method ? "method_not_allowed" : "not_found";
	struct err e;

	err_set(&e, ENOENT, other_method ? "this path has other methods" : "there is no such route");
	err_wrap(&e, "%.20s %.200s", http_req_method(r), http_req_path(r));
	err_hint(&e, "docs/API.md lists every route");
	fail_as(r, code, other_method ? 405 : 404, &e);
}

/* The server's key, or the access token of one computer. */
static int who_asks(struct api *a, struct http_req *r, struct principal *ret, struct err *e)
{
	const char *token = http_req_header(r, "x-access-token"), *auth = http_req_header(r, "authorization"), *id;

	if (!token && auth && strncasecmp(auth, "Bearer ", 7) == 0)
		token = auth + 7;
	id = token ? ops_find_by_token(a->ops, token) : NULL;
	if (id)
		return ops_auth_token(a->ops, id, token, ret, e);
	return api_auth(a, r, ret, e);
}

/* /v1/sandboxes/ID/ports/PORT/proxy/... */
static bool try_proxy(struct api *a, struct http_req *r, const struct principal *who)
{
	static const char head[] = "/v1/sandboxes/", middle[] = "/ports/", last[] = "/proxy";
	const char *t = http_req_target(r), *id, *port;
	char idbuf[40], portbuf[8];
	size_t n;

	if (!str_starts(t, head))
		return false;
	id = t + strlen(head);
	n = strcspn(id, "/?");
	if (n >= sizeof idbuf || !str_starts(id + n, middle))
		return false;
	memcpy(idbuf, id, n);
	idbuf[n] = '\0';
	port = id + n + strlen(middle);
	n = strcspn(port, "/?");
	if (n >= sizeof portbuf || !str_starts(port + n, last))
		return false;
	memcpy(portbuf, port, n);
	portbuf[n] = '\0';
	t = port + n + strlen(last);
	if (*t && *t != '/' && *t != '?')
		return false;
	rest_proxy(a, r, who, idbuf, portbuf, t);
	return true;
}

static void start(struct api *a, struct http_req *r, const struct principal *who)
{
	struct part names[PATH_ARGS], values[PATH_ARGS];
	const struct op_info *op;
	struct rest_call *c;
	bool other;
	struct err e;
	int n = 0;

	if (try_proxy(a, r, who))
		return;
	op = find_route(r, names, values, &n, &other);
	if (!op) {
		not_found(r, other);
		return;
	}
	c = rest_call_new(a, r, op, who);
	if (!c) {
		err_set(&e, ENOMEM, "no memory");
		rest_fail(r, &e);
		return;
	}
	if (read_path_and_query(c, names, values, n, &e) < 0)
		rest_fail(r, (err_wrap(&e, "%s", op->name), &e));
	else if (str_eq(op->name, "file.write") && !json_object_get(c->args, "size") && http_req_body_length(r) > 0 &&
		json_object_set_new(c->args, "size", json_integer(http_req_body_length(r))) < 0)
		rest_fail(r, (err_set(&e, ENOMEM, "no memory"), &e));
	else if (op->takes_body && !op->gives_fd)
		rest_input(c);
	else if (op->takes_body || http_req_body_length(r) == 0)
		rest_run(c);
	else
		http_req_collect(r, BODY_MAX, on_body, c);
}

void rest_handle(struct api *a, struct http_req *r)
{
	struct principal who;
	struct err e;

	if (str_eq(http_req_path(r), "/health")) {
		http_reply(r, 204, NULL, NULL, 0);
		return;
	}
	if (api_same_site(a, r, &e) < 0 || who_asks(a, r, &who, &e) < 0) {
		fail_as(r, ops_code_name(e.code), ops_http_status(e.code), &e);
		return;
	}
	start(a, r, &who);
}
