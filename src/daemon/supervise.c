/* supervise -- starts keeper and bureaud, starts again whichever dies, starts doors for bureaud; ends all in order.
 *
 * Theory of operation. The listening sockets are made once, before any child, and stay open here: whoever connects while a child is
 * being replaced waits in the queue and is served by the next one. A child that dies soon after its start is started again with a
 * growing delay. To stop, bureaud goes first (it ends the computers through the keeper unless they are to go on), then the keeper.
 * If bureaud dies while it ends them, another one is started with that one task. Without a keeper nothing can be ended: when it
 * can't be started, that is said, the computers go on, and the next start takes them over. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/proc.h"
#include "core/str.h"
#include "daemon/control.h"
#include "daemon/serve.h"
#include "wire/sock.h"

#define STEADY_MS 5000               /* one that ran so long starts again at once */
#define DELAY_MAX 5000
#define STOP_MS 30000
#define DOORS_MAX 4
#define FIRST_TRIES 4                /* one that never got ready is given up after so many starts */

enum which { KEEPER, DAEMON, NCHILDREN };

struct child {
	struct super *u;
	const char *name;
	pid_t pid;
	struct source exit;          /* its pidfd */
	struct timer again, kill;
	int64_t started;
	int delay;
	unsigned starts;
	bool running;
};

struct door { struct super *u; struct source exit; bool used; };

struct super {
	struct serve *s;
	struct loop *loop;
	struct child child[NCHILDREN];
	struct door doors[DOORS_MAX];
	struct link *control;
	bool stopping, announced, end_asked, unended, failed;      /* unended: the last bureaud left computers */
	unsigned end_tries;
};

static const char *const names[] = { [KEEPER] = "bureau-keeper", [DAEMON] = "bureaud" };

static int start_child(struct super *u, enum which w, struct err *e);

static void add(const char **argv, size_t *n, const char *name, const char *value)
{
	if (!value)
		return;
	argv[(*n)++] = name;
	argv[(*n)++] = value;
}

/* ---- what is asked of us ---- */

static void on_door_exit(struct source *s, uint32_t events)
{
	struct door *d = container_of(s, struct door, exit);
	int status;

	if (proc_pidfd_reap(s->fd, &status) != 1)
		return;
	loop_remove(d->u->loop, s);
	fd_drop(&s->fd);
	d->used = false;
}

static void start_door(struct super *u, int fd)
{
	char path[4096], uid[16], gid[16];
	const char *argv[10 + 2 * SERVE_ALLOW] = { "bureau-door", "--fd", "3" };
	size_t n = 3;
	int fds[] = { -1, -1, 2, fd };
	struct proc_spec spec = { .path = path, .argv = argv, .fds = fds, .nfds = 4, .new_session = 1 };
	struct door *d = NULL;
	struct err e;

	for (int i = 0; i < DOORS_MAX && !d; i++)
		d = u->doors[i].used ? NULL : &u->doors[i];
	snprintf(uid, sizeof uid, "%u", (unsigned)u->s->uid + 1);
	snprintf(gid, sizeof gid, "%u", (unsigned)u->s->gid + 1);
	add(argv, &n, "--uid", u->s->root ? uid : NULL);
	add(argv, &n, "--gid", u->s->root ? gid : NULL);
	add(argv, &n, "--resolver", u->s->resolver);
	for (unsigned i = 0; i < u->s->nallow; i++)
		add(argv, &n, "--allow", u->s->allow[i]);
	if (!d) {
		log_error("too many doors are still ending");
		return;
	}
	if (proc_sibling("bureau-door", path, sizeof path, &e) < 0 || proc_spawn(&spec, NULL, &d->exit.fd, &e) < 0) {
		log_error("%s", e.msg);
		return;
	}
	d->used = true;
	d->u = u;
	d->exit.name = "door";
	d->exit.ready = on_door_exit;
	if (loop_add(u->loop, &d->exit, EPOLLIN, &e) < 0)
		log_error("%s", e.msg);
}

static void on_first_ready(struct super *u)
{
	struct err e;

	if (u->announced)
		return;
	u->announced = true;
	if (place_announce(u->s, &e) < 0)
		log_error("%s", e.msg);
	log_info("listening on %s, state in %s", u->s->url, u->s->state);
	if (u->s->ready_fd >= 0) {
		fd_write_all(u->s->ready_fd, u->s->url, strlen(u->s->url), &e);
		fd_drop(&u->s->ready_fd);
	}
}

static void on_control(void *ctx, struct msg_reader *r)
{
	struct super *u = ctx;
	int fd;

	switch (r->type) {
	case C_READY:
		on_first_ready(u);
		break;
	case C_DOOR:
		fd = msg_take_fd(r);
		if (fd >= 0 && !u->stopping)
			start_door(u, fd);
		fd_drop(&fd);
		break;
	default:
		r->bad = true;
	}
}

