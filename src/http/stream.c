#include "http/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"
#include "http/stream_impl.h"
#include "http/url.h"

/* Theory of operation. Readiness is what epoll says, plus two things that it can't see: bytes put back by unread, and
 * bytes that OpenSSL has read from the socket but not handed out (`more`, set by a read that got something and cleared by one that
 * got -EAGAIN). As long as the owner wants to read and one of these holds, a deferred job reports HTTP_READABLE again.
 *
 * What's registered: IN and OUT as wanted, level-triggered, with RDHUP until it has been reported once (a level that can't
 * be consumed would spin). When nothing is wanted, RDHUP edge-triggered: each hang-up is reported once.
 *
 * Freeing within the stream's own callback is allowed: `busy` keeps the struct until the callback has returned. */

struct http_stream {
	struct source src;
	struct loop *loop;
	SSL *ssl;
	void (*event)(void *ctx, unsigned what);
	void *ctx;
	struct job job;
	char *unread;
	size_t unread_off, unread_len;
	unsigned want;
	bool busy, dead, shut_seen, handshaking, handshake_out;
	bool more;              /* TLS: OpenSSL may hold decrypted or undecrypted bytes */
	bool always_more;       /* TLS over bytes that were unread: only -EAGAIN tells that none are left */
	bool cross_in, cross_out;       /* TLS: a write waits for input; a read waits for output */
	bool reset;             /* http_stream_abort() */
	bool shared;            /* a computer may hold the same open file */
	bool broken;            /* TLS: a fatal error, no shutdown any more */
	int sys_error;          /* TLS: what the socket itself failed with */
	char tls_error[160];
};

enum { TLS_RECORD = 16384 };
static char scratch[TLS_RECORD];        /* never kept over a return to the loop */

static bool has_hidden(const struct http_stream *s)
{
	return !s->handshaking && (s->unread_len || (s->ssl && s->more));
}

static void update(struct http_stream *s)
{
	uint32_t ev = 0;

	if (s->dead)
		return;
	if (s->handshaking) {
		ev = s->handshake_out ? EPOLLOUT : EPOLLIN;
	} else {
		if ((s->want & HTTP_READABLE) || s->cross_in)
			ev |= EPOLLIN;
		if ((s->want & HTTP_WRITABLE) || s->cross_out)
			ev |= EPOLLOUT;
		if (has_hidden(s) && (s->want & HTTP_READABLE))
			loop_defer(s->loop, &s->job);
		if (!ev)
			ev = EPOLLRDHUP | EPOLLET;
		else if (!s->shut_seen)
			ev |= EPOLLRDHUP;
	}
	loop_mod(s->loop, &s->src, ev);
}

static void report(struct http_stream *s, unsigned what)
{
	s->busy = true;
	if (what && s->event)
		s->event(s->ctx, what);
	s->busy = false;
	if (s->dead)
		free(s);
	else
		update(s);
}

static void job_run(struct job *j)
{
	struct http_stream *s = container_of(j, struct http_stream, job);

	report(s, has_hidden(s) && (s->want & HTTP_READABLE) ? HTTP_READABLE : 0);
}

/* OpenSSL's word for a failure, kept for the owner; returns an errno */
static int tls_fail(struct http_stream *s, int kind)
{
	unsigned long code = ERR_peek_error();
	long verify = SSL_get_verify_result(s->ssl);
	int sys = errno;

	s->broken = true;
	if (kind == SSL_ERROR_SYSCALL && !code && sys) {
		s->sys_error = sys;
		return sys;
	}
	if (verify != X509_V_OK)
		snprintf(s->tls_error, sizeof s->tls_error, "certificate: %s", X509_verify_cert_error_string(verify));
	else if (code)
		str_copy(s->tls_error, sizeof s->tls_error, ERR_reason_error_string(code) ? ERR_reason_error_string(code) : "TLS failed");
	else
		str_copy(s->tls_error, sizeof s->tls_error, "the peer closed the connection without ending TLS");
	ERR_clear_error();
	return kind == SSL_ERROR_SSL && code && ERR_GET_REASON(code) != SSL_R_UNEXPECTED_EOF_WHILE_READING ? EPROTO : ECONNRESET;
}

