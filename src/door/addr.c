#include "door/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/str.h"

#define OWN_AGE_MS 1000

/* First match wins, so the narrow ones come first. Prefixes as text would need parsing at each start: bytes it is. */
struct row { uint8_t bits, b[16]; uint8_t class; };

static const struct row rows4[] = {
	{ 32, { 169, 254, 169, 254 }, ADDR_METADATA },   /* AWS, GCP, Azure, OpenStack, DigitalOcean, Hetzner ... */
	{ 32, { 169, 254, 170, 2 }, ADDR_METADATA },     /* AWS ECS task credentials */
	{ 32, { 169, 254, 170, 23 }, ADDR_METADATA },    /* AWS EKS pod identity */
	{ 32, { 100, 100, 100, 200 }, ADDR_METADATA },   /* Alibaba */
	{ 32, { 168, 63, 129, 16 }, ADDR_METADATA },     /* Azure wire server */
	{ 32, { 192, 0, 0, 192 }, ADDR_METADATA },       /* Oracle (older) */
	{ 8, { 0 }, ADDR_UNSPECIFIED },
	{ 8, { 10 }, ADDR_PRIVATE },
	{ 10, { 100, 64 }, ADDR_CGNAT },
	{ 8, { 127 }, ADDR_LOOPBACK },
	{ 16, { 169, 254 }, ADDR_LINK_LOCAL },
	{ 12, { 172, 16 }, ADDR_PRIVATE },
	{ 24, { 192, 0, 0 }, ADDR_RESERVED },
	{ 24, { 192, 0, 2 }, ADDR_RESERVED },
	{ 24, { 192, 88, 99 }, ADDR_TUNNEL },
	{ 16, { 192, 168 }, ADDR_PRIVATE },
	{ 15, { 198, 18 }, ADDR_DOOR },
	{ 24, { 198, 51, 100 }, ADDR_RESERVED },
	{ 24, { 203, 0, 113 }, ADDR_RESERVED },
	{ 4, { 224 }, ADDR_MULTICAST },
	{ 4, { 240 }, ADDR_RESERVED },
};

static const struct row rows6[] = {
	{ 128, { 0xfd, 0x00, 0x0e, 0xc2, [15] = 0x54, [14] = 0x02 }, ADDR_METADATA },   /* AWS, fd00:ec2::254 */
	{ 128, { 0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23 }, ADDR_METADATA },                /* AWS EKS, fd00:ec2::23 */
	{ 128, { 0xfd, 0x20, 0x00, 0xce, [15] = 0x54, [14] = 0x02 }, ADDR_METADATA },   /* GCP, fd20:ce::254 */
	{ 128, { 0 }, ADDR_UNSPECIFIED },
	{ 128, { [15] = 1 }, ADDR_LOOPBACK },
	{ 96, { 0 }, ADDR_RESERVED },                              /* v4-compatible, long dead */
	{ 48, { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 }, ADDR_TUNNEL }, /* NAT64 of a local network */
	{ 64, { 0x01, 0x00 }, ADDR_RESERVED },                     /* discard */
	{ 32, { 0x20, 0x01, 0x00, 0x00 }, ADDR_TUNNEL },           /* Teredo */
	{ 23, { 0x20, 0x01, 0x00 }, ADDR_RESERVED },
	{ 32, { 0x20, 0x01, 0x0d, 0xb8 }, ADDR_RESERVED },
	{ 20, { 0x3f, 0xff, 0x00 }, ADDR_RESERVED },
	{ 48, { 0xfd, 0x62, 0x75, 0x72, 0x65, 0x61 }, ADDR_DOOR },
	{ 7, { 0xfc }, ADDR_PRIVATE },
	{ 10, { 0xfe, 0x80 }, ADDR_LINK_LOCAL },
	{ 10, { 0xfe, 0xc0 }, ADDR_PRIVATE },
	{ 8, { 0xff }, ADDR_MULTICAST },
	{ 3, { 0x20 }, ADDR_PUBLIC },
	{ 0, { 0 }, ADDR_RESERVED },                               /* outside global unicast: nothing there is ours to reach */
};

