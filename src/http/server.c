#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"
#include "http/server_impl.h"

enum { ACCEPT_BATCH = 64, BACKLOG = 1024, ACCEPT_REST_MS = 100 };

struct listener {
	struct list link;
	struct source src;
	struct timer rest;              /* out of descriptors: try again when it fires */
	struct http_server *srv;
	SSL_CTX *tls;
	void *tag;
	char unlink_path[108];
};

static void on_timer(struct timer *t)
{
	struct http_server *s = container_of(t, struct http_server, timer);
	int64_t now = loop_now(s->loop), next = -1;

	for (int k = 0; k < WAIT_KINDS; k++) {
		while (!list_empty(&s->wait[k])) {
			struct http_req *c = container_of(s->wait[k].next, struct http_req, link);
			int64_t left = c->since + s->limit[k] - now;

			if (left > 0) {
				if (next < 0 || left < next)
					next = left;
				break;
			}
			list_unlink(&c->link);          /* in any case: this loop must end */
			list_append(&s->quiet, &c->link);
			http_conn_fail(c, HTTP_GONE);
			http_conn_run(c);
		}
	}
	if (next >= 0)
		loop_arm(s->loop, &s->timer, next);
}

int http_server_create(struct loop *l, const struct http_server_opts *o, struct http_server **ret, struct err *e)
{
	struct http_server *s = calloc(1, sizeof *s);

	if (!s)
		return err_set(e, ENOMEM, "make an HTTP server: no memory");
	s->loop = l;
	s->o = *o;
	if (!s->o.max_conns)
		s->o.max_conns = 4096;
	if (!s->o.max_pending)
		s->o.max_pending = 1 << 20;
	s->limit[WAIT_IDLE] = o->idle_ms ? o->idle_ms : 75000;
	s->limit[WAIT_HEAD] = o->head_ms ? o->head_ms : 30000;
	s->limit[WAIT_STALL] = o->stall_ms ? o->stall_ms : 300000;
	s->limit[WAIT_LINGER] = LINGER_MS;
	s->timer.fire = on_timer;
	s->pipe = (struct http_pipe)HTTP_PIPE_NONE;
	list_init(&s->listeners);
	list_init(&s->quiet);
	list_init(&s->dead);
	for (int k = 0; k < WAIT_KINDS; k++)
		list_init(&s->wait[k]);
	*ret = s;
	return 0;
}

static void listener_free(struct listener *li)
{
	list_unlink(&li->link);
	loop_remove(li->srv->loop, &li->src);
	loop_disarm(li->srv->loop, &li->rest);
	close(li->src.fd);
	if (*li->unlink_path)
		unlink(li->unlink_path);
	SSL_CTX_free(li->tls);
	free(li);
}

void http_server_drain(struct http_server *s)
{
	s->draining = true;
	list_each(it, &s->listeners)
		listener_free(container_of(it, struct listener, link));
	list_each(it, &s->wait[WAIT_IDLE]) {
		struct http_req *c = container_of(it, struct http_req, link);

		http_conn_fail(c, HTTP_GONE);
	}
}

void http_server_free(struct http_server *s)
{
	if (!s)
		return;
	list_each(it, &s->listeners)
		listener_free(container_of(it, struct listener, link));
	struct list *all[WAIT_KINDS + 2] = { &s->quiet, &s->dead };

	for (int k = 0; k < WAIT_KINDS; k++)
		all[k + 2] = &s->wait[k];
	for (int k = 0; k < WAIT_KINDS + 2; k++)
		while (!list_empty(all[k]))
			http_conn_free(container_of(all[k]->next, struct http_req, link));
	loop_disarm(s->loop, &s->timer);
	http_pipe_close(&s->pipe);
	while (s->npool)
		free(s->pool[--s->npool]);
	free(s);
}

unsigned http_server_conns(const struct http_server *s)
{
	return s->nconns;
}

/* ---- accepting ---- */

static int serve(struct http_server *s, int fd, SSL_CTX *tls, const struct sockaddr *sa, socklen_t len, void *tag, struct err *e)
{
	struct http_stream *st;
	int r = http_stream_wrap(s->loop, fd, &st, e);

	if (r == 0 && tls && (r = http_stream_tls_server(st, tls, e)) < 0)
		http_stream_free(st);
	if (r == 0)
		r = http_conn_new(s, st, sa, len, tag, e);
	return r;
}

static void on_accept(struct source *src, uint32_t events)
{
	struct listener *li = container_of(src, struct listener, src);
	struct http_server *s = li->srv;

	for (int i = 0; i < ACCEPT_BATCH; i++) {
		struct sockaddr_storage sa;
		socklen_t len = sizeof sa;
		int fd = accept4(src->fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0 && errno != EAGAIN) {        /* EMFILE, ENFILE, ENOMEM: the level would spin */
			loop_mod(s->loop, src, 0);
			loop_arm(s->loop, &li->rest, ACCEPT_REST_MS);
		}
		if (fd < 0)
			return;
		if (s->nconns >= s->o.max_conns)
			close(fd);
		else
			serve(s, fd, li->tls, (struct sockaddr *)&sa, len, li->tag, NULL);
		if (s->draining)        /* a handler said so: li is gone */
			return;
	}
}

