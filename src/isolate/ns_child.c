/* ns_child -- from clone3 to the guest's first instruction, in the computer's own namespaces.
 *
 * Order matters: what needs our own id outside (opening the caller's folders) comes first; then the parent's word that ids are
 * mapped and its descriptors; then mounts and network, with all capabilities of the new user namespace; then the groups, made by
 * the parent in the meantime; then everything is given up, most powerful first; the filter last. The exec closes the sync
 * socket: that is how the parent knows. */
#include "isolate/ns_priv.h"
#define WANT_seccomp_computer
#include "core/filters.h"
#include "core/proc.h"
#include "core/sanitize.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define FD_HIGH 64      /* above what the guest gets */

int child_report(struct child *c, const struct err *e)
{
	struct report rep = { .code = e->code, .unenforced = c->unenforced };
	union { char mem[CMSG_SPACE(BOX_DOORS * sizeof(int))]; struct cmsghdr align; } ctl = { .mem = { 0 } };
	struct iovec iov = { &rep, sizeof rep };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl };
	int fds[BOX_DOORS];
	size_t n = 0;

	memcpy(rep.msg, e->msg, sizeof rep.msg);
	memcpy(rep.hint, e->hint, sizeof rep.hint);
	for (size_t i = 0; i < BOX_DOORS && !e->code; i++)
		if (c->doors[i] >= 0) {
			rep.door[i] = 1;
			fds[n++] = c->doors[i];
		}
	if (n) {
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);

		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(h), fds, n * sizeof(int));
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
	} else {
		m.msg_control = NULL;
		m.msg_controllen = 0;
	}
	return sendmsg(c->sync, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Detached trees from outside, made here when we may (a plain user), else by the parent. The path is looked up once. */
static int open_sources(struct child *c, struct err *e)
{
	char link[32], path[PATH_MAX];
	ssize_t n;
	int r;

	if ((r = c->guest = ns_guest_tree(c->h, e)) < 0)
		return r;
	if (c->s->rootfs_fd >= 0) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", c->s->rootfs_fd);
		n = readlink(link, path, sizeof path - 1);
		if (n < 0)
			return err_sys(e, "find the template");
		path[n] = 0;
	} else {
		memcpy(path, "/usr", 5);
	}
	r = c->base = sys_clone_tree(AT_FDCWD, path, false);
	/* something is mounted below it: what that covers may not be uncovered here, so it comes along */
	if (r == -EINVAL)
		r = c->base = sys_clone_tree(AT_FDCWD, path, true);
	if (r < 0 || (r = sys_set_tree(c->base, true, true, -1)) < 0)
		return err_set(e, -r, "open '%s': %s", path, strerror(-r));
	for (size_t i = 0; i < c->s->nmounts; i++) {
		const struct box_mount *m = &c->s->mounts[i];

		r = c->mounts[i] = sys_clone_tree(AT_FDCWD, m->source, true);
		if (r < 0 || (r = sys_set_tree(r, true, m->read_only, -1)) < 0)
			return err_set(e, -r, "open '%s': %s", m->source, strerror(-r));
	}
	return 0;
}

/* Takes the parent's next word and the descriptors with it: how many, or < 0. The parent's own are copied with us: where its table
 * is nearly full, these may not fit any more. */
static int hear_go(struct child *c, enum go_kind want, struct go *ret, int fds[FDS_MAX], struct err *e)
{
	union { char mem[CMSG_SPACE(FDS_MAX * sizeof(int))]; struct cmsghdr align; } ctl;
	struct iovec iov = { ret, sizeof *ret };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl };
	struct cmsghdr *h;
	size_t n;

	if (recvmsg(c->sync, &m, MSG_CMSG_CLOEXEC) != sizeof *ret || ret->kind != want)
		return err_set(e, ECANCELED, "the keeper ended");
	if (m.msg_flags & MSG_CTRUNC)
		return err_set(e, EMFILE, "no descriptors left for the computer's first process");
	h = CMSG_FIRSTHDR(&m);
	if (!h || h->cmsg_type != SCM_RIGHTS)
		return 0;
	n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(h), n * sizeof(int));
	return (int)n;
}

