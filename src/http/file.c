#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"
#include "http/server_impl.h"

enum { UNSIZED_MAX = 16 << 20 };

void http_reply_fd(struct http_req *r, int status, const char *type, int fd, uint64_t off, uint64_t len)
{
	if (http_reply_head(r, status, type, (int64_t)len) < 0) {
		close(fd);
		return;
	}
	r->file = fd;           /* closed with the request */
	r->file_is_pipe = false;
	r->file_off = (off_t)off;
	r->file_left = r->no_body ? 0 : len;
	r->out_left = 0;
	r->ended = true;
	if (!r->blocked)
		http_flush(r);
	http_conn_kick(r);
}

/* Is etag in this If-None-Match list? Weak comparison: W/ is ignored. */
static bool etag_listed(const char *list, const char *etag)
{
	size_t n = strlen(etag);

	for (const char *p = list; *p;) {
		p += strspn(p, " \t,");
		if (*p == '*')
			return true;
		if (str_starts(p, "W/"))
			p += 2;
		if (strncmp(p, etag, n) == 0 && (p[n] == 0 || strchr(" \t,", p[n])))
			return true;
		p += strcspn(p, ",");
	}
	return false;
}

static bool not_modified(const struct http_req *r, const char *etag, int64_t mtime)
{
	const char *match = http_req_header(r, "if-none-match"), *since = http_req_header(r, "if-modified-since");
	int64_t t;

	if (!http_req_is(r, "GET") && !http_req_is(r, "HEAD"))
		return false;
	if (match)
		return etag_listed(match, etag);
	return since && http_parse_date(since, &t) == 0 && mtime <= t;
}

/* If-Range: the range counts only when the file is still the one that the client has a part of. */
static bool range_counts(const struct http_req *r, const char *etag, const char *modified)
{
	const char *v = http_req_header(r, "if-range");

	return http_req_is(r, "GET") && (!v || str_eq(v, etag) || str_eq(v, modified));
}

static void reply_unsized(struct http_req *r, const char *type, int fd)
{
	struct buf b = BUF_INIT(UNSIZED_MAX);
	ssize_t n;
	char *at;

	do {
		at = buf_reserve(&b, 65536);
		n = at ? fd_read_guarded(fd, at, 65536) : -1;
		if (n > 0)
			buf_commit(&b, (size_t)n);
	} while (n > 0);
	close(fd);
	if (n < 0) {
		http_replyf(r, 500, "text/plain", "the file can't be read, or is larger than %d bytes\n", UNSIZED_MAX);
		buf_done(&b);
	} else {
		http_reply_buf(r, 200, type, &b);
	}
}

void http_reply_file(struct http_req *r, const char *type, int fd)
{
	struct stat st;
	char etag[64], modified[32];
	uint64_t from = 0, to;
	int ranged = 0;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		http_replyf(r, 500, "text/plain", "not a regular file\n");
		return;
	}
	if (st.st_size == 0) {
		reply_unsized(r, type, fd);
		return;
	}
	snprintf(etag, sizeof etag, "\"%llx-%llx-%lx\"", (unsigned long long)st.st_size, (unsigned long long)st.st_mtim.tv_sec,
		(unsigned long)st.st_mtim.tv_nsec);
	http_date(st.st_mtim.tv_sec, modified);
	http_set(r, "ETag", etag);
	http_set(r, "Last-Modified", modified);
	http_set(r, "Accept-Ranges", "bytes");
	if (not_modified(r, etag, st.st_mtim.tv_sec)) {
		close(fd);
		http_reply(r, 304, NULL, NULL, 0);
		return;
	}
	to = (uint64_t)st.st_size;
	if (http_req_header(r, "range") && range_counts(r, etag, modified))
		ranged = http_parse_range(http_req_header(r, "range"), (uint64_t)st.st_size, &from, &to);
	if (ranged < 0) {
		close(fd);
		http_setf(r, "Content-Range", "bytes */%lld", (long long)st.st_size);
		http_reply(r, 416, NULL, NULL, 0);
		return;
	}
	if (ranged)
		http_setf(r, "Content-Range", "bytes %llu-%llu/%lld", (unsigned long long)from, (unsigned long long)to - 1, (long long)st.st_size);
	http_reply_fd(r, ranged ? 206 : 200, type, fd, from, to - from);
}
