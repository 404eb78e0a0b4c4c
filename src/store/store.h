#ifndef STORE_STORE_H
#define STORE_STORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
/* store -- what must outlive the daemon: one row a computer, live ones and tombstones. SQLite; one process owns the file.
 *
 * Durability. A disposable computer lives in memory: it ends with the host. So what a row must survive is the death of our
 * process at any instant (kill -9), not a power cut; and no call waits for a disk, but open and close. After a power cut the store is
 * checked when it's opened; one that is torn is set aside, and a new one begun. */
struct store;

#define STORE_KEEP_MS (7LL * 24 * 3600 * 1000)   /* tombstones are kept so long... */
#define STORE_KEEP_ROWS 100000                   /* ...and at most so many */

struct store_limits { uint64_t memory, cpu, pids, disk, inodes, files; };

struct store_sandbox {
	char id[33];
	uint32_t slot;
	char state[12];              /* machine/state.h's names */
	char template[65];
	uint8_t net;
	bool secure;
	char token[72];              /* "" = none */
	int64_t started, ends, ended;  /* wall ms; ends 0 = never; ended 0 = lives */
	char why[16], why_text[256], by[64];
	const char *metadata;        /* JSON object text; borrowed, NULL = none */
	struct store_limits limits;
	uint32_t unenforced;
};

int store_open(const char *dir, struct store **ret, struct err *e);     /* DIR/bureau.db; made when missing; newer than we know: refused */
const char *store_replaced(const struct store *s);                      /* a power cut tore it: where it is now; this one began empty. NULL = no */
void store_close(struct store *s);                                      /* accepts NULL */

int store_put(struct store *s, const struct store_sandbox *row, struct err *e);          /* insert or replace */
int store_set_ends(struct store *s, const char *id, int64_t ends, struct err *e);
/* The end: a tombstone is left. Unknown id: nothing happens. */
int store_end(struct store *s, const char *id, const char *state, int64_t when, const char *why, const char *why_text, const char *by, struct err *e);
/* 1 and *ret (its metadata is good until the next store_ call), 0 = unknown. */
int store_get(struct store *s, const char *id, struct store_sandbox *ret, struct err *e);

#define STORE_TEMPLATE ""            /* key of a mark: value is the template's name */
struct store_mark { const char *key, *value; };
struct store_query {
	bool live, ended;            /* which kinds */
	bool oldest_first;
	int64_t after;               /* started at or after */
	int64_t cursor_started;      /* continue behind this row; cursor_id NULL = from the start */
	const char *cursor_id;
	/* Only those with these marks in their metadata: a help to find them soon. What fn gets has one of them, or nearly. */
	const struct store_mark *marks;
	size_t nmarks;
};
/* Calls fn for each row in order until it returns false. fn must not call the store. */
int store_each(struct store *s, const struct store_query *q, bool (*fn)(void *ctx, const struct store_sandbox *row), void *ctx, struct err *e);

/* Forgets old tombstones, a thousand at a time; called now and then. 1: there may be more. */
int store_prune(struct store *s, int64_t now, struct err *e);
#endif
