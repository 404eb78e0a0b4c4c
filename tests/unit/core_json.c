#include "core/json.h"
#include "core/str.h"
#include "tap.h"

#include <errno.h>

static struct err e;

static int parses(const char *s, size_t n)
{
	json_t *v = NULL;
	int r = js_parse(s, n, &v, &e);

	json_decref(v);
	return r;
}

static void test_strict(void)
{
	static const struct { const char *s; size_t n; } bad[] = {
		{ "", 0 }, { "{", 1 }, { "{\"a\":1,\"a\":2}", 13 }, { "{} x", 4 }, { "{}{}", 4 }, { "\"\xff\"", 3 }, { "\"a\0b\"", 5 },
		{ "\"\\u0000\"", 8 }, { "\"\\ud800\"", 8 }, { "{}\0", 3 }, { "[1,]", 4 }, { "{'a':1}", 7 }, { "01", 2 }, { "nan", 3 },
		{ "99999999999999999999", 20 }, { "1e999", 5 }, { "\"\n\"", 3 }, { "// x\n{}", 7 },
	};
	static const char *const good[] = { "{}", " [1, 2] \n", "\"x\"", "true", "null", "-1.5e3", "{\"a\":{\"a\":1}}", "\"\\ud83d\\ude00\"" };
	char deep[8192];

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ok(parses(bad[i].s, bad[i].n) == -EINVAL, "refused, case %zu", i);
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		ok(parses(good[i], strlen(good[i])) == 0, "accepted: %zu", i);
	memset(deep, '[', sizeof deep);
	ok(parses(deep, sizeof deep) == -EINVAL, "8,192 open brackets are refused, not a stack overflow");
	ok(parses(NULL, 0) == -EINVAL, "nothing at all");
}

static void test_get(void)
{
	static const char text[] = "{\"s\":\"x\",\"i\":7,\"f\":1.5,\"b\":true,\"o\":{},\"a\":[1],\"n\":null}";
	AUTO_JSON json_t *v = NULL;
	const char *s = "untouched";
	int64_t i = -1;
	bool b = false;
	json_t *x = NULL;

	ok(js_parse(text, sizeof text - 1, &v, &e) == 0, "parse");
	ok(js_get_str(v, "s", &s, &e) == 1 && str_eq(s, "x"), "string");
	ok(js_get_int(v, "i", 0, 7, &i, &e) == 1 && i == 7, "int");
	ok(js_get_bool(v, "b", &b, &e) == 1 && b, "bool");
	ok(js_get_obj(v, "o", &x, &e) == 1 && json_is_object(x), "object");
	ok(js_get_arr(v, "a", &x, &e) == 1 && json_is_array(x), "array");
	s = "untouched";
	ok(js_get_str(v, "zz", &s, &e) == 0 && js_get_str(v, "n", &s, &e) == 0 && str_eq(s, "untouched"), "absent and null leave it alone");
	ok(js_get_str(v, "i", &s, &e) == -EINVAL, "wrong type");
	is_str(e.msg, "'i' must be a string", "names the member");
	ok(js_get_int(v, "i", 8, 9, &i, &e) == -EINVAL && i == 7, "out of range");
	is_str(e.msg, "'i' must be from 8 to 9", "names the range");
	ok(js_get_int(v, "f", 0, 9, &i, &e) == -EINVAL && js_get_bool(v, "i", &b, &e) == -EINVAL && js_get_obj(v, "a", &x, &e) == -EINVAL &&
		js_get_arr(v, "o", &x, &e) == -EINVAL, "wrong types everywhere");
	ok(js_get_str(x, "s", &s, NULL) == -EINVAL && js_get_str(NULL, "s", &s, &e) == -EINVAL, "not an object");
}

/* A key alone finds no room; what comes after it would. */
static void test_key(void)
{
	AUTO_BUF struct buf b = BUF_INIT(40);
	char key[100];
	AUTO_JSON json_t *v = json_object();

	memset(key, 'k', sizeof key - 1);
	key[sizeof key - 1] = '\0';
	json_object_set_new(v, key, json_string("x"));
	ok(js_dump(v, &b) == -ENOSPC && !buf_ok(&b), "no room for a key");
}

static void test_dump(void)
{
	AUTO_JSON json_t *v = json_pack("{s:f, s:s, s:[i,b]}", "z", 0.1, "a", "\xc3\xa9\n", "l", 1, 1);
	AUTO_BUF struct buf b = BUF_INIT(1000), small = BUF_INIT(20);

	ok(js_dump(v, &b) == 0, "dump");
	is_str(buf_at(&b), "{\"z\":0.1,\"a\":\"\xc3\xa9\\n\",\"l\":[1,true]}", "compact, in the order made");
	buf_clear(&b);
	ok(js_dump_pretty(v, &b) == 0, "pretty");
	is_str(buf_at(&b), "{\n  \"a\": \"\xc3\xa9\\n\",\n  \"l\": [\n    1,\n    true\n  ],\n  \"z\": 0.1\n}\n", "sorted, two spaces, newline");
	buf_adds(&small, "kept:");
	ok(js_dump(v, &small) == -ENOSPC && !buf_ok(&small), "no room");
	is_str(buf_at(&small), "kept:", "leaves nothing half-written");
	buf_clear(&b);
	AUTO_JSON json_t *str = json_string("x");
	ok(js_dump(str, &b) == 0 && str_eq(buf_at(&b), "\"x\""), "a lone string");
	ok(js_dump(NULL, &b) < 0, "nothing to dump");
	test_key();
}

int main(void)
{
	test_strict();
	test_get();
	test_dump();
	return done_testing();
}
