#ifndef DOOR_DOOR_PRIV_H
#define DOOR_DOOR_PRIV_H
#include <stdbool.h>
#include <stdint.h>
#include "core/list.h"
#include "core/loop.h"
#include "core/map.h"
#include "door/addr.h"
#include "door/names.h"
#include "door/resolver.h"
#include "wire/door_proto.h"
#include "wire/sock.h"
/* What the parts of bureau-door share: the door, and a computer whose way out it is.
 * door.c: messages and computers. serve_dns.c: their DNS. conn.c: their TCP. */
#define COMPUTER_SOCKETS 4

struct door {
	struct loop *loop;
	struct link *asker;
	struct resolver *resolver;
	struct reach reach;
	struct map *computers;         /* id → struct computer */
	int spare_fd;                  /* given up for a moment to refuse a connection when there are no descriptors left */
};

struct dns_server;

struct listener { struct source src; struct computer *computer; struct timer again; };

struct computer {
	struct door *door;
	struct names *names;
	struct listener listeners[COMPUTER_SOCKETS];    /* src.fd -1: unused */
	struct dns_server *dns;
	struct list conns;
	unsigned nconns;
	uint64_t bytes_out, bytes_in, total, refused;
	int64_t denied_at;             /* start of the second in which `denied` counts: events are bounded in rate */
	unsigned denied;
	char id[33];
};

/* Tells the asker (bounded in rate) and counts. */
void computer_denied(struct computer *c, const char *what, const char *rule);
/* Whether the name may be asked for at all; *ret_rule says why not. */
bool computer_name_allowed(struct computer *c, const char *name, const char **ret_rule);

void conn_on_listener(struct source *s, uint32_t events);
void conn_on_again(struct timer *t);
void conns_cut(struct computer *c);

int dns_server_create(struct computer *c, struct dns_server **ret);
void dns_server_free(struct dns_server *d);
/* Takes a connection whose other end will speak DNS. */
void dns_accept(struct dns_server *d, int client);
void dns_on_udp(struct source *s, uint32_t events);
void dns_on_tcp(struct source *s, uint32_t events);
/* The next connection, or -1. With a full descriptor table one is refused, and the listener is silent for a moment. */
int door_accept(struct listener *li);
/* Closes with a reset, so that the program at the other end sees a refusal and not an empty answer. */
void door_reset(int *fd);
#endif
