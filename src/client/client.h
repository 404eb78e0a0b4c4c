#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H
#include <limits.h>
#include <stdbool.h>
#include "core/err.h"
#include "core/json.h"
#include "core/loop.h"
/* client -- our own API (docs/API.md), spoken from the loop. The command line and the secretary use computers only through it.
 *
 * Every call ends in exactly one done(), from the loop and never inside the function that started it, unless it's
 * cancelled. Failures are told apart by errno: ENOENT (404), EACCES (401, 403), EAGAIN (429, 503; retry_ms says when),
 * EINVAL (400), EBUSY (409), ENOPKG and ENOEXEC (there is no such program; it can't be run), ECONNREFUSED (nobody answers), EPIPE (the connection broke and the outcome isn't known).
 *
 * Retries, with jitter and honouring Retry-After, while patience lasts: a refused connection and 429/503 always (nothing
 * was done); a connection that broke only for calls that may be repeated (GET, DELETE, whole files, input by its offset, folders). */
struct client;
struct client_call;

struct client_where {
	char url[512];              /* without a slash at the end */
	char key[256];              /* "" = none */
	char state[PATH_MAX / 2];   /* the state folder that was looked at */
};
/* server, state: from the command line, or NULL. Then BUREAU_URL, BUREAU_STATE, BUREAU_API_KEY; then server.json and api-key of
 * the state folder. The folder's key is only sent to the folder's server. -ECONNREFUSED with a hint when no server is known. */
int client_find(const char *server, const char *state, struct client_where *ret, struct err *e);
/* --state, BUREAU_STATE, /var/lib/bureau for root, XDG_STATE_HOME/bureau or ~/.local/state/bureau. */
int client_state_dir(const char *state, char *out, size_t size, struct err *e);

struct client_opts { unsigned patience_ms; /* 0 = 5 s */ };
int client_create(struct loop *l, const struct client_where *w, const struct client_opts *o, struct client **ret, struct err *e);
void client_free(struct client *c);     /* every call must be over or cancelled */

struct client_answer {
	const struct err *e;        /* NULL = it worked */
	int status;                 /* HTTP status, 0 = none came */
	json_t *result;             /* borrowed; NULL = nothing */
	int64_t retry_ms;           /* with EAGAIN: when the server wants to be asked again */
};
#define client_fn_done void (*done)(void *ctx, const struct client_answer *a)

/* One operation: args go into the query for GET and DELETE, else they're the JSON body. Steals args (may be NULL). path: "/v1/…",
 * parts already encoded. once: no retry at all. NULL = no memory (no callback comes). */
struct client_call *client_json(struct client *c, const char *method, const char *path, json_t *args, bool once, client_fn_done, void *ctx);
void client_cancel(struct client_call *k);   /* NULL is fine; no callback after this */

/* Files. fd is the caller's; what is read or written starts at its offset. progress may be NULL. */
struct client_file {
	const char *id, *path, *user;       /* user NULL = the default one */
	int fd;
	uint64_t len;                       /* put: how many bytes; get: the most that is taken (0 = any), above: EFBIG */
	unsigned mode;                      /* put: permission bits, 0 = the default */
	void (*progress)(void *ctx, uint64_t done, uint64_t total /* 0 = unknown */);
};
struct client_call *client_put(struct client *c, const struct client_file *f, client_fn_done, void *ctx);
struct client_call *client_put_bytes(struct client *c, const struct client_file *f, const void *p, size_t n, client_fn_done, void *ctx);
struct client_call *client_get(struct client *c, const struct client_file *f, client_fn_done, void *ctx);
/* Bytes for a program's stdin or terminal, `at`: how many it was given before these; n == 0: end of stdin. */
struct client_call *client_input(struct client *c, const char *id, int64_t pid, bool pty, uint64_t at, const void *p, size_t n, client_fn_done, void *ctx);

/* A stream of JSON lines (file.watch): each line, until it ends. */
struct client_call *client_follow(struct client *c, const char *path, json_t *args /* stolen */, void (*line)(void *ctx, const char *p, size_t n), client_fn_done, void *ctx);

/* exec -- run a program and follow it. The stream survives the server: when the connection breaks, it's taken up again by the
 * program's tag, without losing or repeating a byte (lost says when the computer kept less than was missed). */
enum client_stream { CLIENT_STDOUT = 1, CLIENT_STDERR, CLIENT_PTY };
struct client_exit {
	const struct err *e;        /* the program couldn't be started or followed */
	enum { CLIENT_EXITED, CLIENT_SIGNALED, CLIENT_TIMED_OUT } how;
	int code;
	bool oom, lost;
	int64_t retry_ms;           /* with EAGAIN */
};
struct client_exec {
	const char *id, *cmd;
	json_t *args, *envs;        /* borrowed; NULL = none */
	const char *cwd, *user;
	uint64_t timeout_ms;
	bool stdin_open;
	unsigned cols, rows;        /* both > 0: in a terminal of that size */
	void (*start)(void *ctx, int64_t pid);                                  /* may be NULL */
	void (*output)(void *ctx, enum client_stream s, const char *p, size_t n);
	void (*end)(void *ctx, const struct client_exit *x);
};
struct client_run;
struct client_run *client_exec(struct client *c, const struct client_exec *x, void *ctx);   /* NULL = no memory */
/* Lets go of it; the program goes on. NULL is fine. Not from inside start() or output(). */
void client_exec_cancel(struct client_run *r);

/* tree -- a folder, one file after the other. Nothing that a computer names can leave the local folder (dirfd); symbolic links and
 * special files are left out and counted. */
struct client_tree_end { const struct err *e; unsigned files, folders, skipped; uint64_t bytes; };
struct client_tree_spec {
	const char *id, *remote, *user;
	int dirfd;                                               /* stays the caller's, open until end() */
	uint64_t max;                                            /* get: bytes of all files together, above: EFBIG; 0 = any */
	void (*each)(void *ctx, const char *rel, uint64_t size); /* a file begins; may be NULL */
	void (*progress)(void *ctx, uint64_t done, uint64_t total);
	void (*end)(void *ctx, const struct client_tree_end *x);
};
struct client_tree;
struct client_tree *client_tree_put(struct client *c, const struct client_tree_spec *s, void *ctx);
struct client_tree *client_tree_get(struct client *c, const struct client_tree_spec *s, void *ctx);
void client_tree_cancel(struct client_tree *t);
#endif
