#include "guest/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"
#include "guest/path.h"

#define XATTRS 64
#define ROOM_MIN (64 << 10)     /* room for less isn't worth a child */

/* The path and user that most requests begin with. */
struct target {
	struct user user;
	char path[GUEST_PATH + 1];
};

static int find_target(struct conn *c, const char *path, const char *user, struct target *t, struct err *e)
{
	int rc = users_find(&c->g->users, user, &t->user, e);

	return rc < 0 ? rc : path_resolve(path, t->user.home, t->path, sizeof t->path, e);
}

/* What most requests begin with: they are whole, and their target is found. False: that was answered. */
static bool begin(struct conn *c, struct msg_reader *r, const char *path, const char *user, struct target *t)
{
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return false;           /* the link ends this peer */
	if (find_target(c, path, user, t, &e) == 0)
		return true;
	conn_err(c, r->id, &e);
	return false;
}

/* G_OK with the entry, a descriptor or two more; or the fault. */
static void answer_entry(struct conn *c, uint32_t id, const struct target *t, uint8_t kind, int fd)
{
	struct msg_writer w;
	struct err e;
	int rc;

	conn_begin(&w, G_OK, id);
	act_begin(&t->user);
	rc = entry_put(&c->g->users, &w, t->path, &e);
	act_end(&t->user);
	if (rc < 0) {
		conn_err(c, id, &e);
		return;
	}
	if (kind)
		msg_put_u8(&w, kind);
	if (fd >= 0)
		msg_put_fd(&w, fd);
	conn_send(c, &w);
}

void file_stat(struct conn *c, struct msg_reader *r)
{
	const char *path = msg_get_str(r, GUEST_PATH), *user = msg_get_str(r, 63);
	struct target t;

	if (begin(c, r, path, user, &t))
		answer_entry(c, r->id, &t, 0, -1);
}

static int is_folder(const char *path, struct err *e)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		if (errno == ENOENT)
			return err_set(e, ENOENT, "path '%.250s' does not exist", path);
		return err_sys(e, "stat '%s'", path);
	}
	return S_ISDIR(st.st_mode) ? 0 : err_set(e, ENOTDIR, "path '%.250s' is not a directory", path);
}

void file_dir(struct conn *c, struct msg_reader *r)
{
	const char *path = msg_get_str(r, GUEST_PATH), *user = msg_get_str(r, 63);
	uint32_t depth = msg_get_u32(r);
	struct target t;
	struct err e;
	int rc = 0;

	if (!begin(c, r, path, user, &t))
		return;
	if (depth == 0)
		rc = err_set(&e, EINVAL, "depth 0");
	if (rc == 0) {
		act_begin(&t.user);
		rc = is_folder(t.path, &e);
		act_end(&t.user);
	}
	if (rc == 0) {
		struct tree_dir d = { &c->g->users, t.path, depth };
		struct helper_job j = { .run = tree_dir, .ctx = &d, .user = act_user(&t.user) };

		rc = helper_start(c, r->id, &j, &e);
	}
	if (rc < 0)
		conn_err(c, r->id, &e);
}

void file_mkdir(struct conn *c, struct msg_reader *r)
{
	const char *path = msg_get_str(r, GUEST_PATH), *user = msg_get_str(r, 63);
	struct target t;
	struct stat st;
	struct err e;
	int rc;

	if (!begin(c, r, path, user, &t))
		return;
	act_begin(&t.user);
	if (stat(t.path, &st) == 0)
		rc = S_ISDIR(st.st_mode) ? err_set(&e, EEXIST, "directory '%.250s' already exists", t.path) :
			err_set(&e, ENOTDIR, "path '%.250s' is not a directory", t.path);
	else
		rc = act_mkdirs(t.path, true, &t.user, &e);
	act_end(&t.user);
	if (rc < 0)
		conn_err(c, r->id, &e);
	else
		answer_entry(c, r->id, &t, 0, -1);
}

