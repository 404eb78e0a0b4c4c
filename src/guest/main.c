/* bureau-guest -- PID 1 of every computer; and, called as `sudo`, its client. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/log.h"
#include "core/proc.h"
#include "guest/guest.h"
#include "guest/sudo.h"

static int taken(int fd)
{
	return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? fd : -1;
}

int main(int argc, char **argv)
{
	static struct guest g;
	const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
	struct err e;

	name = name ? name + 1 : argc > 0 ? argv[0] : "";
	if (strcmp(name, "sudo") == 0)
		return sudo_main(argc, argv);
	log_init("bureau-guest", LOG_INFO);
	if (getpid() != 1) {
		log_error("this is PID 1 of a computer; it's started by bureau-keeper");
		return 2;
	}
	proc_title("bureau-guest");
	if (life_start(&g, taken(GUEST_LISTEN_FD), taken(GUEST_CONN_FD), &e) < 0) {
		log_error("%s", e.msg);
		return 1;
	}
	return loop_run(g.loop);
}
