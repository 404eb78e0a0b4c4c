/* audit -- one JSON line an act, appended to DIR/audit.log: when, who, what, on which computer, how it ended. Lines of a turn of the
 * loop are written together at its end. Arguments aren't in it: they may hold secrets. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"
#include "ops/ops_priv.h"

#define PENDING_MAX (4u << 20)

static void flush(struct ops *o)
{
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

	if (asprintf(&path, "%s/audit.log", o->o.state_dir) < 0) {
		path = NULL;
		return err_set(e, ENOMEM, "no memory");
	}
	o->audit_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (o->audit_fd < 0)
		return err_sys(e, "open '%s'", path);
	buf_init(&o->audit, PENDING_MAX);
	o->audit_job.run = on_flush;
	return 0;
}

void audit_close(struct ops *o)
{
	if (o->audit_fd < 0)
		return;
	loop_cancel(o->o.loop, &o->audit_job);
	flush(o);
	buf_done(&o->audit);
	fd_drop(&o->audit_fd);
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
