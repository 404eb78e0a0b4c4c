/* ns -- the parent's half of the namespaces backend.
 *
 * Theory of operation. start() makes the computer's v2 group and a socket pair, then clone3 with every namespace but the
 * network's: that one is of the stock (stock.c) or the child's own work. The child (ns_child.c) begins with what needs nobody.
 * Meanwhile we write its id maps, make the detached idmapped trees that only real root may make, and send them: GO_IDS. While it
 * mounts we make its v1 groups: GO_GROUPS; it enters them itself, last. The child's answer comes on sync_fd: a report (door
 * sockets with it), then the end of the socket when the exec closed it.
 *
 * We are dumpable only while we clone: a child that isn't has a /proc entry owned by root, where a plain user's keeper couldn't
 * write id maps. Nothing secret is in our memory, and who could use that moment is the same user anyway. */
#include "isolate/ns_priv.h"
#include "core/proc.h"
#include "core/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

void box_init(struct box *b)
{
	*b = (struct box){ .pid = -1, .pidfd = -1, .sync_fd = -1, .doors = { -1, -1, -1, -1 } };
}

int box_kill(const struct box *b)
{
	if (b->pidfd >= 0)
		return proc_pidfd_signal(b->pidfd, SIGKILL);
	return b->pid > 0 && kill(b->pid, SIGKILL) < 0 ? -errno : 0;
}

void box_drop(struct box *b)
{
	fd_drop(&b->pidfd);
	fd_drop(&b->sync_fd);
	for (size_t i = 0; i < BOX_DOORS; i++)
		fd_drop(&b->doors[i]);
}

static int write_proc(pid_t pid, const char *file, const char *text, struct err *e)
{
	char path[48];
	int r;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	r = sys_write(AT_FDCWD, path, text);
	return r < 0 ? err_set(e, -r, "write %s: %s", file, strerror(-r)) : 0;
}

static int write_maps(const struct isolate *h, pid_t pid, uint32_t slot, struct err *e)
{
	char uids[64], gids[64];
	int r;

	if (h->ids == IDS_ONE) {
		snprintf(uids, sizeof uids, "0 %u 1", (unsigned)h->uid);
		snprintf(gids, sizeof gids, "0 %u 1", (unsigned)h->gid);
		/* the kernel's condition for a plain user: groups can't be dropped then, which could give access */
		if ((r = write_proc(pid, "setgroups", "deny", e)) < 0)
			return r;
	} else {
		snprintf(uids, sizeof uids, "0 %u %u", 0x10000u * (slot + 0x100), BOX_IDS);
		str_copy(gids, sizeof gids, uids);
	}
	if (h->ids == IDS_NESTED)
		return write_proc(pid, "uid_map", h->map[0], e) < 0 ? -e->code : write_proc(pid, "gid_map", h->map[1], e);
	if ((r = write_proc(pid, "uid_map", uids, e)) < 0)
		return r;
	return write_proc(pid, "gid_map", gids, e);
}

#ifndef PIDFD_GET_USER_NAMESPACE        /* linux/pidfd.h since 6.11 */
#define PIDFD_GET_USER_NAMESPACE _IO(0xFF, 9)
#endif

/* From the pidfd where the kernel can: to look it up below /proc takes it ten times as long. */
static int open_userns(pid_t pid, int pidfd, struct err *e)
{
	char path[48];
	int fd = ioctl(pidfd, PIDFD_GET_USER_NAMESPACE, 0);

	if (fd >= 0)
		return fd;
	snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "open the new user namespace") : fd;
}

/* Linux 5.15 to 5.18 make an idmapped mount, and then overlayfs refuses it as a layer. */
static bool overlay_takes_idmapped(void)
{
	struct utsname u;
	unsigned major, minor;

	return uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2 || major > 5 || (major == 5 && minor >= 19);
}

int ns_guest_tree(const struct isolate *h, struct err *e)
{
	AUTO_FD int fd = sys_clone_tree(AT_FDCWD, h->guest, false);
	/* read-only, so that root inside can't write through /proc/1/exe (CVE-2019-5736) */
	int r = fd < 0 ? fd : sys_set_tree(fd, false, true, -1);

	return r < 0 ? err_set(e, -r, "open '%s': %s", h->guest, strerror(-r)) : fd_take(&fd);
}

/* Range mode: the trees only we may make, as wait_ids() takes them. Returns how many are in fds; *ret_mapped: the base could be idmapped. */
static int make_trees(struct isolate *h, const struct box_spec *s, int userns, int *fds, bool *ret_mapped, struct err *e)
{
	int n = 0, r;

	fds[n] = s->rootfs_fd < 0 ? sys_clone_tree(AT_FDCWD, "/usr", false) : sys_clone_tree(s->rootfs_fd, "", false);
	if (fds[n] < 0)
		return err_set(e, -fds[n], "open the template's root: %s", strerror(-fds[n]));
	n++;
	r = overlay_takes_idmapped() ? sys_set_tree(fds[0], false, true, userns) : -EINVAL;
	*ret_mapped = r == 0;
	if (r < 0 && (r = sys_set_tree(fds[0], false, true, -1)) < 0) {
		err_set(e, -r, "prepare the template's root: %s", strerror(-r));
		return close(fds[0]), r;
	}
	for (size_t i = 0; i <= s->nmounts; i++) {
		r = fds[n] = i ? idmap_tree(s, &s->mounts[i - 1], e) : ns_guest_tree(h, e);
		if (r < 0) {
			while (n > 0)
				close(fds[--n]);
			return r;
		}
		n++;
	}
	fds[n] = kit_sys(h);
	return fds[n] < 0 ? n : n + 1;
}

