#ifndef HTTP_SERVER_IMPL_H
#define HTTP_SERVER_IMPL_H
#include <netinet/in.h>
#include "core/list.h"
#include "http/server.h"
#include "http/stream_impl.h"
/* Inside http only: what server.c, conn.c, body.c, reply.c, file.c and req.c share.
 *
 * A struct http_req is a connection; at any time it has at most one live request.
 *
 *   HEAD ──whole head──► REQ ──reply sent, body read──► HEAD          (keep-alive)
 *     │                   ├──reply sent, close──► LINGER ──EOF or 3 s──► DEAD
 *     └──EOF, timeout─────┴──gone, abort, taken──────────────────────► DEAD  (freed by a job)
 *
 * conn_run() is the only function that moves between phases; it runs from the stream's events, from the server's timer and from
 * the connection's job, never from inside a call that a handler made (those only note and call conn_kick). */

enum { IN_SIZE = 32768, SMALL_ARENA = 1024, OUT_KEEP = 2048, COALESCE = 16384, TURN_BUDGET = 1 << 20, DISCARD_MAX = 256 << 10,
	POOL_MAX = 64, SET_MAX = 20480, LINGER_MS = 3000 };

enum http_phase { PHASE_HEAD, PHASE_REQ, PHASE_LINGER, PHASE_DEAD };
enum http_wait { WAIT_IDLE, WAIT_HEAD, WAIT_STALL, WAIT_LINGER, WAIT_KINDS, WAIT_NONE = WAIT_KINDS };

struct http_server {
	struct loop *loop;
	struct http_server_opts o;
	struct list listeners, dead;            /* dead: connections whose job will free them */
	struct list quiet;                      /* connections that wait for nothing that has a limit */
	struct list wait[WAIT_KINDS];           /* oldest first, so the head is the next to time out */
	int64_t limit[WAIT_KINDS];
	struct timer timer;
	unsigned nconns;
	bool draining;
	char *pool[POOL_MAX];
	unsigned npool;
	int64_t date_at;                        /* Unix second that date holds */
	char date[32];
	struct http_pipe pipe;                  /* for bodies into files; empty between turns */
};

struct http_req {
	struct http_server *srv;
	struct http_stream *st;                 /* NULL once closed or taken */
	struct list link;                       /* in srv->wait[kind] or srv->quiet */
	enum http_wait kind;
	int64_t since;
	struct job job;
	void *tag;
	union { struct sockaddr sa; struct sockaddr_in v4; struct sockaddr_in6 v6; } peer;
	char peer_text[48];
	enum http_phase phase;
	bool running;                           /* conn_run is on the stack */
	bool may_read;                          /* epoll said so and no read has come back short since */
	bool moved;                             /* bytes went in or out: restarts the wait's clock */
	bool finished;                          /* the reply is sent, on_end was called */
	bool served;                            /* a first request came: from now on idle, not late */
	bool peer_shut;                         /* its FIN came while a request was live */
	bool failed;                            /* over; why tells how */
	enum http_why why;
	unsigned want;                          /* as told to the stream */

	char *in;                               /* from the pool, only while it holds something */
	uint32_t in_off, in_len, scanned;

	/* the request */
	struct http_head head;
	char *arena, small[SMALL_ARENA];        /* head, decoded path */
	char *path, *host;
	char *query;                            /* decoded pairs, each NUL-terminated; made when first asked for */
	unsigned nquery;
	bool query_bad;         /* a pair of it couldn't be decoded */
	char method_head;                       /* HEAD: no body in the reply */
	void (*on_end)(void *ctx, struct http_req *r, enum http_why why);
	void *on_end_ctx;

	/* its body */
	void (*on_data)(void *ctx, struct http_req *r, const char *p, size_t n);
	void (*on_body_end)(void *ctx, struct http_req *r);
	/* Instead of on_data for a long plain run: takes up to max bytes from the socket itself. > 0, 0 = not now (on_data gets them),
	 * -EAGAIN, -ENODATA = end of input, other = broken. */
	ssize_t (*on_splice)(void *ctx, struct http_req *r, size_t max);
	void *body_ctx;
	bool body_wanted, body_done, paused, discarding, continue_due;
	uint64_t body_left, discarded;
	struct http_chunked chunked;
	struct buf collect;
	size_t collect_max;
	void (*collect_done)(void *ctx, struct http_req *r, char *p, size_t n);
	int to_fd;                              /* -1, or body_wanted and: */
	uint64_t to_max, to_got;
	int to_err;
	bool to_copy;                           /* this file can't be spliced to */
	void (*to_done)(void *ctx, struct http_req *r, int64_t result);

	/* the reply */
	struct buf set, out;
	bool has_date, has_server, has_type, close_after;
	bool replied, ended, chunked_out, no_body, blocked /* the socket takes no more */;
	int64_t out_left;                       /* bytes still due of a known length; -1 = not known */
	int file;                               /* -1, or what follows out: a file, or the proxy's pipe */
	bool file_is_pipe;
	off_t file_off;
	uint64_t file_left;
	struct http_pipe *pipe;
	void (*on_drain)(void *ctx, struct http_req *r);
	void *drain_ctx;
	size_t drain_low;
	bool above;
};

/* conn.c */
int http_conn_new(struct http_server *s, struct http_stream *st, const struct sockaddr *sa, socklen_t len, void *tag, struct err *e);
void http_conn_run(struct http_req *c);
void http_conn_kick(struct http_req *c);                /* run soon, from the loop */
void http_conn_fail(struct http_req *c, enum http_why why);     /* notes it; closes in conn_run */
void http_conn_free(struct http_req *c);                /* at once: server's end only */
char *http_pool_get(struct http_server *s);
void http_pool_put(struct http_server *s, char *p);

/* conn.c, reading: > 0, 0 = end of input, -EAGAIN, other = broken */
ssize_t http_conn_read(struct http_req *c);

/* req.c */
int http_req_begin(struct http_req *c, size_t head_len, const char **ret_why);  /* parses in c->in; 0 or a status */
void http_req_reset(struct http_req *c);
void http_req_refuse(struct http_req *c, int status, const char *path, const char *why);   /* on_refuse, or text */
void http_req_forget(struct http_req *c);               /* no callback of any kind any more */

/* body.c: 1 = progress, 0 = waits, negative = the connection is over */
int http_body_run(struct http_req *c);

/* reply.c */
int http_flush_out(struct http_req *c);                 /* 0 = all sent, -EAGAIN, other = broken */
bool http_sent(const struct http_req *c);               /* the reply is complete and with the kernel */
bool http_hopeless(const struct http_req *c);           /* the unread rest of the body isn't worth reading */
int http_reply_head(struct http_req *c, int status, const char *type, int64_t length);
void http_send_continue(struct http_req *c);
/* n bytes that lie in p follow what was written; the reply must be raw (not chunked) and the socket plain. */
void http_write_pipe(struct http_req *r, struct http_pipe *p);
bool http_can_splice(const struct http_req *r);
#endif
