#include "core/proc.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct err e;

/* Waits for the end of a child we spawned, at most 10 s; its wait status. */
static int finish(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int status = -1;

	if (poll(&p, 1, 10000) == 1 && proc_pidfd_reap(pidfd, &status) != 1)
		status = -1;
	close(pidfd);
	return status;
}

/* Runs sh -c script with its output in out. */
static int run_sh(struct proc_spec *s, const char *script, char *out, size_t size)
{
	const char *argv[] = { "sh", "-c", script, NULL };
	int pipe_fds[2], pidfd, fds[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };
	size_t n = 0;
	ssize_t r;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -1;
	for (size_t i = 0; i < s->nfds; i++)
		fds[i] = s->fds[i];
	fds[1] = pipe_fds[1];
	s->path = "/bin/sh";
	s->argv = argv;
	s->fds = fds;
	if (s->nfds < 3)
		s->nfds = 3;
	r = proc_spawn(s, NULL, &pidfd, &e);
	close(pipe_fds[1]);
	if (r < 0) {
		close(pipe_fds[0]);
		return -1;
	}
	while (n + 1 < size && (r = read(pipe_fds[0], out + n, size - 1 - n)) > 0)
		n += (size_t)r;
	out[n] = '\0';
	close(pipe_fds[0]);
	return finish(pidfd);
}

static void test_spawn(void)
{
	static const char *const env[] = { "A=1", NULL };
	char out[4096], want[64];
	int st;

	st = run_sh(&(struct proc_spec){ .envp = env }, "echo $A $PPID; exit 7", out, sizeof out);
	snprintf(want, sizeof want, "1 %d\n", (int)getpid());
	ok(WIFEXITED(st) && WEXITSTATUS(st) == 7, "exit code comes back");
	is_str(out, want, "environment and parent are right");
	st = run_sh(&(struct proc_spec){ 0 }, "/usr/bin/env | grep -v -e ^PWD= -e ^_= -e ^OLDPWD= -e ^SHLVL=; true", out, sizeof out);
	is_str(out, "", "no envp is an empty environment");
	st = run_sh(&(struct proc_spec){ .cwd = "/usr" }, "pwd -P", out, sizeof out);
	is_str(out, "/usr\n", "cwd");
	st = run_sh(&(struct proc_spec){ .new_session = 1 }, "read pid name state ppid pgrp session rest < /proc/$$/stat; echo $(($session == $$))", out, sizeof out);
	is_str(out, "1\n", "a session of its own");
	st = run_sh(&(struct proc_spec){ 0 }, "kill -9 $$", out, sizeof out);
	ok(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL, "death by signal comes back");
}

static void test_fds(void)
{
	int a[2], b[2], leak = open("/dev/null", O_RDONLY);
	/* no pipe and no listing: either would add descriptors of the shell's own for a moment */
	static const char script[] = "echo three >&3; echo four >&4; for i in 0 1 2 3 4 5 6 7 8 9 20 21 22 23 24 25; do "
		"if [ -e /proc/$$/fd/$i ]; then echo $i; fi; done";
	char out[4096];
	int st;

	if (pipe(a) < 0 || pipe(b) < 0 || leak < 0)
		return;
	/* 3 and 4 are swapped relative to what they are here, whatever these are */
	dup2(a[1], 20);
	dup2(b[1], 21);
	int fds[] = { -1, -1, 2, 21, 20, -1 };
	st = run_sh(&(struct proc_spec){ .fds = fds, .nfds = 6 }, script, out, sizeof out);
	ok(st == 0, "runs");
	is_str(out, "0\n1\n2\n3\n4\n5\n", "only what was given is open");
	char got[64];
	ssize_t n = read(b[0], got, sizeof got - 1);
	got[n > 0 ? n : 0] = '\0';
	is_str(got, "three\n", "descriptor 3 is the one meant");
	n = read(a[0], got, sizeof got - 1);
	got[n > 0 ? n : 0] = '\0';
	is_str(got, "four\n", "and 4");
	close(20); close(21); close(leak);
	close(a[0]); close(a[1]); close(b[0]); close(b[1]);
}

/* Descriptors that must trade places: 1 -> 0 and 0 -> 1 in the child. */
static void test_swap(void)
{
	static const char *const argv[] = { "sh", "-c", "read x; echo got $x", NULL };
	int in[2], out[2], pidfd, save0 = dup(0), save1;
	char got[64];

	fflush(stdout);
	save1 = dup(1);
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return;
	dup2(in[0], 1);
	dup2(out[1], 0);
	int r = proc_spawn(&(struct proc_spec){ .path = "/bin/sh", .argv = argv, .fds = (int[]){ 1, 0, -1 }, .nfds = 3 }, NULL, &pidfd, &e);
	dup2(save0, 0);
	dup2(save1, 1);
	close(out[1]);
	ok(r == 0, "spawn with 0 and 1 swapped");
	ok(write(in[1], "hi\n", 3) == 3, "write");
	ssize_t n = read(out[0], got, sizeof got - 1);
	got[n > 0 ? n : 0] = '\0';
	is_str(got, "got hi\n", "both went to the right place");
	ok(finish(pidfd) == 0, "ends well");
	close(in[0]); close(in[1]); close(out[0]); close(save0); close(save1);
}

