/* idmap -- user namespaces that exist only as id maps, and the caller's folders seen through them.
 *
 * A folder that a person gives to a computer (bureau run --mount) belongs to somebody outside. Inside, its owner shows as `user`
 * and files that `user` makes there belong to that owner outside; root outside shows as root inside. When the owner is root
 * itself, root inside takes the place of `nobody`: what sudo makes there is nobody's outside, never root's. Other owners show
 * as nobody and can't be written to but by mode bits. */
#include "isolate/ns_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A process that holds a new user namespace open until it's killed. */
pid_t idmap_holder(void)
{
	struct clone_args a = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	pid_t parent = getpid(), pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		/* who made us may have been killed before the line above */
		while (getppid() == parent)
			pause();
		_exit(0);
	}
	return pid;
}

int idmap_userns(const char *uids, const char *gids, struct err *e)
{
	char path[48];
	pid_t pid;
	int fd = -1, r;

	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	pid = idmap_holder();
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (pid < 0)
		return err_sys(e, "make a user namespace");
	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	r = sys_write(AT_FDCWD, path, uids);
	snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
	if (r == 0)
		r = sys_write(AT_FDCWD, path, gids);
	snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
	if (r == 0 && (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		r = -errno;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return r < 0 ? err_set(e, -r, "map ids: %s", strerror(-r)) : fd;
}

static void map_text(char *out, size_t size, unsigned owner, unsigned base)
{
	snprintf(out, size, "%u %u 1\n%u %u 1\n", owner, base + USER_ID, owner ? 0 : 65534, base);
}

int idmap_tree(const struct box_spec *s, const struct box_mount *m, struct err *e)
{
	AUTO_FD int tree = sys_clone_tree(AT_FDCWD, m->source, true), userns = -1;
	unsigned base = 0x10000u * (s->slot + 0x100);
	char uids[64], gids[64];
	struct stat st;
	int r;

	if (tree < 0)
		return err_set(e, -tree, "open '%s': %s", m->source, strerror(-tree));
	if (fstat(tree, &st) < 0)
		return err_sys(e, "look at '%s'", m->source);
	map_text(uids, sizeof uids, st.st_uid, base);
	map_text(gids, sizeof gids, st.st_gid, base);
	userns = idmap_userns(uids, gids, e);
	if (userns < 0)
		return userns;
	r = sys_set_tree(tree, true, m->read_only, userns);
	/* a file system that can't be idmapped (network, FUSE): its owners show as nobody */
	if (r < 0)
		r = sys_set_tree(tree, true, m->read_only, -1);
	return r < 0 ? err_set(e, -r, "prepare '%s': %s", m->source, strerror(-r)) : fd_take(&tree);
}
