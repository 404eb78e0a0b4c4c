#ifndef OPS_OPS_H
#define OPS_OPS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
#include "core/json.h"
/* ops -- the operation table: the only door from any protocol (REST, E2B, MCP…) to computers.
 *
 * schema/ops/NAME.json describes each operation once (arguments, result, route, right, legal states); tools/gen-ops makes
 * the table, routes, docs/API.md and CLI help from it. An operation's call checks: the arguments against the schema
 * (unknown members refused), the right of the principal, that the computer exists and is in a legal state, quota; then runs
 * the handler; writes one audit line for acts; and answers through a sink. Dialects translate, they don't decide.
 *
 * Life of a call: ops_run() starts it. The sink gets any number of event()/data() and then exactly one done(), perhaps
 * before ops_run() returns. After done() the call is over. ops_cancel() ends it early without done(): a client that went
 * away (detaches streams; a running program goes on). All on the daemon's one loop; callbacks must not block. */
struct ops;
struct op_call;

enum op_right {                    /* what a principal may do; a mask */
	OP_READ = 1,               /* list and look */
	OP_USE = 2,                /* run programs, files, ports in a computer */
	OP_MANAGE = 4,             /* create, kill, timeout */
	OP_ADMIN = 8,              /* server, templates, keys */
};
struct principal {
	unsigned rights;
	const char *only_computer; /* NULL = every computer; else this id alone (a sandbox's own access token) */
	const char *name;          /* for the audit: "key:ab12cd34", "token:i…" */
};

enum op_stream { OP_STDOUT = 1, OP_STDERR, OP_PTY };

struct op_sink {
	/* A member of the stream: {"start":{"pid":7}}, {"end":{…}}, {"watch":{…}}, {"gap":{"bytes":n}} as the schema says. Borrowed. */
	void (*event)(void *ctx, const json_t *event);
	/* Output bytes of a program. Counts against the credit given by ops_credit(). */
	void (*data)(void *ctx, enum op_stream s, const void *p, size_t n);
	/* The end. e == NULL: result is borrowed (may be NULL for "nothing"), fd is the receiver's to close (-1 if none).
	 * e != NULL: failure; e->code is the errno that the dialect maps (ops_code_name, ops_http_status). */
	void (*done)(void *ctx, const struct err *e, const json_t *result, int fd);
};

struct op_in {
	json_t *args;              /* stolen; NULL = {} */
	const void *data;          /* bytes beside the arguments (process.input), borrowed until ops_run returns */
	size_t len;
	uint32_t window;           /* streams: bytes of output wanted before the first ops_credit (0 = 256 KiB) */
};
/* name as in the schema ("sandbox.create"). Unknown names are a programming error of the dialect: done() with ENOSYS.
 * *ret_call is the call while it runs and NULL once done: it is written before ops_run returns and again just before done(), so the
 * pointer must stay good until then. ret_call may be NULL when the caller never cancels. */
void ops_run(struct ops *o, const char *name, const struct principal *who, const struct op_in *in,
		const struct op_sink *sink, void *ctx, struct op_call **ret_call);
void ops_cancel(struct op_call *call);                  /* accepts NULL */
void ops_credit(struct op_call *call, uint32_t bytes);  /* the client took that much: more may come */

/* Who is asking. A key or token that isn't known: -EACCES. *ret borrows from ops and stays valid until the next ops_ call of this turn. */
int ops_auth_key(struct ops *o, const char *key, struct principal *ret, struct err *e);
/* The access token of one sandbox (constant time). -ENOENT no such running sandbox, -EACCES wrong token. A sandbox made with
 * secure=false takes any token, also NULL. */
int ops_auth_token(struct ops *o, const char *sandbox_id, const char *token, struct principal *ret, struct err *e);
/* The sandbox whose token this is, or NULL (old SDKs send only the token). */
const char *ops_find_by_token(struct ops *o, const char *token);
/* Calls fn for each live sandbox that has a token until fn returns true (signed file URLs name no sandbox); returns its id or NULL. */
const char *ops_each_token(struct ops *o, bool (*fn)(void *ctx, const char *id, const char *token), void *ctx);
/* The life of a sandbox as the data plane needs it at once. */
enum op_life { OP_LIFE_UNKNOWN, OP_LIFE_CREATING, OP_LIFE_RUNNING, OP_LIFE_PAUSED, OP_LIFE_ENDED };
enum op_life ops_life(struct ops *o, const char *sandbox_id);
/* Streams and tunnels of a sandbox that must be cut abruptly when it ends. `cut` runs once, when the sandbox ends or at ops_tie_drop. */
struct op_tie { struct op_tie *next, **at; void (*cut)(struct op_tie *t); };
int ops_tie(struct ops *o, const char *sandbox_id, struct op_tie *t);   /* -ENOENT when it isn't live */
void ops_tie_drop(struct op_tie *t);                                    /* unlinks without calling cut; safe twice */

/* One vocabulary for failures: errno → stable word ("not_found") and HTTP status. */
const char *ops_code_name(int code);
int ops_http_status(int code);
const char *ops_code_hint(int code);         /* the next step, when the error itself names none */

/* The table, for routers, help and docs. */
enum op_kind { OP_STR, OP_INT, OP_NUM, OP_BOOL, OP_MAP, OP_ID, OP_STRV, OP_WORD, OP_OBJ };
struct op_arg {
	const char *name;
	enum op_kind kind;
	bool required;
	int64_t min, max;                    /* OP_INT */
	const char *const *words;            /* OP_WORD: NULL-terminated */
	const char *def;                     /* as text, or NULL */
	const struct op_arg *members;        /* OP_OBJ */
	size_t nmembers;
	const char *note;
};
struct op_info {
	const char *name, *method, *route;   /* route: "/v1/sandboxes/{id}/files" or NULL */
	const char *summary;
	unsigned right;
	bool stream, takes_body, gives_fd;
	const struct op_arg *args;
	size_t nargs;
};
const struct op_info *ops_table(size_t *ret_n);

#endif
