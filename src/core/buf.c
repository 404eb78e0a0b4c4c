#include "core/buf.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_FIRST = 128 };

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf)BUF_INIT(max);
}

void buf_done(struct buf *b)
{
	size_t max = b->max;

	free(b->data);
	buf_init(b, max);
}

void buf_clear(struct buf *b)
{
	b->off = b->len = 0;
	b->bad = false;
	if (b->data)
		b->data[0] = '\0';
}

static int fail(struct buf *b, int code)
{
	b->bad = true;
	return -code;
}

/* A larger block; what is in use moves to its front. need <= max. */
static int grow(struct buf *b, size_t need)
{
	size_t cap = b->cap > b->max / 2 ? b->max : b->cap * 2;
	char *data;

	if (cap < BUF_FIRST)
		cap = BUF_FIRST < b->max ? BUF_FIRST : b->max;
	if (cap < need)
		cap = need;
	if (cap == SIZE_MAX)
		return fail(b, ENOMEM);
	if (b->off == 0) {
		data = realloc(b->data, cap + 1);
		if (!data)
			return fail(b, ENOMEM);
	} else {
		data = malloc(cap + 1);
		if (!data)
			return fail(b, ENOMEM);
		memcpy(data, b->data + b->off, b->len);
		free(b->data);
	}
	data[b->len] = '\0';
	b->data = data;
	b->off = 0;
	b->cap = cap;
	return 0;
}

/* Moving costs len bytes, so it pays when at least as much room is won, or when the block can't grow any more. */
static int make_room(struct buf *b, size_t n)
{
	if (b->len > b->max || n > b->max - b->len)
		return fail(b, ENOSPC);
	if (b->data && n <= b->cap - b->off - b->len)
		return 0;
	if (b->data && b->len + n <= b->cap && (b->off >= b->len || b->cap >= b->max)) {
		memmove(b->data, b->data + b->off, b->len + 1);
		b->off = 0;
		return 0;
	}
	return grow(b, b->len + n);
}

char *buf_reserve(struct buf *b, size_t n)
{
	if (make_room(b, n) < 0)
		return NULL;
	return b->data + b->off + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
	b->len += n;
	b->data[b->off + b->len] = '\0';
}

int buf_add(struct buf *b, const void *p, size_t n)
{
	int r;

	if (n == 0)
		return 0;
	r = make_room(b, n);
	if (r < 0)
		return r;
	memcpy(b->data + b->off + b->len, p, n);
	buf_commit(b, n);
	return 0;
}

int buf_adds(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_addc(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	/* the NUL's byte is there too, so exactly filling text needs no second try */
	size_t room = b->data ? b->cap - b->off - b->len + 1 : 0;
	char *at = b->data ? b->data + b->off + b->len : NULL;
	va_list again;
	int n, r;

	va_copy(again, ap);
	n = vsnprintf(at, room, fmt, ap);
	if (n < 0) {
		r = fail(b, EINVAL);
	} else if ((size_t)n < room && (size_t)n <= b->max - b->len) {
		b->len += (size_t)n;
		r = 0;
	} else {
		if (at)
			*at = '\0';
		r = make_room(b, (size_t)n);
		if (r == 0) {
			vsnprintf(b->data + b->off + b->len, (size_t)n + 1, fmt, again);
			b->len += (size_t)n;
		}
	}
	va_end(again);
	return r;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_vprintf(b, fmt, ap);
	va_end(ap);
	return r;
}

void buf_consume(struct buf *b, size_t n)
{
	if (n >= b->len) {
		b->off = b->len = 0;
		if (b->data)
			b->data[0] = '\0';
		return;
	}
	b->off += n;
	b->len -= n;
}

char *buf_take(struct buf *b)
{
	char *out = NULL;

	if (!b->bad) {
		out = malloc(b->len + 1);
		if (out) {
			memcpy(out, buf_at(b), b->len);
			out[b->len] = '\0';
		}
	}
	buf_clear(b);
	return out;
}
