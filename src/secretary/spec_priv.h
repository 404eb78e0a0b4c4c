#ifndef SECRETARY_SPEC_PRIV_H
#define SECRETARY_SPEC_PRIV_H
#include "secretary/spec.h"
/* The file's top level, before its parts are read. */
struct spec_top {
	const char *name, *title, *description;
	const struct toml *limits, *computer, *inputs, *task;
};
int spec_check(struct spec *s, struct err *e);
#endif
