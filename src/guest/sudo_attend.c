/* sudo_attend -- the child of PID 1 that serves one client of sudo: see sudo.h. It may block: it serves nobody else. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "core/fd.h"
#include "guest/env.h"
#include "guest/spawn.h"
#include "guest/sudo.h"

#define FIRST_MS 10000          /* a client that connects and says nothing doesn't keep its place */

struct attendant {
	struct guest *g;
	int sock, sigs;
	uid_t uid;              /* of the client */
	pid_t pid;              /* of the program */
};

struct run {
	uint32_t flags;
	const char *user, *cmd;
	const char *argv[SUDO_ARGS + 1], *envs[SUDO_ARGS + 1];
	size_t nargs, nenvs;
	uint16_t cols, rows;
	const void *termios;
	size_t ntermios;
	int fds[4];             /* 0, 1, 2 and the folder */
};

_Noreturn static void leave(struct attendant *a)
{
	if (a->pid)
		kill(-a->pid, SIGKILL);
	_exit(0);
}

static void tell(struct attendant *a, uint16_t type, const uint32_t *v, size_t n, int fd)
{
	struct msg_writer w;

	conn_begin(&w, type, 0);
	for (size_t i = 0; i < n; i++)
		msg_put_u32(&w, v[i]);
	if (fd >= 0)
		msg_put_fd(&w, fd);
	/* a client that went away just now takes its program with it too */
	if (helper_try(a->sock, &w) < 0)
		leave(a);
}

_Noreturn static void refuse(struct attendant *a, const struct err *e)
{
	struct msg_writer w;

	conn_begin(&w, S_FAILED, 0);
	msg_put_u32(&w, (uint32_t)e->code);
	msg_put_str(&w, e->msg);
	helper_send(a->sock, &w);
	leave(a);
}

/* ---- the start ---- */

static int decode(struct msg_reader *r, struct run *q)
{
	q->flags = msg_get_u32(r);
	q->user = msg_get_str(r, 63);
	q->cmd = msg_get_str(r, GUEST_PATH);
	q->nargs = msg_get_strv(r, q->argv, SUDO_ARGS, MSG_MAX);
	q->nenvs = msg_get_strv(r, q->envs, SUDO_ARGS, MSG_MAX);
	q->cols = msg_get_u16(r);
	q->rows = msg_get_u16(r);
	q->termios = msg_get_bytes(r, 256, &q->ntermios);
	for (int i = 0; i < 4; i++)
		q->fds[i] = msg_take_fd(r);
	return msg_reader_end(r, NULL);
}

/* Who is asking, and what for: programs look at these. */
static int who_asked(struct attendant *a, struct env *env, const struct run *q)
{
	char number[16];
	struct user asker;
	int rc = 0;

	snprintf(number, sizeof number, "%u", (unsigned)a->uid);
	if (users_find_uid(&a->g->users, a->uid, &asker, NULL) == 0)
		rc |= env_make(env, "SUDO_USER", asker.name);
	rc |= env_make(env, "SUDO_UID", number);
	rc |= env_make(env, "SUDO_GID", number);
	rc |= env_make(env, "SUDO_COMMAND", q->cmd);
	return rc;
}

static int environment(struct attendant *a, const struct run *q, const struct user *u, struct env *env, struct err *e)
{
	struct guest *g = a->g;

	if (env_init(env, q->nenvs + g->nenvs + ENV_BASE) < 0 || env_user(env, u, false) < 0 || who_asked(a, env, q) < 0)
		return err_set(e, ENOMEM, "no memory for the environment");
	for (const char *v = g->envs; g->envs && v < g->envs + g->envs_len; v += strlen(v) + 1)
		env_set(env, v);
	for (size_t i = 0; i < q->nenvs; i++)
		env_set(env, q->envs[i]);
	return 0;
}

/* A terminal like the client's, and this session's own. */
static int terminal(const struct run *q, const struct user *u, int *ret_master, int *ret_slave, struct err *e)
{
	struct termios t;

	if (spawn_pty(u, q->cols, q->rows, ret_master, ret_slave, e) < 0)
		return -e->code;
	if (q->ntermios == sizeof t) {
		memcpy(&t, q->termios, sizeof t);
		tcsetattr(*ret_slave, TCSANOW, &t);
	}
	if (ioctl(*ret_slave, TIOCSCTTY, 0) < 0)
		return err_sys(e, "take the terminal");
	return 0;
}

