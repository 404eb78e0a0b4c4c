#ifndef MACHINE_GUEST_H
#define MACHINE_GUEST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
#include "wire/guest_proto.h"
/* guest -- our side of one computer's link to its PID 1 (wire/guest_proto.h).
 *
 * Many calls at once on one connection. A call is embedded in its owner; it's answered through on():
 *   msg set, !msg->last    a stream goes on (or its items come)
 *   msg set, msg->last     the answer, or the last event: the call is over
 *   e set                  refused by the guest, or the link was lost: the call is over
 * guest_cancel() ends it without another on(): a stream is detached, programs go on.
 * A guest that owes an answer for longer than limit_ms has failed that call (ETIMEDOUT), not the others.
 *
 * Nothing from the guest is believed: every field has its bound, output its credit, an answer its request. A fault ends the
 * link with EPROTO through gone(); its owner then ends that computer. */
struct guest;
struct guest_call;
struct loop;

#define GUEST_CALLS 4096         /* in flight at once on one link */
#define GUEST_META 64            /* metadata pairs of one entry */
#define GUEST_ANSWER_MS 60000    /* for an answer (of a stream: its first) where the call has no limit of its own */
#define GUEST_OVER_MS 10000      /* so long after its time limit, a program is over as seen from here */

struct guest_entry {
	const char *path, *owner, *group, *target;
	uint32_t mode, uid, gid;
	uint64_t size, modified;
	const char *const *meta;     /* "key=value" */
	size_t nmeta;
};

enum guest_what { GW_OK, GW_OUT, GW_GAP, GW_EXIT, GW_PROC, GW_ENTRY, GW_EVENT, GW_END };

struct guest_msg {
	enum guest_what what;
	bool last;
	bool has_entry;
	struct guest_entry entry;
	struct {
		uint32_t pid, flags;
		const char *cmd, *cwd, *tag;
		const char *const *args;
		size_t nargs;
		bool ended;
	} prog;
	uint32_t how, code;          /* GW_EXIT, GW_PROC; GW_END: code = errno */
	unsigned stream;             /* GW_OUT: enum guest_stream */
	const void *bytes;
	size_t len;
	uint64_t lost;               /* GW_GAP */
	unsigned kind;               /* GW_EVENT: enum guest_event; read: enum guest_body */
	const char *name;            /* GW_EVENT; GW_END: message; hello: the computer's id */
	const char *const *strs;     /* envs */
	size_t nstrs;
	const uint16_t *ports;
	size_t nports;
	struct { uint32_t cpus, cpu_used; uint64_t mem_used, mem_total, mem_cache, disk_used, disk_total; } metrics;
	int *fd;                     /* a descriptor that came along: guest_take_fd() */
};

struct guest_call {
	void (*on)(struct guest_call *k, const struct guest_msg *m, const struct err *e);
	struct guest *guest;         /* NULL = not in flight */
	uint32_t id;
	uint16_t type;
	bool answered;               /* a stream's G_OK has come */
	uint32_t window, owed;       /* credit to give back, sent in lots */
	uint64_t credit;             /* bytes of output that the guest may still send */
	uint32_t items, item_bytes;  /* list items so far */
	uint32_t limit_ms;           /* for the answer, and the end of a program with a time limit; 0 = GUEST_ANSWER_MS, GUEST_OVER_MS */
	uint64_t run_ms;             /* the program's own time limit, 0 = none */
};

/* Takes fd, also on failure. gone: the link is dead, every call has been told; the owner calls guest_close. Never from inside a call here. */
int guest_open(struct loop *l, int fd, void (*gone)(void *ctx, const struct err *e), void *ctx, struct guest **ret, struct err *e);
/* Every call in flight ends with `why`. Safe inside callbacks; accepts NULL. */
void guest_close(struct guest *g, const struct err *why);

/* Each sends one request: 0 and on() will come, later; or a negative errno and it won't (EAGAIN: too much in flight, E2BIG: too long). */
int guest_hello(struct guest *g, struct guest_call *k, struct err *e);
int guest_configure(struct guest *g, struct guest_call *k, const char *id, const char *hostname, const char *const *envs, size_t nenvs,
	int64_t deadline, struct err *e);
int guest_deadline(struct guest *g, struct guest_call *k, int64_t deadline, struct err *e);

struct guest_start_args {
	uint32_t flags;
	const char *cmd, *cwd, *user, *tag;
	const char *const *args, *const *envs;
	size_t nargs, nenvs;
	uint16_t cols, rows;
	uint32_t window;
	uint64_t timeout_ms;
};
int guest_start(struct guest *g, struct guest_call *k, const struct guest_start_args *a, struct err *e);
int guest_attach(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, uint64_t from, uint32_t window, struct err *e);
int guest_input(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, bool pty, uint64_t at /* UINT64_MAX = after what it has */,
	const void *p, size_t n, struct err *e);
int guest_input_close(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, struct err *e);
int guest_signal(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, uint32_t signo, bool group, struct err *e);
int guest_resize(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, uint16_t cols, uint16_t rows, struct err *e);
int guest_list(struct guest *g, struct guest_call *k, bool ended, struct err *e);
int guest_stat(struct guest *g, struct guest_call *k, const char *path, const char *user, struct err *e);
int guest_mkdir(struct guest *g, struct guest_call *k, const char *path, const char *user, struct err *e);
int guest_remove(struct guest *g, struct guest_call *k, const char *path, const char *user, struct err *e);
int guest_read(struct guest *g, struct guest_call *k, const char *path, const char *user, struct err *e);
int guest_dir(struct guest *g, struct guest_call *k, const char *path, const char *user, uint32_t depth, struct err *e);
int guest_move(struct guest *g, struct guest_call *k, const char *from, const char *to, const char *user, struct err *e);
int guest_write(struct guest *g, struct guest_call *k, const char *path, const char *user, uint32_t mode, const char *const *meta, size_t nmeta,
	uint64_t size, struct err *e);
int guest_watch(struct guest *g, struct guest_call *k, const char *path, const char *user, bool recursive, bool entries, bool network, struct err *e);
int guest_dial(struct guest *g, struct guest_call *k, uint16_t port, struct err *e);
int guest_ports(struct guest *g, struct guest_call *k, struct err *e);
int guest_metrics(struct guest *g, struct guest_call *k, struct err *e);
int guest_envs(struct guest *g, struct guest_call *k, struct err *e);

/* The descriptor of an answer, now the caller's; -1 when there is none (any more). */
int guest_take_fd(const struct guest_msg *m);
void guest_cancel(struct guest_call *k);                 /* safe when not in flight */
void guest_credit(struct guest_call *k, uint32_t bytes); /* so many bytes of output were taken */

#endif
