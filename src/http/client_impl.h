#ifndef HTTP_CLIENT_IMPL_H
#define HTTP_CLIENT_IMPL_H
#include "core/list.h"
#include "http/client.h"
#include "http/reader.h"
#include "http/url.h"
/* Inside http only: client.c (the client, spare connections, the blocking call), call.c (one request), resolve.c. */

enum { HTTP_ADDRS = 6, HTTP_ADDR_LEN = 64 };
struct http_addrs { unsigned n; char addr[HTTP_ADDRS][HTTP_ADDR_LEN]; };       /* numeric "host:port" */

/* Names to addresses in a child process. done is called from the loop, not after http_resolve_stop. */
struct http_resolve {
	struct loop *loop;
	struct source src;
	int pid;
	uint16_t port;
	size_t len;
	char text[HTTP_ADDRS * HTTP_ADDR_LEN];
	void (*done)(struct http_resolve *q, const struct http_addrs *a);       /* a->n == 0: no such name */
};
/* A number or "localhost": filled at once, no child. -ENOENT = needs http_resolve_start. */
int http_resolve_now(const char *host, uint16_t port, struct http_addrs *ret);
int http_resolve_start(struct http_resolve *q, struct loop *l, const char *host, uint16_t port, struct err *e);
void http_resolve_stop(struct http_resolve *q);

struct http_spare {
	struct list link;
	struct http_client *client;
	struct http_stream *st;
	int64_t since;
	char origin[];
};

struct http_client {
	struct loop *loop;
	SSL_CTX *tls;                   /* made when first needed */
	char *ca_file, *user_agent;
	int64_t connect_ms, idle_ms;
	unsigned max_spare;
	struct list calls, spares;      /* spares: oldest first */
	struct timer sweep;
};
struct http_stream *http_spare_take(struct http_client *c, const char *origin);
void http_spare_put(struct http_client *c, const char *origin, struct http_stream *st);
int http_client_tls(struct http_client *c, SSL_CTX **ret, struct err *e);

struct http_call {
	struct list link;               /* in client->calls */
	struct http_client *client;
	struct http_call_spec s;        /* strings of it aren't used after the start */
	struct http_url url;
	char method[33], connect_to[128];
	char *origin;
	struct http_addrs addrs;
	unsigned next_addr;
	struct http_resolve resolve;
	struct http_stream *st;
	struct http_reader rd;
	struct buf request;             /* head and body bytes, kept while it may have to be sent again */
	size_t sent;                    /* of it */
	off_t file_start, file_off;
	uint64_t file_left;
	struct timer timer;
	struct job job;
	int64_t last;
	bool connected, reused, paused, deaf, running, dead, ended;
	struct err err;
};
#endif
