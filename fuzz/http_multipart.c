/* Multipart bodies: any cut into pieces gives the same parts. First byte: the piece size; then content type, NUL, body. */
#include <stdlib.h>
#include <string.h>

#include "core/buf.h"
#include "http/multipart.h"

int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n);

static int on_begin(void *ctx, const struct http_part *part)
{
	if (!part->name || strlen(part->name) > 8192)
		abort();
	buf_printf(ctx, "<%s|%s|%s|", part->name, part->filename ? part->filename : "-", part->type ? part->type : "-");
	return 0;
}

static int on_data(void *ctx, const char *p, size_t n)
{
	if (n == 0)
		abort();
	buf_add(ctx, p, n);
	return 0;
}

static int on_end(void *ctx)
{
	buf_addc(ctx, '>');
	return 0;
}

static int run(const char *type, const char *p, size_t n, size_t step, struct buf *out)
{
	static const struct http_multipart_cb cb = { on_begin, on_data, on_end };
	struct http_multipart *m;
	struct err e;
	int bad = 0;

	if (http_multipart_create(type, &cb, out, &m, &e) < 0)
		return -1;
	for (size_t at = 0; at < n && bad == 0; at += step)
		bad = http_multipart_feed(m, p + at, n - at < step ? n - at : step, &e);
	if (bad == 0)
		bad = http_multipart_finish(m, &e);
	http_multipart_free(m);
	return bad;
}

int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n)
{
	struct buf a = BUF_INIT(1 << 22), b = BUF_INIT(1 << 22);
	const unsigned char *nul = n > 1 ? memchr(p + 1, 0, n - 1) : NULL;

	if (!nul)
		return 0;
	const char *body = (const char *)nul + 1;
	size_t len = n - (size_t)(nul + 1 - p);
	int ra = run((const char *)p + 1, body, len, len ? len : 1, &a), rb = run((const char *)p + 1, body, len, 1 + p[0] % 9, &b);

	if (ra != rb || (ra == 0 && (a.len != b.len || memcmp(buf_at(&a), buf_at(&b), a.len) != 0)))
		abort();
	buf_done(&a);
	buf_done(&b);
	return 0;
}
