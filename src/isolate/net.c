/* net -- a computer's network: loopback alone, or everything redirected to its door.
 *
 * Theory of operation. The namespace has no interface but lo. For KEEPER_NET_ALL a default route through lo makes the kernel
 * believe that every address can be reached, and rules on the way out turn connections around:
 *
 *      nat output      to loopback             untouched
 *                      TCP                     -> door's TCP port; SO_ORIGINAL_DST tells the door where to
 *                      UDP to port 53          -> door's DNS port (IPv4; over IPv6 it's refused and resolvers go on to the next)
 *      filter output   to loopback, TCP        accepted (nat has gone first)
 *                      anything else           refused by ICMP, so that programs fall back at once (QUIC to TCP)
 *
 * The namespace belongs to the computer's user namespace, but nothing inside has CAP_NET_ADMIN, so nothing inside changes
 * a rule. Talks rtnetlink and nf_tables by hand: one message batch each, no library. */
#include "isolate/ns_priv.h"
#include "isolate/nl.h"

#include <errno.h>
#include <netinet/in.h>     /* before linux/: they know of each other in this order only */
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define LO 1        /* the index of lo in every new namespace */
#define PORT_TCP 1  /* as in wire/keeper_proto.h */
#define PORT_DNS 53

int net_up(struct err *e)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK };
	AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		return err_sys(e, "bring up loopback");
	return 0;
}

static void put_route(struct nl *n, int family, const void *source, size_t size)
{
	struct rtmsg m = { .rtm_family = (uint8_t)family, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_STATIC, .rtm_type = RTN_UNICAST,
		.rtm_scope = RT_SCOPE_UNIVERSE };

	nl_begin(n, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_ACK, &m, sizeof m);
	nl_u32(n, RTA_OIF, LO);
	nl_put(n, RTA_PREFSRC, source, size);
	nl_end(n);
}

/* One family's rules, as words of nf_tables' own little machine. */
struct family { uint8_t nf; uint8_t addr_at, addr_len; const uint8_t *loopback; const uint8_t *mask; };

static void nft_begin(struct nl *n, uint16_t type, uint16_t flags, uint8_t family)
{
	struct nfgenmsg g = { .nfgen_family = family, .version = NFNETLINK_V0 };

	nl_begin(n, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, &g, sizeof g);
}

static void expr(struct nl *n, const char *name, size_t marks[2])
{
	marks[0] = nl_nest(n, NFTA_LIST_ELEM);
	nl_str(n, NFTA_EXPR_NAME, name);
	marks[1] = nl_nest(n, NFTA_EXPR_DATA);
}

static void expr_end(struct nl *n, const size_t marks[2])
{
	nl_close(n, marks[1]);
	nl_close(n, marks[0]);
}

static void data(struct nl *n, uint16_t attr, const void *p, size_t size)
{
	size_t at = nl_nest(n, attr);

	nl_put(n, NFTA_DATA_VALUE, p, size);
	nl_close(n, at);
}

static void e_cmp(struct nl *n, const void *p, size_t size)
{
	size_t m[2];

	expr(n, "cmp", m);
	nl_be32(n, NFTA_CMP_SREG, NFT_REG_1);
	nl_be32(n, NFTA_CMP_OP, NFT_CMP_EQ);
	data(n, NFTA_CMP_DATA, p, size);
	expr_end(n, m);
}

static void e_payload(struct nl *n, uint32_t base, uint32_t offset, uint32_t len)
{
	size_t m[2];

	expr(n, "payload", m);
	nl_be32(n, NFTA_PAYLOAD_DREG, NFT_REG_1);
	nl_be32(n, NFTA_PAYLOAD_BASE, base);
	nl_be32(n, NFTA_PAYLOAD_OFFSET, offset);
	nl_be32(n, NFTA_PAYLOAD_LEN, len);
	expr_end(n, m);
}

