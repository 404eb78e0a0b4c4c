#ifndef DOOR_DOOR_H
#define DOOR_DOOR_H
#include "core/err.h"
#include "core/loop.h"
/* door -- the way out of computers: see wire/door_proto.h for what is asked of it.
 * Owns its asker's link, every computer's sockets and every connection. May not keep anything on disk. */
struct door;
struct door_options {
	int asker_fd;
	const char *resolver;       /* NULL: the host's settings */
	const char **allow;
	size_t nallow;
};
/* Could a door use these? */
int door_check(const struct door_options *o, struct err *e);
/* Ends the loop when the asker ends. Takes asker_fd. */
int door_create(struct loop *l, const struct door_options *o, struct door **ret, struct err *e);
void door_free(struct door *d);
#endif