static int run(struct attendant *a, const struct run *q, int *ret_master, struct err *e)
{
	AUTO(env_done) struct env env = { 0 };
	AUTO_FD int slave = -1;
	bool pty = q->flags & SF_PTY;
	struct user u;
	struct spawn sp = {
		.cmd = q->cmd, .argv = q->argv, .cwd_fd = q->fds[3], .cwd_soft = true, .user = &u, .nofile = &a->g->nofile, .umask = 022,
		.tty = pty && q->flags & SF_TTY0, .group = true,
	};
	int rc = users_find(&a->g->users, q->user, &u, e);

	if (rc == 0)
		rc = environment(a, q, &u, &env, e);
	if (rc == 0 && pty)
		rc = terminal(q, &u, ret_master, &slave, e);
	if (rc < 0)
		return rc;
	if (q->flags & SF_HOME)
		sp.cwd = u.home;
	sp.envp = env.v;
	sp.path = env_get(&env, "PATH");
	if (!sp.path)
		sp.path = GUEST_PATH_DEFAULT;
	for (int i = 0; i < 3; i++)
		sp.fds[i] = pty && q->flags & (uint32_t)(SF_TTY0 << i) ? slave : q->fds[i];
	return spawn_program(&sp, &a->pid, e);
}

static void start(struct attendant *a, struct msg_reader *r)
{
	static struct run q;
	AUTO_FD int master = -1;
	struct err e;

	if (r->type != S_RUN || decode(r, &q) < 0 || !q.nargs || !q.cmd[0]) {
		err_set(&e, EPROTO, "malformed request");
		refuse(a, &e);
	}
	if (run(a, &q, &master, &e) < 0)
		refuse(a, &e);
	for (int i = 0; i < 4; i++)
		fd_drop(&q.fds[i]);
	tell(a, S_STARTED, NULL, 0, master);
}

/* ---- while it runs ---- */

/* Its changes of state, in order. */
static void on_child(struct attendant *a)
{
	struct signalfd_siginfo si;
	int status;
	pid_t pid;

	if (read(a->sigs, &si, sizeof si) < 0)
		return;
	while ((pid = waitpid(a->pid, &status, WNOHANG | WUNTRACED)) > 0) {
		if (WIFSTOPPED(status)) {
			tell(a, S_STOPPED, &(uint32_t){ (uint32_t)WSTOPSIG(status) }, 1, -1);
			continue;
		}
		a->pid = 0;
		if (WIFSIGNALED(status))
			tell(a, S_EXIT, (uint32_t[]){ 1, (uint32_t)WTERMSIG(status) }, 2, -1);
		else
			tell(a, S_EXIT, (uint32_t[]){ 0, (uint32_t)WEXITSTATUS(status) }, 2, -1);
		leave(a);
	}
}

static void on_message(struct attendant *a)
{
	static uint8_t mem[MSG_MAX];
	int fds[MSG_FDS];
	unsigned nfds;
	struct msg_reader r;
	struct err e;
	ssize_t n = msg_recv(a->sock, mem, sizeof mem, fds, &nfds);
	uint32_t signo;

	if (n == -EAGAIN)
		return;
	if (n <= 0 || msg_reader_init(&r, mem, (size_t)n, fds, nfds, &e) < 0)
		leave(a);
	if (!a->pid) {
		start(a, &r);
		return;
	}
	signo = msg_get_u32(&r);
	if (r.type != S_SIGNAL || msg_reader_end(&r, &e) < 0)
		leave(a);
	if (signo >= 1 && signo <= 64)
		kill(-a->pid, (int)signo);
}

void sudo_attend(struct guest *g, int sock, uid_t uid)
{
	struct attendant a = { .g = g, .sock = sock, .uid = uid };
	sigset_t chld;

	setsid();
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	a.sigs = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (a.sigs < 0)
		_exit(1);
	for (;;) {
		struct pollfd p[2] = { { .fd = sock, .events = POLLIN }, { .fd = a.sigs, .events = POLLIN } };
		int n = poll(p, 2, a.pid ? -1 : FIRST_MS);

		if (n == 0)
			leave(&a);
		if (p[1].revents)
			on_child(&a);
		if (p[0].revents)
			on_message(&a);
	}
}
