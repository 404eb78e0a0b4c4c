/* sudo -- PID 1's part: see sudo.h. */
#include "guest/sudo.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/fd.h"

struct sudo { struct list node; pid_t pid; };       /* an attendant */

void sudo_addr(void *ret_sockaddr, unsigned *ret_len)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	memcpy(sa.sun_path + 1, SUDO_SOCKET, strlen(SUDO_SOCKET));
	memcpy(ret_sockaddr, &sa, sizeof sa);
	*ret_len = (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SUDO_SOCKET));
}

bool sudo_reaped(struct guest *g, pid_t pid)
{
	list_each(it, &g->sudos) {
		struct sudo *s = container_of(it, struct sudo, node);

		if (s->pid != pid)
			continue;
		list_unlink(&s->node);
		free(s);
		g->nsudos--;
		return true;
	}
	return false;
}

/* A client that isn't allowed, or comes when too many are at work, sees its connection end and says so. */
static void attend(struct guest *g, int fd)
{
	struct sudo *s;
	pid_t pid;
	uid_t uid;

	if (g->nsudos >= GUEST_SUDOS || g->ending || sock_peer(fd, &pid, &uid, NULL) < 0 || !users_may_sudo(&g->users, uid))
		return;
	s = calloc(1, sizeof *s);
	if (!s)
		return;
	s->pid = fork();
	if (s->pid == 0) {
		fd_close_from(3, &fd, 1);
		sudo_attend(g, fd, uid);
	}
	if (s->pid < 0) {
		free(s);
		return;
	}
	list_append(&g->sudos, &s->node);
	g->nsudos++;
}

static void listen_ready(struct source *src, uint32_t events)
{
	struct guest *g = container_of(src, struct guest, sudo_listen);
	AUTO_FD int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		attend(g, fd);
	} else if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
		/* out of descriptors: silent for a while, as in conn.c */
		loop_mod(g->loop, src, 0);
		loop_arm(g->loop, &g->listen_again, GUEST_ACCEPT_AGAIN_MS);
	}
}

void sudo_listen(struct guest *g)
{
	struct sockaddr_un sa;
	unsigned len;
	struct err e;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	sudo_addr(&sa, &len);
	g->sudo_listen = (struct source){ .fd = fd, .name = "sudo", .ready = listen_ready };
	if (fd < 0)
		return;
	if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, 64) < 0 || loop_add(g->loop, &g->sudo_listen, EPOLLIN, &e) < 0) {
		close(fd);
		g->sudo_listen.fd = -1;
	}
}