static void test_failures(void)
{
	static const char *const argv[] = { "x", NULL };
	pid_t pid = -7;
	int pidfd = -7, fds[65];

	ok(proc_spawn(&(struct proc_spec){ .path = "/no/such/program", .argv = argv }, &pid, &pidfd, &e) == -ENOENT, "no program: reported here");
	is_str(e.msg, "start '/no/such/program': exec: No such file or directory", "with act, object and cause");
	ok(pid == -7 && pidfd == -7, "results untouched");
	ok(proc_spawn(&(struct proc_spec){ .path = "/etc/passwd", .argv = argv }, &pid, &pidfd, &e) == -EACCES, "not executable");
	ok(proc_spawn(&(struct proc_spec){ .path = "/bin/true", .argv = argv, .cwd = "/no/such" }, &pid, &pidfd, &e) == -ENOENT &&
		strstr(e.msg, "enter its folder"), "bad folder names the step");
	ok(proc_spawn(&(struct proc_spec){ .path = "/bin/true", .argv = argv, .fds = (int[]){ 999 }, .nfds = 1 }, &pid, &pidfd, &e) == -EBADF,
		"a descriptor that isn't open");
	ok(proc_spawn(&(struct proc_spec){ .path = "/bin/true", .argv = argv, .fds = fds, .nfds = 65 }, &pid, &pidfd, &e) == -EINVAL, "too many");
	ok(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "no failed child is left behind");
	ok(proc_spawn(&(struct proc_spec){ .path = "/no/such", .argv = argv }, NULL, NULL, NULL) == -ENOENT, "NULL err");
}

static volatile sig_atomic_t handled;
static void on_usr1(int signo) { handled++; }

static void test_signals(void)
{
	sigset_t set, old, now;
	char out[256], *at;

	signal(SIGUSR1, on_usr1);
	signal(SIGPIPE, SIG_IGN);
	/* what glibc's posix_spawn() does to a child: one of libc's own signals, ignored */
	static const struct { void (*handler)(int); unsigned long rest[3]; } ignore = { .handler = SIG_IGN };
	syscall(SYS_rt_sigaction, 33, &ignore, NULL, 8);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &old);
	int st = run_sh(&(struct proc_spec){ 0 }, "grep -e SigBlk -e SigIgn /proc/self/status", out, sizeof out);
	ok(st == 0 && (at = strstr(out, "SigBlk:")) && strtoull(at + 7, NULL, 16) == 0, "a child blocks nothing");
	ok((at = strstr(out, "SigIgn:")) && strtoull(at + 7, NULL, 16) == 0, "and ignores nothing");
	sigprocmask(SIG_SETMASK, NULL, &now);
	ok(sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGUSR2) == 0, "our own mask is as it was");
	raise(SIGUSR1);
	ok(handled == 1, "our own handlers too");
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static void test_pidfd(void)
{
	static const char *const argv[] = { "sleep", "1000", NULL };
	uint64_t started = 0, again = 0;
	pid_t pid;
	int pidfd, status = -1, fd;

	if (!ok(proc_spawn(&(struct proc_spec){ .path = "/bin/sleep", .argv = argv, .death_signal = SIGKILL }, &pid, &pidfd, &e) == 0, "a child that stays"))
		return;
	ok(proc_pidfd_reap(pidfd, &status) == 0 && status == -1, "still running");
	ok(proc_start_time(pid, &started) == 0 && started > 0 && proc_start_time(pid, &again) == 0 && again == started, "start time is steady");
	fd = proc_pidfd_open(pid);
	ok(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC), "pidfd of a pid");
	ok(proc_pidfd_signal(fd, 0) == 0 && proc_pidfd_signal(fd, SIGTERM) == 0, "signals by pidfd");
	status = finish(dup(pidfd));
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "reaped by pidfd");
	ok(proc_pidfd_reap(pidfd, &status) == -ECHILD, "only once");
	ok(proc_pidfd_signal(fd, 0) == -ESRCH, "no signal to the dead");
	ok(proc_start_time(pid, &started) == -ESRCH, "no start time either");
	ok(proc_pidfd_open(pid) == -ESRCH, "nor a pidfd");
	close(fd);
	close(pidfd);
}

static void test_ids(void)
{
	char out[256];

	if (geteuid() != 0) {
		skip("changing user needs root");
		return;
	}
	int st = run_sh(&(struct proc_spec){ .set_ids = 1, .uid = 65534, .gid = 65534 }, "id -u; id -g; id -G", out, sizeof out);
	ok(st == 0, "another user");
	is_str(out, "65534\n65534\n65534\n", "user, group and no other groups");
	ok(geteuid() == 0, "and we are still who we were");
}

/* Runs fn in a forked child, for what can't be undone. */
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

static int harden(void)
{
	if (proc_harden(NULL) < 0)
		return 1;
	return prctl(PR_GET_DUMPABLE) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 2;
}

static int filtered(void)
{
	static const struct sock_filter prog[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDOM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	if (proc_seccomp(prog, sizeof prog / sizeof *prog, NULL) < 0)
		return 1;
	return syscall(SYS_getppid) == -1 && errno == EDOM ? 0 : 2;
}

static int bad_filter(void)
{
	static const struct sock_filter prog[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0) };

	return proc_seccomp(prog, 1, NULL) == -EINVAL ? 0 : 1;
}

static void test_self(void)
{
	char out[4096], name[32];

	ok(in_child(harden) == 0, "harden");
	ok(in_child(filtered) == 0, "a filter is installed and works");
	ok(in_child(bad_filter) == 0, "a bad filter is refused");
	proc_title("bureau-test");
	prctl(PR_GET_NAME, name);
	is_str(name, "bureau-test", "title");
	ok(proc_sibling("test-core_proc", out, sizeof out, &e) == 0 && access(out, X_OK) == 0, "a program beside ours is found");
	ok(proc_sibling("no-such-program", out, sizeof out, &e) == -ENOENT, "another isn't");
	ok(proc_sibling("test-core_proc", out, 8, &e) == -ENAMETOOLONG, "too small a place for the path");
}

int main(void)
{
	test_spawn();
	test_fds();
	test_swap();
	test_failures();
	test_signals();
	test_pidfd();
	test_ids();
	test_self();
	return done_testing();
}
