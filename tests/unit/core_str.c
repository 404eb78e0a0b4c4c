#include "core/str.h"
#include "tap.h"

#include <errno.h>

static void test_numbers(void)
{
	uint64_t v = 7;

	ok(str_u64("0", 10, &v) == 0 && v == 0, "0");
	ok(str_u64("10", 10, &v) == 0 && v == 10, "max itself");
	ok(str_u64("11", 10, &v) == -ERANGE && v == 10, "above max: refused, result untouched");
	ok(str_u64("18446744073709551615", UINT64_MAX, &v) == 0 && v == UINT64_MAX, "2^64-1");
	ok(str_u64("18446744073709551616", UINT64_MAX, &v) == -ERANGE, "2^64");
	static const char *const bad[] = { "", " 1", "1 ", "+1", "-1", "0x10", "1a", "1.0" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ok(str_u64(bad[i], UINT64_MAX, &v) == -EINVAL, "not a number: '%s'", bad[i]);
}

static void test_size(void)
{
	static const struct { const char *s; int r; uint64_t v; } t[] = {
		{ "4096", 0, 4096 }, { "0", 0, 0 }, { "512M", 0, 512ull << 20 }, { "1.5GiB", 0, 3ull << 29 },
		{ "1K", 0, 1024 }, { "1kB", 0, 1024 }, { "2T", 0, 2ull << 40 }, { "1.5 GiB", 0, 3ull << 29 }, { "3 B", 0, 3 },
		{ "16777215T", 0, 16777215ull << 40 }, { "16777216T", -ERANGE, 0 }, { "99999999999999999999", -ERANGE, 0 },
		{ "", -EINVAL, 0 }, { "M", -EINVAL, 0 }, { "-1M", -EINVAL, 0 }, { "1.5", -EINVAL, 0 }, { "1.M", -EINVAL, 0 },
		{ "1.5X", -EINVAL, 0 }, { "1MM", -EINVAL, 0 }, { "1 ", -EINVAL, 0 }, { "1e3", -EINVAL, 0 }, { "1.2345678G", -EINVAL, 0 },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct err e;
		uint64_t v = 0;
		int r = str_size(t[i].s, &v, &e);

		ok(r == t[i].r && v == t[i].v, "size '%s'", t[i].s);
	}
	char out[16];
	str_size_human(0, out);
	is_str(out, "0 B", "human 0");
	str_size_human(1023, out);
	is_str(out, "1023 B", "human 1023");
	str_size_human(3ull << 29, out);
	is_str(out, "1.5 GiB", "human 1.5 GiB");
	str_size_human((1ull << 20) - 1, out);
	is_str(out, "1.0 MiB", "human just under a MiB rounds up a unit");
	str_size_human(UINT64_MAX, out);
	is_str(out, "16.0 EiB", "human 2^64-1");
}

static void test_duration(void)
{
	static const struct { const char *s; int r; uint64_t v; } t[] = {
		{ "90", 0, 90000 }, { "90s", 0, 90000 }, { "5m", 0, 300000 }, { "1h30m", 0, 5400000 }, { "250ms", 0, 250 },
		{ "0", 0, 0 }, { "2d", 0, 172800000 }, { "1m1s1ms", 0, 61001 }, { "1d2h3m4s5ms", 0, 93784005 },
		{ "", -EINVAL, 0 }, { "s", -EINVAL, 0 }, { "1h30", -EINVAL, 0 }, { "30m1h", -EINVAL, 0 }, { "1m1m", -EINVAL, 0 },
		{ "-5s", -EINVAL, 0 }, { "1.5h", -EINVAL, 0 }, { "5 m", -EINVAL, 0 }, { "5x", -EINVAL, 0 },
		{ "99999999999999999999s", -ERANGE, 0 }, { "18446744073709551615", -ERANGE, 0 }, { "213503982335d", -ERANGE, 0 },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct err e;
		uint64_t v = 0;
		int r = str_duration(t[i].s, &v, &e);

		ok(r == t[i].r && v == t[i].v, "duration '%s'", t[i].s);
	}
	ok(str_duration("x", &(uint64_t){ 0 }, NULL) == -EINVAL, "NULL err is accepted");
}

static void test_utf8(void)
{
	static const struct { const char *s; size_t n; bool good; } t[] = {
		{ "", 0, true }, { "abc", 3, true }, { "\xc3\xa9", 2, true }, { "\xe2\x82\xac", 3, true },
		{ "\xf0\x9f\x98\x80", 4, true }, { "\xf4\x8f\xbf\xbf", 4, true }, { "a\0b", 3, true },
		{ "\x80", 1, false }, { "\xc3", 1, false }, { "\xc0\x80", 2, false }, { "\xc1\xbf", 2, false },
		{ "\xe0\x80\x80", 3, false }, { "\xed\xa0\x80", 3, false }, { "\xf4\x90\x80\x80", 4, false },
		{ "\xf0\x80\x80\x80", 4, false }, { "\xf5\x80\x80\x80", 4, false }, { "\xe2\x82", 2, false }, { "\xff", 1, false },
		{ "\xe2\x28\xa1", 3, false },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++)
		ok(str_utf8(t[i].s, t[i].n) == t[i].good, "UTF-8 case %zu", i);
}

static void test_names(void)
{
	char long_name[66], id[24], other[24];

	memset(long_name, 'a', 65);
	long_name[65] = '\0';
	ok(!str_name(long_name), "65 letters are too many");
	long_name[64] = '\0';
	ok(str_name(long_name), "64 aren't");
	ok(str_name("code-interpreter-v1") && str_name("0.x_y"), "names");
	ok(!str_name("") && !str_name(".a") && !str_name("-a") && !str_name("A") && !str_name("a/b") && !str_name("a b") &&
		!str_name("\xc3\xa9"), "not names");
	ok(str_id("abcdefg1") && !str_id("abcdefg") && !str_id("abcdefg-") && !str_id("ABCDEFGH"), "ids");
	ok(!str_id("a2345678901234567890123456789012x"), "33 is too long for an id");
	str_new_id(id);
	str_new_id(other);
	ok(str_id(id) && strlen(id) == 21 && id[0] == 'i' && !str_eq(id, other), "a new id is an id, and new: %s", id);
}

static void test_base64(void)
{
	static const char *const good[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" },
		{ "foobar", "Zm9vYmFy" }, { "\xff\xfe\xfd", "//79" } };
	static const char *const bad[] = { "Zg=", "Zg", "Z", "Zh==", "Zm9=", "====", "Zg==Zg==", "Zm 9", "Zm9v\n", "Zm9-", "=g==", "Z===" };
	AUTO_BUF struct buf b = BUF_INIT(1000);

	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		buf_clear(&b);
		ok(str_base64(&b, good[i][0], strlen(good[i][0])) == 0, "base64 encodes");
		is_str(buf_at(&b), good[i][1], "to the right letters");
		buf_clear(&b);
		ok(str_base64_decode(good[i][1], strlen(good[i][1]), &b) == 0, "and decodes");
		is_str(buf_at(&b), good[i][0], "back");
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		buf_clear(&b);
		buf_adds(&b, "kept");
		ok(str_base64_decode(bad[i], strlen(bad[i]), &b) == -EINVAL && str_eq(buf_at(&b), "kept"), "base64 refuses case %zu", i);
	}
	unsigned char all[256];
	AUTO_BUF struct buf enc = BUF_INIT(1000), dec = BUF_INIT(1000);
	for (int i = 0; i < 256; i++)
		all[i] = (unsigned char)i;
	ok(str_base64(&enc, all, 256) == 0 && str_base64_decode(buf_at(&enc), enc.len, &dec) == 0 && dec.len == 256 &&
		memcmp(buf_at(&dec), all, 256) == 0, "all 256 byte values survive");
	buf_clear(&b);
	str_hex(&b, "\x00\xff\x1a", 3);
	is_str(buf_at(&b), "00ff1a", "hex");
}

