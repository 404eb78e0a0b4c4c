/* reap -- PID 1 reaps everything: its own programs, helpers, sudo's programs, and every orphan of the computer. */
#include <signal.h>
#include <sys/wait.h>

#include "guest/guest.h"
#include "guest/proc.h"
#include "guest/sudo.h"

#define TURN_REAPS 128          /* a storm of dying orphans doesn't stop the loop */

static void reap(struct guest *g)
{
	int status;
	pid_t pid;

	for (int i = 0; i < TURN_REAPS; i++) {
		pid = waitpid(-1, &status, WNOHANG);
		if (pid <= 0) {
			if (pid < 0 && g->ending) {     /* nobody left to wait for */
				g->waiting = false;
				life_end(g, false);
			}
			return;
		}
		if (!proc_reaped(g, pid, status) && !helper_reaped(g, pid, status))
			sudo_reaped(g, pid);
	}
	loop_defer(g->loop, &g->reap_more);
}

static void on_signal(void *ctx, int signo)
{
	reap(ctx);
}

static void more(struct job *j)
{
	reap(container_of(j, struct guest, reap_more));
}

int reap_start(struct guest *g, struct err *e)
{
	const int signals[] = { SIGCHLD };

	g->reap_more.run = more;
	return loop_signals(g->loop, signals, 1, on_signal, g, e);
}
