#ifndef GUEST_PATH_H
#define GUEST_PATH_H
#include <stddef.h>
#include "core/err.h"
/* path -- an asker's path to an absolute, clean one: "" and "~" are the home, relative ones are below it, "." ".." and "//" are
 * resolved by text (as Go's filepath.Clean, which E2B clients expect). out has room for GUEST_PATH + 1 bytes. */
int path_resolve(const char *in, const char *home, char *out, size_t size, struct err *e);
#endif
