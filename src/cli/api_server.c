/* api_server -- status, stop, api-key: the server itself. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cli/api.h"
#include "core/fd.h"
#include "core/proc.h"
#include "core/str.h"

int api_status(struct api *a)
{
	AUTO_JSON json_t *v = NULL;
	struct err e = { 0 };
	json_t *boxes, *missing, *m;
	size_t i;

	if (api_call(a, "GET", "/v1/status", NULL, &v, &e) < 0)
		return api_fail(&e);
	if (a->o.json) {
		json_object_set_new(v, "url", json_string(a->where.url));
		api_json(v);
		return API_OK;
	}
	boxes = json_object_get(v, "sandboxes");
	missing = json_object_get(v, "unenforced");
	printf("server     %s\nversion    ", a->where.url);
	api_text(json_string_value(json_object_get(v, "version")));
	printf("\nup         %lld s\nsandboxes  %lld running, %lld starting, %lld kept ready\n", (long long)json_integer_value(json_object_get(v, "uptime_ms")) / 1000,
		(long long)json_integer_value(json_object_get(boxes, "running")), (long long)json_integer_value(json_object_get(boxes, "creating")),
		(long long)json_integer_value(json_object_get(boxes, "pooled")));
	if (json_array_size(missing)) {
		fputs("can't limit", stdout);
		json_array_foreach(missing, i, m) {
			fputs(i ? ", " : " ", stdout);
			api_text(json_string_value(m));
		}
		fputs(" ('bureau doctor' tells why)\n", stdout);
	}
	return API_OK;
}

static int server_pid(const char *dir, int64_t *ret, struct err *e)
{
	char path[PATH_MAX];
	AUTO_FREE char *text = NULL;
	AUTO_JSON json_t *v = NULL;
	size_t n;
	int r;

	snprintf(path, sizeof path, "%s/server.json", dir);
	r = fd_read_file(AT_FDCWD, path, 65536, &text, &n, e);
	if (r == -ENOENT)
		return err_set(e, ECONNREFUSED, "no server runs (looked in '%.200s')", dir);
	if (r >= 0)
		r = js_parse(text, n, &v, e);
	if (r >= 0)
		r = js_get_int(v, "pid", 2, INT32_MAX, ret, e);
	if (r < 0)
		return err_wrap(e, "read '%.200s'", path);
	return r ? 0 : err_set(e, EIO, "'%.200s' has no pid", path);
}

/* A pid may be somebody else's by now: it must be a program of ours. */
static bool is_ours(int64_t pid)
{
	char path[64];
	AUTO_FREE char *text = NULL;
	size_t n;

	snprintf(path, sizeof path, "/proc/%lld/cmdline", (long long)pid);
	return fd_read_file(AT_FDCWD, path, 65536, &text, &n, NULL) >= 0 && memmem(text, n, "bureau", 6);
}

int api_stop(struct api *a)
{
	char dir[PATH_MAX / 2];
	struct err e = { 0 };
	struct pollfd p;
	int64_t pid;
	AUTO_FD int fd = -1;

	if (client_state_dir(a->o.state, dir, sizeof dir, &e) < 0 || server_pid(dir, &pid, &e) < 0)
		return api_fail(&e);
	fd = proc_pidfd_open((pid_t)pid);
	if (fd < 0 || !is_ours(pid)) {
		err_set(&e, ECONNREFUSED, "no server runs: process %lld of '%.200s/server.json' is gone", (long long)pid, dir);
		return api_fail(&e);
	}
	if (proc_pidfd_signal(fd, SIGTERM) < 0) {
		err_set(&e, EPERM, "stop process %lld: not allowed", (long long)pid);
		err_hint(&e, "stop it as the user who started it");
		return api_fail(&e);
	}
	p = (struct pollfd){ .fd = fd, .events = POLLIN };
	if (poll(&p, 1, 60000) != 1) {
		err_set(&e, ETIMEDOUT, "the server (process %lld) doesn't end", (long long)pid);
		return api_fail(&e);
	}
	puts("stopped");
	return API_OK;
}

int api_key(struct api *a)
{
	char dir[PATH_MAX / 2], path[PATH_MAX];
	AUTO_FREE char *text = NULL;
	struct err e = { 0 };
	size_t n;

	if (client_state_dir(a->o.state, dir, sizeof dir, &e) < 0)
		return api_fail(&e);
	snprintf(path, sizeof path, "%s/api-key", dir);
	if (fd_read_file(AT_FDCWD, path, 4096, &text, &n, &e) < 0) {
		if (e.code == ENOENT)
			err_hint(&e, "the key is made when the server first starts: bureau serve");
		return api_fail(&e);
	}
	text[strcspn(text, "\r\n")] = '\0';
	puts(text);
	return API_OK;
}
