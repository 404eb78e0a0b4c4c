#include "door/dns.h"
#include "tap.h"

#include <errno.h>

static uint8_t msg[600];

static size_t query(const char *name, uint16_t type)
{
	return dns_build_query(0x1234, name, type, msg);
}

static void test_query(void)
{
	struct dns_query q;
	size_t n = query("www.example.com", DNS_AAAA);

	ok(n == 12 + 17 + 4, "a query's length");
	ok(dns_parse_query(msg, n, &q) == 0 && q.id == 0x1234 && q.type == DNS_AAAA && q.class == 1 && q.recurse && !q.odd, "reads back");
	is_str(q.name, "www.example.com", "its name");
	msg[13] = 'W';
	dns_parse_query(msg, n, &q);
	is_str(q.name, "www.example.com", "case is folded");
	for (size_t cut = 0; cut < n; cut++)
		if (dns_parse_query(msg, cut, &q) == 0)
			ok(0, "cut at %zu is taken", cut);
	ok(dns_parse_query(msg, n + 1, &q) == -EINVAL, "a byte too many");
	ok(dns_parse_query(msg, 11, &q) == -EBADMSG, "no head: say nothing");
	msg[2] |= 0x80;
	ok(dns_parse_query(msg, n, &q) == -EBADMSG, "an answer is no query: say nothing");
	n = query("a.b", DNS_A);
	msg[13] = '.';
	ok(dns_parse_query(msg, n, &q) == 0 && q.odd && !q.name[0], "a dot inside a label is odd");
	msg[13] = 0;
	ok(dns_parse_query(msg, n, &q) == 0 && q.odd && !q.name[0], "a NUL inside a label is odd");
	msg[12] = 0xc0;
	msg[13] = 0x0c;
	ok(dns_parse_query(msg, n, &q) == -EINVAL, "no pointers in questions");
	n = query("a.b", DNS_A);
	msg[5] = 2;
	ok(dns_parse_query(msg, n, &q) == -EINVAL && q.id == 0x1234, "two questions");
	msg[5] = 1;
	msg[2] = 0x28;
	ok(dns_parse_query(msg, n, &q) == 0 && q.opcode == 5, "another opcode");
}

static void test_names(void)
{
	char long_label[70], long_name[300] = "";
	uint8_t wire[DNS_NAME];
	struct addr a;

	memset(long_label, 'a', 63);
	long_label[63] = '\0';
	ok(dns_name_valid(long_label), "a label of 63");
	long_label[63] = 'a';
	long_label[64] = '\0';
	ok(!dns_name_valid(long_label), "not of 64");
	for (int i = 0; i < 126; i++)
		strcat(long_name, "a.");
	strcat(long_name, "a");
	ok(dns_name_valid(long_name) && dns_name_encode(long_name, wire) == 255, "a name of 253");
	strcat(long_name, "b");
	ok(!dns_name_valid(long_name), "not of 254");
	ok(!dns_name_valid("") && !dns_name_valid(".") && !dns_name_valid("a..b") && !dns_name_valid("a.") && !dns_name_valid("A") &&
	   !dns_name_valid("a b") && !dns_name_valid("a/b"), "bad names");
	ok(dns_name_valid("_dmarc.x-1.example"), "underscore and dash");
	ok(dns_name_reverse("4.3.2.1.in-addr.arpa", &a) == 0 && a.family == 4 && a.b[0] == 1 && a.b[3] == 4, "reverse IPv4");
	ok(dns_name_reverse("256.3.2.1.in-addr.arpa", &a) < 0 && dns_name_reverse("3.2.1.in-addr.arpa", &a) < 0, "bad reverse");
	ok(dns_name_reverse("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.6.5.6.2.7.5.7.2.6.d.f.ip6.arpa", &a) == 0 && a.family == 6 &&
	   a.b[0] == 0xfd && a.b[1] == 0x62 && a.b[15] == 1, "reverse IPv6");
}

static size_t put(size_t at, const void *p, size_t n)
{
	memcpy(msg + at, p, n);
	return at + n;
}

/* The head and question of an answer for a.example A with `an` records. */
static size_t reply_head(uint8_t flags, uint8_t an)
{
	size_t n = query("a.example", DNS_A);

	msg[2] = 0x81;
	msg[3] = flags;
	msg[7] = an;
	return n;
}