/* One step of the handshake. Returns what to report. */
static unsigned handshake(struct http_stream *s)
{
	ERR_clear_error();
	errno = 0;
	int r = SSL_do_handshake(s->ssl), kind = r == 1 ? 0 : SSL_get_error(s->ssl, r);

	if (r == 1) {
		s->handshaking = false;
		s->more = true;
		return s->want & (HTTP_READABLE | HTTP_WRITABLE);
	}
	s->handshake_out = kind == SSL_ERROR_WANT_WRITE;
	if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
		return 0;
	tls_fail(s, kind);
	s->handshaking = false;
	s->want = 0;
	return HTTP_HANGUP;
}

static void ready(struct source *src, uint32_t ev)
{
	struct http_stream *s = container_of(src, struct http_stream, src);
	unsigned what = 0;

	if (s->handshaking) {
		report(s, handshake(s));
		return;
	}
	if (ev & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		what |= s->want & HTTP_READABLE;
	if (ev & (EPOLLOUT | EPOLLERR | EPOLLHUP))
		what |= s->want & HTTP_WRITABLE;
	if (s->cross_in && (ev & EPOLLIN))
		what |= s->want & HTTP_WRITABLE;
	if (s->cross_out && (ev & EPOLLOUT))
		what |= s->want & HTTP_READABLE;
	if (ev & EPOLLRDHUP && !s->shut_seen) {
		what |= HTTP_PEER_SHUT;
		s->shut_seen = true;
	}
	if (ev & (EPOLLERR | EPOLLHUP))
		what |= HTTP_HANGUP;
	report(s, what);
}

int http_stream_wrap(struct loop *l, int fd, struct http_stream **ret, struct err *e)
{
	struct http_stream *s = calloc(1, sizeof *s);

	if (!s) {
		close(fd);
		return err_set(e, ENOMEM, "keep a connection: no memory");
	}
	s->loop = l;
	s->src = (struct source){ .fd = fd, .name = "http stream", .ready = ready };
	s->job.run = job_run;
	if (loop_add(l, &s->src, EPOLLIN | EPOLLRDHUP, e) < 0) {
		close(fd);
		free(s);
		return e ? -e->code : -EINVAL;
	}
	s->want = HTTP_READABLE;
	*ret = s;
	return 0;
}

int http_stream_tune(int fd)
{
	static const struct { int level, name, value; } opts[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 }, { SOL_SOCKET, SO_KEEPALIVE, 1 }, { IPPROTO_TCP, TCP_KEEPIDLE, 60 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 15 }, { IPPROTO_TCP, TCP_KEEPCNT, 4 },
	};
	static bool quiet;
	int domain = 0;
	socklen_t len = sizeof domain;

	if (!quiet) {           /* sendfile, splice and OpenSSL have no MSG_NOSIGNAL */
		signal(SIGPIPE, SIG_IGN);
		quiet = true;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return -errno;
	for (size_t i = 0; i < sizeof opts / sizeof *opts && domain != AF_UNIX; i++)
		setsockopt(fd, opts[i].level, opts[i].name, &opts[i].value, sizeof(int));
	return 0;
}

int http_stream_open(struct loop *l, int fd, struct http_stream **ret, struct err *e)
{
	int r = http_stream_tune(fd);

	if (r == 0)
		r = fd_nonblock(fd, 1);
	if (r < 0) {
		close(fd);
		return err_set(e, -r, "use a descriptor as a connection: %s", strerror(-r));
	}
	r = http_stream_wrap(l, fd, ret, e);
	if (r == 0)
		http_stream_want(*ret, 0);
	return r;
}

void http_stream_free(struct http_stream *s)
{
	static const struct linger now = { .l_onoff = 1 }, never = { .l_onoff = 0 };

	if (!s)
		return;
	loop_remove(s->loop, &s->src);
	loop_cancel(s->loop, &s->job);
	if (s->ssl) {
		if (!s->broken && !s->handshaking) {
			ERR_clear_error();
			SSL_shutdown(s->ssl);
		}
		SSL_free(s->ssl);
		ERR_clear_error();
	}
	if (s->shared)          /* or the close waits for what the computer doesn't read */
		setsockopt(s->src.fd, SOL_SOCKET, SO_LINGER, s->reset ? &now : &never, sizeof now);
	close(s->src.fd);
	free(s->unread);
	s->unread = NULL;
	s->dead = true;
	if (!s->busy)
		free(s);
}

void http_stream_abort(struct http_stream *s)
{
	struct linger now = { .l_onoff = 1 };

	if (!s)
		return;
	setsockopt(s->src.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	s->broken = s->reset = true;
	http_stream_free(s);
}

void http_stream_on(struct http_stream *s, void (*event)(void *ctx, unsigned what), void *ctx)
{
	s->event = event;
	s->ctx = ctx;
}

void http_stream_want(struct http_stream *s, unsigned what)
{
	s->want = what;
	if (!s->busy)           /* else report() does it, once */
		update(s);
}

static ssize_t take_unread(struct http_stream *s, void *p, size_t n)
{
	if (n > s->unread_len)
		n = s->unread_len;
	memcpy(p, s->unread + s->unread_off, n);
	s->unread_off += n;
	s->unread_len -= n;
	if (!s->unread_len) {
		free(s->unread);
		s->unread = NULL;
		s->unread_off = 0;
	}
	return (ssize_t)n;
}

static ssize_t tls_result(struct http_stream *s, int r, bool reading)
{
	int kind = SSL_get_error(s->ssl, r);

	switch (kind) {
	case SSL_ERROR_WANT_READ:
		if (reading)
			s->more = false;
		else
			s->cross_in = true;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		if (reading)
			s->cross_out = true;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		s->more = false;
		return reading ? 0 : -EPIPE;
	default:
		s->more = false;
		return -tls_fail(s, kind);
	}
}

ssize_t http_stream_read(struct http_stream *s, void *p, size_t n)
{
	ssize_t r;

	if (s->handshaking)
		return -EAGAIN;
	if (s->unread_len)
		return take_unread(s, p, n);
	if (!s->ssl) {
		do
			r = recv(s->src.fd, p, n, MSG_DONTWAIT);
		while (r < 0 && errno == EINTR);
		return r < 0 ? -errno : r;
	}
	if (s->broken)
		return -ECONNRESET;
	ERR_clear_error();
	s->cross_out = false;
	r = SSL_read(s->ssl, p, n > 1 << 30 ? 1 << 30 : (int)n);
	if (r <= 0)
		return tls_result(s, (int)r, true);
	s->more = s->always_more || SSL_has_pending(s->ssl);
	return r;
}

static ssize_t tls_write(struct http_stream *s, const void *p, size_t n)
{
	ERR_clear_error();
	s->cross_in = false;
	int r = SSL_write(s->ssl, p, n > 1 << 30 ? 1 << 30 : (int)n);

	return r <= 0 ? tls_result(s, r, false) : r;
}

ssize_t http_stream_writev(struct http_stream *s, const struct iovec *v, int nv)
{
	ssize_t r;

	if (s->handshaking)
		return -EAGAIN;
	if (!s->ssl) {
		struct msghdr m = { .msg_iov = (struct iovec *)v, .msg_iovlen = (size_t)nv };

		do
			r = sendmsg(s->src.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		while (r < 0 && errno == EINTR);
		return r < 0 ? -errno : r;
	}
	if (s->broken)
		return -EPIPE;
	/* One record for a head and the start of its body. What was refused with -EAGAIN must be offered again first:
	 * the owners keep unsent bytes in order, so it is. */
	size_t n = 0;

	if (v[0].iov_len >= sizeof scratch || nv == 1)
		return tls_write(s, v[0].iov_base, v[0].iov_len);
	for (int i = 0; i < nv && n < sizeof scratch; i++) {
		size_t part = v[i].iov_len < sizeof scratch - n ? v[i].iov_len : sizeof scratch - n;

		memcpy(scratch + n, v[i].iov_base, part);
		n += part;
	}
	return tls_write(s, scratch, n);
}

ssize_t http_stream_write(struct http_stream *s, const void *p, size_t n)
{
	struct iovec v = { .iov_base = (void *)p, .iov_len = n };

	return http_stream_writev(s, &v, 1);
}

ssize_t http_stream_sendfile(struct http_stream *s, int fd, off_t *off, size_t n)
{
	ssize_t r;

	if (s->handshaking)
		return -EAGAIN;
	if (http_stream_splices(s)) {
		r = sendfile(s->src.fd, fd, off, n > 1 << 30 ? 1 << 30 : n);
		if (r >= 0 || (errno != EINVAL && errno != ENOSYS))
			return r < 0 ? -errno : r;
	}
	r = pread(fd, scratch, n < sizeof scratch ? n : sizeof scratch, *off);
	if (r <= 0)
		return r < 0 ? -errno : 0;
	r = http_stream_write(s, scratch, (size_t)r);
	if (r > 0)
		*off += r;
	return r;
}

int http_stream_unread(struct http_stream *s, const void *p, size_t n)
{
	if (n == 0)
		return 0;
	if (n + s->unread_len > 65536)
		return -ENOSPC;
	char *all = malloc(n + s->unread_len);

	if (!all)
		return -ENOMEM;
	memcpy(all, p, n);
	if (s->unread_len)
		memcpy(all + n, s->unread + s->unread_off, s->unread_len);
	free(s->unread);
	s->unread = all;
	s->unread_off = 0;
	s->unread_len += n;
	if (!s->busy)
		update(s);
	return 0;
}

size_t http_stream_unread_len(const struct http_stream *s)
{
	return s->unread_len;
}

void http_stream_shut(struct http_stream *s)
{
	if (s->ssl && !s->handshaking && !s->broken) {
		ERR_clear_error();
		SSL_shutdown(s->ssl);
	}
	shutdown(s->src.fd, SHUT_WR);
}

bool http_stream_plain(const struct http_stream *s) { return !s->ssl; }
bool http_stream_splices(const struct http_stream *s) { return !s->ssl && !s->shared; }
void http_stream_share(struct http_stream *s) { s->shared = true; }
int http_stream_fd(const struct http_stream *s) { return s->src.fd; }
struct loop *http_stream_loop(const struct http_stream *s) { return s->loop; }
SSL *http_stream_ssl(const struct http_stream *s) { return s->ssl; }
bool http_stream_handshaking(const struct http_stream *s) { return s->handshaking; }
const char *http_stream_tls_error(const struct http_stream *s) { return s->tls_error; }

int http_stream_error(struct http_stream *s)
{
	int err = 0;
	socklen_t len = sizeof err;

	if (s->sys_error)
		return -s->sys_error;
	if (getsockopt(s->src.fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		return -errno;
	return -err;
}

/* Unread bytes go first: a buffering BIO that starts with them stands before the socket for reading. */
static int tls_attach(struct http_stream *s, SSL *ssl)
{
	BIO *sock = BIO_new_socket(s->src.fd, BIO_NOCLOSE);
	BIO *front = sock && s->unread_len ? BIO_new(BIO_f_buffer()) : NULL;

	if (!sock || (s->unread_len && !front)) {
		BIO_free(sock);
		return -ENOMEM;
	}
	if (!front) {
		SSL_set_bio(ssl, sock, sock);
		return 0;
	}
	BIO_set_buffer_read_data(front, s->unread + s->unread_off, (long)s->unread_len);
	free(s->unread);
	s->unread = NULL;
	s->unread_off = s->unread_len = 0;
	s->always_more = true;
	BIO_up_ref(sock);
	SSL_set0_wbio(ssl, sock);
	SSL_set0_rbio(ssl, BIO_push(front, sock));
	return 0;
}

static int tls_start(struct http_stream *s, SSL *ssl, struct err *e)
{
	if (!ssl || s->ssl || tls_attach(s, ssl) < 0) {
		SSL_free(ssl);
		return err_set(e, ENOMEM, "start TLS: no memory");
	}
	s->ssl = ssl;
	s->handshaking = true;
	s->handshake_out = SSL_is_server(ssl) == 0;
	if (SSL_is_server(ssl) && s->always_more) {
		/* its first bytes are here already: epoll may have nothing more to say */
		int r = SSL_do_handshake(ssl);

		if (r == 1) {
			s->handshaking = false;
			s->more = true;
		} else {
			s->handshake_out = SSL_get_error(ssl, r) == SSL_ERROR_WANT_WRITE;
		}
		ERR_clear_error();
	}
	if (!s->busy)
		update(s);
	return 0;
}

int http_stream_tls_server(struct http_stream *s, SSL_CTX *ctx, struct err *e)
{
	SSL *ssl = SSL_new(ctx);

	if (ssl)
		SSL_set_accept_state(ssl);
	return tls_start(s, ssl, e);
}

int http_stream_tls_client(struct http_stream *s, SSL_CTX *ctx, const char *host, bool verify, struct err *e)
{
	SSL *ssl = SSL_new(ctx);
	unsigned char addr[16];
	bool numeric = inet_pton(AF_INET, host, addr) == 1 || inet_pton(AF_INET6, host, addr) == 1;

	if (ssl) {
		SSL_set_connect_state(ssl);
		SSL_set_verify(ssl, verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
		if (!numeric)
			SSL_set_tlsext_host_name(ssl, host);
		SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
		if (verify && (numeric ? !X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) : !SSL_set1_host(ssl, host))) {
			SSL_free(ssl);
			return err_set(e, EINVAL, "check the certificate of '%.100s': not a name", host);
		}
	}
	return tls_start(s, ssl, e);
}

static int connect_unix(const char *path, int *ret, struct err *e)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	AUTO_FD int fd = -1;

	if (str_copy(sa.sun_path, sizeof sa.sun_path, path) < 0)
		return err_set(e, ENAMETOOLONG, "connect to '%.150s': a socket path that is too long", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		return err_sys(e, "connect to '%.200s'", path);
	*ret = fd_take(&fd);
	return 0;
}

int http_sockaddr(const char *address, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
	char host[256];
	uint16_t port;

	memset(ret, 0, sizeof *ret);
	if (http_split_host(address, strlen(address), host, sizeof host, &port) < 0)
		return -EINVAL;
	if (str_eq(host, "localhost"))
		str_copy(host, sizeof host, "127.0.0.1");
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		*ret_len = sizeof *v4;
	} else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		*ret_len = sizeof *v6;
	} else {
		return -EINVAL;
	}
	return 0;
}

int http_stream_connect(struct loop *l, const char *address, struct http_stream **ret, struct err *e)
{
	struct sockaddr_storage sa;
	socklen_t len;
	int fd = -1;

	if (str_starts(address, "unix:")) {
		int r = connect_unix(address + 5, &fd, e);

		return r < 0 ? r : http_stream_open(l, fd, ret, e);
	}
	if (http_sockaddr(address, &sa, &len) < 0)
		return err_set(e, EINVAL, "connect to '%.150s': not an address", address);
	fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, "connect to '%.150s'", address);
	if (connect(fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS) {
		int r = err_sys(e, "connect to '%.150s'", address);

		close(fd);
		return r;
	}
	return http_stream_open(l, fd, ret, e);
}
