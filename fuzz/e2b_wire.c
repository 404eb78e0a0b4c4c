#include <stdlib.h>

#include <string.h>

#include "api/e2b_wire.h"

/* What the network says to the E2B dialect before anybody is known: hosts, fields, users, envelopes, bodies of create. The first
 * byte chooses. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void envelopes(const char *p, size_t n)
{
	const char *msg;
	uint8_t flags;
	size_t len;

	while (e2b_env_next(p, n, 1 << 20, &flags, &msg, &len) == 1) {
		if (msg + len > p + n)
			abort();
		n -= (size_t)(msg + len - p);
		p = msg + len;
	}
}

static void create(const char *p, size_t n)
{
	json_t AUTO_JSON *body = NULL, *args = NULL, *shown = NULL;
	struct err e;

	if (js_parse(p, n, &body, &e) < 0)
		return;
	if (e2b_create_args(body, true, &args, &e) == 0 && !json_is_object(args))
		abort();
	shown = e2b_sandbox(body, "box.test", E2B_DETAIL);
	json_decref(e2b_entry(body));
	json_decref(e2b_end_event(body));
	json_decref(e2b_watch_event(body));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text = n ? malloc(n) : NULL, user[64];
	struct e2b_addr a;
	const char *why;
	json_t *filter = NULL;
	struct err e;

	if (!text)
		return 0;
	memcpy(text, data + 1, n - 1);
	text[n - 1] = '\0';
	switch (data[0] % 6) {
	case 0: e2b_addr_host(text, "box.test", &a, &why); break;
	case 1: e2b_addr_fields(text, text, &a, &why); break;
	case 2: e2b_basic_user(text, user, sizeof user); break;
	case 3: envelopes(text, n - 1); break;
	case 4: create(text, n - 1); break;
	default:
		e2b_metadata_filter(text, &filter, &e);
		json_decref(filter);
	}
	free(text);
	return 0;
}
