/* audit -- one JSON line an act, appended to DIR/audit/audit.log: when, who, what, on which computer, how it ended. Lines of a turn of
 * the loop are written together at its end. Arguments aren't in it: they may hold secrets.
 *
 * A file that would grow beyond AUDIT_MAX becomes audit.log.1, that one .2, and so on to AUDIT_OLD; the oldest goes. Only names change,
 * so nobody waits for a disk. Killed in between, a number is missing and the next time it is filled first: no file is lost, and no
 * line is in two. A line that a kill tore stays alone on its line. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"
#include "ops/ops_priv.h"

#define PENDING_MAX (4u << 20)
#define NAME "audit.log"

static int open_log(struct ops *o, struct err *e)
{
	AUTO_FD int fd = openat(o->audit_dir, NAME, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct stat st;
	char last = '\n';

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "open " NAME);
	if (fd_regular(fd, NAME, e) < 0)         /* a FIFO takes 64 KiB, and then we would wait for its reader */
		return -e->code;
	if (st.st_size && pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n' && write(fd, "\n", 1) == 1)
		st.st_size++;
	fd_drop(&o->audit_fd);
	o->audit_fd = fd_take(&fd);
	o->audit_size = (uint64_t)st.st_size;
	return 0;
}

static void old_name(char out[24], unsigned n)
{
	if (n)
		snprintf(out, 24, NAME ".%u", n);
	else
		snprintf(out, 24, NAME);
}

static int rotate(struct ops *o, struct err *e)
{
	char from[24], to[24];
	unsigned n = 1;

	for (old_name(to, n); n < AUDIT_OLD && faccessat(o->audit_dir, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0; old_name(to, n))
		n++;
	for (; n; n--) {
		old_name(from, n - 1);
		old_name(to, n);
		if (renameat(o->audit_dir, from, o->audit_dir, to) < 0)
			return err_sys(e, "rename '%s'", from);
	}
	return open_log(o, e);
}

static void make_room(struct ops *o)
{
	struct err e;

	if (!o->audit_size || o->audit_size + o->audit.len <= o->audit_max + o->audit_late)
		return;
	if (rotate(o, &e) == 0) {
		o->audit_late = 0;
		return;
	}
	/* too long a file is better than a lost line; not tried again for every line */
	if (!o->audit_late)
		log_error("audit.log stays as it is: %s", e.msg);
	o->audit_late = o->audit_size - o->audit_max + o->audit_max / 16 + o->audit.len;
}

static void flush(struct ops *o)
{
	make_room(o);
	while (o->audit.len) {
		ssize_t n = write(o->audit_fd, buf_at(&o->audit), o->audit.len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (!o->audit_lost++)
				log_error("audit.log can't be written: %s", strerrordesc_np(errno));
			buf_clear(&o->audit);
			return;
		}
		o->audit_size += (uint64_t)n;
		buf_consume(&o->audit, (size_t)n);
	}
	o->audit_lost = 0;
}

static void on_flush(struct job *j)
{
	flush(container_of(j, struct ops, audit_job));
}

int audit_open(struct ops *o, struct err *e)
{
	AUTO_FREE char *path = NULL;

	if (asprintf(&path, "%s/audit", o->o.state_dir) < 0) {
		path = NULL;
		return err_set(e, ENOMEM, "no memory");
	}
	if (!o->audit_max)
		o->audit_max = AUDIT_MAX;
	o->audit_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (o->audit_dir < 0)
		return err_sys(e, "open '%s'", path);
	if (open_log(o, e) < 0)
		return err_wrap(e, "'%s'", path);
	buf_init(&o->audit, PENDING_MAX);
	o->audit_job.run = on_flush;
	return 0;
}

void audit_close(struct ops *o)
{
	if (o->audit_fd >= 0) {
		loop_cancel(o->o.loop, &o->audit_job);
		flush(o);
		buf_done(&o->audit);
	}
	fd_drop(&o->audit_fd);
	fd_drop(&o->audit_dir);
}

static void add(struct buf *b, const char *name, const char *value)
{
	if (!value || !value[0])
		return;
	buf_printf(b, ",\"%s\":", name);
	str_json(b, value, strlen(value));
}

void audit_line(struct ops *o, const char *who, const char *what, const char *id, const char *outcome, const char *detail)
{
	struct buf *b = &o->audit;
	char when[32];

	clock_rfc3339(clock_wall_ms(), when);
	buf_printf(b, "{\"time\":\"%s\"", when);
	add(b, "who", who);
	add(b, "op", what);
	add(b, "id", id);
	add(b, "outcome", outcome);
	add(b, "detail", detail);
	buf_adds(b, "}\n");
	loop_defer(o->o.loop, &o->audit_job);
}
