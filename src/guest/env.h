#ifndef GUEST_ENV_H
#define GUEST_ENV_H
#include <stdbool.h>
#include <stddef.h>
#include "guest/users.h"
/* env -- an environment under construction. Entries are borrowed; of two with the same name the later wins. */
#define ENV_BASE 16
struct env {
	const char **v;          /* ended by NULL */
	size_t n, cap;
	char *own[ENV_BASE];     /* what we made ourselves */
	size_t nown;
};
int env_init(struct env *e, size_t cap);           /* 0 or -ENOMEM */
void env_done(struct env *e);
void env_set(struct env *e, const char *kv);       /* without '=', or beyond cap: ignored */
int env_make(struct env *e, const char *k, const char *v);
int env_user(struct env *e, const struct user *u, bool tty);   /* PATH HOME USER LOGNAME SHELL, TERM with a terminal */
const char *env_get(const struct env *e, const char *name);
#endif
