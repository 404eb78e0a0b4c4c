#include "guest/ring.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "wire/guest_proto.h"

#define FIRST_BYTES 256
#define FIRST_SEGMENTS 4

struct segment { uint64_t start : 56, stream : 8; };

struct ring {
	uint64_t tail, head;
	uint8_t *data;
	size_t cap;                 /* power of two, or 0; after ring_trim any number */
	struct segment *segs;       /* segs[first .. first + n), by start; segs[first].start <= tail */
	size_t first, n, seg_cap;
};

struct ring *ring_create(void)
{
	return calloc(1, sizeof(struct ring));
}

void ring_free(struct ring *r)
{
	if (!r)
		return;
	free(r->data);
	free(r->segs);
	free(r);
}

uint64_t ring_head(const struct ring *r) { return r ? r->head : 0; }
uint64_t ring_tail(const struct ring *r) { return r ? r->tail : 0; }

static bool same_stream(const struct ring *r, uint8_t stream)
{
	return r->n && r->segs[r->first + r->n - 1].stream == stream;
}

size_t ring_room(const struct ring *r, uint8_t stream, uint64_t keep_from)
{
	uint64_t from;

	if (!r)
		return GUEST_RING;
	from = keep_from > r->head ? r->head : keep_from < r->tail ? r->tail : keep_from;
	/* a new segment would push out the oldest one: fine only when nobody needs a byte of it */
	if (r->n == RING_SEGMENTS && !same_stream(r, stream) && r->segs[r->first + 1].start > from)
		return 0;
	return (size_t)(GUEST_RING - (r->head - from));
}

/* Copies [from, from + n) out of a buffer of cap bytes that wraps. */
static void copy_out(const struct ring *r, uint64_t from, uint8_t *to, size_t n)
{
	while (n) {
		size_t at = (size_t)(from % r->cap), now = r->cap - at < n ? r->cap - at : n;

		memcpy(to, r->data + at, now);
		to += now;
		from += now;
		n -= now;
	}
}

/* A buffer of new_cap bytes with the kept ones in their places. */
static bool resize(struct ring *r, size_t new_cap)
{
	uint8_t *data = malloc(new_cap);

	if (!data)
		return false;
	for (uint64_t at = r->tail; at < r->head;) {
		size_t to = (size_t)(at % new_cap), n = new_cap - to;

		if (n > r->head - at)
			n = (size_t)(r->head - at);
		copy_out(r, at, data + to, n);
		at += n;
	}
	free(r->data);
	r->data = data;
	r->cap = new_cap;
	return true;
}

static void grow(struct ring *r, size_t need)
{
	size_t cap = r->cap ? r->cap : FIRST_BYTES;

	while (cap < need && cap < GUEST_RING)
		cap *= 2;
	if (cap != r->cap)
		resize(r, cap);
}

static void forget(struct ring *r, uint64_t tail)
{
	r->tail = tail;
	while (r->n > 1 && r->segs[r->first + 1].start <= tail)
		r->first++, r->n--;
	if (r->n && r->head == tail)
		r->n = 0;
}

static bool add_segment(struct ring *r, uint8_t stream)
{
	if (same_stream(r, stream))
		return true;
	if (r->n == RING_SEGMENTS)
		forget(r, r->segs[r->first + 1].start);
	if (r->first + r->n == r->seg_cap && r->first) {
		memmove(r->segs, r->segs + r->first, r->n * sizeof *r->segs);
		r->first = 0;
	}
	if (r->n == r->seg_cap) {
		size_t cap = r->seg_cap ? r->seg_cap * 2 : FIRST_SEGMENTS;
		struct segment *segs = reallocarray(r->segs, cap, sizeof *segs);

		if (!segs)
			return false;
		r->segs = segs;
		r->seg_cap = cap;
	}
	r->segs[r->first + r->n++] = (struct segment){ .start = r->head, .stream = stream };
	return true;
}

void ring_append(struct ring *r, uint8_t stream, const void *p, size_t n)
{
	const uint8_t *from = p;

	if (r->head - r->tail + n > r->cap)
		grow(r, (size_t)(r->head - r->tail) + n);
	if (n > r->cap || !add_segment(r, stream)) {
		/* no memory even for these, or more than the ring holds: count what is lost */
		size_t lost = n > r->cap && r->cap ? n - r->cap : n;

		forget(r, r->head);
		r->head += lost;
		r->tail = r->head;
		r->n = 0;
		if (lost == n)
			return;
		from += lost;
		n -= lost;
		if (!add_segment(r, stream)) {
			r->head += n;
			r->tail = r->head;
			return;
		}
	}
	if (r->head - r->tail + n > r->cap)
		forget(r, r->head + n - r->cap);
	if (!r->n)      /* everything older went: the segment begins here */
		add_segment(r, stream);
	while (n) {
		size_t at = (size_t)(r->head % r->cap), now = r->cap - at < n ? r->cap - at : n;

		memcpy(r->data + at, from, now);
		from += now;
		r->head += now;
		n -= now;
	}
}

/* The segment that holds offset `from`. */
static size_t find(const struct ring *r, uint64_t from)
{
	size_t lo = r->first, hi = r->first + r->n;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (r->segs[mid].start <= from)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

size_t ring_peek(const struct ring *r, uint64_t from, size_t max, const uint8_t **ret, uint8_t *ret_stream)
{
	size_t i, at, n;
	uint64_t end;

	if (!r || from < r->tail || from >= r->head || !r->n)
		return 0;
	i = find(r, from);
	end = i + 1 < r->first + r->n ? r->segs[i + 1].start : r->head;
	at = (size_t)(from % r->cap);
	n = (size_t)(end - from);
	if (n > r->cap - at)
		n = r->cap - at;
	if (n > max)
		n = max;
	*ret = r->data + at;
	*ret_stream = (uint8_t)r->segs[i].stream;
	return n;
}

void ring_trim(struct ring *r)
{
	size_t len = (size_t)(r->head - r->tail);

	if (len == 0) {
		free(r->data);
		r->data = NULL;
		r->cap = 0;
	} else if (len < r->cap) {
		resize(r, len);
	}
}

void ring_empty(struct ring *r)
{
	free(r->data);
	free(r->segs);
	*r = (struct ring){ .tail = r->head, .head = r->head };
}

size_t ring_bytes(const struct ring *r)
{
	return r ? sizeof *r + r->cap + r->seg_cap * sizeof *r->segs : 0;
}
