/* start -- G_START: from a request to a running program with its pipes, terminal and environment. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"
#include "guest/env.h"
#include "guest/path.h"
#include "guest/proc.h"
#include "guest/spawn.h"

#define KEPT_ARGS 8192          /* bytes of arguments kept for lists; the rest is only the program's */

struct request {
	uint32_t flags;
	const char *cmd, *cwd, *user, *tag;
	const char *args[GUEST_ARGS + 2];      /* args[0] = cmd */
	const char *envs[GUEST_ARGS + 1];
	size_t nargs, nenvs;
	uint16_t cols, rows;
	uint32_t window;
	uint64_t timeout;
};

/* What both sides of the start own until it has worked. */
struct pipes { int ours[3], theirs[3]; };

static void pipes_drop(struct pipes *p)
{
	for (int i = 0; i < 3; i++) {
		fd_drop(&p->ours[i]);
		fd_drop(&p->theirs[i]);
	}
}

static int decode(struct msg_reader *r, struct request *q, struct pipes *io)
{
	q->flags = msg_get_u32(r);
	q->cmd = msg_get_str(r, GUEST_PATH);
	q->args[0] = q->cmd;
	q->nargs = msg_get_strv(r, q->args + 1, GUEST_ARGS, MSG_MAX);
	q->nenvs = msg_get_strv(r, q->envs, GUEST_ARGS, MSG_MAX);
	q->cwd = msg_get_str(r, GUEST_PATH);
	q->user = msg_get_str(r, 63);
	q->tag = msg_get_str(r, 256);
	q->cols = msg_get_u16(r);
	q->rows = msg_get_u16(r);
	q->window = msg_get_u32(r);
	q->timeout = msg_get_u64(r);
	if ((q->flags & GS_FDS) && !r->bad)
		for (int i = 0; i < 3; i++)
			io->theirs[i] = msg_take_fd(r);
	return msg_reader_end(r, NULL);
}

static int pipe_to(int *ret_ours, int *ret_theirs, bool we_read, struct err *e)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC) < 0)
		return err_sys(e, "make a pipe");
	*ret_ours = fd[we_read ? 0 : 1];
	*ret_theirs = fd[we_read ? 1 : 0];
	fcntl(*ret_ours, F_SETFL, O_NONBLOCK);
	return 0;
}

static int open_pipes(const struct request *q, const struct user *u, struct pipes *p, struct err *e)
{
	int rc;

	if (q->flags & GS_FDS)          /* they came along */
		return 0;
	if (q->flags & GS_PTY)
		return spawn_pty(u, q->cols, q->rows, &p->ours[1], &p->theirs[0], e);
	rc = q->flags & GS_STDIN_PIPE ? pipe_to(&p->ours[0], &p->theirs[0], false, e) : 0;
	if (rc == 0)
		rc = pipe_to(&p->ours[1], &p->theirs[1], true, e);
	return rc < 0 ? rc : pipe_to(&p->ours[2], &p->theirs[2], true, e);
}

static int run(struct guest *g, const struct request *q, const struct user *u, struct pipes *io, const char *cwd, pid_t *ret, struct err *e)
{
	AUTO(env_done) struct env env = { 0 };
	struct spawn s = {
		.cmd = q->cmd, .argv = q->args, .cwd = cwd, .cwd_soft = q->cwd[0] == '\0', .user = u, .nofile = &g->nofile, .umask = 022,
		.tty = q->flags & GS_PTY,
	};
	int rc = env_init(&env, q->nenvs + g->nenvs + ENV_BASE);

	if (rc == 0)
		rc = env_user(&env, u, q->flags & GS_PTY);
	if (rc < 0)
		return err_set(e, ENOMEM, "no memory for the environment");
	for (const char *v = g->envs; g->envs && v < g->envs + g->envs_len; v += strlen(v) + 1)
		env_set(&env, v);
	for (size_t i = 0; i < q->nenvs; i++)
		env_set(&env, q->envs[i]);
	s.envp = env.v;
	s.path = env_get(&env, "PATH");
	if (!s.path)
		s.path = GUEST_PATH_DEFAULT;
	for (int i = 0; i < 3; i++)
		s.fds[i] = s.tty ? io->theirs[0] : io->theirs[i] >= 0 ? io->theirs[i] : g->null_fd;
	return spawn_program(&s, ret, e);
}

