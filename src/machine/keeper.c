#include "machine/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"
#include "wire/sock.h"

#define QUEUE_MAX (4u << 20)
#define ITEMS_MAX (KEEPER_SLOTS + 1)
#define ID_HELLO 1
#define ID_LIST 2
#define ID_FIRST 16

enum phase { PH_DOWN, PH_HELLO, PH_LIST, PH_UP };

struct keeper {
	struct loop *loop;
	struct link *link;
	const struct keeper_events *ev;
	void *ctx;
	int dirfd;
	char name[64];
	enum phase phase;
	struct list calls;           /* in flight, oldest first */
	size_t ncalls;
	uint32_t next_id, features;
	char missing[512];
	struct timer retry, give_up;
	struct job broken_job;       /* calls that couldn't be sent */
	int delay;
	int64_t down_since;
	struct keeper_item *items;
	size_t nitems, cap;
};

static uint8_t mem[MSG_MAX];

static void try_connect(struct timer *t);
static void on_gone(void *ctx, const struct err *e);

static void finish(struct keeper_call *c, struct keeper_answer *a, const struct err *e)
{
	list_unlink(&c->node);
	c->keeper->ncalls--;
	c->keeper = NULL;
	free(c->bytes);
	c->bytes = NULL;
	c->on(c, a, e);
}

static void close_answer(struct keeper_answer *a)
{
	for (unsigned i = 0; i < a->nfds; i++)
		fd_drop(&a->fds[i]);
}

/* ---- sending ---- */

/* A keeper that has died isn't a failure: the link's end is about to be noticed, and the call is sent again to the next one. */
static int send_bytes(struct keeper *k, const void *p, size_t n)
{
	struct msg_writer w = { .p = (uint8_t *)(uintptr_t)p, .len = n, .cap = n };
	int r = link_send(k->link, &w);

	return r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN ? 0 : r;
}

static void send_simple(struct keeper *k, uint16_t type, uint32_t id, const char *cid)
{
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, type, id);
	if (type == K_HELLO)
		msg_put_u32(&w, KEEPER_VERSION);
	if (cid)
		msg_put_str(&w, cid);
	link_send(k->link, &w);
}

static void on_broken(struct job *j)
{
	struct keeper *k = container_of(j, struct keeper, broken_job);
	struct err e;

	err_set(&e, EAGAIN, "the keeper doesn't take requests now");
	for (struct list *it = k->calls.next; it != &k->calls;) {
		struct keeper_call *c = container_of(it, struct keeper_call, node);

		it = it->next;
		if (c->bytes)
			continue;
		finish(c, NULL, &e);
		it = k->calls.next;      /* whatever on() did to the list */
	}
}

static void submit(struct keeper *k, struct keeper_call *c, struct msg_writer *w, const char *cid)
{
	c->keeper = k;
	str_copy(c->cid, sizeof c->cid, cid);
	list_append(&k->calls, &c->node);
	k->ncalls++;
	c->bytes = w->bad ? NULL : malloc(w->len);
	c->len = w->len;
	if (c->bytes)
		memcpy(c->bytes, w->p, w->len);
	if (c->bytes && k->phase == PH_UP && send_bytes(k, c->bytes, c->len) < 0) {
		free(c->bytes);
		c->bytes = NULL;
	}
	if (!c->bytes)
		loop_defer(k->loop, &k->broken_job);
	if (k->phase != PH_UP && !k->give_up.pos)
		loop_arm(k->loop, &k->give_up, KEEPER_GIVE_UP_MS);
}

static void begin(struct keeper *k, struct keeper_call *c, struct msg_writer *w, uint16_t type)
{
	c->id = k->next_id;
	k->next_id += 2;
	if (k->next_id < ID_FIRST)
		k->next_id = ID_FIRST;
	c->type = type;
	msg_writer_init(w, mem, sizeof mem, type, c->id);
}

