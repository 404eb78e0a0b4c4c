/* keeper -- peers and their requests.
 *
 * A request is a row in `rules`: its number, its fields as letters, its handler. Fields are decoded and checked to the last byte
 * before a handler runs; a message that doesn't fit ends its peer and nothing else. */
#include "keeper/keeper.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"
#include "isolate/host.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* isolate knows no protocol: what both have names for must have the same numbers. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(BL_MEMORY, KL_MEMORY); SAME(BL_CPU, KL_CPU); SAME(BL_PIDS, KL_PIDS); SAME(BL_DISK, KL_DISK); SAME(BL_INODES, KL_INODES); SAME(BL_FILES, KL_FILES);
SAME(BOX_ROOT, KF_ROOT); SAME(BOX_IDMAP, KF_IDMAP); SAME(BOX_CGROUP_V2, KF_CGROUP_V2); SAME(BOX_CGROUP_V1, KF_CGROUP_V1);
SAME(BOX_MEMORY, KF_MEMORY); SAME(BOX_CPU, KF_CPU); SAME(BOX_PIDS, KF_PIDS); SAME(BOX_SUBUID, KF_SUBUID); SAME(BOX_NET, KF_NET);
SAME(BOX_FREEZE, KF_FREEZE); SAME(BOX_OVERLAY, KF_OVERLAY); SAME(BOX_IPV6, KF_IPV6); SAME(BOX_MOUNTS, KEEPER_MOUNTS);

#define PEERS_MAX 16
#define CALM_MS 20
#define AGAIN_MS 100
#define PEER_QUEUE (9 << 20)       /* a list of every slot fits */

/* What a message held. s: strings in order; n: numbers in order. */
struct args {
	const char *s[4];
	uint32_t n[4];
	struct box_limits limits;
	const char *v[2 * KEEPER_MOUNTS + 1];
	size_t nv;
};

/* A peer that can't be given what it asked for (it doesn't read, or we have no descriptor to hold for it) is ended: an answer must not
 * be lost quietly. */
int peer_send(struct peer *p, struct msg_writer *w)
{
	int r = link_send(p->link, w);

	if (r < 0)
		shutdown(link_fd(p->link), SHUT_RDWR);
	return r;
}

void peer_ok(struct peer *p, uint32_t id)
{
	uint8_t mem[MSG_HEAD];
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, K_OK, id);
	peer_send(p, &w);
}

void peer_err(struct peer *p, uint32_t id, const struct err *e)
{
	uint8_t mem[1024];
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, K_ERR, id);
	msg_put_u32(&w, (uint32_t)e->code);
	msg_put_str(&w, e->msg);
	msg_put_str(&w, e->hint);
	peer_send(p, &w);
}

void keeper_tell_all(struct keeper *k, struct msg_writer *w)
{
	list_each(it, &k->peers)
		peer_send(container_of(it, struct peer, all), w);
}

static int on_hello(struct peer *p, uint32_t id, const struct args *a, struct err *e)
{
	uint8_t mem[512];
	struct msg_writer w;

	if (a->n[0] != KEEPER_VERSION)
		return err_set(e, EPROTO, "this keeper speaks version %d, not %u", KEEPER_VERSION, a->n[0]);
	msg_writer_init(&w, mem, sizeof mem, K_OK, id);
	msg_put_u32(&w, KEEPER_VERSION);
	msg_put_u32(&w, p->k->features);
	msg_put_str(&w, p->k->missing);
	return peer_send(p, &w);
}

static bool hostname_ok(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.");

	return n > 0 && n < 64 && !s[n] && s[0] != '-' && s[0] != '.';
}

static int take_mounts(const struct keeper *k, const struct args *a, struct create_args *c, struct err *e)
{
	if (a->nv % 2)
		return err_set(e, EINVAL, "mounts come in pairs");
	if (a->nv && !k->once)
		return err_set(e, EPERM, "mounts of host folders are for `bureau run` only");
	for (size_t i = 0; i < a->nv; i += 2) {
		struct box_mount *m = &c->mounts[c->nmounts++];
		const char *to = a->v[i + 1];

		if (a->v[i][0] != '/' || !(str_starts(to, "ro:/") || str_starts(to, "rw:/")) || !to[4])
			return err_set(e, EINVAL, "mount '%.80s' at '%.80s': both are absolute, the second with ro: or rw: before it, and not the root", a->v[i], to);
		m->source = a->v[i];
		m->dest = to + 3;
		m->read_only = to[1] == 'o';
	}
	return 0;
}

