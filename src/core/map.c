#include "core/map.h"
#include "core/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* map -- linear probing over a power-of-two table, at most 3/4 full counting tombstones.
 * Deleting leaves a tombstone and never moves an entry, so map_each() may delete as it goes; only map_put() rebuilds.
 * The hash is SipHash-1-3 with a key of this process: a peer that picks the keys can't aim at one bucket. */
enum { HASH_EMPTY = 0, HASH_GONE = 1, HASH_FIRST = 2, MAP_SMALLEST = 16 };

struct entry {
	uint64_t hash;          /* HASH_EMPTY, HASH_GONE or the real one */
	uint64_t num;
	char *key;              /* NULL in a map of numbers */
	void *value;
};

struct map {
	struct entry *at;
	size_t size;            /* a power of two, or 0 */
	size_t live, used;      /* used = live + tombstones */
};

static uint64_t hash_key[2];

static inline uint64_t rotl(uint64_t x, int n)
{
	return x << n | x >> (64 - n);
}

static inline void sip_round(uint64_t v[4])
{
	v[0] += v[1]; v[1] = rotl(v[1], 13); v[1] ^= v[0]; v[0] = rotl(v[0], 32);
	v[2] += v[3]; v[3] = rotl(v[3], 16); v[3] ^= v[2];
	v[0] += v[3]; v[3] = rotl(v[3], 21); v[3] ^= v[0];
	v[2] += v[1]; v[1] = rotl(v[1], 17); v[1] ^= v[2]; v[2] = rotl(v[2], 32);
}

static inline void sip_word(uint64_t v[4], uint64_t w)
{
	v[3] ^= w;
	sip_round(v);
	v[0] ^= w;
}

static uint64_t hash_bytes(const void *p, size_t n)
{
	const unsigned char *s = p;
	uint64_t v[4] = { hash_key[0] ^ 0x736f6d6570736575u, hash_key[1] ^ 0x646f72616e646f6du,
		hash_key[0] ^ 0x6c7967656e657261u, hash_key[1] ^ 0x7465646279746573u };
	uint64_t w, last = (uint64_t)n << 56;
	size_t whole = n & ~(size_t)7;

	for (size_t i = 0; i < whole; i += 8) {
		memcpy(&w, s + i, 8);
		sip_word(v, w);
	}
	for (size_t i = whole; i < n; i++)
		last |= (uint64_t)s[i] << (8 * (i - whole));
	sip_word(v, last);
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	w = v[0] ^ v[1] ^ v[2] ^ v[3];
	return w < HASH_FIRST ? w + HASH_FIRST : w;
}

int map_create(struct map **ret)
{
	struct map *m = calloc(1, sizeof *m);

	if (!m)
		return -ENOMEM;
	if (!hash_key[0])
		str_random(hash_key, sizeof hash_key);
	*ret = m;
	return 0;
}

void map_free(struct map *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->size; i++)
		free(m->at[i].key);
	free(m->at);
	free(m);
}

static bool same(const struct entry *x, uint64_t hash, const char *key, uint64_t num)
{
	if (x->hash != hash)
		return false;
	if (key)
		return x->key && strcmp(x->key, key) == 0;
	return !x->key && x->num == num;
}

static struct entry *find(const struct map *m, uint64_t hash, const char *key, uint64_t num)
{
	if (!m->size)
		return NULL;
	for (size_t i = hash & (m->size - 1);; i = (i + 1) & (m->size - 1)) {
		struct entry *x = &m->at[i];

		if (x->hash == HASH_EMPTY)
			return NULL;
		if (same(x, hash, key, num))
			return x;
	}
}

/* The first place that is empty or a tombstone. */
static struct entry *vacant(struct map *m, uint64_t hash)
{
	size_t i = hash & (m->size - 1);

	while (m->at[i].hash >= HASH_FIRST)
		i = (i + 1) & (m->size - 1);
	return &m->at[i];
}

/* Room for one more: drops the tombstones, and doubles when more than half is really in use. */
static int make_room(struct map *m)
{
	struct map next = { .size = m->size ? m->size : MAP_SMALLEST };

	if (m->size && (m->used + 1) * 4 <= m->size * 3)
		return 0;
	while ((m->live + 1) * 2 > next.size)
		next.size *= 2;
	next.at = calloc(next.size, sizeof *next.at);
	if (!next.at)
		return -ENOMEM;
	for (size_t i = 0; i < m->size; i++)
		if (m->at[i].hash >= HASH_FIRST)
			*vacant(&next, m->at[i].hash) = m->at[i];
	next.live = next.used = m->live;
	free(m->at);
	*m = next;
	return 0;
}

static int put(struct map *m, uint64_t hash, const char *key, uint64_t num, void *value)
{
	struct entry *x = find(m, hash, key, num);
	char *copy = NULL;

	if (x) {
		x->value = value;
		return 0;
	}
	if (make_room(m) < 0)
		return -ENOMEM;
	if (key && !(copy = strdup(key)))
		return -ENOMEM;
	x = vacant(m, hash);
	m->used += x->hash == HASH_EMPTY;
	m->live++;
	*x = (struct entry){ .hash = hash, .num = num, .key = copy, .value = value };
	return 0;
}

static void *del(struct map *m, struct entry *x)
{
	void *value;

	if (!x)
		return NULL;
	value = x->value;
	free(x->key);
	*x = (struct entry){ .hash = HASH_GONE };
	m->live--;
	return value;
}

int map_put(struct map *m, const char *key, void *value)
{
	return put(m, hash_bytes(key, strlen(key)), key, 0, value);
}

void *map_get(const struct map *m, const char *key)
{
	struct entry *x = find(m, hash_bytes(key, strlen(key)), key, 0);

	return x ? x->value : NULL;
}

void *map_del(struct map *m, const char *key)
{
	return del(m, find(m, hash_bytes(key, strlen(key)), key, 0));
}

int map_put_u64(struct map *m, uint64_t key, void *value)
{
	return put(m, hash_bytes(&key, sizeof key), NULL, key, value);
}

void *map_get_u64(const struct map *m, uint64_t key)
{
	struct entry *x = find(m, hash_bytes(&key, sizeof key), NULL, key);

	return x ? x->value : NULL;
}

void *map_del_u64(struct map *m, uint64_t key)
{
	return del(m, find(m, hash_bytes(&key, sizeof key), NULL, key));
}

size_t map_count(const struct map *m)
{
	return m->live;
}

void map_each(struct map *m, void (*fn)(void *ctx, const char *key, uint64_t num, void *value), void *ctx)
{
	for (size_t i = 0; i < m->size; i++)
		if (m->at[i].hash >= HASH_FIRST)
			fn(ctx, m->at[i].key, m->at[i].num, m->at[i].value);
}
