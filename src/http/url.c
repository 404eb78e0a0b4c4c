#include "http/url.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/str.h"
#include "http/parse.h"

int http_split_host(const char *s, size_t n, char *ret_host, size_t size, uint16_t *ret_port)
{
	const char *h = s, *end, *colon;
	uint32_t port = 0;

	if (!http_is_host(s, n))
		return -EINVAL;
	if (*s == '[') {
		h++;
		end = memchr(s, ']', n);
		colon = end + 1 < s + n ? end + 1 : NULL;
	} else {
		colon = memchr(s, ':', n);
		end = colon ? colon : s + n;
	}
	if ((size_t)(end - h) >= size)
		return -EINVAL;
	if (colon) {
		for (const char *p = colon + 1; p < s + n; p++)
			port = port * 10 + (uint32_t)(*p - '0');
		if (port > 65535)
			return -EINVAL;
	}
	for (size_t i = 0; i < (size_t)(end - h); i++)
		ret_host[i] = (char)(h[i] >= 'A' && h[i] <= 'Z' ? h[i] + 32 : h[i]);
	ret_host[end - h] = 0;
	*ret_port = (uint16_t)port;
	return 0;
}

int http_url_parse(const char *s, struct http_url *ret, struct err *e)
{
	struct http_url u = { .port = 80 };
	size_t skip = 7, n;
	uint16_t port;

	if (strncasecmp(s, "https://", 8) == 0) {
		u.tls = true;
		u.port = 443;
		skip = 8;
	} else if (strncasecmp(s, "http://", 7) != 0) {
		return err_set(e, EINVAL, "'%.100s' isn't an http:// or https:// address", s);
	}
	s += skip;
	n = strcspn(s, "/?#");
	if (http_split_host(s, n, u.host, sizeof u.host, &port) < 0)
		return err_set(e, EINVAL, "'%.*s' isn't a host", n > 100 ? 100 : (int)n, s);
	bool v6 = strchr(u.host, ':') != NULL;

	struct buf b = BUF_INIT(sizeof u.authority - 1);

	buf_printf(&b, v6 ? "[%s]" : "%s", u.host);
	if (port && port != u.port) {
		buf_printf(&b, ":%u", port);
		u.port = port;
	}
	if (buf_ok(&b))
		memcpy(u.authority, buf_at(&b), b.len + 1);
	buf_done(&b);
	u.target = s + n;
	u.target_len = strcspn(u.target, "#");
	for (size_t i = 0; i < u.target_len; i++)
		if ((unsigned char)u.target[i] <= 0x20 || (unsigned char)u.target[i] >= 0x7f)
			return err_set(e, EINVAL, "an address with a character that must be escaped");
	if (u.target_len > HTTP_MAX_TARGET)
		return err_set(e, EINVAL, "an address of more than %d bytes", HTTP_MAX_TARGET);
	*ret = u;
	return 0;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes s[0..n) to out, NUL-terminated; text: control bytes are refused too */
static ssize_t unescape(const char *s, size_t n, bool plus, bool text, char *out)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		char c = s[i];

		if (c == '%') {
			if (n - i < 3 || hex(s[i + 1]) < 0 || hex(s[i + 2]) < 0)
				return -EINVAL;
			c = (char)(hex(s[i + 1]) << 4 | hex(s[i + 2]));
			i += 2;
		} else if (c == '+' && plus) {
			c = ' ';
		}
		if (c == 0 || (text && ((unsigned char)c < 0x20 || c == 0x7f)))
			return -EINVAL;
		out[len++] = c;
	}
	out[len] = 0;
	return (ssize_t)len;
}

int http_path_decode(const char *target, size_t n, char *out)
{
	const char *q = memchr(target, '?', n);

	return (int)unescape(target, q ? (size_t)(q - target) : n, false, true, out);
}

int http_query_next(const char *q, size_t n, size_t *pos, char *name, char *value)
{
	while (*pos < n && q[*pos] == '&')
		++*pos;
	if (*pos >= n)
		return 0;
	const char *p = q + *pos, *amp = memchr(p, '&', n - *pos);
	size_t len = amp ? (size_t)(amp - p) : n - *pos;
	const char *eq = memchr(p, '=', len);
	size_t nlen = eq ? (size_t)(eq - p) : len, vlen = eq ? len - nlen - 1 : 0;

	*pos += len;
	if (unescape(p, nlen, true, false, name) >= 0 && unescape(p + len - vlen, vlen, true, false, value) >= 0)
		return 1;
	*name = *value = 0;
	return -EINVAL;
}
