#ifndef ISOLATE_HOST_H
#define ISOLATE_HOST_H
#include "isolate/backend.h"
/* host -- what the keeper itself needs of isolate: the control groups, and to give up its own rights. */
const struct cgroup_host *isolate_groups(const struct isolate *h);
int isolate_confine(const struct isolate *h, struct err *e);  /* capabilities and filter of the keeper */
#endif