static void on_rest(struct timer *t)
{
	struct listener *li = container_of(t, struct listener, rest);

	loop_mod(li->srv->loop, &li->src, EPOLLIN);
}

static int bind_unix(const char *path, struct listener *li, struct err *e)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	AUTO_FD int fd = -1;
	struct stat st;

	if (str_copy(sa.sun_path, sizeof sa.sun_path, path) < 0)
		return err_set(e, ENAMETOOLONG, "listen on '%.150s': a socket path that is too long", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, "listen on '%.150s'", path);
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
		if (connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0 || errno == EAGAIN)
			return err_set(e, EADDRINUSE, "listen on '%.150s': another program does", path);
		unlink(path);
		close(fd_take(&fd));
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	}
	mode_t old = umask(0177);
	int r = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&sa, sizeof sa);

	if (r < 0)
		err_sys(e, "listen on '%.150s'", path);
	umask(old);
	if (r < 0)
		return e ? -e->code : -EADDRINUSE;
	str_copy(li->unlink_path, sizeof li->unlink_path, path);
	li->src.fd = fd_take(&fd);
	return 0;
}

static int bind_tcp(const char *address, struct listener *li, struct err *e)
{
	struct sockaddr_storage sa;
	socklen_t len;
	int one = 1;

	if (http_sockaddr(address, &sa, &len) < 0)
		return err_set(e, EINVAL, "listen on '%.150s': not an address", address);
	AUTO_FD int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_sys(e, "listen on '%.150s'", address);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (sa.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&sa, len) < 0)
		return err_sys(e, "listen on '%.150s'", address);
	li->src.fd = fd_take(&fd);
	return 0;
}

static void bound_name(int fd, const struct listener *li, char *out, size_t size)
{
	union { struct sockaddr_storage ss; struct sockaddr_in v4; struct sockaddr_in6 v6; } sa = { 0 };
	socklen_t len = sizeof sa;
	char text[64] = "";

	getsockname(fd, (struct sockaddr *)&sa, &len);
	if (sa.ss.ss_family == AF_INET)
		snprintf(out, size, "%s:%u", inet_ntop(AF_INET, &sa.v4.sin_addr, text, sizeof text), ntohs(sa.v4.sin_port));
	else if (sa.ss.ss_family == AF_INET6)
		snprintf(out, size, "[%s]:%u", inet_ntop(AF_INET6, &sa.v6.sin6_addr, text, sizeof text), ntohs(sa.v6.sin6_port));
	else
		snprintf(out, size, "unix:%s", li->unlink_path);
}

int http_server_listen(struct http_server *s, const struct http_listen *o, char *ret_address, size_t size, struct err *e)
{
	struct listener *li = calloc(1, sizeof *li);
	int r = 0;

	if (!li)
		return err_set(e, ENOMEM, "listen: no memory");
	li->srv = s;
	li->src = (struct source){ .fd = o->address ? -1 : o->fd, .name = "http listener", .ready = on_accept };
	li->rest.fire = on_rest;
	li->tag = o->tag;
	list_init(&li->link);
	if (o->address)
		r = str_starts(o->address, "unix:") ? bind_unix(o->address + 5, li, e) : bind_tcp(o->address, li, e);
	else
		r = fd_nonblock(o->fd, 1);
	if (r == 0) {
		http_stream_tune(li->src.fd);
		r = listen(li->src.fd, BACKLOG) < 0 ? err_sys(e, "listen on '%.150s'", o->address ? o->address : "a socket") : 0;
	}
	if (r == 0)
		r = loop_add(s->loop, &li->src, EPOLLIN, e);
	if (r < 0) {
		if (li->src.fd >= 0)
			close(li->src.fd);
		free(li);
		return r;
	}
	if (o->tls && SSL_CTX_up_ref(o->tls))
		li->tls = o->tls;
	list_append(&s->listeners, &li->link);
	if (ret_address)
		bound_name(li->src.fd, li, ret_address, size);
	return 0;
}

int http_server_serve(struct http_server *s, int fd, SSL_CTX *tls, void *tag, struct err *e)
{
	struct sockaddr_storage sa = { .ss_family = AF_UNIX };
	socklen_t len = sizeof sa;
	int r = http_stream_tune(fd);

	if (r == 0)
		r = fd_nonblock(fd, 1);
	if (r < 0) {
		close(fd);
		return err_set(e, -r, "serve a descriptor: %s", strerror(-r));
	}
	if (getpeername(fd, (struct sockaddr *)&sa, &len) < 0 || sa.ss_family == AF_UNIX)
		len = sizeof(sa_family_t);
	return serve(s, fd, tls, (struct sockaddr *)&sa, len, tag, e);
}

int http_server_serve_stream(struct http_server *s, struct http_stream *st, void *tag, struct err *e)
{
	struct sockaddr_storage sa = { .ss_family = AF_UNIX };
	socklen_t len = sizeof sa;

	if (getpeername(http_stream_fd(st), (struct sockaddr *)&sa, &len) < 0 || sa.ss_family == AF_UNIX)
		len = sizeof(sa_family_t);
	return http_conn_new(s, st, (struct sockaddr *)&sa, len, tag, e);
}