static const char *const class_words[ADDR_CLASSES] = {
	[ADDR_PUBLIC] = "a public address", [ADDR_UNSPECIFIED] = "an unspecified address", [ADDR_LOOPBACK] = "a loopback address",
	[ADDR_PRIVATE] = "a private address", [ADDR_LINK_LOCAL] = "a link-local address", [ADDR_CGNAT] = "a carrier's private address",
	[ADDR_METADATA] = "a cloud metadata service", [ADDR_MULTICAST] = "a multicast address", [ADDR_RESERVED] = "a reserved address",
	[ADDR_TUNNEL] = "a tunnel address", [ADDR_DOOR] = "an address of the door that stands for no name", [ADDR_HOST] = "an address of this host",
};

const char *addr_class_words(enum addr_class c)
{
	return c < ADDR_CLASSES ? class_words[c] : "an unknown address";
}

int addr_parse(const char *s, struct addr *ret)
{
	struct addr a = { .family = 4 };

	if (inet_pton(AF_INET, s, a.b) != 1) {
		a.family = 6;
		if (inet_pton(AF_INET6, s, a.b) != 1)
			return -EINVAL;
	}
	*ret = a;
	return 0;
}

void addr_format(const struct addr *a, char out[ADDR_TEXT])
{
	if (!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->b, out, ADDR_TEXT))
		out[0] = '\0';
}

bool addr_equal(const struct addr *a, const struct addr *b)
{
	return a->family == b->family && memcmp(a->b, b->b, a->family == 4 ? 4 : 16) == 0;
}

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };

int addr_from_sockaddr(const struct sockaddr_storage *ss, struct addr *ret, uint16_t *ret_port)
{
	struct addr a = { .family = 4 };

	if (ss->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)ss;

		memcpy(a.b, &in->sin_addr, 4);
		*ret_port = ntohs(in->sin_port);
	} else if (ss->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)ss;
		const uint8_t *b = in6->sin6_addr.s6_addr;

		if (memcmp(b, mapped, 12) == 0) {
			memcpy(a.b, b + 12, 4);
		} else {
			a.family = 6;
			memcpy(a.b, b, 16);
		}
		*ret_port = ntohs(in6->sin6_port);
	} else {
		return -EAFNOSUPPORT;
	}
	*ret = a;
	return 0;
}

socklen_t addr_to_sockaddr(const struct addr *a, uint16_t port, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof *ret);
	if (a->family == 4) {
		struct sockaddr_in *in = (void *)ret;

		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, a->b, 4);
		return sizeof *in;
	}
	struct sockaddr_in6 *in6 = (void *)ret;

	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	memcpy(&in6->sin6_addr, a->b, 16);
	return sizeof *in6;
}

static bool prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(a, b, whole) != 0)
		return false;
	return !rest || ((a[whole] ^ b[whole]) & (0xff00 >> rest) & 0xff) == 0;
}

int cidr_parse(const char *s, struct cidr *ret)
{
	char text[ADDR_TEXT];
	const char *slash = strchr(s, '/');
	size_t n = slash ? (size_t)(slash - s) : strlen(s);
	struct cidr c;
	uint64_t bits;

	if (n >= sizeof text)
		return -EINVAL;
	memcpy(text, s, n);
	text[n] = '\0';
	if (addr_parse(text, &c.addr) < 0)
		return -EINVAL;
	unsigned width = c.addr.family == 4 ? 32 : 128;

	bits = width;
	if (slash && str_u64(slash + 1, width, &bits) < 0)
		return -EINVAL;
	for (unsigned i = (unsigned)bits; i < width; i++)
		if (c.addr.b[i / 8] & (0x80 >> i % 8))
			return -EINVAL;
	c.bits = (uint8_t)bits;
	*ret = c;
	return 0;
}

bool cidr_has(const struct cidr *c, const struct addr *a)
{
	return c->addr.family == a->family && prefix_equal(c->addr.b, a->b, c->bits);
}

