#include "ops/ops_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tap.h"

static const struct op_def *def(const char *name)
{
	for (size_t i = 0; i < op_defs_n; i++)
		if (strcmp(op_defs[i].info.name, name) == 0)
			return &op_defs[i];
	exit(1);
}

static int check(const char *op, const char *text, json_t **ret, struct err *e)
{
	AUTO_JSON json_t *v = NULL;
	int r = js_parse(text, strlen(text), &v, e);

	r = r < 0 ? r : args_check(def(op), v, e);
	if (ret)
		*ret = json_incref(v);
	return r;
}

static const struct { const char *op, *args; int want; const char *says; } cases[] = {
	{ "sandbox.create", "{}", 0, "" },
	{ "sandbox.create", "{\"colour\":1}", -EINVAL, "colour" },
	{ "sandbox.create", "{\"template\":7}", -EINVAL, "template" },
	{ "sandbox.create", "{\"net\":\"some\"}", -EINVAL, "none, all" },
	{ "sandbox.create", "{\"net\":\"none\",\"memory\":null}", 0, "" },
	{ "sandbox.create", "{\"memory\":-1}", -EINVAL, "memory" },
	{ "sandbox.create", "{\"memory\":1.5}", -EINVAL, "whole" },
	{ "sandbox.create", "{\"metadata\":{\"a\":1}}", -EINVAL, "'a'" },
	{ "sandbox.create", "{\"metadata\":[]}", -EINVAL, "metadata" },
	{ "sandbox.create", "[]", -EINVAL, "object" },
	{ "sandbox.get", "{}", -EINVAL, "'id'" },
	{ "sandbox.get", "{\"id\":\"../../etc\"}", -ENOENT, "isn't known" },
	{ "process.start", "{\"id\":\"iaaaaaaaaaaa\",\"cmd\":\"ls\",\"args\":[\"a\",2]}", -EINVAL, "item 2" },
	{ "process.start", "{\"id\":\"iaaaaaaaaaaa\",\"cmd\":\"ls\",\"pty\":{\"cols\":80,\"rows\":24}}", 0, "" },
	{ "process.start", "{\"id\":\"iaaaaaaaaaaa\",\"cmd\":\"ls\",\"pty\":{\"cols\":80}}", -EINVAL, "rows" },
	{ "process.signal", "{\"id\":\"iaaaaaaaaaaa\",\"signal\":65}", -EINVAL, "1 to 64" },
	{ "file.list", "{\"id\":\"iaaaaaaaaaaa\",\"path\":\"/\",\"depth\":0}", -EINVAL, "depth" },
};

static void test_strv(void)
{
	struct op_call c = { 0 };
	const char **v = NULL;
	size_t n = 0;
	struct err e;

	c.args = json_pack("{s:{s:s,s:s},s:[s,s]}", "envs", "A", "1", "B", "x=y", "args", "one", "");
	ok(arg_strv(&c, "envs", &v, &n, &e) == 0 && n == 2 && v[2] == NULL, "a map becomes a list");
	is_str(v[0], "A=1", "name and value");
	is_str(v[1], "B=x=y", "a value may have '='");
	free(v);
	ok(arg_strv(&c, "args", &v, &n, &e) == 0 && n == 2, "a list stays one");
	is_str(v[1], "", "with an empty string");
	free(v);
	ok(arg_strv(&c, "none", &v, &n, &e) == 0 && n == 0 && v[0] == NULL, "absent is empty");
	free(v);
	json_decref(c.args);
	c.args = json_pack("{s:{s:s}}", "envs", "A=B", "1");
	ok(arg_strv(&c, "envs", &v, &n, &e) == -EINVAL, "a name with '=' is refused");
	json_decref(c.args);
}

int main(void)
{
	json_t *v = NULL;
	struct err e;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		e.msg[0] = '\0';
		ok(check(cases[i].op, cases[i].args, NULL, &e) == cases[i].want, "%s %s", cases[i].op, cases[i].args);
		if (cases[i].want < 0)
			ok(strstr(e.msg, cases[i].says) != NULL, "says '%s': %s", cases[i].says, e.msg);
	}
	ok(check("sandbox.create", "{}", &v, &e) == 0, "defaults");
	is_str(json_string_value(json_object_get(v, "template")), "base", "template");
	is_str(json_string_value(json_object_get(v, "net")), "all", "net");
	ok(json_is_true(json_object_get(v, "secure")), "secure");
	json_decref(v);
	for (size_t i = 1; i < op_defs_n; i++)
		ok(strcmp(op_defs[i - 1].info.name, op_defs[i].info.name) < 0, "the table is sorted at %s", op_defs[i].info.name);
	for (size_t i = 0; i < op_defs_n; i++)
		ok(op_defs[i].states == 0 || op_defs[i].info.args[0].kind == OP_ID, "%s: states need an id first", op_defs[i].info.name);
	test_strv();
	return done_testing();
}
