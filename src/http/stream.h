#ifndef HTTP_STREAM_H
#define HTTP_STREAM_H
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "core/err.h"
#include "core/loop.h"
/* stream -- one connected stream socket in the loop, plain or under TLS, read and written without blocking.
 *
 * Readiness comes through one callback: HTTP_READABLE, HTTP_WRITABLE, HTTP_HANGUP (the peer is gone both ways, or
 * reset). Ask for what you need with http_stream_want(); TLS's own needs (a read that must write, bytes that OpenSSL
 * has already read) are hidden. A TLS handshake runs by itself: until it's done, reads and writes give -EAGAIN; its
 * failure shows as HTTP_HANGUP and a read error.
 * A stream may be freed inside its own callback. */
struct http_stream;
enum { HTTP_READABLE = 1, HTTP_WRITABLE = 2, HTTP_HANGUP = 4, HTTP_PEER_SHUT = 8 /* peer sent FIN, more may still be unread */ };

/* Takes fd (closed on failure too), makes it nonblocking. */
int http_stream_open(struct loop *l, int fd, struct http_stream **ret, struct err *e);
void http_stream_free(struct http_stream *s);              /* closes; NULL is fine */
void http_stream_abort(struct http_stream *s);             /* closes with a reset, then frees */
void http_stream_on(struct http_stream *s, void (*event)(void *ctx, unsigned what), void *ctx);
void http_stream_want(struct http_stream *s, unsigned what);  /* HTTP_READABLE | HTTP_WRITABLE; 0 = only HANGUP and PEER_SHUT */

/* > 0 bytes; 0 = end (read); -EAGAIN; other -errno = the stream is broken. */
ssize_t http_stream_read(struct http_stream *s, void *p, size_t n);
ssize_t http_stream_write(struct http_stream *s, const void *p, size_t n);
ssize_t http_stream_writev(struct http_stream *s, const struct iovec *v, int nv);
/* File to stream: sendfile when plain, else through memory. Advances *off. 0 = the file ended early. */
ssize_t http_stream_sendfile(struct http_stream *s, int fd, off_t *off, size_t n);
/* Puts bytes back in front of what will be read next (at most 64 KiB). */
int http_stream_unread(struct http_stream *s, const void *p, size_t n);
size_t http_stream_unread_len(const struct http_stream *s);
void http_stream_shut(struct http_stream *s);              /* no more writes: FIN, or close_notify first */

bool http_stream_plain(const struct http_stream *s);       /* no TLS */
/* Its socket came from a computer, which may hold the same open file and change O_NONBLOCK or SO_LINGER of it under our hands: it
 * isn't spliced from or to, since splice and sendfile look at that flag alone. */
void http_stream_share(struct http_stream *s);
bool http_stream_splices(const struct http_stream *s);     /* no TLS and not shared: the kernel may move its bytes */
int http_stream_fd(const struct http_stream *s);
struct loop *http_stream_loop(const struct http_stream *s);
SSL *http_stream_ssl(const struct http_stream *s);         /* NULL when plain or before the handshake began */

/* Starts TLS on a plain stream; unread bytes are fed to it. host: for SNI and, when verify, for the certificate's name. */
int http_stream_tls_server(struct http_stream *s, SSL_CTX *ctx, struct err *e);
int http_stream_tls_client(struct http_stream *s, SSL_CTX *ctx, const char *host, bool verify, struct err *e);
bool http_stream_handshaking(const struct http_stream *s);
const char *http_stream_tls_error(const struct http_stream *s);   /* why TLS failed, or "" */

/* TLS 1.2 and up, ALPN http/1.1, no renegotiation, no compression. ca_file NULL = the system's. */
int http_tls_server_ctx(const char *cert_file, const char *key_file, SSL_CTX **ret, struct err *e);
int http_tls_client_ctx(const char *ca_file, SSL_CTX **ret, struct err *e);

/* Starts a connection: "host:port" with a numeric host, or "unix:/path". *ret is a connecting stream: WRITABLE or HANGUP comes. */
int http_stream_connect(struct loop *l, const char *address, struct http_stream **ret, struct err *e);
/* The pending error of a connecting stream: 0 or -errno. */
int http_stream_error(struct http_stream *s);

/* tunnel -- bytes both ways between two streams until both sides ended or one broke; half-closes pass through;
 * splice() when both can (http_stream_splices). Takes both streams. done (may be NULL) is called once, from the loop,
 * after both are closed. */
struct http_tunnel;
int http_tunnel_start(struct http_stream *a, struct http_stream *b,
	void (*done)(void *ctx, uint64_t a_to_b, uint64_t b_to_a), void *ctx, struct http_tunnel **ret, struct err *e);
void http_tunnel_stop(struct http_tunnel *t, bool reset);  /* closes both; done isn't called */
#endif
