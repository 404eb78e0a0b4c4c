#ifndef HTTP_MULTIPART_H
#define HTTP_MULTIPART_H
#include <stdbool.h>
#include <stddef.h>
#include "core/err.h"
/* multipart -- multipart/form-data (RFC 7578), streaming: bytes in as they come, parts out as they are.
 * Limits: boundary 70 bytes, part head 8 KiB, 1000 parts. filename keeps its folders; filename* (RFC 5987 UTF-8) wins. */
struct http_multipart;
struct http_part { const char *name, *filename /* NULL = a plain field */, *type /* NULL */; };
struct http_multipart_cb {
	/* A negative return stops the parser with it. Strings are good inside begin only. */
	int (*begin)(void *ctx, const struct http_part *part);
	int (*data)(void *ctx, const char *p, size_t n);
	int (*end)(void *ctx);
};
/* content_type: the request's field. -EINVAL when it isn't multipart/form-data with a good boundary. */
int http_multipart_create(const char *content_type, const struct http_multipart_cb *cb, void *ctx, struct http_multipart **ret, struct err *e);
void http_multipart_free(struct http_multipart *m);
int http_multipart_feed(struct http_multipart *m, const char *p, size_t n, struct err *e);   /* 0 or negative, once and for all */
int http_multipart_finish(struct http_multipart *m, struct err *e);                          /* -EBADMSG when the closing boundary is missing */
#endif
