#include "core/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

bool str_ends(const char *s, const char *suffix)
{
	size_t n = strlen(s), k = strlen(suffix);

	return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

bool str_eq_ct(const char *a, const char *b)
{
	size_t n = strlen(a);
	volatile unsigned char diff = 0;

	if (n != strlen(b))
		return false;
	for (size_t i = 0; i < n; i++)
		diff |= (unsigned char)(a[i] ^ b[i]);
	return diff == 0;
}

int str_copy(char *dst, size_t size, const char *src)
{
	size_t n = strnlen(src, size);
	size_t k = n < size ? n : size - 1;

	if (size == 0)
		return -ENAMETOOLONG;
	memcpy(dst, src, k);
	dst[k] = '\0';
	return n < size ? 0 : -ENAMETOOLONG;
}

/* ---- numbers ---- */

/* Digits at *s, moving it on. */
static int digits(const char **s, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (**s < '0' || **s > '9')
		return -EINVAL;
	for (; **s >= '0' && **s <= '9'; (*s)++) {
		uint64_t d = (uint64_t)(**s - '0');

		if (d > max || v > (max - d) / 10)
			return -ERANGE;
		v = v * 10 + d;
	}
	*ret = v;
	return 0;
}

int str_u64(const char *s, uint64_t max, uint64_t *ret)
{
	uint64_t v;
	int r = 0;

	for (const char *c = s; *c; c++)
		if (*c < '0' || *c > '9')
			return -EINVAL;
	r = digits(&s, max, &v);
	if (r < 0)
		return r;
	*ret = v;
	return 0;
}

/* "", "B", "K", "KB", "KiB", ...: the power of 1024, or -1 */
static int size_unit(const char *s)
{
	static const char units[] = "kmgt";
	const char *at;

	if (*s == '\0' || str_eq(s, "B") || str_eq(s, "b"))
		return 0;
	at = strchr(units, *s | 0x20);
	if (!at)
		return -1;
	s++;
	if (*s == '\0' || str_eq(s, "B") || str_eq(s, "b") || str_eq(s, "iB") || str_eq(s, "ib") || str_eq(s, "i"))
		return (int)(at - units) + 1;
	return -1;
}

int str_size(const char *s, uint64_t *ret_bytes, struct err *e)
{
	const char *at = s;
	uint64_t whole = 0, frac = 0, scale = 1;
	int power, r;

	r = digits(&at, UINT64_MAX, &whole);
	if (r == 0 && *at == '.') {
		for (at++; *at >= '0' && *at <= '9' && scale < 1000000; at++, scale *= 10)
			frac = frac * 10 + (uint64_t)(*at - '0');
		if (scale == 1)
			r = -EINVAL;
	}
	if (r == 0 && *at == ' ' && at[1])
		at++;
	power = size_unit(at);
	if (r == -EINVAL || (r == 0 && (power < 0 || (power == 0 && scale > 1))))
		return err_set(e, EINVAL, "'%.40s' is not a size; write it like 512M, 1.5GiB or 4096", s);
	if (r < 0 || whole > UINT64_MAX >> (10 * power))
		return err_set(e, ERANGE, "size '%.40s' is too large", s);
	whole <<= 10 * power;
	frac = (frac << (10 * power)) / scale;
	if (whole > UINT64_MAX - frac)
		return err_set(e, ERANGE, "size '%.40s' is too large", s);
	*ret_bytes = whole + frac;
	return 0;
}

static const struct { const char *name; uint64_t ms; } time_units[] = {
	{ "ms", 1 }, { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 },
};

/* The unit at *s, moving it on; 0 when there is none we know. */
static uint64_t time_unit(const char **s)
{
	for (size_t i = 0; i < sizeof time_units / sizeof *time_units; i++) {
		if (!str_starts(*s, time_units[i].name))
			continue;
		*s += strlen(time_units[i].name);
		return time_units[i].ms;
	}
	return 0;
}

int str_duration(const char *s, uint64_t *ret_ms, struct err *e)
{
	const char *at = s;
	uint64_t sum = 0, last = UINT64_MAX;

	do {
		uint64_t n, unit;
		int r = digits(&at, UINT64_MAX, &n);

		/* a bare number is seconds, but only when it is all there is */
		unit = *at == '\0' && last == UINT64_MAX ? 1000 : time_unit(&at);
		if (r == -EINVAL || (r == 0 && (unit == 0 || unit >= last)))
			return err_set(e, EINVAL, "'%.40s' is not a duration; write it like 90s, 5m, 1h30m or 250ms", s);
		if (r < 0 || n > UINT64_MAX / unit || n * unit > UINT64_MAX - sum)
			return err_set(e, ERANGE, "duration '%.40s' is too long", s);
		sum += n * unit;
		last = unit;
	} while (*at);
	*ret_ms = sum;
	return 0;
}

void str_size_human(uint64_t bytes, char out[16])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	size_t u = 0;

	/* 1023.95 would be shown as 1024.0 */
	while (v >= 1023.95 && u + 1 < sizeof units / sizeof *units) {
		v /= 1024;
		u++;
	}
	if (u == 0)
		snprintf(out, 16, "%u B", (unsigned)bytes);
	else
		snprintf(out, 16, "%.1f %s", v, units[u]);
}

