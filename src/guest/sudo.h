#ifndef GUEST_SUDO_H
#define GUEST_SUDO_H
#include "guest/guest.h"
/* sudo -- programs as another user, without a setuid program: a client (this binary under the name sudo) asks PID 1.
 *
 * The socket is abstract: it lives in the computer's own network namespace, and PID 1 binds it before anybody else is
 * there. Who asks is told by the kernel (SO_PEERCRED). Messages as in wire/msg.h:
 *   client: S_RUN     u32 flags (enum sudo_flag), str user, str cmd, str… argv, str… envs (added to the target's own), u16 cols, u16 rows,
 *                     bytes termios ("" = none); descriptors 0, 1, 2 of the program and its folder
 *           S_SIGNAL  u32 signal, for the program's process group
 *   PID 1:  S_STARTED with SF_PTY one descriptor: the terminal's master
 *           S_FAILED  u32 errno, str message
 *           S_STOPPED u32 signal: the program was stopped
 *           S_EXIT    u32 signalled, u32 code
 * PID 1 only accepts, checks and forks: the child (the attendant) serves this one client. It leads a session with the program as a
 * process group of it, so that the program can be stopped and continued (one whose parent is in another session can't).
 * With SF_PTY the program gets a terminal of its own, since it can't join the client's session; the client relays. A client
 * that vanishes takes its program with it, as a kill of the real sudo's process group would. */
#define SUDO_SOCKET "bureau-sudo"
#define SUDO_ARGS 4096
enum sudo_type { S_RUN = 1, S_SIGNAL, S_STARTED, S_FAILED, S_STOPPED, S_EXIT };
enum sudo_flag {
	SF_PTY = 1,
	SF_TTY0 = 2, SF_TTY1 = 4, SF_TTY2 = 8,     /* with SF_PTY: this descriptor becomes the new terminal */
	SF_HOME = 16,                              /* start in the target's home, not in the folder that came along */
};

void sudo_listen(struct guest *g);
bool sudo_reaped(struct guest *g, pid_t pid);

/* sudo_attend.c: in the child; never returns */
_Noreturn void sudo_attend(struct guest *g, int sock, uid_t uid);

/* sudo_client.c, sudo_args.c */
int sudo_main(int argc, char **argv);
struct sudo_args {
	const char *user, *chdir;
	bool preserve, login, shell, list, validate, reset, version, help;
	char **vars;                        /* VAR=value before the command */
	size_t nvars;
	char **cmd;                         /* ended by NULL; empty with a shell */
	const char *only;                   /* the list of --preserve-env=list */
};
/* 0; -1: said why on stderr already */
int sudo_parse(int argc, char **argv, struct sudo_args *ret);
/* A command line that a shell reads back as these words: as sudo does for -s and -i. NULL: no memory. */
char *sudo_quote(char **words);
void sudo_addr(void *ret_sockaddr, unsigned *ret_len);
#endif
