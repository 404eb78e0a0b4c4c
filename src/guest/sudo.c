#include "guest/sudo.h"
void sudo_listen(struct guest *g) { }
bool sudo_reaped(struct guest *g, pid_t pid, int status) { return false; }
void sudo_stopped(struct guest *g, pid_t pid, int signo) { }
int sudo_main(int argc, char **argv) { return 1; }
