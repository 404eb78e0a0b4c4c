/* probe -- what this machine can do, tried rather than guessed, and in words what it can't. */
#include "isolate/ns_priv.h"
#include "core/buf.h"
#include "core/str.h"

#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define TRY_MS 3000

struct tried { int spaces_errno, net_errno; bool ipv6; };

static void try_inside(int fd)
{
	struct tried t = { 0 };
	struct err e = { .code = 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (net_up(&e) < 0 || net_redirect(&t.ipv6, &e) < 0)
		t.net_errno = e.code;
	_exit(write(fd, &t, sizeof t) == sizeof t ? 0 : 1);
}

/* Namespaces, and the redirect in one of them: a child makes both for itself. */
static void try_namespaces(struct tried *ret)
{
	struct clone_args a = { .flags = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID, .exit_signal = SIGCHLD };
	struct pollfd p;
	int pair[2];
	pid_t pid;

	*ret = (struct tried){ .spaces_errno = EIO, .net_errno = EIO };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);
	if (pid == 0)
		try_inside(pair[1]);
	if (pid < 0)
		ret->spaces_errno = errno;
	close(pair[1]);
	p = (struct pollfd){ pair[0], POLLIN, 0 };
	if (pid > 0) {
		if (poll(&p, 1, TRY_MS) <= 0 || read(pair[0], ret, sizeof *ret) != sizeof *ret)
			kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	close(pair[0]);
}

static const struct { uint32_t bit; const char *text; } wanted[] = {
	{ BOX_MEMORY, "memory limits" }, { BOX_CPU, "cpu limits" }, { BOX_FREEZE, "pause" },
};

static void say_missing(const struct isolate *h, const struct tried *t, struct buf *b)
{
	const char *between = "";

	if (t->spaces_errno)
		buf_printf(b, "user namespaces: %s (none in a chroot; sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces); ",
			strerror(t->spaces_errno));
	else if (t->net_errno)
		buf_printf(b, "network through the door: %s (kernel modules nf_tables, nft_nat, nft_redir, nft_reject); ", strerror(t->net_errno));
	if (h->ids == IDS_ONE)
		buf_adds(b, "more than one id: needs uidmap and a range in /etc/subuid and /etc/subgid; ");
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		if (h->features & wanted[i].bit)
			continue;
		buf_printf(b, "%s%s", between, wanted[i].text);
		between = ", ";
	}
	if (*between)
		buf_printf(b, ": %s; ", h->ids == IDS_RANGE ? "no such control group" : "a plain user's group must be delegated (systemd: Delegate=yes)");
}

int isolate_probe(struct isolate *h, uint32_t *ret_features, char *missing, size_t size)
{
	AUTO_BUF struct buf b = BUF_INIT(4096);
	struct tried t = { .ipv6 = h->ipv6 };

	/* for `bureau run` a computer is about to be tried anyway */
	if (!h->once)
		try_namespaces(&t);
	h->ipv6 = h->ipv6 && (t.ipv6 || t.net_errno);
	if (!t.spaces_errno && !t.net_errno)
		h->features |= BOX_NET;
	if (!h->ipv6)
		h->features &= ~(uint32_t)BOX_IPV6;
	*ret_features = h->features;
	if (!h->once)
		say_missing(h, &t, &b);
	if (b.len >= 2 && buf_ok(&b))
		b.len -= 2;
	if (b.len)
		b.data[b.off + b.len] = 0;
	if (str_copy(missing, size, buf_at(&b)) < 0 && size > 4)
		memcpy(missing + size - 4, "...", 4);
	return 0;
}
