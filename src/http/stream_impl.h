#ifndef HTTP_STREAM_IMPL_H
#define HTTP_STREAM_IMPL_H
#include <sys/socket.h>
#include "http/stream.h"
/* Inside http only. */

/* A stream over an accepted, nonblocking, tuned socket; it wants HTTP_READABLE from the start. Takes fd. */
int http_stream_wrap(struct loop *l, int fd, struct http_stream **ret, struct err *e);
/* TCP options of a connection; a listener's are inherited by what it accepts. Also ignores SIGPIPE, once. */
int http_stream_tune(int fd);
/* "127.0.0.1:80", "[::1]:80", "localhost:80". -EINVAL. */
int http_sockaddr(const char *address, struct sockaddr_storage *ret, socklen_t *ret_len);

/* A pipe between two splice calls. fd[0] < 0 = not made yet. */
struct http_pipe { int fd[2]; size_t len; };
#define HTTP_PIPE_NONE { { -1, -1 }, 0 }
int http_pipe_open(struct http_pipe *p);
void http_pipe_close(struct http_pipe *p);
/* Socket to pipe, at most n: > 0, 0 = end, -EAGAIN (the socket has none, or the pipe is full), -errno. */
ssize_t http_pipe_fill(struct http_pipe *p, int from, size_t n);
/* Pipe to socket or file. > 0, -EAGAIN, -errno. */
ssize_t http_pipe_drain(struct http_pipe *p, int to);
#endif
