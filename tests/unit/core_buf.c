#include "core/buf.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

static void test_basics(void)
{
	AUTO_BUF struct buf b = BUF_INIT(100);
	char *s;

	is_str(buf_at(&b), "", "an empty buffer reads as an empty string");
	ok(buf_adds(&b, "hello") == 0 && buf_addc(&b, ' ') == 0 && buf_add(&b, "world", 5) == 0, "appends");
	is_str(buf_at(&b), "hello world", "in order, NUL-terminated");
	buf_consume(&b, 6);
	is_str(buf_at(&b), "world", "consume drops from the front");
	ok(b.len == 5, "and len says so");
	s = buf_take(&b);
	is_str(s, "world", "take hands a copy over");
	ok(b.len == 0, "and empties");
	free(s);
	buf_consume(&b, 0);
	ok(buf_add(&b, NULL, 0) == 0 && b.len == 0, "nothing appended is fine");
}

static void test_max(void)
{
	AUTO_BUF struct buf b = BUF_INIT(10);
	AUTO_BUF struct buf none = BUF_INIT(0);

	ok(buf_add(&b, "0123456789", 10) == 0, "exactly max fits");
	ok(buf_addc(&b, 'x') == -ENOSPC && !buf_ok(&b), "one more doesn't, and marks it bad");
	is_str(buf_at(&b), "0123456789", "a failed append appends nothing");
	ok(buf_take(&b) == NULL, "a bad buffer can't be taken");
	ok(buf_ok(&b) && b.len == 0, "taking starts it anew");
	ok(buf_add(&b, "0123456789", 10) == 0, "full again");
	buf_consume(&b, 3);
	ok(buf_add(&b, "abc", 3) == 0, "what was consumed is room again");
	is_str(buf_at(&b), "3456789abc", "and nothing got lost");
	ok(buf_reserve(&b, 1) == NULL, "no reservation past max");
	buf_clear(&b);
	ok(buf_ok(&b), "clear clears bad");
	ok(buf_add(&b, "x", (size_t)-1) == -ENOSPC, "a size near SIZE_MAX doesn't wrap");
	ok(buf_addc(&none, 'x') == -ENOSPC, "max 0 takes nothing");
	ok(buf_add(&none, "", 0) == 0, "but nothing it takes");
}

static void test_printf(void)
{
	AUTO_BUF struct buf b = BUF_INIT(300);
	char big[400];

	ok(buf_printf(&b, "%d-%s", 42, "x") == 0, "printf");
	is_str(buf_at(&b), "42-x", "formats");
	memset(big, 'y', sizeof big);
	big[296] = '\0';
	ok(buf_printf(&b, "%s", big) == 0 && b.len == 300, "printf to exactly max");
	ok(buf_printf(&b, "z") == -ENOSPC && b.len == 300 && strlen(buf_at(&b)) == 300, "past max: nothing, still terminated");
	buf_consume(&b, 250);
	b.bad = false;
	ok(buf_printf(&b, "%.200s", big) == 0 && b.len == 250, "printf into the room that was consumed");
	ok(buf_printf(&b, "%.51s", big) == -ENOSPC, "max counts what is there, not the block");
}

/* A queue through a small buffer, checked against a counter: grows, moves and wraps many times. */
static void test_stream(void)
{
	AUTO_BUF struct buf b = BUF_INIT(1000);
	unsigned char in = 0, out = 0;
	unsigned seed = 1;
	int good = 1;

	for (int turn = 0; turn < 20000; turn++) {
		size_t n = (seed = seed * 1103515245 + 12345) >> 16 & 127;

		if (seed >> 30 & 1) {
			char *at = n <= b.max - b.len ? buf_reserve(&b, n) : NULL;

			for (size_t i = 0; at && i < n; i++)
				at[i] = (char)in++;
			if (at)
				buf_commit(&b, n);
		} else {
			if (n > b.len)
				n = b.len;
			for (size_t i = 0; i < n; i++)
				good &= (unsigned char)buf_at(&b)[i] == out++;
			buf_consume(&b, n);
		}
		good &= b.len <= b.max && (!b.data || b.data[b.off + b.len] == '\0');
	}
	ok(good && buf_ok(&b), "20,000 random appends and consumes keep order and stay below max");
	ok(b.cap <= b.max, "the block never grew past max");
}

int main(void)
{
	test_basics();
	test_max();
	test_printf();
	test_stream();
	return done_testing();
}
