#ifndef DAEMON_SERVE_H
#define DAEMON_SERVE_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "core/err.h"
#include "core/loop.h"
/* serve -- the supervisor's parts: serve.c (arguments, main), place.c (the state folder, sockets), supervise.c (the children). */
#define SERVE_ALLOW 16
struct serve {
	const char *listen, *state, *cert, *key, *domain, *pid_file, *resolver;
	const char *allow[SERVE_ALLOW];
	unsigned nallow;
	uint64_t pool, max;
	bool pool_given, no_key, detach, keep;
	char state_buf[4096], url[200];

	int state_fd, lock_fd, http_fd, keeper_fd, ready_fd, ids_fd;
	bool root;
	uid_t uid;                   /* bureaud's; the door's is one more */
	gid_t gid;
};

/* place.c */
int place_prepare(struct serve *s, struct err *e);    /* folders, key, lock, sockets, whose they are */
int place_announce(const struct serve *s, struct err *e);   /* server.json */
void place_retract(const struct serve *s);

/* ids.c: a plain user's ids, while we may still start what is set-id; s->ids_fd stays -1 where there are none */
int ids_make(struct serve *s, struct err *e);

/* supervise.c: runs until a signal; the exit code */
int supervise(struct serve *s, struct err *e);
#endif
