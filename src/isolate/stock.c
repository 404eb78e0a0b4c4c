/* stock -- empty network namespaces, made while nobody waits.
 *
 * To make one takes the kernel as long as we take for all the rest of a computer's root. It is the same for every computer of
 * its kind, so a root's keeper keeps a few of each kind that was asked for: loopback up, low ports free for all; of the kind
 * with a network also the rules and the door's sockets. A computer's first process is cloned while the keeper is in one of
 * them, and thus belongs to it. When none is left the first process makes its own (ns_child.c).
 *
 * Such a namespace is the keeper's, not the computer's user namespace's: nothing inside has a right over it, whatever its
 * capabilities. (It needs none: root in a computer has no NET_ADMIN anyway.) */
#include "isolate/ns_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

static int make(struct stock_net *n, bool redirect, struct err *e)
{
	bool ipv6;
	int r = net_up(e);

	if (r < 0)
		return r;
	r = sys_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (r < 0)
		return err_set(e, -r, "free the low ports: %s", strerror(-r));
	if (redirect && ((r = net_redirect(&ipv6, e)) < 0 || (r = net_doors(ipv6, n->doors, e)) < 0))
		return r;
	n->ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return n->ns < 0 ? err_sys(e, "open the new network namespace") : 0;
}

static void drop(struct stock_net *n)
{
	fd_drop(&n->ns);
	for (size_t i = 0; i < BOX_DOORS; i++)
		fd_drop(&n->doors[i]);
}

int stock_add(struct isolate *h, struct err *e)
{
	for (int kind = 0; kind < 2; kind++) {
		struct stock_net n = { -1, { -1, -1, -1, -1 } };
		int r;

		if (!h->stock[kind].wanted || h->stock[kind].n == STOCK_NETS)
			continue;
		r = unshare(CLONE_NEWNET) < 0 ? err_sys(e, "make a network namespace") : make(&n, kind, e);
		if (r == 0)
			h->stock[kind].nets[h->stock[kind].n++] = n;
		else
			drop(&n);
		h->stock[kind].wanted = r == 0;      /* when it failed: once it's asked for again */
		if (r < 0)
			stock_leave(h, NULL);
		else
			r = stock_leave(h, e);
		return r < 0 ? r : 1;
	}
	return 0;
}

bool stock_take(struct isolate *h, bool redirect, struct stock_net *ret)
{
	struct stock_kind *k = &h->stock[redirect];

	if (h->kit_net < 0)
		return false;
	k->wanted = true;
	if (!k->n)
		return false;
	*ret = k->nets[--k->n];
	if (setns(ret->ns, CLONE_NEWNET) == 0)
		return true;
	drop(ret);
	return false;
}

int stock_leave(const struct isolate *h, struct err *e)
{
	return setns(h->own_net, CLONE_NEWNET) < 0 ? err_sys(e, "go back to our network namespace") : 0;
}

void stock_free(struct isolate *h)
{
	for (int kind = 0; kind < 2; kind++)
		while (h->stock[kind].n)
			drop(&h->stock[kind].nets[--h->stock[kind].n]);
}
