#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "api/e2b_req.h"
#include "core/fd.h"
#include "core/str.h"
#include "http/multipart.h"

/* POST /files: raw bytes for one path, or multipart/form-data with a file a part; either may be gzipped.
 *
 * Theory of operation. Raw plain bytes go from the socket into the file without passing through here. The rest comes in runs: through
 * inflate if asked, through the multipart parser, to the part's file. A file is opened by an operation, which takes a while, and
 * the parser can't wait: what it yields meanwhile is kept with the part, and the request is paused, so that at most one run is kept.
 * Parts are written one after another. After a failure the rest of a (not too long) body is read and dropped, because clients send on
 * and would miss an answer that comes before the end. */

enum { KEEP_MAX = 80 << 20, DISCARD_MAX = 256 << 20, FILES_MAX = 1000, INFLATE_CHUNK = 64 << 10,
	META_KEY_MAX = 246, META_TOTAL_MAX = 4096 };

struct part {
	struct list link;
	char *path;
	struct buf kept;         /* bytes that came before the file was open */
	bool ended;
};

struct upload {
	struct e2b_req q;
	char *path;              /* from the query; NULL = each part names its own */
	json_t *metadata, *results;
	struct http_multipart *mp;       /* NULL = raw */
	struct list parts;       /* the first is the one being written */
	unsigned nparts;
	int fd;                  /* of the first part, -1 = not open yet */
	bool opening, paused, body_over, skip, in_part;
	bool gzip, inflating, stream_end;
	z_stream z;
	uint64_t dropped;
	int64_t taken;           /* of the body, by the parser */
	int failed;              /* status of the answer once the body is over; 0 = all is well */
	char why[400];
	struct op_tie tie;
};

static void step(struct upload *u);

static struct upload *upload_of(struct e2b_req *q)
{
	return container_of(q, struct upload, q);
}

static void part_drop(struct part *p)
{
	list_unlink(&p->link);
	free(p->path);
	buf_done(&p->kept);
	free(p);
}

static struct part *first_part(struct upload *u)
{
	return list_empty(&u->parts) ? NULL : container_of(u->parts.next, struct part, link);
}

static void parts_drop(struct upload *u)
{
	list_each(it, &u->parts)
		part_drop(container_of(it, struct part, link));
	fd_drop(&u->fd);
}

static void upload_drop(struct e2b_req *q)
{
	struct upload *u = upload_of(q);

	ops_tie_drop(&u->tie);
	parts_drop(u);
	http_multipart_free(u->mp);
	if (u->gzip)
		inflateEnd(&u->z);
	free(u->path);
	json_decref(u->metadata);
	json_decref(u->results);
}

static void on_kill(struct op_tie *t)
{
	http_abort(container_of(t, struct upload, tie)->q.r);
}

/* The first failure counts. Returns a negative number, so that it ends a parser callback. */
static int fail(struct upload *u, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(struct upload *u, int status, const char *fmt, ...)
{
	va_list ap;

	if (u->failed)
		return -EIO;
	va_start(ap, fmt);
	vsnprintf(u->why, sizeof u->why, fmt, ap);
	va_end(ap);
	u->failed = status;
	return -EIO;
}

static int fail_err(struct upload *u, const struct err *e)
{
	const char *text = e->msg;
	int code = e->code;

	if (code == ENOSPC || code == EDQUOT)
		return fail(u, 507, "not enough disk space: %s", text);
	if (e2b_no_user(e))
		return fail(u, 401, "%s", text);
	if (code == EISDIR || code == ENOTDIR || code == EINVAL || code == ENAMETOOLONG || code == ELOOP)
		return fail(u, 400, "%s", text);
	return fail(u, ops_http_status(code), "%s", text);
}

static void answer(struct upload *u)
{
	if (http_replied(u->q.r))
		return;
	if (e2b_is_gone(&u->q))
		e2b_gone(u->q.r, u->q.id);
	else if (u->failed)
		e2b_status(u->q.r, u->failed, "%s", u->why);
	else
		e2b_json(&u->q, 200, json_incref(u->results));
}

/* ---- files ---- */

static void write_file(struct upload *u, const char *p, size_t n)
{
	struct err e;

	if (fd_write_all(u->fd, p, n, &e) < 0)
		fail_err(u, &e);
}

static int add_result(struct upload *u, const json_t *entry)
{
	json_t *o = json_pack("{s:O?, s:O?, s:s}", "name", json_object_get(entry, "name"), "path", json_object_get(entry, "path"), "type", "file");

	if (o && u->metadata)
		json_object_set(o, "metadata", u->metadata);
	return json_array_append_new(u->results, o);
}

/* A descriptor that a guest sent is only written to when it's a plain file: nothing else is sure not to block. */
static bool take_fd(struct upload *u, const struct err *e, const json_t *res, int fd)
{
	struct stat st;

	if (e) {
		fail_err(u, e);
		return false;
	}
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		fd_drop(&fd);
		fail(u, 500, "the file could not be opened");
		return false;
	}
	if (add_result(u, json_object_get(res, "entry")) < 0) {
		close(fd);
		fail(u, 503, "no memory for this request");
		return false;
	}
	u->fd = fd;
	return true;
}