static void put_limits(struct msg_writer *w, const struct store_limits *l)
{
	msg_put_u64(w, l->memory);
	msg_put_u64(w, l->cpu);
	msg_put_u64(w, l->pids);
	msg_put_u64(w, l->disk);
	msg_put_u64(w, l->inodes);
	msg_put_u64(w, l->files);
}

void keeper_create(struct keeper *k, struct keeper_call *c, const struct keeper_create_args *a)
{
	struct msg_writer w;

	begin(k, c, &w, K_CREATE);
	msg_put_str(&w, a->id);
	msg_put_u32(&w, a->slot);
	msg_put_str(&w, a->template);
	msg_put_u8(&w, a->net);
	put_limits(&w, &a->limits);
	msg_put_str(&w, a->hostname);
	msg_put_strv(&w, NULL, 0);
	submit(k, c, &w, a->id);
}

void keeper_limits(struct keeper *k, struct keeper_call *c, const char *id, const struct store_limits *l)
{
	struct msg_writer w;

	begin(k, c, &w, K_LIMITS);
	msg_put_str(&w, id);
	put_limits(&w, l);
	submit(k, c, &w, id);
}

void keeper_ask(struct keeper *k, struct keeper_call *c, uint16_t type, const char *id)
{
	struct msg_writer w;

	begin(k, c, &w, type);
	msg_put_str(&w, id);
	submit(k, c, &w, id);
}

void keeper_cancel(struct keeper_call *c)
{
	if (!c->keeper)
		return;
	list_unlink(&c->node);
	c->keeper->ncalls--;
	c->keeper = NULL;
	free(c->bytes);
	c->bytes = NULL;
}

/* ---- coming back ---- */

static void send_again(struct keeper *k)
{
	list_each(it, &k->calls) {
		struct keeper_call *c = container_of(it, struct keeper_call, node);

		if (!c->bytes)
			continue;
		/* what there may be of it is cleared away first, in whatever state (ENOENT is fine). Ids are even: the odd one beside it is free */
		if (c->type == K_CREATE)
			send_simple(k, K_KILL, c->id + 1, c->cid);
		else if (send_bytes(k, c->bytes, c->len) < 0) {
			free(c->bytes);
			c->bytes = NULL;
			loop_defer(k->loop, &k->broken_job);
		}
	}
}

static void on_up(struct keeper *k)
{
	/* what the listener adds now is new and sent at once; only what is here already is sent again */
	struct list old = LIST_INIT(old);

	list_each(it, &k->calls) {
		list_unlink(it);
		list_append(&old, it);
	}
	k->phase = PH_UP;
	k->delay = 0;
	loop_disarm(k->loop, &k->give_up);
	if (k->down_since)
		log_info("keeper is there, %zu computers", k->nitems);
	k->down_since = 0;
	k->ev->listed(k->ctx, k->items, k->nitems);
	{
		struct list fresh = LIST_INIT(fresh);

		list_each(it, &k->calls) {
			list_unlink(it);
			list_append(&fresh, it);
		}
		list_each(it, &old) {
			list_unlink(it);
			list_append(&k->calls, it);
		}
		if (k->link)
			send_again(k);
		list_each(it, &fresh) {
			list_unlink(it);
			list_append(&k->calls, it);
		}
	}
	free(k->items);
	k->items = NULL;
	k->nitems = k->cap = 0;
}

static void add_item(struct keeper *k, struct msg_reader *r)
{
	struct keeper_item it = { 0 };

	if (str_copy(it.id, sizeof it.id, msg_get_str(r, 32)) < 0)
		r->bad = true;
	it.slot = msg_get_u32(r);
	it.pid = msg_get_u32(r);
	it.start = msg_get_u64(r);
	if (str_copy(it.template, sizeof it.template, msg_get_str(r, 64)) < 0)
		r->bad = true;
	it.net = msg_get_u8(r);
	if (k->nitems == k->cap) {
		size_t cap = k->cap ? k->cap * 2 : 64;
		struct keeper_item *p = cap > 2 * ITEMS_MAX ? NULL : reallocarray(k->items, cap, sizeof *p);

		if (!p) {
			r->bad = true;
			return;
		}
		k->items = p;
		k->cap = cap;
	}
	k->items[k->nitems++] = it;
}

