#ifndef CLI_API_H
#define CLI_API_H
#include "client/client.h"
#include "core/json.h"
/* api -- bureau-cli: the words that talk to a running server. One function a word, in api_words.c's table; all of them get the
 * options already read. */
enum { API_OK, API_FAILED, API_USAGE, API_MISSING, API_REFUSED, API_UNREACHABLE, API_OURS = 125, API_CANT_RUN, API_NO_PROGRAM };

struct api_opts {
	const char *server, *state, *template, *net, *user, *cwd, *life, *only;
	uint64_t memory, disk;
	int64_t cpus, pids;
	bool json, all, stdin_open, tty, recursive, help, insecure, timed;
	uint64_t timeout_ms;
	json_t *envs, *metadata;
};

struct api {
	struct api_opts o;
	struct loop *loop;
	struct client_where where;
	struct client *client;
	int argc;                  /* words after the verb and the options */
	char **argv;
};

struct api_word {
	const char *group, *name;  /* "sandbox", "create"; group NULL = a word of its own */
	const char *args;          /* as help shows them */
	int min, max;              /* how many words; max -1 = any */
	const char *options;       /* names, blank between and around */
	bool server;               /* needs one */
	int (*run)(struct api *a);
	const char *summary, *more;
};
const struct api_word *api_words(size_t *ret_n);

/* api_args.c */
int api_parse(const struct api_word *w, int argc, char **argv, struct api *a, struct err *e);
void api_help(const char *group, const struct api_word *only);

/* Prints the failure and gives the exit code that fits. */
int api_fail(const struct err *e);
/* One call, waited for. *ret_result (may be NULL) is a new reference, perhaps NULL. */
int api_call(struct api *a, const char *method, const char *path, json_t *args, json_t **ret_result, struct err *e);
int api_path(char *out, size_t size, const char *id, const char *rest, struct err *e);      /* "/v1/sandboxes/ID/REST", id checked */
void api_json(const json_t *v);                                                             /* pretty, to stdout */
void api_put(FILE *f, const char *s);
void api_text(const char *s);                  /* to stdout, control characters shown as '?' */

/* A table: rows of texts, columns as wide as they need. */
struct api_column { const char *title; void (*cell)(const json_t *row, char *out, size_t size); };
void api_table(const json_t *rows, const struct api_column *c, size_t n);

int api_sandbox_create(struct api *a);
int api_sandbox_list(struct api *a);
int api_sandbox_show(struct api *a);
int api_sandbox_kill(struct api *a);
int api_sandbox_timeout(struct api *a);
int api_sandbox_metrics(struct api *a);
int api_sandbox_ports(struct api *a);
int api_sandbox_watch(struct api *a);
int api_sandbox_exec(struct api *a);
int api_sandbox_cp(struct api *a);
int api_status(struct api *a);
int api_stop(struct api *a);
int api_key(struct api *a);
#endif
