#include "core/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include "core/str.h"

int fd_nonblock(int fd, int on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	if (!!(flags & O_NONBLOCK) == !!on)
		return 0;
	return fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0 ? -errno : 0;
}

static void on_alarm(int signo)
{
}

void fd_guard(bool on)
{
	/* again and again: the first may come before the call sleeps */
	static const struct itimerval some = { { 0, FD_GUARD_MS * 1000 }, { 0, FD_GUARD_MS * 1000 } }, none;
	static bool ready;
	int saved = errno;

	if (!ready) {
		struct sigaction sa = { .sa_handler = on_alarm };       /* no SA_RESTART: that's the point */

		sigaction(SIGALRM, &sa, NULL);
		ready = true;
	}
	setitimer(ITIMER_REAL, on ? &some : &none, NULL);
	errno = saved;
}

ssize_t fd_read_guarded(int fd, void *p, size_t n)
{
	ssize_t r;

	fd_guard(true);
	r = read(fd, p, n);
	fd_guard(false);
	return r;
}

int fd_write_all(int fd, const void *p, size_t n, struct err *e)
{
	const char *at = p;

	while (n) {
		ssize_t r = write(fd, at, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return err_sys(e, "write");
		at += r;
		n -= (size_t)r;
	}
	return 0;
}

/* To the end of fd, growing by doubling: files in /proc say nothing about their size. */
static int read_all(int fd, size_t size, size_t max, struct buf *out)
{
	for (;;) {
		/* one byte above max tells a file of max bytes from a longer one */
		size_t n = size > out->len ? size - out->len : out->len < 4096 ? 4096 : out->len;
		char *at;
		ssize_t r;

		if (n > max + 1 - out->len)
			n = max + 1 - out->len;
		at = buf_reserve(out, n);
		if (!at)
			return -ENOMEM;
		r = read(fd, at, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			return 0;
		buf_commit(out, (size_t)r);
		if (out->len > max)
			return -EFBIG;
	}
}

static int read_file(int fd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *e)
{
	AUTO_BUF struct buf b = BUF_INIT(max < SIZE_MAX - 1 ? max + 1 : SIZE_MAX - 1);
	struct stat st;
	size_t len;
	char *text;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(e, "stat '%s'", path);
	if (S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size > max)
		return err_set(e, EFBIG, "'%s' is larger than %zu bytes", path, max);
	/* a size of 0 says nothing in /proc, where some files (sysctls) are only given out whole in the first read */
	r = read_all(fd, S_ISREG(st.st_mode) && st.st_size > 0 ? (size_t)st.st_size + 1 : 0, b.max - 1, &b);
	if (r == -EFBIG)
		return err_set(e, EFBIG, "'%s' is larger than %zu bytes", path, max);
	if (r < 0) {
		errno = -r;
		return err_sys(e, "read '%s'", path);
	}
	len = b.len;
	text = buf_take(&b);
	if (!text)
		return err_set(e, ENOMEM, "read '%s': no memory", path);
	*ret = text;
	if (ret_len)
		*ret_len = len;
	return 0;
}

int fd_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *e)
{
	AUTO_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	return fd < 0 ? err_sys(e, "open '%s'", path) : read_file(fd, path, max, ret, ret_len, e);
}

ssize_t fd_read_text(int dirfd, const char *path, char *out, size_t size)
{
	AUTO_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (n < 0)
		return -errno;
	out[n] = '\0';
	return n;
}

int fd_regular(int fd, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, "stat '%s'", path);
	return S_ISREG(st.st_mode) ? 0 : err_set(e, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, "'%s' isn't a regular file", path);
}

