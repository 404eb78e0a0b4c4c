#include "door/resolver.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/map.h"
#include "core/str.h"
#include "door/dns.h"
#include "door/hosts.h"

#define CACHE_MAX 2048
#define ASKING_MAX 256
#define TRY_MS 2000
#define TCP_MS 4000
#define ROUNDS 2
#define GRACE_MS 250        /* for the second family, once the first has addresses */
#define TTL_MAX 300
#define TTL_NEGATIVE 5
#define TCP_MSG 65535

struct entry;

struct ask {
	struct source src;
	struct timer timer;
	struct entry *entry;
	uint16_t type, id;
	unsigned tries;
	bool done, tcp;
	int error;
	struct dns_reply reply;
	uint8_t *stream;        /* TCP: the query being written, then the answer being read */
	size_t want, have;
	bool reading;
};

struct entry {
	struct resolver *r;
	struct list lru;        /* when it isn't being asked for: the next to go is first */
	struct list waiters;
	bool asking;
	int error;
	int64_t until;          /* mono ms */
	struct timer grace;
	struct ask ask[2];
	size_t n;
	struct addr addrs[RESOLVER_ADDRS];
	char name[];
};

struct resolver {
	struct loop *loop;
	struct hosts *hosts;
	struct map *by_name;
	struct list lru;
	size_t asking;
};

static void ask_next(struct ask *k);

int resolver_create(struct loop *l, const char *servers, struct resolver **ret, struct err *e)
{
	struct resolver *r = calloc(1, sizeof *r);

	if (!r)
		return err_set(e, ENOMEM, "make a resolver: no memory");
	r->loop = l;
	list_init(&r->lru);
	if (map_create(&r->by_name) < 0) {
		free(r);
		return err_set(e, ENOMEM, "make a resolver: no memory");
	}
	if (hosts_create(servers, &r->hosts, e) < 0) {
		map_free(r->by_name);
		free(r);
		return -e->code;
	}
	*ret = r;
	return 0;
}

static void ask_close(struct ask *k)
{
	struct loop *l = k->entry->r->loop;

	loop_disarm(l, &k->timer);
	loop_remove(l, &k->src);
	fd_drop(&k->src.fd);
	free(k->stream);
	k->stream = NULL;
}

static void entry_free(struct entry *n)
{
	ask_close(&n->ask[0]);
	ask_close(&n->ask[1]);
	loop_disarm(n->r->loop, &n->grace);
	list_unlink(&n->lru);
	list_each(it, &n->waiters)
		list_unlink(it);
	free(n);
}

static void free_each(void *ctx, const char *key, uint64_t num, void *value)
{
	entry_free(value);
}

void resolver_free(struct resolver *r)
{
	if (!r)
		return;
	map_each(r->by_name, free_each, NULL);
	map_free(r->by_name);
	hosts_free(r->hosts);
	free(r);
}

static void entry_drop(struct entry *n)
{
	map_del(n->r->by_name, n->name);
	entry_free(n);
}

/* ---- the end of asking ---- */

static void take_addrs(struct entry *n, const struct ask *k)
{
	if (k->done && !k->error)
		for (size_t i = 0; i < k->reply.n && n->n < RESOLVER_ADDRS; i++)
			n->addrs[n->n++] = k->reply.addrs[i];
}

static int64_t entry_ttl(const struct entry *n)
{
	uint32_t ttl = TTL_MAX;

	for (int i = 0; i < 2; i++)
		if (n->ask[i].done && !n->ask[i].error && n->ask[i].reply.n && n->ask[i].reply.ttl < ttl)
			ttl = n->ask[i].reply.ttl;
	if (n->error)
		ttl = n->error == ENOENT ? TTL_NEGATIVE : 0;
	return ttl;
}

