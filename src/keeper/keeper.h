#ifndef KEEPER_KEEPER_H
#define KEEPER_KEEPER_H
#include "core/list.h"
#include "core/loop.h"
#include "core/map.h"
#include "isolate/backend.h"
#include "wire/keeper_proto.h"
#include "wire/sock.h"
/* keeper -- the list of computers, who asks, and a computer's life as the keeper sees it:
 *
 *   STARTING -> RUNNING -> ENDING -> gone       ENDING: its processes are dying or its groups are not yet empty
 *        \___________________/                  (also when the start failed: the answer waits until nothing is left)
 */
enum computer_state { STARTING, RUNNING, ENDING };
#define ID_MAX 32
#define NAME_MAX_ 64

/* Somebody who waits for an answer. Belongs to a peer and to a computer; either end unlinks it. */
struct waiter { struct list of_computer, of_peer; struct peer *peer; uint32_t id; };

struct computer {
	struct keeper *k;
	enum computer_state state;
	char id[ID_MAX + 1], template_name[NAME_MAX_ + 1];
	uint32_t slot;
	uint8_t net;
	struct box box;
	bool child;                 /* ours to reap, in by_pid; else adopted, or ended */
	bool killed;                /* by request: nobody gets K_EXITED */
	int conn;                   /* our end of the first connection, until it is handed out */
	struct source sync, end;    /* finish() has something; the process ended */
	struct timer timer;         /* STARTING: gives up; ENDING: tries again to remove groups */
	uint32_t how, code;
	uint64_t oom_kills;
	int64_t ending_since;
	struct waiter create;       /* peer NULL = none */
	struct list killers;        /* struct waiter */
	struct err why;             /* the start failed */
};

struct peer { struct keeper *k; struct list all; struct link *link; struct list waits; struct job free; };

struct keeper {
	struct loop *loop;
	struct isolate *host;
	const struct backend *backend;
	uint32_t features;
	char missing[256];
	bool once, quitting;
	uid_t daemon_uid;
	int state_fd, templates_fd, run_fd, records_fd;    /* -1 without --state */
	struct map *by_id, *by_slot, *by_pid;               /* by_pid: our children */
	struct list peers;
	struct source listen;
	struct timer listen_again;      /* accept failed for want of descriptors: tried again then */
	struct timer stock;
	char boot[40];
};

void keeper_stock(struct timer *t);      /* nobody has asked for a computer for a moment */
int keeper_listen(struct keeper *k, int fd, struct err *e);
int keeper_peer(struct keeper *k, int fd, struct err *e);
int peer_send(struct peer *p, struct msg_writer *w);
void peer_ok(struct peer *p, uint32_t id);
void peer_err(struct peer *p, uint32_t id, const struct err *e);
void keeper_tell_all(struct keeper *k, struct msg_writer *w);
void keeper_check_quit(struct keeper *k);           /* --once: the last asker and the last computer are gone */

struct create_args {
	const char *id, *template_name, *hostname;
	uint32_t slot;
	uint8_t net;
	struct box_limits limits;
	struct box_mount mounts[BOX_MOUNTS];
	size_t nmounts;
};
int computer_create(struct keeper *k, const struct create_args *a, struct peer *p, uint32_t id, struct err *e);
struct computer *computer_find(struct keeper *k, const char *id);
int computer_kill(struct computer *c, struct peer *p, uint32_t id, struct err *e);   /* p may be NULL */
int computer_adopt(struct keeper *k, const char *id, struct err *e);
void keeper_reap(struct keeper *k);                 /* SIGCHLD came */
void computer_sweep_orphan(struct keeper *k, const char *id, uint32_t slot /* 0 = not known */);
void computer_drop_waiters(struct peer *p);

/* record.c: one small file a computer */
struct record { int pid; uint64_t start_time; uint32_t slot; uint8_t net; char template_name[NAME_MAX_ + 1]; };
int record_write(const struct keeper *k, const char *id, const struct record *r, struct err *e);
int record_parse(const char *text, const char *boot, struct record *ret);    /* -EINVAL; -ESTALE of another boot */
int record_read(const struct keeper *k, const char *id, struct record *ret);
void record_remove(const struct keeper *k, const char *id);
size_t keeper_living(struct keeper *k, pid_t *out, size_t max);   /* PID 1 of computers that an earlier keeper made: any, at most max */
int keeper_sweep(struct keeper *k, struct err *e);       /* adopts the living, removes what the dead left */
#endif
