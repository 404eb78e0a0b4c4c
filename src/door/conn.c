#include "door/door_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/fd.h"
#include "wire/keeper_proto.h"

/* conn -- one TCP connection of a computer to the world.
 *
 * Theory of operation. The computer's connection was redirected to our listening socket; the kernel still knows where it
 * was to go. RESOLVING: that place was an address of ours, whose name is being looked up (a literal address skips this).
 * DIALLING: addresses are checked one by one and tried; the next one starts when one fails or has had DIAL_NEXT_MS, the
 * first to connect wins. FLOWING: bytes go both ways. Any end before FLOWING is a reset for the computer.
 *
 * Flowing: each way has a source and a sink. A read is written on at once from one buffer that all connections share; only what the
 * sink won't take is kept, and until that is gone the source isn't read: one slow reader costs at most CHUNK bytes each way
 * and slows its sender down. An end of file is passed on as half-close after the last byte; when both ways have ended the
 * connection is over. An error on either side resets the other, so a cut transfer never looks complete. */
/* SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST; their headers don't go together with libc's. */
#define ORIGINAL_DST 80
#define CHUNK 65536
#define READS 4                 /* reads in a row for one event, so that one connection doesn't starve the others */
#define DIALS 16                /* addresses tried */
#define DIALS_AT_ONCE 3
#define DIAL_NEXT_MS 300
#define DIAL_ALL_MS 30000
#define ACCEPTS 32
#define AGAIN_MS 100
/* Watched for its end alone: a mask of 0 would be silent about that too, and TCP never raises this one. EPOLLPRI it may: an urgent
 * byte stays ready for as long as it isn't read. */
#define END_ONLY EPOLLMSG

enum way { OUT, IN };           /* OUT: from the computer; also the index of the end it reads from */

struct end { struct source src; struct conn *conn; };
struct flow { char *kept; size_t at, len; bool eof, shut; };

struct conn {
	struct computer *computer;
	struct list link;
	struct lookup lookup;
	struct name *name;              /* held */
	struct timer dial_timer, limit_timer;
	struct end ends[2];             /* [OUT] the computer's, [IN] the world's */
	struct flow flows[2];
	bool flowing;
	uint16_t port;
	size_t naddrs, next_addr;
	struct addr addrs[DIALS];
	struct end dials[DIALS_AT_ONCE];
	struct job ended;
};

static char shared[CHUNK];

static void dial_more(struct conn *n);

void door_reset(int *fd)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };

	if (*fd >= 0)
		setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	fd_drop(fd);
}

static void end_drop(struct conn *n, struct end *d, bool reset)
{
	loop_remove(n->computer->door->loop, &d->src);
	if (reset)
		door_reset(&d->src.fd);
	else
		fd_drop(&d->src.fd);
}

static void conn_free(struct job *j)
{
	struct conn *n = container_of(j, struct conn, ended);

	free(n->flows[OUT].kept);
	free(n->flows[IN].kept);
	free(n);
}

/* Everything but the memory goes now; that goes after the callback that we are in. */
static void conn_end(struct conn *n, bool reset)
{
	struct computer *c = n->computer;
	struct loop *l = c->door->loop;

	if (n->ended.queued)
		return;
	resolver_cancel(&n->lookup);
	loop_disarm(l, &n->dial_timer);
	loop_disarm(l, &n->limit_timer);
	for (int i = 0; i < DIALS_AT_ONCE; i++)
		end_drop(n, &n->dials[i], true);
	end_drop(n, &n->ends[OUT], reset);
	end_drop(n, &n->ends[IN], reset);
	if (n->name)
		name_release(n->name);
	n->name = NULL;
	list_unlink(&n->link);
	c->nconns--;
	loop_defer(l, &n->ended);
}

void conns_cut(struct computer *c)
{
	list_each(it, &c->conns)
		conn_end(container_of(it, struct conn, link), true);
}

