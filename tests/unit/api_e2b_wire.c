#include "api/e2b_wire.h"

#include <errno.h>
#include <stdlib.h>

#include "core/str.h"
#include "tap.h"

static json_t *js(const char *text)
{
	json_t *v = NULL;
	struct err e;

	if (js_parse(text, strlen(text), &v, &e) < 0)
		printf("# %s: %s\n", text, e.msg);
	return v;
}

/* What a value looks like, keys sorted; in a buffer that the next call uses again. */
static const char *show(json_t *v)
{
	static char *last;

	free(last);
	last = v ? json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : strdup("(none)");
	json_decref(v);
	return last;
}

static void test_ids(void)
{
	char id[E2B_ID_SIZE];

	ok(e2b_id("i5649b45606b16a9cc26", 20, id) && str_eq(id, "i5649b45606b16a9cc26"), "an id");
	ok(e2b_id("i5649b45606b16a9cc26-6532622b", 29, id) && str_eq(id, "i5649b45606b16a9cc26"), "an id with a client's suffix");
	ok(!e2b_id("", 0, id) && !e2b_id("-abc", 4, id), "no id");
	ok(!e2b_id("I5649B45606B16A9CC26", 20, id), "upper case is no id");
	ok(!e2b_id("../../etc/passwd0000", 20, id), "a path is no id");
	ok(!e2b_id("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 41, id), "too long is no id");
}

static void test_hosts(void)
{
	static const struct { const char *host, *domain; int want; int port; const char *why; } t[] = {
		{ "49983-i5649b45606b16a9cc26.box.test", "box.test", 1, 49983, "" },
		{ "49983-i5649b45606b16a9cc26.box.test:7443", "box.test:7443", 1, 49983, "" },
		{ "3000-i5649b45606b16a9cc26-6532622b.BOX.test", "box.test", 1, 3000, "" },
		{ "3000-i5649b45606b16a9cc26.localhost:7070", NULL, 1, 3000, "" },
		{ "3000-i5649b45606b16a9cc26.evil.test", "box.test", 0, 0, "" },
		{ "3000-i5649b45606b16a9cc26.evilbox.test", "box.test", 0, 0, "" },
		{ "api.box.test", "box.test", 0, 0, "" },
		{ "box.test", "box.test", 0, 0, "" },
		{ "localhost:7070", "box.test", 0, 0, "" },
		{ "127.0.0.1:7070", NULL, 0, 0, "" },
		{ "", "box.test", 0, 0, "" },
		{ "0-i5649b45606b16a9cc26.box.test", "box.test", -EINVAL, 0, "Invalid sandbox port" },
		{ "70000-i5649b45606b16a9cc26.box.test", "box.test", -EINVAL, 0, "Invalid sandbox port" },
		{ "-i5649b45606b16a9cc26.box.test", "box.test", -EINVAL, 0, "Invalid sandbox port" },
		{ "80-I_.box.test", "box.test", -EINVAL, 0, "Invalid sandbox ID" },
	};
	struct e2b_addr a;

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		const char *why = "";
		int r = e2b_addr_host(t[i].host, t[i].domain, &a, &why);

		ok(r == t[i].want && (r != 1 || (a.port == t[i].port && str_eq(a.id, "i5649b45606b16a9cc26"))) && str_eq(why, t[i].why),
			"host '%s': %d %s", t[i].host, r, why);
	}
}

static void test_fields(void)
{
	struct e2b_addr a;
	const char *why = "";

	ok(e2b_addr_fields(NULL, NULL, &a, &why) == 0, "no fields");
	ok(e2b_addr_fields("i5649b45606b16a9cc26", "49999", &a, &why) == 1 && a.port == 49999, "both fields");
	ok(e2b_addr_fields("i5649b45606b16a9cc26", NULL, &a, &why) == -EINVAL && str_eq(why, "missing header"), "the port is missing");
	ok(e2b_addr_fields(NULL, "49983", &a, &why) == -EINVAL && str_eq(why, "missing header"), "the id is missing");
	ok(e2b_addr_fields("i5649b45606b16a9cc26", "0x50", &a, &why) == -EINVAL, "a port that isn't one");
}

static void test_users(void)
{
	char user[16];

	ok(e2b_basic_user("Basic cm9vdDo=", user, sizeof user) == 1 && str_eq(user, "root"), "root");
	ok(e2b_basic_user("basic cm9vdDpzZWNyZXQ=", user, sizeof user) == 1 && str_eq(user, "root"), "a password is ignored");
	ok(e2b_basic_user(NULL, user, sizeof user) == 0 && e2b_basic_user("Bearer x", user, sizeof user) == 0, "none");
	ok(e2b_basic_user("Basic !!", user, sizeof user) == -EINVAL, "not base64");
	ok(e2b_basic_user("Basic YWFhYWFhYWFhYWFhYWFhYWFhYWE6", user, sizeof user) == -EINVAL, "too long");
	ok(e2b_basic_user("Basic AAA6", user, sizeof user) == -EINVAL, "NUL in it");
}

static void test_signatures(void)
{
	/* made with: printf 'PATH:read:user:TOKEN' | openssl dgst -sha256 -binary | base64 */
	struct e2b_sign s = { .path = "/home/user/a.txt", .op = "read", .user = "user",
		.signature = "v1_fKc90ogLWcsvCH9r+yyidAS+XRjcOB7VOMoS/dVhzwk" };

	ok(e2b_sign_ok(&s, "tok1"), "a good signature");
	ok(!e2b_sign_ok(&s, "tok2"), "another token");
	s.signature = "v1_fKc90ogLWcsvCH9r yyidAS XRjcOB7VOMoS/dVhzwk";
	ok(e2b_sign_ok(&s, "tok1"), "a '+' that was read as a space");
	s.op = "write";
	ok(!e2b_sign_ok(&s, "tok1"), "another act");
	s.op = "read";
	s.has_expires = true;
	ok(!e2b_sign_ok(&s, "tok1"), "an expiry that wasn't signed");
	s.signature = "";
	ok(!e2b_sign_ok(&s, "tok1"), "no signature");
}

static void test_envelopes(void)
{
	struct buf AUTO_BUF b = BUF_INIT(1 << 20);
	const char *msg;
	uint8_t flags;
	size_t n;

	ok(e2b_env_text(&b, E2B_ENV_END, "{}", 2) == 0 && b.len == 7, "made");
	ok(e2b_env_next(buf_at(&b), b.len, 100, &flags, &msg, &n) == 1 && flags == 2 && n == 2 && memcmp(msg, "{}", 2) == 0, "read back");
	for (size_t i = 0; i < 7; i++)
		if (e2b_env_next(buf_at(&b), i, 100, &flags, &msg, &n) != 0)
			ok(0, "cut off at %zu", i);
	ok(e2b_env_next("\0\0\1\0\0", 5, 100, &flags, &msg, &n) == -EMSGSIZE, "too long");
	ok(e2b_env_next("\1\0\0\0\0", 5, 100, &flags, &msg, &n) == -EPROTO, "compressed");
	buf_clear(&b);
	e2b_env_data(&b, OP_STDERR, "a\0\xff", 3);
	ok(e2b_env_next(buf_at(&b), b.len, 1000, &flags, &msg, &n) == 1 && flags == 0, "data event");
	is_str(msg, "{\"event\":{\"data\":{\"stderr\":\"YQD/\"}}}", "data event's text");
	buf_clear(&b);
	e2b_error_json(&b, e2b_code(ENOENT), "no \"x\"\n");
	is_str(buf_at(&b), "{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\\n\"}", "an error");
	ok(e2b_code_status("not_found") == 404 && e2b_code_status("internal") == 500, "statuses");
}

static void test_proto(void)
{
	json_t AUTO_JSON *f = js("{\"path\":\"/a/b\",\"name\":\"b\",\"type\":\"file\",\"mode\":420,\"size\":7,\"modified_at\":1796069110399,"
		"\"owner\":\"user\",\"group\":\"user\",\"uid\":1000,\"gid\":1000,\"metadata\":{\"k\":\"v\"}}");
	json_t AUTO_JSON *l = js("{\"path\":\"/l\",\"name\":\"l\",\"type\":\"symlink\",\"mode\":511,\"size\":1,\"modified_at\":0,\"target\":\"/a\","
		"\"owner\":\"root\",\"group\":\"root\",\"metadata\":{}}");
	json_t AUTO_JSON *w = js("{\"type\":\"modify\",\"name\":\"d/x\"}");
	json_t AUTO_JSON *ends = js("[{\"how\":\"exited\",\"code\":0},{\"how\":\"exited\",\"code\":3},{\"how\":\"signaled\",\"code\":9},"
		"{\"how\":\"timeout\",\"code\":0},{\"how\":\"signaled\",\"code\":60}]");

	is_str(show(e2b_entry(f)), "{\"group\":\"user\",\"metadata\":{\"k\":\"v\"},\"mode\":420,\"modifiedTime\":\"2026-11-30T20:05:10.399Z\",\"name\":\"b\","
		"\"owner\":\"user\",\"path\":\"/a/b\",\"permissions\":\"-rw-r--r--\",\"size\":\"7\",\"type\":\"FILE_TYPE_FILE\"}", "a file");
	is_str(show(e2b_entry(l)), "{\"group\":\"root\",\"mode\":511,\"modifiedTime\":\"1970-01-01T00:00:00.000Z\",\"name\":\"l\",\"owner\":\"root\","
		"\"path\":\"/l\",\"permissions\":\"Lrwxrwxrwx\",\"size\":\"1\",\"symlinkTarget\":\"/a\",\"type\":\"FILE_TYPE_SYMLINK\"}", "a link");
	json_object_set_new(l, "target_type", json_string("dir"));
	json_object_set_new(l, "target_mode", json_integer(0755));
	is_str(show(e2b_entry(l)), "{\"group\":\"root\",\"mode\":493,\"modifiedTime\":\"1970-01-01T00:00:00.000Z\",\"name\":\"l\",\"owner\":\"root\","
		"\"path\":\"/l\",\"permissions\":\"Lrwxrwxrwx\",\"size\":\"1\",\"symlinkTarget\":\"/a\",\"type\":\"FILE_TYPE_DIRECTORY\"}", "a link to a folder");
	is_str(show(e2b_watch_event(w)), "{\"name\":\"d/x\",\"type\":\"EVENT_TYPE_WRITE\"}", "a change");
	is_str(show(e2b_end_event(json_array_get(ends, 0))), "{\"exitCode\":0,\"exited\":true,\"status\":\"exit status 0\"}", "exit 0");
	is_str(show(e2b_end_event(json_array_get(ends, 1))),
		"{\"error\":\"exit status 3\",\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\"}", "exit 3");
	is_str(show(e2b_end_event(json_array_get(ends, 2))),
		"{\"error\":\"signal: killed\",\"exitCode\":-1,\"exited\":false,\"status\":\"signal: killed\"}", "killed");
	is_str(show(e2b_end_event(json_array_get(ends, 3))),
		"{\"error\":\"signal: killed\",\"exitCode\":-1,\"exited\":false,\"status\":\"signal: killed\"}", "timed out");
	is_str(show(e2b_end_event(json_array_get(ends, 4))),
		"{\"error\":\"signal: signal 60\",\"exitCode\":-1,\"exited\":false,\"status\":\"signal: signal 60\"}", "a signal without a name");
}

static void test_create(void)
{
	static const struct { const char *body; bool v2; const char *want; } t[] = {
		{ "{\"templateID\":\"base\"}", true, "{\"net\":\"all\",\"secure\":true,\"template\":\"base\",\"timeout_ms\":300000}" },
		{ "{\"templateID\":\"base\"}", false, "{\"net\":\"all\",\"secure\":false,\"template\":\"base\",\"timeout_ms\":15000}" },
		{ "{\"templateID\":\"base:latest\",\"timeout\":0,\"secure\":true}", false,
			"{\"net\":\"all\",\"secure\":true,\"template\":\"base\",\"timeout_ms\":0}" },
		{ "{\"templateID\":\"base\",\"metadata\":{\"a\":\"b\"},\"envVars\":{\"X\":\"1\"},\"allow_internet_access\":false}", true,
			"{\"envs\":{\"X\":\"1\"},\"metadata\":{\"a\":\"b\"},\"net\":\"none\",\"secure\":true,\"template\":\"base\",\"timeout_ms\":300000}" },
		{ "{\"templateID\":\"base\",\"network\":{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[],\"allowPublicTraffic\":true}}", true,
			"{\"net\":\"none\",\"secure\":true,\"template\":\"base\",\"timeout_ms\":300000}" },
		{ "{\"templateID\":\"base\",\"autoPause\":false,\"autoPauseMemory\":true,\"autoResume\":{\"enabled\":false},\"mcp\":null,"
			"\"volumeMounts\":[],\"iam\":{},\"somethingNew\":null}", true,
			"{\"net\":\"all\",\"secure\":true,\"template\":\"base\",\"timeout_ms\":300000}" },
		{ "{\"templateID\":\"base\",\"autoPause\":true}", true, "'autoPause' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"autoResume\":{\"enabled\":true}}", true, "'autoResume.enabled=true' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"volumeMounts\":[{\"name\":\"v\",\"path\":\"/m\"}]}", true, "'volumeMounts' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"mcp\":{\"x\":{}}}", true, "'mcp' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"iam\":{\"tokens\":{\"a\":{}}}}", true, "'iam' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"0.0.0.0/0\"]}}", true,
			"'network.allowOut' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"network\":{\"rules\":{\"a.b\":[{}]}}}", true, "'network.rules' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"network\":{\"egressProxy\":{\"address\":\"x\"}}}", true, "'network.egressProxy' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"network\":{\"allowPublicTraffic\":false}}", true,
			"'network.allowPublicTraffic=false' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"surprise\":1}", true, "'surprise' is not supported by this server" },
		{ "{\"templateID\":\"base\",\"timeout\":-1}", true, "'timeout' must be from 0 to 2000000000" },
		{ "{\"templateID\":\"base\",\"metadata\":{\"a\":1}}", true, "'metadata.a' must be a string" },
		{ "{}", true, "'templateID' is missing" },
		{ "[]", true, "the body must be an object" },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		json_t AUTO_JSON *body = js(t[i].body), *args = NULL;
		struct err e;

		if (e2b_create_args(body, t[i].v2, &args, &e) < 0)
			is_str(e.msg, t[i].want, "refused: %s", t[i].body);
		else
			is_str(show(json_incref(args)), t[i].want, "taken: %s", t[i].body);
	}
}

static void test_metadata(void)
{
	json_t *o = NULL;
	struct err e;

	ok(e2b_metadata_filter(NULL, &o, &e) == 0 && !o && e2b_metadata_filter("", &o, &e) == 0 && !o, "no filter");
	ok(e2b_metadata_filter("a=b&user%2520id=x%252By%2520z", &o, &e) == 0, "a filter");
	is_str(show(o), "{\"a\":\"b\",\"user id\":\"x+y z\"}", "decoded twice");
	o = NULL;
	ok(e2b_metadata_filter("a=100%25", &o, &e) == 0, "a part that isn't encoded again");
	is_str(show(o), "{\"a\":\"100%\"}", "stands for itself");
	o = NULL;
	ok(e2b_metadata_filter("a=%zz", &o, &e) == -EINVAL && !o, "a bad escape");
	ok(e2b_metadata_filter("a=%ff", &o, &e) == -EINVAL && !o, "not UTF-8");
}

static void test_sandbox(void)
{
	json_t AUTO_JSON *s = js("{\"id\":\"iabcdefgh\",\"template\":\"base\",\"state\":\"running\",\"started_at\":1796069110399,\"ends_at\":1796069410399,"
		"\"metadata\":{\"a\":\"b\"},\"net\":\"none\",\"limits\":{\"memory\":536870912,\"cpu\":1500,\"disk\":1073741824},\"access_token\":\"t\",\"secure\":true}");
	json_t AUTO_JSON *d = NULL;

	is_str(show(e2b_sandbox(s, "box.test", E2B_SANDBOX)), "{\"alias\":\"base\",\"clientID\":\"bureau\",\"domain\":\"box.test\",\"envdAccessToken\":\"t\","
		"\"envdVersion\":\"0.6.4\",\"sandboxID\":\"iabcdefgh\",\"templateID\":\"base\",\"trafficAccessToken\":null}", "Sandbox");
	is_str(show(e2b_sandbox(s, NULL, E2B_LISTED)), "{\"alias\":\"base\",\"clientID\":\"bureau\",\"cpuCount\":2,\"diskSizeMB\":1024,"
		"\"endAt\":\"2026-11-30T20:10:10.399Z\",\"envdVersion\":\"0.6.4\",\"memoryMB\":512,\"metadata\":{\"a\":\"b\"},\"sandboxID\":\"iabcdefgh\","
		"\"startedAt\":\"2026-11-30T20:05:10.399Z\",\"state\":\"running\",\"templateID\":\"base\",\"volumeMounts\":[]}", "ListedSandbox");
	json_object_set_new(s, "ends_at", json_null());
	d = e2b_sandbox(s, NULL, E2B_DETAIL);
	is_str(json_string_value(json_object_get(d, "endAt")), "2999-12-31T23:59:59.000Z", "never ends");
	ok(json_is_false(json_object_get(d, "allowInternetAccess")) && json_is_object(json_object_get(d, "lifecycle")), "details");
	ok(e2b_sandbox(d, NULL, E2B_DETAIL) == NULL, "not a sandbox");
}

int main(void)
{
	test_ids();
	test_hosts();
	test_fields();
	test_users();
	test_signatures();
	test_envelopes();
	test_proto();
	test_create();
	test_metadata();
	test_sandbox();
	return done_testing();
}
