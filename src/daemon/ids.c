/* ids -- a plain user's 65,536 ids for all keepers of this server's life (src/isolate/subid.c).
 *
 * newuidmap is set-id, so it must run before no_new_privs, and keepers may be started long after that. A keeper that does nothing else
 * has the namespace made now; what we keep of it is a descriptor. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>
#include "core/fd.h"
#include "core/log.h"
#include "core/proc.h"
#include "daemon/serve.h"
#include "wire/keeper_proto.h"
#include "wire/sock.h"

#define IDS_MS 15000                 /* two programs, five seconds each at most */

static int take(int sock, struct err *e)
{
	uint8_t mem[MSG_MAX];
	int fds[MSG_FDS], fd = -1;
	unsigned nfds = 0;
	struct msg_reader r;
	ssize_t n = msg_recv(sock, mem, sizeof mem, fds, &nfds);

	if (n <= 0 || msg_reader_init(&r, mem, (size_t)n, fds, nfds, e) < 0)
		return -1;                   /* it ended without: there are none */
	if (r.type == K_OK)
		fd = msg_take_fd(&r);
	if (msg_reader_end(&r, e) < 0)
		fd_drop(&fd);
	return fd;
}

int ids_make(struct serve *s, struct err *e)
{
	static const char *const argv[] = { "bureau-keeper", "--make-ids", "--fd", "3", NULL };
	AUTO_FD int pidfd = -1, mine = -1;
	char path[4096];
	int pair[2], r, status;
	struct pollfd p;

	if (s->root)
		return 0;
	if (proc_sibling("bureau-keeper", path, sizeof path, e) < 0 || sock_pair(pair, e) < 0)
		return -e->code;
	mine = pair[0];
	const int fds[] = { -1, -1, 2, pair[1] };
	const struct proc_spec spec = { .path = path, .argv = argv, .fds = fds, .nfds = 4, .new_session = 1 };

	r = proc_spawn(&spec, NULL, &pidfd, e);
	close(pair[1]);
	if (r < 0)
		return r;
	/* our end of the pair reads as ended when it ends */
	p = (struct pollfd){ .fd = mine, .events = POLLIN };
	if (poll(&p, 1, IDS_MS) > 0)
		s->ids_fd = take(mine, e);
	else
		log_warn("newuidmap doesn't end: computers have one id");
	proc_pidfd_signal(pidfd, SIGKILL);
	p = (struct pollfd){ .fd = pidfd, .events = POLLIN };
	poll(&p, 1, IDS_MS);
	proc_pidfd_reap(pidfd, &status);
	return 0;
}