/* ---- answers ---- */

static void on_exited(struct keeper *k, struct msg_reader *r)
{
	struct keeper_exit x;

	x.id = msg_get_str(r, 32);
	x.how = msg_get_u32(r);
	x.code = msg_get_u32(r);
	x.oom = msg_get_u64(r);
	if (!r->bad)
		k->ev->exited(k->ctx, &x);
}

static void read_answer(struct msg_reader *r, uint16_t type, struct keeper_answer *a)
{
	unsigned n = 0;

	switch (type) {
	case K_CREATE:
		a->pid = msg_get_u32(r);
		a->start = msg_get_u64(r);
		a->unenforced = msg_get_u32(r);
		n = msg_get_u8(r) + 1u;
		break;
	case K_LIMITS:
		a->unenforced = msg_get_u32(r);
		break;
	case K_STATS:
		a->cpu_us = msg_get_u64(r);
		a->memory = msg_get_u64(r);
		a->peak = msg_get_u64(r);
		a->oom = msg_get_u64(r);
		a->processes = msg_get_u32(r);
		break;
	case K_NET_OPEN:
		n = msg_get_u8(r);
		break;
	default:
		break;
	}
	if (n > MSG_FDS) {
		r->bad = true;
		return;
	}
	while (a->nfds < n)
		a->fds[a->nfds++] = msg_take_fd(r);
}

static struct keeper_call *find_call(struct keeper *k, uint32_t id)
{
	list_each(it, &k->calls) {
		struct keeper_call *c = container_of(it, struct keeper_call, node);

		if (c->id == (id & ~1u))
			return c;
	}
	return NULL;
}

static void on_answer(struct keeper *k, struct msg_reader *r)
{
	struct keeper_call *c = find_call(k, r->id);
	struct keeper_answer a = { .nfds = 0 };
	struct err e, *fail = NULL;

	if (r->type == K_ERR) {
		uint32_t code = msg_get_u32(r);

		err_set(&e, code > 0 && code < 4096 ? (int)code : EIO, "%s", msg_get_str(r, 1024));
		err_hint(&e, "%s", msg_get_str(r, 1024));
		fail = &e;
	} else if (c && !(r->id & 1)) {
		read_answer(r, c->type, &a);
	} else if (!c) {
		r->p = r->end;       /* of a call that was cancelled: its descriptors are closed by the link */
		return;
	}
	if (r->bad || r->p != r->end) {
		close_answer(&a);
		return;
	}
	if (c && r->id & 1) {
		if (send_bytes(k, c->bytes, c->len) < 0) {
			err_set(&e, EAGAIN, "the keeper doesn't take requests now");
			finish(c, NULL, &e);
		}
	} else if (c) {
		finish(c, fail ? NULL : &a, fail);
	}
}

static void on_hello(struct keeper *k, struct msg_reader *r)
{
	uint32_t version;

	if (r->type == K_ERR) {
		msg_get_u32(r);
		log_error("keeper refuses us: %s", msg_get_str(r, 1024));
		r->bad = true;
		return;
	}
	version = msg_get_u32(r);
	k->features = msg_get_u32(r);
	str_copy(k->missing, sizeof k->missing, msg_get_str(r, sizeof k->missing - 1));
	if (version != KEEPER_VERSION) {
		log_error("keeper speaks version %u, we speak %u", version, KEEPER_VERSION);
		r->bad = true;
		return;
	}
	k->phase = PH_LIST;
	send_simple(k, K_LIST, ID_LIST, NULL);
}

static void on_message(void *ctx, struct msg_reader *r)
{
	struct keeper *k = ctx;

	if (r->type == K_EXITED && r->id == 0)
		on_exited(k, r);
	else if (r->type == K_ITEM && k->phase == PH_LIST)
		add_item(k, r);
	else if (r->id == ID_HELLO && k->phase == PH_HELLO)
		on_hello(k, r);
	else if (r->id == ID_LIST && k->phase == PH_LIST && r->type == K_OK) {
		msg_get_u32(r);
		if (!r->bad)
			on_up(k);
	} else if (r->id >= ID_FIRST && (r->type == K_OK || r->type == K_ERR))
		on_answer(k, r);
	else
		r->bad = true;
}

