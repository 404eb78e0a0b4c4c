#include "door/door.h"
#include "door/door_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"
#include "door/hosts.h"
#include "wire/keeper_proto.h"

#define QUEUE_MAX (256 << 10)
#define DENIED_PER_SECOND 32
#define COMPUTERS_MAX 65536

/* Names of cloud metadata services: their addresses are refused anyway, this says so sooner. */
static const char *const metadata_names[] = { "metadata.google.internal", "metadata.goog", "metadata", "instance-data",
	"instance-data.ec2.internal" };

bool computer_name_allowed(struct computer *c, const char *name, const char **ret_rule)
{
	for (size_t i = 0; i < sizeof metadata_names / sizeof *metadata_names; i++)
		if (str_eq(name, metadata_names[i])) {
			*ret_rule = addr_class_words(ADDR_METADATA);
			return false;
		}
	return true;
}

void computer_denied(struct computer *c, const char *what, const char *rule)
{
	uint8_t mem[1024];
	struct msg_writer w;
	int64_t now = loop_now(c->door->loop);

	c->refused++;
	if (now - c->denied_at >= 1000) {
		c->denied_at = now;
		c->denied = 0;
	}
	/* an asker that doesn't read loses events: the queue is for its answers */
	if (c->denied++ >= DENIED_PER_SECOND || !c->door->asker || link_full(c->door->asker))
		return;
	msg_writer_init(&w, mem, sizeof mem, D_DENIED, 0);
	msg_put_str(&w, c->id);
	msg_put_str(&w, what);
	msg_put_str(&w, rule);
	link_send(c->door->asker, &w);
}

/* ---- computers ---- */

static void computer_free(struct computer *c)
{
	struct loop *l = c->door->loop;

	conns_cut(c);
	dns_server_free(c->dns);
	for (int i = 0; i < COMPUTER_SOCKETS; i++) {
		loop_disarm(l, &c->listeners[i].again);
		loop_remove(l, &c->listeners[i].src);
		fd_drop(&c->listeners[i].src.fd);
	}
	names_free(c->names);
	free(c);
}

/* What a descriptor is: told by asking the kernel, not by its place. */
static int socket_kind(int fd, void (**ret_ready)(struct source *, uint32_t))
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof ss, tlen = sizeof(int), llen = sizeof(int);
	int type = 0, listening = 0;
	struct addr a;
	uint16_t port;

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0 || addr_from_sockaddr(&ss, &a, &port) < 0)
		return -EINVAL;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &tlen) < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &llen) < 0)
		return -EINVAL;
	if (type == SOCK_DGRAM)
		*ret_ready = dns_on_udp;
	else if (type == SOCK_STREAM && listening)
		*ret_ready = port == DOOR_PORT_DNS ? dns_on_tcp : conn_on_listener;
	else
		return -EINVAL;
	return fd_nonblock(fd, 1);
}

static int computer_create(struct door *d, const char *id, struct msg_reader *r, unsigned nfds, struct computer **ret)
{
	struct computer *c = calloc(1, sizeof *c);
	struct err e;
	int code = 0;

	if (!c)
		return -ENOMEM;
	c->door = d;
	list_init(&c->conns);
	str_copy(c->id, sizeof c->id, id);
	for (int i = 0; i < COMPUTER_SOCKETS; i++) {
		c->listeners[i].src.fd = -1;
		c->listeners[i].src.name = "computer's socket";
		c->listeners[i].computer = c;
		c->listeners[i].again.fire = conn_on_again;
	}
	if (names_create(DOOR_NAMES_PER_COMPUTER, &c->names) < 0 || dns_server_create(c, &c->dns) < 0)
		code = -ENOMEM;
	for (unsigned i = 0; i < nfds && !code; i++) {
		struct source *s = &c->listeners[i].src;

		s->fd = msg_take_fd(r);
		code = socket_kind(s->fd, &s->ready);
		if (!code)
			code = loop_add(d->loop, s, EPOLLIN, &e);
	}
	if (!code)
		code = map_put(d->computers, id, c);
	if (code < 0) {
		computer_free(c);
		return code;
	}
	*ret = c;
	return 0;
}

/* ---- messages ---- */

static void answer_ok(struct door *d, struct msg_writer *w)
{
	if (link_send(d->asker, w) < 0)
		log_warn("the asker doesn't read its answers");
}

static void answer_err(struct door *d, uint32_t id, int code, const char *text)
{
	uint8_t mem[512];
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, D_ERR, id);
	msg_put_u32(&w, (uint32_t)code);
	msg_put_str(&w, text);
	answer_ok(d, &w);
}

/* Whether the fields read so far were right and the message has no more. When not, the link ends the peer after us. */
static bool complete(const struct msg_reader *r)
{
	return !r->bad && r->p == r->end;
}

static void on_hello(struct door *d, struct msg_reader *r, struct msg_writer *w)
{
	uint32_t version = msg_get_u32(r);

	if (!complete(r))
		return;
	if (version != DOOR_VERSION) {
		answer_err(d, r->id, EPROTONOSUPPORT, "another version of the protocol: update both programs");
		return;
	}
	msg_put_u32(w, DOOR_VERSION);
	answer_ok(d, w);
}

