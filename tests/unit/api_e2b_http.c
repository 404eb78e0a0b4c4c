/* The dialect over real HTTP and made-up operations: one connection, a request's bytes in, an answer's bytes out. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/api.h"
#include "api/e2b_wire.h"
#include "core/fd.h"
#include "core/str.h"
#include "e2b_fake.h"
#include "tap.h"

#define KEY "X-API-KEY: e2b_1\r\n"
#define ENVD "E2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: " TOKEN "\r\n"
#define ENTRY "{\"path\":\"/home/user/a.txt\",\"name\":\"a.txt\",\"type\":\"file\",\"mode\":420,\"size\":3,\"modified_at\":0," \
	"\"owner\":\"user\",\"group\":\"user\",\"metadata\":{}}"

/* ---- one connection ---- */

static struct loop *loop;
static struct http_server *server;
static struct api api;
static struct ops none;
static int client = -1;
static char got[1 << 20];
static size_t ngot;

static void on_request(void *ctx, struct http_req *r)
{
	if (!e2b_try(&api, r))
		http_reply(r, 299, NULL, "", 0);
}

static void hang_up(void)
{
	fd_drop(&client);
	for (int i = 0; i < 5; i++)
		loop_turn(loop, 1);
}

/* Sends, and reads until the peer closes or `until` is in the answer, or two seconds are over. */
static const char *talk(const char *bytes, size_t n, const char *until)
{
	int pair[2];

	if (client >= 0)
		hang_up();
	ngot = 0;
	got[0] = '\0';
	fake.asked[0] = '\0';
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return "no socket";
	client = pair[0];
	http_server_serve(server, pair[1], NULL, NULL, NULL);
	for (int i = 0; i < 200; i++) {
		ssize_t w = n ? write(client, bytes, n) : 0, r;

		if (w > 0) {
			bytes += w;
			n -= (size_t)w;
		}
		loop_turn(loop, 10);
		while ((r = read(client, got + ngot, sizeof got - ngot - 1)) > 0)
			ngot += (size_t)r;
		got[ngot] = '\0';
		if (r == 0 || (r < 0 && errno != EAGAIN) || (until && memmem(got, ngot, until, strlen(until))))
			break;
	}
	return got;
}

static int status(void) { return ngot > 12 ? (int)strtol(got + 9, NULL, 10) : 0; }
static const char *body(void) { const char *p = strstr(got, "\r\n\r\n"); return p ? p + 4 : ""; }

