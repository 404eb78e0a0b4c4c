/* inside -- small errands in a computer that runs: door sockets once more, another size of its file system.
 *
 * A child of ours enters the computer's namespaces (a plain user may do that only all at once), does the errand with system calls
 * alone, runs nothing of the computer's, and answers on a socket. It isn't in the computer's process namespace, so nothing
 * inside can see or touch it. We wait for it, a millisecond as a rule and two seconds at most. */
#include "isolate/ns_priv.h"
#include "core/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define ERRAND_MS 2000

struct errand { int spaces; int (*run)(struct child *c, struct err *e); };

static _Noreturn void errand_child(const struct errand *a, struct child *c, int pidfd)
{
	struct err e = { .code = 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (setns(pidfd, a->spaces) < 0)
		err_sys(&e, "enter the computer");
	else
		a->run(c, &e);
	child_report(c, &e);
	_exit(0);
}

static int errand(const struct errand *a, struct child *c, struct box *b, struct err *e)
{
	struct clone_args ca = { .exit_signal = SIGCHLD };
	AUTO_FD int opened = b->pidfd < 0 ? proc_pidfd_open(b->pid) : -1;
	int pair[2], r;
	struct box answer = *b;
	struct pollfd p;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "make a socket pair");
	pid = (pid_t)syscall(SYS_clone3, &ca, sizeof ca);
	if (pid == 0) {
		close(pair[0]);
		c->sync = pair[1];
		errand_child(a, c, b->pidfd < 0 ? opened : b->pidfd);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_sys(e, "start an errand");
	}
	p = (struct pollfd){ pair[0], POLLIN, 0 };
	if (poll(&p, 1, ERRAND_MS) <= 0)
		kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	answer.sync_fd = pair[0];
	answer.ready = false;
	r = backend_ns.finish(&answer, e);
	fd_drop(&answer.sync_fd);
	memcpy(b->doors, answer.doors, sizeof b->doors);
	return r;
}

static int open_doors(struct child *c, struct err *e)
{
	int r = net_doors(c->h->ipv6, c->doors, e);

	return r == -EADDRINUSE ? err_set(e, EBUSY, "the door's sockets are still open") : r;
}

int inside_doors(const struct isolate *h, struct box *b, struct err *e)
{
	static const struct errand a = { CLONE_NEWUSER | CLONE_NEWNET, open_doors };
	struct child c = { .h = h, .doors = { -1, -1, -1, -1 } };

	return errand(&a, &c, b, e);
}

/* The tmpfs that holds everything is / of a `host` computer, and shows as /dev/shm in the others. */
static int resize(struct child *c, struct err *e)
{
	const struct box_limits *l = &c->s->limits;
	struct statfs fs;
	char options[96];
	const char *at = statfs("/", &fs) == 0 && fs.f_type == TMPFS_MAGIC ? "/" : "/dev/shm";

	/* without a limit it is what the kernel gives a new one */
	if (l->disk)
		snprintf(options, sizeof options, "size=%llu", (unsigned long long)l->disk);
	else
		snprintf(options, sizeof options, "size=50%%");
	if (l->inodes)
		snprintf(options + strlen(options), sizeof options - strlen(options), ",nr_inodes=%llu", (unsigned long long)l->inodes);
	return mount("none", at, NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, options) < 0 ? err_sys(e, "resize the computer's file system") : 0;
}

int inside_resize(const struct isolate *h, struct box *b, const struct box_limits *l, struct err *e)
{
	static const struct errand a = { CLONE_NEWUSER | CLONE_NEWNS, resize };
	struct box_spec s = { .limits = *l };
	struct child c = { .h = h, .s = &s, .doors = { -1, -1, -1, -1 } };

	return errand(&a, &c, b, e);
}
