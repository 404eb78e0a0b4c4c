#include "core/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "core/str.h"

/* fd_remove_tree() -- theory of operation.
 *
 * What is removed was filled by somebody hostile: links, folders nested a hundred thousand deep, folders without any
 * permission, perhaps a mount we forgot. So: every step is relative to a descriptor of the folder itself and resolves
 * one name without following links (O_NOFOLLOW) or entering another mount (RESOLVE_NO_XDEV, and a mount root is
 * refused at the top): a bind mount left behind is an error, never an emptied host folder. Depth costs a descriptor and
 * a stack frame a level, so below RM_DEPTH a folder isn't entered but moved up to the top, where a later pass finds it. */
enum { RM_DEPTH = 24, RM_PASSES = 1 << 20 };       /* passes: somebody alive could make new files as fast as we remove them */

struct sweep {
	int top;                /* the folder being removed */
	uint64_t moved;         /* folders moved up so far; their names */
	size_t removed;         /* progress of this pass */
	int failed;             /* first failure, -errno */
};

static int open_folder(int dirfd, const char *name)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
		.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH };
	int fd = (int)syscall(SYS_openat2, dirfd, name, &how, sizeof how);

	return fd < 0 ? -errno : fd;
}

/* A folder of ours that its maker shut (mode 000): open it up, through a descriptor of the folder and no name. */
static int unlock_folder(int dirfd, const char *name)
{
	AUTO_FD int fd = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char proc[40];

	if (fd < 0)
		return -errno;
	snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
	return chmod(proc, 0700) < 0 ? -errno : 0;
}

static void note(struct sweep *s, int code)
{
	if (s->failed == 0 && code != -ENOENT)
		s->failed = code;
}

/* Too deep: its folder becomes a child of the top. */
static void move_up(struct sweep *s, int dirfd, const char *name)
{
	char to[40];

	for (int i = 0; i < 16; i++) {
		snprintf(to, sizeof to, ".removing-%llx", (unsigned long long)s->moved++);
		if (renameat2(dirfd, name, s->top, to, RENAME_NOREPLACE) == 0) {
			s->removed++;
			return;
		}
		if (errno != EEXIST)
			break;
	}
	note(s, -errno);
}

static void sweep_folder(struct sweep *s, int fd, int depth);

static void remove_folder(struct sweep *s, int dirfd, const char *name, int depth)
{
	int fd;

	if (depth >= RM_DEPTH) {
		if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
			s->removed++;
		else
			move_up(s, dirfd, name);
		return;
	}
	fd = open_folder(dirfd, name);
	if (fd == -EACCES && unlock_folder(dirfd, name) == 0)
		fd = open_folder(dirfd, name);
	if (fd < 0) {
		note(s, fd);
		return;
	}
	sweep_folder(s, fd, depth + 1);
	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
		s->removed++;
	else
		note(s, -errno);
}

static void remove_entry(struct sweep *s, int dirfd, const struct dirent *d, int depth)
{
	if (d->d_type != DT_DIR) {
		if (unlinkat(dirfd, d->d_name, 0) == 0) {
			s->removed++;
			return;
		}
		if (errno != EISDIR && (errno != EPERM || d->d_type != DT_UNKNOWN)) {
			note(s, -errno);
			return;
		}
	}
	remove_folder(s, dirfd, d->d_name, depth);
}

/* Everything in the folder fd; takes fd over. */
static void sweep_folder(struct sweep *s, int fd, int depth)
{
	DIR *dir = fdopendir(fd);
	struct stat st;

	if (!dir) {
		note(s, -errno);
		close(fd);
		return;
	}
	/* a folder we can read but not change is opened up too (a plain user meets these; root passes anyway) */
	if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		(void)!fchmod(fd, 0700);
	for (struct dirent *d; (d = readdir(dir));)
		if (!str_eq(d->d_name, ".") && !str_eq(d->d_name, ".."))
			remove_entry(s, fd, d, depth);
	closedir(dir);
}

/* Passes over the top until one finds nothing to do: folders move up during a pass, and a listing may miss names. */
static int sweep_top(int top)
{
	struct sweep s = { .top = top };
	int passes = 0;

	do {
		int fd = open_folder(top, ".");

		s.removed = 0;
		s.failed = 0;
		if (fd < 0)
			return fd;
		sweep_folder(&s, fd, 0);
	} while (s.removed && ++passes < RM_PASSES);
	return s.failed;
}

static int is_mount(int fd)
{
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &sx) < 0)
		return -errno;
	return !!(sx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

int fd_remove_tree(int dirfd, const char *name, struct err *e)
{
	AUTO_FD int top = -1;
	int r;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return err_sys(e, "remove '%s'", name);
	for (int tries = 0; tries < 2 && top < 0; tries++) {
		top = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (top < 0 && (tries > 0 || errno != EACCES || unlock_folder(dirfd, name) < 0))
			return err_sys(e, "remove '%s'", name);
	}
	r = is_mount(top);
	if (r > 0)
		return err_set(e, EBUSY, "remove '%s': a filesystem is mounted there", name);
	if (r == 0)
		r = sweep_top(top);
	if (r == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	if (r < 0) {
		errno = -r;
		return err_sys(e, "remove '%s'", name);
	}
	return 0;
}
