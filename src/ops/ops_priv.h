#ifndef OPS_OPS_PRIV_H
#define OPS_OPS_PRIV_H
#include "core/list.h"
#include "core/loop.h"
#include "machine/machine.h"
#include "ops/ops.h"
#include "ops/setup.h"
/* What the table and the handlers share; the table itself is made by tools/gen-ops.
 *
 * A handler starts its work with the arguments checked and the computer found, and ends the call once through op_done() or
 * op_fail(), now or from a callback; after that the call's memory may be gone. */
enum op_states { OS_CREATING = 1, OS_RUNNING = 2, OS_PAUSED = 4, OS_ENDED = 8 };

struct op_def {
	struct op_info info;
	unsigned states;             /* legal states of the computer; 0 = the operation has none */
	bool audit;
	void (*run)(struct op_call *c);
};
extern const struct op_def op_defs[];    /* sorted by name */
extern const size_t op_defs_n;

struct op_call {
	struct ops *o;
	const struct op_def *def;
	struct op_sink sink;
	void *ctx;
	struct op_call **ret;
	struct list node;            /* in o->calls */
	json_t *args;                /* checked, defaults filled in */
	const void *data;
	size_t len;
	uint32_t window;
	struct principal who;
	char who_name[64], only[33], id[33];
	struct computer *computer;   /* NULL when the operation has none, or it has ended (sandbox.get; while the keeper was asked) */
	bool over, told_exit;
	unsigned busy;

	struct guest_call gc;
	struct keeper_call kc;
	struct machine_wait wait;
	json_t *list;                /* of items as they come, or a result in the making */
	uint32_t how, code;          /* an exit, while the keeper is asked about memory */
};

struct ops {
	struct ops_opts o;
	char key[64], key_name[32];
	struct list calls;
	int audit_dir, audit_fd;
	uint64_t audit_size, audit_max, audit_late;     /* of the file; when it's put aside; how much longer it may be, when that failed */
	struct buf audit;
	struct job audit_job;
	unsigned audit_lost;
	long cpus;
	uint64_t host_memory;
};

/* ops.c */
void op_done(struct op_call *c, json_t *result, int fd);           /* takes both */
void op_fail(struct op_call *c, const struct err *e);
void op_event(struct op_call *c, json_t *event);                   /* takes it */
/* The computer's link, or the call fails with "come again" and NULL is returned. */
struct guest *op_guest(struct op_call *c);
/* Ends the call when a request couldn't be sent. */
void op_sent(struct op_call *c, int r, const struct err *e);

/* args.c */
int args_check(const struct op_def *d, json_t *args, struct err *e);
const char *arg_str(const struct op_call *c, const char *name);    /* "" when absent */
bool arg_has(const struct op_call *c, const char *name);
int64_t arg_int(const struct op_call *c, const char *name, int64_t absent);
bool arg_bool(const struct op_call *c, const char *name);
json_t *arg_get(const struct op_call *c, const char *name);        /* NULL when absent */
/* A list, or a map as "k=v" with sep between: *ret is one allocation (free()), its strings included. -E2BIG, -EINVAL, -ENOMEM. */
int arg_strv(const struct op_call *c, const char *name, const char ***ret, size_t *ret_n, struct err *e);

/* render.c */
json_t *render_str(const char *s);                                 /* bad UTF-8 becomes U+FFFD */
json_t *render_listed(const struct op_call *c, const struct store_sandbox *row, const struct computer *live);   /* without its token */
json_t *render_sandbox(const struct op_call *c, const struct store_sandbox *row, const struct computer *live);
json_t *render_entry(const struct guest_entry *n);

/* audit.c */
#define AUDIT_MAX (16u << 20)      /* bytes of a file */
#define AUDIT_OLD 4u               /* files kept beside the one that is written */
int audit_open(struct ops *o, struct err *e);
void audit_close(struct ops *o);
void audit_line(struct ops *o, const char *who, const char *what, const char *id, const char *outcome, const char *detail);

#endif
