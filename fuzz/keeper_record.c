/* A keeper's record as it may lie on disk after anything. */
#include "keeper/keeper.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *text = malloc(n + 1);
	struct record r;

	if (!text)
		return 0;
	memcpy(text, p, n);
	text[n] = 0;
	if (record_parse(text, "b00t", &r) == 0 && (r.pid < 1 || r.slot > KEEPER_SLOTS || strlen(r.template_name) > 64))
		abort();
	free(text);
	return 0;
}
