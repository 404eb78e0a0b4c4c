#ifndef API_E2B_REQ_H
#define API_E2B_REQ_H
#include "api/api.h"
#include "api/e2b_wire.h"
#include "core/list.h"
#include "core/map.h"
/* e2b_req -- one request of the E2B dialect: who asks, for which sandbox, and the operation that runs for it.
 *
 * Life: e2b_req_open() makes it (larger when the caller embeds it at the start of its own struct) and takes the request's
 * on_end; it is freed there, after drop(). Operations are asked one after another with e2b_ask(); a request that ends cancels
 * the one that runs, so no answer comes for a request that is gone. */

enum e2b_face { E2B_FACE_REST, E2B_FACE_RPC };   /* how failures look: {"code":404} or {"code":"not_found"} */

struct e2b_step;
struct e2b_req {
	struct api *api;
	struct http_req *r;
	struct e2b_step *step;           /* the operation that runs */
	struct principal who;
	char who_name[96];
	char id[E2B_ID_SIZE];            /* the sandbox, or "" */
	uint16_t port;
	enum e2b_face face;
	bool data_plane;
	char user[64];                   /* acting user, "" = the default one */
	char what[128];                  /* what an operation was about, for not-found texts */
	void (*drop)(struct e2b_req *q);
};

struct e2b_sink {
	void (*event)(struct e2b_req *q, const json_t *event);
	void (*data)(struct e2b_req *q, enum op_stream s, const void *p, size_t n);
	void (*done)(struct e2b_req *q, const struct err *e, const json_t *res, int fd);
};

/* size: of the struct that begins with e2b_req. from (may be NULL): the request as far as it's known, copied; it lives on the
 * caller's stack. NULL: no memory, and 503 has been answered. */
struct e2b_req *e2b_req_open(struct api *a, struct http_req *r, size_t size, const struct e2b_req *from);
/* The same request in a larger struct; q is gone after it. NULL as above. */
struct e2b_req *e2b_req_grow(struct e2b_req *q, size_t size);
/* For who hands r on to somebody that wants on_end for himself (the proxy): q is freed, r is untouched. */
void e2b_req_release(struct e2b_req *q);
void e2b_req_as(struct e2b_req *q, const struct principal *p);

/* {id, user?} as the start of an operation's arguments. */
json_t *e2b_args(const struct e2b_req *q);
void e2b_run(struct e2b_req *q, const char *op, json_t *args, const void *data, size_t len, const struct e2b_sink *to);
/* The simple case: only the end matters. */
void e2b_ask(struct e2b_req *q, const char *op, json_t *args,
	void (*done)(struct e2b_req *q, const struct err *e, const json_t *res, int fd));
void e2b_credit(struct e2b_req *q, uint32_t bytes);

/* ---- replies ---- */
void e2b_json(struct e2b_req *q, int status, json_t *v);      /* takes v */
void e2b_empty(struct e2b_req *q, int status);
/* {"code":status,"message":text} */
void e2b_status(struct http_req *r, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A failed operation, in the request's face. A sandbox that is gone is 502 on the data plane. */
void e2b_fail(struct e2b_req *q, const struct err *e);
void e2b_fail_word(struct e2b_req *q, const char *word, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Connect's word and the text for a failed operation of this request. */
const char *e2b_error_text(const struct e2b_req *q, const struct err *e, char *text, size_t size);
bool e2b_no_user(const struct err *e);           /* it failed because the acting user isn't one of the sandbox */
/* 502: the sandbox isn't there (any more), or nobody listens on the port. */
void e2b_gone(struct http_req *r, const char *id);
void e2b_port_closed(struct http_req *r, const char *id, uint16_t port);
bool e2b_is_gone(const struct e2b_req *q);       /* the sandbox has ended or is ending */

/* ---- the parts ---- */
struct e2b {
	struct api *api;
	struct map *watchers;            /* id → struct watcher */
	struct list watcher_list;        /* oldest poll first */
	unsigned nwatchers;
	struct timer sweep;
	struct map *once;                /* Idempotency-Key → struct once */
	struct list once_list;           /* oldest first */
};
bool e2b_control(struct api *a, struct http_req *r);             /* false: not a route of the control plane */
void e2b_port(struct api *a, struct http_req *r, const struct e2b_addr *to);
/* Below, `from` is the authenticated request on its caller's stack. */
void e2b_download(struct api *a, struct http_req *r, const struct e2b_req *from);
void e2b_upload(struct api *a, struct http_req *r, const struct e2b_req *from);
void e2b_rpc(struct api *a, struct http_req *r, const struct e2b_req *from);
void e2b_input_stream(struct api *a, struct http_req *r, const struct e2b_req *from);
/* The streaming methods, once their one message is there; q ends here and another takes its place. msg is borrowed. */
void e2b_stream_start(struct e2b_req *q, const json_t *msg);
void e2b_stream_connect(struct e2b_req *q, const json_t *msg);
void e2b_stream_watch(struct e2b_req *q, const json_t *msg);
/* SendInput. */
void e2b_input(struct e2b_req *q, const json_t *msg);
/* CreateWatcher, GetWatcherEvents, RemoveWatcher. */
void e2b_watcher_create(struct e2b_req *q, const json_t *msg);
void e2b_watcher_events(struct e2b_req *q, const json_t *msg);
void e2b_watcher_remove(struct e2b_req *q, const json_t *msg);
void e2b_watchers_free(struct e2b *d);

/* ---- Idempotency-Key ---- */
enum e2b_once { E2B_ONCE_NEW, E2B_ONCE_BUSY, E2B_ONCE_MADE };
bool e2b_once_key(const char *key);              /* is it one? */
/* NEW: nobody asked with this key: make it, then say so with e2b_once_end(). MADE: *ret_id is what was made. */
enum e2b_once e2b_once_begin(struct e2b *d, const char *key, char ret_id[E2B_ID_SIZE]);
void e2b_once_end(struct e2b *d, const char *key, const char *id);   /* id NULL: it failed, the key is free again */
void e2b_once_free(struct e2b *d);

/* ---- shared by the process methods ---- */
/* The "process" selector into args (pid or tag) and q->what; false: it's missing, answered. */
bool e2b_select(struct e2b_req *q, const json_t *msg, json_t *args);
/* 0 = header absent, else its milliseconds (bounded). -EINVAL: not a number. */
int64_t e2b_connect_timeout(struct http_req *r);
/* Envelopes are made here, one at a time: never kept over a return to the loop. */
struct buf *e2b_scratch(void);
#endif
