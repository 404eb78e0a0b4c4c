#include "isolate/nl.h"
#include "core/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

void nl_init(struct nl *n)
{
	n->len = n->at = 0;
	n->seq = 1;
	n->acks = 0;
	n->bad = false;
}

static void *room(struct nl *n, size_t size)
{
	size_t whole = NLMSG_ALIGN(size);
	void *p = n->mem + n->len;

	if (n->bad || whole > sizeof n->mem - n->len) {
		n->bad = true;
		return NULL;
	}
	memset(p, 0, whole);
	n->len += whole;
	return p;
}

void nl_begin(struct nl *n, uint16_t type, uint16_t flags, const void *head, size_t size)
{
	struct nlmsghdr *h;
	void *p;

	n->at = n->len;
	h = room(n, sizeof *h);
	p = room(n, size);
	if (!h || !p)
		return;
	*h = (struct nlmsghdr){ .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = n->seq++ };
	n->acks += (flags & NLM_F_ACK) != 0;
	memcpy(p, head, size);
}

void nl_end(struct nl *n)
{
	if (!n->bad)
		((struct nlmsghdr *)(void *)(n->mem + n->at))->nlmsg_len = (uint32_t)(n->len - n->at);
}

void nl_put(struct nl *n, uint16_t attr, const void *p, size_t size)
{
	struct nlattr *a = room(n, NLA_HDRLEN + size);

	if (!a)
		return;
	a->nla_len = (uint16_t)(NLA_HDRLEN + size);
	a->nla_type = attr;
	memcpy(a + 1, p, size);
}

void nl_u8(struct nl *n, uint16_t attr, uint8_t v)
{
	nl_put(n, attr, &v, sizeof v);
}

void nl_u32(struct nl *n, uint16_t attr, uint32_t v)
{
	nl_put(n, attr, &v, sizeof v);
}

void nl_be32(struct nl *n, uint16_t attr, uint32_t v)
{
	nl_u32(n, attr, htonl(v));
}

void nl_str(struct nl *n, uint16_t attr, const char *s)
{
	nl_put(n, attr, s, strlen(s) + 1);
}

size_t nl_nest(struct nl *n, uint16_t attr)
{
	size_t at = n->len;

	nl_put(n, attr | NLA_F_NESTED, "", 0);
	return at;
}

void nl_close(struct nl *n, size_t at)
{
	if (!n->bad)
		((struct nlattr *)(void *)(n->mem + at))->nla_len = (uint16_t)(n->len - at);
}

/* Counts the acknowledgements in what came; -errno of the first message that failed. */
static int count_acks(const uint8_t *mem, size_t len, uint32_t *acks)
{
	const struct nlmsghdr *h = (const void *)mem;

	for (; NLMSG_OK(h, len); h = NLMSG_NEXT(h, len)) {
		const struct nlmsgerr *m = NLMSG_DATA(h);

		if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof *m))
			continue;
		if (m->error)
			return m->error;
		++*acks;
	}
	return 0;
}

int nl_talk(struct nl *n, int protocol, struct err *e)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	AUTO_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
	const int one = 1;
	uint32_t acks = 0;
	_Alignas(8) uint8_t mem[8192];

	if (n->bad)
		return err_set(e, ENOBUFS, "netlink batch too long");
	if (fd < 0)
		return err_sys(e, "open netlink");
	setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof one);    /* no copies of our messages in the answers */
	if (sendto(fd, n->mem, n->len, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0)
		return err_sys(e, "send to netlink");
	while (acks < n->acks) {
		ssize_t got = recv(fd, mem, sizeof mem, 0);
		int r;

		if (got < 0)
			return err_sys(e, "hear from netlink");
		r = count_acks(mem, (size_t)got, &acks);
		if (r < 0)
			return err_set(e, -r, "netlink: %s", strerror(-r));
	}
	return 0;
}
