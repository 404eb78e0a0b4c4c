#ifndef HTTP_PROXY_IMPL_H
#define HTTP_PROXY_IMPL_H
#include "http/proxy.h"
#include "http/reader.h"
#include "http/server_impl.h"
/* Inside http only: proxy.c (flows and ends) and proxy_head.c (heads, upgrades). */
struct http_proxy {
	struct http_req *r;             /* NULL once it's over */
	struct http_stream *up;         /* NULL once closed or given away */
	struct loop *loop;
	struct http_proxy_opts o;
	struct http_reader rd;
	struct buf out;                 /* to the upstream */
	struct http_pipe pipe;          /* the answer, from the upstream to r */
	struct http_pipe up_pipe;       /* the request's body, behind out */
	struct http_tunnel *tunnel;
	struct timer timer;
	struct job job;
	bool connect, req_chunked, req_done, paused;
	bool deaf;                      /* the upstream reads no more */
	bool held;                      /* the answer waits until r has drained */
	bool answered, filtered_end, spoiled, aborted, over;
	enum http_proxy_result outcome;
	const char *why;
};
void http_proxy_over(struct http_proxy *p, enum http_proxy_result outcome, const char *why);
void http_proxy_tunnel_done(void *ctx, uint64_t a_to_b, uint64_t b_to_a);
int http_proxy_request_head(struct http_proxy *p, struct err *e);
int http_proxy_set_fields(struct http_proxy *p, const struct http_head *h);    /* the answer's, into r */
int http_proxy_upgrade(struct http_proxy *p);           /* always -1: the proxy is over or a tunnel */
#endif
