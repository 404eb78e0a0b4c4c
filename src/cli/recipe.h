#ifndef CLI_RECIPE_H
#define CLI_RECIPE_H
#include <stddef.h>
#include "core/buf.h"
#include "core/err.h"
/* recipe -- how a template is made: lines of "word value". Words: about, suite, mirror, components, packages, run.
 * `run` is a shell line, run in the new root as root after the packages are there. */
#define RECIPE_RUNS 32
struct recipe {
	char about[200], suite[64], mirror[400], components[200];
	struct buf packages;            /* comma separated */
	char *runs[RECIPE_RUNS];
	size_t nruns;
};
void recipe_init(struct recipe *r);
void recipe_done(struct recipe *r);
/* The recipe of that name: $BUREAU_TEMPLATES, beside the programs, or in the source tree. A name with a slash is a file. */
int recipe_load(struct recipe *r, const char *name, struct err *e);
/* SHA-256, in hex, of all that decides what comes out. */
void recipe_digest(const struct recipe *r, char out[65]);
void digest_hex(const void *p, size_t n, char out[65]);
#endif
