/* Heads and chunked bodies. Besides not crashing: bytes that drip in give the same verdict as bytes that come at once, all
 * offsets are within the head, what is forwarded holds no line break, and a chunked body decodes the same in any pieces. */
#include <stdlib.h>
#include <string.h>

#include "http/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(const struct http_head *h, size_t n, bool request)
{
	if (h->len != n || h->nfields > HTTP_MAX_FIELDS || (h->framing == HTTP_TO_EOF && request))
		abort();
	for (unsigned i = 0; i < h->nfields; i++) {
		const struct http_field *f = &h->fields[i];

		if (f->name + f->name_len >= n || f->value + f->value_len >= n)
			abort();
		if (strlen(http_field_name(h, i)) != f->name_len || strlen(http_field_value(h, i)) != f->value_len)
			abort();
		if (!http_is_token(http_field_name(h, i), f->name_len) || !http_is_value(http_field_value(h, i), f->value_len))
			abort();
		http_is_hop(h, http_field_name(h, i));
	}
	const char *cl = http_head_get(h, "content-length"), *te = http_head_get(h, "transfer-encoding");

	if (cl && te)
		abort();
	if (request && te && h->framing != HTTP_CHUNKED)
		abort();
	if (request && h->target_len && strlen(h->base + h->target) != h->target_len)
		abort();
}

static void head(const char *p, size_t n, bool request)
{
	char *copy = malloc(n + 1);
	uint32_t slow = 0, fast = 0;
	ssize_t end = 0, whole;
	struct http_head h;
	const char *why = "";

	for (size_t i = 1; i <= n && end == 0; i++)
		end = http_head_end(p, i, &slow);
	whole = http_head_end(p, n, &fast);
	if (whole != end)
		abort();
	if (end > 0) {
		memcpy(copy, p, (size_t)end);   /* no byte more, so that reading on is seen */
		copy = realloc(copy, (size_t)end);
		int bad = request ? http_parse_request(copy, (size_t)end, &h, &why) : http_parse_response(copy, (size_t)end, "GET", &h, &why);

		if (bad == 0)
			check(&h, (size_t)end, request);
		else if (!*why)
			abort();
	}
	free(copy);
}

static size_t dechunk(const char *p, size_t n, size_t step, char *out, size_t *ret_len)
{
	struct http_chunked c;
	const char *data;
	size_t at = 0, len;

	*ret_len = 0;
	http_chunked_init(&c);
	while (at < n && !http_chunked_done(&c)) {
		ssize_t used = http_chunked_next(&c, p + at, n - at < step ? n - at : step, &data, &len);

		if (used < 0)
			return SIZE_MAX;
		if (used == 0 || (len && (data < p + at || data + len > p + at + used)))
			abort();
		memcpy(out + *ret_len, data, len);
		*ret_len += len;
		at += (size_t)used;
	}
	return http_chunked_done(&c) ? at : SIZE_MAX - 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	if (n < 1 || n > 20000)
		return 0;
	const char *s = (const char *)p + 1;

	n--;
	if (p[0] % 3 < 2) {
		head(s, n, p[0] % 3 == 0);
		return 0;
	}
	char *a = malloc(n + 1), *b = malloc(n + 1);
	size_t an, bn, ae = dechunk(s, n, n, a, &an), be = dechunk(s, n, 1 + p[0] % 7, b, &bn);

	if (ae != be || (ae < SIZE_MAX - 1 && (an != bn || memcmp(a, b, an) != 0)))
		abort();
	free(a);
	free(b);
	return 0;
}
