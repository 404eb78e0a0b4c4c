#ifndef CLI_INSIDE_H
#define CLI_INSIDE_H
#include <sys/types.h>
#include "core/err.h"
/* inside -- runs a program in namespaces of its own where it may do what root may with the files of a template.
 *
 * Root needs only mount, pid and ipc namespaces (so that whatever happens, no mount and no process is left). A plain user gets
 * a user namespace too, with the ids that the keeper gives to computers (src/isolate/subid.c): the caller is 1000, the granted
 * range fills the rest. All of it dies with the caller. */
/* stdout and stderr go to out_fd. */
int inside_start(const char *const *argv, const char *const *envp, int out_fd, pid_t *ret_pid, struct err *e);
/* Waits; 0 when the program did well, else its exit code or 128 + signal. */
int inside_wait(pid_t pid);
/* Runs to the end with the output discarded. */
int inside_run(const char *const *argv, struct err *e);
#endif
