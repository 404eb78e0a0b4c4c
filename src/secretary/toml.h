#ifndef SECRETARY_TOML_H
#define SECRETARY_TOML_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
/* toml -- TOML 1.0 into a tree that knows the line of each value.
 *
 * The whole language but two things: dates and times stay text (checked, type TOML_TIME), and a NUL (\u0000) is refused,
 * so every string is a C string. Bounded: 4 MiB, 20,000 values, 1,000 keys a table, 32 levels, 16 parts of a dotted key. */
#define TOML_MAX (4u << 20)

enum toml_type { TOML_TABLE, TOML_ARRAY, TOML_STR, TOML_INT, TOML_FLOAT, TOML_BOOL, TOML_TIME };

struct toml {
	enum toml_type type;
	int line;                  /* from 1 */
	char *key;                 /* of a table's member; NULL in arrays and for the root */
	struct toml *next;         /* in file order */
	struct toml *first, *last; /* members of a table or an array */
	unsigned count;
	char *str;                 /* TOML_STR, TOML_TIME */
	int64_t num;               /* TOML_INT */
	double real;               /* TOML_FLOAT */
	bool yes;                  /* TOML_BOOL */
	/* how a table or array came to be, for the rules on defining it again */
	bool header, dotted, closed, of_tables;
};

/* name stands in errors: "name:12: ...". */
int toml_parse(const char *p, size_t n, const char *name, struct toml **ret, struct err *e);
void toml_free(struct toml *t);                                     /* NULL is fine */
struct toml *toml_get(const struct toml *table, const char *key);   /* NULL when absent */
const char *toml_type_name(enum toml_type t);                       /* "a string" */
#define toml_each(it, t) for (const struct toml *it = (t)->first; it; it = it->next)
#endif
