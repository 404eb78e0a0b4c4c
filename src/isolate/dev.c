/* dev -- /dev, /proc and /sys of a computer. Device nodes are the host's six harmless ones, by bind: a user namespace can't make
 * any. Everything else is links. */
#include "isolate/ns_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
static const struct { const char *path, *target; } links[] = {
	{ "dev/ptmx", "pts/ptmx" }, { "dev/fd", "/proc/self/fd" }, { "dev/stdin", "/proc/self/fd/0" },
	{ "dev/stdout", "/proc/self/fd/1" }, { "dev/stderr", "/proc/self/fd/2" },
};
static const struct { const char *path; mode_t mode; } folders[] = {
	{ "dev", 0755 }, { "dev/pts", 0755 }, { "dev/shm", 01777 }, { "dev/mqueue", 0755 }, { "proc", 0755 }, { "sys", 0755 }, { "tmp", 01777 },
	{ "run", 0755 }, { "run/bureau", 0755 },
};

/* In the layer that a computer writes to, before its root is mounted: plain tmpfs is quicker than a fresh overlay. */
int dev_fill(struct child *c, int dir, struct err *e)
{
	char path[32];

	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		if (mkdirat(dir, folders[i].path, folders[i].mode) < 0 && errno != EEXIST)
			return err_sys(e, "make /%s", folders[i].path);
	for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
		snprintf(path, sizeof path, "dev/%s", nodes[i]);
		if (mknodat(dir, path, S_IFREG | 0666, 0) < 0 && errno != EEXIST)
			return err_sys(e, "make /%s", path);
	}
	for (size_t i = 0; i < sizeof links / sizeof *links; i++)
		if (symlinkat(links[i].target, dir, links[i].path) < 0 && errno != EEXIST)
			return err_sys(e, "make /%s", links[i].path);
	return 0;
}

/* A user namespace keeps the kernel's files out of reach by owner. These are for kernels and containers where it doesn't. */
static const char *const hidden[] = { "root/proc/kcore", "root/proc/keys", "root/proc/sysrq-trigger", "root/proc/timer_list" };

static int proc_mount(struct child *c, struct err *e)
{
	int r;

	/* Before the old root goes: the kernel gives a user namespace a /proc only while it sees a whole one. */
	if (mount("proc", "root/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) {
		err_sys(e, "mount /proc");
		return err_hint(e, "this machine is a container that hides parts of /proc: start it with those shown (systempaths=unconfined)");
	}
	/* low ports for everyone: who is root inside is of no interest outside */
	sys_write(AT_FDCWD, "root/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	r = sys_bind_ro("root/proc/sys", c->top, "root/proc/sys", false);
	if (r < 0)
		return err_set(e, -r, "make /proc/sys read-only: %s", strerror(-r));
	for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
		if (mount("root/dev/null", hidden[i], NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
			return err_sys(e, "hide %s", hidden[i] + 4);
	return 0;
}

static int sys_mount(struct child *c, struct err *e)
{
	const unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (c->sys >= 0 && sys_attach(c->sys, c->top, "root/sys") == 0)
		return 0;
	if (mount("sysfs", "root/sys", "sysfs", flags, NULL) == 0)
		return 0;
	/* in a container that may not: an empty one, rather than the host's */
	if (mount("none", "root/sys", "tmpfs", flags, "size=4k,mode=0755") == 0)
		return 0;
	return err_sys(e, "mount /sys");
}

int dev_mount(struct child *c, struct err *e)
{
	char from[32], to[40];

	for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
		snprintf(from, sizeof from, "/dev/%s", nodes[i]);
		snprintf(to, sizeof to, "root/dev/%s", nodes[i]);
		if (mount(from, to, NULL, MS_BIND, NULL) < 0)
			return err_sys(e, "bind %s", from);
	}
	if (mount("devpts", "root/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		  c->h->ids == IDS_ONE ? "newinstance,ptmxmode=0666,mode=0620" : "newinstance,ptmxmode=0666,mode=0620,gid=5") < 0)
		return err_sys(e, "mount /dev/pts");
	if (mount("mqueue", "root/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 && errno != ENODEV)
		return err_sys(e, "mount /dev/mqueue");
	return proc_mount(c, e) < 0 ? -e->code : sys_mount(c, e);
}
