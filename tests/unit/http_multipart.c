#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/buf.h"
#include "http/multipart.h"
#include "tap.h"

static struct buf trace = BUF_INIT(1 << 20);
static int refuse_begin;

static int on_begin(void *ctx, const struct http_part *p)
{
	buf_printf(&trace, "[%s|%s|%s:", p->name, p->filename ? p->filename : "-", p->type ? p->type : "-");
	return refuse_begin;
}

static int on_data(void *ctx, const char *p, size_t n)
{
	return buf_add(&trace, p, n);
}

static int on_end(void *ctx)
{
	return buf_adds(&trace, "]");
}

static const struct http_multipart_cb cb = { on_begin, on_data, on_end };

/* The trace of a body fed in pieces of step bytes; "!" when refused */
static const char *run(const char *body, size_t n, size_t step)
{
	struct http_multipart *m;
	struct err e = { 0 };
	int bad = 0;

	buf_clear(&trace);
	if (http_multipart_create("multipart/form-data; charset=x; boundary=\"xyz\"", &cb, NULL, &m, &e) < 0)
		return "no";
	for (size_t at = 0; at < n && bad == 0; at += step)
		bad = http_multipart_feed(m, body + at, n - at < step ? n - at : step, &e);
	if (bad < 0 || http_multipart_finish(m, &e) < 0)
		buf_adds(&trace, "!");
	http_multipart_free(m);
	return buf_at(&trace);
}

static void check(const char *name, const char *body, const char *want)
{
	size_t n = strlen(body);
	bool good = true;

	for (size_t step = 1; step <= n; step++) {
		const char *got = run(body, n, step);
		/* how far it gets before it is refused may depend on the pieces; that it is may not */
		bool bad = want[0] == '!' ? got[strlen(got) - 1] != '!' : strcmp(got, want) != 0;

		if (bad && good)
			printf("# step %zu: got %s\n#  want %s\n", step, got, want);
		good = good && !bad;
	}
	ok(good, "%s", name);
}

#define PART(head, content) "--xyz\r\nContent-Disposition: form-data; " head "\r\n\r\n" content "\r\n"

int main(void)
{
	struct http_multipart *m;
	struct err e;

	check("one field", PART("name=a", "1") "--xyz--\r\n", "[a|-|-:1]");
	check("quoted, file, type", PART("name=\"f\"; filename=\"/home/u/dir/x.txt\"\r\nContent-Type: text/plain", "hello") "--xyz--", "[f|/home/u/dir/x.txt|text/plain:hello]");
	check("two parts, preamble, epilogue", "pre\r\n" PART("name=a", "1") PART("name=b", "2") "--xyz--\r\nafter", "[a|-|-:1][b|-|-:2]");
	check("empty content", PART("name=a", "") "--xyz--", "[a|-|-:]");
	check("no content at all", "--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\n--xyz--", "[a|-|-:]");
	check("CRLFs in content", PART("name=a", "\r\n\r\n--xy\r\n-\r") "--xyz--", "[a|-|-:\r\n\r\n--xy\r\n-\r]");
	check("CR CR LF", PART("name=a", "x\r") "--xyz--", "[a|-|-:x\r]");
	check("a boundary first in the content ends it", "--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\n--xyz--rest", "[a|-|-:]");
	check("boundary in a line is content", PART("name=a", "x--xyz") "--xyz--", "[a|-|-:x--xyz]");
	check("escaped quotes", PART("name=\"a\\\"b\"; filename=\"c\\d\"", "1") "--xyz--", "[a\"b|c\\d|-:1]");
	check("filename*", PART("name=a; filename=\"x\"; filename*=UTF-8''d%C3%A9/%20f", "1") "--xyz--", "[a|d\xc3\xa9/ f|-:1]");
	check("filename* with a NUL", PART("name=a; filename*=UTF-8''d%00", "1") "--xyz--", "!");
	check("empty filename", PART("name=a; filename=\"\"", "1") "--xyz--", "[a||-:1]");
	check("semicolon in quotes", PART("name=\"a;b\"", "1") "--xyz--", "[a;b|-|-:1]");
	check("spaces behind the boundary", "--xyz  \r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--xyz--", "[a|-|-:1]");
	check("no name", PART("x=a", "1") "--xyz--", "!");
	check("no disposition", "--xyz\r\nContent-Type: a\r\n\r\n1\r\n--xyz--", "!");
	check("no head", "--xyz\r\n\r\n1\r\n--xyz--", "!");
	check("two names", PART("name=a; name=b", "1") "--xyz--", "!");
	check("two dispositions", PART("name=a\r\nContent-Disposition: form-data; name=b", "1") "--xyz--", "!");
	check("open quote", PART("name=\"a", "1") "--xyz--", "!");
	check("bare LF in a head", "--xyz\r\nContent-Disposition: form-data; name=a\nX: y\r\n\r\n1\r\n--xyz--", "!");
	check("base64 isn't decoded, so it's refused", PART("name=a\r\nContent-Transfer-Encoding: base64", "1") "--xyz--", "!");
	check("rubbish behind the boundary", "--xyz1\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--xyz--", "!");
	check("never closed", PART("name=a", "1") "--xyz\r\n", "!");
	check("closed by half", PART("name=a", "1") "--xyz-\r\n", "!");

	ok(http_multipart_create("multipart/form-data", &cb, NULL, &m, &e) < 0, "no boundary");
	ok(http_multipart_create("multipart/form-data; boundary=", &cb, NULL, &m, &e) < 0, "empty boundary");
	ok(http_multipart_create("multipart/mixed; boundary=a", &cb, NULL, &m, &e) < 0, "another type");
	ok(http_multipart_create("multipart/form-data; boundary=\"a\x01\"", &cb, NULL, &m, &e) < 0, "control byte");
	ok(http_multipart_create("multipart/form-data; boundary=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &cb, NULL, &m, &e) < 0, "71 bytes");

	struct buf b = BUF_INIT(1 << 20);

	buf_adds(&b, "--xyz\r\nContent-Disposition: form-data; name=a\r\nX: ");
	for (int i = 0; i < 8200; i++)
		buf_addc(&b, 'x');
	buf_adds(&b, "\r\n\r\n1\r\n--xyz--");
	const char *got = run(buf_at(&b), b.len, b.len);

	ok(got[strlen(got) - 1] == '!', "a head over 8 KiB");
	buf_clear(&b);
	for (int i = 0; i < 1001; i++)
		buf_adds(&b, PART("name=a", "1"));
	buf_adds(&b, "--xyz--");
	got = run(buf_at(&b), b.len, b.len);
	ok(got[strlen(got) - 1] == '!', "1001 parts");
	refuse_begin = -ENOSPC;
	if (http_multipart_create("multipart/form-data; boundary=xyz", &cb, NULL, &m, &e) == 0) {
		ok(http_multipart_feed(m, PART("name=a", "1"), strlen(PART("name=a", "1")), &e) == -ENOSPC, "a refusal stops it");
		ok(http_multipart_feed(m, "x", 1, &e) == -ENOSPC, "for good");
		http_multipart_free(m);
	}
	buf_done(&b);
	buf_done(&trace);
	return done_testing();
}
