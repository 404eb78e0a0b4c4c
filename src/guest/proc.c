/* proc -- the table of programs, and the requests about one that exists. */
#include "guest/proc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/str.h"

static struct proc *by_pid(struct guest *g, pid_t pid)
{
	struct proc *p = g->by_pid[(unsigned)pid % GUEST_BUCKETS];

	while (p && p->pid != pid)
		p = p->next_pid;
	return p;
}

struct proc *proc_find(struct guest *g, uint32_t pid, const char *tag)
{
	if (pid)
		return by_pid(g, (pid_t)pid);
	if (!tag[0])
		return NULL;
	/* the newest of that tag */
	for (struct list *it = g->procs.prev; it != &g->procs; it = it->prev) {
		struct proc *p = container_of(it, struct proc, node);

		if (str_eq(p->tag, tag))
			return p;
	}
	return NULL;
}

static size_t weight(const struct proc *p)
{
	return sizeof *p + p->bytes + ring_bytes(p->ring);
}

void proc_free(struct proc *p)
{
	struct guest *g = p->g;

	list_each(it, &p->streams)
		stream_free(container_of(it, struct stream, in_proc));
	output_close(p, &p->out);
	output_close(p, &p->err);
	output_close(p, &p->in);
	loop_disarm(g->loop, &p->timeout);
	loop_cancel(g->loop, &p->later);
	if (p->ended)
		g->kept -= weight(p);
	for (struct proc **at = &g->by_pid[(unsigned)p->pid % GUEST_BUCKETS]; *at; at = &(*at)->next_pid)
		if (*at == p) {
			*at = p->next_pid;
			break;
		}
	list_unlink(&p->node);
	g->nprocs--;
	ring_free(p->ring);
	buf_done(&p->input);
	free(p->cmd);
	free(p);
}

/* The oldest ended ones lose their output until the rest fits; how they ended is kept for much longer. One somebody still
 * reads stays. */
static void make_room(struct guest *g)
{
	list_each(it, &g->procs) {
		struct proc *p = container_of(it, struct proc, node);

		if (g->kept <= GUEST_KEPT)
			break;
		if (!p->ended || !list_empty(&p->streams) || !p->ring)
			continue;
		g->kept -= weight(p);
		ring_empty(p->ring);
		g->kept += weight(p);
	}
	list_each(it, &g->procs) {
		struct proc *p = container_of(it, struct proc, node);

		if (g->kept <= GUEST_KEPT && g->nprocs <= GUEST_PROCS)
			return;
		if (p->ended && list_empty(&p->streams))
			proc_free(p);
	}
}

void proc_added(struct guest *g, struct proc *p)
{
	struct proc *old = by_pid(g, p->pid);

	/* the kernel gave the number again: the old one can't be asked for any more */
	if (old && old->ended && list_empty(&old->streams))
		proc_free(old);
	list_append(&g->procs, &p->node);
	g->nprocs++;
	g->running++;
	p->next_pid = g->by_pid[(unsigned)p->pid % GUEST_BUCKETS];
	g->by_pid[(unsigned)p->pid % GUEST_BUCKETS] = p;
	make_room(g);
}

void proc_how(const struct proc *p, uint32_t *ret_how, uint32_t *ret_code)
{
	if (p->timed_out) {
		*ret_how = GUEST_TIMED_OUT;
		*ret_code = SIGKILL;
	} else if (WIFSIGNALED(p->status)) {
		*ret_how = GUEST_SIGNALED;
		*ret_code = (uint32_t)WTERMSIG(p->status);
	} else {
		*ret_how = GUEST_EXITED;
		*ret_code = (uint32_t)WEXITSTATUS(p->status);
	}
}

void proc_check_end(struct proc *p)
{
	struct guest *g = p->g;

	if (p->ended || !p->reaped || p->out.fd >= 0 || p->err.fd >= 0)
		return;
	p->ended = true;
	loop_disarm(g->loop, &p->timeout);
	output_close(p, &p->in);
	buf_done(&p->input);
	if (p->ring)
		ring_trim(p->ring);
	g->running--;
	g->kept += weight(p);
	output_pump(p);
	if (p->flags & GS_END_COMPUTER)
		life_end(g, false);
	make_room(g);
}

