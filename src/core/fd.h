#ifndef CORE_FD_H
#define CORE_FD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
#include "core/err.h"
/* fd -- descriptors with an owner. Everything we open is O_CLOEXEC. */
#define AUTO(f) __attribute__((cleanup(f)))

static inline void fd_drop(int *fd) { if (*fd >= 0) close(*fd); *fd = -1; }
static inline int fd_take(int *fd) { int t = *fd; *fd = -1; return t; }
static inline void free_drop(void *p) { free(*(void **)p); *(void **)p = NULL; }
#define AUTO_FD AUTO(fd_drop)
#define AUTO_FREE AUTO(free_drop)

int fd_nonblock(int fd, int on);                                    /* 0 or -errno */
int fd_write_all(int fd, const void *p, size_t n, struct err *e);   /* blocking, retries EINTR and short writes */
/* Around a call that must not block, on a descriptor that somebody hostile shares (whose O_NONBLOCK is his to clear): one that does
 * is interrupted after FD_GUARD_MS, with EINTR. Uses SIGALRM and the real-time interval timer of the process. */
#define FD_GUARD_MS 500
void fd_guard(bool on);
/* read() so guarded. EINTR there means that it did block: treat it as broken, not as "again". */
ssize_t fd_read_guarded(int fd, void *p, size_t n);
/* Whole file into memory, at most max bytes (-EFBIG above). *ret is NUL-terminated, free() it. dirfd may be AT_FDCWD. */
int fd_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *e);
/* A small file without allocating: its first size - 1 bytes, ended by NUL. How many there are, or -errno. For /proc, where one read gives it all. */
ssize_t fd_read_text(int dirfd, const char *path, char *out, size_t size);
/* As fd_read_file, of one of our own files, in a process that may not wait: whatever else is there in its place (a FIFO) is an error. */
int fd_read_regular(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *e);
int fd_regular(int fd, const char *path, struct err *e);            /* 0, or the error that it isn't one */
/* Replace path atomically and durably: temporary in the same folder, fsync, rename, fsync of the folder. mode is
 * exact, whatever the umask; a link of that name is replaced, not followed. */
int fd_write_file(int dirfd, const char *path, mode_t mode, const void *p, size_t n, struct err *e);
/* mkdir -p; existing folders are left as they are. */
int fd_mkdirs(const char *path, mode_t mode, struct err *e);
/* rm -rf below dirfd without following links or crossing into what a link names; missing is fine. A filesystem
 * mounted at or below name is an error and keeps its files. Takes as long as it takes: not for an event loop when the tree is big. */
int fd_remove_tree(int dirfd, const char *name, struct err *e);
int fd_is_pipe(int fd);
/* What is in a pipe now, without waiting, whatever O_NONBLOCK says: who sent it may hold the same open file and change that. */
ssize_t fd_read_pipe(int fd, void *p, size_t n);                    /* as read(); -1 and EAGAIN: nothing yet */
/* Close every descriptor >= first except those in keep[] (sorted ascending). */
void fd_close_from(int first, const int *keep, size_t nkeep);
int fd_raise_limit(void);                                           /* RLIMIT_NOFILE soft to hard; returns the limit */
#endif
