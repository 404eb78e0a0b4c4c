#include "wire/msg.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static uint8_t mem[MSG_MAX];

static void roundtrip(void)
{
	const char *const in[] = { "a", "", "ccc" };
	const char *out[5];
	struct msg_writer w;
	struct msg_reader r;
	struct err e = { 0 };
	size_t n;

	msg_writer_init(&w, mem, sizeof mem, 7, 0xfedcba98);
	msg_put_u8(&w, 0xab);
	msg_put_u16(&w, 0xabcd);
	msg_put_u32(&w, 0xdeadbeef);
	msg_put_u64(&w, 0x0123456789abcdefULL);
	msg_put_str(&w, "hello");
	msg_put_str(&w, NULL);
	msg_put_bytes(&w, "x\0y", 3);
	msg_put_strv(&w, in, 3);
	ok(!w.bad, "writes");
	ok(mem[0] == 7 && mem[1] == 0 && mem[4] == 0x98 && mem[8] == 0xab && mem[9] == 0xcd, "is little endian");
	ok(msg_reader_init(&r, mem, w.len, NULL, 0, &e) == 0, "head is good");
	ok(r.type == 7 && r.id == 0xfedcba98, "type and id");
	ok(msg_get_u8(&r) == 0xab && msg_get_u16(&r) == 0xabcd && msg_get_u32(&r) == 0xdeadbeef, "small numbers");
	ok(msg_get_u64(&r) == 0x0123456789abcdefULL, "u64");
	is_str(msg_get_str(&r, 5), "hello", "str");
	is_str(msg_get_str(&r, 0), "", "empty str");
	ok(memcmp(msg_get_bytes(&r, 3, &n), "x\0y", 3) == 0 && n == 3, "bytes keep their NUL");
	ok(msg_get_strv(&r, out, 4, 10) == 3 && !out[3], "list");
	is_str(out[2], "ccc", "item");
	ok(msg_reader_end(&r, &e) == 0, "all of it was read");
	for (size_t cut = 0; cut < w.len; cut++) {
		int good = msg_reader_init(&r, mem, cut, NULL, 0, &e) == 0;

		if (!good)
			continue;
		msg_get_u8(&r), msg_get_u16(&r), msg_get_u32(&r), msg_get_u64(&r);
		msg_get_str(&r, 5), msg_get_str(&r, 5), msg_get_bytes(&r, 3, &n), msg_get_strv(&r, out, 4, 10);
		if (msg_reader_end(&r, &e) != -EPROTO)
			ok(0, "cut at %zu is seen", cut);
	}
	ok(1, "every cut is seen");
}

static void faults(void)
{
	const char *out[3];
	struct msg_writer w;
	struct msg_reader r;
	struct err e = { 0 };
	size_t n;

	msg_writer_init(&w, mem, 20, 1, 1);
	msg_put_str(&w, "0123456789");
	ok(w.bad && w.len <= 20, "a writer stops at its end");
	msg_writer_init(&w, mem, sizeof mem, 1, 1);
	msg_put_bytes(&w, "a\0b", 4);
	msg_reader_init(&r, mem, w.len, NULL, 0, &e);
	is_str(msg_get_str(&r, 10), "", "a NUL inside a str is a fault");
	ok(msg_reader_end(&r, &e) == -EPROTO, "said once at the end");
	msg_writer_init(&w, mem, sizeof mem, 1, 1);
	msg_put_str(&w, "abc");
	msg_put_u8(&w, 1);
	msg_reader_init(&r, mem, w.len, NULL, 0, &e);
	is_str(msg_get_str(&r, 2), "", "longer than max");
	ok(msg_get_u64(&r) == 0, "zero after a fault");
	ok(msg_reader_end(&r, &e) == -EPROTO, "bad");
	msg_reader_init(&r, mem, w.len, NULL, 0, &e);
	is_str(msg_get_str(&r, 3), "abc", "exactly max");
	ok(msg_reader_end(&r, &e) == -EPROTO, "trailing bytes: %s", e.msg);
	msg_writer_init(&w, mem, sizeof mem, 1, 1);
	msg_put_u32(&w, 0xffffffff);
	msg_reader_init(&r, mem, w.len, NULL, 0, &e);
	ok(msg_get_strv(&r, out, 2, 9) == 0 && !out[0], "a huge count");
	ok(msg_reader_end(&r, &e) == -EPROTO, "bad");
	msg_reader_init(&r, mem, w.len, NULL, 0, &e);
	msg_get_bytes(&r, 0xffffffff, &n);
	ok(n == 0 && msg_reader_end(&r, &e) == -EPROTO, "a huge length");
	ok(msg_reader_init(&r, mem, 7, NULL, 0, &e) == -EPROTO, "no head");
}

static void descriptors(void)
{
	struct msg_writer w;
	struct msg_reader r;
	struct err e = { 0 };
	int a = open("/dev/null", O_RDONLY), b = dup(a), got;
	int fds[2] = { a, b };

	msg_writer_init(&w, mem, sizeof mem, 1, 1);
	msg_put_fd(&w, a);
	msg_put_fd(&w, b);
	ok(msg_reader_init(&r, mem, w.len, fds, 2, &e) == 0, "two descriptors");
	got = msg_take_fd(&r);
	ok(got == a, "the first is taken");
	ok(msg_reader_end(&r, &e) == -EPROTO, "one was left: %s", e.msg);
	ok(fcntl(b, F_GETFD) < 0 && fcntl(a, F_GETFD) >= 0, "it's closed, the taken one isn't");
	ok(msg_reader_init(&r, mem, w.len, fds, 1, &e) == -EPROTO, "a wrong number of them");
	ok(fcntl(a, F_GETFD) < 0, "closed");
	msg_writer_init(&w, mem, sizeof mem, 1, 1);
	msg_reader_init(&r, mem, w.len, NULL, 0, &e);
	ok(msg_take_fd(&r) == -1 && r.bad, "none to take");
	for (int i = 0; i < MSG_FDS + 1; i++)
		msg_put_fd(&w, 0);
	ok(w.bad, "too many to write");
}

int main(void)
{
	roundtrip();
	faults();
	descriptors();
	return done_testing();
}