static void on_control_gone(void *ctx, const struct err *e)
{
	struct super *u = ctx;

	link_free(u->control);
	u->control = NULL;
}

static const struct link_ops control_ops = { .message = on_control, .gone = on_control_gone };

/* ---- stopping ---- */

static void on_kill(struct timer *t)
{
	struct child *c = container_of(t, struct child, kill);

	if (c->running) {
		log_warn("%s doesn't end: killed", c->name);
		proc_pidfd_signal(c->exit.fd, SIGKILL);
	}
}

static void stop_child(struct child *c)
{
	if (!c->running)
		return;
	proc_pidfd_signal(c->exit.fd, SIGTERM);
	c->kill.fire = on_kill;
	loop_arm(c->u->loop, &c->kill, STOP_MS);
}

/* bureaud first, then the keeper, then us. */
static void go_on_stopping(struct super *u)
{
	struct child *d = &u->child[DAEMON], *k = &u->child[KEEPER];
	struct msg_writer w;
	uint8_t mem[64];
	struct err e;

	loop_disarm(u->loop, &d->again);
	loop_disarm(u->loop, &k->again);
	if (d->running && !u->s->keep && u->control && !u->end_asked) {
		u->end_asked = true;
		msg_writer_init(&w, mem, sizeof mem, C_END_ALL, 0);
		if (link_send(u->control, &w) == 0) {
			d->kill.fire = on_kill;
			loop_arm(u->loop, &d->kill, STOP_MS);
			return;
		}
	}
	if (d->running) {
		if (!u->end_asked || u->failed)
			stop_child(d);
		return;
	}
	if (!u->s->keep && !u->end_asked && u->end_tries++ < 2 && k->running && start_child(u, DAEMON, &e) == 0)
		return;
	if (!u->s->keep && u->unended && !u->failed) {
		log_error("not all computers could be ended; the next start takes over what is left");
		u->failed = true;
	}
	if (k->running) {
		stop_child(k);
		return;
	}
	loop_quit(u->loop, u->failed);
}

static void no_keeper(struct super *u)
{
	if (!u->s->keep && !u->failed) {
		log_error("bureau-keeper can't be started: no computer can be ended; they go on, and the next start takes them over");
		u->failed = u->end_asked = true;
	}
	go_on_stopping(u);
}

static void on_signal(void *ctx, int signo)
{
	struct super *u = ctx;
	struct err e;

	if (u->stopping) {
		/* again: now */
		for (int i = 0; i < NCHILDREN; i++)
			if (u->child[i].running)
				proc_pidfd_signal(u->child[i].exit.fd, SIGKILL);
		return;
	}
	log_info("stopping%s", u->s->keep ? ", computers go on" : "");
	u->stopping = true;
	/* one that waits for its turn to be started again is needed now: computers and their groups end by it */
	u->child[KEEPER].starts = 0;
	if (!u->s->keep && !u->child[KEEPER].running && start_child(u, KEEPER, &e) < 0) {
		log_error("%s", e.msg);
		no_keeper(u);
		return;
	}
	go_on_stopping(u);
}

/* ---- children ---- */

static void on_again(struct timer *t)
{
	struct child *c = container_of(t, struct child, again);
	struct err e;

	if (start_child(c->u, (enum which)(c - c->u->child), &e) < 0) {
		log_error("%s", e.msg);
		if (c->u->stopping)
			no_keeper(c->u);
		else
			loop_arm(c->u->loop, t, DELAY_MAX);
	}
}

static void ended_in_stop(struct super *u, struct child *c, int status)
{
	struct child *d = &u->child[DAEMON];
	struct err e;

	if (c == d) {
		u->unended = status != 0;
		if (status != 0)
			u->end_asked = u->failed;    /* it didn't finish: another one does */
	}
	if (c == d || !d->running || u->failed) {
		go_on_stopping(u);
		return;
	}
	/* bureaud can't end computers without a keeper */
	if (!WIFSIGNALED(status) && ++c->starts < FIRST_TRIES) {
		c->again.fire = on_again;
		loop_arm(u->loop, &c->again, 50 << c->starts);
	} else if (!WIFSIGNALED(status) || start_child(u, KEEPER, &e) < 0) {
		no_keeper(u);
	}
}

