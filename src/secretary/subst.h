#ifndef SECRETARY_SUBST_H
#define SECRETARY_SUBST_H
#include <string.h>
#include "core/buf.h"
#include "core/err.h"
#include "core/json.h"
/* subst -- {{names}} in texts of a job file. A value goes in as it is, once: what it contains is never looked at again, and it
 * only ever lands in one argument, one variable, one file or one comparison; a shell string may not have any (spec_check). */
struct subst {
	/* The value of a dotted name, a new reference; -ENOENT with an error when there is none. */
	int (*get)(void *ctx, const char *name, json_t **ret, struct err *e);
	void *ctx;
};
#define SUBST_MAX (8u << 20)
/* Strings go in as they are, numbers and the like as JSON. {{open}} is "{{". -EINVAL a bad name or no end. */
int subst_text(const struct subst *s, const char *text, struct buf *out, struct err *e);
/* Calls each() for the name of every {{name}} in text; its negative return ends the walk. */
int subst_names(const char *text, int (*each)(void *ctx, const char *name, struct err *e), void *ctx, struct err *e);
static inline bool subst_has(const char *text) { return text && strstr(text, "{{"); }
#endif
