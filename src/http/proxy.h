#ifndef HTTP_PROXY_H
#define HTTP_PROXY_H
#include "http/server.h"
/* proxy -- forwards one request to an upstream that is already connected, and its answer back.
 *
 * Bodies stream both ways with back-pressure (splice when both ends are plain and nothing looks inside). Fields
 * of one connection are removed. An upgrade that the upstream accepts (101), becomes a tunnel until both sides are done; so
 * does CONNECT, which isn't forwarded (the upstream is what it asked for). When the client goes away the upstream is closed, and the other way round.
 *
 * done is called exactly once, from the loop:
 *   HTTP_PROXY_OK      answered in full (for an upgrade: the tunnel has ended); r is over
 *   HTTP_PROXY_FAILED  no byte of an answer was sent: r waits for the caller's reply (502)
 *   HTTP_PROXY_CUT     it broke in the middle, or the client left; r is over
 * r is passed for FAILED and NULL otherwise.
 * The proxy uses r's on_end and body for itself: the caller mustn't have set or begun them. */
enum http_proxy_result { HTTP_PROXY_OK, HTTP_PROXY_FAILED, HTTP_PROXY_CUT };
enum http_edit { HTTP_EDIT_KEEP, HTTP_EDIT_REPLACE, HTTP_EDIT_DROP };

struct http_proxy_opts {
	int fd;                             /* connected socket, taken; or -1 and: */
	struct http_stream *upstream;       /* taken; may still be connecting or in its TLS handshake */
	const char *host;                   /* Host to send; NULL = the client's */
	const char *target;                 /* target to send; NULL = the client's (from the path on) */
	bool forwarded;                     /* set X-Forwarded-For, -Host, -Proto (the client's own are dropped) */
	const char *const *drop;            /* request fields not to forward, lower case, NULL-terminated; NULL = none */
	const char *const *add;             /* more request fields: name, value, ..., NULL */
	unsigned head_ms;                   /* wait for the response's head; 0 = no limit */
	void (*done)(void *ctx, struct http_req *r, enum http_proxy_result result, const char *why);
	void *ctx;
	/* The upstream offered to be used again: the connection is the callee's, who watches it (http_stream_on, http_stream_want) for its end.
	 * NULL = it is asked to close. */
	void (*spare)(void *ctx, struct http_stream *upstream);
	/* For who looks inside (the door); all may be NULL. edit sees each forwarded field (lower-case name) and may write another
	 * value to out; a negative errno refuses the message (FAILED or CUT). body replaces the bytes by what it writes to out
	 * (end: last call; it may hold bytes back until then); messages with one are sent chunked. */
	int (*edit)(void *ctx, bool response, const char *name, const char *value, struct buf *out);
	int (*body)(void *ctx, bool response, const char *p, size_t n, bool end, struct buf *out);
};
struct http_proxy;
/* Everything in o is copied or used at once but fd, upstream and ctx. On failure (negative) r still waits for a reply, fd is closed
 * and done isn't called. *ret (may be NULL) is good until done. */
int http_proxy_start(struct http_req *r, const struct http_proxy_opts *o, struct http_proxy **ret, struct err *e);
void http_proxy_abort(struct http_proxy *p);    /* resets both sides (a killed computer); done(HTTP_PROXY_CUT) follows from the loop */
#endif