static void on_exit_event(struct source *s, uint32_t events)
{
	struct child *c = container_of(s, struct child, exit);
	struct super *u = c->u;
	int status;

	if (proc_pidfd_reap(s->fd, &status) != 1)
		return;
	loop_remove(u->loop, s);
	fd_drop(&s->fd);
	loop_disarm(u->loop, &c->kill);
	c->running = false;
	if (u->stopping) {
		ended_in_stop(u, c, status);
		return;
	}
	log_error("%s %s %d: starting it again", c->name, WIFSIGNALED(status) ? "was ended by signal" : "ended with code",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	if (!u->announced && !WIFSIGNALED(status) && ++c->starts >= FIRST_TRIES) {
		log_error("%s can't be started: giving up", c->name);
		u->failed = u->stopping = u->end_asked = true;
		go_on_stopping(u);
		return;
	}
	if (clock_mono_ms() - c->started > STEADY_MS)
		c->delay = 0;
	c->again.fire = on_again;
	loop_arm(u->loop, &c->again, c->delay);
	c->delay = c->delay ? c->delay * 2 : 100;
	if (c->delay > DELAY_MAX)
		c->delay = DELAY_MAX;
}

static int spawn(struct super *u, enum which w, const char *const *argv, const int *fds, size_t nfds, struct err *e)
{
	struct child *c = &u->child[w];
	char path[4096];
	struct proc_spec spec = { .path = path, .argv = argv, .fds = fds, .nfds = nfds, .new_session = 1, .death_signal = w == KEEPER ? SIGKILL : 0 };
	const char *env[3] = { NULL, NULL, NULL };
	AUTO_FREE char *log_env = NULL;

	if (getenv("BUREAU_LOG") && asprintf(&log_env, "BUREAU_LOG=%s", getenv("BUREAU_LOG")) > 0)
		env[0] = log_env;
	spec.envp = env;
	if (proc_sibling(names[w], path, sizeof path, e) < 0 || proc_spawn(&spec, &c->pid, &c->exit.fd, e) < 0)
		return -e->code;
	c->u = u;
	c->name = names[w];
	c->running = true;
	c->started = clock_mono_ms();
	c->exit.name = names[w];
	c->exit.ready = on_exit_event;
	return loop_add(u->loop, &c->exit, EPOLLIN, e);
}

static int start_keeper(struct super *u, struct err *e)
{
	char uid[16];
	bool ids = u->s->ids_fd >= 0;
	const char *argv[] = { "bureau-keeper", "--serve", "--state", u->s->state, "--listen-fd", "3", "--daemon-uid", uid, ids ? "--ids-fd" : NULL, "4", NULL };
	int fds[] = { -1, -1, 2, u->s->keeper_fd, u->s->ids_fd };

	snprintf(uid, sizeof uid, "%u", (unsigned)u->s->uid);
	return spawn(u, KEEPER, argv, fds, ids ? 5 : 4, e);
}

static int start_daemon(struct super *u, struct err *e)
{
	struct serve *s = u->s;
	char uid[16], gid[16], pool[16], max[16];
	const char *argv[32] = { "bureaud", "--state", s->state, "--listen-fd", "3", "--control-fd", "4" };
	size_t n = 7;
	int pair[2], fds[] = { -1, -1, 2, s->http_fd, -1 }, r;

	snprintf(uid, sizeof uid, "%u", (unsigned)s->uid);
	snprintf(gid, sizeof gid, "%u", (unsigned)s->gid);
	snprintf(pool, sizeof pool, "%u", (unsigned)s->pool);
	snprintf(max, sizeof max, "%u", (unsigned)s->max);
	add(argv, &n, "--uid", s->root ? uid : NULL);
	add(argv, &n, "--gid", s->root ? gid : NULL);
	add(argv, &n, "--pool", pool);
	add(argv, &n, "--max", s->max ? max : NULL);
	add(argv, &n, "--tls-cert", s->cert);
	add(argv, &n, "--tls-key", s->key);
	add(argv, &n, "--domain", s->domain);
	if (s->no_key)
		argv[n++] = "--no-key";
	if (u->stopping)
		argv[n++] = "--end-all";
	if (sock_pair(pair, e) < 0)
		return -e->code;
	fds[4] = pair[1];
	r = spawn(u, DAEMON, argv, fds, 5, e);
	close(pair[1]);
	link_free(u->control);
	u->control = NULL;
	if (r < 0) {
		close(pair[0]);
		return r;
	}
	return link_create(u->loop, pair[0], 65536, &control_ops, u, "bureaud", &u->control, e);
}

static int start_child(struct super *u, enum which w, struct err *e)
{
	return w == KEEPER ? start_keeper(u, e) : start_daemon(u, e);
}

int supervise(struct serve *s, struct err *e)
{
	static const int signals[] = { SIGTERM, SIGINT };
	struct super u = { .s = s };
	int code;

	if (loop_create(&u.loop, e) < 0 || loop_signals(u.loop, signals, 2, on_signal, &u, e) < 0)
		return -1;
	for (int i = 0; i < NCHILDREN; i++)
		u.child[i].u = &u;
	if (start_child(&u, KEEPER, e) < 0)
		return -1;
	if (start_child(&u, DAEMON, e) < 0) {
		proc_pidfd_signal(u.child[KEEPER].exit.fd, SIGKILL);
		return -1;
	}
	code = loop_run(u.loop);
	link_free(u.control);
	for (int i = 0; i < DOORS_MAX; i++) {
		loop_remove(u.loop, &u.doors[i].exit);
		if (u.doors[i].used)
			fd_drop(&u.doors[i].exit.fd);
	}
	loop_free(u.loop);
	place_retract(s);
	return code;
}
