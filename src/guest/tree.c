/* tree -- what helpers do: list, copy and remove whole trees, and read what has no size. Each may block. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"
#include "guest/file.h"

#define DEPTH_MAX 128
#define BATCH 32768             /* names sorted at once; a larger folder comes in several sorted runs */
#define COPY_CHUNK 65536
#define TRIM_MIN (4 << 20)         /* less than that, left behind a file, isn't worth a process */

/* ---- list ---- */

struct listing { struct tree_dir *d; int sock; uint32_t id, count; };

static void send_entry(struct listing *l, const char *path)
{
	struct msg_writer w;
	struct err e;

	conn_begin(&w, G_ENTRY, l->id);
	if (entry_put(l->d->users, &w, path, &e) == 0 && helper_send(l->sock, &w) == 0)
		l->count++;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The next names of a folder, at most BATCH, sorted. */
static size_t read_names(DIR *dir, char **names)
{
	struct dirent *ent;
	size_t n = 0;

	while (n < BATCH && (ent = readdir(dir))) {
		if (str_eq(ent->d_name, ".") || str_eq(ent->d_name, ".."))
			continue;
		names[n] = strdup(ent->d_name);
		if (names[n])
			n++;
	}
	qsort(names, n, sizeof *names, by_name);
	return n;
}

/* path is a buffer of GUEST_PATH + 1 bytes that holds the folder's path; it's the same again afterwards. */
static int list(struct listing *l, char *path, uint32_t depth, struct err *e)
{
	size_t len = strlen(path), n;
	AUTO_FREE char **names = malloc(BATCH * sizeof *names);
	DIR *dir = opendir(path);

	if (!dir || !names) {
		if (dir)
			closedir(dir);
		return err_sys(e, "read folder '%s'", path);
	}
	while ((n = read_names(dir, names)) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct stat st;
			int k = snprintf(path + len, GUEST_PATH + 1 - len, "%s%s", len > 1 ? "/" : "", names[i]);

			free(names[i]);
			if ((size_t)k >= GUEST_PATH + 1 - len)
				continue;       /* longer than any request could name */
			send_entry(l, path);
			if (depth > 1 && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
				list(l, path, depth - 1, NULL);      /* one that can't be read is listed, without its content */
		}
		path[len] = '\0';
	}
	path[len] = '\0';
	closedir(dir);
	return 0;
}

void tree_dir(int sock, uint32_t id, void *dir)
{
	struct tree_dir *d = dir;
	struct listing l = { d, sock, id, 0 };
	char path[GUEST_PATH + 1];
	struct msg_writer w;
	struct err e;

	str_copy(path, sizeof path, d->path);
	if (list(&l, path, d->depth < DEPTH_MAX ? d->depth : DEPTH_MAX, &e) < 0) {
		helper_err(sock, id, &e);
		return;
	}
	conn_begin(&w, G_OK, id);
	msg_put_u32(&w, l.count);
	helper_send(sock, &w);
}

/* ---- room for what comes ----
 *
 * Memory is charged to whose process asks for it first. An upload is written by the server, so its pages are made here before, by a
 * process of the computer: then they count towards the computer's memory. Without room here the writer meets that by itself. What was
 * made for nothing, behind the end of a file whose writer went away, is given back by a child that waits for the writer's close. */

/* When there is no memory, this process goes and not PID 1 or a program. */
static void first_to_go(void)
{
	AUTO_FD int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "1000", 4) < 0)
		errno = 0;
}

static void trim_when_closed(const char *self)
{
	char event[sizeof(struct inotify_event) + NAME_MAX + 1];
	int fd = open(self, O_WRONLY | O_CLOEXEC), watch = inotify_init1(IN_CLOEXEC);
	struct stat st;

	if (fd < 0 || watch < 0 || inotify_add_watch(watch, self, IN_CLOSE_WRITE) < 0 || fork() != 0)
		return;
	/* the writer's own descriptor, and the connection: neither may stay open here */
	fd_close_from(3, (int[]){ fd < watch ? fd : watch, fd < watch ? watch : fd }, 2);
	while (read(watch, event, sizeof event) < 0 && errno == EINTR)
		;
	if (fstat(fd, &st) == 0 && ftruncate(fd, st.st_size) < 0)
		_exit(1);
	_exit(0);
}

void tree_room(int sock, uint32_t id, void *room)
{
	struct tree_room *m = room;
	struct msg_writer w;
	char self[32];
	struct err e;

	first_to_go();
	snprintf(self, sizeof self, "/proc/self/fd/%d", m->fd);
	if (fallocate(m->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)m->size) == 0 && m->size >= TRIM_MIN)
		trim_when_closed(self);
	conn_begin(&w, G_OK, id);
	if (entry_put(m->users, &w, m->path, &e) < 0) {
		helper_err(sock, id, &e);
		return;
	}
	msg_put_fd(&w, m->fd);
	helper_send(sock, &w);
}

/* ---- read what has no size ---- */

