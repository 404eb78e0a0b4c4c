#ifndef CORE_STR_H
#define CORE_STR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "core/buf.h"
#include "core/err.h"
/* str -- text: comparing, numbers with units, encodings. Strict: the whole input must be right. */
static inline bool str_eq(const char *a, const char *b) { return strcmp(a, b) == 0; }
static inline bool str_starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }
bool str_ends(const char *s, const char *suffix);
bool str_eq_ct(const char *a, const char *b);        /* for secrets: time depends on length only */
int str_copy(char *dst, size_t size, const char *src); /* always terminated; -ENAMETOOLONG when cut */

int str_u64(const char *s, uint64_t max, uint64_t *ret);              /* decimal digits only; -EINVAL, -ERANGE */
int str_size(const char *s, uint64_t *ret_bytes, struct err *e);      /* "512M", "1.5GiB", "4096"; K M G T are powers of 1024 */
int str_duration(const char *s, uint64_t *ret_ms, struct err *e);     /* "90", "90s", "5m", "1h30m", "250ms", "0" */
void str_size_human(uint64_t bytes, char out[16]);                    /* "1.5 GiB" */

bool str_utf8(const void *p, size_t n);
/* A name of ours (template, job, tag of a computer): [a-z0-9][a-z0-9._-]*, at most 64 bytes. */
bool str_name(const char *s);
/* A computer's id: [a-z0-9]+, 8..32 bytes. */
bool str_id(const char *s);

int str_hex(struct buf *out, const void *p, size_t n);                /* lower case */
int str_base64(struct buf *out, const void *p, size_t n);             /* standard alphabet, padded */
int str_base64_decode(const char *s, size_t n, struct buf *out);      /* standard alphabet, padding required; -EINVAL */
int str_percent_decode(const char *s, size_t n, bool plus_is_space, struct buf *out); /* -EINVAL on a bad escape or NUL */
int str_percent_encode(struct buf *out, const char *s);               /* all but unreserved (RFC 3986) */
int str_json(struct buf *out, const char *s, size_t n);               /* quoted JSON string; bad UTF-8 becomes U+FFFD */
int str_html(struct buf *out, const char *s, size_t n);               /* & < > " ' escaped */

/* How many bytes at s a terminal would obey or let turn text around, 0 when it shows them: control characters, C1 ones too (U+009B does
 * what ESC [ does), and those that override the direction of writing. */
size_t str_obeyed(const char *s);

/* The candidate nearest to a word that was typed, or NULL when none is near. */
const char *str_nearest(const char *word, const char *const *candidates, size_t n);

void str_random(void *p, size_t n);                                   /* getrandom; aborts if the kernel has none */
/* A new computer's id: "i" + 20 of [a-z0-9] (the form E2B uses). */
void str_new_id(char out[24]);
#endif