/* Ids are mapped. In range mode the detached trees come along: the base, the guest's program, the mounts, /sys. */
static int wait_ids(struct child *c, struct err *e)
{
	int fds[FDS_MAX], n;
	struct go go;

	n = hear_go(c, GO_IDS, &go, fds, e);
	if (n <= 0)
		return n;
	c->base_mapped = go.mapped;
	c->base = fds[0];
	c->guest = fds[1];
	for (size_t i = 0; i < c->s->nmounts; i++)
		c->mounts[i] = fds[2 + i];
	if ((size_t)n > 2 + c->s->nmounts)
		c->sys = fds[n - 1];
	return 0;
}

/* The v1 groups are there. Their `tasks` were opened by the parent: we are nobody out there by now. We enter by ourselves, since
 * moving another takes a lock for which the kernel first waits until no processor is in a fork or exit: up to milliseconds, and
 * everybody else's forks wait too. */
static int wait_groups(struct child *c, struct err *e)
{
	int fds[FDS_MAX], n;
	struct go go;

	n = hear_go(c, GO_GROUPS, &go, fds, e);
	if (n < 0)
		return n;
	c->unenforced |= go.unenforced;
	if (go.listens)
		c->listen_fd = fds[0];
	for (int i = go.listens; i < n; i++) {
		if (write(fds[i], "0", 1) != 1)
			return err_sys(e, "enter the control groups");
		close(fds[i]);
	}
	return 0;
}

static int become_root(struct child *c, struct err *e)
{
	if (c->h->ids != IDS_ONE && setgroups(0, NULL) < 0)
		return err_sys(e, "drop groups");
	if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		return err_sys(e, "become root inside");
	/* after the change of id, which clears it; the parent's end of the socket tells if it died before */
	if (c->s->die_with_us && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_sys(e, "ask to end with the keeper");
	return 0;
}

static void set_limit(int what, rlim_t soft, rlim_t hard)
{
	struct rlimit now, want;

	if (prlimit(0, what, NULL, &now) < 0)
		return;
	want.rlim_max = hard < now.rlim_max ? hard : now.rlim_max;
	want.rlim_cur = soft < want.rlim_max ? soft : want.rlim_max;
	prlimit(0, what, &want, NULL);
}

static void limits_set(struct child *c)
{
	const struct box_limits *l = &c->s->limits;

	set_limit(RLIMIT_CORE, 0, 0);
	set_limit(RLIMIT_MEMLOCK, 8 << 20, 8 << 20);
	set_limit(RLIMIT_MSGQUEUE, 819200, 819200);
	if (l->pids && c->unenforced & BL_PIDS) {
		/* no group counts for us: the kernel counts each id inside by itself */
		set_limit(RLIMIT_NPROC, l->pids, l->pids);
		c->unenforced &= ~(uint32_t)BL_PIDS;
	}
}

/* With no run folder, the guest listens where nobody can connect: a name in the file system that is about to vanish. */
int listen_hidden(struct child *c, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "guest" };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1) < 0)
		return err_sys(e, "make the guest's socket");
	unlink("guest");
	c->listen_fd = fd;
	return 0;
}

static int to_high(int fd)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, FD_HIGH);

	return r < 0 ? -errno : r;
}

