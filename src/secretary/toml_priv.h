#ifndef SECRETARY_TOML_PRIV_H
#define SECRETARY_TOML_PRIV_H
#include "core/buf.h"
#include "secretary/toml.h"
/* What the two halves of the parser share: toml.c has tables and headers, toml_value.c has strings, numbers, dates. */
struct toml_in {
	const char *p, *end;
	int line;
	const char *name;
	unsigned nodes;
	struct err *e;
};
int toml_fail(struct toml_in *in, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static inline int toml_peek(const struct toml_in *in, size_t ahead)
{ return (size_t)(in->end - in->p) > ahead ? (unsigned char)in->p[ahead] : -1; }
void toml_blanks(struct toml_in *in);              /* space and tab */
int toml_lines(struct toml_in *in);                /* blanks, comments and line ends */
int toml_newline(struct toml_in *in);              /* 1 when a line end was taken, 0 when there is none */
/* in->p is at the quote. Multi-line forms only when many. */
int toml_string(struct toml_in *in, bool many, char **ret);
int toml_scalar(struct toml_in *in, struct toml *v);
#endif
