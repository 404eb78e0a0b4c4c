/* conn -- connections of our side, and the table of what they may ask. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/file.h"
#include "guest/guest.h"
#include "guest/net.h"
#include "guest/proc.h"
#include "guest/watch.h"

uint8_t guest_scratch[MSG_MAX];

static void stream_detach(struct conn *c, struct msg_reader *r);
static void stream_credit(struct conn *c, struct msg_reader *r);

static const struct rule {
	void (*run)(struct conn *c, struct msg_reader *r);
} rules[] = {
	[G_HELLO] = { life_hello },
	[G_CONFIGURE] = { life_configure },
	[G_DEADLINE] = { life_deadline },
	[G_START] = { proc_start },
	[G_ATTACH] = { proc_attach },
	[G_DETACH] = { stream_detach },
	[G_CREDIT] = { stream_credit },
	[G_INPUT] = { proc_input },
	[G_INPUT_CLOSE] = { proc_input_close },
	[G_SIGNAL] = { proc_signal },
	[G_RESIZE] = { proc_resize },
	[G_LIST] = { proc_list },
	[G_STAT] = { file_stat },
	[G_DIR] = { file_dir },
	[G_MKDIR] = { file_mkdir },
	[G_MOVE] = { file_move },
	[G_REMOVE] = { file_remove },
	[G_READ] = { file_read },
	[G_WRITE] = { file_write },
	[G_WATCH] = { watch_start },
	[G_DIAL] = { net_dial },
	[G_PORTS] = { net_ports },
	[G_METRICS] = { net_metrics },
	[G_ENVS] = { life_envs },
	[G_SHUTDOWN] = { life_shutdown },
};

void conn_begin(struct msg_writer *w, uint16_t type, uint32_t id)
{
	msg_writer_init(w, guest_scratch, sizeof guest_scratch, type, id);
}

/* A message that grew too long, or whose descriptor can't be passed on, is answered as a fault of its request, so that nobody waits
 * for ever. */
int conn_send(struct conn *c, struct msg_writer *w)
{
	int rc = link_send(c->link, w);

	if (rc == -EINVAL || (rc < 0 && w->nfds)) {
		struct err e;
		uint32_t id = (uint32_t)w->p[4] | (uint32_t)w->p[5] << 8 | (uint32_t)w->p[6] << 16 | (uint32_t)w->p[7] << 24;

		if (rc == -EINVAL)
			err_set(&e, EMSGSIZE, "the answer is too long for one message");
		else
			err_set(&e, -rc, "a descriptor can't be passed on: %s", strerror(-rc));
		conn_err(c, id, &e);
	}
	return rc;
}

void conn_ok(struct conn *c, uint32_t id)
{
	struct msg_writer w;

	conn_begin(&w, G_OK, id);
	conn_send(c, &w);
}

void conn_err(struct conn *c, uint32_t id, const struct err *e)
{
	uint8_t mem[512];
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, G_ERR, id);
	msg_put_u32(&w, (uint32_t)e->code);
	msg_put_str(&w, e->msg);
	link_send(c->link, &w);
}

bool conn_busy(const struct guest *g)
{
	list_each(it, &g->conns)
		if (link_full(container_of(it, struct conn, node)->link))
			return true;
	return false;
}

bool conn_id_used(const struct conn *c, uint32_t id)
{
	struct conn *m = (struct conn *)(uintptr_t)c;

	return stream_find(m, id) || watch_find(m, id);
}

static void conn_free(struct conn *c)
{
	struct guest *g = c->g;

	list_each(it, &c->streams) {
		struct stream *s = container_of(it, struct stream, in_conn);

		output_resume(s->p);
		stream_free(s);
	}
	watch_close_conn(c);
	net_close_conn(c);
	helper_forget_conn(g, c);
	link_free(c->link);
	list_unlink(&c->node);
	g->nconns--;
	if (g->listen.events && g->listen.events != EPOLLIN && !g->listen_again.pos)
		loop_mod(g->loop, &g->listen, EPOLLIN);
	free(c);
	if (g->ending)
		life_end(g, false);
}

/* ---- a connection ---- */

static void on_message(void *ctx, struct msg_reader *r)
{
	struct conn *c = ctx;
	struct err e;

	if (r->type < sizeof rules / sizeof *rules && rules[r->type].run) {
		rules[r->type].run(c, r);
	} else {
		r->p = r->end;          /* a newer asker's request: well-formed, but not known here */
		err_set(&e, ENOSYS, "no request of type %u", r->type);
		conn_err(c, r->id, &e);
	}
	/* one that asks without reading the answers waits until it has */
	if (link_full(c->link))
		link_pause(c->link, 1);
}

static void on_gone(void *ctx, const struct err *e)
{
	conn_free(ctx);
}

static void on_drained(void *ctx)
{
	struct conn *c = ctx;

	link_pause(c->link, 0);
	stream_pump_conn(c);
	watch_resume_conn(c);
	if (c->g->ending)
		life_end(c->g, false);
}

static const struct link_ops ops = { .message = on_message, .gone = on_gone, .drained = on_drained };

int conn_add(struct guest *g, int fd, struct err *e)
{
	struct conn *c = calloc(1, sizeof *c);
	int rc;

	if (!c) {
		close(fd);
		return err_set(e, ENOMEM, "no memory for a connection");
	}
	c->g = g;
	list_init(&c->streams);
	list_init(&c->watches);
	list_init(&c->dials);
	rc = link_create(g->loop, fd, GUEST_QUEUE, &ops, c, "conn", &c->link, e);
	if (rc < 0) {
		free(c);
		return rc;
	}
	list_append(&g->conns, &c->node);
	g->nconns++;
	return 0;
}

static void listen_again(struct timer *t)
{
	struct guest *g = container_of(t, struct guest, listen_again);

	if (g->nconns < GUEST_CONNS)
		loop_mod(g->loop, &g->listen, EPOLLIN);
	loop_mod(g->loop, &g->sudo_listen, EPOLLIN);
}

static void listen_ready(struct source *s, uint32_t events)
{
	struct guest *g = container_of(s, struct guest, listen);
	struct err e;
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		/* out of descriptors: the socket stays readable, so it must be silent for a while */
		if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
			loop_mod(g->loop, s, 0);
			loop_arm(g->loop, &g->listen_again, GUEST_ACCEPT_AGAIN_MS);
		}
		return;
	}
	conn_add(g, fd, &e);
	if (g->nconns >= GUEST_CONNS)
		loop_mod(g->loop, s, 0);
}

int conn_listen(struct guest *g, int fd, struct err *e)
{
	g->listen = (struct source){ .fd = fd, .name = "listen", .ready = listen_ready };
	g->listen_again.fire = listen_again;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return loop_add(g->loop, &g->listen, EPOLLIN, e);
}

/* ---- requests about streams ---- */

static void stream_detach(struct conn *c, struct msg_reader *r)
{
	uint32_t id = msg_get_u32(r);
	struct stream *s;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	s = stream_find(c, id);
	if (s) {
		output_resume(s->p);
		stream_free(s);
	}
	watch_stop(c, id);
	conn_ok(c, r->id);      /* one that ended by itself a moment ago is fine too */
}

static void stream_credit(struct conn *c, struct msg_reader *r)
{
	uint32_t id = msg_get_u32(r), more = msg_get_u32(r);
	struct stream *s;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	s = stream_find(c, id);
	if (!s)
		return;
	s->credit = more > UINT32_MAX - s->credit ? UINT32_MAX : s->credit + more;
	output_resume(s->p);
	stream_pump(s);
}