static void e_to_loopback(struct nl *n, const struct family *f)
{
	static const uint8_t zero[16];
	size_t m[2];

	e_payload(n, NFT_PAYLOAD_NETWORK_HEADER, f->addr_at, f->addr_len);
	expr(n, "bitwise", m);
	nl_be32(n, NFTA_BITWISE_SREG, NFT_REG_1);
	nl_be32(n, NFTA_BITWISE_DREG, NFT_REG_1);
	nl_be32(n, NFTA_BITWISE_LEN, f->addr_len);
	data(n, NFTA_BITWISE_MASK, f->mask, f->addr_len);
	data(n, NFTA_BITWISE_XOR, zero, f->addr_len);
	expr_end(n, m);
	e_cmp(n, f->loopback, f->addr_len);
}

static void e_protocol(struct nl *n, uint8_t protocol)
{
	size_t m[2];

	expr(n, "meta", m);
	nl_be32(n, NFTA_META_DREG, NFT_REG_1);
	nl_be32(n, NFTA_META_KEY, NFT_META_L4PROTO);
	expr_end(n, m);
	e_cmp(n, &protocol, 1);
}

static void e_dport(struct nl *n, uint16_t port)
{
	uint16_t be = htons(port);

	e_payload(n, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
	e_cmp(n, &be, 2);
}

static void e_verdict(struct nl *n, uint32_t verdict)
{
	size_t m[2], v, d;

	expr(n, "immediate", m);
	nl_be32(n, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	d = nl_nest(n, NFTA_IMMEDIATE_DATA);
	v = nl_nest(n, NFTA_DATA_VERDICT);
	nl_be32(n, NFTA_VERDICT_CODE, verdict);
	nl_close(n, v);
	nl_close(n, d);
	expr_end(n, m);
}

static void e_redirect(struct nl *n, uint16_t port)
{
	uint16_t be = htons(port);
	size_t m[2];

	expr(n, "immediate", m);
	nl_be32(n, NFTA_IMMEDIATE_DREG, NFT_REG_1);
	data(n, NFTA_IMMEDIATE_DATA, &be, 2);
	expr_end(n, m);
	expr(n, "redir", m);
	nl_be32(n, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
	expr_end(n, m);
}

static void e_reject(struct nl *n)
{
	size_t m[2];

	expr(n, "reject", m);
	nl_be32(n, NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
	nl_u8(n, NFTA_REJECT_ICMP_CODE, NFT_REJECT_ICMPX_PORT_UNREACH);
	expr_end(n, m);
}

static size_t rule(struct nl *n, const struct family *f, const char *chain)
{
	nft_begin(n, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK, f->nf);
	nl_str(n, NFTA_RULE_TABLE, "door");
	nl_str(n, NFTA_RULE_CHAIN, chain);
	return nl_nest(n, NFTA_RULE_EXPRESSIONS);
}

static void rule_end(struct nl *n, size_t at)
{
	nl_close(n, at);
	nl_end(n);
}

static void chain(struct nl *n, const struct family *f, const char *name, const char *type, int32_t priority)
{
	size_t at;

	nft_begin(n, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_ACK, f->nf);
	nl_str(n, NFTA_CHAIN_TABLE, "door");
	nl_str(n, NFTA_CHAIN_NAME, name);
	nl_str(n, NFTA_CHAIN_TYPE, type);
	at = nl_nest(n, NFTA_CHAIN_HOOK);
	nl_be32(n, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
	nl_be32(n, NFTA_HOOK_PRIORITY, (uint32_t)priority);
	nl_close(n, at);
	nl_be32(n, NFTA_CHAIN_POLICY, NF_ACCEPT);
	nl_end(n);
}

static void rules(struct nl *n, const struct family *f)
{
	size_t at;

	nft_begin(n, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, f->nf);
	nl_str(n, NFTA_TABLE_NAME, "door");
	nl_end(n);
	chain(n, f, "nat", "nat", NF_IP_PRI_NAT_DST);
	chain(n, f, "out", "filter", NF_IP_PRI_FILTER);
	at = rule(n, f, "nat");
	e_to_loopback(n, f);
	e_verdict(n, NF_ACCEPT);
	rule_end(n, at);
	at = rule(n, f, "nat");
	e_protocol(n, IPPROTO_TCP);
	e_redirect(n, PORT_TCP);
	rule_end(n, at);
	if (f->nf == NFPROTO_IPV4) {
		at = rule(n, f, "nat");
		e_protocol(n, IPPROTO_UDP);
		e_dport(n, 53);
		e_redirect(n, PORT_DNS);
		rule_end(n, at);
	}
	at = rule(n, f, "out");
	e_to_loopback(n, f);
	e_verdict(n, NF_ACCEPT);
	rule_end(n, at);
	at = rule(n, f, "out");
	e_protocol(n, IPPROTO_TCP);
	e_verdict(n, NF_ACCEPT);
	rule_end(n, at);
	at = rule(n, f, "out");
	e_reject(n);
	rule_end(n, at);
}

static void batch_mark(struct nl *n, uint16_t type)
{
	struct nfgenmsg g = { .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES) };

	nl_begin(n, type, 0, &g, sizeof g);
	nl_end(n);
}

static int add_rules(bool ipv6, struct err *e)
{
	static const uint8_t lo4[4] = { 127 }, mask4[4] = { 255 }, lo6[16] = { [15] = 1 };
	static const uint8_t mask6[16] = { 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255 };
	static const struct family v4 = { NFPROTO_IPV4, 16, 4, lo4, mask4 }, v6 = { NFPROTO_IPV6, 24, 16, lo6, mask6 };
	struct nl n;
	int r;

	nl_init(&n);
	batch_mark(&n, NFNL_MSG_BATCH_BEGIN);
	rules(&n, &v4);
	if (ipv6)
		rules(&n, &v6);
	batch_mark(&n, NFNL_MSG_BATCH_END);
	r = nl_talk(&n, NETLINK_NETFILTER, e);
	if (r < 0) {
		err_wrap(e, "redirect connections to the door");
		err_hint(e, "the kernel modules nf_tables, nft_nat, nft_redir, nft_reject and nf_conntrack must be loaded or loadable");
	}
	return r;
}

int net_redirect(bool *ret_ipv6, struct err *e)
{
	static const uint8_t lo4[4] = { 127, 0, 0, 1 }, lo6[16] = { [15] = 1 };
	struct nl n;
	struct err e6;
	int r;

	nl_init(&n);
	put_route(&n, AF_INET, lo4, sizeof lo4);
	r = nl_talk(&n, NETLINK_ROUTE, e);
	if (r < 0)
		return err_wrap(e, "make the default route"), r;
	nl_init(&n);
	put_route(&n, AF_INET6, lo6, sizeof lo6);
	*ret_ipv6 = nl_talk(&n, NETLINK_ROUTE, &e6) == 0;
	return add_rules(*ret_ipv6, e);
}

static int listener(int family, int type, unsigned port, struct err *e)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	AUTO_FD int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int one = 1;

	if (fd < 0)
		return err_sys(e, "make a door socket");
	if (type == SOCK_STREAM)     /* two datagram sockets could share the port */
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (bind(fd, family == AF_INET ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6, family == AF_INET ? sizeof a4 : sizeof a6) < 0)
		return err_sys(e, "bind door port %u", port);
	if (type == SOCK_STREAM && listen(fd, 512) < 0)
		return err_sys(e, "listen on door port %u", port);
	return fd_take(&fd);
}

int net_doors(bool ipv6, int doors[BOX_DOORS], struct err *e)
{
	static const struct { int family, type; unsigned port; } want[BOX_DOORS] = {
		{ AF_INET, SOCK_STREAM, PORT_TCP }, { AF_INET6, SOCK_STREAM, PORT_TCP }, { AF_INET, SOCK_DGRAM, PORT_DNS },
		{ AF_INET, SOCK_STREAM, PORT_DNS },
	};

	for (size_t i = 0; i < BOX_DOORS; i++) {
		if (want[i].family == AF_INET6 && !ipv6)
			continue;
		doors[i] = listener(want[i].family, want[i].type, want[i].port, e);
		if (doors[i] < 0)
			return doors[i];
	}
	return 0;
}
