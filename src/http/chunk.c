#include <errno.h>
#include <string.h>

#include "http/parse.h"

/* Theory of operation. One byte, one step, but for body bytes, which are handed out in runs where they lie. A chunk's
 * framing may not cost more than it carries for long: `extra` is the balance of framing bytes against 16 + 2 x body bytes, so
 * that a peer can't make us read gigabytes of extensions for a few bytes of body. */

enum { SIZE_FIRST, SIZE, EXT, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER_FIRST, TRAILER_NAME, TRAILER_VALUE, TRAILER_LF, END_LF, DONE };

void http_chunked_init(struct http_chunked *c)
{
	*c = (struct http_chunked){ .state = SIZE_FIRST };
}

bool http_chunked_done(const struct http_chunked *c)
{
	return c->state == DONE;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int step_size(struct http_chunked *c, char ch)
{
	int v = hex(ch);

	if (c->state == SIZE_FIRST) {
		c->left = 0;
		c->line = 0;
		c->digits = 0;
		if (v < 0)
			return -EBADMSG;
		c->state = SIZE;
	}
	if (v >= 0 && c->state == SIZE) {
		if (++c->digits > 15)
			return -EBADMSG;
		c->left = c->left << 4 | (uint64_t)v;
	} else if (ch == '\r') {
		c->state = SIZE_LF;
	} else if (c->state == SIZE ? ch != ';' : !http_is_value(&ch, 1)) {
		return -EBADMSG;
	} else {
		c->state = EXT;
	}
	return ++c->line > HTTP_MAX_CHUNK_EXT ? -EBADMSG : 0;
}

static int step_size_end(struct http_chunked *c, char ch)
{
	uint64_t pays = 16 + (c->left < 1 << 20 ? 2 * c->left : 1 << 21);

	if (ch != '\n')
		return -EBADMSG;
	c->extra += c->line;
	c->extra = c->extra > pays ? c->extra - (uint32_t)pays : 0;
	if (c->extra > 16384)
		return -EBADMSG;
	c->state = c->left ? DATA : TRAILER_FIRST;
	if (!c->left)
		c->extra = 0;
	return 0;
}

static int step_trailer(struct http_chunked *c, char ch)
{
	if (++c->extra > HTTP_MAX_TRAILER)
		return -EBADMSG;
	if (c->state == TRAILER_FIRST && ch == '\r') {
		c->state = END_LF;
		return 0;
	}
	if (c->state == TRAILER_VALUE) {
		if (ch == '\r')
			c->state = TRAILER_LF;
		return ch == '\r' || http_is_value(&ch, 1) ? 0 : -EBADMSG;
	}
	if (http_is_token(&ch, 1))
		c->state = TRAILER_NAME;
	else if (ch == ':' && c->state == TRAILER_NAME)
		c->state = TRAILER_VALUE;
	else
		return -EBADMSG;
	return 0;
}

static int step(struct http_chunked *c, char ch)
{
	switch (c->state) {
	case SIZE_FIRST: case SIZE: case EXT:
		return step_size(c, ch);
	case SIZE_LF:
		return step_size_end(c, ch);
	case DATA_CR:
		c->state = DATA_LF;
		return ch == '\r' ? 0 : -EBADMSG;
	case DATA_LF:
		c->state = SIZE_FIRST;
		return ch == '\n' ? 0 : -EBADMSG;
	case TRAILER_LF:
		c->state = TRAILER_FIRST;
		return ch == '\n' ? 0 : -EBADMSG;
	case END_LF:
		c->state = DONE;
		return ch == '\n' ? 0 : -EBADMSG;
	default:
		return step_trailer(c, ch);
	}
}

ssize_t http_chunked_next(struct http_chunked *c, const char *p, size_t n, const char **ret_data, size_t *ret_len)
{
	size_t i = 0;

	*ret_data = p;
	*ret_len = 0;
	while (i < n && c->state != DONE) {
		if (c->state == DATA) {
			size_t run = n - i < c->left ? n - i : (size_t)c->left;

			*ret_data = p + i;
			*ret_len = run;
			c->left -= run;
			if (!c->left)
				c->state = DATA_CR;
			return (ssize_t)(i + run);
		}
		int bad = step(c, p[i++]);

		if (bad < 0)
			return bad;
	}
	return (ssize_t)i;
}

uint64_t http_chunked_run(const struct http_chunked *c)
{
	return c->state == DATA ? c->left : 0;
}

void http_chunked_skip(struct http_chunked *c, uint64_t n)
{
	c->left -= n;
	if (!c->left)
		c->state = DATA_CR;
}
