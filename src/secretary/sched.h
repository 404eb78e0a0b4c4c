#ifndef SECRETARY_SCHED_H
#define SECRETARY_SCHED_H
#include "core/json.h"
#include "core/loop.h"
#include "secretary/spec.h"
/* sched -- the tasks of a job: their states, what may start when, retries. Knows nothing of computers: a worker is started and
 * stopped through sched_ops and reports back. Every change goes through one function, sched_move(), which writes the journal's line
 * first.
 *
 * A task and its slot are two things: a task is over when its outcome is known, its slot (one of limits.computers) is free when the
 * worker says that nothing of its computer is left (sched_release). A task is tried again only after that. */
enum task_state { TASK_WAITING, TASK_PARKED, TASK_STARTING, TASK_WORKING, TASK_CLAIMED, TASK_DONE, TASK_FAILED, TASK_BLOCKED, TASK_STOPPED };
#define TASK_STATES 9
enum task_event { EV_START, EV_UP, EV_CLAIM, EV_VERIFY, EV_PARK, EV_WAKE, EV_FAIL, EV_BLOCK, EV_STOP, EV_CUT, EV_REOPEN };
#define TASK_EVENTS 11

struct task_edge { enum task_state from; enum task_event event; enum task_state to; };
const struct task_edge *sched_edges(size_t *ret_n);
const char *task_state_name(enum task_state s);
static inline bool task_over(enum task_state s) { return s >= TASK_DONE; }
static inline bool task_running(enum task_state s) { return s == TASK_STARTING || s == TASK_WORKING || s == TASK_CLAIMED; }

struct task {
	int spec, row;              /* index of the [[task]]; of its row, -1 without */
	char id[64];
	enum task_state state;
	unsigned attempt;           /* the number of the current or last one: the fencing number of a computer */
	unsigned failures, busy;    /* attempts that failed; times in a row that there was no computer to be had */
	bool slot;
	char computer[40];
	char why[320];
	char now[80];               /* what it does, for the progress lines */
	json_t *result;
	int64_t started, ended;     /* wall ms of the first start, of the end */
	int64_t wake;               /* mono ms, while parked */
	void *run;                  /* the worker's */
};

struct sched_ops {
	int (*journal)(void *ctx, json_t *line /* stolen */, bool durable);    /* negative: everything stops */
	void (*start)(void *ctx, struct task *t);
	void (*stop)(void *ctx, struct task *t);         /* ends with sched_stopped() and sched_release(), perhaps before it returns */
	void (*changed)(void *ctx, struct task *t);      /* for the progress lines */
	void (*finished)(void *ctx);                     /* once: every task is over and no slot is taken */
};

enum fail_kind {
	FAIL_TRY,                   /* counts; tried again while retries last */
	FAIL_BUSY,                  /* no computer to be had now: waits, doesn't count */
	FAIL_FINAL,                 /* trying again would change nothing */
};

#define SCHED_TIME_OVER "the job's time is over"   /* how sched_stop_why() begins then */

struct sched;
/* rows[i] is the array of input i. */
int sched_create(struct loop *l, const struct spec *s, json_t *const *rows, const struct sched_ops *ops, void *ctx, struct sched **ret, struct err *e);
void sched_free(struct sched *s);
int sched_replay(struct sched *s, const json_t *line, struct err *e);   /* a line of the journal, before sched_begin */
/* Begins: tasks that were cut in the middle wait again. reopen: so do stopped ones, with reopen_failed also failed and blocked ones.
 * time: what it may take, in ms; with 0 and less it's stopped at once. */
int sched_begin(struct sched *s, int64_t computers, int64_t time, bool reopen, bool reopen_failed, struct err *e);
void sched_stop(struct sched *s, const char *why);                      /* everything; finished() comes */
const char *sched_stop_why(const struct sched *s);                      /* NULL while nothing stopped it */

void sched_up(struct sched *s, struct task *t, const char *computer);
void sched_claimed(struct sched *s, struct task *t, json_t *result /* stolen */);
void sched_verified(struct sched *s, struct task *t);
void sched_failed(struct sched *s, struct task *t, enum fail_kind kind, int64_t wait_ms, const char *why);
void sched_stopped(struct sched *s, struct task *t);
void sched_release(struct sched *s, struct task *t);

struct task *sched_tasks(struct sched *s, int *ret_n);
struct task *sched_of_spec(struct sched *s, int spec, int *ret_n);       /* the tasks of one [[task]]: neighbours */
const json_t *sched_row(const struct sched *s, const struct task *t);    /* NULL without rows */
void sched_count(const struct sched *s, int count[TASK_STATES]);
bool sched_ok(const struct sched *s);                                    /* every task is done */
#endif
