#include "core/json.h"
#include "core/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Shortest of the usual decimals (0.1, not 0.10000000000000001); milliseconds of our age need 13 digits. */
#define REAL_DIGITS JSON_REAL_PRECISION(15)

/* jansson's lexer (2.14) drops a byte of a string when it can't get memory, and goes on: it would tell us success and a
 * mangled value. So its allocations go through here, and one that failed fails the whole call. */
static bool starved;

static void *noting_malloc(size_t n)
{
	void *p = malloc(n);

	starved |= !p;
	return p;
}

static void set_up(void)
{
	static bool done;
	size_t seed = 0;

	if (done)
		return;
	json_set_alloc_funcs(noting_malloc, free);
	while (!seed)
		str_random(&seed, sizeof seed);
	json_object_seed(seed);
	done = true;
}

int js_parse(const char *p, size_t n, json_t **ret, struct err *e)
{
	json_error_t je;
	json_t *v;

	set_up();
	starved = false;
	v = json_loadb(p ? p : "", n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (starved) {
		json_decref(v);
		return err_set(e, ENOMEM, "JSON: no memory");
	}
	if (!v)
		return err_set(e, EINVAL, "JSON, line %d column %d: %s", je.line, je.column, je.text);
	*ret = v;
	return 0;
}

static int add_chunk(const char *p, size_t n, void *out)
{
	return buf_add(out, p, n) < 0 ? -1 : 0;
}

static int dump(const json_t *v, struct buf *out, size_t flags)
{
	size_t before = out->len;

	starved = false;
	if (!v || json_dump_callback(v, add_chunk, out, flags | JSON_ENCODE_ANY | REAL_DIGITS) < 0 || starved || out->bad) {
		/* bad: jansson goes on after a key that found no room. */
		/* a value we can't write (bad UTF-8 can't be made by us, so: no room) leaves nothing half-written */
		if (out->data) {
			out->len = before;
			out->data[out->off + before] = '\0';
		}
		out->bad = true;
		return -ENOSPC;
	}
	return 0;
}

int js_dump(const json_t *v, struct buf *out)
{
	return dump(v, out, JSON_COMPACT);
}

int js_dump_pretty(const json_t *v, struct buf *out)
{
	int r = dump(v, out, JSON_INDENT(2) | JSON_SORT_KEYS);

	return r < 0 ? r : buf_addc(out, '\n');
}

/* 1 and *ret when o has a member that isn't null */
static int member(const json_t *o, const char *key, json_t **ret, struct err *e)
{
	json_t *v;

	if (!json_is_object(o))
		return err_set(e, EINVAL, "an object with '%s' is wanted", key);
	v = json_object_get(o, key);
	if (!v || json_is_null(v))
		return 0;
	*ret = v;
	return 1;
}

int js_get_str(const json_t *o, const char *key, const char **ret, struct err *e)
{
	json_t *v = NULL;
	int r = member(o, key, &v, e);

	if (r <= 0)
		return r;
	if (!json_is_string(v))
		return err_set(e, EINVAL, "'%s' must be a string", key);
	*ret = json_string_value(v);
	return 1;
}

int js_get_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
	json_t *v = NULL;
	int64_t n;
	int r = member(o, key, &v, e);

	if (r <= 0)
		return r;
	if (!json_is_integer(v))
		return err_set(e, EINVAL, "'%s' must be a whole number", key);
	n = json_integer_value(v);
	if (n < min || n > max)
		return err_set(e, EINVAL, "'%s' must be from %lld to %lld", key, (long long)min, (long long)max);
	*ret = n;
	return 1;
}

int js_get_bool(const json_t *o, const char *key, bool *ret, struct err *e)
{
	json_t *v = NULL;
	int r = member(o, key, &v, e);

	if (r <= 0)
		return r;
	if (!json_is_boolean(v))
		return err_set(e, EINVAL, "'%s' must be true or false", key);
	*ret = json_is_true(v);
	return 1;
}

int js_get_obj(const json_t *o, const char *key, json_t **ret, struct err *e)
{
	json_t *v = NULL;
	int r = member(o, key, &v, e);

	if (r <= 0)
		return r;
	if (!json_is_object(v))
		return err_set(e, EINVAL, "'%s' must be an object", key);
	*ret = v;
	return 1;
}

int js_get_arr(const json_t *o, const char *key, json_t **ret, struct err *e)
{
	json_t *v = NULL;
	int r = member(o, key, &v, e);

	if (r <= 0)
		return r;
	if (!json_is_array(v))
		return err_set(e, EINVAL, "'%s' must be an array", key);
	*ret = v;
	return 1;
}
