#ifndef GUEST_GUEST_H
#define GUEST_GUEST_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include "core/list.h"
#include "core/loop.h"
#include "guest/users.h"
#include "wire/guest_proto.h"
#include "wire/sock.h"
/* guest -- what the parts of bureau-guest (PID 1 of a computer) share.
 *
 * One process, one loop, no threads. Who owns what:
 *   conn   a connection of our side; owns its streams, watches, dials; helpers outlive it
 *   proc   a program that was started; belongs to nobody, stays until newer ones push it out
 *   stream one reader of a program's output, between a conn and a proc
 *   helper a forked child that does what could block (trees, pipes); it sends its own answer
 * Memory is kept low: no ring before there is output, one scratch buffer for all messages. */

#define GUEST_QUEUE (4u << 20)      /* bytes waiting for one connection */
#define GUEST_KEPT (2u << 20)       /* bytes kept for programs that have ended, all together */
#define GUEST_HELPERS 256           /* helper children at once */
#define GUEST_WATCHES 64            /* G_WATCH at once */
#define GUEST_WATCH_DIRS 8192       /* folders in one recursive watch */
#define GUEST_DIALS 256             /* connections being made at once */
#define GUEST_SUDOS 64              /* sudo clients at once */
#define GUEST_ACCEPT_AGAIN_MS 200   /* a pause when there are no descriptors for a new connection */
#define GUEST_ENV_BYTES 32768       /* global environment */
#define GUEST_BUCKETS 256
#define GUEST_PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct proc;
struct guest {
	struct loop *loop;
	struct source listen;
	struct timer listen_again;          /* accept failed for want of descriptors: tried again then */
	struct list conns, procs, helpers, sudos;
	unsigned nconns, nprocs, running, nhelpers, nwatches, ndials, nsudos;
	size_t kept;                        /* bytes held by ended programs */
	struct proc *by_pid[GUEST_BUCKETS]; /* programs, the newest of each pid first */
	struct users users;
	struct job reap_more, end_job;
	struct source sudo_listen;
	int null_fd;
	struct rlimit nofile;               /* what programs get; our own soft limit is raised */
	int64_t started_ms;
	char id[64], hostname[65];
	char *envs;                         /* "K=V\0K=V\0" */
	size_t nenvs, envs_len;
	uint64_t deadline;
	struct timer deadline_timer, end_timer;
	bool last_chance, ending, waiting;  /* waiting: for programs to end after SIGTERM */
	uint64_t cpu_ticks; int64_t cpu_at_ms;   /* at the last G_METRICS */
};

struct conn {
	struct list node;
	struct guest *g;
	struct link *link;
	struct list streams, watches, dials;
};

/* All messages are built here, and output is read into it: never held over a call that may send. */
extern uint8_t guest_scratch[MSG_MAX];

/* conn.c */
int conn_add(struct guest *g, int fd, struct err *e);
int conn_listen(struct guest *g, int fd, struct err *e);
void conn_begin(struct msg_writer *w, uint16_t type, uint32_t id);      /* in guest_scratch */
int conn_send(struct conn *c, struct msg_writer *w);
void conn_ok(struct conn *c, uint32_t id);                             /* G_OK without fields */
void conn_err(struct conn *c, uint32_t id, const struct err *e);
bool conn_busy(const struct guest *g);                                 /* something still waits to be sent */
bool conn_id_used(const struct conn *c, uint32_t id);

/* life.c: start, configuration, deadline, end */
int life_start(struct guest *g, int listen_fd, int conn_fd, struct err *e);
void life_end(struct guest *g, bool kindly);      /* kindly: SIGTERM and a short wait first */
void life_configure(struct conn *c, struct msg_reader *r);
void life_deadline(struct conn *c, struct msg_reader *r);
void life_shutdown(struct conn *c, struct msg_reader *r);
void life_hello(struct conn *c, struct msg_reader *r);
void life_envs(struct conn *c, struct msg_reader *r);

/* reap.c */
int reap_start(struct guest *g, struct err *e);

/* helper.c */
struct helper_job {
	void (*run)(int sock, uint32_t id, void *ctx);   /* in the child: sends the answer by helper_* calls, unless silent */
	void *ctx;
	const struct user *user;                         /* whose rights it has; NULL = ours */
	bool silent;                                     /* the request is answered already */
	int keep[2];                                     /* descriptors it needs (0 = none); it loses all others */
};
/* Forks. The child answers `id`; if it dies without, the parent does. */
int helper_start(struct conn *c, uint32_t id, const struct helper_job *j, struct err *e);
bool helper_reaped(struct guest *g, pid_t pid, int status);
void helper_forget_conn(struct guest *g, struct conn *c);
int helper_try(int sock, struct msg_writer *w);             /* waits for room; negative: nobody listens any more */
int helper_send(int sock, struct msg_writer *w);     /* in the child: waits for room */
void helper_ok(int sock, uint32_t id);
void helper_err(int sock, uint32_t id, const struct err *e);

#endif
