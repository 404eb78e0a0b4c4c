#include "door/door_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/fd.h"
#include "core/str.h"
#include "door/dns.h"

/* The DNS server of a computer. Nothing is asked upstream here: a name gets an address of ours, and is looked up when
 * something connects to that address. So DNS itself can't carry anything out. */
#define TTL 30
#define UDP_BATCH 64
#define TCP_CLIENTS 16
#define TCP_IDLE_MS 10000

struct dns_client {
	struct source src;
	struct timer idle;
	struct dns_server *server;
	size_t have, out_len, out_at;
	uint8_t in[2 + DNS_MSG], out[2 + DNS_MSG];
};

struct dns_server {
	struct computer *computer;
	struct dns_client clients[TCP_CLIENTS];
};

int dns_server_create(struct computer *c, struct dns_server **ret)
{
	struct dns_server *d = calloc(1, sizeof *d);

	if (!d)
		return -ENOMEM;
	d->computer = c;
	for (int i = 0; i < TCP_CLIENTS; i++)
		d->clients[i].src.fd = -1;
	*ret = d;
	return 0;
}

static void client_close(struct dns_client *k)
{
	struct loop *l = k->server ? k->server->computer->door->loop : NULL;

	if (!l)
		return;
	loop_disarm(l, &k->idle);
	loop_remove(l, &k->src);
	fd_drop(&k->src.fd);
}

void dns_server_free(struct dns_server *d)
{
	if (!d)
		return;
	for (int i = 0; i < TCP_CLIENTS; i++)
		client_close(&d->clients[i]);
	free(d);
}

/* ---- answers ---- */

/* Names that never leave a machine (RFC 6761, 6762, 7686). */
static bool in_domain(const char *name, const char *domain)
{
	return str_eq(name, domain) || (str_ends(name, domain) && name[strlen(name) - strlen(domain) - 1] == '.');
}

static const char *const nowhere[] = { "invalid", "local", "onion", "test", "home.arpa", "arpa", "resolver.arpa" };

static bool leads_nowhere(const char *name)
{
	for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
		if (in_domain(name, nowhere[i]))
			return true;
	return false;
}

static void add_addr(struct dns_answer *a, uint16_t type, const struct addr *v4, const struct addr *v6)
{
	if (type == DNS_A || type == DNS_ANY)
		dns_answer_add(a, DNS_A, TTL, v4->b, 4);
	if (type == DNS_AAAA || type == DNS_ANY)
		dns_answer_add(a, DNS_AAAA, TTL, v6->b, 16);
}

static void answer_reverse(struct computer *c, const void *msg, const struct dns_query *q, struct dns_answer *a)
{
	struct addr addr;
	struct name *n = NULL;
	uint8_t wire[DNS_NAME];
	size_t len = 0;

	if (dns_name_reverse(q->name, &addr) == 0)
		n = names_find(c->names, &addr);
	if (n)
		len = dns_name_encode(n->text, wire);
	dns_answer_init(a, msg, q, len ? DNS_NOERROR : DNS_NXDOMAIN);
	if (len && (q->type == DNS_PTR || q->type == DNS_ANY))
		dns_answer_add(a, DNS_PTR, TTL, wire, len);
}

static void answer_name(struct computer *c, const void *msg, const struct dns_query *q, struct dns_answer *a)
{
	static const struct addr loop4 = { 4, { 127, 0, 0, 1 } }, loop6 = { 6, { [15] = 1 } };
	char what[DNS_NAME + 8];
	struct addr v4, v6;
	const char *rule;

	if (in_domain(q->name, "localhost")) {
		dns_answer_init(a, msg, q, DNS_NOERROR);
		add_addr(a, q->type, &loop4, &loop6);
		return;
	}
	if (in_domain(q->name, "in-addr.arpa") || in_domain(q->name, "ip6.arpa")) {
		answer_reverse(c, msg, q, a);
		return;
	}
	if (leads_nowhere(q->name)) {
		dns_answer_init(a, msg, q, DNS_NXDOMAIN);
		return;
	}
	if (!computer_name_allowed(c, q->name, &rule)) {
		snprintf(what, sizeof what, "dns %s", q->name);
		computer_denied(c, what, rule);
		dns_answer_init(a, msg, q, DNS_REFUSED);
		return;
	}
	struct name *n = NULL;

	if (q->type == DNS_A || q->type == DNS_AAAA || q->type == DNS_ANY) {
		n = names_get(c->names, q->name);
		if (!n) {
			dns_answer_init(a, msg, q, DNS_SERVFAIL);
			return;
		}
	}
	dns_answer_init(a, msg, q, DNS_NOERROR);        /* other types: the name is there, with nothing of that type */
	if (n) {
		name_addr4(n, &v4);
		name_addr6(n, &v6);
		add_addr(a, q->type, &v4, &v6);
	}
}