int fd_read_regular(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *e)
{
	/* nonblocking: a FIFO would wait for a writer */
	AUTO_FD int fd = openat(dirfd, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	int r = fd < 0 ? err_sys(e, "open '%s'", path) : fd_regular(fd, path, e);

	return r < 0 ? r : read_file(fd, path, max, ret, ret_len, e);
}

/* fsync of the folder that path is in, so that the new name is on disk too */
static int sync_folder(int dirfd, const char *path)
{
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	AUTO_FD int fd = -1;

	if (!folder)
		return -ENOMEM;
	fd = openat(dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* some filesystems can't (EINVAL): nothing more can be done there */
	return fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
}

/* tmp, filled, on disk, with its final mode whatever the umask is */
static int write_new(int dirfd, const char *tmp, mode_t mode, const void *p, size_t n, struct err *e)
{
	AUTO_FD int fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0600);
	int r;

	if (fd < 0)
		return err_sys(e, "create");
	r = fd_write_all(fd, p, n, e);
	if (r < 0)
		return r;
	if (fchmod(fd, mode) < 0)
		return err_sys(e, "chmod");
	if (fsync(fd) < 0)
		return err_sys(e, "fsync");
	return 0;
}

int fd_write_file(int dirfd, const char *path, mode_t mode, const void *p, size_t n, struct err *e)
{
	AUTO_FREE char *tmp = NULL;
	uint64_t salt;
	int r;

	str_random(&salt, sizeof salt);
	if (asprintf(&tmp, "%s.%016llx.tmp", path, (unsigned long long)salt) < 0) {
		tmp = NULL;
		return err_set(e, ENOMEM, "write '%s': no memory", path);
	}
	r = write_new(dirfd, tmp, mode, p, n, e);
	if (r == 0 && renameat(dirfd, tmp, dirfd, path) < 0)
		r = err_sys(e, "rename");
	if (r < 0) {
		unlinkat(dirfd, tmp, 0);
		return err_wrap(e, "write '%s'", path);
	}
	r = sync_folder(dirfd, path);
	if (r < 0) {
		errno = -r;
		return err_sys(e, "sync the folder of '%s'", path);
	}
	return 0;
}

int fd_mkdirs(const char *path, mode_t mode, struct err *e)
{
	AUTO_FREE char *p = strdup(path);
	struct stat st;

	if (!p)
		return err_set(e, ENOMEM, "make folder '%s': no memory", path);
	for (char *at = p + 1; *p && *at; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		if (mkdir(p, mode) < 0 && errno != EEXIST)
			return err_sys(e, "make folder '%s'", p);
		*at = '/';
	}
	if (mkdir(p, mode) < 0 && (errno != EEXIST || stat(p, &st) < 0))
		return err_sys(e, "make folder '%s'", path);
	if (stat(p, &st) < 0)
		return err_sys(e, "make folder '%s'", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ENOTDIR, "make folder '%s': something else has that name", path);
	return 0;
}

int fd_is_pipe(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* read() looks at the open file's flags, splice() takes its own: so by way of a pipe that is ours alone. */
ssize_t fd_read_pipe(int fd, void *p, size_t n)
{
	static int own[2] = { -1, -1 };
	ssize_t moved, got = 0;

	if (own[0] < 0 && pipe2(own, O_CLOEXEC | O_NONBLOCK) < 0)
		return -1;
	moved = splice(fd, NULL, own[1], NULL, n, SPLICE_F_NONBLOCK);
	while (got < moved) {
		ssize_t r = read(own[0], (char *)p + got, (size_t)(moved - got));

		if (r <= 0)
			return -1;
		got += r;
	}
	return moved;
}

void fd_close_from(int first, const int *keep, size_t nkeep)
{
	unsigned from = (unsigned)first;

	for (size_t i = 0; i < nkeep; i++) {
		unsigned k = (unsigned)keep[i];

		if (keep[i] < 0 || k < from)
			continue;
		if (k > from)
			close_range(from, k - 1, 0);
		from = k + 1;
	}
	close_range(from, ~0u, 0);
}

int fd_raise_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return -errno;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) < 0)
		return -errno;
	return r.rlim_cur > INT32_MAX ? INT32_MAX : (int)r.rlim_cur;
}
