#ifndef CORE_BUF_H
#define CORE_BUF_H
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
/* buf -- a growing byte buffer that is born with its maximum, so no peer can grow it without end.
 *
 * Bytes live at data[off .. off+len). Consuming from the front is O(1); space is reclaimed when it pays.
 * A failed append (over max, or no memory) appends nothing and returns -ENOSPC / -ENOMEM. Once failed, the
 * buffer is marked `bad` so that a run of appends can be checked once at the end with buf_ok().
 * data is always followed by a NUL that len doesn't count (when data isn't NULL). */
struct buf {
	char *data;
	size_t off, len, cap, max;
	bool bad;
};

#define BUF_INIT(maximum) { .max = (maximum) }
void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);                 /* frees; the buffer may be used again */
void buf_clear(struct buf *b);                /* empties, keeps memory, clears bad */

static inline const char *buf_at(const struct buf *b) { return b->data ? b->data + b->off : ""; }
static inline bool buf_ok(const struct buf *b) { return !b->bad; }

int buf_add(struct buf *b, const void *p, size_t n);
int buf_adds(struct buf *b, const char *s);
int buf_addc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vprintf(struct buf *b, const char *fmt, va_list ap);

/* Room for n more bytes: returns where to write, or NULL (and bad). buf_commit says how many were written. */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);
void buf_consume(struct buf *b, size_t n);    /* drop n bytes from the front; n <= len */
char *buf_take(struct buf *b);                /* NUL-terminated copy handed to the caller (free()); buffer is emptied; NULL if bad */

#define AUTO_BUF __attribute__((cleanup(buf_done)))
#endif
