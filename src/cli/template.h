#ifndef CLI_TEMPLATE_H
#define CLI_TEMPLATE_H
#include <stdbool.h>
#include <stddef.h>
#include "core/err.h"
/* template -- what sandboxes start from. DIR/templates/NAME/ID/rootfs with info.json beside it; `current` names one ID.
 * An ID is the digest of recipe and installed packages, so the same content is there once. DIR/templates/.cache keeps
 * downloaded packages. A folder whose name starts with a dot is unfinished, and nobody's. */
#define TEMPLATE_OPTIONS 16
struct template_args {
	const char *state, *suite, *mirror, *name;
	const char *recipe;             /* build: a name or a file; `name` is what the template will be called */
	const char *apt_options[TEMPLATE_OPTIONS];
	size_t napt_options;
	bool json, force;
};
int template_build(const struct template_args *a, const char *state, struct err *e);
/* Removes DIR/templates/below, whoever inside owns it. */
int template_remove_tree(const char *templates, const char *below, struct err *e);
#endif
