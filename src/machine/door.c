#include "machine/door.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "core/log.h"
#include "core/map.h"
#include "core/str.h"
#include "wire/sock.h"

#define QUEUE_MAX (4u << 20)

struct door {
	struct loop *loop;
	struct link *link;
	const struct door_events *ev;
	void *ctx;
	struct timer retry;
	struct map *asked;           /* request id → computer's id, of D_OPENs in flight */
	uint32_t next_id;
	int delay;
	bool up;
};

static uint8_t mem[MSG_MAX];

static void free_id(void *ctx, const char *key, uint64_t num, void *value)
{
	struct door *d = ctx;

	map_del_u64(d->asked, num);
	free(value);
}

/* Whoever waits for the door that died waits no longer: all is opened again when there is another. */
static void fail_id(void *ctx, const char *key, uint64_t num, void *value)
{
	struct door *d = ctx;
	struct err e;

	map_del_u64(d->asked, num);
	err_set(&e, EAGAIN, "the door is gone");
	d->ev->opened(d->ctx, value, &e);
	free(value);
}

static void again(struct door *d)
{
	d->delay = d->delay ? d->delay * 2 : 20;
	if (d->delay > 2000)
		d->delay = 2000;
	loop_arm(d->loop, &d->retry, d->delay);
}

static void on_gone(void *ctx, const struct err *e)
{
	struct door *d = ctx;

	log_warn("door is gone%s%s", e->code ? ": " : "", e->code ? e->msg : "");
	d->up = false;
	link_free(d->link);
	d->link = NULL;
	map_each(d->asked, fail_id, d);
	again(d);
}

static void on_hello(struct door *d, struct msg_reader *r)
{
	if (r->type != D_OK || msg_get_u32(r) != DOOR_VERSION) {
		log_error("door speaks another version");
		r->bad = true;
		return;
	}
	if (r->bad)
		return;
	d->up = true;
	d->delay = 0;
	d->ev->up(d->ctx);
}

static void on_opened(struct door *d, struct msg_reader *r)
{
	char *id = map_del_u64(d->asked, r->id);
	struct err e;

	if (r->type == D_ERR) {
		uint32_t code = msg_get_u32(r);

		err_set(&e, code > 0 && code < 4096 ? (int)code : EIO, "%s", msg_get_str(r, 1024));
	}
	if (id && !r->bad)
		d->ev->opened(d->ctx, id, r->type == D_ERR ? &e : NULL);
	free(id);
}

static void on_message(void *ctx, struct msg_reader *r)
{
	struct door *d = ctx;

	if (r->type == D_DENIED && r->id == 0) {
		const char *id = msg_get_str(r, 32), *what = msg_get_str(r, 512), *rule = msg_get_str(r, 512);

		if (!r->bad)
			d->ev->denied(d->ctx, id, what, rule);
	} else if (!d->up) {
		on_hello(d, r);
	} else if (r->type == D_OK || r->type == D_ERR) {
		on_opened(d, r);
	} else {
		r->bad = true;
	}
}

static const struct link_ops link_ops = { .message = on_message, .gone = on_gone };

static void start(struct timer *t)
{
	struct door *d = container_of(t, struct door, retry);
	struct msg_writer w;
	struct err e;
	int fd;

	if (d->ev->spawn(d->ctx, &fd, &e) < 0 || link_create(d->loop, fd, QUEUE_MAX, &link_ops, d, "door", &d->link, &e) < 0) {
		if (d->delay < 100)
			log_warn("door: %s", e.msg);
		again(d);
		return;
	}
	msg_writer_init(&w, mem, sizeof mem, D_HELLO, 1);
	msg_put_u32(&w, DOOR_VERSION);
	link_send(d->link, &w);
}

int door_open(struct loop *l, const struct door_events *ev, void *ctx, struct door **ret, struct err *e)
{
	struct door *d = calloc(1, sizeof *d);

	if (!d || map_create(&d->asked) < 0) {
		free(d);
		return err_set(e, ENOMEM, "open the door's link: no memory");
	}
	d->loop = l;
	d->ev = ev;
	d->ctx = ctx;
	d->next_id = 16;
	d->retry.fire = start;
	loop_arm(l, &d->retry, 0);
	*ret = d;
	return 0;
}

void door_close(struct door *d)
{
	if (!d)
		return;
	loop_disarm(d->loop, &d->retry);
	link_free(d->link);
	map_each(d->asked, free_id, d);
	map_free(d->asked);
	free(d);
}

bool door_up(const struct door *d)
{
	return d && d->up;
}

static uint32_t next(struct door *d)
{
	if (++d->next_id < 16)
		d->next_id = 16;
	return d->next_id;
}

int door_add(struct door *d, const char *id, uint8_t mode, const int *fds, unsigned nfds)
{
	struct msg_writer w;
	char *copy;
	int r;

	if (!door_up(d))
		return -EAGAIN;
	copy = strdup(id);
	if (!copy)
		return -ENOMEM;
	msg_writer_init(&w, mem, sizeof mem, D_OPEN, next(d));
	msg_put_str(&w, id);
	msg_put_u8(&w, mode);
	msg_put_u8(&w, (uint8_t)nfds);
	for (unsigned i = 0; i < nfds; i++)
		msg_put_fd(&w, fds[i]);
	r = map_put_u64(d->asked, d->next_id, copy);
	if (r == 0)
		r = link_send(d->link, &w);
	if (r < 0) {
		map_del_u64(d->asked, d->next_id);
		free(copy);
	}
	return r;
}

void door_drop(struct door *d, const char *id)
{
	struct msg_writer w;

	if (!door_up(d))
		return;
	msg_writer_init(&w, mem, sizeof mem, D_CLOSE, next(d));
	msg_put_str(&w, id);
	link_send(d->link, &w);
}
