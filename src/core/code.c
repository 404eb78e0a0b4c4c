#include "core/str.h"

#include <errno.h>

/* The encodings of str.h: hex, base64, percent. A decoder that refuses its input leaves the buffer as it found it. */

static const char hex_digits[] = "0123456789abcdef";

/* Takes back what was appended since len was `before`. */
static int undo(struct buf *out, size_t before, int code)
{
	out->len = before;
	if (out->data)
		out->data[out->off + before] = '\0';
	return -code;
}

int str_hex(struct buf *out, const void *p, size_t n)
{
	const unsigned char *s = p;
	char *at = n <= SIZE_MAX / 2 ? buf_reserve(out, n * 2) : NULL;

	if (!at)
		return -ENOSPC;
	for (size_t i = 0; i < n; i++) {
		at[2 * i] = hex_digits[s[i] >> 4];
		at[2 * i + 1] = hex_digits[s[i] & 15];
	}
	buf_commit(out, n * 2);
	return 0;
}

static const char base64_set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int str_base64(struct buf *out, const void *p, size_t n)
{
	const unsigned char *s = p;
	size_t size = n <= SIZE_MAX / 2 ? (n + 2) / 3 * 4 : SIZE_MAX;
	char *at = buf_reserve(out, size);

	if (!at)
		return -ENOSPC;
	for (size_t i = 0; i < n; i += 3, at += 4) {
		unsigned v = (unsigned)s[i] << 16 | (i + 1 < n ? (unsigned)s[i + 1] << 8 : 0) | (i + 2 < n ? s[i + 2] : 0);

		at[0] = base64_set[v >> 18];
		at[1] = base64_set[v >> 12 & 63];
		at[2] = i + 1 < n ? base64_set[v >> 6 & 63] : '=';
		at[3] = i + 2 < n ? base64_set[v & 63] : '=';
	}
	buf_commit(out, size);
	return 0;
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Four letters to `bytes` (1..3) bytes; bits that padding leaves over must be zero, so each text has one spelling. */
static int base64_quad(const char *s, int bytes, char *at)
{
	unsigned v = 0;

	for (int i = 0; i < 4; i++) {
		int d = i <= bytes ? base64_value(s[i]) : s[i] == '=' ? 0 : -1;

		if (d < 0)
			return -EINVAL;
		v = v << 6 | (unsigned)d;
	}
	if (v & (0xffffffu >> (8 * bytes)))
		return -EINVAL;
	for (int i = 0; i < bytes; i++)
		at[i] = (char)(v >> (16 - 8 * i) & 255);
	return 0;
}

int str_base64_decode(const char *s, size_t n, struct buf *out)
{
	size_t size = n / 4 * 3, pad;
	char *at;

	if (n % 4)
		return -EINVAL;
	if (n == 0)
		return 0;
	pad = (s[n - 1] == '=') + (s[n - 1] == '=' && s[n - 2] == '=');
	size -= pad;
	at = buf_reserve(out, size);
	if (!at)
		return -ENOSPC;
	for (size_t i = 0, o = 0; i < n; i += 4, o += 3)
		if (base64_quad(s + i, i + 4 == n ? 3 - (int)pad : 3, at + o) < 0)
			return undo(out, out->len, EINVAL);
	buf_commit(out, size);
	return 0;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
		return (c | 0x20) - 'a' + 10;
	return -1;
}

int str_percent_decode(const char *s, size_t n, bool plus_is_space, struct buf *out)
{
	size_t before = out->len;

	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		int r;

		if (c == '%') {
			int hi = n - i > 2 ? hex_value(s[i + 1]) : -1, lo = n - i > 2 ? hex_value(s[i + 2]) : -1;

			if (hi < 0 || lo < 0)
				return undo(out, before, EINVAL);
			c = (char)(hi << 4 | lo);
			i += 2;
		} else if (c == '+' && plus_is_space) {
			c = ' ';
		}
		if (c == '\0')
			return undo(out, before, EINVAL);
		r = buf_addc(out, c);
		if (r < 0)
			return undo(out, before, -r);
	}
	return 0;
}

int str_percent_encode(struct buf *out, const char *s)
{
	static const char upper[] = "0123456789ABCDEF";

	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~", c);
		char esc[3] = { '%', upper[c >> 4], upper[c & 15] };
		int r = plain ? buf_add(out, s, 1) : buf_add(out, esc, sizeof esc);

		if (r < 0)
			return r;
	}
	return 0;
}