static enum addr_class find(const struct row *rows, size_t n, const uint8_t *b)
{
	for (size_t i = 0; i < n; i++)
		if (prefix_equal(rows[i].b, b, rows[i].bits))
			return rows[i].class;
	return ADDR_PUBLIC;
}

/* The IPv4 address that an IPv6 one carries and leads to, if it does. */
static bool carried(const struct addr *a, struct addr *ret)
{
	if (a->family != 6)
		return false;
	*ret = (struct addr){ .family = 4 };
	if (memcmp(a->b, mapped, 12) == 0 || memcmp(a->b, nat64, 12) == 0)
		memcpy(ret->b, a->b + 12, 4);
	else if (a->b[0] == 0x20 && a->b[1] == 0x02)
		memcpy(ret->b, a->b + 2, 4);
	else
		return false;
	return true;
}

enum addr_class addr_class(const struct addr *a)
{
	struct addr inner;

	if (carried(a, &inner))
		return addr_class(&inner);
	if (a->family == 4)
		return find(rows4, sizeof rows4 / sizeof *rows4, a->b);
	return find(rows6, sizeof rows6 / sizeof *rows6, a->b);
}

void reach_done(struct reach *r)
{
	free(r->own);
	r->own = NULL;
	r->nown = 0;
}

int reach_allow(struct reach *r, const char *cidr, struct err *e)
{
	if (r->nallow == REACH_ALLOW)
		return err_set(e, E2BIG, "allow '%s': more than %d rules", cidr, REACH_ALLOW);
	if (cidr_parse(cidr, &r->allow[r->nallow]) < 0) {
		err_set(e, EINVAL, "allow '%s': not an address range", cidr);
		return err_hint(e, "write it as 10.0.0.0/8, fd00::/8 or one address, with no bits set after the prefix");
	}
	r->nallow++;
	return 0;
}

/* The host's interfaces change rarely and a computer may connect often: once a second is enough. When they can't be
 * read the old list stands. */
static void own_refresh(struct reach *r)
{
	int64_t now = clock_mono_ms();
	struct ifaddrs *list = NULL;
	size_t n = 0;

	if (r->own && now - r->own_at < OWN_AGE_MS)
		return;
	if (getifaddrs(&list) < 0)
		return;
	for (struct ifaddrs *i = list; i; i = i->ifa_next)
		n++;
	struct addr *own = calloc(n + 1, sizeof *own);

	if (own) {
		n = 0;
		for (struct ifaddrs *i = list; i; i = i->ifa_next) {
			struct sockaddr_storage ss = { 0 };
			uint16_t port;

			if (!i->ifa_addr)
				continue;
			if (i->ifa_addr->sa_family == AF_INET)
				memcpy(&ss, i->ifa_addr, sizeof(struct sockaddr_in));
			else if (i->ifa_addr->sa_family == AF_INET6)
				memcpy(&ss, i->ifa_addr, sizeof(struct sockaddr_in6));
			else
				continue;
			n += addr_from_sockaddr(&ss, &own[n], &port) == 0;
		}
		free(r->own);
		r->own = own;
		r->nown = n;
		r->own_at = now;
	}
	freeifaddrs(list);
}

static enum addr_class check_one(struct reach *r, const struct addr *a)
{
	enum addr_class class = addr_class(a);

	for (size_t i = 0; i < r->nallow; i++) {
		const struct cidr *c = &r->allow[i];

		if (cidr_has(c, a) && (class != ADDR_METADATA || c->bits == (a->family == 4 ? 32 : 128)))
			return ADDR_PUBLIC;
	}
	if (class != ADDR_PUBLIC)
		return class;
	own_refresh(r);
	for (size_t i = 0; i < r->nown; i++)
		if (addr_equal(&r->own[i], a))
			return ADDR_HOST;
	return ADDR_PUBLIC;
}

enum addr_class reach_check(struct reach *r, const struct addr *a)
{
	struct addr inner;

	return check_one(r, carried(a, &inner) ? &inner : a);
}