/* A request with a body of a known length; the answer ends the connection. */
static const char *ask(const char *method, const char *path, const char *fields, const char *content, size_t n)
{
	struct buf AUTO_BUF b = BUF_INIT(1 << 22);

	buf_printf(&b, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s", method, path, fields);
	if (content)
		buf_printf(&b, "Content-Length: %zu\r\n", n);
	buf_adds(&b, "\r\n");
	buf_add(&b, content, n);
	return talk(buf_at(&b), b.len, NULL);
}

static const char *post(const char *path, const char *fields, const char *content)
{
	return ask("POST", path, fields, content, strlen(content));
}

#define RPC ENVD "Content-Type: application/json\r\n"
#define STREAM ENVD "Content-Type: application/connect+json\r\n"

static const char *stream(const char *path, const char *fields, const char *msg)
{
	struct buf AUTO_BUF b = BUF_INIT(1 << 20);

	e2b_env_text(&b, 0, msg, strlen(msg));
	return ask("POST", path, fields, buf_at(&b), b.len);
}

static bool has(const char *what) { return memmem(got, ngot, what, strlen(what)) != NULL; }

/* ---- */

static void test_routing(void)
{
	static const char page[] = "GET /x HTTP/1.1\r\nHost: 49983-" ID ".box.test\r\nOrigin: http://evil.test\r\nConnection: close\r\n\r\n";

	fake.life = OP_LIFE_RUNNING;
	ask("GET", "/health", "", NULL, 0);
	ok(status() == 299, "a health check that names no sandbox isn't ours");
	ask("GET", "/v1/sandboxes", "", NULL, 0);
	ok(status() == 299, "nor is our own API");
	ask("GET", "/health", "E2b-Sandbox-Id: " ID "\r\n", NULL, 0);
	ok(status() == 400 && has("missing header"), "one field without the other");
	ask("GET", "/health", "E2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 49983\r\n", NULL, 0);
	ok(status() == 204, "health by fields");
	ask("GET", "/health", "X-Access-Token: " TOKEN "\r\n", NULL, 0);
	ok(status() == 204, "health by token alone");
	ask("GET", "/health", "X-Access-Token: other\r\n", NULL, 0);
	ok(status() == 502, "health by the token of a sandbox that has ended");
	talk("GET /health HTTP/1.1\r\nHost: 49983-" ID ".box.test:99\r\nConnection: close\r\n\r\n",
		strlen("GET /health HTTP/1.1\r\nHost: 49983-" ID ".box.test:99\r\nConnection: close\r\n\r\n"), NULL);
	ok(status() == 204, "health by host");
	ask("POST", "/process.Process/List", "Content-Type: application/json\r\n", "{}", 2);
	ok(status() == 400 && has("missing header"), "a method for nobody");
	ask("GET", "/health", ENVD "Origin: http://evil.test\r\n", NULL, 0);
	ok(status() == 403, "another site's page");
	fake.open = true;
	talk(page, strlen(page), NULL);
	ok(status() == 403, "an open sandbox isn't open to other sites' pages");
	fake.open = false;
	ask("POST", "/init", ENVD, "{}", 2);
	ok(status() == 404, "inner routes aren't there");
	fake.life = OP_LIFE_ENDED;
	ask("GET", "/health", ENVD, NULL, 0);
	ok(status() == 502, "ended: 502");
	is_str(body(), "{\"sandboxId\":\"" ID "\",\"message\":\"The sandbox was not found\",\"code\":502}", "and its text");
	ask("GET", "/", ENVD "User-Agent: Mozilla/5.0\r\n", NULL, 0);
	ok(status() == 502 && has("text/html"), "a browser gets a page");
	fake.life = OP_LIFE_RUNNING;
	ask("GET", "/metrics", "E2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 49983\r\n", NULL, 0);
	ok(status() == 401, "without the token");
	is_str(body(), "{\"code\":401,\"message\":\"unauthorized access, please provide a valid access token or method signing if supported\"}", "401's text");
}

static void test_ended(void)
{
	fake.result = "{\"id\":\"" ID "\",\"state\":\"ended\",\"why\":\"timeout\",\"why_text\":\"its time was over\",\"ended_at\":1000}";
	fake.error = ENOENT, fake.error_times = 1;
	ask("DELETE", "/sandboxes/" ID, KEY, NULL, 0);
	ok(status() == 404 && has("it ended at 1970-01-01T00:00:01.000Z (its time was over)"), "one that has ended: when and why");
	fake.result = "{\"id\":\"" ID "\",\"state\":\"ended\",\"why\":\"timeout\",\"why_text\":\"its time was over\"}";
	fake.error = ENOENT, fake.error_times = 1;
	ask("DELETE", "/sandboxes/" ID, KEY, NULL, 0);
	ok(status() == 404 && has("it has just ended (its time was over)"), "one that is being taken down: why");
}

static void test_control(void)
{
	fake.result = "{\"id\":\"" ID "\",\"template\":\"base\",\"state\":\"running\",\"started_at\":0,\"ends_at\":1000,\"metadata\":{},"
		"\"net\":\"all\",\"limits\":{},\"access_token\":\"t\"}";
	ask("GET", "/sandboxes", "", NULL, 0);
	ok(status() == 401 && has("\"code\":401"), "no key");
	post("/v2/sandboxes", KEY, "{\"templateID\":\"base\",\"timeout\":120}");
	ok(status() == 201 && has("\"envdAccessToken\":\"t\""), "create");
	is_str(fake.asked, "sandbox.create {\"net\":\"all\",\"secure\":true,\"template\":\"base\",\"timeout_ms\":120000}\n", "as asked");
	post("/v2/sandboxes", KEY "Idempotency-Key: a-1\r\n", "{\"templateID\":\"base\"}");
	ok(status() == 201 && str_starts(fake.asked, "sandbox.create"), "create with an Idempotency-Key");
	post("/v2/sandboxes", KEY "Idempotency-Key: a-1\r\n", "{\"templateID\":\"base\"}");
	ok(status() == 201 && str_starts(fake.asked, "sandbox.get {\"id\":\"" ID "\"}"), "again: the same one");
	post("/v2/sandboxes", KEY "Idempotency-Key: A B\r\n", "{\"templateID\":\"base\"}");
	ok(status() == 400 && !*fake.asked, "a key that isn't one");
	fake.error = EAGAIN, fake.error_times = 1;
	post("/v2/sandboxes", KEY "Idempotency-Key: a-2\r\n", "{\"templateID\":\"base\"}");
	ok(status() == 503, "a create that fails");
	fake.error = 0;
	post("/v2/sandboxes", KEY "Idempotency-Key: a-2\r\n", "{\"templateID\":\"base\"}");
	ok(status() == 201 && str_starts(fake.asked, "sandbox.create"), "may be tried again");
	post("/v2/sandboxes", KEY, "{\"templateID\":\"base\",\"autoPause\":true}");
	ok(status() == 400 && has("'autoPause'") && !*fake.asked, "a feature that isn't here");
	post("/v2/sandboxes", KEY, "{");
	ok(status() == 400, "not JSON");
	post("/v2/sandboxes/" ID "/connect", KEY, "{\"timeout\":60}");
	ok(status() == 200, "connect");
	is_str(fake.asked, "sandbox.timeout {\"extend_only\":true,\"id\":\"" ID "\",\"timeout_ms\":60000}\n", "extends only");
	post("/sandboxes/" ID "-abc/timeout", KEY, "{\"timeout\":60}");
	ok(status() == 204, "timeout, with an old id");
	is_str(fake.asked, "sandbox.timeout {\"extend_only\":false,\"id\":\"" ID "\",\"timeout_ms\":60000}\n", "may shorten");
	post("/sandboxes/" ID "/pause", KEY, "{}");
	ok(status() == 501 && has("\"code\":501"), "pause: 501");
	post("/sandboxes/" ID "/resume", KEY, "{}");
	ok(status() == 409, "resume of a running one: 409");
	ask("DELETE", "/sandboxes/" ID, KEY, NULL, 0);
	ok(status() == 204, "kill");
	fake.error = ENOENT, fake.error_times = 9;
	ask("DELETE", "/sandboxes/" ID, KEY, NULL, 0);
	ok(status() == 404 && has("\"code\":404"), "kill of nobody: 404");
	test_ended();
	fake.error = 0;
	fake.result = "{\"sandboxes\":[],\"next\":\"abc\",\"total_running\":4}";
	ask("GET", "/v2/sandboxes?state=running&limit=5&nextToken=q&metadata=a%3Db", KEY, NULL, 0);
	ok(status() == 200 && has("X-Next-Token: abc") && has("X-Total-Running: 4"), "list");
	is_str(fake.asked, "sandbox.list {\"cursor\":\"q\",\"limit\":5,\"metadata\":{\"a\":\"b\"},\"state\":\"running\"}\n", "as asked");
	ask("GET", "/v2/sandboxes?limit=101", KEY, NULL, 0);
	ok(status() == 400, "a limit too large");
	ask("GET", "/v2/sandboxes", KEY ENVD, NULL, 0);
	ok(status() == 200, "a request to the API that carries a sandbox's fields too");
	ask("PUT", "/sandboxes/" ID, KEY, NULL, 0);
	ok(status() == 405, "a method that isn't one");
}

static void test_rpc(void)
{
	fake.result = "{\"entry\":" ENTRY "}";
	post("/filesystem.Filesystem/Stat", RPC "Authorization: Basic cm9vdDo=\r\n", "{\"path\":\"a.txt\"}");
	ok(status() == 200 && has("\"type\":\"FILE_TYPE_FILE\"") && has("\"size\":\"3\""), "Stat");
	is_str(fake.asked, "file.stat {\"id\":\"" ID "\",\"path\":\"a.txt\",\"user\":\"root\"}\n", "as asked");
	fake.error = ENOENT, fake.error_times = 1;
	post("/filesystem.Filesystem/Stat", RPC, "{\"path\":\"a.txt\"}");
	ok(status() == 404, "not there");
	is_str(body(), "{\"code\":\"not_found\",\"message\":\"made up\"}", "its text");
	fake.error = ESRCH, fake.error_times = 1;
	post("/process.Process/SendSignal", RPC, "{\"process\":{\"pid\":99},\"signal\":\"SIGNAL_SIGKILL\"}");
	is_str(body(), "{\"code\":\"not_found\",\"message\":\"process with pid 99 not found\"}", "an unknown process");
	fake.error = 0;
	post("/process.Process/Nope", RPC, "{}");
	ok(status() == 501, "an unknown method");
	ask("POST", "/process.Process/List", ENVD "Content-Type: application/proto\r\n", "", 0);
	ok(status() == 415, "a codec we don't have");
	fake.result = "{\"processes\":[{\"pid\":7,\"cmd\":\"/bin/cat\",\"args\":[\"-\"],\"cwd\":\"\",\"tag\":\"t\",\"pty\":false,\"ended\":false}]}";
	post("/process.Process/List", RPC, "{}");
	is_str(body(), "{\"processes\":[{\"config\":{\"cmd\":\"/bin/cat\",\"args\":[\"-\"]},\"pid\":7,\"tag\":\"t\"}]}", "List");
}

static void test_input(void)
{
	struct buf AUTO_BUF b = BUF_INIT(1 << 20);

	fake.result = NULL;
	fake.ndata = 0;
	fake.error = EAGAIN, fake.error_times = 3;
	post("/process.Process/SendInput", RPC, "{\"process\":{\"pid\":7},\"input\":{\"stdin\":\"aGVsbG8K\"}}");
	ok(status() == 200 && fake.ndata == 6 && memcmp(fake.data, "hello\n", 6) == 0, "SendInput waits for a full queue");
	fake.error = 0;
	post("/process.Process/SendInput", RPC, "{\"process\":{\"pid\":7},\"input\":{\"stdin\":\"?\"}}");
	ok(status() == 400, "not base64");
	fake.ndata = 0;
	e2b_env_text(&b, 0, "{\"start\":{\"process\":{\"pid\":7}}}", 31);
	e2b_env_text(&b, 0, "{\"keepalive\":{}}", 16);
	e2b_env_text(&b, 0, "{\"data\":{\"input\":{\"pty\":\"eA==\"}}}", 33);
	e2b_env_text(&b, 0, "{\"data\":{\"input\":{\"pty\":\"eQ==\"}}}", 33);
	ask("POST", "/process.Process/StreamInput", STREAM, buf_at(&b), b.len);
	ok(status() == 200 && fake.ndata == 2 && memcmp(fake.data, "xy", 2) == 0, "StreamInput");
	ok(strstr(fake.asked, "\"pty\":true") != NULL, "for the terminal");
	buf_clear(&b);
	for (int i = 0; i < 20000; i++)
		e2b_env_text(&b, 0, "{\"keepalive\":{}}", 16);
	ask("POST", "/process.Process/StreamInput", STREAM, buf_at(&b), b.len);
	ok(status() == 200, "20,000 messages in one body");
	ask("POST", "/process.Process/StreamInput", STREAM, "\0\0\0\0\x09{}", 7);
	ok(status() == 200 && has("cut off"), "an envelope that is cut off");
}

static void test_streams(void)
{
	static const char msg[] = "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"echo hi\"]},\"stdin\":false}";
	struct buf AUTO_BUF b = BUF_INIT(1 << 16);
	unsigned before = fake.cancelled;

	stream("/process.Process/Start", STREAM "Connect-Timeout-Ms: 60000\r\n", msg);
	ok(status() == 200 && has("application/connect+json"), "Start");
	ok(has("{\"event\":{\"start\":{\"pid\":7}}}") && has("{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}"), "start and data");
	ok(has("\"exitCode\":3") && has("\"status\":\"exit status 3\""), "end");
	is_str(fake.asked, "process.start {\"args\":[\"-l\",\"-c\",\"echo hi\"],\"cmd\":\"/bin/bash\",\"envs\":{\"E2B_SANDBOX\":\"true\","
		"\"E2B_SANDBOX_ID\":\"" ID "\"},\"id\":\"" ID "\",\"stdin\":false,\"timeout_ms\":60000}\n",
		"as asked");
	stream("/process.Process/Start", STREAM, "{\"process\":{}}");
	ok(status() == 200 && has("invalid_argument") && !*fake.asked, "no program");
	fake.error = ENOENT, fake.error_times = 1;
	stream("/process.Process/Start", STREAM, msg);
	ok(status() == 200 && has("{\"error\":{\"code\":\"invalid_argument\",\"message\":\"made up\"}}"), "a program that can't start");
	fake.error = 0;
	fake.hold = true;
	buf_printf(&b, "POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n" STREAM "\r\n", sizeof msg - 1 + 5);
	e2b_env_text(&b, 0, msg, sizeof msg - 1);
	talk(buf_at(&b), b.len, "pid");
	ok(has("{\"event\":{\"start\":{\"pid\":7}}}") && fake.held, "start comes at once");
	hang_up();
	ok(!fake.held && fake.cancelled == before + 1 && !fake.ties, "a client that leaves cancels the call");
	talk(buf_at(&b), b.len, "pid");
	fake.life = OP_LIFE_ENDED;
	while (fake.ties) {
		struct op_tie *t = fake.ties;

		ops_tie_drop(t);
		t->cut(t);
	}
	for (int i = 0; i < 5; i++)
		loop_turn(loop, 1);
	ok(!fake.held && read(client, got, sizeof got) <= 0 && !has("\r\n0\r\n"), "a killed sandbox cuts the stream");
	fake.life = OP_LIFE_RUNNING;
	fake.hold = false;
}

static void test_download(void)
{
	char path[512];
	int pipes[2];

	fake.fd = mkstemp(tap_tmp(path, sizeof path, "e2b-test"));
	unlink(path);
	ok(write(fake.fd, "abc", 3) == 3, "a file");
	fake.result = "{\"entry\":" ENTRY ",\"kind\":\"file\"}";
	ask("GET", "/files?path=a.txt&username=root", ENVD, NULL, 0);
	ok(status() == 200 && has("Content-Disposition: inline; filename=\"a.txt\"") && has("nosniff"), "download");
	is_str(body(), "abc", "its bytes");
	is_str(fake.asked, "file.read {\"id\":\"" ID "\",\"path\":\"a.txt\",\"user\":\"root\"}\n", "as asked");
	if (pipe(pipes) == 0 && write(pipes[1], "from a pipe", 11) == 11)
		close(pipes[1]);
	fake.fd = pipes[0];
	ask("GET", "/files?path=/proc/x", ENVD, NULL, 0);
	ok(status() == 200 && has("from a pipe"), "download of something without a size");
	fake.error = ENOENT, fake.error_times = 1;
	ask("GET", "/files?path=nope", ENVD, NULL, 0);
	ok(status() == 404 && has("made up"), "not there");
	fake.error = 0;
	ask("GET", "/files?path=a.txt", "", NULL, 0);
	ok(status() == 400, "a link without a signature");
	ask("GET", "/files?path=a.txt&signature=v1_x", ENVD, NULL, 0);
	ok(status() == 500, "the token wins over a signature (and the made-up file is missing)");
	ask("GET", "/files?path=a.txt&signature=v1_x", "E2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 49983\r\n", NULL, 0);
	ok(status() == 401 && has("invalid signature"), "a wrong signature");
}

static char *file_text(int fd)
{
	static char text[65536];
	ssize_t n = pread(fd, text, sizeof text - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void test_upload(void)
{
	/* "zipped" by gzip */
	static const char gz[] = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xca\x2c\x28\x48\x4d\x01\x00\x57\x68\xc2\xe2\x06\x00\x00\x00";
	char path[512];
	int fd = mkstemp(tap_tmp(path, sizeof path, "e2b-test"));

	unlink(path);
	fake.result = "{\"entry\":" ENTRY "}";
	fake.fd = dup(fd);
	ask("POST", "/files?path=a.txt", ENVD "Content-Type: application/octet-stream\r\nX-Metadata-Author: me\r\n", "raw", 3);
	ok(status() == 200, "raw upload");
	is_str(file_text(fd), "raw", "is in the file");
	is_str(body(), "[{\"name\":\"a.txt\",\"path\":\"/home/user/a.txt\",\"type\":\"file\",\"metadata\":{\"author\":\"me\"}}]", "answer");
	is_str(fake.asked, "file.write {\"id\":\"" ID "\",\"metadata\":{\"author\":\"me\"},\"path\":\"a.txt\",\"size\":3}\n", "as asked");
	fake.fd = dup(fd);
	ok(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0, "emptied");
	ask("POST", "/files?path=a.txt", ENVD "Content-Type: application/octet-stream\r\nContent-Encoding: gzip\r\n", gz, sizeof gz - 1);
	ok(status() == 200, "gzip upload");
	is_str(file_text(fd), "zipped", "is unpacked");
	fake.fd = dup(fd);
	ask("POST", "/files?path=a.txt", ENVD "Content-Type: application/octet-stream\r\nContent-Encoding: gzip\r\n", gz, sizeof gz - 6);
	ok(status() == 400 && has("cut off"), "gzip that is cut off");
	fake.fd = dup(fd);
	ok(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0, "emptied");
	post("/files", ENVD "Content-Type: multipart/form-data; boundary=xx\r\n",
		"--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d/e/x.txt\"\r\n\r\none\r\n--xx--\r\n");
	ok(status() == 200, "multipart upload");
	is_str(file_text(fd), "one", "is in the file");
	is_str(fake.asked, "file.write {\"id\":\"" ID "\",\"path\":\"d/e/x.txt\",\"size\":88}\n", "with the whole name");
	post("/files?path=q", ENVD "Content-Type: multipart/form-data; boundary=xx\r\n", "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n1");
	ok(status() >= 400, "multipart that is cut off");
	fake.error = ENOSPC, fake.error_times = 1;
	ask("POST", "/files?path=a.txt", ENVD "Content-Type: application/octet-stream\r\n", "raw", 3);
	ok(status() == 507, "a full disk");
	fake.error = 0;
	close(fd);
}

static void test_watchers(void)
{
	const char *id;
	char msg[128] = "";
	json_t *ev;

	fake.hold = true;
	fake.result = NULL;
	post("/filesystem.Filesystem/CreateWatcher", RPC, "{\"path\":\"d\",\"recursive\":true}");
	id = strstr(body(), "{\"watcherId\":\"");
	ok(status() == 200 && id && fake.held, "CreateWatcher");
	if (id)
		snprintf(msg, sizeof msg, "{\"watcherId\":\"%.21s\"}", id + strlen("{\"watcherId\":\""));
	ev = json_pack("{s:{s:s, s:s}}", "watch", "type", "create", "name", "x");
	if (fake.held)
		fake.held->sink->event(fake.held->ctx, ev);
	json_decref(ev);
	post("/filesystem.Filesystem/GetWatcherEvents", RPC, msg);
	is_str(body(), "{\"events\":[{\"name\":\"x\",\"type\":\"EVENT_TYPE_CREATE\"}]}", "its events");
	post("/filesystem.Filesystem/GetWatcherEvents", RPC, msg);
	is_str(body(), "{\"events\":[]}", "come once");
	post("/filesystem.Filesystem/RemoveWatcher", RPC, msg);
	ok(status() == 200 && !fake.held, "RemoveWatcher");
	post("/filesystem.Filesystem/GetWatcherEvents", RPC, msg);
	ok(status() == 404, "gone");
	fake.hold = false;
	fake.error = ENOENT, fake.error_times = 1;
	post("/filesystem.Filesystem/CreateWatcher", RPC, "{\"path\":\"d\"}");
	ok(status() == 404, "a folder that isn't there");
	fake.error = 0;
}

int main(void)
{
	struct http_server_opts o = { .on_request = on_request };
	struct err e;

	fake.fd = -1;
	fake.life = OP_LIFE_RUNNING;
	if (loop_create(&loop, &e) < 0 || http_server_create(loop, &o, &server, &e) < 0)
		return 1;
	api = (struct api){ .loop = loop, .ops = &none, .domain = "box.test" };
	ok(e2b_create(&api, &e) == 0, "made");
	test_routing();
	test_control();
	test_rpc();
	test_input();
	test_streams();
	test_download();
	test_upload();
	test_watchers();
	if (client >= 0)
		hang_up();
	e2b_free(&api);
	http_server_free(server);
	loop_turn(loop, 0);
	loop_free(loop);
	return done_testing();
}
