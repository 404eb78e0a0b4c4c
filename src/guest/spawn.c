/* spawn -- theory of operation.
 *
 * As in core/spawn.c the child shares our memory until it has called exec (CLONE_VM|CLONE_VFORK): nothing is copied, and we
 * stand still meanwhile. So everything named child_* allocates nothing, writes only its own stack and the two
 * result fields, and makes the identity system calls directly (libc's keep state). All signals are blocked
 * in this process for good (life.c), none has a handler: the child only has to unblock them.
 * The child's frames lie on a piece of our stack and are left without returning: AddressSanitizer keeps out of them.
 * Every descriptor of ours is CLOEXEC and 0-2 are taken by /dev/null, so none has to be moved out of the way. */
#include "guest/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "core/fd.h"
#include "wire/guest_proto.h"

#define CHILD __attribute__((no_sanitize("address", "undefined")))
enum { CHILD_STACK = 24 << 10 };
enum step { STEP_NONE, STEP_TTY, STEP_FDS, STEP_LIMITS, STEP_USER, STEP_CWD, STEP_EXEC };

struct birth {
	const struct spawn *s;
	volatile enum step failed;
	volatile int code;
};

CHILD int spawn_become(const struct user *u)
{
	if (u->single)
		return 0;
	/* where groups can't be changed we have none to lose */
	if (syscall(SYS_setgroups, u->ngroups, u->groups) < 0 && errno != EPERM)
		return -errno;
	if (syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 || syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
		return -errno;
	return 0;
}

/* Programs are killed for memory before we are. Not permitted everywhere, and then not needed. */
CHILD static void child_oom(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "100", 3) < 0)
		errno = 0;
	close(fd);
}

CHILD static int child_session(const struct spawn *s)
{
	pid_t self = (pid_t)syscall(SYS_getpid);

	if (s->group) {
		setpgid(0, 0);
		return s->tty ? ioctl(s->fds[0], TIOCSPGRP, &self) : 0;      /* SIGTTOU is blocked here */
	}
	setsid();
	return s->tty ? ioctl(s->fds[0], TIOCSCTTY, 0) : 0;
}

CHILD static int child_fds(const struct spawn *s)
{
	for (int i = 0; i < 3; i++)
		if (dup2(s->fds[i], i) < 0)
			return -1;
	return 0;
}

CHILD static int child_cwd(const struct spawn *s)
{
	if (!s->cwd)
		return fchdir(s->cwd_fd);
	if (chdir(s->cwd) == 0)
		return 0;
	return s->cwd_soft ? chdir("/") : -1;
}

/* execve, or the search of execvp without its shell for files of no known kind. errno says why not. */
CHILD static void child_exec(const struct spawn *s)
{
	char *const *argv = (char *const *)(uintptr_t)s->argv, *const *envp = (char *const *)(uintptr_t)s->envp;
	char file[GUEST_PATH + 256];
	size_t n = strlen(s->cmd);
	int denied = 0;

	if (strchr(s->cmd, '/')) {
		execve(s->cmd, argv, envp);
		return;
	}
	for (const char *p = s->path; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
		size_t len = strcspn(p, ":");

		if (len + 1 + n >= sizeof file)
			continue;
		memcpy(file, p, len);
		file[len] = '/';
		memcpy(file + len + (len > 0), s->cmd, n + 1);
		execve(file, argv, envp);
		if (errno == EACCES)
			denied = 1;
		else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG && errno != ELOOP)
			return;
	}
	errno = denied ? EACCES : ENOENT;
}

CHILD static int child_run(void *arg)
{
	struct birth *b = arg;
	const struct spawn *s = b->s;
	enum step at = STEP_NONE;
	sigset_t none;
	int rc = 0;

	child_oom();
	umask(s->umask);
	if (child_session(s) < 0)
		at = STEP_TTY;
	else if (child_fds(s) < 0)
		at = STEP_FDS;
	else if (s->nofile && setrlimit(RLIMIT_NOFILE, s->nofile) < 0)
		at = STEP_LIMITS;
	else if (s->user && (rc = spawn_become(s->user)) < 0)
		at = STEP_USER;
	else if (child_cwd(s) < 0)
		at = STEP_CWD;
	if (at == STEP_NONE) {
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		child_exec(s);
		at = STEP_EXEC;
	}
	b->code = rc < 0 ? -rc : errno;
	b->failed = at;
	_exit(127);
}

static int explain(const struct birth *b, struct err *e)
{
	const struct spawn *s = b->s;

	switch (b->failed) {
	case STEP_CWD:
		if (b->code == ENOENT)
			return err_set(e, ENOENT, "cwd '%.200s' does not exist", s->cwd ? s->cwd : ".");
		return err_set(e, b->code, "cwd '%.200s': %s", s->cwd ? s->cwd : ".", strerror(b->code));
	case STEP_EXEC:
		/* codes of its own: a caller tells the program from the folder, the user and the computer by them */
		if (b->code == ENOENT)
			return err_set(e, ENOPKG, "no program '%.200s'", s->cmd);
		return err_set(e, b->code == EACCES || b->code == EPERM || b->code == ENOTDIR || b->code == ELOOP ? ENOEXEC : b->code,
			"start '%.200s': %s", s->cmd, strerror(b->code));
	case STEP_USER:
		return err_set(e, EACCES, "become user '%s': %s", s->user->name, strerror(b->code));
	case STEP_TTY:
		return err_set(e, b->code, "take the terminal: %s", strerror(b->code));
	default:
		return err_set(e, b->code, "prepare '%.200s': %s", s->cmd, strerror(b->code));
	}
}

int spawn_program(const struct spawn *s, pid_t *ret, struct err *e)
{
	_Alignas(16) char stack[CHILD_STACK];
	struct birth b = { .s = s };
	pid_t pid = clone(child_run, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &b);

	if (pid < 0 && errno == EAGAIN)
		return err_set(e, EAGAIN, "start '%.200s': the limit of processes is reached", s->cmd);
	if (pid < 0)
		return err_sys(e, "start '%.200s'", s->cmd);
	if (b.failed != STEP_NONE) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		return explain(&b, e);
	}
	*ret = pid;
	return 0;
}

int spawn_pty(const struct user *u, unsigned cols, unsigned rows, int *ret_master, int *ret_slave, struct err *e)
{
	struct winsize ws = { .ws_col = (unsigned short)(cols ? cols : 80), .ws_row = (unsigned short)(rows ? rows : 24) };
	AUTO_FD int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	AUTO_FD int slave = -1;
	int off = 0;

	if (master < 0)
		return err_sys(e, "open a terminal");
	if (ioctl(master, TIOCSPTLCK, &off) < 0)
		return err_sys(e, "unlock a terminal");
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return err_sys(e, "open the other side of a terminal");
	ioctl(slave, TIOCSWINSZ, &ws);
	/* an image without the tty group still gets a usable terminal */
	if (!u->single && fchown(slave, u->uid, (gid_t)-1) == 0)
		fchmod(slave, 0620);
	*ret_master = fd_take(&master);
	*ret_slave = fd_take(&slave);
	return 0;
}
