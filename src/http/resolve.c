#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"
#include "http/client_impl.h"

/* Theory of operation. The C library's resolver knows all that a machine's owner may have set up, but it blocks. So a forked child
 * asks it and writes numeric addresses, a line each, to a pipe; its exit is the pipe's end. No thread, and a resolver
 * that hangs or crashes takes nothing with it. The child touches no lock that another thread could hold: we have none. */

static void add(struct http_addrs *a, const char *host, uint16_t port)
{
	if (a->n < HTTP_ADDRS && snprintf(a->addr[a->n], HTTP_ADDR_LEN, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port) < HTTP_ADDR_LEN)
		a->n++;
}

int http_resolve_now(const char *host, uint16_t port, struct http_addrs *ret)
{
	unsigned char raw[16];

	ret->n = 0;
	if (inet_pton(AF_INET, host, raw) == 1 || inet_pton(AF_INET6, host, raw) == 1) {
		add(ret, host, port);
	} else if (str_eq(host, "localhost") || str_ends(host, ".localhost")) {
		add(ret, "127.0.0.1", port);
		add(ret, "::1", port);
	}
	return ret->n ? 0 : -ENOENT;
}

static void child(const char *host, int out)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG }, *all = NULL;
	struct http_addrs a = { 0 };
	char text[INET6_ADDRSTRLEN];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getaddrinfo(host, NULL, &hints, &all) == 0)
		for (struct addrinfo *i = all; i; i = i->ai_next)
			if (getnameinfo(i->ai_addr, i->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 && !strchr(text, '%'))
				add(&a, text, 0);
	for (unsigned i = 0; i < a.n; i++) {
		size_t n = strlen(a.addr[i]) - 2;       /* without ":0" */

		a.addr[i][n] = '\n';
		if (write(out, a.addr[i], n + 1) < 0)
			_exit(1);
	}
	_exit(0);
}

static void finish(struct http_resolve *q)
{
	struct http_addrs a = { 0 };

	http_resolve_stop(q);
	for (char *p = q->text, *nl; (nl = memchr(p, '\n', (size_t)(q->text + q->len - p))); p = nl + 1) {
		char *host = p;

		*nl = 0;
		if (*host == '[') {
			host++;
			host[strcspn(host, "]")] = 0;
		}
		add(&a, host, q->port);
	}
	q->done(q, &a);
}

static void on_ready(struct source *s, uint32_t events)
{
	struct http_resolve *q = container_of(s, struct http_resolve, src);
	ssize_t n = read(s->fd, q->text + q->len, sizeof q->text - q->len);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		q->len += (size_t)n;
	if (n <= 0 || q->len == sizeof q->text)
		finish(q);
}

int http_resolve_start(struct http_resolve *q, struct loop *l, const char *host, uint16_t port, struct err *e)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_sys(e, "look up '%.100s'", host);
	q->pid = fork();
	if (q->pid == 0)
		child(host, fd[1]);
	close(fd[1]);
	if (q->pid < 0) {
		close(fd[0]);
		return err_sys(e, "look up '%.100s'", host);
	}
	q->loop = l;
	q->port = port;
	q->len = 0;
	q->src = (struct source){ .fd = fd[0], .name = "resolver", .ready = on_ready };
	int r = loop_add(l, &q->src, EPOLLIN, e);

	if (r < 0)
		http_resolve_stop(q);
	return r;
}

void http_resolve_stop(struct http_resolve *q)
{
	if (q->pid <= 0)
		return;
	loop_remove(q->loop, &q->src);
	close(q->src.fd);
	kill(q->pid, SIGKILL);          /* ours and not yet reaped: the number is still its own */
	while (waitpid(q->pid, NULL, 0) < 0 && errno == EINTR)
		;
	q->pid = 0;
}