/* 0 = say nothing. */
static size_t answer(struct computer *c, const void *msg, size_t n, struct dns_answer *a)
{
	struct dns_query q;
	int r = dns_parse_query(msg, n, &q);

	if (r == -EBADMSG)
		return 0;
	if (r < 0)
		dns_answer_init(a, NULL, &q, DNS_FORMERR);
	else if (q.opcode != 0)
		dns_answer_init(a, NULL, &q, DNS_NOTIMP);
	else if (q.edns && q.edns_version != 0)
		dns_answer_init(a, msg, &q, DNS_BADVERS);
	else if (q.class != 1 || q.type == DNS_AXFR || q.type == DNS_IXFR || q.type == DNS_OPT)
		dns_answer_init(a, msg, &q, DNS_NOTIMP);
	else if (q.odd)
		dns_answer_init(a, msg, &q, DNS_NXDOMAIN);
	else if (!q.name[0])
		dns_answer_init(a, msg, &q, DNS_NOERROR);
	else
		answer_name(c, msg, &q, a);
	return dns_answer_end(a);
}

/* ---- UDP ---- */

void dns_on_udp(struct source *s, uint32_t events)
{
	struct listener *li = container_of(s, struct listener, src);
	struct sockaddr_storage from;
	struct dns_answer a;
	uint8_t msg[DNS_MSG + 1];

	for (int i = 0; i < UDP_BATCH; i++) {
		socklen_t len = sizeof from;
		ssize_t n = recvfrom(s->fd, msg, sizeof msg, MSG_DONTWAIT, (struct sockaddr *)&from, &len);

		if (n < 0)
			return;
		size_t out = (size_t)n <= DNS_MSG ? answer(li->computer, msg, (size_t)n, &a) : 0;

		if (out)        /* a full queue loses the answer, as UDP may */
			sendto(s->fd, a.b, out, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&from, len);
	}
}

/* ---- TCP: one message at a time for each client; a queue of them waits in the socket ---- */

static void on_idle(struct timer *t)
{
	client_close(container_of(t, struct dns_client, idle));
}

/* Sends what is left of the answer; 1 when all of it is out, 0 when the socket is full, negative when the client is gone. */
static int client_flush(struct dns_client *k)
{
	while (k->out_at < k->out_len) {
		ssize_t n = send(k->src.fd, k->out + k->out_at, k->out_len - k->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		k->out_at += (size_t)n;
	}
	return 1;
}

static void client_answer(struct dns_client *k, size_t n)
{
	struct dns_answer a;
	size_t out = answer(k->server->computer, k->in + 2, n, &a);

	memmove(k->in, k->in + 2 + n, k->have - 2 - n);
	k->have -= 2 + n;
	k->out_at = 0;
	k->out_len = out ? out + 2 : 0;
	k->out[0] = (uint8_t)(out >> 8);
	k->out[1] = (uint8_t)out;
	memcpy(k->out + 2, a.b, out);
}

static void on_client(struct source *s, uint32_t events)
{
	struct dns_client *k = container_of(s, struct dns_client, src);
	struct loop *l = k->server->computer->door->loop;
	int r = client_flush(k);

	if (r > 0) {
		size_t want = k->have < 2 ? 2 : 2 + ((size_t)k->in[0] << 8 | k->in[1]);

		if (want > sizeof k->in) {
			client_close(k);
			return;
		}
		if (k->have < want) {
			ssize_t n = recv(s->fd, k->in + k->have, want - k->have, MSG_DONTWAIT);

			if (n < 0 && (errno == EAGAIN || errno == EINTR))
				return;
			if (n <= 0) {
				client_close(k);
				return;
			}
			k->have += (size_t)n;
		}
		want = k->have < 2 ? 2 : 2 + ((size_t)k->in[0] << 8 | k->in[1]);
		if (k->have >= 2 && want <= sizeof k->in && k->have >= want) {
			client_answer(k, want - 2);
			loop_arm(l, &k->idle, TCP_IDLE_MS);
			r = client_flush(k);
		}
	}
	if (r < 0)
		client_close(k);
	else
		loop_mod(l, s, r ? EPOLLIN : EPOLLOUT);
}

void dns_accept(struct dns_server *d, int client)
{
	struct dns_client *k = NULL;
	AUTO_FD int fd = client;
	struct err e;

	for (int i = 0; i < TCP_CLIENTS && !k; i++)
		if (d->clients[i].src.fd < 0)
			k = &d->clients[i];
	if (!k) {
		door_reset(&fd);
		return;
	}
	memset(k, 0, sizeof *k);
	k->server = d;
	k->src = (struct source){ .fd = fd, .name = "dns client", .ready = on_client };
	k->idle.fire = on_idle;
	if (loop_add(d->computer->door->loop, &k->src, EPOLLIN, &e) < 0) {
		k->src.fd = -1;
		return;
	}
	fd_take(&fd);
	loop_arm(d->computer->door->loop, &k->idle, TCP_IDLE_MS);
}

void dns_on_tcp(struct source *s, uint32_t events)
{
	struct listener *li = container_of(s, struct listener, src);
	int fd = door_accept(li);

	if (fd >= 0)
		dns_accept(li->computer->dns, fd);
}
