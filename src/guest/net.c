#include "guest/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/fd.h"
#include "wire/keeper_proto.h"

#define DIAL_MS 5000            /* a listener whose queue is full lets us wait */
#define PORTS_MAX 4096
#define LINES_MAX 20000          /* of a table: listening sockets come first in it */
#define TCP_LISTEN_STATE 0x0a

struct dial {
	struct list node;
	struct conn *c;
	uint32_t id;
	uint16_t port;
	bool v6;
	struct source src;
	struct timer timeout;
};

static void dial_free(struct dial *d)
{
	struct guest *g = d->c->g;

	loop_remove(g->loop, &d->src);
	loop_disarm(g->loop, &d->timeout);
	if (d->src.fd >= 0)
		close(d->src.fd);
	list_unlink(&d->node);
	g->ndials--;
	free(d);
}

static void dial_failed(struct dial *d, int code)
{
	struct err e;

	err_set(&e, code, "port %u: %s", d->port, strerror(code));
	conn_err(d->c, d->id, &e);
	dial_free(d);
}

static void dial_done(struct dial *d)
{
	struct msg_writer w;

	conn_begin(&w, G_OK, d->id);
	msg_put_fd(&w, d->src.fd);
	conn_send(d->c, &w);
	dial_free(d);
}

/* Where nobody listens on a port of the range that connections get theirs from, one may get that very port and meet itself. */
static bool met_itself(const struct dial *d)
{
	struct sockaddr_in6 a = { .sin6_port = 0 };      /* the port has the same place in both families */
	socklen_t n = sizeof a;

	return getsockname(d->src.fd, (struct sockaddr *)&a, &n) == 0 && ntohs(a.sin6_port) == d->port;
}

/* 0: connected, -EINPROGRESS, or why not */
static int dial_one(struct dial *d)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(d->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(d->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	if (d->src.fd >= 0)
		close(d->src.fd);
	d->src.fd = socket(d->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->src.fd < 0)
		return -errno;
	if (connect(d->src.fd, d->v6 ? (void *)&a6 : (void *)&a4, d->v6 ? sizeof a6 : sizeof a4) == 0)
		return met_itself(d) ? -ECONNREFUSED : 0;
	return -errno;
}

static void dial_try(struct dial *d)
{
	struct err e;
	int rc = dial_one(d);

	if (rc < 0 && rc != -EINPROGRESS && !d->v6) {
		d->v6 = true;
		rc = dial_one(d);
		if (rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL)
			rc = -ECONNREFUSED;
	}
	if (rc == 0)
		dial_done(d);
	else if (rc != -EINPROGRESS)
		dial_failed(d, -rc);
	else if (loop_add(d->c->g->loop, &d->src, EPOLLOUT, &e) < 0)
		dial_failed(d, e.code);
}

static void dial_ready(struct source *s, uint32_t events)
{
	struct dial *d = container_of(s, struct dial, src);
	int code = 0;
	socklen_t n = sizeof code;

	loop_remove(d->c->g->loop, s);
	getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &code, &n);
	/* who accepts and at once resets (the door's own port, a listener that just went) offers no more than who refuses */
	if (code == ECONNRESET || (code == 0 && met_itself(d)))
		code = ECONNREFUSED;
	if (code == 0) {
		dial_done(d);
	} else if (!d->v6) {
		d->v6 = true;
		dial_try(d);
	} else {
		dial_failed(d, code);
	}
}

static void dial_timeout(struct timer *t)
{
	dial_failed(container_of(t, struct dial, timeout), ETIMEDOUT);
}

void net_dial(struct conn *c, struct msg_reader *r)
{
	uint16_t port = msg_get_u16(r);
	struct dial *d;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	d = c->g->ndials < GUEST_DIALS ? calloc(1, sizeof *d) : NULL;
	if (!d || port == 0) {
		free(d);
		err_set(&e, port ? EAGAIN : EINVAL, port ? "too many connections are being made" : "port 0");
		conn_err(c, r->id, &e);
		return;
	}
	d->c = c;
	d->id = r->id;
	d->port = port;
	d->src = (struct source){ .fd = -1, .name = "dial", .ready = dial_ready };
	d->timeout.fire = dial_timeout;
	list_append(&c->dials, &d->node);
	c->g->ndials++;
	loop_arm(c->g->loop, &d->timeout, DIAL_MS);
	dial_try(d);
}

void net_close_conn(struct conn *c)
{
	list_each(it, &c->dials)
		dial_free(container_of(it, struct dial, node));
}

/* ---- who listens ---- */

struct ports { uint8_t seen[65536 / 8]; uint16_t list[PORTS_MAX]; uint32_t n; };

static void add_port(struct ports *p, unsigned port)
{
	/* the door's own sockets are in this namespace too */
	if (port == DOOR_PORT_TCP || port == DOOR_PORT_DNS || port > 65535 || p->n == PORTS_MAX)
		return;
	if (p->seen[port / 8] & 1u << port % 8)
		return;
	p->seen[port / 8] |= (uint8_t)(1u << port % 8);
	p->list[p->n++] = (uint16_t)port;
}

/* "  0: 0100007F:1F90 00000000:0000 0A ..." */
static void add_table(struct ports *p, const char *path)
{
	FILE *f = fopen(path, "re");
	char line[256];
	unsigned port, state;

	for (int i = 0; f && i < LINES_MAX && fgets(line, sizeof line, f); i++)
		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &port, &state) == 2 && state == TCP_LISTEN_STATE)
			add_port(p, port);
	if (f)
		fclose(f);
}

static int by_number(const void *a, const void *b)
{
	return *(const uint16_t *)a - *(const uint16_t *)b;
}

void net_ports(struct conn *c, struct msg_reader *r)
{
	AUTO_FREE struct ports *p = NULL;
	struct msg_writer w;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	p = calloc(1, sizeof *p);
	if (!p) {
		err_set(&e, ENOMEM, "no memory to list ports");
		conn_err(c, r->id, &e);
		return;
	}
	add_table(p, "/proc/self/net/tcp");
	add_table(p, "/proc/self/net/tcp6");
	qsort(p->list, p->n, sizeof *p->list, by_number);
	conn_begin(&w, G_OK, r->id);
	msg_put_u32(&w, p->n);
	for (uint32_t i = 0; i < p->n; i++)
		msg_put_u16(&w, p->list[i]);
	conn_send(c, &w);
}
