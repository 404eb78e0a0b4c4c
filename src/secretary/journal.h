#ifndef SECRETARY_JOURNAL_H
#define SECRETARY_JOURNAL_H
#include <stdbool.h>
#include "core/err.h"
#include "core/json.h"
/* journal -- what happened in a job, one JSON object a line, written before it takes effect.
 *
 * A line is written with one write(): a killed secretary leaves at most one torn line at the end, which is cut off when the
 * journal is opened again. Durable lines (a task's end, a job's begin and end) are also flushed to the disk, so they outlive the
 * machine. */
struct journal;
/* Opens or makes `name` below dirfd, calls each() for every line there is; its negative return ends the opening. A line that isn't
 * JSON anywhere but at the end is -EBADMSG. */
int journal_open(int dirfd, const char *name, int (*each)(void *ctx, const json_t *line, struct err *e), void *ctx, struct journal **ret, struct err *e);
/* Only reads, also while somebody writes: the torn end is passed over. Missing is empty. */
int journal_read(int dirfd, const char *name, int (*each)(void *ctx, const json_t *line, struct err *e), void *ctx, struct err *e);
void journal_close(struct journal *j);
int journal_add(struct journal *j, json_t *line /* stolen */, bool durable, struct err *e);
#endif
