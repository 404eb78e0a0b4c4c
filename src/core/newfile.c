#include "core/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/fd.h"
#include "core/str.h"

static void make_temp(struct newfile *f)
{
	unsigned char dice[6];

	str_random(dice, sizeof dice);
	snprintf(f->temp, sizeof f->temp, ".%.8s.%02x%02x%02x%02x%02x%02x", f->name, dice[0], dice[1], dice[2], dice[3], dice[4], dice[5]);
}

static void self_path(const struct newfile *f, char out[40])
{
	snprintf(out, 40, "/proc/self/fd/%d", f->fd);
}

static int open_file(struct newfile *f, mode_t mode)
{
	char self[40];

	f->fd = openat(f->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
	if (f->fd >= 0) {
		self_path(f, self);
		if (access(self, F_OK) == 0)
			return 0;
		fd_drop(&f->fd);        /* no /proc: it could never get a name */
	}
	for (int i = 0; i < 100; i++) {
		make_temp(f);
		f->fd = openat(f->dir, f->temp, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, mode);
		if (f->fd >= 0 || errno != EEXIST)
			break;
	}
	if (f->fd < 0)
		f->temp[0] = '\0';
	return f->fd < 0 ? -errno : 0;
}

/* Of the file that will be replaced. */
static void inherit(const struct newfile *f, const struct stat *old)
{
	struct stat st;
	mode_t mode = old->st_mode & 07777;

	if (fstat(f->fd, &st) == 0 && (st.st_uid != old->st_uid || st.st_gid != old->st_gid) && fchown(f->fd, old->st_uid, old->st_gid) < 0)
		mode &= 0777;           /* set-id bits are of its owner */
	if (fchmod(f->fd, mode) < 0)
		return;                 /* a file system without modes */
}

int newfile_begin(struct newfile *f, int dirfd, const char *name, mode_t mode, struct err *e)
{
	struct stat old;
	bool there;

	*f = (struct newfile)NEWFILE_INIT;
	if (!*name || strchr(name, '/') || str_eq(name, ".") || str_eq(name, "..") || str_copy(f->name, sizeof f->name, name) < 0)
		return err_set(e, EINVAL, "'%.200s' can't be a file's name", name);
	there = fstatat(dirfd, name, &old, AT_SYMLINK_NOFOLLOW) == 0;
	if (there && !S_ISREG(old.st_mode))
		return err_set(e, EEXIST, "write '%.200s': something that isn't a regular file is there", name);
	if (there && faccessat(dirfd, name, W_OK, AT_EACCESS) < 0)
		return err_sys(e, "write '%.200s'", name);
	f->dir = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->dir < 0)
		return err_sys(e, "write '%.200s'", name);
	if (open_file(f, mode) < 0) {
		err_sys(e, "write '%.200s'", name);
		newfile_drop(f);
		return -e->code;
	}
	if (there)
		inherit(f, &old);
	return 0;
}

void newfile_drop(struct newfile *f)
{
	if (f->dir >= 0 && f->temp[0])
		unlinkat(f->dir, f->temp, 0);
	f->temp[0] = '\0';
	fd_drop(&f->fd);
	fd_drop(&f->dir);
}

/* Its name, or a name beside the one that is to be replaced. */
static int give_name(struct newfile *f)
{
	char self[40];

	self_path(f, self);
	if (linkat(AT_FDCWD, self, f->dir, f->name, AT_SYMLINK_FOLLOW) == 0)
		return 1;
	for (int i = 0; i < 100 && errno == EEXIST; i++) {
		make_temp(f);
		if (linkat(AT_FDCWD, self, f->dir, f->temp, AT_SYMLINK_FOLLOW) == 0)
			return 0;
	}
	f->temp[0] = '\0';
	return -errno;
}

int newfile_commit(struct newfile *f, struct err *e)
{
	int r = f->temp[0] ? 0 : give_name(f);

	if (r == 0 && renameat(f->dir, f->temp, f->dir, f->name) == 0) {
		f->temp[0] = '\0';
		r = 1;
	} else if (r == 0) {
		r = -errno;
	}
	if (r < 0) {
		errno = -r;
		r = err_sys(e, "write '%.200s'", f->name);
	}
	newfile_drop(f);
	return r < 0 ? r : 0;
}
