#ifndef SECRETARY_INPUT_H
#define SECRETARY_INPUT_H
#include "core/json.h"
#include "secretary/spec.h"
/* input -- rows for tasks: a JSON array of objects of strings (and numbers, from JSON Lines).
 *
 * Read once, when a job begins: rows go to DIR/inputs/NAME.json and parts of a split to DIR/inputs/NAME/part-N, so a job that is
 * resumed sees what it began with. Paths are below the job file's folder (folder_fd). host_file may name any file of this
 * machine that everybody may read, in folders that everybody may enter: a job file can't carry off a key. */
#define INPUT_MAX (64u << 20)
#define INPUT_ROWS 10000
#define INPUT_COLUMNS 200
int input_load(const struct spec *s, int index, int folder_fd, int job_fd, json_t **ret_rows, struct err *e);
int input_csv(const char *p, size_t n, json_t **ret_rows, struct err *e);        /* RFC 4180; the first row names the columns */
int input_jsonl(const char *p, size_t n, json_t **ret_rows, struct err *e);
/* Opens a regular file below dirfd: no link and no ".." leads out of it. */
int input_open_below(int dirfd, const char *path, struct err *e);
/* Cuts n bytes into at most `parts` pieces of about one size that end behind a separator; ends[i] is where piece i ends. Returns how many. */
int input_split(const char *p, size_t n, const char *separator, int parts, size_t *ends);
#endif
