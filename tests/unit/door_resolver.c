#include "door/resolver.h"
#include "tap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A name server of one name, one address and a time to live of 0, in this process. */
static struct loop *loop;
static struct resolver *r;
static struct source server;
static int asked, done[3], depth;
static struct lookup q[3];

static void on_server(struct source *s, uint32_t events)
{
	uint8_t m[600];
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	ssize_t n = recvfrom(s->fd, m, 512, 0, (struct sockaddr *)&from, &len);
	static const uint8_t rr[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 7 };

	if (n < 17)
		return;
	asked++;
	m[2] = 0x81;
	m[3] = 0x80;
	if (m[n - 3] == 1) {
		m[7] = 1;
		memcpy(m + n, rr, sizeof rr);
		n += (ssize_t)sizeof rr;
	}
	sendto(s->fd, m, (size_t)n, 0, (struct sockaddr *)&from, len);
}

static void on_done(struct lookup *at, int error, const struct addr *addrs, size_t n)
{
	size_t i = (size_t)(at - q);

	ok(error == 0 && n == 1 && addrs[0].b[3] == 7, "lookup %zu: its address", i);
	done[i]++;
	if (i == 0 && depth++ == 0)      /* the answer is out of date at once: asked again, while the other waits for the old one */
		resolver_lookup(r, "a.example", &q[2]);
}

int main(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	char text[32];
	struct err e;

	server = (struct source){ .fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), .name = "server", .ready = on_server };
	if (bind(server.fd, (struct sockaddr *)&a, sizeof a) < 0 || getsockname(server.fd, (struct sockaddr *)&a, &len) < 0)
		return 1;
	snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(a.sin_port));
	ok(loop_create(&loop, &e) == 0 && loop_add(loop, &server, EPOLLIN, &e) == 0 && resolver_create(loop, text, &r, &e) == 0, "a resolver");
	for (int i = 0; i < 3; i++)
		q[i].done = on_done;
	resolver_lookup(r, "a.example", &q[0]);
	resolver_lookup(r, "a.example", &q[1]);
	for (int i = 0; i < 100 && !done[2]; i++)
		loop_turn(loop, 100);
	ok(done[0] == 1 && done[1] == 1 && done[2] == 1, "each was told once");
	ok(asked == 4, "and the name was asked for twice: %d", asked);
	resolver_free(r);
	loop_remove(loop, &server);
	close(server.fd);
	loop_free(loop);
	return done_testing();
}
