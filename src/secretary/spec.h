#ifndef SECRETARY_SPEC_H
#define SECRETARY_SPEC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
#include "core/json.h"
#include "secretary/toml.h"
/* spec -- a job file (docs/JOBS.md), read and checked as a whole before anything starts. Strings are borrowed from the tree. */
#define SPEC_TASKS 256             /* [[task]] entries */
#define SPEC_STEPS 64              /* steps of a task, and checks of a task */
#define SPEC_EXPANDED 10000        /* tasks after rows are applied */
#define SPEC_INPUTS 32

struct spec_limits {
	int64_t computers;         /* at once */
	int64_t retries;           /* further attempts of a task */
	uint64_t job_ms, task_ms;
	bool keep_going;           /* a failed task stops only those that need it */
};

struct spec_computer {
	const char *template, *net, *user;
	uint64_t memory, disk;
	int64_t cpus, pids;
	const struct toml *env;
};

struct spec_expect {
	const struct toml *exit;   /* a number or numbers; NULL = 0 */
	const char *stdout_equals, *stdout_contains, *stdout_matches, *stderr_contains, *stderr_matches;
};

enum step_kind { STEP_RUN, STEP_SHELL, STEP_PUT, STEP_PUT_PART, STEP_PUT_FILES, STEP_WRITE, STEP_GET, STEP_EXISTS };

struct spec_step {
	int line;
	enum step_kind kind;
	const char *title;
	const struct toml *run;
	const char *shell, *put, *put_files, *write, *get, *exists;
	bool put_part;
	const char *to, *content, *cwd, *user, *input;
	int64_t mode;
	const struct toml *env, *capture, *expect_node;
	struct spec_expect expect;
	uint64_t timeout_ms;
	bool show;                 /* get: in the report's first part */
	bool optional;             /* get: a missing file is fine */
	int files_of;              /* put_files: index of the task it names */
};

struct spec_task {
	int line;
	const char *id, *title, *each, *worker;
	const struct toml *needs_node, *steps_node, *checks_node, *computer_node, *env;
	struct spec_computer computer;
	int64_t retries;
	uint64_t timeout_ms;
	bool once;                 /* never run a second time when an attempt was cut in the middle */
	bool accept_failed;        /* go on when tasks it needs have failed */
	int needs[SPEC_TASKS];
	int nneeds;
	int input;                 /* of `each`, or -1 */
	struct spec_step *steps, *checks;
	int nsteps, nchecks;
};

struct spec_input {
	const char *name;
	int line;
	const char *csv, *jsonl;
	const struct toml *rows, *split_node;
	struct { const char *file, *host_file, *separator; int64_t parts; } split;
};

struct spec {
	struct toml *root;
	char *file;                /* name as shown in errors */
	const char *name, *title, *description;
	struct spec_limits limits;
	struct spec_computer computer;
	struct spec_input inputs[SPEC_INPUTS];
	int ninputs;
	struct spec_task *tasks;
	int ntasks;
};

int spec_parse(const char *text, size_t n, const char *name, struct spec **ret, struct err *e);
/* Once rows are there (one array an input): every {{row.NAME}} is a column. */
int spec_check_rows(const struct spec *s, json_t *const *rows, struct err *e);
void spec_free(struct spec *s);
int spec_find(const struct spec *s, const char *task_id);      /* index, -1 */
const char *step_kind_name(enum step_kind k);                  /* "run" */
#endif
