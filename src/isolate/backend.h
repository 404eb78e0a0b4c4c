#ifndef ISOLATE_BACKEND_H
#define ISOLATE_BACKEND_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "core/err.h"
#include "isolate/cgroup.h"
/* backend -- how a computer is walled off: a spec in, a computer out. Mechanism without memory: the keeper keeps the list.
 *
 * A computer's start has two halves, so that a loop never waits for it: start() makes the child and everything that only
 * our side may make (id maps, idmapped layers, cgroups), then the child assembles its root alone and says so on
 * `sync_fd`; finish() reads that. Between the two, box_drop() ends it at any moment. */
#define BOX_MOUNTS 32
#define BOX_DOORS 4
#define BOX_IDS 65536u

struct box;
struct box_mount {
	const char *source;      /* absolute, resolved once, in start() */
	const char *dest;        /* absolute, inside; parents are made */
	bool read_only;
};

struct box_spec {
	const char *id;
	uint32_t slot;           /* root mode: owns ids [0x10000 * (slot + 0x100) .. + 65535] */
	int rootfs_fd;           /* the template's root; -1 = template `host` */
	bool net;                /* redirect everything to door sockets; else only loopback */
	struct box_limits limits;
	const char *hostname;
	const struct box_mount *mounts;
	size_t nmounts;
	bool listens;            /* born() gives the guest's listening socket; else the child makes one where nobody can reach it */
	int conn_fd;             /* the guest's end of the first connection */
	bool die_with_us;        /* the kernel ends it when this process ends */
	/* Called once the child exists and before it may run anything of the computer: what it returns (< 0) ends the start. May be NULL.
	 * *ret_listen (with listens; start() closes it) is the guest's listening socket. */
	int (*born)(void *ctx, const struct box *b, int *ret_listen, struct err *e);
	void *ctx;
};

struct box {
	pid_t pid;
	int pidfd;               /* of one that isn't our child (adopted): a child's pid stays its own until we reap it */
	uint64_t start_time;
	int sync_fd;             /* readable when finish() has something to read; -1 afterwards */
	bool ready;              /* the child said so; its exec is what finish() still waits for */
	int doors[BOX_DOORS];    /* TCP 127.0.0.1, TCP ::1, UDP DNS, TCP DNS; the second is -1 without IPv6 */
	uint32_t unenforced;     /* enum box_limit */
	struct box_groups groups;
};

struct isolate;              /* what start() needs from this host, found out once */

struct backend {
	const char *name;
	/* What this host can do. Writes the names of what is missing into `missing` ("" = nothing). */
	int (*probe)(struct isolate *h, uint32_t *ret_features, char *missing, size_t size);
	int (*start)(struct isolate *h, const struct box_spec *s, struct box *ret, struct err *e);
	/* 0 done, -EAGAIN not yet, else why it failed (the child has ended or will). */
	int (*finish)(struct box *b, struct err *e);
	int (*limits)(struct isolate *h, const char *id, struct box *b, const struct box_limits *l, struct err *e);
	/* Listening sockets once more, made inside. */
	int (*doors)(struct isolate *h, struct box *b, struct err *e);
	/* Makes one thing that computers to come will need, some 0.5 ms: for when nobody waits. 1 made, 0 there is enough. */
	int (*stock)(struct isolate *h, struct err *e);
};
extern const struct backend backend_ns;

enum box_feature {           /* the same bits as keeper_proto's KF_* */
	BOX_ROOT = 1, BOX_IDMAP = 2, BOX_CGROUP_V2 = 4, BOX_CGROUP_V1 = 8, BOX_MEMORY = 16, BOX_CPU = 32, BOX_PIDS = 64,
	BOX_SUBUID = 128, BOX_NET = 256, BOX_FREEZE = 512, BOX_OVERLAY = 1024, BOX_IPV6 = 2048,
};

void box_init(struct box *b);
int box_kill(const struct box *b);      /* SIGKILL to its first process; 0 when there is none (any more), -errno */
void box_drop(struct box *b);        /* SIGKILL when it runs, closes what it holds; groups are left to groups_remove */
/* guest: path of the guest's program. tag: names our cgroups; the same state folder has the same tag;
 * NULL: for one `bureau run`. living: PID 1s of computers that an earlier keeper made, for a plain user's keeper to join.
 * ids_fd: its ids, as isolate_ids() made them (host.h); -1: they are made here. */
int isolate_create(const char *guest, const char *tag, const pid_t *living, size_t n_living, int ids_fd, struct isolate **ret, struct err *e);
void isolate_free(struct isolate *h);                                  /* at the keeper's end */
#endif
