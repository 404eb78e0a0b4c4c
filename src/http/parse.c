#include "http/parse.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* Theory of operation. A head is read in two steps. http_head_end() runs over bytes as they arrive, each once, and
 * already refuses what no head may hold, so rubbish is answered before 16 KiB of it have been collected. When the empty
 * line is there the whole head is parsed at once, in place: with everything at hand the parser needs no states, and what it
 * can't put into its table is refused rather than skipped. parse_framing() is the one place that decides where a
 * message ends; server, client and proxy all go by it. */

/* token characters of RFC 9110, a bit each */
static const uint32_t tchar[8] = { 0x00000000, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff };

static bool is_tchar(char c)
{
	return tchar[(unsigned char)c >> 5] >> (c & 31) & 1;
}

static bool is_ctl(unsigned char c)
{
	return (c < 0x20 && c != '\t') || c == 0x7f;
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

ssize_t http_head_end(const char *p, size_t n, uint32_t *scanned)
{
	size_t i = *scanned;

	for (; i < n && i <= HTTP_MAX_HEAD; i++) {
		if (!is_ctl((unsigned char)p[i]))
			continue;
		if (p[i] != '\r')
			return -EBADMSG;
		if (i + 1 == n)
			break;          /* looked at again with the byte behind it */
		if (p[i + 1] != '\n' || i == 0)
			return -EBADMSG;
		if (i >= 2 && p[i - 1] == '\n')
			return i + 2 <= HTTP_MAX_HEAD ? (ssize_t)i + 2 : -E2BIG;
		i++;
	}
	*scanned = (uint32_t)i;
	return i > HTTP_MAX_HEAD ? -E2BIG : 0;
}

bool http_is_token(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!is_tchar(p[i]))
			return false;
	return n > 0;
}

bool http_is_value(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_ctl((unsigned char)p[i]))
			return false;
	return true;
}

bool http_list_has(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; *p;) {
		p += strspn(p, " \t,");
		size_t len = strcspn(p, ","), use = len;

		while (use && (p[use - 1] == ' ' || p[use - 1] == '\t'))
			use--;
		if (use == n && strncasecmp(p, word, n) == 0)
			return true;
		p += len;
	}
	return false;
}

const char *http_head_get(const struct http_head *h, const char *name)
{
	size_t n = strlen(name);

	for (unsigned i = 0; i < h->nfields; i++)
		if (h->fields[i].name_len == n && memcmp(h->base + h->fields[i].name, name, n) == 0)
			return http_field_value(h, i);
	return NULL;
}

bool http_is_hop(const struct http_head *h, const char *name)
{
	static const char *const hop[] = { "connection", "keep-alive", "proxy-connection", "proxy-authenticate",
		"proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade" };

	for (size_t i = 0; i < sizeof hop / sizeof *hop; i++)
		if (strcmp(name, hop[i]) == 0)
			return true;
	for (unsigned i = 0; i < h->nfields; i++)
		if (strcmp(http_field_name(h, i), "connection") == 0 && http_list_has(http_field_value(h, i), name))
			return true;
	return false;
}

bool http_is_host(const char *s, size_t n)
{
	size_t i = 0;

	if (n > 1 && s[0] == '[') {
		for (i = 1; i < n && s[i] != ']'; i++)
			if (!strchr("0123456789abcdefABCDEF:.", s[i]) || !s[i])
				return false;
		if (i < 3 || i++ == n)
			return false;
	} else {
		for (; i < n && s[i] != ':'; i++)
			if (!is_tchar(s[i]) || strchr("#^`|", s[i]))
				return false;
	}
	if (i == 0 || i > 255)
		return false;
	if (i == n)
		return true;
	if (s[i++] != ':' || n - i > 5)
		return false;
	for (; i < n; i++)
		if (s[i] < '0' || s[i] > '9')
			return false;
	return true;
}

/* Fills the table from the lines at *at up to the empty one. Returns 0 or a status. */
static int parse_fields(char *p, size_t n, size_t at, struct http_head *h, const char **why)
{
	h->nfields = 0;
	while (p[at] != '\r') {
		if (h->nfields == HTTP_MAX_FIELDS)
			return *why = "too many header fields", 431;
		struct http_field *f = &h->fields[h->nfields++];
		size_t name = at;

		for (; is_tchar(p[at]); at++)
			p[at] = lower(p[at]);
		if (p[at] != ':' || at == name)
			return *why = "a malformed header line", 400;
		f->name = (uint16_t)name;
		f->name_len = (uint16_t)(at - name);
		p[at++] = 0;
		while (p[at] == ' ' || p[at] == '\t')
			at++;
		/* http_head_end saw a CRLF at each line's end, and no other CR */
		size_t end = (size_t)((char *)memchr(p + at, '\r', n - at) - p), next = end + 2;

		while (end > at && (p[end - 1] == ' ' || p[end - 1] == '\t'))
			end--;
		f->value = (uint16_t)at;
		f->value_len = (uint16_t)(end - at);
		p[end] = 0;
		at = next;
	}
	return 0;
}

