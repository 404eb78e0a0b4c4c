#ifndef CORE_LOOP_H
#define CORE_LOOP_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include "core/err.h"
/* loop -- one epoll loop a process: descriptors, timers, deferred work.
 *
 * Theory of operation. A turn: wait; dispatch ready sources; fire due timers; run deferred jobs; again.
 * Sources, timers and jobs are embedded in their owner: the loop never allocates for them and never owns
 * them. Level-triggered. An owner may remove (and free) any source, its own or another's, inside a callback:
 * loop_remove() also takes it out of the batch of events being dispatched. What must be freed after the
 * running callback returns goes through loop_defer(). Callbacks must not block. */
struct loop;

struct source {
	int fd;
	uint32_t events;                 /* EPOLLIN | EPOLLOUT as registered, EPOLLET while silent; 0 = not in the loop */
	const char *name;                /* for the trace */
	void (*ready)(struct source *s, uint32_t events);
};

struct timer {
	int64_t due_ms;                  /* clock_mono_ms */
	uint32_t pos;                    /* place in the heap + 1; 0 = not armed */
	void (*fire)(struct timer *t);
};

struct job {
	struct job *next;
	bool queued;
	void (*run)(struct job *j);
};

int loop_create(struct loop **ret, struct err *e);
void loop_free(struct loop *l);      /* asserts, in debug builds, that nothing is still registered */
int loop_run(struct loop *l);        /* until loop_quit; returns its code */
void loop_quit(struct loop *l, int code);
/* One turn that waits at most max_wait_ms (-1 = until something happens): for callers that own the outer loop. */
void loop_turn(struct loop *l, int max_wait_ms);

/* s->fd, s->name, s->ready are set by the caller. events = EPOLLIN|EPOLLOUT; EPOLLERR and EPOLLHUP always come. */
int loop_add(struct loop *l, struct source *s, uint32_t events, struct err *e);
int loop_mod(struct loop *l, struct source *s, uint32_t events);   /* cheap when unchanged; 0 keeps it registered but silent, even on a hang-up */
void loop_remove(struct loop *l, struct source *s);                /* safe when not registered; does not close fd: remove first, then close */

void loop_arm(struct loop *l, struct timer *t, int64_t delay_ms);  /* re-arms when already armed */
void loop_disarm(struct loop *l, struct timer *t);
void loop_defer(struct loop *l, struct job *j);                    /* once per turn; queued twice = once */
void loop_cancel(struct loop *l, struct job *j);

/* Signals as events: blocks them for the process and calls on_signal from the loop. */
int loop_signals(struct loop *l, const int *signals, int n, void (*on_signal)(void *ctx, int signo), void *ctx, struct err *e);

/* Milliseconds at the start of this turn. */
int64_t loop_now(struct loop *l);

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - __builtin_offsetof(type, member)))
#endif
