#include "api/e2b_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"
#include "http/url.h"

/* The control plane's objects: ours to E2B's, and the body of create to arguments. */

#define NEVER_ENDS "2999-12-31T23:59:59.000Z"     /* E2B knows no sandbox without an end */
enum { DEFAULT_S_V2 = 300, DEFAULT_S_V1 = 15, MAX_TIMEOUT_S = 2000000000 };

static int cpus(int64_t thousandths)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);

	if (thousandths > 0)
		return (int)((thousandths + 999) / 1000);
	return online > 0 ? (int)online : 1;
}

static void add_details(json_t *o, const json_t *sandbox)
{
	const json_t *limits = json_object_get(sandbox, "limits"), *ends = json_object_get(sandbox, "ends_at");
	json_t *meta = json_object_get(sandbox, "metadata");
	const char *state = json_string_value(json_object_get(sandbox, "state"));
	char when[32];

	clock_rfc3339(json_integer_value(json_object_get(sandbox, "started_at")), when);
	json_object_set_new(o, "startedAt", json_string(when));
	if (json_is_integer(ends)) {
		clock_rfc3339(json_integer_value(ends), when);
		json_object_set_new(o, "endAt", json_string(when));
	} else {
		json_object_set_new(o, "endAt", json_string(NEVER_ENDS));
	}
	json_object_set_new(o, "state", json_string(state && str_eq(state, "paused") ? "paused" : "running"));
	json_object_set_new(o, "cpuCount", json_integer(cpus(json_integer_value(json_object_get(limits, "cpu")))));
	json_object_set_new(o, "memoryMB", json_integer(json_integer_value(json_object_get(limits, "memory")) >> 20));
	json_object_set_new(o, "diskSizeMB", json_integer(json_integer_value(json_object_get(limits, "disk")) >> 20));
	json_object_set_new(o, "metadata", json_is_object(meta) ? json_incref(meta) : json_object());
	json_object_set_new(o, "volumeMounts", json_array());
}

json_t *e2b_sandbox(const json_t *sandbox, const char *domain, enum e2b_shape shape)
{
	json_t *id = json_object_get(sandbox, "id"), *token = json_object_get(sandbox, "access_token");
	json_t *template = json_object_get(sandbox, "template"), *o;
	const char *net = json_string_value(json_object_get(sandbox, "net"));

	if (!json_is_string(id) || !json_is_string(template))
		return NULL;
	o = json_pack("{s:O, s:O, s:O, s:s, s:s}", "sandboxID", id, "templateID", template, "alias", template,
		"clientID", "bureau", "envdVersion", E2B_ENVD_VERSION);
	if (!o)
		return NULL;
	if (shape != E2B_SANDBOX)
		add_details(o, sandbox);
	if (shape == E2B_LISTED)
		return o;
	if (json_is_string(token))
		json_object_set(o, "envdAccessToken", token);
	json_object_set_new(o, "domain", domain ? json_string(domain) : json_null());
	if (shape == E2B_SANDBOX) {
		json_object_set_new(o, "trafficAccessToken", json_null());
	} else {
		json_object_set_new(o, "allowInternetAccess", json_boolean(!net || !str_eq(net, "none")));
		json_object_set_new(o, "lifecycle", json_pack("{s:s, s:b}", "onTimeout", "kill", "autoResume", 0));
	}
	return o;
}

/* Null, false, "", {} and [] ask for nothing. */
static bool asks_nothing(const json_t *v)
{
	if (!v || json_is_null(v) || json_is_false(v))
		return true;
	if (json_is_string(v))
		return json_string_length(v) == 0;
	return (json_is_object(v) && json_object_size(v) == 0) || (json_is_array(v) && json_array_size(v) == 0);
}

static int not_here(struct err *e, const char *field)
{
	err_set(e, EINVAL, "'%.80s' is not supported by this server", field);
	return err_hint(e, "leave it out");
}

/* Is v a list that holds the whole of IPv4, and nothing but whole address families? */
static bool is_everything(const json_t *v)
{
	bool v4 = false;

	for (size_t i = 0; i < json_array_size(v); i++) {
		const char *s = json_string_value(json_array_get(v, i));

		if (!s || (!str_eq(s, "0.0.0.0/0") && !str_eq(s, "::/0")))
			return false;
		v4 |= str_eq(s, "0.0.0.0/0");
	}
	return v4;
}

/* network: what is the same as "everything" or "nothing" can be had; the rest is refused by name. */
static int network(const json_t *n, bool *none, struct err *e)
{
	const char *key;
	json_t *v, *allow = json_object_get(n, "allowOut");
	char field[112];

	if (!n || json_is_null(n))
		return 0;
	if (!json_is_object(n))
		return err_set(e, EINVAL, "'network' must be an object");
	json_object_foreach((json_t *)(uintptr_t)n, key, v) {
		snprintf(field, sizeof field, "network.%.80s", key);
		if (str_eq(key, "allowPublicTraffic")) {
			if (!json_is_null(v) && !json_is_true(v))
				return not_here(e, "network.allowPublicTraffic=false");
		} else if (str_eq(key, "denyOut") && asks_nothing(allow) && is_everything(v)) {
			*none = true;
		} else if (str_eq(key, "allowOut") && is_everything(v)) {
			continue;
		} else if (!asks_nothing(v)) {
			return not_here(e, field);
		}
	}
	return 0;
}