/* One a turn: who asks for something meanwhile waits for one at most. */
void keeper_stock(struct timer *t)
{
	struct keeper *k = container_of(t, struct keeper, stock);
	struct err e;
	int r = k->backend->stock(k->host, &e);

	if (r < 0)
		log_warn("nothing is made in advance: %s", e.msg);
	if (r > 0)
		loop_arm(k->loop, t, 1);
}

static int on_create(struct peer *p, uint32_t id, const struct args *a, struct err *e)
{
	struct create_args c = { .id = a->s[0], .template_name = a->s[1], .hostname = a->s[2], .slot = a->n[0], .net = (uint8_t)a->n[1],
		.limits = a->limits };

	if (!str_id(c.id))
		return err_set(e, EINVAL, "'%.40s' is no computer id", c.id);
	if (!str_name(c.template_name))
		return err_set(e, EINVAL, "'%.80s' is no template name", c.template_name);
	if (c.slot > KEEPER_SLOTS || (!c.slot && !p->k->once))
		return err_set(e, EINVAL, "slots are 1 to %d", KEEPER_SLOTS);
	if (c.net > KEEPER_NET_ALL)
		return err_set(e, EINVAL, "no network mode %u", c.net);
	if (!hostname_ok(c.hostname))
		return err_set(e, EINVAL, "'%.80s' is no host name", c.hostname);
	if (take_mounts(p->k, a, &c, e) < 0)
		return -e->code;
	/* not at once: who has just got a computer is about to use it */
	if (!p->k->once)
		loop_arm(p->k->loop, &p->k->stock, CALM_MS);
	return computer_create(p->k, &c, p, id, e);
}

static int find(struct peer *p, const struct args *a, struct computer **ret, struct err *e)
{
	*ret = computer_find(p->k, a->s[0]);
	return *ret ? 0 : err_set(e, ENOENT, "no computer '%.40s'", a->s[0]);
}

/* For what only a computer that is up can do. */
static int find_running(struct peer *p, const struct args *a, struct computer **ret, struct err *e)
{
	if (find(p, a, ret, e) < 0)
		return -e->code;
	return (*ret)->state == RUNNING ? 0 : err_set(e, EBUSY, "computer '%.40s' is starting or ending", a->s[0]);
}

static int on_kill(struct peer *p, uint32_t id, const struct args *a, struct err *e)
{
	struct computer *c;

	return find(p, a, &c, e) < 0 ? -e->code : computer_kill(c, p, id, e);
}

struct lister { struct peer *p; uint32_t id, count; };

/* Also what starts or ends: whoever asks must know that its id and its slot aren't free yet. */
static void list_one(void *ctx, const char *key, uint64_t num, void *value)
{
	struct lister *l = ctx;
	struct computer *c = value;
	bool up = c->state == RUNNING && !c->killed;
	uint8_t mem[512];
	struct msg_writer w;

	(void)key, (void)num;
	msg_writer_init(&w, mem, sizeof mem, K_ITEM, l->id);
	msg_put_str(&w, c->id);
	msg_put_u32(&w, c->slot);
	msg_put_u32(&w, up ? (uint32_t)c->box.pid : 0);
	msg_put_u64(&w, c->box.start_time);
	msg_put_str(&w, c->template_name);
	msg_put_u8(&w, c->net);
	peer_send(l->p, &w);
	l->count++;
}

static int on_list(struct peer *p, uint32_t id, const struct args *a, struct err *e)
{
	struct lister l = { .p = p, .id = id };
	uint8_t mem[32];
	struct msg_writer w;

	(void)a, (void)e;
	map_each(p->k->by_id, list_one, &l);
	msg_writer_init(&w, mem, sizeof mem, K_OK, id);
	msg_put_u32(&w, l.count);
	return peer_send(p, &w);
}

