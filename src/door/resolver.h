#ifndef DOOR_RESOLVER_H
#define DOOR_RESOLVER_H
#include <stdbool.h>
#include <stddef.h>
#include "core/err.h"
#include "core/list.h"
#include "core/loop.h"
#include "door/addr.h"
/* resolver -- names to addresses, asked of the host's name servers without blocking.
 *
 * Theory of operation. A name being asked for is an entry with two asks (A and AAAA) side by side. An ask sends one
 * datagram at a time from a fresh connected socket (so the kernel picks a random port and drops other senders) with a
 * random id; an answer must repeat the id and the question. No answer or a failing server: the next server, then
 * round again; a cut answer: the same server over TCP. When one family has addresses, the other gets a short
 * grace. Answers are kept for their TTL, within bounds, by name; entries being asked for are never dropped. */
#define RESOLVER_ADDRS 32
struct resolver;
struct lookup {
	struct list link;
	/* error: 0, ENOENT (no such name, or no addresses), ETIMEDOUT, EAGAIN (too many at once), EIO. IPv6 first. */
	void (*done)(struct lookup *q, int error, const struct addr *addrs, size_t n);
};
/* servers: as hosts_create. */
int resolver_create(struct loop *l, const char *servers, struct resolver **ret, struct err *e);
void resolver_free(struct resolver *r);       /* lookups still open are dropped without a call */
/* done is called once, perhaps before this returns. */
void resolver_lookup(struct resolver *r, const char *name, struct lookup *q);
void resolver_cancel(struct lookup *q);       /* safe when done or never started, if link was list_init()ed */
#endif
