#include "cli/inside.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/proc.h"
#include "core/str.h"

#define IDS 65535       /* granted ids that are needed: all of 0-65535 but our own */

/* The first range of enough ids that file grants. */
static int granted(const char *file, uint64_t *ret_first, struct err *e)
{
	AUTO_FREE char *text = NULL;
	const struct passwd *pw = getpwuid(getuid());
	char number[16], command[160], *rest, *line;

	if (fd_read_file(AT_FDCWD, file, 1 << 20, &text, NULL, e) < 0)
		text = strdup("");
	snprintf(number, sizeof number, "%u", (unsigned)getuid());
	for (rest = text; rest && (line = strsep(&rest, "\n"));) {
		const char *who = strsep(&line, ":"), *first = strsep(&line, ":"), *count = line;
		uint64_t n;

		if (!first || !count || (!str_eq(who, number) && (!pw || !str_eq(who, pw->pw_name))))
			continue;
		if (str_u64(first, UINT32_MAX, ret_first) == 0 && str_u64(count, UINT32_MAX, &n) == 0 && n >= IDS)
			return 0;
	}
	err_set(e, EPERM, "%s grants you no range of %d ids", file, IDS);
	cli_subid_command(pw ? pw->pw_name : "$USER", command, sizeof command);
	return err_hint(e, "%.140s; or as root", command);
}

static int map_ids(const char *program, const char *file, pid_t pid, unsigned own, struct err *e)
{
	char id[16], self[16], first[24], second[24];
	uint64_t base;
	int status = -1;
	pid_t child;

	if (granted(file, &base, e) < 0)
		return -e->code;
	snprintf(id, sizeof id, "%d", (int)pid);
	snprintf(self, sizeof self, "%u", own);
	snprintf(first, sizeof first, "%llu", (unsigned long long)base);
	snprintf(second, sizeof second, "%llu", (unsigned long long)base + 1000);
	const char *argv[] = { program, id, "0", first, "1000", "1000", self, "1", "1001", second, "64535", NULL };
	int fds[] = { -1, 2, 2 };
	const struct proc_spec s = { .path = program, .argv = argv, .fds = fds, .nfds = 3 };

	if (proc_spawn(&s, &child, NULL, e) < 0) {
		err_hint(e, "sudo apt install uidmap; or build as root");
		return -e->code;
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0 ? 0 : err_set(e, EPERM, "%s refused", program);
}

static _Noreturn void child_exec(const char *const *argv, const char *const *envp, int out_fd)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0 &&
	    dup2(null, 0) == 0 && dup2(out_fd, 1) == 1 && dup2(out_fd, 2) == 2 && chdir("/") == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execve(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
	}
	dprintf(out_fd, "start %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* The first child: gets its ids, makes the namespaces, and stands for the program (which is PID 1 of its own) to our parent. */
static _Noreturn void child_enter(const char *const *argv, const char *const *envp, int out_fd, int say, int hear)
{
	char ch = 'x';
	bool plain = geteuid() != 0;
	int status = 127 << 8;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (plain && unshare(CLONE_NEWUSER) < 0)
		ch = 'n';
	if (write(say, &ch, 1) != 1 || read(hear, &ch, 1) != 1 || ch != 'y')
		_exit(127);
	if (plain && (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
		_exit(127);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);      /* changing ids cleared it */
	pid_t pid = unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC) == 0 ? fork() : -1;

	if (pid == 0)
		child_exec(argv, envp, out_fd);
	if (pid < 0)
		dprintf(out_fd, "make namespaces: %s\n", strerror(errno));
	else
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int inside_start(const char *const *argv, const char *const *envp, int out_fd, pid_t *ret_pid, struct err *e)
{
	int up[2], down[2], code = 0;
	char ch;

	if (pipe2(up, O_CLOEXEC) < 0)
		return err_sys(e, "make a pipe");
	if (pipe2(down, O_CLOEXEC) < 0) {
		code = err_sys(e, "make a pipe");
		close(up[0]);
		close(up[1]);
		return code;
	}
	pid_t pid = fork();

	if (pid == 0)
		child_enter(argv, envp, out_fd, up[1], down[0]);
	close(up[1]);
	close(down[0]);
	if (pid < 0)
		code = err_sys(e, "start a process");
	else if (read(up[0], &ch, 1) != 1 || ch != 'x')
		code = err_set(e, EPERM, "a user namespace can't be made ('bureau doctor' says why)");
	else if (geteuid() != 0 && (map_ids("/usr/bin/newuidmap", "/etc/subuid", pid, (unsigned)getuid(), e) < 0 ||
				    map_ids("/usr/bin/newgidmap", "/etc/subgid", pid, (unsigned)getgid(), e) < 0))
		code = -e->code;
	else if (write(down[1], "y", 1) != 1)
		code = err_set(e, EPIPE, "start %s: it's gone", argv[0]);
	close(up[0]);
	close(down[1]);
	if (code < 0 && pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	*ret_pid = pid;
	return code;
}

int inside_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int inside_run(const char *const *argv, struct err *e)
{
	static const char *const envp[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	AUTO_FD int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pid_t pid;

	if (inside_start(argv, envp, null, &pid, e) < 0)
		return -e->code;
	int code = inside_wait(pid);

	return code == 0 ? 0 : err_set(e, EIO, "%s failed (%d)", argv[0], code);
}
