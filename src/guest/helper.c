/* helper -- forked children for what could block us: walking trees, copying, filling pipes from devices.
 *
 * A helper is this program after fork(), without our descriptors: it does its one job and leaves by _exit.
 * It answers on the connection's own socket (a message is one record, so records of both never mix), waiting when the
 * peer is slow. A helper that dies without an answer (killed, out of memory) is answered for here: its exit status
 * is 0 only after it has answered. It gives up our rights first, and like us it can't be traced from inside. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fd.h"
#include "guest/guest.h"
#include "guest/spawn.h"

struct helper {
	struct list node;
	struct conn *c;             /* NULL once it's gone */
	pid_t pid;
	uint32_t id;
	bool silent;
};

/* A pipe or terminal of somebody else that stayed open here would never come to its end for its reader. */
static void close_others(const struct helper_job *j, int sock)
{
	int keep[3], n = 0;

	keep[n++] = sock;
	for (int i = 0; i < 2; i++)
		if (j->keep[i] > 0)
			keep[n++] = j->keep[i];
	for (int i = 1; i < n; i++)
		for (int k = i; k > 0 && keep[k] < keep[k - 1]; k--) {
			int t = keep[k];

			keep[k] = keep[k - 1];
			keep[k - 1] = t;
		}
	fd_close_from(3, keep, (size_t)n);
}

_Noreturn static void child(const struct helper_job *j, int sock, uint32_t id)
{
	struct err e;
	int rc = j->user ? spawn_become(j->user) : 0;

	close_others(j, sock);
	if (rc < 0) {
		err_set(&e, EACCES, "become user '%s'", j->user->name);
		helper_err(sock, id, &e);
	} else {
		j->run(sock, id, j->ctx);
	}
	_exit(0);
}

int helper_start(struct conn *c, uint32_t id, const struct helper_job *j, struct err *e)
{
	struct guest *g = c->g;
	struct helper *h;

	if (g->nhelpers >= GUEST_HELPERS)
		return err_set(e, EAGAIN, "%u file operations run already", g->nhelpers);
	h = calloc(1, sizeof *h);
	if (!h)
		return err_set(e, ENOMEM, "no memory for a file operation");
	h->pid = fork();
	if (h->pid < 0) {
		int rc = errno == EAGAIN ? err_set(e, EAGAIN, "the limit of processes is reached") : err_sys(e, "start a file operation");

		free(h);
		return rc;
	}
	if (h->pid == 0)
		child(j, link_fd(c->link), id);
	h->c = c;
	h->id = id;
	h->silent = j->silent;
	list_append(&g->helpers, &h->node);
	g->nhelpers++;
	return 0;
}

bool helper_reaped(struct guest *g, pid_t pid, int status)
{
	list_each(it, &g->helpers) {
		struct helper *h = container_of(it, struct helper, node);
		struct err e;

		if (h->pid != pid)
			continue;
		if (status != 0 && h->c && !h->silent) {
			/* by the kernel, mostly: it's the first to go when memory is short (tree.c) */
			if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
				err_set(&e, EDQUOT, "the file operation was killed: it needed more memory than there is in the sandbox");
			else
				err_set(&e, EIO, "the file operation broke");
			conn_err(h->c, h->id, &e);
		}
		list_unlink(&h->node);
		free(h);
		g->nhelpers--;
		return true;
	}
	return false;
}

void helper_forget_conn(struct guest *g, struct conn *c)
{
	list_each(it, &g->helpers) {
		struct helper *h = container_of(it, struct helper, node);

		if (h->c == c)
			h->c = NULL;
	}
}

int helper_try(int sock, struct msg_writer *w)
{
	int rc;

	while ((rc = msg_send(sock, w)) == -EAGAIN) {
		struct pollfd p = { .fd = sock, .events = POLLOUT };

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return -errno;
	}
	return rc;
}

int helper_send(int sock, struct msg_writer *w)
{
	int rc = helper_try(sock, w);

	if (rc == -EINVAL)
		return rc;
	if (rc < 0)
		_exit(1);           /* nobody listens any more; if somebody does, PID 1 answers */
	return 0;
}

void helper_ok(int sock, uint32_t id)
{
	struct msg_writer w;

	conn_begin(&w, G_OK, id);
	helper_send(sock, &w);
}

void helper_err(int sock, uint32_t id, const struct err *e)
{
	struct msg_writer w;

	conn_begin(&w, G_ERR, id);
	msg_put_u32(&w, (uint32_t)e->code);
	msg_put_str(&w, e->msg);
	helper_send(sock, &w);
}
