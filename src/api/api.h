#ifndef API_API_H
#define API_API_H
#include <stdbool.h>
#include "core/err.h"
#include "http/server.h"
#include "ops/ops.h"
/* api -- protocols to operations and back. Dialects translate, they don't decide: rights, states and limits are in ops/.
 *
 * api_handle() is the HTTP server's on_request. It tries, in order: the E2B dialect (its own routes, its own headers, hosts of the
 * form PORT-ID.DOMAIN), then our REST API (/v1, /health). Everything else is 404. */
struct e2b;
struct api {
	struct loop *loop;
	struct ops *ops;
	const char *domain;      /* hosts PORT-ID.domain belong to sandboxes; may have ":port"; NULL = none. Given out by create */
	bool no_key;             /* started with --no-key: whoever reaches us on loopback may do everything */
	struct e2b *e2b;         /* state of the E2B dialect: e2b_create */
};

void api_handle(void *api, struct http_req *r);
/* Its on_refuse: what the HTTP server itself refuses (a head it can't read, too large a body) has the shape of the API that was meant. */
void api_refuse(void *api, struct http_req *r, int status, const char *path, const char *why);

/* The E2B dialect (e2b_*.c). e2b_try: false = not one of its requests, nothing was done to r. */
int e2b_create(struct api *a, struct err *e);
void e2b_free(struct api *a);
bool e2b_try(struct api *a, struct http_req *r);

/* Our own API (rest*.c); answers every request. */
void rest_handle(struct api *a, struct http_req *r);
void rest_refuse(struct http_req *r, int status, const char *path, const char *why);

/* Who is asking by Authorization: Bearer KEY or X-API-KEY; with no_key whoever asks. 0, or -EACCES. */
int api_auth(struct api *a, struct http_req *r, struct principal *ret, struct err *e);
/* Is what Authorization carries a key or token of ours? A program in a sandbox must not get it. */
bool api_auth_is_ours(struct api *a, const struct http_req *r);
/* Pages of other sites must not reach us: a browser's request (it has Origin, or Sec-Fetch-Site) is only taken when it comes from
 * our own pages, and without a key the Host must be a loopback name (DNS rebinding). 0, or -EPERM. */
int api_same_site(struct api *a, struct http_req *r, struct err *e);

#endif