/* 0-2 /dev/null (2 a file of reports in a sanitized build), 3 the listening socket, 4 the first connection, and our own two high and closed by exec. */
static int arrange_fds(struct child *c, struct err *e)
{
	int guest = to_high(c->guest), sync = to_high(c->sync), l = to_high(c->listen_fd), conn = c->conn_fd < 0 ? -1 : to_high(c->conn_fd);
	int null, report = c->report_fd < 0 ? -1 : to_high(c->report_fd);

	if (guest < 0 || sync < 0 || l < 0 || (c->conn_fd >= 0 && conn < 0))
		return err_set(e, EMFILE, "arrange descriptors");
	c->guest = guest;
	c->sync = sync;
	close_range(0, FD_HIGH - 1, 0);
	null = open("/dev/null", O_RDWR);
	if (null != 0 || dup(0) != 1 || dup(report < 0 ? 0 : report) != 2 || dup2(l, 3) != 3 || (conn >= 0 && dup2(conn, 4) != 4))
		return err_sys(e, "arrange descriptors");
	close_range(5, ~0u, CLOSE_RANGE_CLOEXEC);
	return 0;
}

/* After our own descriptors are in their high places, which a low limit wouldn't let them have. */
static void limit_files(const struct child *c)
{
	uint64_t n = c->s->limits.files;

	set_limit(RLIMIT_NOFILE, n ? n : 1024, n ? n : 1048576);
}

/* Here rather than by the clone, because it takes as long as everything that the parent does meanwhile. */
static int make_net(struct child *c, struct err *e)
{
	bool ipv6;
	int r;

	if (c->has_net)
		return 0;
	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(e, "make a network namespace");
	r = net_up(e);
	if (r < 0 || !c->s->net)
		return r;
	if ((r = net_redirect(&ipv6, e)) < 0)
		return r;
	return net_doors(ipv6, c->doors, e);
}

/* All of it that is about files and network. */
static int furnish(struct child *c, struct err *e)
{
	int r;

	if ((r = make_net(c, e)) < 0 || (c->h->ids != IDS_RANGE && (r = open_sources(c, e)) < 0))
		return r;
	if ((r = wait_ids(c, e)) < 0 || (r = become_root(c, e)) < 0)
		return r;
	if (c->h->ids == IDS_ONE)
		share_inside(c->h);
	umask(0);
	if ((r = root_build(c, e)) < 0)
		return r;
	umask(022);
	return 0;
}

static int set_up(struct child *c, struct err *e)
{
	int r = furnish(c, e);

	if (r < 0)
		return r;
	if (sethostname(c->s->hostname, strlen(c->s->hostname)) < 0)
		return err_sys(e, "set the host name");
	/* a terminal of ours must not become the computer's. A session costs an autogroup, which costs up to a millisecond */
	if (!c->h->own_session && setsid() < 0 && errno != EPERM)
		return err_sys(e, "start a session");
	r = wait_groups(c, e);
	if (r < 0)
		return r;
	limits_set(c);
	return caps_drop(e);
}

/* Ubuntu's way: a plain user gets a user namespace and no rights in it. */
static void hint_apparmor(struct child *c, struct err *e)
{
	char text[8];

	if (c->h->ids != IDS_RANGE && !*e->hint && fd_read_text(AT_FDCWD, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", text, sizeof text) > 0 && *text == '1')
		err_hint(e, "AppArmor takes a plain user's rights in user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile that allows bureau-keeper userns");
}

_Noreturn void child_run(struct child *c)
{
	static char *const argv[] = { (char *)"bureau-guest", NULL }, *const envp[] = { NULL };
	struct err e = { .code = 0 };
	sigset_t none;

	sigemptyset(&none);
	proc_signals_default();
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, "bureau-start", 0, 0, 0);
	c->report_fd = sanitize_report_fd();
	if (set_up(c, &e) == 0 && child_report(c, &e) == 0 && arrange_fds(c, &e) == 0 && (limit_files(c), true) &&
	    proc_seccomp(seccomp_computer, sizeof seccomp_computer / sizeof *seccomp_computer, &e) == 0) {
		syscall(SYS_execveat, c->guest, "", argv, envp, AT_EMPTY_PATH);
		err_sys(&e, "start bureau-guest");
	}
	if (e.code == EPERM || e.code == EACCES)
		hint_apparmor(c, &e);
	if (e.code)
		child_report(c, &e);
	_exit(1);
}
