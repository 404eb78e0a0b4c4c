#ifndef MACHINE_DOOR_H
#define MACHINE_DOOR_H
#include <stdbool.h>
#include <stdint.h>
#include "core/err.h"
#include "core/loop.h"
#include "wire/door_proto.h"
/* door -- the daemon's link to bureau-door, which it gets from a spawner (its supervisor, or a child of its own). A door that
 * died is replaced, after a growing delay; up() then says that every computer must be opened again. */
struct door;

struct door_events {
	/* Starts a door and gives our end of its socket. A negative errno: tried again later. */
	int (*spawn)(void *ctx, int *ret_fd, struct err *e);
	void (*up)(void *ctx);
	void (*opened)(void *ctx, const char *id, const struct err *e);    /* the answer to door_add; e NULL = done */
	void (*denied)(void *ctx, const char *id, const char *what, const char *rule);
};
int door_open(struct loop *l, const struct door_events *ev, void *ctx, struct door **ret, struct err *e);
void door_close(struct door *d);
bool door_up(const struct door *d);
/* Hands listening sockets over; they stay the caller's to close. -EAGAIN when the door is down. */
int door_add(struct door *d, const char *id, uint8_t mode, const int *fds, unsigned nfds);
void door_drop(struct door *d, const char *id);
#endif
