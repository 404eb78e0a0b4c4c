#ifndef SECRETARY_SECRETARY_H
#define SECRETARY_SECRETARY_H
#include <limits.h>
#include "client/client.h"
#include "core/fd.h"
#include "core/json.h"
#include "secretary/journal.h"
#include "secretary/sched.h"
#include "secretary/spec.h"
/* secretary -- one job being run: its folder, its tasks, its server. Made by job.c, used by the worker, the progress lines and the
 * report.
 *
 * The job's folder, STATE/jobs/ID:  job.toml (the copy that is run), meta.json, journal, lock (held while a secretary runs the job),
 * cancel (somebody wants it stopped), inputs/, files/TASK/… (what tasks handed in), tasks/TASK.json (what each attempt did),
 * report.html, report.json. */
struct progress;
struct secretary {
	struct loop *loop;
	struct spec *spec;
	struct sched *sched;
	struct client *client;
	struct client_where where;
	struct journal *journal;
	struct progress *progress;     /* NULL = silent */
	char id[80], dir[PATH_MAX];
	char *file, *folder;           /* the job file as given; its folder, absolute */
	int dirfd, folderfd, lockfd, watchfd;
	json_t *rows[SPEC_INPUTS];
	int64_t created, began, ended; /* wall ms: the folder was made, the first run began, the last one ended (its last line, if it was killed) */
	int64_t run_began, ran;        /* wall ms of the current run, 0 = none; ms that the runs before it took */
	unsigned runs;
	struct source watch;
	struct err journal_err;
	struct sweep *sweep;
	char leftovers[80];
};

/* values: what {{name}} stands for in a task. ctx of subst is a struct values. */
struct values { struct secretary *s; struct task *t; };
int values_get(void *values, const char *name, json_t **ret, struct err *e);

/* The worker "steps": sched_ops.start and .stop. */
void run_start(void *secretary, struct task *t);
void run_stop(void *secretary, struct task *t);

const json_t *run_steps(const struct task *t);    /* of the attempt that is on, or ends just now; NULL without one */

/* tail: the last lines (each ended by a newline) that the failed one of these steps printed, stderr before stdout; "" = none. */
#define TAIL_MAX 1600
const char *tail_of(const json_t *steps, char out[TAIL_MAX]);
const char *tail_of_task(const json_t *task, char out[TAIL_MAX]);   /* of a task of report_document() */

/* sweep: ends every computer of this job (task NULL), or of one attempt, found by its metadata. */
struct sweep;
struct sweep *sweep_start(struct secretary *s, const char *task, unsigned attempt, void (*done)(void *ctx, int killed, const struct err *e), void *ctx);
void sweep_cancel(struct sweep *w);

/* report.json and report.html from what is on disk and in the scheduler. *ret (may be NULL): the document. */
int report_write(struct secretary *s, json_t **ret, struct err *e);
json_t *report_document(struct secretary *s);

/* job.c: the folder and the life of a job. */
struct job_opts {
	const char *server, *state;    /* of the command line, or NULL */
	int64_t computers;             /* 0 = as the job file says */
	bool quiet;
	bool failed_too;               /* resume: also tasks that failed */
	uint64_t time_ms;              /* what this run may take, instead of what limits.job_time leaves; 0 = that */
	bool cancel;                   /* resume only to end it */
};
int job_check(const char *file, int *ret_tasks, struct err *e);    /* all that can be known before anything starts */
int job_new(const struct job_opts *o, const char *file, struct secretary **ret, struct err *e);
/* look: only to be shown; not locked, not changed. -EBUSY when another secretary runs it. */
int job_load(const struct job_opts *o, const char *id, bool look, struct secretary **ret, struct err *e);
int64_t job_ran(const struct secretary *s);                       /* ms, all runs together */
int job_run(struct secretary *s, const struct job_opts *o, bool again, json_t **ret_doc, struct err *e);
void job_free(struct secretary *s);
bool job_locked(const char *dir);                                                               /* somebody runs it */
/* {id, name, state, created, folder} of each job, newest first. state: running, interrupted, done, failed, stopped, broken. */
const char *job_state(int dirfd, const char *dir);      /* running, interrupted, stopped, failed, done, broken */
int job_list(const char *state, json_t **ret, struct err *e);

int progress_create(struct loop *l, struct secretary *s, bool quiet, struct progress **ret, struct err *e);
void progress_task(struct progress *p, struct task *t);   /* NULL p is fine in all three */
void progress_note(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_free(struct progress *p);
#endif
