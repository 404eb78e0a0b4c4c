/* tinyguest -- the least that can be PID 1 of a computer: runs one G_START with GS_FDS and ends with it. For tests of the keeper
 * that must not depend on bureau-guest. */
#include "wire/guest_proto.h"
#include "wire/msg.h"
#include "wire/sock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS 256

static void answer(uint16_t type, uint32_t id, uint32_t a, uint32_t b, int with_exit)
{
	uint8_t mem[64];
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, type, id);
	msg_put_u32(&w, a);
	if (with_exit) {
		msg_put_u32(&w, b);
		msg_put_u8(&w, 0);
	}
	msg_send(GUEST_CONN_FD, &w);
}

static int start(struct msg_reader *r)
{
	const char *args[ARGS + 2], *envs[ARGS + 1], *cmd, *cwd;
	int fds[3], status;
	pid_t pid;

	msg_get_u32(r);
	cmd = msg_get_str(r, 4096);
	args[0] = cmd;
	msg_get_strv(r, args + 1, ARGS, 65536);
	msg_get_strv(r, envs, ARGS, 65536);
	cwd = msg_get_str(r, 4096);
	for (int i = 0; i < 3; i++)
		fds[i] = msg_take_fd(r);
	if (r->bad)
		return 1;
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 3; i++)
			dup2(fds[i], i);
		close(3);
		close(4);
		if (*cwd && chdir(cwd) < 0)
			_exit(126);
		execvpe(cmd, (char **)args, (char **)envs);
		_exit(127);
	}
	answer(G_OK, r->id, (uint32_t)pid, 0, 0);
	for (;;) {
		pid_t got = wait(&status);

		if (got == pid)
			break;
		if (got < 0 && errno != EINTR)
			return 1;
	}
	if (WIFSIGNALED(status))
		answer(G_EXIT, r->id, GUEST_SIGNALED, (uint32_t)WTERMSIG(status), 1);
	else
		answer(G_EXIT, r->id, GUEST_EXITED, (uint32_t)WEXITSTATUS(status), 1);
	return 0;
}

int main(void)
{
	static uint8_t mem[MSG_MAX];

	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	for (;;) {
		struct pollfd p = { GUEST_CONN_FD, POLLIN, 0 };
		int fds[MSG_FDS];
		unsigned nfds = 0;
		struct msg_reader r;
		struct err e;
		ssize_t n;

		poll(&p, 1, -1);
		n = msg_recv(GUEST_CONN_FD, mem, sizeof mem, fds, &nfds);
		if (n == -EAGAIN)
			continue;
		if (n == 0)       /* the asker let go of us: a computer goes on */
			for (;;)
				pause();
		if (n < 0 || msg_reader_init(&r, mem, (size_t)n, fds, nfds, &e) < 0)
			return 1;
		if (r.type == G_START)
			return start(&r);
	}
}
