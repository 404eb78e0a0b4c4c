#ifndef MACHINE_MACHINE_H
#define MACHINE_MACHINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
#include "core/list.h"
#include "machine/guest.h"
#include "machine/keeper.h"
#include "machine/state.h"
#include "store/store.h"
/* machine -- computers: made, found again after a crash, limited, ended, and remembered by a tombstone.
 *
 * Who owns what: `struct machines` owns every computer; a computer owns its guest link; the store has a row for each that
 * somebody was told about. A pointer to a computer is good until it has ended: on_end says so before it is freed, and every
 * guest call of it has ended by then. */
struct machines;
struct computer;
struct loop;

struct machines_opts {
	struct loop *loop;
	struct store *store;
	const char *state_dir;
	const char *keeper_name;     /* the keeper's socket below DIR/run */
	unsigned pool;               /* ready computers kept for each kind in use */
	unsigned max;                /* computers at once; 0 = by this host */
	int (*spawn_door)(void *ctx, int *ret_fd, struct err *e);   /* NULL: no door, so no network */
	void (*on_end)(void *ctx, struct computer *c);              /* it is ending: cut what is tied to it */
	void (*on_ready)(void *ctx);                                /* once: the keeper has been heard, old computers are adopted */
	void (*on_denied)(void *ctx, const char *id, const char *what, const char *rule);
	void *ctx;
};
int machines_create(const struct machines_opts *o, struct machines **ret, struct err *e);
void machines_free(struct machines *ms);                 /* computers go on: the next daemon adopts them */

void machines_end_all(struct machines *ms, const char *why, const char *why_text, const char *by);   /* and no new ones are made */
unsigned machines_left(const struct machines *ms);       /* of any state, the pool's too, and what may be at a keeper that isn't there */

/* Somebody who waits for a computer to be made or to be gone. Embedded in its owner. */
struct machine_wait {
	struct list node;
	bool making;                 /* waits for it to be made */
	void (*done)(struct machine_wait *w, struct computer *c, const struct err *e);
};

struct machine_create {
	const char *template;
	uint8_t net;                 /* enum keeper_net */
	struct store_limits limits;  /* 0 = the default */
	int64_t ends;                /* wall ms; 0 = never */
	const char *metadata;        /* JSON object text or NULL */
	const char *const *envs;
	size_t nenvs;
	bool secure;
	bool early;                  /* answer as soon as it has its id (state: creating) */
};
/* done() comes exactly once, perhaps at once. */
void machine_create(struct machines *ms, const struct machine_create *a, struct machine_wait *w);
/* The one who waits went away. A computer that nobody was told about is ended. */
void machine_wait_cancel(struct machine_wait *w);
/* Ends a computer; done() when nothing of it is left. w may be NULL. */
void machine_end(struct computer *c, const char *why, const char *why_text, const char *by, struct machine_wait *w);
int machine_set_ends(struct computer *c, int64_t ends, struct err *e);

struct computer *machine_find(struct machines *ms, const char *id);      /* live and known to somebody, or NULL */
struct computer *machine_find_any(struct machines *ms, const char *id);  /* also one that is ending */
struct computer *machine_find_token(struct machines *ms, const char *token);
const struct store_sandbox *computer_row(const struct computer *c);
enum machine_state computer_state(const struct computer *c);
struct guest *computer_guest(const struct computer *c);                  /* NULL: its link is being made again */
const char *computer_notice(const struct computer *c);                   /* something its owner should know, or NULL */
void **computer_slot(struct computer *c);                                /* a pointer of the layer above */
/* One question to the keeper about it: K_STATS. */
void machine_stats(struct computer *c, struct keeper_call *k);
uint64_t computer_oom_seen(const struct computer *c);
void computer_set_oom_seen(struct computer *c, uint64_t n);
void machine_each(struct machines *ms, bool (*fn)(void *ctx, struct computer *c), void *ctx);   /* until fn returns true */

struct machine_status {
	unsigned creating, running, paused, pooled, max;
	bool keeper, door;
	uint32_t features;
	const char *missing;
	int64_t uptime_ms;
};
void machines_status(const struct machines *ms, struct machine_status *ret);
struct store *machines_store(struct machines *ms);
const char *machines_dir(const struct machines *ms);
/* The names of limits in a mask of enum keeper_limit, in order; NULL after the last bit. */
const char *machine_limit_name(unsigned bit);

/* What a template's name stands for now. 0 and the name to give the keeper; -ENOENT. *ret_notice: "" or what to tell. */
int template_resolve(const char *state_dir, const char *name, char ret[65], const char **ret_notice, struct err *e);
#endif
