/* computer -- one computer's life, as the keeper sees it (states in keeper.h).
 *
 * Nothing here waits. A start ends in the sync source (finish), a life in SIGCHLD (an adopted one's in the end source, a pidfd), an
 * end when its control groups could be removed, which the timer tries again until the kernel has let go of them.
 * No pidfd is kept of a child: every computer's first process would copy and then close one for each computer there is. */
#include "keeper/keeper.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/proc.h"
#include "core/str.h"
#include "isolate/host.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define START_MAX_MS 20000
#define SWEEP_EVERY_MS 3
#define SWEEP_SLOW_MS 200
#define SWEEP_WARN_MS 10000
#define KILLERS_MAX 64      /* who wait for one end */

static void sweep(struct computer *c);

static void waiter_start(struct waiter *w, struct list *computer, struct peer *p, uint32_t id)
{
	w->peer = p;
	w->id = id;
	list_append(computer, &w->of_computer);
	list_append(&p->waits, &w->of_peer);
}

static void waiter_stop(struct waiter *w)
{
	list_unlink(&w->of_computer);
	list_unlink(&w->of_peer);
	w->peer = NULL;
}

struct computer *computer_find(struct keeper *k, const char *id)
{
	return map_get(k->by_id, id);
}

static void computer_free(struct computer *c)
{
	struct keeper *k = c->k;

	loop_remove(k->loop, &c->sync);
	loop_remove(k->loop, &c->end);
	loop_disarm(k->loop, &c->timer);
	map_del(k->by_id, c->id);
	if (map_get_u64(k->by_slot, c->slot) == c)
		map_del_u64(k->by_slot, c->slot);
	if (c->child)
		map_del_u64(k->by_pid, (uint64_t)c->box.pid);
	list_each(it, &c->killers) {
		struct waiter *w = container_of(it, struct waiter, of_computer);

		waiter_stop(w);
		free(w);
	}
	if (c->create.peer)
		waiter_stop(&c->create);
	fd_drop(&c->conn);
	box_drop(&c->box);
	free(c);
	keeper_check_quit(k);
}

/* Everything of it is gone: say so to whoever waits. */
static void tell_gone(struct computer *c)
{
	uint8_t mem[512];
	struct msg_writer w;

	if (c->create.peer) {
		if (!c->why.code)
			err_set(&c->why, ECANCELED, "computer '%s' was killed while it started", c->id);
		peer_err(c->create.peer, c->create.id, &c->why);
	}
	list_each(it, &c->killers)
		peer_ok(container_of(it, struct waiter, of_computer)->peer, container_of(it, struct waiter, of_computer)->id);
	if (c->killed || c->why.code)
		return;
	msg_writer_init(&w, mem, sizeof mem, K_EXITED, 0);
	msg_put_str(&w, c->id);
	msg_put_u32(&w, c->how);
	msg_put_u32(&w, c->code);
	msg_put_u64(&w, c->oom_kills);
	keeper_tell_all(c->k, &w);
}

static void sweep(struct computer *c)
{
	int64_t age = clock_mono_ms() - c->ending_since;

	if (groups_remove(isolate_groups(c->k->host), c->id, &c->box.groups) < 0) {
		if (age > SWEEP_WARN_MS && age < SWEEP_WARN_MS + SWEEP_SLOW_MS)
			log_warn("computer %s: its control groups stay busy", c->id);
		groups_kill(isolate_groups(c->k->host), c->id, &c->box.groups);
		loop_arm(c->k->loop, &c->timer, age < 1000 ? SWEEP_EVERY_MS : SWEEP_SLOW_MS);
		return;
	}
	record_remove(c->k, c->id);
	tell_gone(c);
	computer_free(c);
}

static void on_timer(struct timer *t)
{
	struct computer *c = container_of(t, struct computer, timer);

	if (c->state == ENDING) {
		sweep(c);
		return;
	}
	err_set(&c->why, ETIMEDOUT, "computer '%s' wasn't set up in %d s", c->id, START_MAX_MS / 1000);
	box_kill(&c->box);
}

