#ifndef CLI_CLI_H
#define CLI_CLI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
/* cli -- what the command-line programs share: how they speak to people, options as a table, where the state is. */

/* Exit codes of ours. A program that we ran for somebody answers with its own. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_TIMED_OUT = 124, CLI_OURS = 125, CLI_CANT_RUN = 126, CLI_NOT_FOUND = 127 };

/* "bureau: " or "bureau WORD: " before the text, on stderr; control characters are shown, not obeyed. */
void cli_say(const char *word, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cli_error(const char *word, const struct err *e);          /* the message, and the hint on a line of its own */

struct cli_option {
	const char *name;       /* without the dashes */
	char letter;            /* or 0 */
	const char *value;      /* what it takes, as help shows it; NULL: it's a switch */
	const char *help;
	/* value is NULL for a switch. Fills e and returns negative to refuse. */
	int (*apply)(void *ctx, const char *value, struct err *e);
};
/* Reads options up to "--" or the first other word; *ret_rest is the index of what follows. --help is `help` in *ret_help. */
int cli_options(const struct cli_option *table, size_t n, int argc, char **argv, void *ctx, int *ret_rest, bool *ret_help, struct err *e);
void cli_print_options(const struct cli_option *table, size_t n);

/* The state folder: given (may be NULL), else $BUREAU_STATE, else /var/lib/bureau for root and ~/.local/state/bureau. Absolute. */
int cli_state(const char *given, char *out, size_t size, struct err *e);

/* What a sandbox may write when nobody says, given its limit of memory (0 = none); the same as a server's (src/machine/machines.c). */
uint64_t cli_default_disk(uint64_t memory);
/* A command that grants user a range of ids which nobody has yet. */
void cli_subid_command(const char *user, char *out, size_t size);
int cli_template_hint(struct err *e, const char *name);           /* how one that isn't there is made */

int run_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
#endif