static void test_reply(void)
{
	static const uint8_t rec_a[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 1, 2, 3, 4 };
	static const uint8_t rec_cname[] = { 0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 30, 0, 4, 1, 'b', 0xc0, 14 };    /* b.example */
	static const uint8_t rec_b[] = { 1, 'b', 0xc0, 14, 0, 1, 0, 1, 0, 0, 0, 90, 0, 4, 5, 6, 7, 8 };
	static const uint8_t rec_other[] = { 1, 'x', 0xc0, 14, 0, 1, 0, 1, 0, 0, 0, 90, 0, 4, 9, 9, 9, 9 };
	static const uint8_t rec_self[] = { 0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 30, 0, 2, 0xc0, 12 };
	struct dns_reply r;
	size_t n = put(reply_head(0x80, 1), rec_a, sizeof rec_a);

	ok(dns_parse_reply(msg, n, 0x1234, "a.example", DNS_A, &r) == 0 && r.n == 1 && r.ttl == 60 && r.addrs[0].b[3] == 4, "an address");
	ok(dns_parse_reply(msg, n, 0x1235, "a.example", DNS_A, &r) == -EBADMSG, "another id");
	ok(dns_parse_reply(msg, n, 0x1234, "b.example", DNS_A, &r) == -EBADMSG, "another name");
	ok(dns_parse_reply(msg, n, 0x1234, "a.example", DNS_AAAA, &r) == -EBADMSG, "another type");
	for (size_t cut = 0; cut < n; cut++)
		if (dns_parse_reply(msg, cut, 0x1234, "a.example", DNS_A, &r) == 0)
			ok(0, "cut at %zu is taken", cut);
	n = put(put(reply_head(0x80, 2), rec_b, sizeof rec_b), rec_cname, sizeof rec_cname);
	ok(dns_parse_reply(msg, n, 0x1234, "a.example", DNS_A, &r) == 0 && r.n == 1 && r.addrs[0].b[0] == 5 && r.ttl == 30,
	   "an alias, out of order, with the smaller TTL");
	n = put(reply_head(0x80, 1), rec_other, sizeof rec_other);
	ok(dns_parse_reply(msg, n, 0x1234, "a.example", DNS_A, &r) == 0 && r.n == 0, "an address of another name isn't taken");
	n = put(reply_head(0x80, 1), rec_self, sizeof rec_self);
	ok(dns_parse_reply(msg, n, 0x1234, "a.example", DNS_A, &r) == 0 && r.n == 0, "an alias of itself ends");
	n = reply_head(0x83, 0);
	ok(dns_parse_reply(msg, n, 0x1234, "a.example", DNS_A, &r) == 0 && r.rcode == DNS_NXDOMAIN, "no such name");
	n = reply_head(0x80, 0);
	msg[2] |= 2;
	ok(dns_parse_reply(msg, n, 0x1234, "a.example", DNS_A, &r) == 0 && r.truncated, "cut");
	n = put(reply_head(0x80, 1), "\xc0\x17\0\1", 4);
	ok(dns_parse_reply(msg, n, 0x1234, "a.example", DNS_A, &r) == -EBADMSG, "a pointer forwards or to itself");
}

static void test_answer(void)
{
	static const uint8_t four[4] = { 198, 18, 0, 1 };
	struct dns_query q;
	struct dns_answer a;
	struct dns_reply r;
	size_t n = query("a.example", DNS_A);

	dns_parse_query(msg, n, &q);
	dns_answer_init(&a, msg, &q, DNS_NOERROR);
	dns_answer_add(&a, DNS_A, 30, four, 4);
	size_t len = dns_answer_end(&a);

	ok(dns_parse_reply(a.b, len, 0x1234, "a.example", DNS_A, &r) == 0 && r.n == 1 && r.ttl == 30 && r.addrs[0].b[0] == 198,
	   "our answer reads back");
	dns_answer_init(&a, msg, &q, DNS_NOERROR);
	for (int i = 0; i < 100; i++)
		dns_answer_add(&a, DNS_A, 30, four, 4);
	ok(dns_answer_end(&a) <= DNS_MSG, "never longer than a datagram");
	msg[11] = 1;
	n = put(n, "\0\0\x29\x04\xd0\0\1\0\0\0\0", 11);
	ok(dns_parse_query(msg, n, &q) == 0 && q.edns && q.edns_version == 1, "EDNS is read");
	dns_answer_init(&a, msg, &q, DNS_BADVERS);
	len = dns_answer_end(&a);
	ok((a.b[3] & 15) == 0 && a.b[len - 11 + 5] == 1 && a.b[11] == 1, "and an extended code answered");
}

int main(void)
{
	test_query();
	test_names();
	test_reply();
	test_answer();
	return done_testing();
}
