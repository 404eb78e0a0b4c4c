#include "door/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/loop.h"
#include "core/map.h"

#define NUMBERS 131072u         /* 198.18.0.0/15; the first and the last are left out */

struct names {
	struct map *by_text, *by_number;
	struct list lru;        /* the next to go is first */
	uint32_t next;
	size_t max;
};

static const uint8_t prefix6[12] = { 0xfd, 0x62, 0x75, 0x72, 0x65, 0x61 };

int names_create(size_t max, struct names **ret)
{
	struct names *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	list_init(&t->lru);
	t->next = 1;
	t->max = max;
	if (map_create(&t->by_text) < 0 || map_create(&t->by_number) < 0) {
		names_free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

void names_free(struct names *t)
{
	if (!t)
		return;
	list_each(it, &t->lru) {
		list_unlink(it);
		free(container_of(it, struct name, lru));
	}
	map_free(t->by_text);
	map_free(t->by_number);
	free(t);
}

static void forget(struct names *t, struct name *n)
{
	map_del(t->by_text, n->text);
	map_del_u64(t->by_number, n->number);
	list_unlink(&n->lru);
	free(n);
}

/* Makes room for one more. */
static int make_room(struct names *t)
{
	if (map_count(t->by_text) < t->max)
		return 0;
	list_each(it, &t->lru) {
		struct name *n = container_of(it, struct name, lru);

		if (!n->held) {
			forget(t, n);
			return 0;
		}
	}
	return -ENOSPC;
}

static uint32_t free_number(struct names *t)
{
	for (;;) {      /* max is far below NUMBERS: ends after at most max + 1 steps */
		uint32_t n = t->next;

		t->next = n + 2 < NUMBERS ? n + 1 : 1;
		if (!map_get_u64(t->by_number, n))
			return n;
	}
}

struct name *names_get(struct names *t, const char *text)
{
	struct name *n = map_get(t->by_text, text);
	size_t len = strlen(text);

	if (n) {
		list_unlink(&n->lru);
		list_append(&t->lru, &n->lru);
		return n;
	}
	if (make_room(t) < 0)
		return NULL;
	n = calloc(1, sizeof *n + len + 1);
	if (!n)
		return NULL;
	list_init(&n->lru);
	memcpy(n->text, text, len + 1);
	n->number = free_number(t);
	if (map_put(t->by_text, n->text, n) < 0) {
		free(n);
		return NULL;
	}
	if (map_put_u64(t->by_number, n->number, n) < 0) {
		map_del(t->by_text, n->text);
		free(n);
		return NULL;
	}
	list_append(&t->lru, &n->lru);
	return n;
}

struct name *names_find(struct names *t, const struct addr *a)
{
	uint32_t number;

	if (a->family == 4 && a->b[0] == 198 && (a->b[1] & 0xfe) == 18)
		number = (uint32_t)(a->b[1] & 1) << 16 | (uint32_t)a->b[2] << 8 | a->b[3];
	else if (a->family == 6 && memcmp(a->b, prefix6, sizeof prefix6) == 0)
		number = (uint32_t)a->b[12] << 24 | (uint32_t)a->b[13] << 16 | (uint32_t)a->b[14] << 8 | a->b[15];
	else
		return NULL;
	struct name *n = map_get_u64(t->by_number, number);

	if (n) {
		list_unlink(&n->lru);
		list_append(&t->lru, &n->lru);
	}
	return n;
}

void name_addr4(const struct name *n, struct addr *ret)
{
	*ret = (struct addr){ .family = 4, .b = { 198, (uint8_t)(18 | n->number >> 16), (uint8_t)(n->number >> 8), (uint8_t)n->number } };
}

void name_addr6(const struct name *n, struct addr *ret)
{
	*ret = (struct addr){ .family = 6 };
	memcpy(ret->b, prefix6, sizeof prefix6);
	ret->b[13] = (uint8_t)(n->number >> 16);
	ret->b[14] = (uint8_t)(n->number >> 8);
	ret->b[15] = (uint8_t)n->number;
}
