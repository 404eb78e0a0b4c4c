#include "secretary/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/fd.h"

#define JOURNAL_MAX (512u << 20)
#define LINE_MAX_BYTES (16u << 20)

struct journal { int fd; };

void journal_close(struct journal *j)
{
	if (!j)
		return;
	fd_drop(&j->fd);
	free(j);
}

static int replay(const char *p, size_t n, int (*each)(void *, const json_t *, struct err *), void *ctx, size_t *ret_good, struct err *e)
{
	size_t at = 0, line = 0;

	while (at < n) {
		const char *nl = memchr(p + at, '\n', n - at);
		AUTO_JSON json_t *v = NULL;
		int r;

		line++;
		if (!nl)
			break;          /* torn: the writer was killed in the middle */
		r = js_parse(p + at, (size_t)(nl - p) - at, &v, e);
		if (r < 0 || !json_is_object(v)) {
			err_set(e, EBADMSG, "line %zu of the journal is damaged", line);
			return err_hint(e, "cut the journal off before that line to go on from there");
		}
		r = each ? each(ctx, v, e) : 0;
		if (r < 0)
			return err_wrap(e, "journal line %zu", line);
		at = (size_t)(nl - p) + 1;
	}
	*ret_good = at;
	return 0;
}

int journal_read(int dirfd, const char *name, int (*each)(void *ctx, const json_t *line, struct err *e), void *ctx, struct err *e)
{
	AUTO_FREE char *text = NULL;
	size_t n, good;
	int r = fd_read_file(dirfd, name, JOURNAL_MAX, &text, &n, e);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : replay(text, n, each, ctx, &good, e);
}

int journal_open(int dirfd, const char *name, int (*each)(void *ctx, const json_t *line, struct err *e), void *ctx, struct journal **ret, struct err *e)
{
	AUTO_FD int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	AUTO_FREE char *text = NULL;
	struct journal *j;
	size_t n, good = 0;
	int r;

	if (fd < 0)
		return err_sys(e, "open the journal");
	r = fd_read_file(dirfd, name, JOURNAL_MAX, &text, &n, e);
	if (r >= 0)
		r = replay(text, n, each, ctx, &good, e);
	if (r < 0)
		return r;
	if (good < n && ftruncate(fd, (off_t)good) < 0)
		return err_sys(e, "cut the torn end off the journal");
	j = malloc(sizeof *j);
	if (!j)
		return err_set(e, ENOMEM, "no memory");
	j->fd = fd_take(&fd);
	*ret = j;
	return 0;
}

int journal_add(struct journal *j, json_t *line, bool durable, struct err *e)
{
	AUTO_JSON json_t *own = line;
	AUTO_BUF struct buf b = BUF_INIT(LINE_MAX_BYTES);
	int r;

	js_dump(own, &b);
	buf_addc(&b, '\n');
	if (!own || !buf_ok(&b))
		return err_set(e, E2BIG, "write the journal: the line is too long");
	r = fd_write_all(j->fd, buf_at(&b), b.len, e);
	if (r < 0)
		return err_wrap(e, "write the journal");
	if (durable && fdatasync(j->fd) < 0)
		return err_sys(e, "flush the journal");
	return 0;
}
