#ifndef HTTP_READER_H
#define HTTP_READER_H
#include "http/parse.h"
#include "http/stream.h"
/* reader -- the response side of a connection, for client and proxy: bytes in, a head, then runs of body. Inside http only.
 * Holds memory only while it holds bytes. */
struct http_reader {
	char *in;
	uint32_t off, len, scanned;
	uint64_t left, total;           /* body bytes due (HTTP_LENGTH); bytes ever read */
	bool have_head, done, may_read;
	struct http_head head;          /* its strings are good until the next call but http_reader_reset */
	struct http_chunked chunked;
};
void http_reader_reset(struct http_reader *rd);         /* next message; keeps unread bytes */
void http_reader_done(struct http_reader *rd);
/* Reads from the stream: > 0, 0 = end, -EAGAIN, other = broken. */
ssize_t http_reader_fill(struct http_reader *rd, struct http_stream *st);
/* A head in the buffer? 1 (and done is set when no body follows), 0 = more bytes are needed, negative = not HTTP. */
int http_reader_head(struct http_reader *rd, const char *method, const char **ret_why);
/* The next run of body in the buffer: 1, 0 = none there, negative = not HTTP. Sets done. */
int http_reader_body(struct http_reader *rd, const char **ret_data, size_t *ret_len);
/* The stream has ended: 0 = that was the end of the message, negative = it was cut. */
int http_reader_eof(struct http_reader *rd);
#endif