static void entry_finish(struct entry *n)
{
	struct ask *v4 = &n->ask[0], *v6 = &n->ask[1];
	struct addr addrs[RESOLVER_ADDRS];
	struct list waiters;
	size_t count;
	int error;

	n->n = 0;
	take_addrs(n, v6);
	take_addrs(n, v4);
	n->error = 0;
	if (!n->n)
		n->error = v4->error && v4->error != ENOENT ? v4->error : v6->error && v6->error != ENOENT ? v6->error : ENOENT;
	n->until = clock_mono_ms() + entry_ttl(n) * 1000;
	ask_close(v4);
	ask_close(v6);
	loop_disarm(n->r->loop, &n->grace);
	n->asking = false;
	n->r->asking--;
	list_append(&n->r->lru, &n->lru);
	/* a waiter may look up and cancel in its callback, and drop this entry by that: it isn't touched from there on */
	list_insert(&n->waiters, &waiters);
	list_unlink(&n->waiters);
	memcpy(addrs, n->addrs, sizeof addrs);
	count = n->n;
	error = n->error;
	if (n->until <= clock_mono_ms())
		entry_drop(n);
	while (!list_empty(&waiters)) {
		struct lookup *q = container_of(waiters.next, struct lookup, link);

		list_unlink(&q->link);
		q->done(q, error, addrs, count);
	}
}

static void on_grace(struct timer *t)
{
	entry_finish(container_of(t, struct entry, grace));
}

static void ask_done(struct ask *k, int error)
{
	struct entry *n = k->entry;
	struct ask *other = &n->ask[k == &n->ask[0]];

	ask_close(k);
	k->done = true;
	k->error = error;
	if (other->done)
		entry_finish(n);
	else if (!error && k->reply.n)
		loop_arm(n->r->loop, &n->grace, GRACE_MS);
}

/* An answer to our question; what the server's verdict means for this ask. */
static void ask_verdict(struct ask *k)
{
	switch (k->reply.rcode) {
	case DNS_NOERROR:
		ask_done(k, k->reply.n ? 0 : ENOENT);
		break;
	case DNS_NXDOMAIN:
		ask_done(k, ENOENT);
		break;
	default:
		ask_next(k);
	}
}

/* ---- TCP, after a cut answer ---- */

static void on_tcp(struct source *s, uint32_t events)
{
	struct ask *k = container_of(s, struct ask, src);
	ssize_t n;

	if (!k->reading) {
		n = send(s->fd, k->stream + k->have, k->want - k->have, MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n < 0) {
			ask_next(k);
			return;
		}
		k->have += (size_t)n;
		if (k->have < k->want)
			return;
		k->reading = true;
		k->have = 0;
		k->want = 2;
		loop_mod(k->entry->r->loop, s, EPOLLIN);
		return;
	}
	n = recv(s->fd, k->stream + k->have, k->want - k->have, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		ask_next(k);
		return;
	}
	k->have += (size_t)n;
	if (k->have < k->want)
		return;
	if (k->want == 2) {
		k->want = 2 + ((size_t)k->stream[0] << 8 | k->stream[1]);
		if (k->want > 2)
			return;
	}
	if (dns_parse_reply(k->stream + 2, k->have - 2, k->id, k->entry->name, k->type, &k->reply) < 0 || k->reply.truncated)
		ask_next(k);
	else
		ask_verdict(k);
}

