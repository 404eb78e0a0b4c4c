#include "core/map.h"
#include "tap.h"

#include <stdlib.h>

enum { N = 100000 };

static char *value_of(int i)
{
	static char base[N + 1];

	return base + i;
}

static void test_strings(void)
{
	struct map *m;
	char key[32], *v;
	int good = 1;

	ok(map_create(&m) == 0, "create");
	ok(map_get(m, "x") == NULL && map_del(m, "x") == NULL && map_count(m) == 0, "an empty map has nothing");
	for (int i = 0; i < N; i++) {
		snprintf(key, sizeof key, "key-%d", i);
		good &= map_put(m, key, value_of(i)) == 0;
	}
	ok(good && map_count(m) == N, "100,000 keys go in");
	for (int i = 0; i < N; i++) {
		snprintf(key, sizeof key, "key-%d", i);
		good &= map_get(m, key) == value_of(i);
	}
	ok(good, "and are found");
	ok(map_get(m, "key-100000") == NULL && map_get(m, "") == NULL, "others aren't");
	for (int i = 0; i < N; i += 2) {
		snprintf(key, sizeof key, "key-%d", i);
		v = map_del(m, key);
		good &= v == value_of(i) && map_get(m, key) == NULL;
	}
	ok(good && map_count(m) == N / 2, "half go out");
	for (int i = 1; i < N; i += 2) {
		snprintf(key, sizeof key, "key-%d", i);
		good &= map_get(m, key) == value_of(i);
	}
	ok(good, "the other half is still found");
	ok(map_put(m, "key-1", value_of(7)) == 0 && map_count(m) == N / 2 && map_get(m, "key-1") == value_of(7), "put replaces");
	ok(map_put(m, "", value_of(9)) == 0 && map_get(m, "") == value_of(9), "the empty key is a key");
	map_free(m);
	map_free(NULL);
}

/* Many short-lived keys: tombstones must not fill the table or grow it without end. */
static void test_churn(void)
{
	struct map *m;
	int good = 1;

	map_create(&m);
	for (uint64_t i = 0; i < 300000; i++) {
		good &= map_put_u64(m, i, value_of((int)(i % N))) == 0;
		if (i >= 10)
			good &= map_del_u64(m, i - 10) == value_of((int)((i - 10) % N));
	}
	ok(good && map_count(m) == 10, "a queue of 300,000 numbers through a small map");
	ok(map_get_u64(m, 299999) && map_get_u64(m, 299990) && !map_get_u64(m, 299989), "keeps the last ten");
	ok(map_put_u64(m, UINT64_MAX, value_of(1)) == 0 && map_put_u64(m, 0, value_of(2)) == 0 &&
		map_get_u64(m, UINT64_MAX) == value_of(1) && map_get_u64(m, 0) == value_of(2), "the first and last number are keys");
	map_free(m);
}

struct walk { struct map *m; int seen, odd; };

static void drop_even(void *ctx, const char *key, uint64_t num, void *value)
{
	struct walk *w = ctx;

	w->seen++;
	if (num % 2 == 0)
		map_del_u64(w->m, num);
	else
		w->odd++;
	(void)key;
}

static void count(void *ctx, const char *key, uint64_t num, void *value)
{
	struct walk *w = ctx;

	w->seen += key && strlen(key) == 1 && value == value_of(key[0]);
}

static void test_each(void)
{
	struct walk w = { 0 };

	map_create(&w.m);
	for (uint64_t i = 0; i < 1000; i++)
		map_put_u64(w.m, i, value_of(1));
	map_each(w.m, drop_even, &w);
	ok(w.seen == 1000 && w.odd == 500 && map_count(w.m) == 500, "each visits all once and may delete the one it is at");
	map_free(w.m);
	map_create(&w.m);
	w.seen = 0;
	map_put(w.m, "a", value_of('a'));
	map_put(w.m, "b", value_of('b'));
	map_each(w.m, count, &w);
	ok(w.seen == 2, "each gives string keys and values");
	map_free(w.m);
}

int main(void)
{
	test_strings();
	test_churn();
	test_each();
	return done_testing();
}
