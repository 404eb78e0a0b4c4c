/* life -- how the guest starts, what it's told about itself, and how the computer ends.
 *
 * The computer ends with this process: the kernel then kills all that is in its pid namespace. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/buf.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/proc.h"
#include "core/str.h"
#include "guest/guest.h"
#include "guest/proc.h"
#include "guest/sudo.h"

#define KIND_END_MS 2000        /* after SIGTERM to all */
#define LAST_CHANCE_MS 1000     /* after a pause the deadline is past before anybody could move it */

/* 0-2 must be taken, else a pipe of ours could get such a number and be lost in a child's dup2. */
static int stdio(struct guest *g, struct err *e)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd < 0)
		return err_sys(e, "open /dev/null");
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	g->null_fd = fd;
	return 0;
}

static void limits(struct guest *g)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &g->nofile) < 0)
		return;
	r = g->nofile;
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

/* Who starts us leaves none ignored (ns_child.c), and exec took all handlers. SIGCHLD ignored would lose every exit: that one we see to. */
static void signals(void)
{
	sigset_t all;

	signal(SIGCHLD, SIG_DFL);
	sigfillset(&all);       /* none has a handler; a blocked SIGPIPE is only an EPIPE */
	sigprocmask(SIG_SETMASK, &all, NULL);
}

static void deadline_fired(struct timer *t);
static void end_fired(struct timer *t);
static void end_check(struct job *j);

int life_start(struct guest *g, int listen_fd, int conn_fd, struct err *e)
{
	memset(g, 0, sizeof *g);
	list_init(&g->conns);
	list_init(&g->procs);
	list_init(&g->helpers);
	list_init(&g->sudos);
	/* what the keeper called it, in /etc too */
	if (gethostname(g->hostname, sizeof g->hostname) < 0)
		g->hostname[0] = '\0';
	g->deadline_timer.fire = deadline_fired;
	g->end_timer.fire = end_fired;
	g->end_job.run = end_check;
	g->started_ms = clock_mono_ms();
	g->sudo_listen.fd = -1;
	prctl(PR_SET_DUMPABLE, 0);
	signals();
	umask(022);
	if (stdio(g, e) < 0)
		return -e->code;
	limits(g);
	users_init(&g->users);
	if (loop_create(&g->loop, e) < 0 || reap_start(g, e) < 0)
		return -e->code;
	if (listen_fd >= 0 && conn_listen(g, listen_fd, e) < 0)
		return -e->code;
	sudo_listen(g);         /* without it there is no sudo, and nothing else is lost */
	return conn_fd >= 0 ? conn_add(g, conn_fd, e) : 0;
}

/* ---- the end ---- */

/* Somebody still reads what an ended program said, or hasn't got its G_EXIT. */
static bool unread(const struct guest *g)
{
	list_each(it, &g->conns) {
		struct conn *c = container_of(it, struct conn, node);

		list_each(at, &c->streams)
			if (container_of(at, struct stream, in_conn)->p->ended)
				return true;
	}
	return false;
}

static void end_check(struct job *j)
{
	struct guest *g = container_of(j, struct guest, end_job);

	if (!g->waiting && !conn_busy(g) && !unread(g))
		loop_quit(g->loop, 0);
}

/* While ending this is called again whenever something changed. Leaves once there is nothing to wait for: a reader of a
 * computer that ends with its program may take as long as it likes, since it can close its connection; one that was
 * told to end (kindly) waits KIND_END_MS at most. */
void life_end(struct guest *g, bool kindly)
{
	if (kindly && !g->end_timer.pos) {
		g->waiting = true;
		kill(-1, SIGTERM);
		kill(-1, SIGCONT);
		loop_arm(g->loop, &g->end_timer, KIND_END_MS);
		loop_defer(g->loop, &g->reap_more);     /* perhaps there is nobody */
	}
	g->ending = true;
	loop_defer(g->loop, &g->end_job);
}

static void end_fired(struct timer *t)
{
	loop_quit(container_of(t, struct guest, end_timer)->loop, 0);
}

static void deadline_arm(struct guest *g)
{
	int64_t left;

	g->last_chance = false;
	loop_disarm(g->loop, &g->deadline_timer);
	if (!g->deadline)
		return;
	left = g->deadline > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)g->deadline + GUEST_GRACE_MS - clock_boot_ms();
	loop_arm(g->loop, &g->deadline_timer, left > 0 ? left : 0);
}

static void deadline_fired(struct timer *t)
{
	struct guest *g = container_of(t, struct guest, deadline_timer);

	if (clock_boot_ms() < (int64_t)g->deadline + GUEST_GRACE_MS) {
		deadline_arm(g);        /* it was moved, or is further away than a timer reaches */
	} else if (!g->last_chance) {
		g->last_chance = true;
		loop_arm(g->loop, t, LAST_CHANCE_MS);
	} else {
		life_end(g, true);
	}
}

