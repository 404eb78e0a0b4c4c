/* JSON in, JSON out: what the strict parser takes, it writes so that it reads back as the same value. */
#include "core/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void members(const json_t *v)
{
	static const char *const names[] = { "a", "b", "id", NULL };
	const char *s = NULL;
	int64_t i = 0;
	bool b = false;
	json_t *x = NULL;
	struct err e;

	for (size_t k = 0; names[k]; k++) {
		js_get_str(v, names[k], &s, &e);
		if (js_get_int(v, names[k], -10, 10, &i, &e) == 1 && (i < -10 || i > 10))
			abort();
		js_get_bool(v, names[k], &b, &e);
		js_get_obj(v, names[k], &x, &e);
		js_get_arr(v, names[k], &x, &e);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	AUTO_BUF struct buf out = BUF_INIT(8 << 20), again = BUF_INIT(8 << 20), small = BUF_INIT(64);
	AUTO_JSON json_t *v = NULL;
	AUTO_JSON json_t *w = NULL;
	struct err e;

	if (js_parse((const char *)p, n, &v, &e) < 0)
		return 0;
	members(v);
	js_dump_pretty(v, &small);
	if (js_dump(v, &out) < 0)
		abort();
	if (js_parse(buf_at(&out), out.len, &w, &e) < 0 || js_dump(w, &again) < 0)
		abort();
	if (out.len != again.len || memcmp(buf_at(&out), buf_at(&again), out.len) != 0)
		abort();
	return 0;
}
