#ifndef ISOLATE_HOST_H
#define ISOLATE_HOST_H
#include "isolate/backend.h"
/* host -- what the keeper itself needs of isolate: the control groups, and to give up its own rights. */
const struct cgroup_host *isolate_groups(const struct isolate *h);
/* A plain user's 65,536 ids: a user namespace mapped by newuidmap, as a descriptor; -1 = not here. */
int isolate_ids(void);
int isolate_confine(const struct isolate *h, struct err *e);  /* capabilities and filter of the keeper */
#endif