static int send_go(int sync, const struct go *go, const int *fds, int n, struct err *e)
{
	union { char mem[CMSG_SPACE(FDS_MAX * sizeof(int))]; struct cmsghdr align; } ctl = { .mem = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)go, sizeof *go };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n > 0) {
		struct cmsghdr *c;

		m.msg_control = &ctl;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
	}
	return sendmsg(sync, &m, MSG_NOSIGNAL) < 0 ? err_sys(e, "talk to the computer's first process") : 0;
}

/* The child's groups, and what the caller keeps of it; then it may run. */
static int let_go(struct isolate *h, const struct box_spec *s, struct box *b, struct err *e)
{
	struct go go = { .kind = GO_GROUPS, .listens = s->listens };
	int fds[FDS_MAX] = { -1 }, n = s->listens, more, r;

	proc_start_time(b->pid, &b->start_time);
	if ((r = groups_make(&h->groups, s->id, &s->limits, &b->groups, &b->unenforced, e)) < 0 || (s->born && (r = s->born(s->ctx, b, &fds[0], e)) < 0))
		return r;
	more = groups_open_v1(&h->groups, s->id, &b->groups, fds + n, e);
	n += more > 0 ? more : 0;
	go.unenforced = b->unenforced;
	r = more < 0 ? more : send_go(b->sync_fd, &go, fds, n, e);
	while (n > 0)
		close(fds[--n]);
	return r;
}

/* Everything the child can't do. */
static int settle(struct isolate *h, const struct box_spec *s, struct box *b, int pidfd, bool in_v2, struct err *e)
{
	AUTO_FD int userns = -1;
	struct go ids = { .kind = GO_IDS };
	int fds[FDS_MAX], n = 0, r;

	if (!in_v2 && (r = groups_enter_v2(&h->groups, s->id, &b->groups, b->pid, e)) < 0)
		return r;
	if ((r = write_maps(h, b->pid, s->slot, e)) < 0)
		return r;
	if (h->ids == IDS_RANGE && ((userns = open_userns(b->pid, pidfd, e)) < 0 || (n = make_trees(h, s, userns, fds, &ids.mapped, e)) < 0))
		return -e->code;
	r = send_go(b->sync_fd, &ids, fds, n, e);
	while (n > 0)
		close(fds[--n]);
	return r < 0 ? r : let_go(h, s, b, e);
}

static int owner_set(uid_t owner)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_setresuid, -1, owner, -1) < 0 || syscall(SYS_capget, &head, d) < 0)
		return -errno;
	/* becoming somebody took them: not for good, and we go on needing them (to clone into a group) */
	d[0].effective = d[0].permitted;
	d[1].effective = d[1].permitted;
	return syscall(SYS_capset, &head, d) < 0 ? -errno : 0;
}

/* Of some things (inotify instances, timers and queued signals, message queues) the kernel also counts how many a user namespace's
 * owner has. Owned by us, one computer could take all that root's programs and every other computer would need; so in range mode
 * each is its own root's. */
static pid_t clone_owned(const struct isolate *h, uint32_t slot, struct clone_args *a)
{
	bool range = h->ids == IDS_RANGE;
	pid_t pid, parent = getppid();
	int r = 0, dies = 0;

	prctl(PR_GET_PDEATHSIG, &dies);
	if (range)
		r = owner_set(0x10000u * (slot + 0x100));
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	pid = r < 0 ? -1 : (pid_t)syscall(SYS_clone3, a, sizeof *a);
	if (pid == 0)
		return 0;
	if (r == 0 && pid < 0)
		r = -errno;
	if (range && syscall(SYS_setresuid, -1, h->uid, -1) < 0)
		_exit(1);       /* can't be; nobody is to be served as half of ourselves */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	/* each change of id cleared it */
	if (range && dies && (prctl(PR_SET_PDEATHSIG, dies, 0, 0, 0) < 0 || getppid() != parent))
		raise(SIGKILL);
	errno = -r;
	return pid;
}

