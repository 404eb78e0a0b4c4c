#include "store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/fd.h"
#include "tap.h"

static char dir[] = "/tmp/bureau-store-XXXXXX";
static char seen[400];

static bool note(void *ctx, const struct store_sandbox *row)
{
	int *left = ctx;

	snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s ", row->id);
	return --*left > 0;
}

static const char *list(struct store *s, struct store_query q, int n)
{
	struct err e;

	seen[0] = '\0';
	if (store_each(s, &q, note, &n, &e) < 0)
		snprintf(seen, sizeof seen, "%s", e.msg);
	return seen;
}

static struct store_sandbox row(const char *id, int64_t started)
{
	struct store_sandbox r = { .slot = 7, .state = "running", .template = "host", .net = 1, .secure = true, .token = "t0k",
		.started = started, .ends = started + 1000, .metadata = "{\"a\":\"b\"}", .limits = { 1, 2, 3, 4, 5, 6 }, .unenforced = 9 };

	snprintf(r.id, sizeof r.id, "%s", id);
	return r;
}

static void test_rows(struct store *s)
{
	struct store_sandbox a = row("aaaaaaaa", 100), b = row("bbbbbbbb", 200), c = row("cccccccc", 200), got;
	struct err e;

	ok(store_put(s, &a, &e) == 0 && store_put(s, &b, &e) == 0 && store_put(s, &c, &e) == 0, "three rows");
	ok(store_get(s, "aaaaaaaa", &got, &e) == 1, "one is found");
	is_str(got.metadata, "{\"a\":\"b\"}", "with its metadata");
	ok(got.slot == 7 && got.secure && got.limits.files == 6 && got.unenforced == 9 && got.ends == 1100, "and its numbers");
	ok(store_get(s, "nobody00", &got, &e) == 0, "another isn't");
	is_str(list(s, (struct store_query){ .live = true }, 9), "cccccccc bbbbbbbb aaaaaaaa ", "newest first");
	is_str(list(s, (struct store_query){ .live = true, .oldest_first = true }, 9), "aaaaaaaa bbbbbbbb cccccccc ", "oldest first");
	is_str(list(s, (struct store_query){ .live = true, .cursor_started = 200, .cursor_id = "cccccccc" }, 9), "bbbbbbbb aaaaaaaa ", "behind a cursor");
	is_str(list(s, (struct store_query){ .live = true, .after = 150 }, 1), "cccccccc ", "started after, one only");
	ok(store_set_ends(s, "bbbbbbbb", 5, &e) == 0 && store_get(s, "bbbbbbbb", &got, &e) == 1 && got.ends == 5, "a deadline moves");
	ok(store_end(s, "bbbbbbbb", "ended", 300, "killed", "asked for", "key:1", &e) == 0, "an end");
	ok(store_get(s, "bbbbbbbb", &got, &e) == 1 && got.ended == 300 && strcmp(got.why, "killed") == 0 && !got.token[0], "leaves a tombstone without a token");
	ok(store_end(s, "bbbbbbbb", "ended", 400, "oom", "", "", &e) == 0 && store_get(s, "bbbbbbbb", &got, &e) == 1 && got.ended == 300, "that nobody rewrites");
	is_str(list(s, (struct store_query){ .live = true }, 9), "cccccccc aaaaaaaa ", "live ones");
	is_str(list(s, (struct store_query){ .ended = true }, 9), "bbbbbbbb ", "ended ones");
	is_str(list(s, (struct store_query){ .ended = true, .live = true }, 9), "cccccccc bbbbbbbb aaaaaaaa ", "all");
	ok(store_prune(s, 300 + STORE_KEEP_MS + 1, &e) == 0 && store_get(s, "bbbbbbbb", &got, &e) == 0, "an old tombstone is forgotten");
	ok(store_get(s, "aaaaaaaa", &got, &e) == 1, "an old live row isn't");
}

static void test_crash(void)
{
	struct store *s = NULL;
	struct store_sandbox got;
	struct err e;
	int pipefd[2], st;
	char c;
	pid_t pid;

	if (pipe(pipefd) < 0)
		exit(1);
	pid = fork();
	if (pid == 0) {
		struct store_sandbox d = row("dddddddd", 900);

		if (store_open(dir, &s, &e) < 0 || store_put(s, &d, &e) < 0 || write(pipefd[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	ok(read(pipefd[0], &c, 1) == 1, "a process has put a row");
	kill(pid, SIGKILL);
	waitpid(pid, &st, 0);
	ok(store_open(dir, &s, &e) == 0, "after its kill -9 the store opens");
	ok(store_get(s, "dddddddd", &got, &e) == 1, "and has the row");
	store_close(s);
}

int main(void)
{
	struct store *s = NULL, *t = NULL;
	struct err e;

	if (!mkdtemp(dir))
		return 1;
	ok(store_open(dir, &s, &e) == 0, "opens a new folder");
	test_rows(s);
	store_close(s);
	ok(store_open(dir, &s, &e) == 0, "opens again");
	store_close(s);
	test_crash();
	ok(store_open("/nowhere/at/all", &t, &e) < 0 && strstr(e.msg, "/nowhere"), "an error names the file");
	fd_remove_tree(AT_FDCWD, dir, NULL);
	return done_testing();
}
