#include "http/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { READER_SIZE = 32768 };

void http_reader_reset(struct http_reader *rd)
{
	rd->scanned = 0;
	rd->left = rd->total = 0;
	rd->have_head = rd->done = false;
	http_chunked_init(&rd->chunked);
}

void http_reader_done(struct http_reader *rd)
{
	free(rd->in);
	rd->in = NULL;
	rd->off = rd->len = 0;
}

ssize_t http_reader_fill(struct http_reader *rd, struct http_stream *st)
{
	if (!rd->in && !(rd->in = malloc(READER_SIZE)))
		return -ENOMEM;
	if (rd->off && rd->len)
		memmove(rd->in, rd->in + rd->off, rd->len);
	rd->off = 0;
	size_t room = READER_SIZE - rd->len;
	ssize_t n = http_stream_read(st, rd->in + rd->len, room);

	if (n > 0) {
		rd->len += (uint32_t)n;
		rd->total += (uint64_t)n;
	}
	if (n == -EAGAIN || (n > 0 && (size_t)n < room && http_stream_plain(st)))
		rd->may_read = false;
	if (!rd->len)
		http_reader_done(rd);
	return n;
}

int http_reader_head(struct http_reader *rd, const char *method, const char **ret_why)
{
	ssize_t end = rd->len ? http_head_end(rd->in + rd->off, rd->len, &rd->scanned) : 0;

	if (end == 0)
		return 0;
	*ret_why = end == -E2BIG ? "a response head that is too large" : "a byte that no head may hold";
	if (end < 0)
		return (int)end;
	if (http_parse_response(rd->in + rd->off, (size_t)end, method, &rd->head, ret_why) != 0)
		return -EBADMSG;
	rd->off += (uint32_t)end;
	rd->len -= (uint32_t)end;
	rd->scanned = 0;
	rd->have_head = true;
	rd->left = rd->head.length;
	rd->done = rd->head.framing == HTTP_NO_BODY;
	return 1;
}

int http_reader_body(struct http_reader *rd, const char **ret_data, size_t *ret_len)
{
	ssize_t used;

	if (rd->done)
		return 0;
	if (!rd->len) {
		http_reader_done(rd);
		return 0;
	}
	*ret_data = rd->in + rd->off;
	*ret_len = rd->len;
	if (rd->head.framing == HTTP_LENGTH) {
		if (*ret_len > rd->left)
			*ret_len = (size_t)rd->left;
		rd->left -= *ret_len;
		rd->done = rd->left == 0;
	} else if (rd->head.framing == HTTP_CHUNKED) {
		used = http_chunked_next(&rd->chunked, rd->in + rd->off, rd->len, ret_data, ret_len);
		if (used < 0)
			return (int)used;
		rd->done = http_chunked_done(&rd->chunked);
		rd->off += (uint32_t)used;
		rd->len -= (uint32_t)used;
		return 1;
	}
	rd->off += (uint32_t)*ret_len;
	rd->len -= (uint32_t)*ret_len;
	return 1;
}

int http_reader_eof(struct http_reader *rd)
{
	if (!rd->have_head || rd->head.framing != HTTP_TO_EOF)
		return -ECONNRESET;
	rd->done = true;
	return 0;
}