/* PID 1 has ended, and so has every process of its namespace: the kernel waits for them before it says so. */
static void ended(struct computer *c, bool by_signal, int code)
{
	struct box_counts counts;

	c->how = by_signal;
	c->code = (uint32_t)code;
	groups_count(isolate_groups(c->k->host), c->id, &c->box.groups, &counts);
	c->oom_kills = counts.oom_kills;
	loop_remove(c->k->loop, &c->end);
	loop_remove(c->k->loop, &c->sync);
	fd_drop(&c->box.pidfd);
	if (c->child)
		map_del_u64(c->k->by_pid, (uint64_t)c->box.pid);
	c->child = false;
	c->box.pid = -1;        /* somebody else's from now on */
	if (c->state == STARTING && !c->why.code) {
		/* its last words are waiting on the socket */
		if (c->box.sync_fd < 0 || c->k->backend->finish(&c->box, &c->why) >= 0 || c->why.code == 0)
			err_set(&c->why, ECHILD, "computer '%s' ended while it was set up", c->id);
	}
	c->state = ENDING;
	c->ending_since = clock_mono_ms();
	sweep(c);
}

static void on_end(struct source *s, uint32_t events)
{
	(void)events;
	ended(container_of(s, struct computer, end), false, 0);     /* its status is its parent's to know */
}

void keeper_reap(struct keeper *k)
{
	for (;;) {
		siginfo_t si = { .si_pid = 0 };
		struct computer *c;

		/* whoever else we start is waited for on the spot */
		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG) < 0 || !si.si_pid)
			return;
		c = map_get_u64(k->by_pid, (uint64_t)si.si_pid);
		if (c)
			ended(c, si.si_code != CLD_EXITED, si.si_status);
	}
}

static void put_doors(struct computer *c, struct msg_writer *w)
{
	uint8_t n = 0;

	for (size_t i = 0; i < BOX_DOORS; i++)
		n += c->box.doors[i] >= 0;
	msg_put_u8(w, n);
	if (c->conn >= 0)
		msg_put_fd(w, c->conn);
	for (size_t i = 0; i < BOX_DOORS; i++)
		if (c->box.doors[i] >= 0)
			msg_put_fd(w, c->box.doors[i]);
}

static void answer_created(struct computer *c)
{
	struct peer *p = c->create.peer;
	uint8_t mem[256];
	struct msg_writer w;

	if (p) {
		msg_writer_init(&w, mem, sizeof mem, K_OK, c->create.id);
		msg_put_u32(&w, (uint32_t)c->box.pid);
		msg_put_u64(&w, c->box.start_time);
		msg_put_u32(&w, c->box.unenforced);
		put_doors(c, &w);
		peer_send(p, &w);
		waiter_stop(&c->create);
	}
	fd_drop(&c->conn);
	for (size_t i = 0; i < BOX_DOORS; i++)
		fd_drop(&c->box.doors[i]);
}

static void on_sync(struct source *s, uint32_t events)
{
	struct computer *c = container_of(s, struct computer, sync);
	struct err e;
	int r;

	(void)events;
	/* out of the loop before finish() closes it: a computer that is being cloned at the moment holds a copy, and then closing alone
	 * would leave it in the epoll set, pointing at freed memory later */
	loop_remove(c->k->loop, &c->sync);
	r = c->k->backend->finish(&c->box, &c->why);
	if (r == -EAGAIN) {
		c->why.code = 0;
		r = loop_add(c->k->loop, &c->sync, EPOLLRDHUP, &e);
		if (r == 0)
			return;
		c->why = e;
	}
	if (r < 0) {
		box_kill(&c->box);
		return;      /* its end answers, when nothing is left */
	}
	loop_disarm(c->k->loop, &c->timer);
	c->state = RUNNING;
	answer_created(c);
}

/* DIR/templates/NAME/current/rootfs; no link on the way may leave the folder, whoever made it. */
static int open_template(struct keeper *k, const char *name, struct err *e)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	char path[NAME_MAX_ + 32];
	int fd;

	snprintf(path, sizeof path, "%s/current/rootfs", name);
	fd = k->templates_fd < 0 ? -1 : (int)syscall(SYS_openat2, k->templates_fd, path, &how, sizeof how);
	if (fd < 0)
		return err_set(e, ENOENT, "no template '%s'", name);
	return fd;
}

