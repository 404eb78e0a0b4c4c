#ifndef DOOR_NAMES_H
#define DOOR_NAMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/list.h"
#include "door/addr.h"
/* names -- the addresses that the door gave a computer, and the names they stand for.
 *
 * Each computer has a table of its own. A name gets a number, and the number is one address of 198.18.0.0/15 and one of
 * fd62:7572:6561::/96. When the table is full the name that wasn't used for longest goes; one with open connections never
 * does. Numbers are handed out round the whole range, so an address that a program remembered for too long most
 * likely stands for nothing (and is refused) rather than for another name. */
struct name {
	struct list lru;
	uint32_t number;
	unsigned held;         /* open connections */
	char text[];
};
struct names;
int names_create(size_t max, struct names **ret);
void names_free(struct names *t);
struct name *names_get(struct names *t, const char *text);              /* found or new; NULL: no room, no memory */
struct name *names_find(struct names *t, const struct addr *a);         /* by address; NULL: stands for nothing */
static inline void name_hold(struct name *n) { n->held++; }
static inline void name_release(struct name *n) { n->held--; }
void name_addr4(const struct name *n, struct addr *ret);
void name_addr6(const struct name *n, struct addr *ret);
#endif
