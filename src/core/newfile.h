#ifndef CORE_NEWFILE_H
#define CORE_NEWFILE_H
#include <limits.h>
#include <sys/types.h>
#include "core/err.h"
/* newfile -- a file that appears under its name whole or not at all. Until newfile_commit() it has no name (O_TMPFILE), so that
 * nothing is left even by a kill; on file systems that can't do that it's called .NAME.XXXXXXXX. Not synced: fd_write_file() is.
 *
 * A regular file of that name is replaced, and hands down its permission bits and, where we may, its owner. Anything else of that
 * name is refused (-EEXIST), a link too: nothing is written through one. */
struct newfile {
	int fd;                      /* to write to; -1 = not open, then drop does nothing */
	int dir;
	char name[NAME_MAX + 1], temp[32];   /* temp "" = it has no name yet */
};
#define NEWFILE_INIT { .fd = -1, .dir = -1 }
/* name: without a slash, below dirfd. mode: as open(), for a file that isn't there yet. */
int newfile_begin(struct newfile *f, int dirfd, const char *name, mode_t mode, struct err *e);
int newfile_commit(struct newfile *f, struct err *e);   /* it's there, and closed; on failure it's dropped */
void newfile_drop(struct newfile *f);                   /* nothing is left */
#endif
