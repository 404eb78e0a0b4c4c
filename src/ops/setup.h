#ifndef OPS_SETUP_H
#define OPS_SETUP_H
#include "ops/ops.h"
/* setup -- for the daemon, which wires ops to the machines and to the state folder. */
struct machines;
struct computer;
struct loop;
struct ops_opts {
	struct loop *loop;
	struct machines *machines;
	const char *state_dir;       /* api-key is read there, audit/audit.log appended to */
	int64_t default_timeout_ms;  /* 0 = 5 minutes */
};
int ops_create(const struct ops_opts *o, struct ops **ret, struct err *e);
void ops_free(struct ops *o);                         /* ends calls without done() */
void ops_cut(struct ops *o);                          /* what is tied to computers, as if they had ended; before ops_free */
void ops_on_end(struct ops *o, struct computer *c);   /* machines_opts.on_end */
void ops_on_denied(struct ops *o, const char *id, const char *what, const char *rule);

/* The key of a state folder, made at first use (0600). For the supervisor. */
int ops_key_make(const char *state_dir, struct err *e);
#endif
