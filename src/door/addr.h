#ifndef DOOR_ADDR_H
#define DOOR_ADDR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "core/err.h"
/* addr -- addresses, what kind of place each one is, and which of them a computer may reach.
 *
 * A name is only a promise: what counts is the address that we are about to connect to, so every address is put
 * through reach_check() right before connect(), whether it came from DNS, from a hosts file or from the computer. */
struct addr {
	uint8_t family;    /* 4 or 6 */
	uint8_t b[16];     /* network order; 4 or 16 of them count */
};

enum addr_class {
	ADDR_PUBLIC, ADDR_UNSPECIFIED, ADDR_LOOPBACK, ADDR_PRIVATE, ADDR_LINK_LOCAL, ADDR_CGNAT, ADDR_METADATA,
	ADDR_MULTICAST, ADDR_RESERVED, ADDR_TUNNEL, ADDR_DOOR, ADDR_HOST, ADDR_CLASSES,
};

struct cidr { struct addr addr; uint8_t bits; };

#define ADDR_TEXT 48
int addr_parse(const char *s, struct addr *ret);                        /* 0 or -EINVAL */
void addr_format(const struct addr *a, char out[ADDR_TEXT]);
bool addr_equal(const struct addr *a, const struct addr *b);
int addr_from_sockaddr(const struct sockaddr_storage *ss, struct addr *ret, uint16_t *ret_port);  /* v4-mapped becomes v4 */
socklen_t addr_to_sockaddr(const struct addr *a, uint16_t port, struct sockaddr_storage *ret);
int cidr_parse(const char *s, struct cidr *ret);                        /* "10.0.0.0/8", "fd00::/8", "10.1.2.3"; host bits must be 0 */
bool cidr_has(const struct cidr *c, const struct addr *a);

/* What the address is by its number alone. An address that carries an IPv4 address (mapped, NAT64, 6to4) is what that one is. */
enum addr_class addr_class(const struct addr *a);
const char *addr_class_words(enum addr_class c);                        /* "a private address" */

#define REACH_ALLOW 64
struct reach {
	struct cidr allow[REACH_ALLOW];
	size_t nallow;
	struct addr *own;          /* addresses of this host's interfaces */
	size_t nown;
	int64_t own_at;            /* when they were read (mono ms) */
};
void reach_done(struct reach *r);
int reach_allow(struct reach *r, const char *cidr, struct err *e);
/* Public, or allowed by name. Metadata services only open to a rule for that one address: a wide rule for a
 * company's net must not hand out the cloud's keys. */
enum addr_class reach_check(struct reach *r, const struct addr *a);      /* ADDR_PUBLIC = may be reached; else why not */
#endif