/* cmd, cwd, tag and as many args as we keep, in one block. */
static int remember(struct proc *p, const struct request *q, const char *cwd)
{
	const char *const texts[] = { q->cmd, cwd, q->tag };
	char **const to[] = { &p->cmd, &p->cwd, &p->tag };
	size_t bytes = 0, args = 0, n = 0;
	char *at;

	for (size_t i = 0; i < 3; i++)
		bytes += strlen(texts[i]) + 1;
	for (; n < q->nargs && args + strlen(q->args[n + 1]) + 1 <= KEPT_ARGS; n++)
		args += strlen(q->args[n + 1]) + 1;
	at = malloc(bytes + args);
	if (!at)
		return -ENOMEM;
	p->bytes = bytes + args;
	for (size_t i = 0; i < 3; i++) {
		size_t len = strlen(texts[i]) + 1;

		*to[i] = memcpy(at, texts[i], len);
		at += len;
	}
	p->args = at;
	p->nargs = n;
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(q->args[i + 1]) + 1;

		memcpy(at, q->args[i + 1], len);
		at += len;
	}
	return 0;
}

static void timeout_fired(struct timer *t)
{
	struct proc *p = container_of(t, struct proc, timeout);

	p->timed_out = true;
	proc_kill_group(p, SIGKILL);
	if (p->reaped)
		output_drain(p);
	proc_check_end(p);
}

static struct proc *make(struct guest *g, const struct request *q, const char *cwd)
{
	struct proc *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->g = g;
	p->flags = q->flags;
	p->out = (struct source){ .fd = -1, .name = "out", .ready = output_ready };
	p->err = (struct source){ .fd = -1, .name = "err", .ready = output_ready };
	p->in = (struct source){ .fd = -1, .name = "in", .ready = input_ready };
	p->timeout.fire = timeout_fired;
	list_init(&p->streams);
	list_init(&p->node);
	buf_init(&p->input, GUEST_STDIN_MAX);
	if (remember(p, q, cwd) < 0) {
		free(p);
		return NULL;
	}
	return p;
}

static int check(struct conn *c, uint32_t id, const struct request *q, struct err *e)
{
	const uint32_t known = GS_STDIN_PIPE | GS_PTY | GS_FDS | GS_END_COMPUTER;

	if (q->flags & ~known || ((q->flags & GS_FDS) && (q->flags & (GS_PTY | GS_STDIN_PIPE))))
		return err_set(e, EINVAL, "flags 0x%x make no sense", q->flags);
	if (!q->cmd[0])
		return err_set(e, EINVAL, "no program named");
	if (c->g->running >= GUEST_PROCS)
		return err_set(e, EAGAIN, "%u programs run already", c->g->running);
	if (c->g->ending)
		return err_set(e, ESHUTDOWN, "this computer is ending");
	if (conn_id_used(c, id))
		return err_set(e, EEXIST, "id %u has a stream already", id);
	return 0;
}

/* Everything that can fail for want of memory is made before the program starts: it can't be taken back. */
static int start(struct conn *c, uint32_t id, const struct request *q, struct pipes *io, struct proc **ret, struct err *e)
{
	char cwd[GUEST_PATH + 1];
	struct user u;
	struct stream *s;
	struct proc *p;
	int rc = check(c, id, q, e);

	if (rc == 0)
		rc = users_find(&c->g->users, q->user, &u, e);
	if (rc == 0)
		rc = path_resolve(q->cwd, u.home, cwd, sizeof cwd, e);
	if (rc == 0)
		rc = open_pipes(q, &u, io, e);
	if (rc < 0)
		return rc;
	p = make(c->g, q, cwd);
	s = p ? stream_add(c, p, id, 0, q->window) : NULL;
	if (!s)
		rc = err_set(e, ENOMEM, "no memory for another program");
	else
		rc = run(c->g, q, &u, io, cwd, &p->pid, e);
	if (rc < 0) {
		if (s)
			stream_free(s);
		if (p)
			free(p->cmd);
		free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

void proc_start(struct conn *c, struct msg_reader *r)
{
	static struct request q;        /* 64 KiB of pointers: not on the stack; only pages that are used cost memory */
	AUTO(pipes_drop) struct pipes io = { { -1, -1, -1 }, { -1, -1, -1 } };
	struct msg_writer w;
	struct proc *p = NULL;
	struct err e;

	if (decode(r, &q, &io) < 0)
		return;                 /* the link ends this peer */
	if (start(c, r->id, &q, &io, &p, &e) < 0) {
		conn_err(c, r->id, &e);
		return;
	}
	p->in.fd = fd_take(&io.ours[0]);
	p->out.fd = fd_take(&io.ours[1]);
	p->err.fd = fd_take(&io.ours[2]);
	proc_added(c->g, p);
	if (q.timeout)
		loop_arm(c->g->loop, &p->timeout, q.timeout > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)q.timeout);
	conn_begin(&w, G_OK, r->id);
	msg_put_u32(&w, (uint32_t)p->pid);
	conn_send(c, &w);
	if (output_watch(p, &e) < 0) {  /* out of kernel memory: it runs, but unseen. Better it doesn't */
		proc_kill_group(p, SIGKILL);
		output_close(p, &p->out);
		output_close(p, &p->err);
		output_close(p, &p->in);
	}
}