/* Once the leader is reaped its number may be somebody else's: then no process of that number may exist. */
void proc_kill_group(struct proc *p, int signo)
{
	if (p->reaped && (kill(p->pid, 0) == 0 || errno != ESRCH))
		return;
	if (kill(-p->pid, signo) < 0 && !p->reaped)
		kill(p->pid, signo);      /* before its setsid() there is no such group */
}

bool proc_reaped(struct guest *g, pid_t pid, int status)
{
	struct proc *p = by_pid(g, pid);

	if (!p || p->reaped)
		return false;
	p->reaped = true;
	p->status = status;
	if (WIFSIGNALED(status) || p->timed_out || (p->flags & GS_PTY))
		output_drain(p);
	proc_check_end(p);
	return true;
}

/* ---- requests ---- */

/* Reads pid and tag and finds the program; NULL: answered already (or the message is bad, and the link will say so). */
static struct proc *named(struct conn *c, uint32_t id, uint32_t pid, const char *tag)
{
	struct proc *p = proc_find(c->g, pid, tag);
	struct err e;

	if (p)
		return p;
	if (pid)
		err_set(&e, ESRCH, "process with pid %u not found", pid);
	else
		err_set(&e, ESRCH, "process with tag '%.100s' not found", tag);
	conn_err(c, id, &e);
	return NULL;
}

static void put_config(struct msg_writer *w, const struct proc *p)
{
	const char *a = p->args;

	msg_put_u32(w, (uint32_t)p->pid);
	msg_put_u32(w, p->flags);
	msg_put_str(w, p->cmd);
	msg_put_u32(w, (uint32_t)p->nargs);
	for (size_t i = 0; i < p->nargs; i++, a += strlen(a) + 1)
		msg_put_str(w, a);
	msg_put_str(w, p->cwd);
	msg_put_str(w, p->tag);
}

void proc_attach(struct conn *c, struct msg_reader *r)
{
	uint32_t pid = msg_get_u32(r);
	const char *tag = msg_get_str(r, 256);
	uint64_t from = msg_get_u64(r);
	uint32_t window = msg_get_u32(r);
	struct proc *p;
	struct stream *s;
	struct msg_writer w;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	p = named(c, r->id, pid, tag);
	if (!p)
		return;
	if (conn_id_used(c, r->id)) {
		err_set(&e, EEXIST, "id %u has a stream already", r->id);
		conn_err(c, r->id, &e);
		return;
	}
	/* 0 = all that is kept, and what is no longer kept isn't a gap then */
	if (from == 0)
		from = ring_tail(p->ring);
	else if (from == GUEST_FROM_FIRST)
		from = 0;
	s = stream_add(c, p, r->id, from, window);
	if (!s) {
		err_set(&e, ENOMEM, "no memory to attach");
		conn_err(c, r->id, &e);
		return;
	}
	conn_begin(&w, G_OK, r->id);
	put_config(&w, p);
	conn_send(c, &w);
	stream_pump(s);
}

/* What comes a second time, because the answer to the first was lost, is left out. */
static int input_skip(const struct proc *p, uint64_t at, const char **bytes, size_t *n, struct err *e)
{
	uint64_t skip;

	if (at == UINT64_MAX)
		return 0;
	if (at > p->input_taken)
		return err_set(e, ERANGE, "input of program %u begins at byte %llu, and it has %llu", (unsigned)p->pid, (unsigned long long)at,
			(unsigned long long)p->input_taken);
	skip = p->input_taken - at;
	if (skip > *n)
		skip = *n;
	*bytes += skip;
	*n -= (size_t)skip;
	return 0;
}