/* ---- requests ---- */

void life_hello(struct conn *c, struct msg_reader *r)
{
	struct guest *g = c->g;
	uint32_t version = msg_get_u32(r);
	struct msg_writer w;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	if (version != GUEST_VERSION) {
		err_set(&e, EPROTO, "the guest speaks version %d, not %u", GUEST_VERSION, version);
		conn_err(c, r->id, &e);
		return;
	}
	conn_begin(&w, G_OK, r->id);
	msg_put_u32(&w, GUEST_VERSION);
	msg_put_str(&w, g->id);
	msg_put_u32(&w, g->running);
	msg_put_u64(&w, (uint64_t)(clock_mono_ms() - g->started_ms));
	conn_send(c, &w);
}

/* The computer's own /etc: links there are its users' business, but nothing is written through one. */
static void write_etc(const char *path, const char *text)
{
	char tmp[64];
	int fd;

	snprintf(tmp, sizeof tmp, "%s.bureau", path);
	unlink(tmp);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	fchmod(fd, 0644);
	if (fd_write_all(fd, text, strlen(text), NULL) < 0 || rename(tmp, path) < 0)
		unlink(tmp);
	close(fd);
}

/* Only letters, digits, '-' and '.': it goes into files that others parse. */
static bool good_hostname(const char *h)
{
	return h[strspn(h, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.")] == '\0' && h[0] != '-' && h[0] != '.';
}

static void set_hostname(struct guest *g, const char *name)
{
	char text[256];

	if (!name[0] || str_eq(g->hostname, name))
		return;
	str_copy(g->hostname, sizeof g->hostname, name);
	if (sethostname(name, strlen(name)) < 0)
		errno = 0;              /* keeper set it at start where this namespace may not */
	snprintf(text, sizeof text, "%s\n", name);
	write_etc("/etc/hostname", text);
	snprintf(text, sizeof text, "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost ip6-localhost ip6-loopback\n", name);
	write_etc("/etc/hosts", text);
}

static int set_envs(struct guest *g, const char **v, size_t n)
{
	size_t len = 0, at = 0;
	char *block;

	for (size_t i = 0; i < n; i++)
		len += strlen(v[i]) + 1;
	if (len > GUEST_ENV_BYTES)
		return -E2BIG;
	block = malloc(len + 1);
	if (!block)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t k = strlen(v[i]) + 1;

		memcpy(block + at, v[i], k);
		at += k;
	}
	free(g->envs);
	g->envs = block;
	g->nenvs = n;
	g->envs_len = len;
	return 0;
}

void life_configure(struct conn *c, struct msg_reader *r)
{
	static const char *envs[GUEST_ARGS + 1];
	struct guest *g = c->g;
	const char *id = msg_get_str(r, sizeof g->id - 1), *hostname = msg_get_str(r, sizeof g->hostname - 1);
	size_t n = msg_get_strv(r, envs, GUEST_ARGS, GUEST_ENV_BYTES);
	uint64_t deadline = msg_get_u64(r);
	struct err e;
	int rc = 0;

	if (msg_reader_end(r, &e) < 0)
		return;
	if (!good_hostname(hostname))
		rc = err_set(&e, EINVAL, "hostname '%s' has characters that no hostname has", hostname);
	else if ((rc = set_envs(g, envs, n)) < 0)
		err_set(&e, -rc, "the environment is longer than %u bytes", GUEST_ENV_BYTES);
	if (rc < 0) {
		conn_err(c, r->id, &e);
		return;
	}
	str_copy(g->id, sizeof g->id, id);
	set_hostname(g, hostname);
	g->deadline = deadline;
	deadline_arm(g);
	conn_ok(c, r->id);
}

void life_deadline(struct conn *c, struct msg_reader *r)
{
	uint64_t deadline = msg_get_u64(r);
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	c->g->deadline = deadline;
	deadline_arm(c->g);
	conn_ok(c, r->id);
}

void life_envs(struct conn *c, struct msg_reader *r)
{
	struct guest *g = c->g;
	struct msg_writer w;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	conn_begin(&w, G_OK, r->id);
	msg_put_u32(&w, (uint32_t)g->nenvs);
	for (const char *v = g->envs; g->envs && v < g->envs + g->envs_len; v += strlen(v) + 1)
		msg_put_str(&w, v);
	conn_send(c, &w);
}

void life_shutdown(struct conn *c, struct msg_reader *r)
{
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	conn_ok(c, r->id);
	life_end(c->g, true);
}
