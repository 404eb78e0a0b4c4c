#ifndef SECRETARY_FILL_H
#define SECRETARY_FILL_H
#include "secretary/toml.h"
/* fill -- a TOML table into a struct, by a table of fields. Unknown keys, wrong types and numbers out of range are errors with
 * file and line. What is absent stays as it was. Strings and nodes are borrowed from the tree. */
enum fill_kind {
	FILL_STR,      /* const char * */
	FILL_INT,      /* int64_t, min..max */
	FILL_BOOL,     /* bool */
	FILL_MS,       /* uint64_t: "90s", "5m" or whole seconds */
	FILL_BYTES,    /* uint64_t: "512M" or a number */
	FILL_MILLI,    /* int64_t: thousandths of a number (cpus) */
	FILL_TABLE, FILL_ARRAY, FILL_ANY,      /* const struct toml * */
};
struct fill { const char *key; enum fill_kind kind; size_t offset; int64_t min, max; };
int fill(const struct toml *t, const struct fill *fields, size_t n, void *into, const char *name, struct err *e);
#define FILL(t, fields, into, name, e) fill(t, fields, sizeof(fields) / sizeof *(fields), into, name, e)
int fill_error(const char *name, const struct toml *t, struct err *e, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
#endif
