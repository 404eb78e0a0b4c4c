#include "wire/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/fd.h"

int sock_pair(int ret[2], struct err *e)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret) < 0)
		return err_sys(e, "make a pair of sockets");
	return 0;
}

/* sun_path is only 108 bytes: the folder is named by its descriptor instead of its path. */
static int address(int dirfd, const char *name, struct sockaddr_un *sa, struct err *e)
{
	int n;

	memset(sa, 0, sizeof *sa);
	sa->sun_family = AF_UNIX;
	if (dirfd == AT_FDCWD || name[0] == '/')
		n = snprintf(sa->sun_path, sizeof sa->sun_path, "%s", name);
	else
		n = snprintf(sa->sun_path, sizeof sa->sun_path, "/proc/self/fd/%d/%s", dirfd, name);
	if (n < 0 || (size_t)n >= sizeof sa->sun_path)
		return err_set(e, ENAMETOOLONG, "socket name '%s' is too long", name);
	return 0;
}

int sock_listen_at(int dirfd, const char *name, mode_t mode, int backlog, int *ret, struct err *e)
{
	struct sockaddr_un sa;
	struct stat st;
	AUTO_FD int fd = -1;

	if (address(dirfd, name, &sa, e) < 0)
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, "make a socket");
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode) && unlinkat(dirfd, name, 0) < 0)
		return err_sys(e, "remove the old socket '%s'", name);
	/* bind() gives the file the socket's own mode: set before, so that it's never open to more than `mode` */
	if (fchmod(fd, mode) < 0)
		return err_sys(e, "set the mode of socket '%s'", name);
	if (bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		return err_sys(e, "bind socket '%s'", name);
	if (fchmodat(dirfd, name, mode, 0) < 0)     /* what the umask took away */
		return err_sys(e, "set the mode of socket '%s'", name);
	if (listen(fd, backlog) < 0)
		return err_sys(e, "listen on socket '%s'", name);
	*ret = fd_take(&fd);
	return 0;
}

int sock_connect_at(int dirfd, const char *name, int *ret, struct err *e)
{
	struct sockaddr_un sa;
	AUTO_FD int fd = -1;

	if (address(dirfd, name, &sa, e) < 0)
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, "make a socket");
	if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		return err_sys(e, "connect to socket '%s'", name);
	*ret = fd_take(&fd);
	return 0;
}

int sock_peer(int fd, pid_t *ret_pid, uid_t *ret_uid, struct err *e)
{
	struct ucred u;
	socklen_t n = sizeof u;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n) < 0)
		return err_sys(e, "ask who is at the other end of a socket");
	*ret_pid = u.pid;
	*ret_uid = u.uid;
	return 0;
}

union control {
	char buf[CMSG_SPACE(sizeof(int) * MSG_FDS)];
	struct cmsghdr align;
};

int msg_send(int fd, const struct msg_writer *w)
{
	union control c;
	struct iovec iov = { .iov_base = w->p, .iov_len = w->len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (w->bad || w->len < MSG_HEAD)
		return -EINVAL;
	if (w->nfds) {
		struct cmsghdr *h;

		memset(&c, 0, sizeof c);
		m.msg_control = c.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * w->nfds);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int) * w->nfds);
		memcpy(CMSG_DATA(h), w->fds, sizeof(int) * w->nfds);
	}
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Descriptors out of the control data; more than MSG_FDS can't fit in our buffer (the kernel then sets MSG_CTRUNC). */
static unsigned collect(struct msghdr *m, int fds[MSG_FDS])
{
	unsigned have = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		size_t n;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
			if (have < MSG_FDS)
				fds[have++] = fd;
			else
				close(fd);
		}
	}
	return have;
}

ssize_t msg_recv(int fd, void *mem, size_t cap, int fds[MSG_FDS], unsigned *ret_nfds)
{
	union control c;
	struct iovec iov = { .iov_base = mem, .iov_len = cap };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof c.buf };
	unsigned have;
	bool reset = false;
	ssize_t n;

	*ret_nfds = 0;
	/* a peer that ended without reading all we sent: the kernel says that once, and then gives what the peer had said before */
	do {
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !reset && (reset = true))));
	if (n < 0)
		return -errno;
	have = collect(&m, fds);
	/* an empty record looks like the end: what came with it must not leak */
	if (n == 0 || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		for (unsigned i = 0; i < have; i++)
			close(fds[i]);
		/* fewer than there is room for: the table of this process is full, which is no fault of the peer's */
		return n == 0 ? 0 : !(m.msg_flags & MSG_TRUNC) && have < MSG_FDS ? -EMFILE : -EPROTO;
	}
	*ret_nfds = have;
	return n;
}
