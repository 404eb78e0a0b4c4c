#ifndef CLIENT_CLIENT_PRIV_H
#define CLIENT_CLIENT_PRIV_H
#include "client/client.h"
#include "core/buf.h"
#include "http/client.h"
#define CLIENT_BODY_MAX (32u << 20)        /* an answer, at most */
#define CLIENT_LINE_MAX (1u << 20)         /* a line of a stream, at most */

struct client {
	struct loop *loop;
	struct client_where where;
	struct http_client *http;
	int64_t patience_ms;
	char bearer[300];
};

/* One HTTP exchange with its retries. Embedded in nothing: client_call is it. */
struct client_call {
	struct client *c;
	char *method, *url;
	struct buf body;
	const char *type;           /* Content-Type, NULL = none */
	int fd;                     /* body from here when >= 0 (put), or the answer goes here (get) */
	bool send_fd, recv_fd, once, repeatable, follow;
	uint64_t len, moved;
	int64_t at;                 /* offset of fd when the call was made */
	int64_t give_up;            /* mono ms */
	int64_t sent;               /* mono ms: when this try began */
	unsigned tries, long_tries;
	int status;
	int64_t retry_ms, total;
	struct http_call *http;
	struct timer wait;
	struct buf answer;
	struct err err;             /* set: how it failed before the exchange was over */
	void (*progress)(void *ctx, uint64_t done, uint64_t total);
	void (*line)(void *ctx, const char *p, size_t n);     /* a stream's lines (follow) */
	client_fn_done;
	void *ctx;
};
struct client_call *call_new(struct client *c, const char *method, const char *path, json_t *query /* borrowed */);
struct client_call *call_start(struct client_call *k, client_fn_done, void *ctx);   /* k may be NULL (no memory) */
#endif
