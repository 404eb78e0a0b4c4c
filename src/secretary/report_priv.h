#ifndef SECRETARY_REPORT_PRIV_H
#define SECRETARY_REPORT_PRIV_H
#include "core/buf.h"
#include "secretary/secretary.h"
/* report.c collects the document and the page's frame, report_task.c writes a task and its files, report_time.c the timeline, report_asked.c the
 * job file. */
void html_text(struct buf *b, const char *s);                       /* escaped; NULL = nothing */
void html_ms(struct buf *b, int64_t ms);                            /* "3.2 s", "2 min 5 s" */
void report_timeline(struct buf *b, const json_t *doc);             /* an SVG: attempts over time, a lane a computer */
void report_shown(struct secretary *s, struct buf *b, const json_t *doc);   /* the files with show = true */
void report_task(struct secretary *s, struct buf *b, const json_t *task);
json_t *report_asked(const struct spec *spec);                       /* report_asked.c: tasks and steps of the job file */
void report_asked_page(struct buf *b, const json_t *asked);
#endif
