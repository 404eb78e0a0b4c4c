#include "core/proc.h"
#include "core/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* proc_spawn() -- theory of operation.
 *
 * The child is made with CLONE_VM|CLONE_VFORK: no page table is copied, so starting a program costs the same from a
 * large daemon as from a small one, and this process stands still until the child has called exec or died. Until then
 * the two share memory, and that makes the rules for everything named child_*: no malloc, no stdio, no lock; nothing of
 * the parent is written but the `failed` and `code` fields below (which is also how a failure comes back: no pipe); and no
 * libc wrapper that keeps state (setuid and friends: libc tells its other threads, so the system call is made directly).
 * Signals stay blocked until just before exec: a handler of the parent must not run in the child. Descriptors aren't
 * shared (no CLONE_FILES), so the child may close and move them. The child's frames lie on a piece of the parent's
 * stack and are left without returning, which AddressSanitizer would later take for the parent's: it keeps out. */
#define CHILD __attribute__((no_sanitize("address", "undefined")))
enum { SPAWN_FDS = 64, SPAWN_STACK = 32 << 10 };

enum step { STEP_NONE, STEP_SESSION, STEP_FDS, STEP_CWD, STEP_IDS, STEP_DEATH, STEP_EXEC };
static const char *const step_names[] = {
	[STEP_NONE] = "start", [STEP_SESSION] = "setsid", [STEP_FDS] = "pass descriptors", [STEP_CWD] = "enter its folder",
	[STEP_IDS] = "change user", [STEP_DEATH] = "tie it to its parent", [STEP_EXEC] = "exec",
};

struct birth {
	const struct proc_spec *spec;
	pid_t parent;
	volatile enum step failed;
	volatile int code;
};

/* fds[i] to i. First all out of the way of the low numbers, so that no move can overwrite one still to be moved. */
CHILD static int child_fds(const struct proc_spec *s)
{
	int high[SPAWN_FDS];
	int n = (int)s->nfds;

	for (int i = 0; i < n; i++) {
		high[i] = s->fds[i];
		if (high[i] < 0)
			high[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (high[i] >= 0 && high[i] < n)
			high[i] = fcntl(high[i], F_DUPFD_CLOEXEC, n);
		if (high[i] < 0)
			return -1;
	}
	for (int i = 0; i < n; i++)
		if (dup2(high[i], i) < 0)
			return -1;
	return (int)syscall(SYS_close_range, (unsigned)n, ~0u, 0);
}

CHILD static int child_ids(const struct proc_spec *s)
{
	/* without the right to change groups (a user namespace may deny it) it is enough to have none */
	if (syscall(SYS_setgroups, 0, NULL) < 0 && (errno != EPERM || syscall(SYS_getgroups, 0, NULL) != 0))
		return -1;
	if (syscall(SYS_setresgid, s->gid, s->gid, s->gid) < 0)
		return -1;
	return (int)syscall(SYS_setresuid, s->uid, s->uid, s->uid);
}

CHILD static int child_death(const struct birth *b)
{
	if (prctl(PR_SET_PDEATHSIG, b->spec->death_signal, 0, 0, 0) < 0)
		return -1;
	/* the parent may have died before the line above */
	if (getppid() != b->parent) {
		errno = ESRCH;
		return -1;
	}
	return 0;
}

/* By system call, since libc won't touch its own two signals, which its posix_spawn() leaves ignored in us and so in all below us. */
CHILD void proc_signals_default(void)
{
	static const struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } def;

	for (int i = 1; i < NSIG; i++)
		if (i != SIGKILL && i != SIGSTOP)
			syscall(SYS_rt_sigaction, i, &def, NULL, sizeof def.mask);
}

/* Ignored signals stay ignored over exec and handlers would run in shared memory: both back to the default. */
CHILD static void child_signals(void)
{
	sigset_t none;

	proc_signals_default();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

CHILD static int child_run(void *arg)
{
	static const char *const no_env[] = { NULL };
	struct birth *b = arg;
	const struct proc_spec *s = b->spec;
	enum step at = STEP_NONE;

	child_signals();
	if (s->new_session && setsid() < 0)
		at = STEP_SESSION;
	else if (child_fds(s) < 0)
		at = STEP_FDS;
	else if (s->cwd && chdir(s->cwd) < 0)
		at = STEP_CWD;
	else if (s->set_ids && child_ids(s) < 0)
		at = STEP_IDS;
	else if (s->death_signal && child_death(b) < 0)
		at = STEP_DEATH;
	if (at == STEP_NONE) {
		execve(s->path, (char *const *)(uintptr_t)s->argv, (char *const *)(uintptr_t)(s->envp ? s->envp : no_env));
		at = STEP_EXEC;
	}
	b->code = errno;
	b->failed = at;
	_exit(127);
}

int proc_spawn(const struct proc_spec *s, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	_Alignas(16) char stack[SPAWN_STACK];
	struct birth b = { .spec = s, .parent = getpid() };
	sigset_t all, before;
	int pidfd = -1, code;
	pid_t pid;

	if (s->nfds > SPAWN_FDS)
		return err_set(e, EINVAL, "start '%s': %zu descriptors are too many", s->path, s->nfds);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid = clone(child_run, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &b, &pidfd);
	code = errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0) {
		errno = code;
		return err_sys(e, "start '%s'", s->path);
	}
	if (b.failed != STEP_NONE) {
		close(pidfd);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		errno = b.code;
		return err_sys(e, "start '%s': %s", s->path, step_names[b.failed]);
	}
	if (ret_pid)
		*ret_pid = pid;
	if (ret_pidfd)
		*ret_pidfd = pidfd;
	else
		close(pidfd);
	return 0;
}