static int string_map(const json_t *v, const char *field, struct err *e)
{
	const char *key;
	json_t *item;

	if (!json_is_object(v))
		return err_set(e, EINVAL, "'%s' must be an object of strings", field);
	json_object_foreach((json_t *)(uintptr_t)v, key, item)
		if (!json_is_string(item))
			return err_set(e, EINVAL, "'%s.%.80s' must be a string", field, key);
	return 0;
}

/* Members that name a feature: refused unless they ask for nothing. */
static int extras(const json_t *body, bool *secure, struct err *e)
{
	static const char *const known[] = { "templateID", "timeout", "metadata", "envVars", "allow_internet_access", "network", NULL };
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)body, key, v) {
		size_t i = 0;

		while (known[i] && !str_eq(known[i], key))
			i++;
		if (known[i])
			continue;
		if (str_eq(key, "secure")) {
			if (!json_is_boolean(v) && !json_is_null(v))
				return err_set(e, EINVAL, "'secure' must be true or false");
			*secure = json_is_true(v);
		} else if (str_eq(key, "autoResume") && json_is_object(v)) {
			if (!asks_nothing(json_object_get(v, "enabled")))
				return not_here(e, "autoResume.enabled=true");
		} else if (str_eq(key, "autoPauseMemory") && json_is_true(v)) {
			continue;       /* says how a pause would be made; autoPause itself is looked at on its own */
		} else if (!asks_nothing(v)) {
			return not_here(e, key);
		}
	}
	return 0;
}

static int take_map(const json_t *body, const char *theirs, const char *ours, json_t *args, struct err *e)
{
	json_t *v = json_object_get(body, theirs);
	int r;

	if (!v || json_is_null(v))
		return 0;
	r = string_map(v, theirs, e);
	if (r == 0)
		json_object_set(args, ours, v);
	return r;
}

/* "base:latest" is "base": there is one build of each template here. */
static int take_template(const json_t *body, json_t *args, struct err *e)
{
	const char *name = NULL, *tag;
	int r = js_get_str(body, "templateID", &name, e);

	if (r < 0)
		return r;
	if (r == 0 || !*name)
		return err_set(e, EINVAL, "'templateID' is missing");
	tag = strchr(name, ':');
	if (tag && (str_eq(tag, ":default") || str_eq(tag, ":latest")))
		json_object_set_new(args, "template", json_stringn(name, (size_t)(tag - name)));
	else
		json_object_set_new(args, "template", json_string(name));
	return 0;
}

int e2b_create_args(const json_t *body, bool v2, json_t **ret_args, struct err *e)
{
	json_t AUTO_JSON *args = json_object();
	int64_t timeout = v2 ? DEFAULT_S_V2 : DEFAULT_S_V1;
	bool secure = v2, net_none = false, internet = true;
	int r;

	if (!json_is_object(body))
		return err_set(e, EINVAL, "the body must be an object");
	r = take_template(body, args, e);
	if (r == 0)
		r = extras(body, &secure, e);
	if (r == 0)
		r = js_get_int(body, "timeout", 0, MAX_TIMEOUT_S, &timeout, e);
	if (r >= 0)
		r = js_get_bool(body, "allow_internet_access", &internet, e);
	if (r >= 0)
		r = network(json_object_get(body, "network"), &net_none, e);
	if (r >= 0)
		r = take_map(body, "metadata", "metadata", args, e);
	if (r >= 0)
		r = take_map(body, "envVars", "envs", args, e);
	if (r < 0)
		return r;
	json_object_set_new(args, "timeout_ms", json_integer(timeout * 1000));
	json_object_set_new(args, "net", json_string(net_none || !internet ? "none" : "all"));
	json_object_set_new(args, "secure", json_boolean(secure || v2));
	*ret_args = json_incref(args);
	return 0;
}

/* The parts of the query are encoded on their own, inside the encoded query. What isn't an encoding stands for itself. */
static int decode_part(char *part)
{
	struct buf AUTO_BUF plain = BUF_INIT(16384);

	if (str_percent_decode(part, strlen(part), false, &plain) < 0 || !buf_ok(&plain))
		return str_utf8(part, strlen(part)) ? 0 : -EINVAL;
	memcpy(part, buf_at(&plain), plain.len);        /* decoding never makes it longer */
	part[plain.len] = '\0';
	return str_utf8(part, plain.len) ? 0 : -EINVAL;
}

int e2b_metadata_filter(const char *s, json_t **ret, struct err *e)
{
	size_t n = s ? strlen(s) : 0, pos = 0;
	char AUTO_FREE *name = NULL, AUTO_FREE *value = NULL;
	json_t AUTO_JSON *o = NULL;
	int r;

	if (!n)
		return 0;
	name = malloc(n + 1);
	value = malloc(n + 1);
	o = json_object();
	if (!name || !value || !o)
		return err_set(e, ENOMEM, "metadata filter: no memory");
	while ((r = http_query_next(s, n, &pos, name, value)) > 0)
		if (decode_part(name) < 0 || decode_part(value) < 0 || json_object_set_new(o, name, json_string(value)) < 0)
			return err_set(e, EINVAL, "'metadata' isn't UTF-8");
	if (r < 0)
		return err_set(e, EINVAL, "'metadata' is not well encoded");
	*ret = json_incref(o);
	return 0;
}
