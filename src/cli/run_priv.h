#ifndef CLI_RUN_PRIV_H
#define CLI_RUN_PRIV_H
#include <stdbool.h>
#include <stdint.h>
#include <termios.h>
#include "core/err.h"
#include "wire/keeper_proto.h"
#include "wire/msg.h"
/* What the parts of `bureau run` share. run_args.c: its options; run.c: the sandbox's life; run_tty.c: the terminal. */
#define RUN_ENVS 256
#define RUN_ALLOW 32

struct run_options {
	const char *template_name, *state, *hostname, *workdir, *user, *resolver;
	uint8_t net;                            /* enum keeper_net */
	uint64_t memory, cpu, pids, disk, inodes, timeout_ms;
	const char *mounts[KEEPER_MOUNTS * 2];  /* source, "ro:/x" or "rw:/x" */
	size_t nmounts;                         /* words, not pairs */
	char *mount_words[KEEPER_MOUNTS * 2];   /* owned */
	const char *envs[RUN_ENVS];
	size_t nenvs;
	const char *allow[RUN_ALLOW];
	size_t nallow;
	bool quiet, disk_given;
	const char *cmd, *const *args;
	size_t nargs;
};
/* 0; negative: refused; 1: help was printed. */
int run_parse(int argc, char **argv, struct run_options *o, struct err *e);

/* The terminal of the caller while a program inside has one of its own. */
struct tty {
	bool on;                        /* stdin and stdout are a terminal: the program gets one too */
	struct termios saved;
	uint16_t cols, rows;
};
void tty_init(struct tty *t);
void tty_raw(struct tty *t);            /* restored by tty_restore, or at exit */
void tty_restore(struct tty *t);
bool tty_resized(struct tty *t);        /* reads the size again */
#endif
