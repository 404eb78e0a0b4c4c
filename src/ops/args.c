/* args -- arguments against the schema. Everything a handler reads was checked here: it's there if required, of its type and in
 * its range, and nothing else is there. Defaults are filled in. */
#include "ops/ops_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "core/str.h"

#define STR_MAX 65536
#define LIST_MAX 4096
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static const struct op_arg *find_arg(const struct op_arg *args, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(args[i].name, name))
			return &args[i];
	return NULL;
}

/* What the guest takes (guest_proto.h): a longer one would end its link. */
static size_t longest(const char *name)
{
	static const struct { const char *name; size_t max; } table[] = {
		{ "path", 4095 }, { "from", 4095 }, { "to", 4095 }, { "cwd", 4095 }, { "cmd", 4095 }, { "user", 63 }, { "tag", 256 },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (str_eq(table[i].name, name))
			return table[i].max;
	return STR_MAX;
}

static int is_str(const struct op_arg *a, const json_t *v, struct err *e)
{
	size_t max = longest(a->name);

	if (!json_is_string(v))
		return err_set(e, EINVAL, "'%s' must be a string", a->name);
	if (json_string_length(v) > max)
		return err_set(e, max == STR_MAX ? E2BIG : ENAMETOOLONG, "'%s' is longer than %zu bytes", a->name, max);
	/* jansson keeps NUL out at the door (js_parse); what a dialect built itself is looked at too */
	if (strlen(json_string_value(v)) != json_string_length(v))
		return err_set(e, EINVAL, "'%s' has a NUL in it", a->name);
	return 0;
}

static int is_word(const struct op_arg *a, const json_t *v, struct err *e)
{
	AUTO_BUF struct buf all = BUF_INIT(200);

	if (json_is_string(v))
		for (size_t i = 0; a->words[i]; i++)
			if (str_eq(a->words[i], json_string_value(v)))
				return 0;
	for (size_t i = 0; a->words[i]; i++)
		buf_printf(&all, "%s%s", i ? ", " : "", a->words[i]);
	return err_set(e, EINVAL, "'%s' must be one of: %s", a->name, buf_at(&all));
}

static const char *string_fault(int code)
{
	return code == E2BIG ? "is longer than " TEXT(STR_MAX) " bytes" : "must be a string without NUL";
}

static int is_strings(const struct op_arg *a, const json_t *v, bool map, struct err *e)
{
	size_t n = map ? json_object_size(v) : json_array_size(v), i;
	const char *key;
	json_t *it;

	if (map ? !json_is_object(v) : !json_is_array(v))
		return err_set(e, EINVAL, "'%s' must be %s of strings", a->name, map ? "an object" : "a list");
	if (n > LIST_MAX)
		return err_set(e, E2BIG, "'%s' has more than %d members", a->name, LIST_MAX);
	if (map) {
		json_object_foreach((json_t *)(uintptr_t)v, key, it)
			if (is_str(a, it, e) < 0)
				return err_set(e, e->code, "'%s': '%.80s' %s", a->name, key, string_fault(e->code));
		return 0;
	}
	json_array_foreach(v, i, it)
		if (is_str(a, it, e) < 0)
			return err_set(e, e->code, "'%s': item %zu %s", a->name, i + 1, string_fault(e->code));
	return 0;
}

static int check_all(const struct op_arg *args, size_t nargs, json_t *o, const char *what, struct err *e);

static int check_one(const struct op_arg *a, json_t *v, struct err *e)
{
	switch (a->kind) {
	case OP_STR:
		return is_str(a, v, e);
	case OP_ID:
		if (is_str(a, v, e) < 0)
			return -e->code;
		return str_id(json_string_value(v)) ? 0 : err_set(e, ENOENT, "computer '%.40s' isn't known", json_string_value(v));
	case OP_INT:
		if (!json_is_integer(v))
			return err_set(e, EINVAL, "'%s' must be a whole number", a->name);
		if (json_integer_value(v) < a->min || json_integer_value(v) > a->max)
			return err_set(e, EINVAL, "'%s' must be from %lld to %lld", a->name, (long long)a->min, (long long)a->max);
		return 0;
	case OP_NUM:
		return json_is_number(v) ? 0 : err_set(e, EINVAL, "'%s' must be a number", a->name);
	case OP_BOOL:
		return json_is_boolean(v) ? 0 : err_set(e, EINVAL, "'%s' must be true or false", a->name);
	case OP_MAP:
		return is_strings(a, v, true, e);
	case OP_STRV:
		return is_strings(a, v, false, e);
	case OP_WORD:
		return is_word(a, v, e);
	case OP_OBJ:
		if (!json_is_object(v))
			return err_set(e, EINVAL, "'%s' must be an object", a->name);
		return check_all(a->members, a->nmembers, v, a->name, e);
	}
	return err_set(e, EINVAL, "'%s' has an unknown type", a->name);
}

static json_t *default_of(const struct op_arg *a)
{
	switch (a->kind) {
	case OP_INT:
		return json_integer(strtoll(a->def, NULL, 10));
	case OP_BOOL:
		return json_boolean(str_eq(a->def, "true"));
	default:
		return json_string(a->def);
	}
}

static int check_all(const struct op_arg *args, size_t nargs, json_t *o, const char *what, struct err *e)
{
	const char *key;
	json_t *v;
	void *tmp;
	int r;

	json_object_foreach_safe(o, tmp, key, v) {
		if (!find_arg(args, nargs, key)) {
			err_set(e, EINVAL, what ? "'%.80s' is no member of '%s'" : "there is no argument '%.80s'", key, what);
			return err_hint(e, "docs/API.md lists what there is");
		}
		if (json_is_null(v))
			json_object_del(o, key);
	}
	for (size_t i = 0; i < nargs; i++) {
		v = json_object_get(o, args[i].name);
		if (!v && args[i].required)
			return err_set(e, EINVAL, what ? "'%s' is missing in '%s'" : "'%s' is missing", args[i].name, what);
		if (!v && args[i].def && json_object_set_new(o, args[i].name, default_of(&args[i])) < 0)
			return err_set(e, ENOMEM, "no memory");
		if (!v)
			continue;
		r = check_one(&args[i], v, e);
		if (r < 0)
			return r;
	}
	return 0;
}

int args_check(const struct op_def *d, json_t *args, struct err *e)
{
	int r = json_is_object(args) ? check_all(d->info.args, d->info.nargs, args, NULL, e) : err_set(e, EINVAL, "arguments must be an object");

	return r < 0 ? err_wrap(e, "%s", d->info.name) : 0;
}

json_t *arg_get(const struct op_call *c, const char *name)
{
	return json_object_get(c->args, name);
}

bool arg_has(const struct op_call *c, const char *name)
{
	return arg_get(c, name) != NULL;
}

const char *arg_str(const struct op_call *c, const char *name)
{
	const char *s = json_string_value(arg_get(c, name));

	return s ? s : "";
}

int64_t arg_int(const struct op_call *c, const char *name, int64_t absent)
{
	json_t *v = arg_get(c, name);

	return v ? json_integer_value(v) : absent;
}

bool arg_bool(const struct op_call *c, const char *name)
{
	return json_is_true(arg_get(c, name));
}

static size_t bytes_of(const json_t *v, size_t n)
{
	size_t bytes = (n + 1) * sizeof(char *), i;
	const char *key;
	json_t *it;

	if (json_is_object(v))
		json_object_foreach((json_t *)(uintptr_t)v, key, it)
			bytes += strlen(key) + json_string_length(it) + 2;
	else
		json_array_foreach(v, i, it)
			bytes += json_string_length(it) + 1;
	return bytes;
}

/* Copies s with its NUL; returns the place behind it. The memory was measured by bytes_of(). */
static char *put(char *p, const char *s)
{
	size_t n = strlen(s) + 1;

	memcpy(p, s, n);
	return p + n;
}

int arg_strv(const struct op_call *c, const char *name, const char ***ret, size_t *ret_n, struct err *e)
{
	json_t *v = arg_get(c, name), *it;
	size_t n = json_is_object(v) ? json_object_size(v) : json_array_size(v), i = 0, at;
	char **out = malloc(bytes_of(v, n));
	const char *key;
	char *p;

	if (!out)
		return err_set(e, ENOMEM, "no memory");
	p = (char *)(out + n + 1);
	if (json_is_object(v)) {
		json_object_foreach(v, key, it) {
			if (!key[0] || strchr(key, '=')) {
				free(out);
				return err_set(e, EINVAL, "'%s': '%.80s' can't be a name", name, key);
			}
			out[i++] = p;
			p = put(p, key);
			p[-1] = '=';
			p = put(p, json_string_value(it));
		}
	} else {
		json_array_foreach(v, at, it) {
			out[i++] = p;
			p = put(p, json_string_value(it));
		}
	}
	out[i] = NULL;
	*ret = (const char **)out;
	*ret_n = i;
	return 0;
}