static int on_limits(struct peer *p, uint32_t id, const struct args *a, struct err *e)
{
	struct computer *c;
	uint8_t mem[32];
	struct msg_writer w;

	if (find_running(p, a, &c, e) < 0 || p->k->backend->limits(p->k->host, c->id, &c->box, &a->limits, e) < 0)
		return -e->code;
	msg_writer_init(&w, mem, sizeof mem, K_OK, id);
	msg_put_u32(&w, c->box.unenforced);
	return peer_send(p, &w);
}

static int on_stats(struct peer *p, uint32_t id, const struct args *a, struct err *e)
{
	struct computer *c;
	struct box_counts n;
	uint8_t mem[64];
	struct msg_writer w;

	if (find(p, a, &c, e) < 0)
		return -e->code;
	groups_count(isolate_groups(p->k->host), c->id, &c->box.groups, &n);
	msg_writer_init(&w, mem, sizeof mem, K_OK, id);
	msg_put_u64(&w, n.cpu_us);
	msg_put_u64(&w, n.memory);
	msg_put_u64(&w, n.memory_peak);
	msg_put_u64(&w, n.oom_kills);
	msg_put_u32(&w, n.procs);
	return peer_send(p, &w);
}

static int on_net_open(struct peer *p, uint32_t id, const struct args *a, struct err *e)
{
	struct computer *c;
	uint8_t mem[64], n = 0;
	struct msg_writer w;

	if (find_running(p, a, &c, e) < 0)
		return -e->code;
	if (c->net != KEEPER_NET_ALL)
		return err_set(e, EINVAL, "computer '%s' has no network", c->id);
	if (p->k->backend->doors(p->k->host, &c->box, e) < 0)
		return -e->code;
	msg_writer_init(&w, mem, sizeof mem, K_OK, id);
	for (size_t i = 0; i < BOX_DOORS; i++)
		n += c->box.doors[i] >= 0;
	msg_put_u8(&w, n);
	for (size_t i = 0; i < BOX_DOORS; i++)
		if (c->box.doors[i] >= 0)
			msg_put_fd(&w, c->box.doors[i]);
	peer_send(p, &w);
	for (size_t i = 0; i < BOX_DOORS; i++)
		fd_drop(&c->box.doors[i]);
	return 0;
}

static int on_freeze(struct peer *p, uint32_t id, const struct args *a, struct err *e)
{
	struct computer *c;

	if (find_running(p, a, &c, e) < 0 || groups_freeze(isolate_groups(p->k->host), c->id, &c->box.groups, a->n[0], e) < 0)
		return -e->code;
	peer_ok(p, id);
	return 0;
}

/* Fields: s string, u u32, b u8 (both go to n), L limits, v list of strings. A handler that returns < 0 is answered by K_ERR. */
static const struct rule {
	uint16_t type;
	const char *fields;
	int (*run)(struct peer *p, uint32_t id, const struct args *a, struct err *e);
} rules[] = {
	{ K_HELLO, "u", on_hello },
	{ K_CREATE, "susbLsv", on_create },
	{ K_KILL, "s", on_kill },
	{ K_LIST, "", on_list },
	{ K_LIMITS, "sL", on_limits },
	{ K_STATS, "s", on_stats },
	{ K_NET_OPEN, "s", on_net_open },
	{ K_FREEZE, "sb", on_freeze },
};

static void decode(struct msg_reader *r, const char *fields, struct args *a)
{
	size_t s = 0, n = 0;

	for (; *fields; fields++)
		switch (*fields) {
		case 's': a->s[s++] = msg_get_str(r, 255); break;
		case 'u': a->n[n++] = msg_get_u32(r); break;
		case 'b': a->n[n++] = msg_get_u8(r); break;
		case 'v': a->nv = msg_get_strv(r, a->v, 2 * KEEPER_MOUNTS, 4095); break;
		case 'L':
			a->limits = (struct box_limits){ .memory = msg_get_u64(r) };
			a->limits.cpu = msg_get_u64(r);
			a->limits.pids = msg_get_u64(r);
			a->limits.disk = msg_get_u64(r);
			a->limits.inodes = msg_get_u64(r);
			a->limits.files = msg_get_u64(r);
			break;
		}
}

