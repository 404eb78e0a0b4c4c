#ifndef SECRETARY_RUN_PRIV_H
#define SECRETARY_RUN_PRIV_H
#include "core/buf.h"
#include "secretary/secretary.h"
#include "secretary/subst.h"
/* run -- one attempt of one task: a computer, the steps on it, its end. run.c has the computer's life, step.c the steps,
 * expect.c what is kept of output and judged. */
#define KEEP_HEAD (256u << 10)     /* of a stream: what captures and expectations see */
#define KEEP_TAIL (8u << 10)
#define SHOW_HEAD (16u << 10)      /* of it in the record */
#define SHOW_TAIL (4u << 10)
#define RUN_FILE_MAX (1ull << 30)  /* a file that a task hands in */

/* A stream: its begin and its end. */
struct keep { struct buf head, tail; uint64_t total; };
void keep_init(struct keep *k);
void keep_add(struct keep *k, const char *p, size_t n);
void keep_done(struct keep *k);
json_t *keep_text(const struct keep *k);       /* for the record: UTF-8, bounded, with a word on what was left out */

struct run {
	struct secretary *s;
	struct task *t;
	const struct spec_task *spec;
	struct values values;
	struct subst subst;
	char id[40];                   /* of the computer, "" before there is one */
	struct client_call *call;
	struct client_run *exec;
	struct client_tree *tree;
	struct sweep *sweep;
	struct timer limit;
	int64_t deadline;              /* mono ms */
	bool checking, stopping, ended, late;
	int step;                      /* of steps, or of checks */
	int file_task;                 /* put_files: which task's folder */
	int fd;                        /* a file on its way, or -1 */
	char *input;                   /* text for a program's stdin */
	struct client_call *feed;
	int64_t pid;
	struct keep out, err;
	json_t *steps, *record, *result;
	json_t *files;                 /* of the current step */
	uint64_t bytes;
};

const struct spec_step *run_spec(const struct run *r);
/* The outcome of a step; why NULL = it went well. kind as in sched.h. */
void run_step_done(struct run *r, int kind, int64_t wait_ms, const char *why, ...) __attribute__((format(printf, 4, 5)));
void run_step_failed(struct run *r, const struct err *e, int64_t retry_ms);    /* by errno */
void step_begin(struct run *r);
void step_cancel(struct run *r);
/* What exit code and output must be; -EINVAL with the reason when they aren't. */
int expect_check(struct run *r, const struct spec_step *st, const struct client_exit *x, struct err *e);
int expect_capture(struct run *r, const struct spec_step *st, const struct client_exit *x, struct err *e);
int run_text(struct run *r, const char *text, struct buf *out, struct err *e); /* with values put in, NUL-terminated, no NUL inside */
#endif