static int clone_child(struct isolate *h, const struct box_spec *s, struct box *b, int *ret_pidfd, int v2, int *sync, struct err *e)
{
	struct clone_args a = {
		.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_PIDFD,
		.exit_signal = SIGCHLD,
		.pidfd = (uint64_t)(uintptr_t)ret_pidfd,
	};
	struct stock_net net;
	bool has_net = stock_take(h, s->net, &net);
	pid_t pid;

	if (v2 >= 0) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)v2;
	}
	pid = clone_owned(h, s->slot, &a);
	if (pid == 0) {
		struct child c = { .h = h, .s = s, .sync = sync[1], .base = -1, .guest = -1, .sys = -1, .listen_fd = -1, .conn_fd = s->conn_fd,
			.has_net = has_net, .top = -1, .doors = { -1, -1, -1, -1 } };

		close(sync[0]);
		child_run(&c);
	}
	if (pid < 0)
		err_sys(e, "make namespaces");
	else
		b->pid = pid;
	if (has_net) {
		memcpy(b->doors, net.doors, sizeof b->doors);
		close(net.ns);
		if (stock_leave(h, e) < 0)
			return -e->code;
	}
	if (pid < 0 && (e->code == EPERM || e->code == ENOSPC || e->code == EACCES))
		err_hint(e, e->code == ENOSPC ? "raise user.max_user_namespaces and the other user.max_*_namespaces (sysctl)" :
			"none in a chroot; else a container's seccomp profile or sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns refuses them");
	return pid < 0 ? -e->code : 0;
}

static int take_report(struct box *b, struct report *rep, struct err *e)
{
	union { char mem[CMSG_SPACE(BOX_DOORS * sizeof(int))]; struct cmsghdr align; } ctl;
	struct iovec iov = { rep, sizeof *rep };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl };
	ssize_t n = recvmsg(b->sync_fd, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *h;
	int fds[BOX_DOORS];
	size_t have = 0, at = 0;

	/* it ended without reading our word: the kernel says that first, then hands out what it had written */
	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(b->sync_fd, &m, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	h = CMSG_FIRSTHDR(&m);
	if (h && h->cmsg_type == SCM_RIGHTS) {
		have = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(h), have * sizeof(int));
	}
	for (size_t i = 0; i < BOX_DOORS && (size_t)n == sizeof *rep; i++)
		if (rep->door[i] && at < have)
			b->doors[i] = fds[at++];
	while (at < have)
		close(fds[at++]);
	return (size_t)n == sizeof *rep ? 1 : -EPROTO;
}

static int ns_finish(struct box *b, struct err *e)
{
	struct report rep;
	int r;

	while ((r = take_report(b, &rep, e)) > 0) {
		rep.msg[sizeof rep.msg - 1] = rep.hint[sizeof rep.hint - 1] = 0;
		if (rep.code) {
			err_set(e, rep.code, "%s", rep.msg);
			return err_hint(e, "%s", rep.hint);
		}
		b->unenforced = rep.unenforced;
		b->ready = true;
	}
	if (r == -EAGAIN)
		return r;
	if (r < 0)
		return err_set(e, -r, "hear from the computer's first process: %s", strerror(-r));
	fd_drop(&b->sync_fd);
	return b->ready ? 0 : err_set(e, ECHILD, "the computer's first process ended while it was set up");
}

/* When the child failed first, our own failure is but the echo of its end. */
static void hear_why(struct box *b, struct err *e)
{
	struct err why = { .code = 0 };

	if (ns_finish(b, &why) < 0 && why.code && why.code != ECHILD)
		*e = why;
}

static int ns_start(struct isolate *h, const struct box_spec *s, struct box *ret, struct err *e)
{
	AUTO_FD int v2 = -1, pidfd = -1;
	int sync[2] = { -1, -1 };
	int r;

	box_init(ret);
	cgroup_host_need(&h->groups, &s->limits);
	r = groups_make_v2(&h->groups, s->id, &s->limits, &ret->groups, &v2, e);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync) < 0) {
		err_sys(e, "make a socket pair");
		goto fail;
	}
	ret->sync_fd = sync[0];
	r = clone_child(h, s, ret, &pidfd, v2, sync, e);
	close(sync[1]);
	if (r < 0)
		goto fail;
	fcntl(ret->sync_fd, F_SETFL, O_NONBLOCK);
	if (settle(h, s, ret, pidfd, v2 >= 0, e) < 0)
		goto fail;
	return 0;
fail:
	if (ret->pid > 0) {
		box_kill(ret);
		waitpid(ret->pid, NULL, 0);   /* it has run nothing but our own few lines: this takes no time */
		ret->pid = -1;
		hear_why(ret, e);
	}
	box_drop(ret);
	groups_remove(&h->groups, s->id, &ret->groups);
	return -e->code;
}

static int ns_limits(struct isolate *h, const char *id, struct box *b, const struct box_limits *l, struct err *e)
{
	struct rlimit files = { l->files, l->files };
	struct err ignored;

	(void)e;
	b->unenforced = 0;
	groups_limit(&h->groups, id, &b->groups, l, &b->unenforced);
	if (inside_resize(h, b, l, &ignored) < 0)
		b->unenforced |= (l->disk ? BL_DISK : 0) | (l->inodes ? BL_INODES : 0);
	/* programs that start from now on */
	if (l->files && prlimit(b->pid, RLIMIT_NOFILE, &files, NULL) < 0)
		b->unenforced |= BL_FILES;
	return 0;
}

static int ns_doors(struct isolate *h, struct box *b, struct err *e)
{
	return inside_doors(h, b, e);
}

const struct backend backend_ns = { "ns", isolate_probe, ns_start, ns_finish, ns_limits, ns_doors, stock_add };
