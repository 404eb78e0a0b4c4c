/* URLs, paths, queries, ranges, dates, hosts */
#include <stdlib.h>
#include <string.h>

#include "http/parse.h"
#include "http/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct http_url u;
	struct err e;
	char host[64], date[32];
	uint16_t port;
	int64_t when;
	uint64_t from = 0, to = 0;

	if (n > 10000)
		return 0;
	char *s = malloc(n + 1), *a = malloc(n + 1), *b = malloc(n + 1);

	memcpy(s, p, n);
	s[n] = 0;
	if (http_url_parse(s, &u, &e) == 0 && (!*u.host || u.target + u.target_len > s + n || !http_is_host(u.authority, strlen(u.authority))))
		abort();
	if (http_path_decode(s, n, a) >= 0 && strlen(a) > n)
		abort();
	for (size_t pos = 0, before = 0; pos < n; before = pos) {
		int r = http_query_next(s, n, &pos, a, b);

		if (r == 0)
			break;
		if (pos <= before || pos > n || (r == 1 && strlen(a) + strlen(b) > n))
			abort();
	}
	http_split_host(s, n, host, sizeof host, &port);
	if (http_parse_range(s, 1000, &from, &to) == 1 && (from >= to || to > 1000))
		abort();
	if (http_parse_date(s, &when) == 0) {
		http_date(when, date);
		if (strcmp(date, s) != 0)
			abort();
	}
	http_list_has(s, "close");
	free(s);
	free(a);
	free(b);
	return 0;
}
