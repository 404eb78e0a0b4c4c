#ifndef SECRETARY_REPORT_PRIV_H
#define SECRETARY_REPORT_PRIV_H
#include "core/buf.h"
#include "secretary/secretary.h"
/* report.c collects the document and the page's frame, report_task.c writes a task and its files, report_time.c the timeline. */
void html_text(struct buf *b, const char *s);                       /* escaped; NULL = nothing */
void html_ms(struct buf *b, int64_t ms);                            /* "3.2 s", "2 min 5 s" */
void report_timeline(struct buf *b, const json_t *doc);             /* an SVG: attempts over time, a lane a computer */
void report_shown(struct secretary *s, struct buf *b, const json_t *doc);   /* the files with show = true */
void report_task(struct secretary *s, struct buf *b, const json_t *task);
#endif
