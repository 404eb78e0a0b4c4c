#ifndef GUEST_SUDO_H
#define GUEST_SUDO_H
#include "guest/guest.h"
/* sudo -- programs as another user, without a setuid program: a client (this binary under the name sudo) asks PID 1. */
void sudo_listen(struct guest *g);
bool sudo_reaped(struct guest *g, pid_t pid, int status);
void sudo_stopped(struct guest *g, pid_t pid, int signo);
int sudo_main(int argc, char **argv);                  /* the client: sudo_client.c */
#endif