void proc_input(struct conn *c, struct msg_reader *r)
{
	uint32_t pid = msg_get_u32(r);
	const char *tag = msg_get_str(r, 256);
	uint8_t pty = msg_get_u8(r);
	size_t n;
	const char *bytes = msg_get_bytes(r, MSG_MAX, &n);
	uint64_t at = r->p < r->end ? msg_get_u64(r) : UINT64_MAX;
	struct proc *p;
	struct err e;
	int rc;

	if (msg_reader_end(r, &e) < 0)
		return;
	p = named(c, r->id, pid, tag);
	if (!p)
		return;
	if (pty != !!(p->flags & GS_PTY))
		rc = err_set(&e, EINVAL, "program %u has %s", (unsigned)p->pid, pty ? "no terminal" : "a terminal, no stdin pipe");
	else if (!(p->flags & (GS_PTY | GS_STDIN_PIPE)))
		rc = err_set(&e, EPIPE, "program %u was started without stdin", (unsigned)p->pid);
	else if ((rc = input_skip(p, at, &bytes, &n, &e)) < 0 || (at != UINT64_MAX && n == 0))
		;
	else if ((rc = input_add(p, bytes, n)) == -EAGAIN)
		err_set(&e, EAGAIN, "%zu bytes of input wait already", p->input.len);
	else if (rc < 0)
		err_set(&e, -rc, "stdin of program %u is closed", (unsigned)p->pid);
	if (rc < 0)
		conn_err(c, r->id, &e);
	else
		conn_ok(c, r->id);
}

void proc_input_close(struct conn *c, struct msg_reader *r)
{
	uint32_t pid = msg_get_u32(r);
	const char *tag = msg_get_str(r, 256);
	struct proc *p;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	p = named(c, r->id, pid, tag);
	if (!p)
		return;
	if (p->flags & GS_PTY) {
		err_set(&e, EINVAL, "program %u has a terminal: send it an end of file (Ctrl-D)", (unsigned)p->pid);
		conn_err(c, r->id, &e);
		return;
	}
	input_close(p);
	conn_ok(c, r->id);
}

void proc_signal(struct conn *c, struct msg_reader *r)
{
	uint32_t pid = msg_get_u32(r);
	const char *tag = msg_get_str(r, 256);
	uint32_t signo = msg_get_u32(r);
	uint8_t group = msg_get_u8(r);
	struct proc *p;
	struct err e;
	int rc = 0;

	if (msg_reader_end(r, &e) < 0)
		return;
	p = named(c, r->id, pid, tag);
	if (!p)
		return;
	if (signo < 1 || signo > 64)
		rc = err_set(&e, EINVAL, "no signal %u", signo);
	else if (p->ended || (p->reaped && !group))
		rc = err_set(&e, ESRCH, "process with pid %u not found", (unsigned)p->pid);
	else if (group)
		proc_kill_group(p, (int)signo);
	else if (kill(p->pid, (int)signo) < 0)
		rc = err_sys(&e, "signal program %u", (unsigned)p->pid);
	if (rc < 0)
		conn_err(c, r->id, &e);
	else
		conn_ok(c, r->id);
}

void proc_resize(struct conn *c, struct msg_reader *r)
{
	uint32_t pid = msg_get_u32(r);
	const char *tag = msg_get_str(r, 256);
	struct winsize ws = { .ws_col = msg_get_u16(r) };
	struct proc *p;
	struct err e;

	ws.ws_row = msg_get_u16(r);
	if (msg_reader_end(r, &e) < 0)
		return;
	p = named(c, r->id, pid, tag);
	if (!p)
		return;
	if (!(p->flags & GS_PTY)) {
		err_set(&e, EINVAL, "program %u has no terminal", (unsigned)p->pid);
		conn_err(c, r->id, &e);
		return;
	}
	if (p->out.fd >= 0)
		ioctl(p->out.fd, TIOCSWINSZ, &ws);
	conn_ok(c, r->id);
}

void proc_list(struct conn *c, struct msg_reader *r)
{
	uint8_t ended_too = msg_get_u8(r);
	uint32_t count = 0;
	struct msg_writer w;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	list_each(it, &c->g->procs) {
		struct proc *p = container_of(it, struct proc, node);
		uint32_t how = 0, code = 0;

		if (p->ended && !ended_too)
			continue;
		if (p->ended)
			proc_how(p, &how, &code);
		conn_begin(&w, G_PROC, r->id);
		put_config(&w, p);
		msg_put_u8(&w, p->ended);
		msg_put_u32(&w, how);
		msg_put_u32(&w, code);
		if (conn_send(c, &w) == -ENOBUFS) {
			err_set(&e, ENOBUFS, "the list is too long for this connection");
			conn_err(c, r->id, &e);
			return;
		}
		count++;
	}
	conn_begin(&w, G_OK, r->id);
	msg_put_u32(&w, count);
	conn_send(c, &w);
}
