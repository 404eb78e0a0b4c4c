#include "door/names.h"
#include "tap.h"

int main(void)
{
	struct names *t;
	struct addr a4, a6, b4, c4, ring[10];

	ok(names_create(3, &t) == 0, "a table of three");
	struct name *a = names_get(t, "a"), *b = names_get(t, "b");

	ok(a && b && a != b && names_get(t, "a") == a, "one entry a name");
	name_addr4(a, &a4);
	name_addr6(a, &a6);
	name_addr4(b, &b4);
	ok(addr_class(&a4) == ADDR_DOOR && addr_class(&a6) == ADDR_DOOR, "addresses of ours");
	ok(names_find(t, &a4) == a && names_find(t, &a6) == a && names_find(t, &b4) == b, "found by address");
	name_addr4(names_get(t, "c"), &c4);
	name_hold(b);
	names_get(t, "a");
	ok(names_get(t, "d") != NULL && !names_find(t, &c4), "full: the oldest goes");
	ok(names_find(t, &b4) == b, "a held one stays");
	struct name *c = names_get(t, "c");

	ok(c && !names_find(t, &a4), "an address that was given up stands for nothing");
	name_hold(c);
	struct name *d = names_get(t, "d");

	name_hold(d);
	ok(!names_get(t, "e"), "all held: no more names");
	name_release(d);
	ok(names_get(t, "e") != NULL, "until one is released");
	addr_parse("10.0.0.1", &a4);
	ok(!names_find(t, &a4), "not an address of ours");
	addr_parse("fd62:7572:6561::100:1", &a6);
	ok(!names_find(t, &a6), "high bits count");
	names_free(t);
	ok(names_create(10, &t) == 0, "a table of ten");
	char text[32];
	int good = 1;

	for (int i = 0; i < 200000; i++) {
		snprintf(text, sizeof text, "n%d", i);
		struct name *n = names_get(t, text);

		name_addr4(n, &a4);
		good &= names_find(t, &a4) == n && (i < 10 || !names_find(t, &ring[i % 10]));
		ring[i % 10] = a4;
	}
	ok(good, "numbers wrap round the range");
	names_free(t);
	return done_testing();
}
