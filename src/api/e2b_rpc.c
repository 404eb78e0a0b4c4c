#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/e2b_req.h"
#include "core/str.h"

/* process.Process and filesystem.Filesystem: methods that take one message. Those that answer with a stream go on in e2b_stream.c. */

enum { MAX_MESSAGE = 24 << 20, MAX_TIMEOUT_MS = 2000000000 };

struct rpc {
	struct e2b_req q;
	const struct method *m;
};

struct method {
	const char *path;
	bool stream;
	void (*run)(struct e2b_req *q, const json_t *msg);
};

/* ---- shared ---- */

int64_t e2b_connect_timeout(struct http_req *r)
{
	const char *s = http_req_header(r, "connect-timeout-ms");
	uint64_t ms;

	if (!s)
		return 0;
	if (str_u64(s, UINT64_MAX, &ms) < 0)
		return -EINVAL;
	return ms > MAX_TIMEOUT_MS ? MAX_TIMEOUT_MS : ms ? (int64_t)ms : 1;
}

bool e2b_select(struct e2b_req *q, const json_t *msg, json_t *args)
{
	const json_t *sel = e2b_member(msg, "process", NULL), *pid = e2b_member(sel, "pid", NULL), *tag = e2b_member(sel, "tag", NULL);
	int64_t n = json_integer_value(pid);

	if (json_is_integer(pid) && n > 0 && n <= INT32_MAX) {
		snprintf(q->what, sizeof q->what, "process with pid %lld", (long long)n);
		json_object_set_new(args, "pid", json_integer(n));
		return true;
	}
	if (json_is_string(tag)) {
		snprintf(q->what, sizeof q->what, "process with tag %.80s", json_string_value(tag));
		json_object_set_new(args, "tag", json_string(json_string_value(tag)));
		return true;
	}
	e2b_fail_word(q, "invalid_argument", "a process selector (pid or tag) is missing");
	return false;
}

static void after_nothing(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e)
		e2b_fail(q, e);
	else
		http_reply(q->r, 200, "application/json", "{}", 2);
}

/* A string member as an argument; an absent one is "". */
static void text_arg(const json_t *msg, const char *member, json_t *args, const char *name)
{
	const char *s = json_string_value(e2b_member(msg, member, NULL));

	json_object_set_new(args, name, json_string(s ? s : ""));
}

/* ---- processes ---- */

static json_t *listed(const json_t *p)
{
	const json_t *tag = json_object_get(p, "tag");
	json_t *config = json_pack("{s:O?}", "cmd", json_object_get(p, "cmd")), *out;

	if (json_array_size(json_object_get(p, "args")) > 0)
		json_object_set(config, "args", json_object_get(p, "args"));
	if (json_string_length(json_object_get(p, "cwd")) > 0)
		json_object_set(config, "cwd", json_object_get(p, "cwd"));
	out = json_pack("{s:o, s:O?}", "config", config, "pid", json_object_get(p, "pid"));
	if (out && json_string_length(tag) > 0)
		json_object_set(out, "tag", (json_t *)(uintptr_t)tag);
	return out;
}

/* {name: [each item as this dialect shows it]} */
static void answer_each(struct e2b_req *q, const struct err *e, const json_t *res, const char *name, json_t *(*show)(const json_t *item))
{
	const json_t *from = json_object_get(res, name);
	json_t *out;

	if (e) {
		e2b_fail(q, e);
		return;
	}
	out = json_array();
	for (size_t i = 0; i < json_array_size(from); i++)
		json_array_append_new(out, show(json_array_get(from, i)));
	e2b_json(q, 200, json_pack("{s:o}", name, out));
}

static void after_list(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	answer_each(q, e, res, "processes", listed);
}

static void process_list(struct e2b_req *q, const json_t *msg)
{
	e2b_ask(q, "process.list", json_pack("{s:s}", "id", q->id), after_list);
}

static void process_update(struct e2b_req *q, const json_t *msg)
{
	const json_t *size = e2b_member(e2b_member(msg, "pty", NULL), "size", NULL);
	json_t *args = json_pack("{s:s}", "id", q->id);

	if (!e2b_select(q, msg, args)) {
		json_decref(args);
		return;
	}
	if (!size) {                     /* nothing to change */
		json_decref(args);
		after_nothing(q, NULL, NULL, -1);
		return;
	}
	json_object_set_new(args, "cols", json_integer(json_integer_value(e2b_member(size, "cols", NULL))));
	json_object_set_new(args, "rows", json_integer(json_integer_value(e2b_member(size, "rows", NULL))));
	e2b_ask(q, "process.resize", args, after_nothing);
}

static int signal_number(const json_t *v)
{
	const char *s = json_string_value(v);
	int n = (int)json_integer_value(v);

	if (s)
		n = str_eq(s, "SIGNAL_SIGKILL") ? SIGKILL : str_eq(s, "SIGNAL_SIGTERM") ? SIGTERM : 0;
	return n == SIGKILL || n == SIGTERM ? n : 0;
}

static void process_signal(struct e2b_req *q, const json_t *msg)
{
	int signo = signal_number(e2b_member(msg, "signal", NULL));
	json_t *args = json_pack("{s:s, s:i, s:b}", "id", q->id, "signal", signo, "group", signo == SIGKILL);

	/* SIGKILL takes what the program started along with it: nothing is left that a client could not name */
	if (!signo) {
		json_decref(args);
		e2b_fail_word(q, "unimplemented", "signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL");
	} else if (e2b_select(q, msg, args)) {
		e2b_ask(q, "process.signal", args, after_nothing);
	} else {
		json_decref(args);
	}
}

