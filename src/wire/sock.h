#ifndef WIRE_SOCK_H
#define WIRE_SOCK_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "core/err.h"
#include "core/loop.h"
#include "wire/msg.h"
/* sock -- SOCK_SEQPACKET Unix sockets: raw send and receive, and `struct link`, a peer on the loop. */

/* A pair, both ends CLOEXEC and nonblocking. */
int sock_pair(int ret[2], struct err *e);
/* A listening socket at dirfd/name (below a folder of any depth: it goes by /proc/self/fd; with AT_FDCWD the path is used as it is, 107 bytes at most). An old socket there is replaced. mode is the file's. */
int sock_listen_at(int dirfd, const char *name, mode_t mode, int backlog, int *ret, struct err *e);
int sock_connect_at(int dirfd, const char *name, int *ret, struct err *e);
int sock_peer(int fd, pid_t *ret_pid, uid_t *ret_uid, struct err *e);      /* SO_PEERCRED */

/* One message. 0; -EAGAIN when the peer's queue is full; another -errno when the peer is gone; -EINVAL for a bad writer. */
int msg_send(int fd, const struct msg_writer *w);
/* Bytes received into mem (cap >= MSG_MAX), 0 at the peer's end, -EAGAIN, -EPROTO (cut message, cut descriptors), -errno.
 * Descriptors are CLOEXEC and the caller's (at most MSG_FDS; more = -EPROTO and all closed). -EMFILE: this process has no room for them,
 * which says nothing about the peer; all are closed, and mem holds the message. */
ssize_t msg_recv(int fd, void *mem, size_t cap, int fds[MSG_FDS], unsigned *ret_nfds);

/* A peer: reads messages, queues what can't be sent yet (bounded), and leaves the loop on the first fault. */
struct link;
struct link_ops {
	/* One message. The link calls msg_reader_end afterwards: a fault there ends the peer, through gone(). */
	void (*message)(void *ctx, struct msg_reader *r);
	/* The peer ended (e->code 0) or broke a rule. The link is off the loop already; its owner calls link_free, now or later. */
	void (*gone)(void *ctx, const struct err *e);
	/* The queue has emptied after link_full() was true. May be NULL. */
	void (*drained)(void *ctx);
	/* A message whose descriptors didn't fit into our table is lost but for this. NULL: it ends the peer. */
	void (*no_fds)(void *ctx, uint16_t type, uint32_t id);
};
/* Takes fd, also on failure. queue_max bounds the bytes waiting to be sent. */
int link_create(struct loop *l, int fd, size_t queue_max, const struct link_ops *ops, void *ctx, const char *name, struct link **ret, struct err *e);
void link_free(struct link *k);        /* closes; safe inside its own callbacks; accepts NULL */
/* Sends or queues (descriptors are duplicated when queued). -ENOBUFS when the queue would pass its bound: nothing was queued. */
int link_send(struct link *k, struct msg_writer *w);
int link_full(const struct link *k);   /* something is queued */
void link_pause(struct link *k, int paused);  /* stop reading: back-pressure towards the peer */
int link_fd(const struct link *k);

#endif
