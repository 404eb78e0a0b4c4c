/* net -- loopback of a computer's network namespace, and the sockets of its door. */
#include "isolate/ns_priv.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int net_up(struct err *e)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK };
	AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		return err_sys(e, "bring up loopback");
	return 0;
}

int net_redirect(bool *ret_ipv6, struct err *e)
{
	*ret_ipv6 = true;
	(void)e;
	return 0;
}

static int listener(int family, int type, unsigned port, struct err *e)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	AUTO_FD int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int one = 1;

	if (fd < 0)
		return err_sys(e, "make a door socket");
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
		{ AF_INET, SOCK_STREAM, 1 }, { AF_INET6, SOCK_STREAM, 1 }, { AF_INET, SOCK_DGRAM, 53 }, { AF_INET, SOCK_STREAM, 53 },
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
