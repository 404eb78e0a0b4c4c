#include "secretary/toml.h"

#include <math.h>
#include "tap.h"

static struct toml *parse(const char *s)
{
	struct toml *t = NULL;
	struct err e = { 0 };

	if (toml_parse(s, strlen(s), "t", &t, &e) < 0)
		printf("# %s\n", e.msg);
	return t;
}

static void good(void)
{
	struct toml *t = parse("title = \"a\\tb \\u00e9\" # c\nn = -1_000\nx = 0xff\nf = 6.5e-1\nyes = true\nd = 1979-05-27 07:32:00.5-07:00\n"
		"\"quoted key\".b = 'lit\\n'\nml = \"\"\"\none \\\n   two\n\"\"\"\"\"\nmm = '''\nx''y'''\narr = [ 1, # c\n 2,\n]\n"
		"[a.b]\nc = {d = 1, e.f = \"g\"}\n[a]\nz = inf\n[[list]]\nn = 1\n[list.sub]\nq = 1\n[[list]]\nn = 2\n");
	struct toml *v;

	ok(t, "a file with everything");
	if (!t)
		return;
	is_str(toml_get(t, "title")->str, "a\tb \xc3\xa9", "escapes");
	ok(toml_get(t, "n")->num == -1000 && toml_get(t, "x")->num == 255, "whole numbers");
	ok(fabs(toml_get(t, "f")->real - 0.65) < 1e-9, "a float");
	ok(toml_get(t, "yes")->yes, "a boolean");
	is_str(toml_get(t, "d")->str, "1979-05-27 07:32:00.5-07:00", "a date stays text");
	is_str(toml_get(toml_get(t, "quoted key"), "b")->str, "lit\\n", "quoted and dotted key, literal string");
	is_str(toml_get(t, "ml")->str, "one two\n\"\"", "multi-line, folded, quotes before the end");
	is_str(toml_get(t, "mm")->str, "x''y", "multi-line literal");
	ok(toml_get(t, "arr")->count == 2, "an array over lines");
	v = toml_get(toml_get(toml_get(t, "a"), "b"), "c");
	is_str(toml_get(toml_get(v, "e"), "f")->str, "g", "inline table with a dotted key");
	ok(isinf(toml_get(toml_get(t, "a"), "z")->real), "[a] after [a.b]");
	v = toml_get(t, "list");
	ok(v->count == 2 && toml_get(v->first, "sub") && toml_get(v->last, "n")->num == 2, "array of tables, sub-table in its element");
	ok(toml_get(v->last, "n")->line == 26, "line numbers (got %d)", toml_get(v->last, "n")->line);
	toml_free(t);
}

static void bad(void)
{
	static const char *const texts[] = {
		"a = 1\na = 2", "a", "a =", "= 1", "a = 1 b = 2", "[a]\n[a]", "a.b = 1\n[a]", "[a.b]\nx=1\n[a]\nb.y = 2", "a = [1]\n[[a]]",
		"a = {b = 1}\na.c = 2", "a = {b = 1}\n[a.c]", "[[a]]\n[a]", "a = {b = 1,}", "a = \"x", "a = 'x\ny'", "a = \"\\q\"", "a = \"\\u00\"",
		"a = \"\\ud800\"", "a = \"\\u0000\"", "a = 01", "a = 1__0", "a = _1", "a = 1_", "a = 1.", "a = .5", "a = 1e", "a = +0x1", "a = 0x",
		"a = 9223372036854775808", "a = tru", "a = 2021-02-29", "a = 25:00:00", "a = 1979-05-27T07:32", "a = [1 2]", "a = [1", "a = {", "[a",
		"[[a]", "[]", "a = 1 # \x01", "a = \"\x01\"", "a\n= 1", "a = \"\"\"x\"\"", "\"\"\"a\"\"\" = 1", "a = \r1", "[a]\nb.c = 1\n[a.b]",
	};
	struct toml *t;
	struct err e = { 0 };
	char deep[400] = "a = ";

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		t = parse(texts[i]);
		ok(!t, "refused: text %zu", i);
		toml_free(t);
	}
	memset(deep + 4, '[', 200);
	ok(!parse(deep), "too deep");
	ok(toml_parse("a = \"\xff\"", 8, "t", &t, &e) < 0, "not UTF-8");
	ok(toml_parse("x = 1\n\n y == 2", 14, "job.toml", &t, &e) < 0 && strstr(e.msg, "job.toml:3:"), "the error has file and line: %s", e.msg);
}

int main(void)
{
	good();
	bad();
	return done_testing();
}