static json_t *write_args(struct upload *u, const char *path)
{
	json_t *args = e2b_args(&u->q);

	json_object_set_new(args, "path", json_string(path));
	if (u->metadata)
		json_object_set(args, "metadata", u->metadata);
	/* of a part no more can come than what is left of the whole */
	if (!u->gzip && http_req_body_length(u->q.r) > u->taken)
		json_object_set_new(args, "size", json_integer(http_req_body_length(u->q.r) - u->taken));
	return args;
}

static void part_opened(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct upload *u = upload_of(q);
	struct part *p = first_part(u);

	u->opening = false;
	if (take_fd(u, e, res, fd) && p) {
		write_file(u, buf_at(&p->kept), p->kept.len);
		buf_done(&p->kept);
	}
	step(u);
}

/* Does what can be done: finishes parts, opens the next, lets the client go on, answers. */
static void step(struct upload *u)
{
	struct part *p;

	if (u->opening)
		return;
	if (u->failed)
		parts_drop(u);
	while ((p = first_part(u)) && u->fd >= 0 && p->ended) {
		fd_drop(&u->fd);
		part_drop(p);
	}
	p = first_part(u);
	if (p && u->fd < 0) {
		u->opening = true;
		e2b_ask(&u->q, "file.write", write_args(u, p->path), part_opened);
		return;
	}
	if (u->body_over) {
		answer(u);
	} else if (u->paused) {
		u->paused = false;
		http_req_resume(u->q.r);
	}
}

/* ---- multipart ---- */

static int on_begin(void *ctx, const struct http_part *hp)
{
	struct upload *u = ctx;
	const char *path = u->path ? u->path : hp->filename;
	struct part *p;

	u->skip = strcmp(hp->name ? hp->name : "", "file") != 0;
	if (u->skip)
		return 0;
	if (!path || !*path)
		return fail(u, 400, "a part has no file name, and the query no path");
	if (u->path && u->nparts)
		return fail(u, 400, "with 'path' only one file can be uploaded");
	if (u->nparts++ >= FILES_MAX)
		return fail(u, 400, "more than %d files in one request", FILES_MAX);
	p = calloc(1, sizeof *p);
	if (!p || !(p->path = strdup(path))) {
		free(p);
		return fail(u, 503, "no memory for this request");
	}
	buf_init(&p->kept, KEEP_MAX);
	list_append(&u->parts, &p->link);
	return 0;
}

static int on_part_data(void *ctx, const char *bytes, size_t n)
{
	struct upload *u = ctx;
	struct part *p = list_empty(&u->parts) ? NULL : container_of(u->parts.prev, struct part, link);

	if (u->skip || !p)
		return 0;
	if (u->fd >= 0 && p == first_part(u))
		write_file(u, bytes, n);
	else if (buf_add(&p->kept, bytes, n) < 0)
		fail(u, 413, "too much at once: the upload expands too far");
	return u->failed ? -EIO : 0;
}

static int on_part_end(void *ctx)
{
	struct upload *u = ctx;

	if (!u->skip && !list_empty(&u->parts))
		container_of(u->parts.prev, struct part, link)->ended = true;
	return 0;
}

/* ---- the body ---- */

/* Plain bytes, whatever they were sent as. */
static void take_plain(struct upload *u, const char *p, size_t n)
{
	struct err e;

	if (u->failed || !n)
		return;
	if (!u->mp)
		write_file(u, p, n);
	else if (http_multipart_feed(u->mp, p, n, &e) < 0)
		fail(u, 400, "%s", e.msg);
}

static void take_gzip(struct upload *u, const char *p, size_t n)
{
	static char out[INFLATE_CHUNK];
	int r;

	u->z.next_in = (unsigned char *)(uintptr_t)p;
	u->z.avail_in = (unsigned)n;
	while (!u->failed) {
		if (u->stream_end && u->z.avail_in) {    /* another member follows */
			inflateReset(&u->z);
			u->stream_end = false;
		}
		u->z.next_out = (unsigned char *)out;
		u->z.avail_out = sizeof out;
		r = inflate(&u->z, Z_NO_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR) {
			fail(u, 400, "the body isn't gzip: %s", u->z.msg ? u->z.msg : "bad data");
			return;
		}
		u->stream_end = r == Z_STREAM_END;
		take_plain(u, out, sizeof out - u->z.avail_out);
		if (u->z.avail_out && (!u->z.avail_in || r == Z_BUF_ERROR))
			return;
	}
}

