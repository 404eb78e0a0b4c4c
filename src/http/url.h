#ifndef HTTP_URL_H
#define HTTP_URL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/buf.h"
#include "core/err.h"
/* url -- absolute http(s) URLs, paths and queries. */
struct http_url {
	bool tls;
	char host[256];          /* without brackets, lower case */
	uint16_t port;
	char authority[272];     /* as the Host field wants it: port only when not the default */
	const char *target;      /* path and query inside the string given ("" = "/"), fragment not cut off... */
	size_t target_len;       /* ...but not counted here */
};
/* http:// or https://, no user info. -EINVAL. */
int http_url_parse(const char *s, struct http_url *ret, struct err *e);

/* Splits "host", "host:port", "[v6]:port". port = 0 when absent. -EINVAL. */
int http_split_host(const char *s, size_t n, char *ret_host, size_t size, uint16_t *ret_port);

/* Percent-decodes the path of a target (up to '?') into out, NUL-terminated; out has room for n + 1. Returns its length, or
 * -EINVAL for a bad escape, a NUL or a control byte. Dot segments are left as they are: routes match them literally. */
int http_path_decode(const char *target, size_t n, char *out);

/* Walks a query ("a=1&b=2", no '?'): *pos starts as 0. Decodes one pair into name and value (each with room for n + 1;
 * '+' is a space). Returns 1, or 0 at the end, or -EINVAL for a bad escape or NUL in that pair (the walk can go on). */
int http_query_next(const char *q, size_t n, size_t *pos, char *name, char *value);
#endif