/* A refused request's descriptors: left alone they'd count as a fault of the peer. */
static void drop_fds(struct msg_reader *r)
{
	while (r->next_fd < r->nfds) {
		int fd = msg_take_fd(r);

		fd_drop(&fd);
	}
}

static void on_open(struct door *d, struct msg_reader *r, struct msg_writer *w)
{
	const char *id = msg_get_str(r, 32);
	uint8_t mode = msg_get_u8(r), n = msg_get_u8(r);
	struct computer *c;

	if (!complete(r) || n != r->nfds) {
		r->bad = true;
		return;
	}
	if (!str_id(id) || mode != KEEPER_NET_ALL || n == 0 || n > COMPUTER_SOCKETS) {
		answer_err(d, r->id, EINVAL, "open a computer's door: bad id, mode or number of sockets");
	} else if (map_get(d->computers, id)) {
		answer_err(d, r->id, EEXIST, "open a computer's door: it's open already");
	} else if (map_count(d->computers) >= COMPUTERS_MAX) {
		answer_err(d, r->id, ENOSPC, "open a computer's door: too many computers");
	} else {
		int code = computer_create(d, id, r, n, &c);

		if (code < 0)
			answer_err(d, r->id, -code, code == -EINVAL ? "open a computer's door: a descriptor isn't a listening socket"
								    : "open a computer's door");
		else
			answer_ok(d, w);
	}
	drop_fds(r);
}

static struct computer *find(struct door *d, struct msg_reader *r)
{
	const char *id = msg_get_str(r, 32);
	struct computer *c;

	if (!complete(r))
		return NULL;
	c = map_get(d->computers, id);
	if (!c)
		answer_err(d, r->id, ENOENT, "no such computer at this door");
	return c;
}

static void on_close(struct door *d, struct msg_reader *r, struct msg_writer *w)
{
	struct computer *c = find(d, r);

	if (!c)
		return;
	map_del(d->computers, c->id);
	computer_free(c);
	answer_ok(d, w);
}

static void on_stats(struct door *d, struct msg_reader *r, struct msg_writer *w)
{
	struct computer *c = find(d, r);

	if (!c)
		return;
	msg_put_u64(w, c->bytes_out);
	msg_put_u64(w, c->bytes_in);
	msg_put_u32(w, c->nconns);
	msg_put_u64(w, c->total);
	msg_put_u64(w, c->refused);
	answer_ok(d, w);
}

static void (*const handlers[])(struct door *, struct msg_reader *, struct msg_writer *) = {
	[D_HELLO] = on_hello, [D_OPEN] = on_open, [D_CLOSE] = on_close, [D_STATS] = on_stats,
};

static void on_message(void *ctx, struct msg_reader *r)
{
	uint8_t mem[128];
	struct msg_writer w;

	if (r->type >= sizeof handlers / sizeof *handlers || !handlers[r->type]) {
		r->bad = true;
		return;
	}
	msg_writer_init(&w, mem, sizeof mem, D_OK, r->id);
	handlers[r->type](ctx, r, &w);
}

static void on_gone(void *ctx, const struct err *e)
{
	struct door *d = ctx;

	if (e->code)
		log_error("asker: %s", e->msg);
	loop_quit(d->loop, e->code ? 1 : 0);
}

static void on_no_fds(void *ctx, uint16_t type, uint32_t id)
{
	answer_err(ctx, id, EMFILE, "open a computer's door: the door has no descriptor left");
}

static const struct link_ops asker_ops = { .message = on_message, .gone = on_gone, .no_fds = on_no_fds };

int door_check(const struct door_options *o, struct err *e)
{
	struct reach reach = { 0 };
	struct hosts *hosts;

	for (size_t i = 0; i < o->nallow; i++)
		if (reach_allow(&reach, o->allow[i], e) < 0)
			return -e->code;
	if (hosts_create(o->resolver, &hosts, e) < 0)
		return -e->code;
	hosts_free(hosts);
	return 0;
}

int door_create(struct loop *l, const struct door_options *o, struct door **ret, struct err *e)
{
	AUTO_FD int fd = o->asker_fd;
	struct door *d = calloc(1, sizeof *d);

	if (!d)
		return err_set(e, ENOMEM, "make the door: no memory");
	d->loop = l;
	d->spare_fd = -1;
	for (size_t i = 0; i < o->nallow; i++)
		if (reach_allow(&d->reach, o->allow[i], e) < 0)
			goto fail;
	if (map_create(&d->computers) < 0) {
		err_set(e, ENOMEM, "make the door: no memory");
		goto fail;
	}
	if (resolver_create(l, o->resolver, &d->resolver, e) < 0)
		goto fail;
	d->spare_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (link_create(l, fd_take(&fd), QUEUE_MAX, &asker_ops, d, "asker", &d->asker, e) < 0)
		goto fail;
	*ret = d;
	return 0;
fail:
	door_free(d);
	return -e->code;
}

static void free_each(void *ctx, const char *key, uint64_t num, void *value)
{
	computer_free(value);
}

void door_free(struct door *d)
{
	if (!d)
		return;
	if (d->computers)
		map_each(d->computers, free_each, NULL);
	map_free(d->computers);
	resolver_free(d->resolver);
	link_free(d->asker);
	reach_done(&d->reach);
	fd_drop(&d->spare_fd);
	free(d);
}
