#ifndef CORE_PROC_H
#define CORE_PROC_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "core/err.h"
/* proc -- child programs and our own process's hardening. */

/* What a child gets. fds[i] becomes descriptor i (0..nfds-1); everything else is closed. -1 = /dev/null. */
struct proc_spec {
	const char *path;            /* absolute path, no PATH search */
	const char *const *argv;     /* NULL-terminated */
	const char *const *envp;     /* NULL-terminated; NULL = empty */
	const char *cwd;             /* NULL = inherited */
	const int *fds;
	size_t nfds;                 /* at most 64 */
	uid_t uid; gid_t gid;        /* used when set_ids */
	int set_ids;
	int death_signal;            /* PR_SET_PDEATHSIG or 0 */
	int new_session;             /* setsid */
};
/* Starts it; the child's exec failure comes back here as the error. *ret_pidfd is the caller's to close; either result may be
 * NULL. The child blocks and ignores no signal. */
int proc_spawn(const struct proc_spec *s, pid_t *ret_pid, int *ret_pidfd, struct err *e);

/* No handler, nothing ignored: for who is about to exec, or was started by we don't know whom. */
void proc_signals_default(void);
int proc_pidfd_open(pid_t pid);                               /* -errno */
int proc_pidfd_signal(int pidfd, int signo);                  /* -errno */
/* Reaps a child by pidfd without blocking: 1 and *ret_status (as wait(2)), 0 = still running, -errno. */
int proc_pidfd_reap(int pidfd, int *ret_status);
int proc_start_time(pid_t pid, uint64_t *ret_ticks);          /* field 22 of /proc/PID/stat: tells a recycled pid */
int proc_harden(struct err *e);                               /* PR_SET_DUMPABLE 0, no_new_privs */
/* Capabilities by number (linux/capability.h): no other can be had any more; and no other is held either. */
int proc_bound_caps(const uint8_t *caps, size_t n, struct err *e);
int proc_keep_caps(const uint8_t *caps, size_t n, struct err *e);
/* Install a filter that tools/gen-seccomp made (array of struct sock_filter). */
struct sock_filter;
int proc_seccomp(const struct sock_filter *prog, unsigned short len, struct err *e);
/* Title as ps shows it. */
void proc_title(const char *name);
/* Where our other programs are: beside this program's own file, in ../libexec/bureau from there (an installed tree that was
 * moved), else in the libexec folder of the configured prefix. */
int proc_sibling(const char *program, char *out, size_t size, struct err *e);
/* Runs such a program to its end. When it ends with another code than 0, what it printed is the error: a line for what, one for the hint. */
int proc_ask(const char *program, const char *const *argv, struct err *e);
#endif
