#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/parse.h"
#include "http/url.h"
#include "tap.h"

static const char *why;

/* The status a request gets: 0 = accepted, 1 = incomplete */
static int verdict_n(const char *text, size_t n, struct http_head *h)
{
	static char buf[65536];
	uint32_t scanned = 0;
	ssize_t end = 0;

	memcpy(buf, text, n);
	for (size_t i = 1; i <= n && end == 0; i++)     /* byte by byte, as it may drip in */
		end = http_head_end(buf, i, &scanned);
	scanned = 0;
	if (http_head_end(buf, n, &scanned) != end)
		return -1;
	if (end == 0)
		return 1;
	if (end < 0)
		return end == -E2BIG ? 431 : 400;
	return http_parse_request(buf, (size_t)end, h, &why);
}

static int verdict(const char *text)
{
	struct http_head h;

	return verdict_n(text, strlen(text), &h);
}

#define REQ(line, fields) line " HTTP/1.1\r\nHost: a\r\n" fields "\r\n"

static const struct { const char *name, *text; int want; } requests[] = {
	{ "plain", REQ("GET /", ""), 0 },
	{ "incomplete", "GET / HTTP/1.1\r\nHost: a\r\n", 1 },
	{ "length", REQ("POST /", "Content-Length: 5\r\n"), 0 },
	{ "chunked", REQ("POST /", "Transfer-Encoding: chunked\r\n"), 0 },
	{ "Chunked in capitals", REQ("POST /", "Transfer-Encoding: CHUNKED\r\n"), 0 },
	{ "length and coding", REQ("POST /", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400 },
	{ "coding and length", REQ("POST /", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400 },
	{ "two lengths", REQ("POST /", "Content-Length: 5\r\nContent-Length: 6\r\n"), 400 },
	{ "two equal lengths", REQ("POST /", "Content-Length: 5\r\nContent-Length: 5\r\n"), 400 },
	{ "a list of lengths", REQ("POST /", "Content-Length: 5, 5\r\n"), 400 },
	{ "signed length", REQ("POST /", "Content-Length: +5\r\n"), 400 },
	{ "negative length", REQ("POST /", "Content-Length: -5\r\n"), 400 },
	{ "hex length", REQ("POST /", "Content-Length: 0x5\r\n"), 400 },
	{ "empty length", REQ("POST /", "Content-Length: \r\n"), 400 },
	{ "huge length", REQ("POST /", "Content-Length: 99999999999999999999\r\n"), 400 },
	{ "length with a vertical tab", REQ("POST /", "Content-Length: \v5\r\n"), 400 },
	{ "coding list", REQ("POST /", "Transfer-Encoding: gzip, chunked\r\n"), 501 },
	{ "identity coding", REQ("POST /", "Transfer-Encoding: identity\r\n"), 501 },
	{ "coding with a tail", REQ("POST /", "Transfer-Encoding: chunked;q=1\r\n"), 501 },
	{ "xchunked", REQ("POST /", "Transfer-Encoding: xchunked\r\n"), 501 },
	{ "two codings", REQ("POST /", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400 },
	{ "coding with a control byte", REQ("POST /", "Transfer-Encoding: \x0b" "chunked\r\n"), 400 },
	{ "space before the colon", REQ("POST /", "Transfer-Encoding : chunked\r\n"), 400 },
	{ "tab before the colon", REQ("POST /", "Content-Length\t: 5\r\n"), 400 },
	{ "folded line", REQ("GET /", "A: b\r\n c\r\n"), 400 },
	{ "fold with tab", REQ("GET /", "A: b\r\n\tc\r\n"), 400 },
	{ "fold first", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400 },
	{ "bare LF in the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400 },
	{ "bare LF in a field", REQ("GET /", "A: b\nC: d\r\n"), 400 },
	{ "bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400 },
	{ "bare CR", REQ("GET /", "A: b\rC: d\r\n"), 400 },
	{ "CR CR LF", "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 400 },
	{ "empty line first", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "no colon", REQ("GET /", "Nocolon\r\n"), 400 },
	{ "empty name", REQ("GET /", ": x\r\n"), 400 },
	{ "name with a space", REQ("GET /", "A B: x\r\n"), 400 },
	{ "name with a bracket", REQ("GET /", "A(b): x\r\n"), 400 },
	{ "control byte in a value", REQ("GET /", "A: \x01\r\n"), 400 },
	{ "DEL in a value", REQ("GET /", "A: \x7f\r\n"), 400 },
	{ "high bytes in a value", REQ("GET /", "A: \xc3\xa9\r\n"), 0 },
	{ "tab in a value", REQ("GET /", "A: b\tc\r\n"), 0 },
	{ "empty value", REQ("GET /", "A:\r\n"), 0 },
	{ "no host", "GET / HTTP/1.1\r\n\r\n", 400 },
	{ "two hosts", REQ("GET /", "Host: b\r\n"), 400 },
	{ "host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400 },
	{ "host with user", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400 },
	{ "host with a list", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400 },
	{ "host with IPv6", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 0 },
	{ "host empty", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 0 },
	{ "1.0 without host", "GET / HTTP/1.0\r\n\r\n", 0 },
	{ "1.0 with coding", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
	{ "2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505 },
	{ "h2 preface", "PRI * HTTP/2.0\r\n\r\n", 505 },
	{ "1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505 },
	{ "0.9", "GET /\r\n\r\n", 400 },
	{ "version in small letters", "GET / http/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "version with a tail", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400 },
	{ "two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "tab for space", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "method with a colon", "GE:T / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "empty method", " / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "long method", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "TLS hello", "\x16\x03\x01\x02", 400 },
	{ "target with high bytes", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "target with fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "relative target", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "absolute target", "GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", 0 },
	{ "absolute target with user", "GET http://u@b/x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "absolute ftp", "GET ftp://b/x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "connect", "CONNECT b:443 HTTP/1.1\r\nHost: b\r\n\r\n", 0 },
	{ "connect without port", "CONNECT b HTTP/1.1\r\nHost: b\r\n\r\n", 400 },
	{ "connect to a path", "CONNECT /x HTTP/1.1\r\nHost: b\r\n\r\n", 400 },
	{ "options star", "OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n", 0 },
	{ "get star", "GET * HTTP/1.1\r\nHost: b\r\n\r\n", 400 },
	{ "unknown expectation", REQ("POST /", "Expect: 200-ok\r\nContent-Length: 1\r\n"), 417 },
};

static void test_requests(void)
{
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
		int got = verdict(requests[i].text);

		if (!ok(got == requests[i].want, "request: %s", requests[i].name))
			printf("#  got %d want %d\n", got, requests[i].want);
	}
	struct http_head h;
	static const char nul[] = "GET / HTTP/1.1\r\nHost: a\r\nA: b\0c\r\n\r\n";

	ok(verdict_n(nul, sizeof nul - 1, &h) == 400, "request: NUL in a value");
	static const char nul2[] = "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n";

	ok(verdict_n(nul2, sizeof nul2 - 1, &h) == 400, "request: NUL in the target");
}

static void test_limits(void)
{
	char *p = malloc(65536);
	int n = sprintf(p, "GET / HTTP/1.1\r\nHost: a\r\n");

	for (int i = 0; i < 99; i++)
		n += sprintf(p + n, "h%d: v\r\n", i);
	strcpy(p + n, "\r\n");
	ok(verdict(p) == 0, "100 fields");
	strcpy(p + n, "x: y\r\n\r\n");
	ok(verdict(p) == 431, "101 fields");
	n = sprintf(p, "GET / HTTP/1.1\r\nHost: a\r\nA: ");
	memset(p + n, 'x', 16384 - (size_t)n - 4);
	strcpy(p + 16384 - 4, "\r\n\r\n");
	ok(verdict(p) == 0, "a head of 16 KiB");
	strcpy(p + 16384 - 4, "x\r\n\r\n");
	ok(verdict(p) == 431, "one byte more");
	memset(p, 'x', 20000);
	p[20000] = 0;
	ok(verdict(p) == 431, "16 KiB without a line");
	n = sprintf(p, "GET /");
	memset(p + n, 'x', 8191);
	strcpy(p + n + 8191, " HTTP/1.1\r\nHost: a\r\n\r\n");
	ok(verdict(p) == 0, "a target of 8 KiB");
	strcpy(p + n + 8191, "x HTTP/1.1\r\nHost: a\r\n\r\n");
	ok(verdict(p) == 414, "a longer one");
	free(p);
}

static void test_head(void)
{
	static const char text[] = "POST /a%20b?c=d HTTP/1.1\r\nHost: Example.com:80\r\nX-Thing:   one two \t\r\nCONNECTION: Upgrade, x-hop\r\n"
		"Upgrade: websocket\r\nExpect: 100-continue\r\nContent-Length: 12\r\nX-Hop: 1\r\n\r\n";
	struct http_head h;

	ok(verdict_n(text, sizeof text - 1, &h) == 0, "a rich head");
	is_str(h.base + h.method, "POST", "method");
	is_str(h.base + h.target, "/a%20b?c=d", "target");
	is_str(http_head_get(&h, "x-thing"), "one two", "value without the space around it");
	is_str(http_head_get(&h, "host"), "Example.com:80", "host");
	ok(!http_head_get(&h, "x-thin"), "no field by half a name");
	ok(h.framing == HTTP_LENGTH && h.length == 12 && h.expect_continue && h.upgrade && h.keep_alive, "what it means");
	ok(http_is_hop(&h, "x-hop") && http_is_hop(&h, "upgrade") && !http_is_hop(&h, "x-thing"), "fields of one connection");
	ok(verdict_n("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 46, &h) == 0 && !h.keep_alive, "close");
	ok(verdict_n("GET / HTTP/1.0\r\n\r\n", 18, &h) == 0 && !h.keep_alive, "1.0 closes");
	ok(verdict_n("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 42, &h) == 0 && h.keep_alive, "1.0 that asks to be kept");
	ok(verdict_n("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 47, &h) == 0 && h.framing == HTTP_NO_BODY, "length 0");
}

static int response(const char *text, const char *method, struct http_head *h)
{
	static char buf[8192];
	uint32_t scanned = 0;

	memcpy(buf, text, strlen(text));
	ssize_t end = http_head_end(buf, strlen(text), &scanned);

	return end <= 0 ? 502 : http_parse_response(buf, (size_t)end, method, h, &why);
}

static void test_responses(void)
{
	struct http_head h;

	ok(response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET", &h) == 0 && h.status == 200 && h.framing == HTTP_LENGTH, "length");
	is_str(h.base + h.reason, "OK", "reason");
	ok(response("HTTP/1.1 200\r\n\r\n", "GET", &h) == 0 && h.framing == HTTP_TO_EOF && !h.keep_alive, "until the end");
	ok(response("HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n", "GET", &h) == 0 && h.framing == HTTP_CHUNKED, "chunked");
	ok(response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD", &h) == 0 && h.framing == HTTP_NO_BODY && h.length == 3, "HEAD");
	ok(response("HTTP/1.1 304 Not\r\nContent-Length: 3\r\n\r\n", "GET", &h) == 0 && h.framing == HTTP_NO_BODY, "304");
	ok(response("HTTP/1.1 204 No\r\n\r\n", "GET", &h) == 0 && h.framing == HTTP_NO_BODY, "204");
	ok(response("HTTP/1.1 101 Sw\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "GET", &h) == 0 && h.upgrade, "101");
	ok(response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", &h) == 502, "both");
	ok(response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", "GET", &h) == 502, "two lengths");
	ok(response("HTTP/1.1 20x OK\r\n\r\n", "GET", &h) == 502, "bad status");
	ok(response("HTTP/1.1 2000 OK\r\n\r\n", "GET", &h) == 502, "four digits");
	ok(response("HTTP/1.1\r\n\r\n", "GET", &h) == 502, "no status");
	ok(response("HTTP/2.0 200 OK\r\n\r\n", "GET", &h) == 502, "2.0");
	ok(response("ICY 200 OK\r\n\r\n", "GET", &h) == 502, "not HTTP");
}

/* Decodes in pieces of step bytes. Returns the body length, -1 = refused, -2 = not finished; *ret_used = bytes taken. */
static int dechunk(const char *text, size_t n, size_t step, char *out, size_t *ret_used)
{
	struct http_chunked c;
	const char *data;
	size_t len, at = 0, total = 0;

	http_chunked_init(&c);
	while (at < n && !http_chunked_done(&c)) {
		ssize_t used = http_chunked_next(&c, text + at, n - at < step ? n - at : step, &data, &len);

		if (used < 0)
			return -1;
		memcpy(out + total, data, len);
		total += len;
		at += (size_t)used;
	}
	out[total] = 0;
	*ret_used = at;
	return http_chunked_done(&c) ? (int)total : -2;
}

static const struct { const char *name, *text; int want; } chunks[] = {
	{ "one chunk", "5\r\nhello\r\n0\r\n\r\n", 5 },
	{ "two, hex, extension", "5;a=b\r\nhello\r\n00B\r\n hello worl\r\n0\r\n\r\n", 16 },
	{ "data longer than its second size", "5\r\nhello\r\nb\r\n hello there\r\n0\r\n\r\n", -1 },
	{ "hex in capitals", "A\r\n0123456789\r\n0\r\n\r\n", 10 },
	{ "trailer", "1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n", 1 },
	{ "extension", "1;q=\"x y\"\r\nx\r\n0;z\r\n\r\n", 1 },
	{ "empty", "0\r\n\r\n", 0 },
	{ "cut", "5\r\nhel", -2 },
	{ "bare LF after the size", "1\nx\r\n0\r\n\r\n", -1 },
	{ "bare LF after data", "1\r\nx\n0\r\n\r\n", -1 },
	{ "bare LF in an extension", "1;a\nx\r\n0\r\n\r\n", -1 },
	{ "no size", "\r\nx\r\n0\r\n\r\n", -1 },
	{ "0x", "0x1\r\nx\r\n0\r\n\r\n", -1 },
	{ "space before size", " 1\r\nx\r\n0\r\n\r\n", -1 },
	{ "space after size", "1 \r\nx\r\n0\r\n\r\n", -1 },
	{ "minus", "-1\r\nx\r\n0\r\n\r\n", -1 },
	{ "17 digits", "00000000000000001\r\nx\r\n0\r\n\r\n", -1 },
	{ "overflow", "ffffffffffffffff\r\nx", -1 },
	{ "data too long", "1\r\nxy\r\n0\r\n\r\n", -1 },
	{ "trailer without colon", "0\r\nA\r\n\r\n", -1 },
	{ "trailer folded", "0\r\nA: b\r\n c\r\n\r\n", -1 },
	{ "trailer with space", "0\r\nA : b\r\n\r\n", -1 },
	{ "control byte in an extension", "1;\x01\r\nx\r\n0\r\n\r\n", -1 },
	{ "CR CR", "1\r\rx\r\n0\r\n\r\n", -1 },
};

static void test_chunks(void)
{
	static char out[1 << 20], text[1 << 20];
	size_t used;

	for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
		size_t n = strlen(chunks[i].text);
		int want = chunks[i].want, got = dechunk(chunks[i].text, n, n, out, &used), slow = dechunk(chunks[i].text, n, 1, out, &used);

		ok(got == want && slow == want, "chunked: %s (%d)", chunks[i].name, got);
	}
	ok(dechunk("1\r\nx\r\n0\r\n\r\nGET", 14, 14, out, &used) == 1 && used == 11, "what follows is left alone");
	int n = sprintf(text, "1;");

	memset(text + n, 'a', 1020);
	strcpy(text + n + 1020, "\r\nx\r\n0\r\n\r\n");
	ok(dechunk(text, strlen(text), 4096, out, &used) == 1, "an extension of 1 KiB");
	memset(text + n, 'a', 1030);
	strcpy(text + n + 1030, "\r\nx\r\n0\r\n\r\n");
	ok(dechunk(text, strlen(text), 4096, out, &used) == -1, "a longer one");
	n = 0;
	for (int i = 0; i < 100; i++) {
		n += sprintf(text + n, "1;");
		memset(text + n, 'a', 900);
		n += 900 + sprintf(text + n + 900, "\r\nx\r\n");
	}
	ok(dechunk(text, (size_t)n, 4096, out, &used) == -1, "framing that outweighs the body");
	n = 0;
	for (int i = 0; i < 20000; i++)
		n += sprintf(text + n, "1\r\nx\r\n");
	n += sprintf(text + n, "0\r\n\r\n");
	ok(dechunk(text, (size_t)n, 4096, out, &used) == 20000, "many small chunks are fine");
	n = sprintf(text, "0\r\n");
	for (int i = 0; i < 200; i++)
		n += sprintf(text + n, "abcdefghij: klmnopqrstuvwxyz\r\n");
	n += sprintf(text + n, "\r\n");
	ok(dechunk(text, (size_t)n, 4096, out, &used) == -1, "trailers over 4 KiB");
}

static void test_range(void)
{
	static const struct { const char *v; int want; uint64_t from, to; } t[] = {
		{ "bytes=0-4", 1, 0, 5 }, { "bytes=5-", 1, 5, 10 }, { "bytes=-3", 1, 7, 10 }, { "bytes=-30", 1, 0, 10 }, { "bytes=9-9", 1, 9, 10 },
		{ "bytes=0-99999999999999999999999", 1, 0, 10 }, { "bytes=10-", -ERANGE, 0, 0 }, { "bytes=-0", -ERANGE, 0, 0 },
		{ "bytes=99999999999999999999-", -ERANGE, 0, 0 }, { "bytes=5-4", 0, 0, 0 }, { "bytes=0-1,3-4", 0, 0, 0 }, { "bytes=", 0, 0, 0 },
		{ "bytes=-", 0, 0, 0 }, { "lines=0-4", 0, 0, 0 }, { "bytes=a-b", 0, 0, 0 }, { "bytes=0-4x", 0, 0, 0 },
	};
	char date[32];
	int64_t when;

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		uint64_t from = 0, to = 0;
		int got = http_parse_range(t[i].v, 10, &from, &to);

		ok(got == t[i].want && (got != 1 || (from == t[i].from && to == t[i].to)), "range %s", t[i].v);
	}
	http_date(784111777, date);
	is_str(date, "Sun, 06 Nov 1994 08:49:37 GMT", "date");
	ok(http_parse_date(date, &when) == 0 && when == 784111777, "date back");
	ok(http_parse_date("Mon, 06 Nov 1994 08:49:37 GMT", &when) < 0, "wrong weekday");
	ok(http_parse_date("Sunday, 06-Nov-94 08:49:37 GMT", &when) < 0, "old form");
}

static void test_url(void)
{
	struct http_url u;
	struct err e;
	char name[64], value[64], out[64];
	size_t pos = 0;
	uint16_t port;

	ok(http_url_parse("https://Example.com/a?b=c#d", &u, &e) == 0 && u.tls && u.port == 443 && u.target_len == 6, "https");
	is_str(u.authority, "example.com", "authority");
	ok(http_url_parse("http://[::1]:8080", &u, &e) == 0 && u.port == 8080 && u.target_len == 0, "v6");
	is_str(u.host, "::1", "host of v6");
	is_str(u.authority, "[::1]:8080", "authority of v6");
	ok(http_url_parse("http://a:80/", &u, &e) == 0 && strcmp(u.authority, "a") == 0, "default port");
	ok(http_url_parse("http://u:p@a/", &u, &e) < 0, "user info");
	ok(http_url_parse("http:///x", &u, &e) < 0, "no host");
	ok(http_url_parse("http://a:99999/", &u, &e) < 0, "port too large");
	ok(http_url_parse("ftp://a/", &u, &e) < 0, "ftp");
	ok(http_url_parse("http://a/ b", &u, &e) < 0, "space");
	ok(http_url_parse("http://a/\r\nX: y", &u, &e) < 0, "line break");
	ok(http_split_host("a.b:1", 5, out, sizeof out, &port) == 0 && port == 1, "split");
	ok(http_split_host("a:0", 3, out, sizeof out, &port) == 0 && port == 0, "port 0, to listen on");
	ok(http_path_decode("/a%20b%2fc?x", 12, out) == 6 && strcmp(out, "/a b/c") == 0, "path");
	ok(http_path_decode("/%", 2, out) < 0 && http_path_decode("/%0", 3, out) < 0 && http_path_decode("/%zz", 4, out) < 0, "bad escapes");
	ok(http_path_decode("/%00", 4, out) < 0 && http_path_decode("/%0a", 4, out) < 0, "NUL and control bytes");
	const char *q = "a=1+2&&b&c=%26&%zz=1&d=";

	ok(http_query_next(q, strlen(q), &pos, name, value) == 1 && !strcmp(name, "a") && !strcmp(value, "1 2"), "query a");
	ok(http_query_next(q, strlen(q), &pos, name, value) == 1 && !strcmp(name, "b") && !*value, "query b");
	ok(http_query_next(q, strlen(q), &pos, name, value) == 1 && !strcmp(name, "c") && !strcmp(value, "&"), "query c");
	ok(http_query_next(q, strlen(q), &pos, name, value) == -EINVAL && !*name && !*value, "bad escape");
	ok(http_query_next(q, strlen(q), &pos, name, value) == 1 && !strcmp(name, "d") && !*value, "query d");
	ok(http_query_next(q, strlen(q), &pos, name, value) == 0, "end");
}

int main(void)
{
	test_requests();
	test_limits();
	test_head();
	test_responses();
	test_chunks();
	test_range();
	test_url();
	return done_testing();
}
