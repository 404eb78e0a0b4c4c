#include <stdlib.h>
#include <string.h>

#include "door/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct server servers[HOSTS_SERVERS];
	struct addr addrs[4];
	struct cidr c;
	char *text = malloc(n + 1);

	memcpy(text, p, n);
	text[n] = '\0';
	hosts_parse_resolv(text, servers);
	hosts_parse_lookup(text, "host", addrs, 4);
	hosts_parse_server(text, servers);
	cidr_parse(text, &c);
	free(text);
	return 0;
}