/* ---- character sets ---- */

/* Bytes of the well-formed UTF-8 sequence at p (RFC 3629: shortest form, no surrogates), or 0. */
static size_t utf8_len(const unsigned char *p, size_t n)
{
	size_t k;
	unsigned char lo = 0x80, hi = 0xbf;

	if (p[0] < 0x80)
		return 1;
	k = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : p[0] >= 0xe0 && p[0] <= 0xef ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
	if (k == 0 || k > n)
		return 0;
	switch (p[0]) {
	case 0xe0: lo = 0xa0; break;
	case 0xed: hi = 0x9f; break;
	case 0xf0: lo = 0x90; break;
	case 0xf4: hi = 0x8f; break;
	}
	if (p[1] < lo || p[1] > hi)
		return 0;
	for (size_t i = 2; i < k; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return k;
}

bool str_utf8(const void *p, size_t n)
{
	const unsigned char *s = p;

	while (n) {
		size_t k = utf8_len(s, n);

		if (k == 0)
			return false;
		s += k;
		n -= k;
	}
	return true;
}

static bool lower_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool str_name(const char *s)
{
	size_t n = 0;

	for (; s[n]; n++)
		if (n >= 64 || (!lower_or_digit(s[n]) && (n == 0 || !strchr("._-", s[n]))))
			return false;
	return n > 0;
}

bool str_id(const char *s)
{
	size_t n = 0;

	for (; s[n]; n++)
		if (n >= 32 || !lower_or_digit(s[n]))
			return false;
	return n >= 8;
}

/* ---- random ---- */

void str_random(void *p, size_t n)
{
	unsigned char *at = p;

	while (n) {
		ssize_t r = getrandom(at, n, 0);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			abort();
		at += r;
		n -= (size_t)r;
	}
}

void str_new_id(char out[24])
{
	static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	unsigned char pool[32];
	size_t n = 0, left = 0;

	out[n++] = 'i';
	while (n < 21) {
		unsigned char c;

		if (left == 0) {
			left = sizeof pool;
			str_random(pool, left);
		}
		c = pool[--left];
		if (c < 252)            /* 7 * 36: the rest would favour the first letters */
			out[n++] = set[c % 36];
	}
	out[n] = '\0';
}

/* ---- text that goes into other text ---- */

int str_json(struct buf *out, const char *s, size_t n)
{
	static const char shorts[] = "\b\t\n\f\r", names[] = "btnfr";
	const unsigned char *p = (const unsigned char *)s;
	size_t run = 0;

	buf_addc(out, '"');
	for (size_t i = 0; i < n;) {
		size_t k = utf8_len(p + i, n - i);
		const char *at;

		if (k > 0 && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\') {
			i += k;
			run += k;
			continue;
		}
		buf_add(out, p + i - run, run);
		run = 0;
		if (k == 0)
			buf_adds(out, "\xef\xbf\xbd");
		else if (p[i] == '"' || p[i] == '\\')
			buf_printf(out, "\\%c", p[i]);
		else if (p[i] && (at = strchr(shorts, p[i])))
			buf_printf(out, "\\%c", names[at - shorts]);
		else
			buf_printf(out, "\\u%04x", p[i]);
		i++;
	}
	buf_add(out, p + n - run, run);
	buf_addc(out, '"');
	return buf_ok(out) ? 0 : -ENOSPC;
}

int str_html(struct buf *out, const char *s, size_t n)
{
	static const char from[] = "&<>\"'";
	static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&#39;" };

	for (size_t i = 0; i < n; i++) {
		const char *at = s[i] ? strchr(from, s[i]) : NULL;
		int r = at ? buf_adds(out, to[at - from]) : buf_addc(out, s[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

size_t str_obeyed(const char *s)
{
	const unsigned char *c = (const unsigned char *)s;

	if ((*c && *c < 32) || *c == 127)
		return 1;
	if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
		return 2;
	/* U+202A to U+202E, U+2066 to U+2069 */
	if (c[0] == 0xe2 && ((c[1] == 0x80 && c[2] >= 0xaa && c[2] <= 0xae) || (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9)))
		return 3;
	return 0;
}
