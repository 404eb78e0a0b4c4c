#ifndef ISOLATE_CGROUP_H
#define ISOLATE_CGROUP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "core/err.h"
/* cgroup -- limits and counts by control groups: v2, v1, or both at once (hybrid), or none (a plain user without a
 * delegated tree). Every group of ours is BASE/bureau.TAG/ID in each tree. What can't be had is said, never assumed. */
struct box_limits { uint64_t memory, cpu, pids, disk, inodes, files; };       /* 0 = none; cpu in thousandths of one */
enum box_limit { BL_MEMORY = 1, BL_CPU = 2, BL_PIDS = 4, BL_DISK = 8, BL_INODES = 16, BL_FILES = 32 };

enum cgroup_tree { CG_V2, CG_MEMORY, CG_CPU, CG_CPUACCT, CG_PIDS, CG_FREEZER, CG_TREES };   /* all but the first are v1 */
struct box_groups { bool made[CG_TREES]; };

struct cgroup_host {
	int fd[CG_TREES];        /* BASE/bureau.TAG of each tree, or -1 */
	bool memory2, cpu2, pids2;   /* v2 controllers we may use */
	char name[32];           /* bureau.TAG */
	bool root, opened;
	bool all;                /* make every group (for counts), not only those that a limit asks for */
};
struct box_counts { uint64_t cpu_us, memory, memory_peak, oom_kills; uint32_t procs; };

/* all: for a keeper that lives on. Without it trees are opened by cgroup_host_need() only, since `bureau run` without limits needs none. */
void cgroup_host_init(struct cgroup_host *h, const char *tag, bool root, bool all);
void cgroup_host_need(struct cgroup_host *h, const struct box_limits *l);
void cgroup_host_done(struct cgroup_host *h);
uint32_t cgroup_features(const struct cgroup_host *h);      /* enum box_feature */
/* Makes id's v2 group, where the first process is to begin; ret_v2 is a descriptor for CLONE_INTO_CGROUP or -1. */
int groups_make_v2(const struct cgroup_host *h, const char *id, const struct box_limits *l, struct box_groups *g, int *ret_v2, struct err *e);
/* Makes the others and sets the limits of all. unenforced gets bits added. */
int groups_make(const struct cgroup_host *h, const char *id, const struct box_limits *l, struct box_groups *g, uint32_t *unenforced, struct err *e);
/* For who isn't in its v2 group by CLONE_INTO_CGROUP. */
int groups_enter_v2(const struct cgroup_host *h, const char *id, const struct box_groups *g, pid_t pid, struct err *e);
/* Of each v1 group of id's, the file to write "0" to in order to enter it, whoever one is by then: how many, CG_TREES - 1 at most. */
int groups_open_v1(const struct cgroup_host *h, const char *id, const struct box_groups *g, int *ret_fds, struct err *e);
int groups_limit(const struct cgroup_host *h, const char *id, const struct box_groups *g, const struct box_limits *l, uint32_t *unenforced);
void groups_find(const struct cgroup_host *h, const char *id, struct box_groups *g);   /* after a restart: which exist */
void groups_count(const struct cgroup_host *h, const char *id, const struct box_groups *g, struct box_counts *ret);
int groups_freeze(const struct cgroup_host *h, const char *id, const struct box_groups *g, bool frozen, struct err *e);
void groups_kill(const struct cgroup_host *h, const char *id, const struct box_groups *g);
int groups_remove(const struct cgroup_host *h, const char *id, struct box_groups *g);  /* 0, or -EBUSY: ask again soon */
/* Calls fn for each group of ours that lies in any tree. */
void groups_each(const struct cgroup_host *h, void (*fn)(void *ctx, const char *id), void *ctx);
#endif