struct framing {
	unsigned lengths, codings, hosts, upgrades;
	bool close, keep, upgrade;
	uint64_t length;
	const char *host;
};

static int parse_length(const char *s, uint64_t *ret)
{
	uint64_t v = 0;

	if (!*s || strlen(s) > 18)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		v = v * 10 + (uint64_t)(*s - '0');
	}
	*ret = v;
	return 0;
}

static void parse_connection(const char *v, struct framing *f)
{
	f->close |= http_list_has(v, "close");
	f->keep |= http_list_has(v, "keep-alive");
	f->upgrade |= http_list_has(v, "upgrade");
}

/* Reads the fields that decide about the connection. bad: status for what's malformed, unknown: for a coding we lack. */
static int parse_framing(struct http_head *h, struct framing *f, int bad, int unknown, const char **why)
{
	*f = (struct framing){ 0 };
	for (unsigned i = 0; i < h->nfields; i++) {
		const char *name = http_field_name(h, i), *v = http_field_value(h, i);

		if (strcmp(name, "content-length") == 0) {
			if (f->lengths++ || parse_length(v, &f->length) < 0)
				return *why = "a bad or second Content-Length", bad;
		} else if (strcmp(name, "transfer-encoding") == 0) {
			if (f->codings++)
				return *why = "more than one Transfer-Encoding", bad;
			if (strcasecmp(v, "chunked") != 0)
				return *why = "a transfer coding that isn't chunked", unknown;
		} else if (strcmp(name, "connection") == 0) {
			parse_connection(v, f);
		} else if (strcmp(name, "upgrade") == 0) {
			f->upgrades++;
		} else if (strcmp(name, "host") == 0) {
			f->hosts++;
			f->host = v;
		}
	}
	if (f->lengths && f->codings)
		return *why = "Content-Length with Transfer-Encoding", bad;
	if (f->codings && h->minor == 0)
		return *why = "Transfer-Encoding in HTTP/1.0", bad;
	h->keep_alive = h->minor == 0 ? f->keep && !f->close : !f->close;
	h->upgrade = h->minor == 1 && f->upgrade && f->upgrades;
	return 0;
}

static int parse_version(const char *p, size_t n, struct http_head *h, const char **why)
{
	if (n != 8 || memcmp(p, "HTTP/", 5) || p[6] != '.' || p[5] < '0' || p[5] > '9' || p[7] < '0' || p[7] > '9')
		return *why = "a malformed request line", 400;
	if (p[5] != '1' || p[7] > '1')
		return *why = "an HTTP version other than 1.0 and 1.1", 505;
	h->minor = (uint8_t)(p[7] - '0');
	return 0;
}

static int parse_form(struct http_head *h, const char **why)
{
	const char *method = h->base + h->method, *t = h->base + h->target;
	size_t n = h->target_len;

	if (strcmp(method, "CONNECT") == 0) {
		h->form = HTTP_AUTHORITY;
		if (http_is_host(t, n) && t[n - 1] != ']' && memchr(t, ':', n))
			return 0;
	} else if (*t == '/') {
		h->form = HTTP_ORIGIN;
		return 0;
	} else if (n == 1 && *t == '*' && strcmp(method, "OPTIONS") == 0) {
		h->form = HTTP_ASTERISK;
		return 0;
	} else {
		size_t skip = strncasecmp(t, "http://", 7) == 0 ? 7 : strncasecmp(t, "https://", 8) == 0 ? 8 : 0;

		h->form = HTTP_ABSOLUTE;
		if (skip && http_is_host(t + skip, strcspn(t + skip, "/?")))
			return 0;
	}
	return *why = "a malformed request target", 400;
}

static int parse_request_line(char *p, size_t eol, struct http_head *h, const char **why)
{
	char *sp = memchr(p, ' ', eol);
	size_t method = sp ? (size_t)(sp - p) : 0;

	if (!sp || method > 32 || !http_is_token(p, method))
		return *why = "a malformed request line", 400;
	char *t = sp + 1, *sp2 = memchr(t, ' ', eol - method - 1);

	if (!sp2 || sp2 == t)
		return *why = "a malformed request line", 400;
	if (sp2 - t > HTTP_MAX_TARGET)
		return *why = "a request target that is too long", 414;
	for (char *c = t; c < sp2; c++)
		if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f || *c == '#')
			return *why = "a character in the request target that must be escaped", 400;
	int bad = parse_version(sp2 + 1, eol - (size_t)(sp2 + 1 - p), h, why);

	if (bad)
		return bad;
	*sp = *sp2 = 0;
	h->method = 0;
	h->target = (uint16_t)(t - p);
	h->target_len = (uint16_t)(sp2 - t);
	return parse_form(h, why);
}

