#ifndef GUEST_SPAWN_H
#define GUEST_SPAWN_H
#include <sys/resource.h>
#include <sys/types.h>
#include "core/err.h"
#include "guest/users.h"
/* spawn -- start a program of the computer as one of its users, as cheaply as it can be done. */
struct spawn {
	const char *cmd;              /* looked up in `path` when it has no '/' */
	const char *const *argv, *const *envp;
	const char *path;             /* value of PATH the program will have */
	const char *cwd;              /* NULL: cwd_fd */
	int cwd_fd;
	bool cwd_soft;                /* "/" will do when cwd isn't there */
	int fds[3];
	bool tty;                     /* fds[0] becomes the controlling terminal */
	bool group;                   /* leads a process group of our session instead of a session; with tty: in its foreground */
	const struct user *user;
	const struct rlimit *nofile;
	mode_t umask;
};
/* -ENOPKG no such program, -ENOEXEC it can't be run, -ENOENT no such folder, -EACCES the user, -EAGAIN (limit of processes), -E2BIG... */
int spawn_program(const struct spawn *s, pid_t *ret, struct err *e);
/* A terminal: master (nonblocking) and slave, the slave given to the user. */
int spawn_pty(const struct user *u, unsigned cols, unsigned rows, int *ret_master, int *ret_slave, struct err *e);
/* For a forked child: this process becomes the user for good. 0 or -errno. */
int spawn_become(const struct user *u);
#endif
