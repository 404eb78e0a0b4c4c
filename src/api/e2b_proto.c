#include "api/e2b_wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/str.h"

/* proto3-JSON of the envd messages, from the values that operations give. Unset members are left out, as protobuf does. */

json_t *e2b_member(const json_t *o, const char *camel, const char *snake)
{
	json_t *v = json_object_get(o, camel);

	if (!v && snake)
		v = json_object_get(o, snake);
	return json_is_null(v) ? NULL : v;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static int64_t int_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* "-rw-r--r--"; Go, which the clients' texts come from, writes 'L' for a link. */
static void permissions(const char *type, unsigned mode, char out[11])
{
	static const char bits[] = "rwxrwxrwx";

	out[0] = str_eq(type, "dir") ? 'd' : str_eq(type, "symlink") ? 'L' : '-';
	for (int i = 0; i < 9; i++)
		out[i + 1] = mode & 0400u >> i ? bits[i] : '-';
	out[10] = '\0';
}

static const char *file_type(const char *type)
{
	static const struct { const char *ours, *theirs; } table[] = {
		{ "file", "FILE_TYPE_FILE" }, { "dir", "FILE_TYPE_DIRECTORY" }, { "symlink", "FILE_TYPE_SYMLINK" },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (str_eq(type, table[i].ours))
			return table[i].theirs;
	return "FILE_TYPE_UNSPECIFIED";
}

json_t *e2b_entry(const json_t *entry)
{
	const char *type = text_of(entry, "type"), *target = text_of(entry, "target"), *shown = text_of(entry, "target_type");
	unsigned mode = (unsigned)int_of(entry, "mode") & 07777;
	json_t *meta = json_object_get(entry, "metadata"), *out;
	char size[24], perm[11], when[32];

	permissions(type, mode, perm);
	if (*shown)                              /* a link is shown as what it leads to; its permissions' text is its own */
		mode = (unsigned)int_of(entry, "target_mode") & 07777;
	else
		shown = type;
	clock_rfc3339(int_of(entry, "modified_at"), when);
	snprintf(size, sizeof size, "%lld", (long long)int_of(entry, "size"));   /* int64 is a string in proto3-JSON */
	out = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "name", text_of(entry, "name"), "type", file_type(shown),
		"path", text_of(entry, "path"), "size", size, "mode", (int)mode, "permissions", perm,
		"owner", text_of(entry, "owner"), "group", text_of(entry, "group"), "modifiedTime", when);
	if (out && *target)
		json_object_set_new(out, "symlinkTarget", json_string(target));
	if (out && json_object_size(meta) > 0)
		json_object_set(out, "metadata", meta);
	return out;
}

json_t *e2b_watch_event(const json_t *watch)
{
	static const struct { const char *ours, *theirs; bool entry; } table[] = {
		{ "create", "EVENT_TYPE_CREATE", true }, { "modify", "EVENT_TYPE_WRITE", true },
		{ "remove", "EVENT_TYPE_REMOVE", false }, { "rename", "EVENT_TYPE_RENAME", false },
		{ "chmod", "EVENT_TYPE_CHMOD", true },
	};
	const char *type = text_of(watch, "type");
	json_t *entry = json_object_get(watch, "entry"), *out;

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (!str_eq(type, table[i].ours))
			continue;
		out = json_pack("{s:s, s:s}", "name", text_of(watch, "name"), "type", table[i].theirs);
		if (out && table[i].entry && json_is_object(entry))
			json_object_set_new(out, "entry", e2b_entry(entry));
		return out;
	}
	return NULL;
}

/* A go-like name of a signal ("killed"), as it stands in exit texts. */
static const char *signal_text(int signo)
{
	static const struct { int signo; const char *text; } table[] = {
		{ SIGHUP, "hangup" }, { SIGINT, "interrupt" }, { SIGQUIT, "quit" }, { SIGILL, "illegal instruction" },
		{ SIGTRAP, "trace/breakpoint trap" }, { SIGABRT, "aborted" }, { SIGBUS, "bus error" },
		{ SIGFPE, "floating point exception" }, { SIGKILL, "killed" }, { SIGUSR1, "user defined signal 1" },
		{ SIGSEGV, "segmentation fault" }, { SIGUSR2, "user defined signal 2" }, { SIGPIPE, "broken pipe" },
		{ SIGALRM, "alarm clock" }, { SIGTERM, "terminated" }, { SIGSYS, "bad system call" },
		{ SIGXCPU, "CPU time limit exceeded" }, { SIGXFSZ, "file size limit exceeded" },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (table[i].signo == signo)
			return table[i].text;
	return NULL;
}

json_t *e2b_end_event(const json_t *end)
{
	const char *how = text_of(end, "how"), *name;
	int code = (int)int_of(end, "code");
	char status[64], error[128];
	bool oom = json_is_true(json_object_get(end, "oom"));

	if (str_eq(how, "exited")) {
		snprintf(status, sizeof status, "exit status %d", code);
		if (code == 0)
			return json_pack("{s:i, s:b, s:s}", "exitCode", 0, "exited", 1, "status", status);
		return json_pack("{s:i, s:b, s:s, s:s}", "exitCode", code, "exited", 1, "status", status, "error", status);
	}
	if (str_eq(how, "timeout"))
		code = SIGKILL;
	name = signal_text(code);
	if (name)
		snprintf(status, sizeof status, "signal: %s", name);
	else
		snprintf(status, sizeof status, "signal: signal %d", code);
	snprintf(error, sizeof error, "%s%s", status, oom ? " (the computer ran out of memory)" : "");
	return json_pack("{s:i, s:b, s:s, s:s}", "exitCode", -1, "exited", 0, "status", status, "error", error);
}
