#ifndef SECRETARY_JOB_PRIV_H
#define SECRETARY_JOB_PRIV_H
#include "secretary/secretary.h"
/* jobdir.c makes and opens folders, job.c runs. */
void job_run_over(struct secretary *s);                    /* what it took is counted */
int job_replay_line(void *secretary, const json_t *line, struct err *e);
extern const struct sched_ops job_ops;
#endif