int http_parse_request(char *p, size_t n, struct http_head *h, const char **ret_why)
{
	size_t eol = (size_t)((char *)memchr(p, '\r', n) - p);
	struct framing f;
	int bad;

	h->base = p;
	h->len = (uint16_t)n;
	h->status = h->reason = 0;
	if ((bad = parse_request_line(p, eol, h, ret_why)) || (bad = parse_fields(p, n, eol + 2, h, ret_why)) ||
	    (bad = parse_framing(h, &f, 400, 501, ret_why)))
		return bad;
	if (f.hosts > 1 || (f.hosts == 0 && h->minor == 1) || (f.hosts && *f.host && !http_is_host(f.host, strlen(f.host))))
		return *ret_why = "a missing, second or malformed Host", 400;
	const char *expect = h->minor == 1 ? http_head_get(h, "expect") : NULL;

	if (expect && strcasecmp(expect, "100-continue") != 0)
		return *ret_why = "an unknown expectation", 417;
	h->framing = f.codings ? HTTP_CHUNKED : f.length ? HTTP_LENGTH : HTTP_NO_BODY;
	h->length = f.length;
	h->expect_continue = expect && h->framing != HTTP_NO_BODY;
	return 0;
}

int http_parse_response(char *p, size_t n, const char *method, struct http_head *h, const char **ret_why)
{
	size_t eol = (size_t)((char *)memchr(p, '\r', n) - p);
	struct framing f;
	int bad;

	h->base = p;
	h->len = (uint16_t)n;
	h->method = h->target = h->target_len = 0;
	h->expect_continue = false;
	*ret_why = "a malformed status line";
	if (eol < 12 || p[8] != ' ' || parse_version(p, 8, h, ret_why) || (eol > 12 && p[12] != ' '))
		return 502;
	for (int i = 9; i < 12; i++)
		if (p[i] < (i == 9 ? '1' : '0') || p[i] > '9')
			return 502;
	h->status = (uint16_t)((p[9] - '0') * 100 + (p[10] - '0') * 10 + p[11] - '0');
	h->reason = (uint16_t)(eol > 12 ? 13 : 12);
	p[eol] = 0;
	bad = parse_fields(p, n, eol + 2, h, ret_why);
	if (bad || parse_framing(h, &f, 502, 502, ret_why))
		return 502;
	h->length = f.length;
	if (h->status < 200 || h->status == 204 || h->status == 304 || strcmp(method, "HEAD") == 0 ||
	    (strcmp(method, "CONNECT") == 0 && h->status < 300))
		h->framing = HTTP_NO_BODY;
	else if (f.codings)
		h->framing = HTTP_CHUNKED;
	else if (f.lengths)
		h->framing = f.length ? HTTP_LENGTH : HTTP_NO_BODY;
	else
		h->framing = HTTP_TO_EOF;
	if (h->framing == HTTP_TO_EOF)
		h->keep_alive = false;
	return 0;
}

const char *http_reason(int status)
{
	static const struct { int status; const char *text; } reasons[] = {
		{ 100, "Continue" }, { 101, "Switching Protocols" }, { 200, "OK" }, { 201, "Created" }, { 202, "Accepted" },
		{ 204, "No Content" }, { 206, "Partial Content" }, { 301, "Moved Permanently" }, { 302, "Found" },
		{ 303, "See Other" }, { 304, "Not Modified" }, { 307, "Temporary Redirect" }, { 308, "Permanent Redirect" },
		{ 400, "Bad Request" }, { 401, "Unauthorized" }, { 402, "Payment Required" }, { 403, "Forbidden" },
		{ 404, "Not Found" }, { 405, "Method Not Allowed" }, { 406, "Not Acceptable" }, { 407, "Proxy Authentication Required" },
		{ 408, "Request Timeout" }, { 409, "Conflict" }, { 410, "Gone" }, { 411, "Length Required" },
		{ 412, "Precondition Failed" }, { 413, "Content Too Large" }, { 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" }, { 416, "Range Not Satisfiable" }, { 417, "Expectation Failed" },
		{ 421, "Misdirected Request" }, { 422, "Unprocessable Content" }, { 423, "Locked" }, { 425, "Too Early" },
		{ 426, "Upgrade Required" }, { 429, "Too Many Requests" }, { 431, "Request Header Fields Too Large" },
		{ 499, "Client Closed Request" }, { 500, "Internal Server Error" }, { 501, "Not Implemented" },
		{ 502, "Bad Gateway" }, { 503, "Service Unavailable" }, { 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" }, { 507, "Insufficient Storage" },
	};

	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
		if (reasons[i].status == status)
			return reasons[i].text;
	return "Status";
}
