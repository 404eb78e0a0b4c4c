/* link -- a peer on the loop.
 *
 * Theory of operation. Messages are read a few a turn, so that one busy peer doesn't starve the others. What the
 * peer's socket doesn't take waits in a bounded list, in order, with duplicates of its descriptors. A link can be
 * freed inside any of its own callbacks: while `busy` it is only taken off the loop and closed, and whoever raised
 * `busy` frees the memory. Sending never calls gone(): a peer that vanished is reported from the loop, once. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/list.h"
#include "wire/sock.h"

#define TURN_MESSAGES 16

struct pending {
	struct list node;
	struct msg_writer w;          /* its bytes are in data[], its descriptors are ours */
	uint8_t data[];
};

struct link {
	struct source src;
	struct loop *loop;
	const struct link_ops *ops;
	void *ctx;
	struct list queue;
	size_t queued, queue_max;
	int paused;
	bool over;                    /* gone() was called, or is being called */
	bool freed;
	unsigned busy;
};

static void pending_free(struct pending *p)
{
	for (unsigned i = 0; i < p->w.nfds; i++)
		close(p->w.fds[i]);
	list_unlink(&p->node);
	free(p);
}

static void drop_queue(struct link *k)
{
	list_each(it, &k->queue)
		pending_free(container_of(it, struct pending, node));
	k->queued = 0;
}

static uint32_t wanted(const struct link *k)
{
	return (k->paused ? 0 : EPOLLIN) | (list_empty(&k->queue) ? 0 : EPOLLOUT);
}

static void leave(struct link *k, const struct err *why)
{
	if (k->over)
		return;
	k->over = true;
	loop_remove(k->loop, &k->src);
	drop_queue(k);
	k->ops->gone(k->ctx, why);
}

/* Sends what waits. 1 when the queue became empty by it. */
static int flush(struct link *k)
{
	while (!list_empty(&k->queue)) {
		struct pending *p = container_of(k->queue.next, struct pending, node);
		int rc = msg_send(k->src.fd, &p->w);

		if (rc == -EAGAIN)
			return 0;
		if (rc < 0) {         /* nobody gets these any more. The read side says so, after what the peer still sent; a paused one can't */
			struct err e = { 0 };

			drop_queue(k);
			shutdown(k->src.fd, SHUT_RDWR);
			if (k->paused)
				leave(k, &e);
			return 0;
		}
		k->queued -= p->w.len;
		pending_free(p);
	}
	return 1;
}

/* One message: 1, nothing more now: 0, link over: -1 */
static int receive(struct link *k)
{
	uint8_t mem[MSG_MAX];
	int fds[MSG_FDS];
	unsigned nfds;
	struct msg_reader r;
	struct err e = { 0 };
	ssize_t n;

	memset(mem, 0, MSG_HEAD);      /* read below even where less came */
	n = msg_recv(k->src.fd, mem, sizeof mem, fds, &nfds);
	if (n == -EAGAIN)
		return 0;
	if (n == -EMFILE && k->ops->no_fds) {
		k->ops->no_fds(k->ctx, (uint16_t)(mem[0] | mem[1] << 8),
			(uint32_t)mem[4] | (uint32_t)mem[5] << 8 | (uint32_t)mem[6] << 16 | (uint32_t)mem[7] << 24);
		return k->over || k->freed ? -1 : 1;
	}
	if (n <= 0) {
		if (n < 0 && n != -ECONNRESET)
			err_set(&e, (int)-n, n == -EPROTO ? "peer sent a message that is too long or has too many descriptors" :
				n == -EMFILE ? "no descriptor is left for what a peer sent" : "read from peer");
		leave(k, &e);
		return -1;
	}
	if (msg_reader_init(&r, mem, (size_t)n, fds, nfds, &e) < 0) {
		leave(k, &e);
		return -1;
	}
	k->ops->message(k->ctx, &r);
	if (msg_reader_end(&r, &e) < 0 && !k->freed)
		leave(k, &e);
	return k->over || k->freed ? -1 : 1;
}