static void on_message(void *ctx, struct msg_reader *r)
{
	struct peer *p = ctx;
	struct args a = { .nv = 0 };
	struct err e = { .code = 0 };

	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		int code;

		if (rules[i].type != r->type)
			continue;
		decode(r, rules[i].fields, &a);
		if (r->bad || r->p != r->end || r->nfds)
			break;
		code = rules[i].run(p, r->id, &a, &e);
		if (code < 0 && e.code)
			peer_err(p, r->id, &e);
		return;
	}
	r->bad = true;      /* unknown, or not as the table says: the link ends this peer */
}

static void peer_free(struct job *j)
{
	struct peer *p = container_of(j, struct peer, free);

	link_free(p->link);
	free(p);
}

static void on_gone(void *ctx, const struct err *e)
{
	struct peer *p = ctx;

	if (e->code)
		log_warn("a peer ended: %s", e->msg);
	list_unlink(&p->all);
	computer_drop_waiters(p);
	loop_defer(p->k->loop, &p->free);
	keeper_check_quit(p->k);
}

static void kill_one(void *ctx, const char *key, uint64_t num, void *value)
{
	struct err e;

	(void)ctx, (void)key, (void)num;
	computer_kill(value, NULL, 0, &e);
}

void keeper_check_quit(struct keeper *k)
{
	if (!k->once || !list_empty(&k->peers))
		return;
	if (!k->quitting) {
		k->quitting = true;
		map_each(k->by_id, kill_one, NULL);
	}
	if (map_count(k->by_id) == 0)
		loop_quit(k->loop, 0);
}

int keeper_peer(struct keeper *k, int fd, struct err *e)
{
	static const struct link_ops ops = { .message = on_message, .gone = on_gone };
	struct peer *p = calloc(1, sizeof *p);

	if (!p) {
		close(fd);
		return err_set(e, ENOMEM, "no memory");
	}
	p->k = k;
	list_init(&p->waits);
	p->free.run = peer_free;
	if (link_create(k->loop, fd, PEER_QUEUE, &ops, p, "peer", &p->link, e) < 0) {
		free(p);
		return -e->code;
	}
	list_append(&k->peers, &p->all);
	return 0;
}

static size_t peers_count(const struct keeper *k)
{
	size_t n = 0;

	list_each(it, &k->peers)
		n++;
	return n;
}

static void on_again(struct timer *t)
{
	struct keeper *k = container_of(t, struct keeper, listen_again);

	loop_mod(k->loop, &k->listen, EPOLLIN);
}

static void on_listen(struct source *s, uint32_t events)
{
	struct keeper *k = container_of(s, struct keeper, listen);
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct err e;
	uid_t uid;
	pid_t pid;

	(void)events;
	if (fd < 0) {
		/* out of descriptors: the socket stays readable, so it must be silent for a while */
		if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
			loop_mod(k->loop, s, 0);
			loop_arm(k->loop, &k->listen_again, AGAIN_MS);
		}
		return;
	}
	if (sock_peer(fd, &pid, &uid, &e) < 0 || (uid != k->daemon_uid && uid != geteuid())) {
		log_warn("refused a peer of uid %d", (int)uid);
		close(fd);
	} else if (peers_count(k) >= PEERS_MAX) {
		log_warn("refused a peer: %d are connected", PEERS_MAX);
		close(fd);
	} else if (keeper_peer(k, fd, &e) < 0) {
		log_warn("%s", e.msg);
	}
}

int keeper_listen(struct keeper *k, int fd, struct err *e)
{
	k->listen = (struct source){ .fd = fd, .name = "listen", .ready = on_listen };
	k->listen_again.fire = on_again;
	fd_nonblock(fd, 1);
	return loop_add(k->loop, &k->listen, EPOLLIN, e);
}
