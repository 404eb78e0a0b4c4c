#include "isolate/ns_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>

int sys_clone_tree(int dirfd, const char *path, bool recursive)
{
	int fd = (int)syscall(SYS_open_tree, dirfd, path,
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (*path ? 0 : AT_EMPTY_PATH) | (recursive ? AT_RECURSIVE : 0));

	return fd < 0 ? -errno : fd;
}

int sys_set_tree(int fd, bool recursive, bool read_only, int userns)
{
	struct mount_attr a = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };

	if (read_only)
		a.attr_set |= MOUNT_ATTR_RDONLY;
	if (userns >= 0) {
		a.attr_set |= MOUNT_ATTR_IDMAP;
		a.userns_fd = (uint64_t)userns;
	}
	return syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0), &a, sizeof a) < 0 ? -errno : 0;
}

int sys_attach(int fd, int dirfd, const char *path)
{
	return syscall(SYS_move_mount, fd, "", dirfd, path, MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH)) < 0 ? -errno : 0;
}

int sys_bind_ro(const char *from, int dirfd, const char *to, bool recursive)
{
	AUTO_FD int fd = sys_clone_tree(AT_FDCWD, from, recursive);
	int r;

	if (fd < 0)
		return fd;
	r = sys_set_tree(fd, recursive, true, -1);
	return r < 0 ? r : sys_attach(fd, dirfd, to);
}

int sys_write(int dirfd, const char *path, const char *text)
{
	AUTO_FD int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}