static int ask_socket(struct ask *k, int type, void (*ready)(struct source *, uint32_t))
{
	struct server servers[HOSTS_SERVERS];
	size_t n = hosts_servers(k->entry->r->hosts, servers);
	struct server *v = &servers[(k->tries - 1) % (n ? n : 1)];
	struct sockaddr_storage ss;
	struct err e;

	if (!n)
		return -ENOENT;
	socklen_t len = addr_to_sockaddr(&v->addr, v->port, &ss);

	if (v->addr.family == 6)
		((struct sockaddr_in6 *)&ss)->sin6_scope_id = v->scope;
	k->src.fd = socket(ss.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (k->src.fd < 0)
		return -errno;
	if (connect(k->src.fd, (struct sockaddr *)&ss, len) < 0 && errno != EINPROGRESS)
		return -errno;
	k->src.name = "name server";
	k->src.ready = ready;
	return loop_add(k->entry->r->loop, &k->src, type == SOCK_DGRAM ? EPOLLIN : EPOLLOUT, &e);
}

static void ask_tcp(struct ask *k)
{
	ask_close(k);
	k->tcp = true;
	k->reading = false;
	k->stream = malloc(TCP_MSG + 2);
	str_random(&k->id, sizeof k->id);
	if (k->stream && ask_socket(k, SOCK_STREAM, on_tcp) == 0) {
		size_t n = dns_build_query(k->id, k->entry->name, k->type, k->stream + 2);

		k->stream[0] = (uint8_t)(n >> 8);
		k->stream[1] = (uint8_t)n;
		k->want = n + 2;
		k->have = 0;
		loop_arm(k->entry->r->loop, &k->timer, TCP_MS);
		return;
	}
	ask_next(k);
}

/* ---- UDP ---- */

static void on_udp(struct source *s, uint32_t events)
{
	struct ask *k = container_of(s, struct ask, src);
	uint8_t msg[4096];

	for (int i = 0; i < 16; i++) {
		ssize_t n = recv(s->fd, msg, sizeof msg, MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n < 0) {            /* refused: nobody listens there */
			ask_next(k);
			return;
		}
		if ((size_t)n > sizeof msg || dns_parse_reply(msg, (size_t)n, k->id, k->entry->name, k->type, &k->reply) < 0)
			continue;
		if (k->reply.truncated)
			ask_tcp(k);
		else
			ask_verdict(k);
		return;
	}
}

static void on_timeout(struct timer *t)
{
	ask_next(container_of(t, struct ask, timer));
}

/* The next server and round; gives up after the last. Every failure of an ask comes here. */
static void ask_next(struct ask *k)
{
	struct resolver *r = k->entry->r;
	struct server servers[HOSTS_SERVERS];
	size_t n = hosts_servers(r->hosts, servers);
	uint8_t msg[DNS_MSG];

	ask_close(k);
	while (k->tries < n * ROUNDS) {
		k->tries++;
		str_random(&k->id, sizeof k->id);
		size_t len = dns_build_query(k->id, k->entry->name, k->type, msg);

		if (len && ask_socket(k, SOCK_DGRAM, on_udp) == 0 && send(k->src.fd, msg, len, MSG_NOSIGNAL) == (ssize_t)len) {
			loop_arm(r->loop, &k->timer, TRY_MS);
			return;
		}
		ask_close(k);
	}
	memset(&k->reply, 0, sizeof k->reply);
	ask_done(k, k->tcp || k->tries ? ETIMEDOUT : EIO);
}

/* ---- lookups ---- */

static int entry_create(struct resolver *r, const char *name, struct entry **ret)
{
	size_t len = strlen(name);

	if (map_count(r->by_name) >= CACHE_MAX && !list_empty(&r->lru))
		entry_drop(container_of(r->lru.next, struct entry, lru));
	struct entry *n = calloc(1, sizeof *n + len + 1);

	if (!n)
		return -ENOMEM;
	n->r = r;
	memcpy(n->name, name, len + 1);
	list_init(&n->lru);
	list_init(&n->waiters);
	n->grace.fire = on_grace;
	for (int i = 0; i < 2; i++) {
		n->ask[i].entry = n;
		n->ask[i].type = i ? DNS_AAAA : DNS_A;
		n->ask[i].src.fd = -1;
		n->ask[i].timer.fire = on_timeout;
	}
	if (map_put(r->by_name, n->name, n) < 0) {
		free(n);
		return -ENOMEM;
	}
	*ret = n;
	return 0;
}

void resolver_lookup(struct resolver *r, const char *name, struct lookup *q)
{
	struct addr fixed[RESOLVER_ADDRS];
	struct entry *n = map_get(r->by_name, name);
	size_t nfixed = hosts_lookup(r->hosts, name, fixed, RESOLVER_ADDRS);

	list_init(&q->link);
	if (nfixed) {
		q->done(q, 0, fixed, nfixed);
		return;
	}
	if (n && !n->asking && n->until <= clock_mono_ms()) {
		entry_drop(n);
		n = NULL;
	}
	if (n && !n->asking) {
		struct addr copy[RESOLVER_ADDRS];       /* the callback may bring on more lookups that drop the entry */
		size_t count = n->n;

		memcpy(copy, n->addrs, sizeof copy);
		list_unlink(&n->lru);
		list_append(&r->lru, &n->lru);
		q->done(q, n->error, copy, count);
		return;
	}
	if (n) {
		list_append(&n->waiters, &q->link);
		return;
	}
	if (!dns_name_valid(name) || r->asking >= ASKING_MAX || entry_create(r, name, &n) < 0) {
		q->done(q, dns_name_valid(name) ? EAGAIN : ENOENT, NULL, 0);
		return;
	}
	n->asking = true;
	r->asking++;
	list_append(&n->waiters, &q->link);
	ask_next(&n->ask[0]);
	/* both asks may end at once when no server can be reached: then the entry is gone */
	if (map_get(r->by_name, name) == n && n->asking)
		ask_next(&n->ask[1]);
}

void resolver_cancel(struct lookup *q)
{
	list_unlink(&q->link);
}
