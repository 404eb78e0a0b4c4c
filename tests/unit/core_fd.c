#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char top[256];
static int dir;
static struct err e;

static bool there(const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void put(const char *name, const char *text)
{
	AUTO_FD int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		abort();
}

static void test_read(void)
{
	AUTO_FREE char *text = NULL, *proc = NULL, *empty = NULL;
	char *untouched = NULL;
	size_t n = 0;
	int fds[2];

	put("ten", "0123456789");
	ok(fd_read_file(dir, "ten", 10, &text, &n, &e) == 0 && n == 10, "a file of exactly max");
	is_str(text, "0123456789", "is read whole");
	ok(fd_read_file(dir, "ten", 9, &untouched, &n, &e) == -EFBIG && !untouched, "one byte over max is refused");
	ok(fd_read_file(dir, "no", 9, &untouched, &n, &e) == -ENOENT, "missing");
	is_str(e.msg, "open 'no': No such file or directory", "named");
	put("empty", "");
	ok(fd_read_file(dir, "empty", 0, &empty, &n, &e) == 0 && n == 0 && str_eq(empty, ""), "empty file, max 0");
	ok(fd_read_file(AT_FDCWD, "/proc/self/status", 1 << 20, &proc, &n, &e) == 0 && n > 100 && proc[n] == '\0', "a file without a size");
	ok(fd_read_file(AT_FDCWD, "/proc/self/status", 100, &untouched, &n, &e) == -EFBIG, "its max holds too");
	ok(fd_read_file(AT_FDCWD, "/dev/zero", 100000, &untouched, &n, &e) == -EFBIG, "an endless one ends at max");
	ok(fd_read_file(dir, ".", 100, &untouched, &n, &e) == -EISDIR, "a folder is an error");
	if (pipe2(fds, O_CLOEXEC) == 0) {
		ok(fd_nonblock(fds[0], 1) == 0 && (fcntl(fds[0], F_GETFL) & O_NONBLOCK), "nonblock on");
		ok(fd_nonblock(fds[0], 0) == 0 && !(fcntl(fds[0], F_GETFL) & O_NONBLOCK), "and off");
		close(fds[0]);
		close(fds[1]);
	}
	ok(fd_nonblock(999, 1) == -EBADF, "nonblock of nothing");
}

/* Temporary files left behind. */
static int leftovers(void)
{
	DIR *d = opendir(top);
	int n = 0;

	for (struct dirent *x; d && (x = readdir(d));)
		n += str_ends(x->d_name, ".tmp");
	if (d)
		closedir(d);
	return n;
}

static void test_write(void)
{
	AUTO_FREE char *text = NULL;
	struct stat st;
	size_t n;

	umask(077);
	ok(fd_write_file(dir, "w", 0644, "one", 3, &e) == 0, "a new file");
	ok(fstatat(dir, "w", &st, 0) == 0 && (st.st_mode & 07777) == 0644, "with the mode asked for, whatever the umask");
	umask(022);
	ino_t before = st.st_ino;
	ok(fd_write_file(dir, "w", 0600, "two!", 4, &e) == 0, "replaced");
	ok(fstatat(dir, "w", &st, 0) == 0 && st.st_ino != before && (st.st_mode & 07777) == 0600, "by another file");
	ok(fd_read_file(dir, "w", 100, &text, &n, &e) == 0 && n == 4 && str_eq(text, "two!"), "with the new text");
	ok(symlinkat("w", dir, "link") == 0 && fd_write_file(dir, "link", 0600, "x", 1, &e) == 0 &&
		fstatat(dir, "link", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode), "a link is replaced, not followed");
	mkdirat(dir, "d", 0755);
	ok(fd_write_file(dir, "d", 0600, "x", 1, &e) == -EISDIR, "a folder can't be replaced");
	is_str(e.msg, "write 'd': rename: Is a directory", "said so");
	ok(fd_write_file(dir, "no/such", 0600, "x", 1, &e) == -ENOENT, "no folder");
	ok(fd_write_file(dir, "d/in", 0600, "x", 1, &e) == 0 && there("d/in"), "in a folder below");
	ok(leftovers() == 0, "no temporary file is left");
}

static void test_mkdirs(void)
{
	AUTO_FREE char *p = NULL, *q = NULL, *f = NULL;
	struct stat st;

	if (asprintf(&p, "%s/m/a/b", top) < 0 || asprintf(&q, "%s//m/a/b//c/", top) < 0 || asprintf(&f, "%s/ten", top) < 0)
		return;
	ok(fd_mkdirs(p, 0700, &e) == 0 && stat(p, &st) == 0 && (st.st_mode & 0777) == 0700, "three folders at once");
	ok(fd_mkdirs(p, 0755, &e) == 0 && stat(p, &st) == 0 && (st.st_mode & 0777) == 0700, "again: left as they are");
	ok(fd_mkdirs(q, 0700, &e) == 0 && there("m/a/b/c"), "with slashes to spare");
	ok(fd_mkdirs(f, 0700, &e) == -ENOTDIR, "a file in the way");
	ok(fd_mkdirs("", 0700, &e) == -ENOENT, "no name");
	ok(fd_mkdirs("/", 0700, &e) == 0, "the root is there");
}

static void test_remove(void)
{
	int at, deep = 0;

	ok(fd_remove_tree(dir, "no-such", &e) == 0, "missing is fine");
	mkdirat(dir, "outside", 0755);
	put("outside/precious", "x");
	mkdirat(dir, "t", 0755);
	mkdirat(dir, "t/sub", 0755);
	put("t/sub/file", "x");
	ok(symlinkat("../outside", dir, "t/link") == 0 && symlinkat("../../outside", dir, "t/sub/link") == 0 &&
		symlinkat("/nowhere", dir, "t/dangling") == 0 && mkfifoat(dir, "t/fifo", 0600) == 0, "links and a fifo");
	ok(fd_remove_tree(dir, "t", &e) == 0 && !there("t"), "a tree goes");
	ok(there("outside/precious"), "what its links name stays");
	ok(symlinkat("outside", dir, "top-link") == 0 && fd_remove_tree(dir, "top-link", &e) == 0 && !there("top-link") &&
		there("outside/precious"), "a link itself is removed, not followed");
	put("plain", "x");
	ok(fd_remove_tree(dir, "plain", &e) == 0 && !there("plain"), "a plain file too");
	mkdirat(dir, "deep", 0755);
	at = openat(dir, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (; deep < 3000; deep++) {
		int next;

		if (mkdirat(at, "a-folder-with-a-name", 0755) < 0)
			break;
		next = openat(at, "a-folder-with-a-name", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	close(at);
	ok(deep == 3000 && fd_remove_tree(dir, "deep", &e) == 0 && !there("deep"), "3,000 levels, far past PATH_MAX and our descriptors");
	mkdirat(dir, "wide", 0755);
	for (int i = 0; i < 3000; i++) {
		char name[32];

		snprintf(name, sizeof name, "wide/%d", i);
		put(name, "");
	}
	ok(fd_remove_tree(dir, "wide", &e) == 0 && !there("wide"), "3,000 files");
}

/* As a plain user: folders its maker shut. */
static int shut_folders(void)
{
	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		return 9;
	if (mkdirat(dir, "free/s", 0755) < 0 || mkdirat(dir, "free/s/a", 0755) < 0 || mkdirat(dir, "free/s/a/b", 0755) < 0)
		return 8;
	put("free/s/a/b/f", "x");
	if (fchmodat(dir, "free/s/a/b", 0555, 0) < 0 || fchmodat(dir, "free/s/a", 0, 0) < 0 || fchmodat(dir, "free/s", 0, 0) < 0)
		return 7;
	return fd_remove_tree(dir, "free/s", &e) == 0 && !there("free/s") ? 0 : 1;
}

/* A mount left in the tree: refused, and what is mounted keeps its files. */
static int mounted(void)
{
	char from[400], to[400];

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 77;
	snprintf(from, sizeof from, "%s/outside", top);
	snprintf(to, sizeof to, "%s/with-mount/deep/m", top);
	if (fd_mkdirs(to, 0755, &e) < 0 || mount(from, to, NULL, MS_BIND, NULL) < 0)
		return 77;
	if (fd_remove_tree(dir, "with-mount", &e) == 0)
		return 1;
	if (!there("outside/precious"))
		return 2;
	if (fd_remove_tree(dir, "with-mount/deep/m", &e) != -EBUSY || !there("outside/precious"))
		return 3;
	return 0;
}

static int in_child(int (*fn)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(fn());
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_remove_hard(void)
{
	int r;

	mkdirat(dir, "free", 0777);
	fchmodat(dir, "free", 0777, 0);
	fchmod(dir, 0755);
	r = in_child(shut_folders);
	ok(r == 0, "folders without permissions (step %d)", r);
	r = in_child(mounted);
	if (r == 77)
		skip("mounting needs root");
	else
		ok(r == 0, "a mount in the tree is never emptied (step %d)", r);
}

static int open_count(int first)
{
	int n = 0;

	for (int i = first; i < 256; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

static int close_some(void)
{
	int keep[] = { 60, 62, 63 };

	for (int i = 50; i < 70; i++)
		dup2(dir, i);
	fd_close_from(50, keep, 3);
	if (open_count(50) != 3 || fcntl(60, F_GETFD) < 0 || fcntl(63, F_GETFD) < 0)
		return 1;
	fd_close_from(3, NULL, 0);
	return open_count(3) == 0 ? 0 : 2;
}

static void test_write_all(void)
{
	int fds[2];
	char big[300000];
	size_t got = 0;
	ssize_t r;
	pid_t pid;

	memset(big, 'b', sizeof big);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		_exit(fd_write_all(fds[1], big, sizeof big, &e) < 0);
	}
	close(fds[1]);
	while ((r = read(fds[0], big, 7000)) > 0)
		got += (size_t)r;
	ok(got == sizeof big, "write_all goes on after short writes");
	waitpid(pid, NULL, 0);
	close(fds[0]);
	ok(fd_write_all(999, "x", 1, &e) == -EBADF, "and reports a failure");
}

/* Whoever shares a descriptor may clear O_NONBLOCK at any moment. */
static void test_guard(void)
{
	int p[2];
	char c;
	int64_t t = clock_mono_ms();

	if (pipe(p) < 0)
		return;
	ok(fd_read_guarded(p[0], &c, 1) < 0 && errno == EINTR, "a read that blocks is interrupted");
	ok(clock_mono_ms() - t < 20 * FD_GUARD_MS, "soon");
	ok(write(p[1], "x", 1) == 1 && fd_read_guarded(p[0], &c, 1) == 1 && c == 'x', "others aren't");
	close(p[0]);
	close(p[1]);
}

/* Whoever sent us a pipe's end can make it blocking again: a read must not wait for all that. */
static void test_read_pipe(void)
{
	char got[100000];
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return;
	alarm(20);
	ok(fd_is_pipe(p[0]) && !fd_is_pipe(-1), "a pipe is one");
	ok(fd_read_pipe(p[0], got, sizeof got) == -1 && errno == EAGAIN, "an empty pipe in blocking mode: nothing yet");
	ok(write(p[1], "hello", 5) == 5 && fd_read_pipe(p[0], got, sizeof got) == 5 && memcmp(got, "hello", 5) == 0, "what is in it");
	memset(got, 'x', 60000);
	ok(write(p[1], got, 60000) == 60000 && fd_read_pipe(p[0], got, 1000) == 1000 && fd_read_pipe(p[0], got, sizeof got) == 59000, "in pieces");
	close(p[1]);
	ok(fd_read_pipe(p[0], got, sizeof got) == 0, "and its end");
	close(p[0]);
	p[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ok(!fd_is_pipe(p[0]), "a device is none");
	close(p[0]);
	alarm(0);
}

int main(void)
{
	char *text;

	if (!mkdtemp(tap_tmp(top, sizeof top, "bureau-fd")) || (dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return 1;
	test_read();
	test_write();
	test_mkdirs();
	test_remove();
	test_remove_hard();
	test_write_all();
	ok(in_child(close_some) == 0, "close_from keeps what it was told to");
	ok(fd_raise_limit() > 0, "descriptor limit");
	ok(fd_remove_tree(AT_FDCWD, top, &e) == 0, "clean up");
	if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/pid_max", 64, &text, NULL, &e) == 0) {
		ok(strlen(text) > 2 && strchr(text, '\n'), "a sysctl comes whole: its size is 0 and only its first read counts");
		free(text);
	} else {
		skip("no /proc/sys/kernel/pid_max");
	}
	test_guard();
	test_read_pipe();
	return done_testing();
}
