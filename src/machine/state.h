#ifndef MACHINE_STATE_H
#define MACHINE_STATE_H
#include <stdbool.h>
#include <stddef.h>
/* state -- a computer's life as data. Everything that changes a state goes through state_next(); what isn't an edge is a bug of
 * ours (or a request that is refused), never a silent change. A test walks the table: every state but the last ones can be
 * left, and every one can be reached.
 *
 *   creating ──► ready (in the pool) ──► running ⇄ paused
 *       │           │                      │         │
 *       └───────────┴──────► ending ◄──────┴─────────┘      keeper is asked to remove it
 *                               │
 *   creating ──► failed         ▼                            a tombstone says why
 *                             ended
 */
enum machine_state { MS_CREATING, MS_READY, MS_RUNNING, MS_PAUSED, MS_ENDING, MS_ENDED, MS_FAILED, MS_COUNT };
enum machine_event { ME_MADE, ME_POOLED, ME_CLAIM, ME_PAUSE, ME_RESUME, ME_END, ME_GONE, ME_FAIL, ME_COUNT };

struct state_edge { enum machine_state from; enum machine_event event; enum machine_state to; };
extern const struct state_edge state_edges[];
extern const size_t state_edges_n;

/* The next state, or -EINVAL when the event isn't legal there. */
int state_next(enum machine_state from, enum machine_event event);
const char *state_name(enum machine_state s);        /* as the API shows it */
const char *event_name(enum machine_event e);
bool state_is_live(enum machine_state s);            /* belongs to somebody and counts: creating, running, paused */
#endif
