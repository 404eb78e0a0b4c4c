#include "door/hosts.h"
#include "tap.h"

int main(void)
{
	struct server s[HOSTS_SERVERS];
	struct addr a[4];
	char text[ADDR_TEXT];

	ok(hosts_parse_resolv("# c\nsearch x\nnameserver 1.1.1.1\nnameserver\nnameserver ::1 ; c\n nameserver bad\n", s) == 2, "two servers");
	ok(s[0].port == 53 && s[0].addr.family == 4 && s[1].addr.family == 6, "as written");
	ok(hosts_parse_resolv("nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4\n", s) == 3, "three at most");
	ok(hosts_parse_server("127.0.0.1:5353", &s[0]) == 0 && s[0].port == 5353, "a port");
	ok(hosts_parse_server("[::1]:5353", &s[0]) == 0 && s[0].port == 5353 && s[0].addr.family == 6, "an IPv6 port");
	ok(hosts_parse_server("[::1]x", &s[0]) < 0 && hosts_parse_server("1.1.1.1:0", &s[0]) < 0 && hosts_parse_server("", &s[0]) < 0 &&
	   hosts_parse_server("1.1.1.1:70000", &s[0]) < 0, "bad servers");
	static const char hosts[] = "127.0.0.1 localhost\n::1\tlocalhost Box.Example # box2\n10.0.0.1 box box.example\nx box\n";

	ok(hosts_parse_lookup(hosts, "localhost", a, 4) == 2, "two addresses");
	ok(hosts_parse_lookup(hosts, "box.example", a, 4) == 2, "any case, any place in the line");
	ok(hosts_parse_lookup(hosts, "box2", a, 4) == 0, "not in comments");
	ok(hosts_parse_lookup(hosts, "box", a, 4) == 1, "whole words");
	addr_format(&a[0], text);
	is_str(text, "10.0.0.1", "the right line");
	ok(hosts_parse_lookup("1.1.1.1 a\n1.1.1.2 a\n1.1.1.3 a", "a", a, 2) == 2, "no more than there is room for");
	return done_testing();
}
