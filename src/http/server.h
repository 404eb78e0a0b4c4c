#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/buf.h"
#include "core/err.h"
#include "core/loop.h"
#include "http/parse.h"
#include "http/stream.h"
/* server -- HTTP/1.1 over the loop: listeners, requests, bodies, replies. No routes, no policy.
 *
 * A request's life, by what the handler may do:
 *
 *   handler called ──► read the body (one of http_req_read, _collect, _to_fd), or not at all
 *        │                    │
 *        ▼                    ▼
 *   reply: http_reply*  (whole)   or   http_reply_start, http_write*, http_end   or   http_takeover   or   http_abort
 *        │
 *        ▼
 *   on_end(why): exactly once, from the loop and never from inside a call made here. After it `r` is another
 *   request's or nobody's: who keeps `r` beyond the handler sets on_end and forgets r there.
 *
 * A handler that returns without having replied, begun to read or set on_end gets 500 sent for it. Body callbacks
 * stop at on_end. When the client goes away (also in the middle of a quiet stream), on_end(HTTP_GONE) comes; calls on r
 * in between do nothing and return -EPIPE. Strings from http_req_*() live until on_end.
 * Connections are kept alive; pipelined requests wait until the one before them has ended. */
struct http_server;
struct http_req;

enum http_why {
	HTTP_DONE,          /* the whole reply is in the kernel's hands */
	HTTP_GONE,          /* the client went away, timed out or broke the protocol in its body */
	HTTP_ABORTED,       /* http_abort() */
	HTTP_TAKEN,         /* http_takeover(): the stream is the taker's */
};

struct http_server_opts {
	void (*on_request)(void *ctx, struct http_req *r);
	/* Answers with an error that the server itself found, in the words of whoever serves; path is "" when no head could be read. NULL: text/plain. */
	void (*on_refuse)(void *ctx, struct http_req *r, int status, const char *path, const char *why);
	void *ctx;
	unsigned max_conns;          /* 0 = 4096; more are accepted and closed at once */
	size_t max_pending;          /* 0 = 1 MiB: bytes http_write may queue per connection */
	unsigned head_ms;            /* 0 = 30 s, for a whole head, TLS handshake included */
	unsigned idle_ms;            /* 0 = 75 s between requests */
	unsigned stall_ms;           /* 0 = 300 s without a byte of a body we want, or of a reply that is due; quiet streams never stall */
	const char *server_name;     /* Server field; NULL = none */
};
int http_server_create(struct loop *l, const struct http_server_opts *o, struct http_server **ret, struct err *e);
void http_server_free(struct http_server *s);            /* closes listeners and connections; on_end(HTTP_ABORTED) for live requests, inside this call */
void http_server_drain(struct http_server *s);           /* stop listening; connections close after their current request */
unsigned http_server_conns(const struct http_server *s);

struct http_listen {
	const char *address;         /* "127.0.0.1:7070", "[::1]:0", "unix:/run/x.sock" (a dead socket file is replaced; 0600) */
	int fd;                      /* used instead when address is NULL: a listening socket, taken over */
	SSL_CTX *tls;                /* NULL = plain; the caller's reference, kept until http_server_free */
	void *tag;                   /* http_req_tag() */
};
/* *ret_address (may be NULL): the bound address with its real port. */
int http_server_listen(struct http_server *s, const struct http_listen *li, char *ret_address, size_t size, struct err *e);
/* Serves one connected socket / stream (e.g. accepted or unwrapped elsewhere). Takes it. tls as above. */
int http_server_serve(struct http_server *s, int fd, SSL_CTX *tls, void *tag, struct err *e);
int http_server_serve_stream(struct http_server *s, struct http_stream *st, void *tag, struct err *e);

/* ---- request ---- */
const char *http_req_method(const struct http_req *r);
bool http_req_is(const struct http_req *r, const char *method);
const char *http_req_path(const struct http_req *r);           /* decoded; "" for CONNECT, "*" for OPTIONS * */
const char *http_req_target(const struct http_req *r);         /* as sent (absolute form: from the path on) */
const char *http_req_raw_query(const struct http_req *r);      /* after '?', or "" */
const char *http_req_query(struct http_req *r, const char *name);  /* decoded, first; NULL = absent or undecodable */
/* A pair with a bad escape or a NUL is left out of these; whoever would act differently without it asks http_req_query_bad(). */
bool http_req_query_bad(struct http_req *r);
bool http_req_query_at(struct http_req *r, unsigned i, const char **ret_name, const char **ret_value);
const char *http_req_header(const struct http_req *r, const char *lower_name);  /* first; NULL = absent */
const char *http_req_host(const struct http_req *r);           /* Host, or the authority of an absolute or CONNECT target; "" */
const struct http_head *http_req_head(const struct http_req *r);
bool http_req_tls(const struct http_req *r);
bool http_req_is_loopback(const struct http_req *r);           /* peer is 127/8, ::1 or a unix socket */
const char *http_req_peer(const struct http_req *r);           /* "127.0.0.1", "::1", "unix" */
void *http_req_tag(const struct http_req *r);
struct http_stream *http_req_stream(struct http_req *r);       /* to look at (peer credentials, SSL), not to use */
struct loop *http_req_loop(const struct http_req *r);
int64_t http_req_body_length(const struct http_req *r);        /* -1 = chunked, not known */

