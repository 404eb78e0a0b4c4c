#ifndef GUEST_RING_H
#define GUEST_RING_H
#include <stddef.h>
#include <stdint.h>
/* ring -- the newest output of a program, all its streams in the order in which they were read.
 *
 * Offsets count every byte the program ever wrote. Kept are [tail, head). Bytes of one stream that follow each other
 * are one segment; segments are bounded too, so that a program alternating single bytes can't make them grow. Memory
 * is taken as output comes, by doubling up to GUEST_RING. Where there is no memory the oldest bytes go early. */
#define RING_SEGMENTS 4096

struct ring;
struct ring *ring_create(void);                  /* NULL: no memory */
void ring_free(struct ring *r);
uint64_t ring_head(const struct ring *r);        /* 0 for NULL */
uint64_t ring_tail(const struct ring *r);
/* Bytes of `stream` that fit without losing any at or after keep_from. UINT64_MAX = everything may go. */
size_t ring_room(const struct ring *r, uint8_t stream, uint64_t keep_from);
void ring_append(struct ring *r, uint8_t stream, const void *p, size_t n);
/* Bytes at offset `from` (tail <= from < head), of one stream, at most max. */
size_t ring_peek(const struct ring *r, uint64_t from, size_t max, const uint8_t **ret, uint8_t *ret_stream);
void ring_trim(struct ring *r);                  /* no more will come: give back what isn't used */
void ring_empty(struct ring *r);                 /* forget all bytes, keep the count */
size_t ring_bytes(const struct ring *r);         /* memory held */
#endif