/* ---- the link ---- */

static void again(struct keeper *k)
{
	k->delay = k->delay ? k->delay * 2 : 10;
	if (k->delay > 1000)
		k->delay = 1000;
	loop_arm(k->loop, &k->retry, k->delay);
}

static void on_gone(void *ctx, const struct err *e)
{
	struct keeper *k = ctx;

	if (k->phase == PH_UP)
		log_warn("keeper is gone%s%s", e->code ? ": " : "", e->code ? e->msg : "");
	link_free(k->link);
	k->link = NULL;
	k->phase = PH_DOWN;
	k->nitems = 0;
	if (!k->down_since)
		k->down_since = clock_mono_ms();
	if (k->ncalls && !k->give_up.pos)
		loop_arm(k->loop, &k->give_up, KEEPER_GIVE_UP_MS);
	if (e->code == EMFILE)
		k->delay = 1000;        /* our own table is full: at once it would be the same again */
	again(k);
}

static const struct link_ops link_ops = { .message = on_message, .gone = on_gone };

static void try_connect(struct timer *t)
{
	struct keeper *k = container_of(t, struct keeper, retry);
	struct err e;
	int fd;

	if (sock_connect_at(k->dirfd, k->name, &fd, &e) < 0 ||
	    link_create(k->loop, fd, QUEUE_MAX, &link_ops, k, "keeper", &k->link, &e) < 0) {
		log_debug("keeper: %s", e.msg);
		again(k);
		return;
	}
	k->phase = PH_HELLO;
	send_simple(k, K_HELLO, ID_HELLO, NULL);
}

/* Those that are in flight now; on() may start others. */
static void end_all(struct keeper *k, const struct err *e)
{
	for (size_t n = k->ncalls; n && !list_empty(&k->calls); n--)
		finish(container_of(k->calls.next, struct keeper_call, node), NULL, e);
}

static void on_give_up(struct timer *t)
{
	struct keeper *k = container_of(t, struct keeper, give_up);
	struct err e;

	err_set(&e, EAGAIN, "the keeper isn't there");
	err_hint(&e, "its supervisor starts it again; see the server's log");
	end_all(k, &e);
}

int keeper_open(struct loop *l, const char *run_dir, const char *name, const struct keeper_events *ev, void *ctx, struct keeper **ret, struct err *e)
{
	struct keeper *k = calloc(1, sizeof *k);

	if (!k)
		return err_set(e, ENOMEM, "open the keeper's link: no memory");
	k->dirfd = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (k->dirfd < 0) {
		int r = err_sys(e, "open folder '%s'", run_dir);

		free(k);
		return r;
	}
	k->loop = l;
	k->ev = ev;
	k->ctx = ctx;
	str_copy(k->name, sizeof k->name, name);
	list_init(&k->calls);
	k->next_id = ID_FIRST;
	k->down_since = clock_mono_ms();
	k->retry.fire = try_connect;
	k->give_up.fire = on_give_up;
	k->broken_job.run = on_broken;
	loop_arm(l, &k->retry, 0);
	*ret = k;
	return 0;
}

void keeper_close(struct keeper *k)
{
	struct err e;

	if (!k)
		return;
	err_set(&e, ECANCELED, "the server is stopping");
	end_all(k, &e);
	link_free(k->link);
	loop_disarm(k->loop, &k->retry);
	loop_disarm(k->loop, &k->give_up);
	loop_cancel(k->loop, &k->broken_job);
	close(k->dirfd);
	free(k->items);
	free(k);
}

bool keeper_up(const struct keeper *k)
{
	return k->phase == PH_UP;
}

uint32_t keeper_features(const struct keeper *k)
{
	return k->features;
}

const char *keeper_missing(const struct keeper *k)
{
	return k->missing;
}