void file_move(struct conn *c, struct msg_reader *r)
{
	const char *from = msg_get_str(r, GUEST_PATH), *to = msg_get_str(r, GUEST_PATH), *user = msg_get_str(r, 63);
	struct target t, src;
	struct stat st;
	struct err e;
	int rc;

	if (!begin(c, r, from, user, &src))
		return;
	if (find_target(c, to, user, &t, &e) < 0) {
		conn_err(c, r->id, &e);
		return;
	}
	act_begin(&t.user);
	if (lstat(src.path, &st) < 0)
		rc = errno == ENOENT ? err_set(&e, ENOENT, "path '%.250s' does not exist", src.path) : err_sys(&e, "stat '%s'", src.path);
	else
		rc = act_mkdirs(t.path, false, &t.user, &e);
	if (rc == 0 && rename(src.path, t.path) < 0)
		rc = errno == EXDEV ? 1 : err_sys(&e, "move '%.100s' to '%.100s'", src.path, t.path);
	act_end(&t.user);
	if (rc == 1) {          /* another filesystem, or a folder of an overlay's lower layer: copy and remove */
		struct tree_move m = { &c->g->users, src.path, t.path };
		struct helper_job j = { .run = tree_move, .ctx = &m, .user = act_user(&t.user) };

		if (helper_start(c, r->id, &j, &e) < 0)
			conn_err(c, r->id, &e);
		return;
	}
	if (rc < 0)
		conn_err(c, r->id, &e);
	else
		answer_entry(c, r->id, &t, 0, -1);
}

/* Trees that nobody means to remove, and that can't be. */
static bool precious(const char *path)
{
	static const char *const list[] = { "/", "/dev", "/proc", "/sys", "/usr", "/etc", "/bin", "/lib", "/lib64", "/sbin" };

	for (size_t i = 0; i < sizeof list / sizeof *list; i++)
		if (str_eq(path, list[i]))
			return true;
	return false;
}

void file_remove(struct conn *c, struct msg_reader *r)
{
	const char *path = msg_get_str(r, GUEST_PATH), *user = msg_get_str(r, 63);
	struct target t;
	struct err e;
	int rc = 0;

	if (!begin(c, r, path, user, &t))
		return;
	if (precious(t.path))
		rc = err_set(&e, EINVAL, "'%s' is not removed", t.path);
	if (rc == 0) {
		act_begin(&t.user);
		if (unlink(t.path) < 0 && errno != ENOENT && errno != ENOTDIR)
			rc = errno == EISDIR || errno == EPERM ? 1 : err_sys(&e, "remove '%s'", t.path);
		act_end(&t.user);
	}
	if (rc == 1) {
		struct helper_job j = { .run = tree_remove, .ctx = t.path, .user = act_user(&t.user) };

		rc = helper_start(c, r->id, &j, &e);
		if (rc == 0)
			return;
	}
	if (rc < 0)
		conn_err(c, r->id, &e);
	else
		conn_ok(c, r->id);
}

/* Filesystems whose files say nothing true about their size. */
static bool size_lies(int fd, const struct stat *st)
{
	struct statfs fs;

	if (!S_ISREG(st->st_mode))
		return true;
	if (fstatfs(fd, &fs) < 0)
		return true;
	switch ((unsigned long)fs.f_type) {
	case PROC_SUPER_MAGIC: case SYSFS_MAGIC: case CGROUP_SUPER_MAGIC: case CGROUP2_SUPER_MAGIC: case DEBUGFS_MAGIC: case TRACEFS_MAGIC:
		return true;
	}
	return false;
}

/* A child reads it into a pipe; the asker gets the other end. */
static int through_pipe(struct conn *c, uint32_t id, const struct target *t, int fd, struct err *e)
{
	AUTO_FD int out = -1;
	AUTO_FD int in = -1;
	struct tree_fill f = { .from = fd };
	struct helper_job j = { .run = tree_fill, .ctx = &f, .user = act_user(&t->user), .silent = true };
	int p[2], rc;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, "make a pipe");
	out = p[0];
	in = f.to = p[1];
	j.keep[0] = fd;
	j.keep[1] = in;
	rc = helper_start(c, id, &j, e);
	if (rc == 0)
		answer_entry(c, id, t, GUEST_PIPE, out);
	return rc;
}