static void on_body(void *ctx, struct http_req *r, const char *p, size_t n)
{
	struct upload *u = ctx;

	if (u->failed) {
		u->dropped += n;
		if (u->dropped > DISCARD_MAX && !http_replied(r)) {
			http_close_after(r);
			answer(u);
		}
		return;
	}
	if (u->gzip)
		take_gzip(u, p, n);
	else
		take_plain(u, p, n);
	/* a file is to be opened first: the client waits */
	if (u->mp && !u->failed && first_part(u) && u->fd < 0 && !u->paused) {
		u->paused = true;
		http_req_pause(r);
	}
	step(u);
	u->taken += (int64_t)n;
}

static void on_body_end(void *ctx, struct http_req *r)
{
	struct upload *u = ctx;
	struct err e;

	u->body_over = true;
	if (!u->failed && u->gzip && !u->stream_end)
		fail(u, 400, "the gzip body is cut off");
	if (!u->failed && u->mp && http_multipart_finish(u->mp, &e) < 0)
		fail(u, 400, "%s", e.msg);
	if (!u->mp)
		fd_drop(&u->fd);
	step(u);
}

static void stored(void *ctx, struct http_req *r, int64_t result)
{
	struct upload *u = ctx;
	struct err e;

	if (result < 0) {
		errno = (int)-result;
		err_sys(&e, "write the file");
		fail_err(u, &e);
	}
	fd_drop(&u->fd);
	answer(u);
}

static void raw_opened(struct e2b_req *q, const struct err *e, const json_t *res, int fd)
{
	struct upload *u = upload_of(q);

	if (take_fd(u, e, res, fd) && !u->gzip)
		http_req_to_fd(q->r, u->fd, INT64_MAX, stored, u);
	else
		http_req_read(q->r, on_body, on_body_end, u);
}

/* ---- the beginning ---- */

/* X-Metadata-KEY: value. All of them replace what the file had. */
static bool metadata(struct upload *u)
{
	const struct http_head *h = http_req_head(u->q.r);
	size_t total = 0;

	for (unsigned i = 0; i < h->nfields; i++) {
		const char *name = http_field_name(h, i), *value = http_field_value(h, i);
		size_t n;

		if (!str_starts(name, "x-metadata-"))
			continue;
		name += strlen("x-metadata-");
		n = strlen(name);
		total += n + strlen(value);
		for (const char *p = value; *p; p++)
			if (*p < ' ' || *p > '~')
				n = 0;
		if (n == 0 || n > META_KEY_MAX || total > META_TOTAL_MAX)
			return false;
		if (!u->metadata)
			u->metadata = json_object();
		json_object_set_new(u->metadata, name, json_string(value));
	}
	return true;
}

static bool begin_gzip(struct upload *u)
{
	const char *coding = http_req_header(u->q.r, "content-encoding");

	if (!coding || strcasecmp(coding, "identity") == 0)
		return true;
	if (strcasecmp(coding, "gzip") != 0) {
		e2b_status(u->q.r, 415, "Content-Encoding '%.40s' isn't known here: gzip, or none", coding);
		return false;
	}
	if (inflateInit2(&u->z, 15 + 16) != Z_OK) {
		e2b_status(u->q.r, 503, "no memory for this request");
		return false;
	}
	u->gzip = true;
	return true;
}

static void begin_body(struct upload *u, const char *type)
{
	static const struct http_multipart_cb cb = { on_begin, on_part_data, on_part_end };
	struct err e;

	if (strncasecmp(type, "multipart/form-data", 19) == 0) {
		if (http_multipart_create(type, &cb, u, &u->mp, &e) < 0)
			e2b_status(u->q.r, 400, "%s", e.msg);
		else
			http_req_read(u->q.r, on_body, on_body_end, u);
	} else if (strncasecmp(type, "application/octet-stream", 24) != 0) {
		e2b_status(u->q.r, 415, "the body must be multipart/form-data or application/octet-stream");
	} else if (!u->path) {
		e2b_status(u->q.r, 400, "'path' is missing");
	} else {
		e2b_ask(&u->q, "file.write", write_args(u, u->path), raw_opened);
	}
}

void e2b_upload(struct api *a, struct http_req *r, const struct e2b_req *from)
{
	struct upload *u = (struct upload *)e2b_req_open(a, r, sizeof *u, from);
	const char *path = http_req_query(r, "path"), *type = http_req_header(r, "content-type");

	if (!u)
		return;
	u->q.drop = upload_drop;
	u->fd = -1;
	list_init(&u->parts);
	u->results = json_array();
	u->path = path && *path ? strdup(path) : NULL;
	u->tie.cut = on_kill;
	if (ops_tie(a->ops, u->q.id, &u->tie) < 0)
		e2b_gone(r, u->q.id);
	else if (!metadata(u))
		e2b_status(r, 400, "X-Metadata-* must be printable ASCII: keys up to %d bytes, %d bytes in all", META_KEY_MAX, META_TOTAL_MAX);
	else if (begin_gzip(u))
		begin_body(u, type ? type : "application/octet-stream");
}