static void process_close_stdin(struct e2b_req *q, const json_t *msg)
{
	json_t *args = json_pack("{s:s}", "id", q->id);

	if (e2b_select(q, msg, args))
		e2b_ask(q, "process.close_stdin", args, after_nothing);
	else
		json_decref(args);
}

/* ---- files ---- */

static void after_entry(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	if (e)
		e2b_fail(q, e);
	else
		e2b_json(q, 200, json_pack("{s:o}", "entry", e2b_entry(json_object_get(res, "entry"))));
}

static void file_stat(struct e2b_req *q, const json_t *msg)
{
	json_t *args = e2b_args(q);

	text_arg(msg, "path", args, "path");
	e2b_ask(q, "file.stat", args, after_entry);
}

static void file_mkdir(struct e2b_req *q, const json_t *msg)
{
	json_t *args = e2b_args(q);

	text_arg(msg, "path", args, "path");
	e2b_ask(q, "file.mkdir", args, after_entry);
}

static void file_move(struct e2b_req *q, const json_t *msg)
{
	json_t *args = e2b_args(q);

	text_arg(msg, "source", args, "from");
	text_arg(msg, "destination", args, "to");
	e2b_ask(q, "file.move", args, after_entry);
}

static void file_remove(struct e2b_req *q, const json_t *msg)
{
	json_t *args = e2b_args(q);

	text_arg(msg, "path", args, "path");
	e2b_ask(q, "file.remove", args, after_nothing);
}

static void after_dir(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	answer_each(q, e, res, "entries", e2b_entry);
}

static void file_list(struct e2b_req *q, const json_t *msg)
{
	json_int_t depth = json_integer_value(e2b_member(msg, "depth", NULL));
	json_t *args = e2b_args(q);

	text_arg(msg, "path", args, "path");
	json_object_set_new(args, "depth", json_integer(depth < 1 ? 1 : depth > 64 ? 64 : depth));
	e2b_ask(q, "file.list", args, after_dir);
}

/* ---- dispatch ---- */

static const struct method methods[] = {
	{ "/process.Process/Start", true, e2b_stream_start },
	{ "/process.Process/Connect", true, e2b_stream_connect },
	{ "/process.Process/List", false, process_list },
	{ "/process.Process/Update", false, process_update },
	{ "/process.Process/SendInput", false, e2b_input },
	{ "/process.Process/SendSignal", false, process_signal },
	{ "/process.Process/CloseStdin", false, process_close_stdin },
	{ "/filesystem.Filesystem/Stat", false, file_stat },
	{ "/filesystem.Filesystem/MakeDir", false, file_mkdir },
	{ "/filesystem.Filesystem/Move", false, file_move },
	{ "/filesystem.Filesystem/ListDir", false, file_list },
	{ "/filesystem.Filesystem/Remove", false, file_remove },
	{ "/filesystem.Filesystem/WatchDir", true, e2b_stream_watch },
	{ "/filesystem.Filesystem/CreateWatcher", false, e2b_watcher_create },
	{ "/filesystem.Filesystem/GetWatcherEvents", false, e2b_watcher_events },
	{ "/filesystem.Filesystem/RemoveWatcher", false, e2b_watcher_remove },
};

static void have_message(void *ctx, struct http_req *r, char *p, size_t n)
{
	struct rpc *c = ctx;
	const struct method *m = c->m;
	json_t AUTO_JSON *msg = NULL;
	const char *text = p;
	uint8_t flags = 0;
	struct err e;

	if (m->stream && e2b_env_next(p, n, MAX_MESSAGE, &flags, &text, &n) != 1) {
		e2b_fail_word(&c->q, "invalid_argument", "the body isn't one whole Connect envelope");
		return;
	}
	if (n == 0)
		msg = json_object();
	else if (js_parse(text, n, &msg, &e) < 0) {
		e2b_fail_word(&c->q, "invalid_argument", "%s", e.msg);
		return;
	}
	if (!json_is_object(msg)) {
		e2b_fail_word(&c->q, "invalid_argument", "the message must be a JSON object");
		return;
	}
	m->run(&c->q, msg);
}

static bool type_is(struct http_req *r, const char *type)
{
	const char *s = http_req_header(r, "content-type");
	size_t n = strlen(type);

	return s && strncasecmp(s, type, n) == 0 && (s[n] == '\0' || s[n] == ';' || s[n] == ' ');
}

void e2b_rpc(struct api *a, struct http_req *r, const struct e2b_req *from)
{
	const char *path = http_req_path(r);
	const struct method *m = NULL;
	struct rpc *c;
	bool input = str_eq(path, "/process.Process/StreamInput");

	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if (str_eq(methods[i].path, path))
			m = &methods[i];
	if (!m && !input) {
		e2b_fail_word((struct e2b_req *)(uintptr_t)from, "unimplemented", "%.200s is not a method of this server", path);
		return;
	}
	if (!http_req_is(r, "POST")) {
		http_set(r, "Allow", "POST");
		http_reply(r, 405, NULL, "", 0);
		return;
	}
	if (!type_is(r, input || m->stream ? "application/connect+json" : "application/json")) {
		http_set(r, "Accept-Post", input || m->stream ? "application/connect+json" : "application/json");
		http_reply(r, 415, NULL, "", 0);
		return;
	}
	if (input) {
		e2b_input_stream(a, r, from);
		return;
	}
	c = (struct rpc *)e2b_req_open(a, r, sizeof *c, from);
	if (!c)
		return;
	c->m = m;
	http_req_collect(r, MAX_MESSAGE, have_message, c);
}