void file_read(struct conn *c, struct msg_reader *r)
{
	const char *path = msg_get_str(r, GUEST_PATH), *user = msg_get_str(r, 63);
	AUTO_FD int fd = -1;
	struct target t;
	struct stat st;
	struct err e;
	int rc = 0;

	if (!begin(c, r, path, user, &t))
		return;
	act_begin(&t.user);
	/* nonblocking: a FIFO without a writer is then an empty file, not a guest that hangs */
	fd = open(t.path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		rc = errno == ENOENT ? err_set(&e, ENOENT, "path '%.250s' does not exist", t.path) : err_sys(&e, "open '%s'", t.path);
	act_end(&t.user);
	if (rc == 0 && fstat(fd, &st) < 0)
		rc = err_sys(&e, "stat '%s'", t.path);
	if (rc == 0 && S_ISDIR(st.st_mode))
		rc = err_set(&e, EISDIR, "path '%.250s' is a directory", t.path);
	if (rc == 0 && size_lies(fd, &st))
		rc = through_pipe(c, r->id, &t, fd, &e);
	else if (rc == 0)
		answer_entry(c, r->id, &t, GUEST_FILE, fd);
	if (rc < 0)
		conn_err(c, r->id, &e);
}

static int open_for_write(const struct target *t, uint32_t mode, struct err *e)
{
	struct stat st;
	AUTO_FD int fd = open(t->path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode ? mode & 07777 : 0644);

	if (fd < 0 && errno == ENXIO)
		return err_set(e, EINVAL, "path '%.250s' is not a regular file", t->path);
	if (fd < 0)
		return errno == EISDIR ? err_set(e, EISDIR, "path '%.250s' is a directory", t->path) : err_sys(e, "open '%s'", t->path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "path '%.250s' is not a regular file", t->path);
	if (st.st_size && ftruncate(fd, 0) < 0)
		return err_sys(e, "empty '%s'", t->path);
	if (t->user.admin && !t->user.single && (st.st_uid != t->user.uid || st.st_gid != t->user.gid) && fchown(fd, t->user.uid, t->user.gid) < 0)
		return err_sys(e, "give '%s' to %s", t->path, t->user.name);
	if (mode && fchmod(fd, mode & 07777) < 0)
		return err_sys(e, "set the mode of '%s'", t->path);
	return fd_take(&fd);
}

/* A child makes room and then answers; false: it can't, or it isn't worth one. */
static bool make_room(struct conn *c, uint32_t id, const struct target *t, int fd, uint64_t size)
{
	struct tree_room m = { &c->g->users, t->path, fd, size };
	struct helper_job j = { .run = tree_room, .ctx = &m, .user = act_user(&t->user), .keep = { fd } };
	struct err e;

	return size >= ROOM_MIN && size <= INT64_MAX && helper_start(c, id, &j, &e) == 0;
}

void file_write(struct conn *c, struct msg_reader *r)
{
	const char *path = msg_get_str(r, GUEST_PATH), *user = msg_get_str(r, 63);
	uint32_t mode = msg_get_u32(r);
	const char *xattrs[XATTRS + 1];
	size_t n = msg_get_strv(r, xattrs, XATTRS, ENTRY_META);
	uint64_t size = msg_get_u64(r);
	AUTO_FD int fd = -1;
	struct target t;
	struct err e;
	int rc;

	if (!begin(c, r, path, user, &t))
		return;
	act_begin(&t.user);
	rc = act_mkdirs(t.path, false, &t.user, &e);
	if (rc == 0)
		rc = fd = open_for_write(&t, mode, &e);
	if (rc >= 0)
		rc = entry_set_meta(fd, xattrs, n, &e);
	act_end(&t.user);
	if (rc < 0)
		conn_err(c, r->id, &e);
	else if (!make_room(c, r->id, &t, fd, size))
		answer_entry(c, r->id, &t, 0, fd);
}
