#ifndef MACHINE_KEEPER_H
#define MACHINE_KEEPER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
#include "core/list.h"
#include "core/loop.h"
#include "store/store.h"
#include "wire/keeper_proto.h"
#include "wire/msg.h"
/* keeper -- the daemon's link to bureau-keeper (wire/keeper_proto.h).
 *
 * The keeper may be killed at any moment; its supervisor starts another on the same socket. The link is made again with a
 * growing delay, the new keeper is asked what there is (K_LIST) and listed() hears it, then every call in flight is sent again:
 * each is safe to repeat. A create is sent again only when nothing is left of the first: its descriptors died with the old link, and
 * what the dead keeper had begun may still be ending. After KEEPER_GIVE_UP_MS without a keeper, calls in flight end with EAGAIN. */
struct keeper;

#define KEEPER_GIVE_UP_MS 15000

struct keeper_item { char id[33], template[65]; uint32_t slot, pid /* 0: starting or ending */; uint64_t start; uint8_t net; };
struct keeper_exit { const char *id; uint32_t how, code; uint64_t oom; };

struct keeper_answer {
	uint32_t pid, unenforced, processes;
	uint64_t start, cpu_us, memory, peak, oom;
	int fds[MSG_FDS];            /* -1 or the receiver's; K_CREATE: [0] is the guest's, door sockets follow */
	unsigned nfds;
};

struct keeper_call {
	void (*on)(struct keeper_call *k, struct keeper_answer *a, const struct err *e);
	struct keeper *keeper;       /* NULL = not in flight */
	struct list node;
	uint32_t id;
	uint16_t type;
	char cid[33];
	void *bytes;                 /* as sent, to send it again */
	size_t len;
};

struct keeper_events {
	/* A keeper is there (again) and knows these. Calls in flight are sent after this. */
	void (*listed)(void *ctx, const struct keeper_item *items, size_t n);
	void (*exited)(void *ctx, const struct keeper_exit *x);
};
int keeper_open(struct loop *l, const char *run_dir, const char *name, const struct keeper_events *ev, void *ctx, struct keeper **ret, struct err *e);
void keeper_close(struct keeper *k);
bool keeper_up(const struct keeper *k);
uint32_t keeper_features(const struct keeper *k);
const char *keeper_missing(const struct keeper *k);      /* what this host can't do, "" = nothing */

/* on() comes later, always; never from inside these. A call that can't even be kept (no memory) ends with an error, later too. */
struct keeper_create_args {
	const char *id, *template, *hostname;
	uint32_t slot;
	uint8_t net;
	struct store_limits limits;
};
void keeper_create(struct keeper *k, struct keeper_call *c, const struct keeper_create_args *a);
void keeper_limits(struct keeper *k, struct keeper_call *c, const char *id, const struct store_limits *l);
void keeper_ask(struct keeper *k, struct keeper_call *c, uint16_t type, const char *id);   /* K_KILL, K_STATS, K_NET_OPEN */
void keeper_cancel(struct keeper_call *c);               /* no on(); what comes back is closed. Not for a create: end the computer instead */
#endif
