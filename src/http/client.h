#ifndef HTTP_CLIENT_H
#define HTTP_CLIENT_H
#include "core/buf.h"
#include "core/err.h"
#include "core/loop.h"
#include "http/parse.h"
#include "http/stream.h"
/* client -- HTTP/1.1 requests on the loop. http:// and https:// (verified), idle connections used again.
 * Redirects are not followed. Names are resolved in a child process, so the loop never waits for DNS. */
struct http_client;
struct http_call;

struct http_client_opts {
	const char *ca_file;         /* NULL = the system's CAs */
	unsigned connect_ms;         /* 0 = 20 s: name, connection, TLS */
	unsigned idle_ms;            /* 0 = 300 s without a byte in either direction while a call runs; no limit on the whole */
	unsigned max_spare;          /* 0 = 2: idle connections kept per origin, for 60 s */
	const char *user_agent;      /* NULL = "bureau/VERSION" */
};
int http_client_create(struct loop *l, const struct http_client_opts *o, struct http_client **ret, struct err *e);
void http_client_free(struct http_client *c);   /* cancels what runs; no callbacks */

struct http_call_spec {
	const char *method, *url;
	const char *connect_to;      /* "unix:/path" or "address:port" instead of the URL's host; NULL */
	const char *const *headers;  /* name, value, ..., NULL; may override Host, User-Agent, Accept */
	const void *body; size_t body_len;     /* copied */
	int body_fd;                 /* used when body is NULL and has_body_fd: body_fd_len bytes from its current offset; stays the caller's */
	bool has_body_fd; uint64_t body_fd_len;
	bool once;                   /* never sent twice: on a fresh connection, and what breaks there is over. For requests that do something */
	/* Called from the loop, in this order. head: final response head (1xx are skipped). data may be NULL (dropped). end comes exactly once
	 * unless cancelled; err is NULL on success. The call is freed after end. */
	void (*head)(void *ctx, struct http_call *k, int status, const struct http_head *h);
	void (*data)(void *ctx, struct http_call *k, const char *p, size_t n);
	void (*end)(void *ctx, struct http_call *k, const struct err *err);
	void *ctx;
};
int http_call_start(struct http_client *c, const struct http_call_spec *s, struct http_call **ret, struct err *e);
void http_call_pause(struct http_call *k);
void http_call_resume(struct http_call *k);
void http_call_cancel(struct http_call *k);     /* closes and frees; no callback after this */

/* For programs that do one thing at a time: blocks. headers as above or NULL; connect_to and ca_file may be NULL. Over max_body is -EFBIG.
 * 0 and *ret_status whatever the status is; *ret_body is NUL-terminated, free() it. */
int http_client_call(const char *method, const char *url, const char *connect_to, const char *ca_file, const char *const *headers,
	const void *body, size_t body_len, size_t max_body, int *ret_status, char **ret_body, size_t *ret_len, struct err *e);
#endif
