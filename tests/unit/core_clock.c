#include "core/clock.h"
#include "core/log.h"
#include "core/fd.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

static void test_format(void)
{
	static const struct { int64_t ms; const char *s; } t[] = {
		{ 0, "1970-01-01T00:00:00.000Z" }, { 1, "1970-01-01T00:00:00.001Z" }, { -1, "1969-12-31T23:59:59.999Z" },
		{ 951782400000, "2000-02-29T00:00:00.000Z" }, { 1796069110399, "2026-11-30T20:05:10.399Z" },
		{ 253402300799999, "9999-12-31T23:59:59.999Z" }, { -62167219200000, "0000-01-01T00:00:00.000Z" },
	};
	char out[32];
	int64_t back;

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		clock_rfc3339(t[i].ms, out);
		is_str(out, t[i].s, "formats");
		ok(clock_parse_rfc3339(out, &back) == 0 && back == t[i].ms, "and reads back %s", out);
	}
	clock_rfc3339(INT64_MAX, out);
	is_str(out, "9999-12-31T23:59:59.999Z", "what can't be said is cut to the last");
	clock_rfc3339(INT64_MIN, out);
	is_str(out, "0000-01-01T00:00:00.000Z", "or first that can");
	int good = 1;
	for (int64_t ms = -62167219200000; ms < 253402300800000; ms += 86400000LL * 97 + 12345678) {
		clock_rfc3339(ms, out);
		good &= clock_parse_rfc3339(out, &back) == 0 && back == ms;
	}
	ok(good, "round trip over ten thousand years");
}

static void test_parse(void)
{
	static const struct { const char *s; int64_t ms; } good[] = {
		{ "1970-01-01T00:00:00Z", 0 }, { "1970-01-01t00:00:00z", 0 }, { "1970-01-01 00:00:00.5Z", 500 },
		{ "1970-01-01T01:00:00+01:00", 0 }, { "1969-12-31T23:30:00-00:30", 0 }, { "1970-01-01T00:00:00.123456789Z", 123 },
		{ "1970-01-01T00:00:60Z", 60000 },
	};
	static const char *const bad[] = { "", "1970-01-01", "1970-01-01T00:00:00", "1970-13-01T00:00:00Z", "1970-00-01T00:00:00Z",
		"1970-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "1970-01-32T00:00:00Z", "1970-01-00T00:00:00Z", "1970-01-01T24:00:00Z",
		"1970-01-01T00:60:00Z", "1970-01-01T00:00:61Z", "1970-01-01T00:00:00.Z", "1970-01-01T00:00:00Zx", "1970-1-01T00:00:00Z",
		"1970-01-01T00:00:00+0100", "1970-01-01T00:00:00+24:00", "1970-01-01X00:00:00Z", "+970-01-01T00:00:00Z",
		"1970-01-01T00:00:00.1234567890Z" };
	int64_t ms = 5;

	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		ok(clock_parse_rfc3339(good[i].s, &ms) == 0 && ms == good[i].ms, "reads %s", good[i].s);
	ms = 5;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ok(clock_parse_rfc3339(bad[i], &ms) == -EINVAL && ms == 5, "refuses '%s'", bad[i]);
}

/* What log_line() writes, caught in a pipe. */
static void test_log(void)
{
	int fds[2], saved = dup(2);
	char got[8192];
	ssize_t n;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return;
	dup2(fds[1], 2);
	unsetenv("BUREAU_LOG");
	log_init("tester", LOG_INFO);
	errno = EDOM;
	log_info("peer said '%s'", "a\nb\x1b[2J\x7f\t\xc3\xa9");
	log_debug("not shown");
	int kept = errno == EDOM;
	n = read(fds[0], got, sizeof got - 1);
	got[n > 0 ? n : 0] = '\0';
	setenv("BUREAU_LOG", "debug", 1);
	log_init("tester", LOG_ERROR);
	char big[5000];
	memset(big, '\n', sizeof big);
	big[sizeof big - 1] = '\0';
	log_debug("%s", big);
	char longer[8192];
	n = read(fds[0], longer, sizeof longer - 1);
	longer[n > 0 ? n : 0] = '\0';
	dup2(saved, 2);
	ok(kept, "errno is left alone");
	ok(strlen(got) > 25 && got[24] != '\0', "a line came");
	is_str(got + 24, " info tester: peer said 'a\\x0ab\\x1b[2J\\x7f\\x09\xc3\xa9'\n", "with control bytes escaped, and no debug line");
	ok(n > 100 && strchr(longer, '\n') == longer + n - 1, "BUREAU_LOG decides the level; too long is cut to one line");
	unsetenv("BUREAU_LOG");
	close(saved);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	int64_t a = clock_mono_ms();

	test_format();
	test_parse();
	test_log();
	ok(clock_mono_ms() >= a && clock_mono_us() / 1000 >= a && clock_wall_ms() > 1700000000000, "clocks run");
	return done_testing();
}
