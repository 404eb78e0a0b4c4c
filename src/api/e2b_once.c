#include <stdlib.h>

#include "api/e2b_req.h"
#include "core/str.h"

/* Idempotency-Key of create: a client that didn't hear the answer asks again, and gets the sandbox that was made. Kept in memory
 * for a day, the oldest go first when there are many. */

enum { KEYS_MAX = 4096, KEY_SIZE = 256, KEEP_MS = 24 * 3600 * 1000 };

struct once {
	struct list link;
	char key[KEY_SIZE], id[E2B_ID_SIZE];     /* id "" = being made */
	int64_t until_ms;
};

static void drop(struct e2b *d, struct once *o)
{
	map_del(d->once, o->key);
	list_unlink(&o->link);
	free(o);
}

static void forget_old(struct e2b *d)
{
	int64_t now = loop_now(d->api->loop);

	list_each(it, &d->once_list) {
		struct once *o = container_of(it, struct once, link);

		if (o->until_ms > now && map_count(d->once) < KEYS_MAX)
			return;
		drop(d, o);
	}
}

bool e2b_once_key(const char *key)
{
	size_t n = strlen(key);

	return n > 0 && n < KEY_SIZE && strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

enum e2b_once e2b_once_begin(struct e2b *d, const char *key, char ret_id[E2B_ID_SIZE])
{
	struct once *o = map_get(d->once, key);

	if (o && (o->until_ms > loop_now(d->api->loop) || !o->id[0])) {
		memcpy(ret_id, o->id, E2B_ID_SIZE);
		return o->id[0] ? E2B_ONCE_MADE : E2B_ONCE_BUSY;
	}
	if (o)
		drop(d, o);
	forget_old(d);
	o = calloc(1, sizeof *o);
	if (!o)
		return E2B_ONCE_NEW;             /* not remembered: then it's a create like others */
	str_copy(o->key, sizeof o->key, key);
	o->until_ms = loop_now(d->api->loop) + KEEP_MS;
	if (map_put(d->once, o->key, o) < 0) {
		free(o);
		return E2B_ONCE_NEW;
	}
	list_append(&d->once_list, &o->link);
	return E2B_ONCE_NEW;
}

void e2b_once_end(struct e2b *d, const char *key, const char *id)
{
	struct once *o = map_get(d->once, key);

	if (!o || o->id[0])
		return;
	if (!id || str_copy(o->id, sizeof o->id, id) < 0)
		drop(d, o);
}

void e2b_once_free(struct e2b *d)
{
	list_each(it, &d->once_list)
		drop(d, container_of(it, struct once, link));
	map_free(d->once);
}
