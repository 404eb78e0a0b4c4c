/* net_child -- a computer's network namespace, made by a second process while the first one mounts.
 *
 * The kernel needs as long for an empty network namespace as we need for all mounts together, and neither waits for the other.
 * So the first process forks a helper that makes the namespace and its rules, leaves a descriptor of it in the table of
 * descriptors that both share, and ends; the first process enters the namespace when its root is assembled. The helper is gone,
 * and reaped, long before anything of the computer runs. */
#include "isolate/ns_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The helper's word. */
struct made { struct err e; int ns; bool ipv6; };

static _Noreturn void helper(bool redirect, int out)
{
	struct made m = { .ns = -1 };

	if (unshare(CLONE_NEWNET) < 0)
		err_sys(&m.e, "make a network namespace");
	else if (net_up(&m.e) == 0 && (!redirect || net_redirect(&m.ipv6, &m.e) == 0)) {
		m.ns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		if (m.ns < 0)
			err_sys(&m.e, "open the new network namespace");
	}
	_exit(send(out, &m, sizeof m, MSG_NOSIGNAL) == sizeof m ? 0 : 1);
}

int net_begin(struct child *c, struct err *e)
{
	struct clone_args a = { .flags = CLONE_FILES, .exit_signal = SIGCHLD };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "make a socket pair");
	c->net_helper = (pid_t)syscall(SYS_clone3, &a, sizeof a);
	if (c->net_helper == 0)
		helper(c->s->net, pair[1]);
	if (c->net_helper < 0)
		return err_sys(e, "start the network's helper");
	c->net_word = pair[0];
	c->net_word_out = pair[1];
	return 0;
}

int net_join(struct child *c, struct err *e)
{
	struct made m;
	int r;

	/* its end of the pair is ours too, so its death alone wouldn't end this: then the keeper's deadline for a start does */
	if (recv(c->net_word, &m, sizeof m, 0) != sizeof m)
		return err_set(e, EIO, "the network's helper ended");
	if (m.e.code) {
		*e = m.e;
		return -e->code;
	}
	r = setns(m.ns, CLONE_NEWNET);
	if (r < 0)
		return err_sys(e, "enter the network namespace");
	close(m.ns);
	close(c->net_word);
	close(c->net_word_out);
	return c->s->net ? net_doors(m.ipv6, c->doors, e) : 0;
}

int net_end(struct child *c, struct err *e)
{
	while (waitpid(c->net_helper, NULL, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, "wait for the network's helper");
	return 0;
}