void tree_fill(int sock, uint32_t id, void *fill)
{
	struct tree_fill *f = fill;
	char buf[16384];
	ssize_t n;

	close(sock);
	while ((n = read(f->from, buf, sizeof buf)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		/* a FIFO or terminal with nothing in it yet; the reader's end closing ends the wait too */
		if (n < 0 && errno == EAGAIN) {
			struct pollfd p[2] = { { .fd = f->from, .events = POLLIN }, { .fd = f->to } };

			if (poll(p, 2, -1) < 0 || p[1].revents)
				return;
			continue;
		}
		if (n < 0 || fd_write_all(f->to, buf, (size_t)n, NULL) < 0)
			return;
	}
}

/* ---- remove ---- */

static int remove_path(const char *path, struct err *e)
{
	return fd_remove_tree(AT_FDCWD, path, e);
}

void tree_remove(int sock, uint32_t id, void *path)
{
	struct err e;

	if (remove_path(path, &e) < 0)
		helper_err(sock, id, &e);
	else
		helper_ok(sock, id);
}

/* ---- move by copying ---- */

static int copy_bytes(int from, int to)
{
	AUTO_FREE char *buf = NULL;
	ssize_t n;

	while ((n = copy_file_range(from, NULL, to, NULL, 1 << 30, 0)) > 0)
		;
	if (n == 0)
		return 0;
	buf = malloc(COPY_CHUNK);
	if (!buf)
		return -ENOMEM;
	while ((n = read(from, buf, COPY_CHUNK)) != 0) {
		int rc;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		rc = fd_write_all(to, buf, (size_t)n, NULL);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Attributes that users may have. Ones the other filesystem doesn't take are left. */
static void copy_xattrs(const char *from, const char *to)
{
	char names[4096], value[4096];
	ssize_t n = llistxattr(from, names, sizeof names);

	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
		ssize_t v;

		if (!str_starts(p, "user.") || str_starts(p, "user.overlay."))
			continue;
		v = lgetxattr(from, p, value, sizeof value);
		if (v >= 0 && lsetxattr(to, p, value, (size_t)v, 0) < 0)
			errno = 0;
	}
}

static int copy_file(const char *from, const char *to)
{
	AUTO_FD int in = open(from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	AUTO_FD int out = -1;

	if (in < 0)
		return -errno;
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return out < 0 ? -errno : copy_bytes(in, out);
}

static int copy_link(const char *from, const char *to)
{
	char text[GUEST_PATH + 1];
	ssize_t n = readlink(from, text, sizeof text - 1);

	if (n < 0)
		return -errno;
	text[n] = '\0';
	return symlink(text, to) < 0 ? -errno : 0;
}

static int copy(const char *from, const char *to, int depth);

static int copy_folder(const char *from, const char *to, int depth)
{
	DIR *dir = opendir(from);
	struct dirent *ent;
	int rc = 0;

	if (!dir)
		return -errno;
	if (mkdir(to, 0700) < 0)
		rc = -errno;
	while (rc == 0 && (ent = readdir(dir))) {
		AUTO_FREE char *a = NULL;
		AUTO_FREE char *b = NULL;

		if (str_eq(ent->d_name, ".") || str_eq(ent->d_name, ".."))
			continue;
		if (asprintf(&a, "%s/%s", from, ent->d_name) < 0 || asprintf(&b, "%s/%s", to, ent->d_name) < 0)
			rc = -ENOMEM;
		else
			rc = copy(a, b, depth + 1);
	}
	closedir(dir);
	return rc;
}

static int copy(const char *from, const char *to, int depth)
{
	struct stat st;
	int rc;

	if (depth > DEPTH_MAX)
		return -ELOOP;
	if (lstat(from, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode))
		rc = copy_file(from, to);
	else if (S_ISDIR(st.st_mode))
		rc = copy_folder(from, to, depth);
	else if (S_ISLNK(st.st_mode))
		rc = copy_link(from, to);
	else
		rc = mknod(to, st.st_mode, st.st_rdev) < 0 ? -errno : 0;
	if (rc < 0)
		return rc;
	copy_xattrs(from, to);
	/* a user without that right keeps what he copies, as with mv */
	if (lchown(to, st.st_uid, st.st_gid) < 0 && errno != EPERM && errno != EINVAL)
		return -errno;
	if (!S_ISLNK(st.st_mode) && chmod(to, st.st_mode & 07777) < 0)
		return -errno;
	utimensat(AT_FDCWD, to, (struct timespec[]){ st.st_atim, st.st_mtim }, AT_SYMLINK_NOFOLLOW);
	return 0;
}

/* Copied beside the target under another name, then renamed: nobody sees half of it. */
void tree_move(int sock, uint32_t id, void *move)
{
	struct tree_move *m = move;
	AUTO_FREE char *tmp = NULL;
	struct msg_writer w;
	struct err e;
	int rc;

	if (asprintf(&tmp, "%s.moving-%d", m->to, (int)getpid()) < 0)
		rc = err_set(&e, ENOMEM, "no memory to move");
	else if ((rc = copy(m->from, tmp, 0)) < 0)
		err_set(&e, -rc, "move '%.100s' to '%.100s': %s", m->from, m->to, strerror(-rc));
	else if (rename(tmp, m->to) < 0)
		rc = err_sys(&e, "move '%.100s' to '%.100s'", m->from, m->to);
	else
		rc = remove_path(m->from, &e);
	if (rc < 0) {
		if (tmp)
			remove_path(tmp, NULL);
		helper_err(sock, id, &e);
		return;
	}
	conn_begin(&w, G_OK, id);
	if (entry_put(m->users, &w, m->to, &e) < 0)
		helper_err(sock, id, &e);
	else
		helper_send(sock, &w);
}