static void test_percent(void)
{
	static const char *const bad[] = { "%", "%4", "%zz", "a%00b", "%4g", "abc%", "%%41" };
	AUTO_BUF struct buf b = BUF_INIT(100);

	ok(str_percent_decode("a%20b+c%2Fd%c3%A9", 17, false, &b) == 0, "percent decodes");
	is_str(buf_at(&b), "a b+c/d\xc3\xa9", "plus stays a plus in a path");
	buf_clear(&b);
	ok(str_percent_decode("a+b", 3, true, &b) == 0, "and is a space");
	is_str(buf_at(&b), "a b", "in a query");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		buf_clear(&b);
		ok(str_percent_decode(bad[i], strlen(bad[i]), false, &b) == -EINVAL && b.len == 0, "percent refuses '%s'", bad[i]);
	}
	ok(str_percent_decode("a\0b", 3, false, &b) == -EINVAL, "a raw NUL too");
	ok(str_percent_decode("%41", 2, false, &b) == -EINVAL, "and an escape the length cuts");
	buf_clear(&b);
	str_percent_encode(&b, "a b/\xc3\xa9~-._%");
	is_str(buf_at(&b), "a%20b%2F%C3%A9~-._%25", "percent encodes");
}

static void test_quoting(void)
{
	AUTO_BUF struct buf b = BUF_INIT(100);

	str_json(&b, "a\"\\\n\x01\x7f\xc3\xa9\xff\0z", 11);
	is_str(buf_at(&b), "\"a\\\"\\\\\\n\\u0001\x7f\xc3\xa9\xef\xbf\xbd\\u0000z\"", "JSON string with everything in it");
	buf_clear(&b);
	str_json(&b, "", 0);
	is_str(buf_at(&b), "\"\"", "empty JSON string");
	buf_clear(&b);
	str_html(&b, "<a href=\"x\">'&'</a>", 19);
	is_str(buf_at(&b), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;", "HTML");
}

static void test_small(void)
{
	char dst[4];

	ok(str_ends("foo.json", ".json") && !str_ends("json", ".json") && str_ends("x", ""), "ends");
	ok(str_eq_ct("secret", "secret") && !str_eq_ct("secret", "secreT") && !str_eq_ct("a", "ab") && str_eq_ct("", ""), "constant time");
	ok(str_copy(dst, sizeof dst, "abc") == 0, "copy that fits");
	ok(str_copy(dst, sizeof dst, "abcd") == -ENAMETOOLONG && str_eq(dst, "abc"), "copy that doesn't is cut and says so");
	ok(str_copy(dst, 0, "a") == -ENAMETOOLONG, "no room at all");
}

static void test_obeyed(void)
{
	static const struct { const char *s; size_t n; } texts[] = {
		{ "\033[31m", 1 }, { "\n", 1 }, { "\x7f", 1 }, { "\xc2\x9b" "31m", 2 }, { "\xc2\x80", 2 }, { "\xc2\x9f", 2 }, { "\xe2\x80\xae", 3 }, { "\xe2\x81\xa6", 3 },
		{ "", 0 }, { "a", 0 }, { "\xc2\xa0", 0 }, { "\xc3\x9b", 0 }, { "\xe2\x80\xa6", 0 }, { "\xe2\x80\xaf", 0 }, { "\xc2", 0 }, { "\xe2\x80", 0 }, { " ", 0 },
	};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		ok(str_obeyed(texts[i].s) == texts[i].n, "text %zu: %zu bytes that a terminal obeys", i, texts[i].n);
}

int main(void)
{
	test_obeyed();
	test_numbers();
	test_size();
	test_duration();
	test_utf8();
	test_names();
	test_base64();
	test_percent();
	test_quoting();
	test_small();
	return done_testing();
}
