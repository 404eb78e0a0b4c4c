#include <assert.h>
#include <string.h>

#include "door/dns.h"

/* First byte: which reader. A query is answered too; a name that comes out must survive being encoded. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const uint8_t four[4] = { 198, 18, 0, 1 };
	struct dns_query q;
	struct dns_reply r;
	struct dns_answer a;
	struct addr addr;
	uint8_t wire[DNS_NAME];

	if (n < 1)
		return 0;
	if (p[0] & 1) {
		uint16_t id = n > 2 ? (uint16_t)(p[1] << 8 | p[2]) : 0;

		if (dns_parse_reply(p + 1, n - 1, id, "a.example", p[0] & 2 ? DNS_A : DNS_AAAA, &r) == 0)
			assert(r.n <= DNS_ADDRS);
		return 0;
	}
	int code = dns_parse_query(p + 1, n - 1, &q);

	assert(strlen(q.name) < 254);
	if (code == 0 && q.opcode == 0) {
		if (dns_name_valid(q.name))
			assert(dns_name_encode(q.name, wire) == strlen(q.name) + 2);
		else
			assert(!q.name[0]);
		dns_name_reverse(q.name, &addr);
		dns_answer_init(&a, p + 1, &q, DNS_NOERROR);
		for (int i = 0; i < 40; i++)
			dns_answer_add(&a, DNS_A, 30, four, 4);
		size_t len = dns_answer_end(&a);

		assert(len <= DNS_MSG);
	}
	return 0;
}