/* After the clone: the child is busy for long enough, and a file system may take its time to make files. */
static int born(void *ctx, const struct box *b, int *ret_listen, struct err *e)
{
	struct computer *c = ctx;
	struct keeper *k = c->k;
	struct record record = { .pid = b->pid, .start_time = b->start_time, .slot = c->slot, .net = c->net };
	AUTO_FD int listening = -1;
	int r;

	if (k->run_fd < 0)
		return 0;
	str_copy(record.template_name, sizeof record.template_name, c->template_name);
	if ((r = sock_listen_at(k->run_fd, c->id, 0600, 64, &listening, e)) < 0)
		return r;
	if (k->daemon_uid != geteuid() && fchownat(k->run_fd, c->id, k->daemon_uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "give the guest's socket to the daemon");
	r = record_write(k, c->id, &record, e);
	*ret_listen = r < 0 ? -1 : fd_take(&listening);
	return r;
}

static struct computer *computer_new(struct keeper *k, const char *id, uint32_t slot, const char *template_name, uint8_t net)
{
	struct computer *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	*c = (struct computer){ .k = k, .slot = slot, .net = net, .conn = -1, .sync = { .fd = -1, .name = "start", .ready = on_sync },
		.end = { .fd = -1, .name = "computer", .ready = on_end }, .timer.fire = on_timer };
	box_init(&c->box);
	list_init(&c->killers);
	list_init(&c->create.of_computer);
	list_init(&c->create.of_peer);
	str_copy(c->id, sizeof c->id, id);
	str_copy(c->template_name, sizeof c->template_name, template_name);
	if (map_put(k->by_id, c->id, c) < 0 || (slot && map_put_u64(k->by_slot, slot, c) < 0)) {
		map_del(k->by_id, c->id);
		free(c);
		return NULL;
	}
	return c;
}

/* It's there, and we can't watch it: as the backend does when a start fails. Its first process has hardly begun. */
static void unstart(struct computer *c)
{
	box_kill(&c->box);
	waitpid(c->box.pid, NULL, 0);
	if (c->child)
		map_del_u64(c->k->by_pid, (uint64_t)c->box.pid);
	c->child = false;
	c->box.pid = -1;
	groups_remove(isolate_groups(c->k->host), c->id, &c->box.groups);
}

static int start(struct computer *c, const struct create_args *a, struct err *e)
{
	struct keeper *k = c->k;
	AUTO_FD int rootfs = -1, theirs = -1;
	int pair[2], r;
	struct box_spec s = { .id = c->id, .slot = c->slot, .net = a->net == KEEPER_NET_ALL, .limits = a->limits, .hostname = a->hostname,
		.mounts = a->mounts, .nmounts = a->nmounts, .die_with_us = k->once, .born = born, .ctx = c };

	if (!str_eq(a->template_name, "host") && (rootfs = open_template(k, a->template_name, e)) < 0)
		return rootfs;
	if ((r = sock_pair(pair, e)) < 0)
		return r;
	c->conn = pair[0];
	theirs = pair[1];
	s.rootfs_fd = rootfs;
	s.listens = k->run_fd >= 0;
	s.conn_fd = theirs;
	r = k->backend->start(k->host, &s, &c->box, e);
	if (r < 0)
		return err_wrap(e, "create computer '%s'", c->id);
	if (map_put_u64(k->by_pid, (uint64_t)c->box.pid, c) < 0) {
		unstart(c);
		return err_set(e, ENOMEM, "no memory");
	}
	c->child = true;
	/* its report is read with the end that follows it at once: to be woken twice would cost it time on a small machine */
	c->sync.fd = c->box.sync_fd;
	if ((r = loop_add(k->loop, &c->sync, EPOLLRDHUP, e)) < 0) {
		unstart(c);
		return r;
	}
	loop_arm(k->loop, &c->timer, START_MAX_MS);
	return 0;
}

int computer_create(struct keeper *k, const struct create_args *a, struct peer *p, uint32_t id, struct err *e)
{
	struct computer *c;
	uint32_t slot = a->slot;

	if (map_get(k->by_id, a->id))
		return err_set(e, EEXIST, "computer '%s' is here already", a->id);
	while (k->once && !slot) {
		str_random(&slot, sizeof slot);
		slot = slot % KEEPER_SLOTS + 1;
		if (map_get_u64(k->by_slot, slot))
			slot = 0;
	}
	if (map_get_u64(k->by_slot, slot))
		return err_set(e, EEXIST, "slot %u is taken", slot);
	c = computer_new(k, a->id, slot, a->template_name, a->net);
	if (!c)
		return err_set(e, ENOMEM, "no memory");
	if (start(c, a, e) < 0) {
		record_remove(k, c->id);
		computer_free(c);
		return -e->code;
	}
	waiter_start(&c->create, &c->create.of_computer, p, id);
	return 0;
}

/* Of those who are still there. */
static size_t killers_count(const struct computer *c)
{
	size_t n = 0;

	list_each(it, &c->killers)
		n++;
	return n;
}

int computer_kill(struct computer *c, struct peer *p, uint32_t id, struct err *e)
{
	struct waiter *w;
	int r = box_kill(&c->box);

	if (r < 0 && r != -ESRCH)
		return err_set(e, -r, "kill computer '%s': %s", c->id, strerror(-r));
	if (p && killers_count(c) >= KILLERS_MAX)
		return err_set(e, EBUSY, "computer '%s' is being killed", c->id);
	w = p ? calloc(1, sizeof *w) : NULL;
	if (p && !w)
		return err_set(e, ENOMEM, "no memory");
	c->killed = true;
	if (p)
		waiter_start(w, &c->killers, p, id);
	groups_kill(isolate_groups(c->k->host), c->id, &c->box.groups);
	return 0;
}

int computer_adopt(struct keeper *k, const char *id, struct err *e)
{
	struct record r;
	struct computer *c;
	uint64_t start_time;
	AUTO_FD int pidfd = -1;
	int code = record_read(k, id, &r);
	struct box_groups left;

	groups_find(isolate_groups(k->host), id, &left);
	if (code < 0)
		return err_set(e, -code, code == -ESTALE ? "of an earlier boot" : "its record can't be read");
	if (map_get_u64(k->by_slot, r.slot))
		return err_set(e, EEXIST, "slot %u is taken", r.slot);
	pidfd = proc_pidfd_open(r.pid);
	if (pidfd < 0 || proc_start_time(r.pid, &start_time) < 0 || start_time != r.start_time) {
		computer_sweep_orphan(k, id, r.slot);
		return err_set(e, ESRCH, "ended while no keeper ran");
	}
	c = computer_new(k, id, r.slot, r.template_name, r.net);
	if (!c)
		return err_set(e, ENOMEM, "no memory");
	c->state = RUNNING;
	c->box.pid = r.pid;
	c->box.start_time = start_time;
	c->box.groups = left;
	c->box.pidfd = c->end.fd = fd_take(&pidfd);
	if (loop_add(k->loop, &c->end, EPOLLIN, e) < 0) {
		fd_drop(&c->box.pidfd);    /* not ours to end */
		computer_free(c);
		return -e->code;
	}
	log_info("adopted computer %s, pid %d", id, (int)r.pid);
	return 0;
}

/* What is left of a computer whose PID 1 is gone, or groups that no record tells of: whatever lives in them has no keeper and no
 * name. Its id and its slot are taken until nothing is left. */
void computer_sweep_orphan(struct keeper *k, const char *id, uint32_t slot)
{
	struct computer *c = map_get(k->by_id, id) ? NULL : computer_new(k, id, slot, "host", 0);

	if (!c)
		return;
	if (!slot)
		log_warn("computer %s: groups without a record; swept", id);
	groups_find(isolate_groups(k->host), id, &c->box.groups);
	c->state = ENDING;
	c->killed = true;
	c->ending_since = clock_mono_ms();
	sweep(c);
}

/* A peer went away: its answers go nowhere, and a computer that nobody was told of is ended. */
void computer_drop_waiters(struct peer *p)
{
	struct err e;

	list_each(it, &p->waits) {
		struct waiter *w = container_of(it, struct waiter, of_peer);
		bool create = list_empty(&w->of_computer);

		if (create) {
			struct computer *c = container_of(w, struct computer, create);

			waiter_stop(w);
			computer_kill(c, NULL, 0, &e);
			continue;
		}
		waiter_stop(w);
		free(w);
	}
}
