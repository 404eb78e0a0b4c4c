/* Any bytes as TOML: no crash, no leak, and what parses is freed. */
#include "secretary/toml.h"

int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n)
{
	struct toml *t = NULL;
	struct err e;

	if (toml_parse((const char *)p, n, "fuzz", &t, &e) == 0)
		toml_free(t);
	return 0;
}