/* ---- flowing ---- */

static void flow_watch(struct conn *n)
{
	struct loop *l = n->computer->door->loop;

	for (int i = 0; i < 2; i++) {
		const struct flow *from = &n->flows[i], *to = &n->flows[!i];   /* the flows that this end is the source and the sink of */

		uint32_t want = (!from->eof && !from->len ? EPOLLIN : 0) | (to->len ? EPOLLOUT : 0);

		/* nothing to do but to hear of a reset; not when both its ways may be shut, which is a hang-up at every turn */
		if (!want && !to->shut)
			want = END_ONLY;
		loop_mod(l, &n->ends[i].src, want);
	}
}

/* Writes p to the sink of way w; keeps what it won't take. Negative: the sink is gone. */
static int flow_write(struct conn *n, enum way w, const char *p, size_t len)
{
	struct flow *f = &n->flows[w];
	ssize_t put = send(n->ends[!w].src.fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (put < 0 && errno != EAGAIN && errno != EINTR)
		return -errno;
	size_t done = put > 0 ? (size_t)put : 0;

	*(w == OUT ? &n->computer->bytes_out : &n->computer->bytes_in) += done;
	if (done == len)
		return 0;
	if (!f->kept && !(f->kept = malloc(CHUNK)))
		return -ENOMEM;
	memcpy(f->kept, p + done, len - done);
	f->at = 0;
	f->len = len - done;
	return 0;
}

/* Writes on what was kept. */
static int flow_drain(struct conn *n, enum way w)
{
	struct flow *f = &n->flows[w];

	if (!f->len)
		return 0;
	ssize_t put = send(n->ends[!w].src.fd, f->kept + f->at, f->len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (put < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	*(w == OUT ? &n->computer->bytes_out : &n->computer->bytes_in) += (size_t)put;
	f->at += (size_t)put;
	f->len -= (size_t)put;
	if (!f->len) {
		free(f->kept);
		f->kept = NULL;
	}
	return 0;
}

/* Reads from the source of way w and writes on. */
static int flow_pump(struct conn *n, enum way w)
{
	struct flow *f = &n->flows[w];

	for (int i = 0; i < READS && !f->len && !f->eof; i++) {
		ssize_t got = recv(n->ends[w].src.fd, shared, sizeof shared, MSG_DONTWAIT);

		if (got < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		if (got == 0) {
			f->eof = true;
		} else {
			int r = flow_write(n, w, shared, (size_t)got);

			if (r < 0)
				return r;
			if ((size_t)got < sizeof shared)
				break;
		}
	}
	return 0;
}

static void flow_close(struct conn *n, enum way w)
{
	struct flow *f = &n->flows[w];

	if (f->eof && !f->len && !f->shut) {
		f->shut = true;
		shutdown(n->ends[!w].src.fd, SHUT_WR);
	}
}

static void on_end(struct source *s, uint32_t events)
{
	struct end *d = container_of(s, struct end, src);
	struct conn *n = d->conn;
	enum way w = d == &n->ends[OUT] ? OUT : IN;
	int r = 0;

	if (events & EPOLLERR)
		r = -ECONNRESET;
	if (!r && (events & EPOLLOUT))
		r = flow_drain(n, !w);
	if (!r && (events & (EPOLLIN | EPOLLHUP)) && !n->flows[w].len)
		r = flow_pump(n, w);
	if (r < 0) {
		conn_end(n, true);
		return;
	}
	flow_close(n, OUT);
	flow_close(n, IN);
	if (n->flows[OUT].shut && n->flows[IN].shut)
		conn_end(n, false);
	else
		flow_watch(n);
}

/* d connected: it is the world's end from now on, the other dials are dropped. */
static void flow_start(struct conn *n, struct end *d)
{
	struct loop *l = n->computer->door->loop;
	int one = 1;
	struct err e;

	loop_remove(l, &d->src);
	n->ends[IN].src = (struct source){ .fd = fd_take(&d->src.fd), .name = "world", .ready = on_end };
	for (int i = 0; i < DIALS_AT_ONCE; i++)
		end_drop(n, &n->dials[i], true);
	loop_disarm(l, &n->dial_timer);
	loop_disarm(l, &n->limit_timer);
	n->flowing = true;
	setsockopt(n->ends[OUT].src.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(n->ends[IN].src.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(n->ends[IN].src.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	n->ends[OUT].src.ready = on_end;
	loop_remove(l, &n->ends[OUT].src);
	if (loop_add(l, &n->ends[OUT].src, EPOLLIN, &e) < 0 || loop_add(l, &n->ends[IN].src, EPOLLIN, &e) < 0)
		conn_end(n, true);
}

/* ---- dialling ---- */

static void denied(struct conn *n, const struct addr *a, enum addr_class class)
{
	char what[512], text[ADDR_TEXT];

	addr_format(a, text);
	if (n->name)
		snprintf(what, sizeof what, "tcp %s:%u (%s)", n->name->text, n->port, text);
	else
		snprintf(what, sizeof what, a->family == 6 ? "tcp [%s]:%u" : "tcp %s:%u", text, n->port);
	computer_denied(n->computer, what, addr_class_words(class));
}

static void on_dial(struct source *s, uint32_t events)
{
	struct end *d = container_of(s, struct end, src);
	int code = 0;
	socklen_t len = sizeof code;

	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0 || code || !(events & EPOLLOUT)) {
		end_drop(d->conn, d, true);
		dial_more(d->conn);
		return;
	}
	flow_start(d->conn, d);
}

/* 1: under way, 0: that address is no good. The check and the connect are of the same bytes: nothing is resolved twice. */
static int dial(struct conn *n, struct end *d, const struct addr *a)
{
	struct door *door = n->computer->door;
	enum addr_class class = reach_check(&door->reach, a);
	struct sockaddr_storage ss;
	socklen_t len = addr_to_sockaddr(a, n->port, &ss);
	struct err e;

	if (class != ADDR_PUBLIC) {
		denied(n, a, class);
		return 0;
	}
	d->src = (struct source){ .name = "dial", .ready = on_dial };
	d->src.fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
	if (d->src.fd < 0)
		return 0;
	if ((connect(d->src.fd, (struct sockaddr *)&ss, len) < 0 && errno != EINPROGRESS) ||
	    loop_add(door->loop, &d->src, EPOLLOUT, &e) < 0) {
		fd_drop(&d->src.fd);
		return 0;
	}
	return 1;
}

/* Starts the next attempt; ends the connection when there is none and none is under way. */
static void dial_more(struct conn *n)
{
	struct end *room = NULL;
	unsigned busy = 0;

	for (int i = 0; i < DIALS_AT_ONCE; i++) {
		if (n->dials[i].src.fd < 0)
			room = &n->dials[i];
		else
			busy++;
	}
	while (room && n->next_addr < n->naddrs) {
		if (dial(n, room, &n->addrs[n->next_addr++])) {
			loop_arm(n->computer->door->loop, &n->dial_timer, DIAL_NEXT_MS);
			return;
		}
	}
	if (!busy)
		conn_end(n, true);
}

static void on_dial_timer(struct timer *t)
{
	dial_more(container_of(t, struct conn, dial_timer));
}

static void on_limit(struct timer *t)
{
	conn_end(container_of(t, struct conn, limit_timer), true);
}

static void on_lookup(struct lookup *q, int error, const struct addr *addrs, size_t count)
{
	struct conn *n = container_of(q, struct conn, lookup);

	if (error) {
		conn_end(n, true);
		return;
	}
	n->naddrs = count < DIALS ? count : DIALS;
	memcpy(n->addrs, addrs, n->naddrs * sizeof *addrs);
	dial_more(n);
}

/* ---- accepting ---- */

/* Until it flows, the computer's end is only watched for being given up. */
static void on_waiting(struct source *s, uint32_t events)
{
	struct end *d = container_of(s, struct end, src);

	if (events & (EPOLLERR | EPOLLHUP))
		conn_end(d->conn, true);
}

static int original(int fd, struct addr *ret, uint16_t *ret_port)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof ss;
	int family = 0;
	socklen_t flen = sizeof family;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &flen) < 0)
		return -errno;
	if (family == AF_INET ? getsockopt(fd, SOL_IP, ORIGINAL_DST, &ss, &len) < 0
			      : getsockopt(fd, SOL_IPV6, ORIGINAL_DST, &ss, &len) < 0)
		return -errno;
	return addr_from_sockaddr(&ss, ret, ret_port);
}

static void conn_begin(struct conn *n, const struct addr *to)
{
	struct computer *c = n->computer;
	struct loop *l = c->door->loop;
	struct name *name = names_find(c->names, to);

	loop_arm(l, &n->limit_timer, DIAL_ALL_MS);
	if (name) {
		n->name = name;
		name_hold(name);
		resolver_lookup(c->door->resolver, name->text, &n->lookup);
		return;
	}
	n->addrs[0] = *to;
	n->naddrs = 1;
	dial_more(n);
}

static void conn_accept(struct computer *c, int fd)
{
	struct conn *n = NULL;
	struct addr to;
	uint16_t port;
	struct err e;

	c->total++;
	if (c->nconns >= DOOR_CONNS_PER_COMPUTER) {
		computer_denied(c, "tcp", "too many connections at once");
	} else if (original(fd, &to, &port) < 0) {
		computer_denied(c, "tcp", "not a redirected connection");
	} else if (port == DOOR_PORT_DNS) {     /* whatever server it meant: names are answered here, as over UDP */
		dns_accept(c->dns, fd);
		return;
	} else if (!(n = calloc(1, sizeof *n))) {
		computer_denied(c, "tcp", "no memory");
	}
	if (!n) {
		door_reset(&fd);
		return;
	}
	n->computer = c;
	n->port = port;
	n->lookup.done = on_lookup;
	n->dial_timer.fire = on_dial_timer;
	n->limit_timer.fire = on_limit;
	n->ended.run = conn_free;
	list_init(&n->lookup.link);
	n->ends[IN] = (struct end){ .src.fd = -1, .conn = n };
	n->ends[OUT] = (struct end){ .src = { .fd = fd, .name = "computer", .ready = on_waiting }, .conn = n };
	for (int i = 0; i < DIALS_AT_ONCE; i++)
		n->dials[i] = (struct end){ .src.fd = -1, .conn = n };
	list_init(&n->link);
	list_append(&c->conns, &n->link);
	c->nconns++;
	if (loop_add(c->door->loop, &n->ends[OUT].src, END_ONLY, &e) < 0)
		conn_end(n, true);
	else
		conn_begin(n, &to);
}

int door_accept(struct listener *li)
{
	struct door *d = li->computer->door;
	int fd = accept4(li->src.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
		return fd;
	fd_drop(&d->spare_fd);
	fd = accept4(li->src.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	door_reset(&fd);
	d->spare_fd = fcntl(li->src.fd, F_DUPFD_CLOEXEC, 0);
	/* somebody has to end something first */
	loop_mod(d->loop, &li->src, 0);
	loop_arm(d->loop, &li->again, AGAIN_MS);
	return -1;
}

void conn_on_listener(struct source *s, uint32_t events)
{
	struct listener *li = container_of(s, struct listener, src);
	int fd;

	for (int i = 0; i < ACCEPTS && (fd = door_accept(li)) >= 0; i++)
		conn_accept(li->computer, fd);
}

void conn_on_again(struct timer *t)
{
	struct listener *li = container_of(t, struct listener, again);

	loop_mod(li->computer->door->loop, &li->src, EPOLLIN);
}
