#ifndef MACHINE_MACHINE_PRIV_H
#define MACHINE_MACHINE_PRIV_H
#include "core/loop.h"
#include "core/map.h"
#include "machine/door.h"
#include "machine/machine.h"
/* Files: machines.c (the set of them, status), life.c (one's way through the states), adopt.c (keeper and guests come back),
 * lifetime.c (when it ends by itself), pool.c (ready ones), template.c. */

#define HOSTNAME "sandbox"
#define POOL_KINDS 8
#define SLOT_WORDS (KEEPER_SLOTS / 64 + 1)
#define ANSWER_MS 20000              /* a guest that takes longer to say hello, or to come back, is given up */

#define STEADY_MS 1000               /* a link that lasts so long was a good one */

enum why_step { ST_KEEPER = 1, ST_CONFIGURE = 2, ST_LIMITS = 4, ST_DOOR = 8 };   /* what a computer in the making waits for */

struct computer {
	struct machines *ms;
	struct store_sandbox row;
	char *metadata;              /* row.metadata points here */
	char real[65];               /* the template that the keeper knows */
	const char *notice;
	enum machine_state state;
	bool pooled;                 /* in the pool, or being made for it */
	bool told;                   /* somebody knows its id: it has a row in the store */
	bool opening;                /* the door was asked to open it */
	bool door_wanted;            /* to be opened as soon as there is a door */
	bool seen;                   /* in the keeper's list */
	unsigned waits_for;          /* enum why_step bits */
	uint32_t pid, kept;          /* kept: limits of the pool's that its owner keeps, KL_* */
	uint64_t start;
	uint64_t oom_seen;
	struct guest *guest;
	struct guest_call gc, gc_deadline;
	struct keeper_call kc;       /* create, limits, then kill */
	struct keeper_call kc_net;
	struct timer deadline, watch, net_timer;
	int tries, net_tries, kill_tries;
	int64_t up, down;            /* loop time: its PID 1 said hello; its link was lost first (0 = not, or that is long over) */
	int64_t due;                 /* CLOCK_BOOTTIME ms; 0 = never */
	struct list node;            /* in ms->all */
	struct list waits;           /* for being made */
	struct list kill_waits;
	char **envs;                 /* until it is configured */
	size_t nenvs;
	void *above;
};

struct pool_kind {
	char template[65];
	uint8_t net;
	bool used;
	int64_t last_used;           /* mono ms */
	unsigned ready, making;
	unsigned fails;
};

struct machines {
	struct machines_opts o;
	char *dir, *run_dir;
	int run_fd;
	struct keeper *keeper;
	struct door *door;
	struct map *by_id, *by_token;
	struct list all;
	unsigned count[MS_COUNT];
	unsigned pooled, total, max;
	unsigned sweeps;             /* computers that nobody knows, being ended */
	uint64_t slots[SLOT_WORDS];
	uint32_t slot_hint;
	struct store_limits defaults;
	struct pool_kind kinds[POOL_KINDS];
	struct timer refill, prune, ready_timer;
	bool ready, heard, stopping, ending;
	int64_t started, busy_at;
	struct source clock;         /* lifetime.c: tells when the wall clock is set */
};

/* machines.c */
struct computer *computer_new(struct machines *ms, const char *id, uint32_t slot);   /* NULL: no memory */
void computer_free(struct computer *c);
void computer_move(struct computer *c, enum machine_event ev);
uint32_t slot_take(struct machines *ms);                 /* 0 = none is free */
void slot_use(struct machines *ms, uint32_t slot);
void slot_free(struct machines *ms, uint32_t slot);
int computer_set_token(struct computer *c, const char *token);

/* life.c */
void life_make(struct computer *c, const char *template, uint8_t net, const struct store_limits *l);
void life_gone(struct computer *c, const char *why, const char *text);
void life_link(struct computer *c, int fd);
void life_net(struct computer *c);                       /* open it at the door when both are there */
void life_net_opened(struct computer *c, const struct err *e);
void life_clear_envs(struct computer *c);

/* lifetime.c */
void lifetime_set(struct computer *c, int64_t ends);     /* wall ms; 0 = never */
void lifetime_arm(struct computer *c);                   /* from here on it's ended when its time is over */
bool lifetime_over(const struct computer *c);
void lifetime_tell(struct computer *c);                  /* its guest */
void lifetime_clock_set(struct machines *ms);
int lifetime_watch(struct machines *ms, struct err *e);
void lifetime_unwatch(struct machines *ms);

/* pool.c */
struct computer *pool_take(struct machines *ms, const char *template, uint8_t net);
void pool_made(struct computer *c);                      /* one of the pool's is ready */
void pool_lost(struct computer *c);                      /* one of the pool's ended or failed */
bool pool_affords(const char *meminfo);                   /* /proc/meminfo: may another be made in advance? */
bool pool_evict(struct machines *ms);                    /* ends one to make room; false: there is none */
void pool_wake(struct machines *ms);
void pool_start(struct machines *ms);
void pool_fire(struct timer *t);

/* adopt.c */
void adopt_listed(void *ctx, const struct keeper_item *items, size_t n);
void adopt_exited(void *ctx, const struct keeper_exit *x);
void adopt_guest_gone(void *ctx, const struct err *e);
int adopt_rows(struct machines *ms, struct err *e);
#endif