/* Hung up while paused. Without answers waiting it can wait too: a source that wants nothing is silent, and the end is
 * read after what came before it. With some, whoever paused us may wait for them to drain, and they never will. */
static void hung_up(struct link *k)
{
	struct err e = { 0 };

	if (!list_empty(&k->queue))
		leave(k, &e);
}

static void link_ready(struct source *s, uint32_t events)
{
	struct link *k = container_of(s, struct link, src);

	k->busy++;
	if ((events & EPOLLOUT) && !list_empty(&k->queue) && flush(k) && k->ops->drained)
		k->ops->drained(k->ctx);
	if (!k->paused && !k->over && !k->freed && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		for (int i = 0; i < TURN_MESSAGES && !k->paused && receive(k) > 0; i++)
			;
	else if (k->paused && !k->over && !k->freed && (events & (EPOLLHUP | EPOLLERR)))
		hung_up(k);
	if (!k->over && !k->freed)
		loop_mod(k->loop, &k->src, wanted(k));
	if (--k->busy == 0 && k->freed)
		free(k);
}

int link_create(struct loop *l, int fd, size_t queue_max, const struct link_ops *ops, void *ctx, const char *name, struct link **ret, struct err *e)
{
	struct link *k = calloc(1, sizeof *k);
	int rc;

	if (!k) {
		close(fd);
		return err_set(e, ENOMEM, "no memory for a peer");
	}
	k->src = (struct source){ .fd = fd, .name = name, .ready = link_ready };
	k->loop = l;
	k->ops = ops;
	k->ctx = ctx;
	k->queue_max = queue_max;
	list_init(&k->queue);
	rc = fd_nonblock(fd, 1);
	if (rc < 0)
		err_set(e, -rc, "make a socket nonblocking");
	else
		rc = loop_add(l, &k->src, EPOLLIN, e);
	if (rc < 0) {
		close(fd);
		free(k);
		return rc;
	}
	*ret = k;
	return 0;
}

void link_free(struct link *k)
{
	if (!k || k->freed)
		return;
	loop_remove(k->loop, &k->src);
	drop_queue(k);
	close(k->src.fd);
	k->freed = true;
	k->over = true;
	if (!k->busy)
		free(k);
}

static int enqueue(struct link *k, const struct msg_writer *w)
{
	struct pending *p;

	if (w->len > k->queue_max - k->queued)
		return -ENOBUFS;
	p = malloc(sizeof *p + w->len);
	if (!p)
		return -ENOMEM;
	p->w = *w;
	p->w.p = p->data;
	p->w.nfds = 0;
	list_init(&p->node);
	memcpy(p->data, w->p, w->len);
	for (unsigned i = 0; i < w->nfds; i++) {
		int fd = fcntl(w->fds[i], F_DUPFD_CLOEXEC, 0);

		if (fd < 0) {
			int rc = -errno;

			pending_free(p);
			return rc;
		}
		p->w.fds[p->w.nfds++] = fd;
	}
	list_append(&k->queue, &p->node);
	k->queued += w->len;
	loop_mod(k->loop, &k->src, wanted(k));
	return 0;
}

int link_send(struct link *k, struct msg_writer *w)
{
	int rc;

	if (k->over)
		return -EPIPE;
	if (w->bad || w->len < MSG_HEAD)
		return -EINVAL;
	if (list_empty(&k->queue)) {
		rc = msg_send(k->src.fd, w);
		if (rc != -EAGAIN)
			return rc;
	}
	return enqueue(k, w);
}

int link_full(const struct link *k)
{
	return !list_empty(&k->queue);
}

void link_pause(struct link *k, int paused)
{
	k->paused = paused;
	if (!k->over)
		loop_mod(k->loop, &k->src, wanted(k));
}

int link_fd(const struct link *k)
{
	return k->src.fd;
}