void http_req_on_end(struct http_req *r, void (*fn)(void *ctx, struct http_req *r, enum http_why why), void *ctx);

/* ---- body: one of these, once ---- */
/* Each run of bytes, then end. Bytes are only good inside the call. Sends 100 Continue when it is expected. */
void http_req_read(struct http_req *r, void (*data)(void *ctx, struct http_req *r, const char *p, size_t n),
	void (*end)(void *ctx, struct http_req *r), void *ctx);
void http_req_pause(struct http_req *r);                       /* no data callback until resume; the client is held back */
void http_req_resume(struct http_req *r);
/* The whole body in memory, NUL behind it; over max = 413 is answered here (on_refuse) and done isn't called. p is the server's, until on_end. */
void http_req_collect(struct http_req *r, size_t max, void (*done)(void *ctx, struct http_req *r, char *p, size_t n), void *ctx);
/* Into a regular file at its current offset, in constant memory (splice from plain sockets). result: bytes, or -errno:
 * -ENOSPC, -EFBIG (over max), ... and the caller replies. fd stays the caller's and must stay open until done or on_end. */
void http_req_to_fd(struct http_req *r, int fd, uint64_t max, void (*done)(void *ctx, struct http_req *r, int64_t result), void *ctx);

/* ---- reply ---- */
/* A field for the reply to come. -EINVAL for a name or value that can't be one, -ENOSPC over 16 KiB of fields. */
int http_set(struct http_req *r, const char *name, const char *value);
int http_setf(struct http_req *r, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Whole replies. type NULL = no Content-Type. Bytes are copied only when the socket doesn't take them. */
void http_reply(struct http_req *r, int status, const char *type, const void *body, size_t n);
void http_replyf(struct http_req *r, int status, const char *type, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void http_reply_buf(struct http_req *r, int status, const char *type, struct buf *b);   /* takes b's memory, b is emptied */
/* len bytes of fd from off, by sendfile; fd is taken (closed later). A HEAD request gets the head only. */
void http_reply_fd(struct http_req *r, int status, const char *type, int fd, uint64_t off, uint64_t len);
/* A regular file with Last-Modified, ETag, Range, If-Range, If-None-Match, If-Modified-Since; a file whose size is 0 by
 * fstat (/proc) is read to its end (at most 16 MiB). fd is taken. */
void http_reply_file(struct http_req *r, const char *type, int fd);

/* Streams. length -1 = unknown (chunked, or until close for 1.0). Written bytes leave together at the end of the loop's turn or
 * when they are many; http_flush sends now. http_write queues all or nothing: returns bytes now pending, -ENOSPC (over
 * max_pending: use http_on_drain) or -EPIPE. */
int http_reply_start(struct http_req *r, int status, const char *type, int64_t length);
ssize_t http_write(struct http_req *r, const void *p, size_t n);
void http_flush(struct http_req *r);
void http_end(struct http_req *r);
size_t http_pending(const struct http_req *r);
/* fn is called from the loop each time pending falls to at most low bytes after having been above. One at a time; NULL clears. */
void http_on_drain(struct http_req *r, size_t low, void (*fn)(void *ctx, struct http_req *r), void *ctx);
bool http_replied(const struct http_req *r);                   /* a reply was begun */
bool http_is_gone(const struct http_req *r);                   /* the client went away; on_end is coming */
void http_close_after(struct http_req *r);                     /* no keep-alive after this reply */

/* Ends the connection with a TCP reset, whatever was sent (a killed computer's streams). */
void http_abort(struct http_req *r);

/* The connection is yours after this head: 101 (with Upgrade and Connection set by the caller through http_set) or 200 for CONNECT.
 * Bytes that the client already sent are unread in the stream. Only when the request's body is empty or has been read.
 * *ret is NULL and -EPIPE when the client is gone. on_end(HTTP_TAKEN) follows. */
int http_takeover(struct http_req *r, int status, struct http_stream **ret);

/* Server-sent events: begins one (200, text/event-stream, no-cache), and one event. id and event may be NULL; data may have lines. */
int http_sse_start(struct http_req *r);
ssize_t http_sse(struct http_req *r, const char *event, const char *id, const char *data, size_t n);
#endif
