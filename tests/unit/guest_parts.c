/* The parts that need no computer: ring, paths, passwd lines, environment. */
#include "guest/env.h"
#include "guest/path.h"
#include "guest/ring.h"
#include "guest/users.h"
#include "tap.h"
#include "wire/guest_proto.h"

#include <stdlib.h>

static char model[4u << 20];           /* every byte ever appended */
static uint8_t model_kind[4u << 20];

static bool agrees(const struct ring *r)
{
	for (uint64_t at = ring_tail(r); at < ring_head(r);) {
		const uint8_t *p;
		uint8_t kind;
		size_t n = ring_peek(r, at, 1000, &p, &kind);

		if (!n || memcmp(p, model + at, n) != 0)
			return false;
		for (size_t i = 0; i < n; i++)
			if (model_kind[at + i] != kind)
				return false;
		at += n;
	}
	return true;
}

static void ring(void)
{
	struct ring *r = ring_create();
	size_t total = 0, bytes;
	bool good = true;

	ok(ring_room(NULL, 1, 0) == GUEST_RING && ring_head(NULL) == 0, "no ring yet");
	ok(ring_bytes(r) < 200, "nothing is allocated before there is output");
	srandom(7);
	while (total < sizeof model - 70000) {
		size_t n = 1 + (size_t)random() % (random() % 8 ? 50 : 32768);
		uint8_t kind = (uint8_t)(1 + random() % 2);

		for (size_t i = 0; i < n; i++) {
			model[total + i] = (char)random();
			model_kind[total + i] = kind;
		}
		ring_append(r, kind, model + total, n);
		total += n;
		if (random() % 16 == 0)
			good &= agrees(r);
	}
	ok(good && agrees(r) && ring_head(r) == total, "keeps the newest of %zu bytes", total);
	ok(ring_head(r) - ring_tail(r) <= GUEST_RING && ring_bytes(r) < GUEST_RING + 100000, "bounded");
	ok(ring_room(r, 1, ring_tail(r)) <= 70000 && ring_room(r, 1, UINT64_MAX) == GUEST_RING, "room");
	ok(ring_room(r, 1, ring_head(r) - 100) == GUEST_RING - 100, "room for a reader that is nearly there");
	ring_trim(r);
	ok(agrees(r), "trimmed");
	ring_free(r);

	r = ring_create();
	for (size_t i = 0; i < 100000; i++) {
		model[i] = 'x';
		model_kind[i] = (uint8_t)(1 + i % 2);
		ring_append(r, model_kind[i], "x", 1);
	}
	bytes = ring_bytes(r);
	ok(bytes < 200000 && agrees(r) && ring_head(r) == 100000, "single bytes of two streams in turn stay bounded: %zu", bytes);
	ok(ring_room(r, (uint8_t)(1 + 100000 % 2), ring_tail(r)) == 0, "no room for one more while the oldest is needed");
	ring_free(r);
}

static void paths(void)
{
	static const struct { const char *in, *out; } t[] = {
		{ "", "/home/u" }, { "~", "/home/u" }, { "~/x", "/home/u/x" }, { "x", "/home/u/x" }, { "/", "/" }, { "//a//b/", "/a/b" },
		{ "/a/./b/../c", "/a/c" }, { "/../../x", "/x" }, { "../../..", "/" }, { "~x", "/home/u/~x" }, { "a/..", "/home/u" }, { "/a/...", "/a/..." },
	};
	char out[GUEST_PATH + 1], lengthy[5000];
	struct err e;

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		path_resolve(t[i].in, "/home/u", out, sizeof out, &e);
		is_str(out, t[i].out, "'%s'", t[i].in);
	}
	memset(lengthy, 'a', sizeof lengthy);
	lengthy[sizeof lengthy - 1] = '\0';
	ok(path_resolve(lengthy, "/", out, sizeof out, &e) < 0, "%s", "too long");
}

static void fields(void)
{
	char line[] = "user:x:1000::/home/user", *f[7];

	ok(users_fields(line, f, 7) == 5, "five fields");
	is_str(f[0], "user", "first");
	is_str(f[3], "", "empty");
	is_str(f[4], "/home/user", "last");
}

static void environment(void)
{
	struct env e;

	ok(env_init(&e, 3) == 0, "made");
	env_set(&e, "A=1");
	env_set(&e, "AB=2");
	env_set(&e, "A=3");
	env_set(&e, "nonsense");
	env_set(&e, "=x");
	ok(e.n == 2, "no doubles, no nonsense");
	is_str(env_get(&e, "A"), "3", "the later wins");
	env_set(&e, "C=1");
	env_set(&e, "D=1");
	ok(e.n == 3 && !e.v[3] && !env_get(&e, "D"), "bounded");
	env_done(&e);
}

int main(void)
{
	ring();
	paths();
	fields();
	environment();
	return done_testing();
}
