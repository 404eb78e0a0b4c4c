#include "door/addr.h"
#include "tap.h"

#include <errno.h>

static const struct { const char *text; enum addr_class class; } classes[] = {
	{ "1.1.1.1", ADDR_PUBLIC }, { "0.0.0.0", ADDR_UNSPECIFIED }, { "0.1.2.3", ADDR_UNSPECIFIED }, { "10.0.0.1", ADDR_PRIVATE },
	{ "172.15.255.255", ADDR_PUBLIC }, { "172.16.0.1", ADDR_PRIVATE }, { "172.31.255.255", ADDR_PRIVATE }, { "172.32.0.0", ADDR_PUBLIC },
	{ "192.168.1.1", ADDR_PRIVATE }, { "127.0.0.1", ADDR_LOOPBACK }, { "127.255.255.254", ADDR_LOOPBACK },
	{ "169.254.169.254", ADDR_METADATA }, { "169.254.169.253", ADDR_LINK_LOCAL }, { "169.254.170.2", ADDR_METADATA },
	{ "100.64.0.1", ADDR_CGNAT }, { "100.127.255.255", ADDR_CGNAT }, { "100.128.0.0", ADDR_PUBLIC }, { "100.100.100.200", ADDR_METADATA },
	{ "168.63.129.16", ADDR_METADATA }, { "198.17.255.255", ADDR_PUBLIC }, { "198.18.0.1", ADDR_DOOR }, { "198.19.255.255", ADDR_DOOR },
	{ "224.0.0.1", ADDR_MULTICAST }, { "240.0.0.1", ADDR_RESERVED }, { "255.255.255.255", ADDR_RESERVED }, { "192.0.2.1", ADDR_RESERVED },
	{ "::", ADDR_UNSPECIFIED }, { "::1", ADDR_LOOPBACK }, { "::2", ADDR_RESERVED }, { "2606:4700::1111", ADDR_PUBLIC },
	{ "fe80::1", ADDR_LINK_LOCAL }, { "fc00::1", ADDR_PRIVATE }, { "fd12::1", ADDR_PRIVATE }, { "fec0::1", ADDR_PRIVATE },
	{ "ff02::1", ADDR_MULTICAST }, { "fd00:ec2::254", ADDR_METADATA }, { "fd20:ce::254", ADDR_METADATA }, { "fd62:7572:6561::1", ADDR_DOOR },
	{ "2001:db8::1", ADDR_RESERVED }, { "2001::1", ADDR_TUNNEL }, { "::ffff:127.0.0.1", ADDR_LOOPBACK }, { "::ffff:8.8.8.8", ADDR_PUBLIC },
	{ "::ffff:169.254.169.254", ADDR_METADATA }, { "64:ff9b::10.0.0.1", ADDR_PRIVATE }, { "64:ff9b::8.8.8.8", ADDR_PUBLIC },
	{ "64:ff9b:1::1", ADDR_TUNNEL }, { "2002:7f00:1::1", ADDR_LOOPBACK }, { "2002:a9fe:a9fe::1", ADDR_METADATA }, { "4000::1", ADDR_RESERVED },
	{ "100::1", ADDR_RESERVED },
};

static void test_cidr(void)
{
	static const char *const bad[] = { "", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/08x", "fd00::/129", "fd00::1/64", "x" };
	struct cidr c;
	struct addr a;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ok(cidr_parse(bad[i], &c) < 0, "'%s' is no range", bad[i]);
	ok(cidr_parse("172.16.0.0/12", &c) == 0, "range");
	addr_parse("172.31.9.9", &a);
	ok(cidr_has(&c, &a), "inside");
	addr_parse("172.32.0.0", &a);
	ok(!cidr_has(&c, &a), "just outside");
	ok(cidr_parse("0.0.0.0/0", &c) == 0 && cidr_has(&c, &a), "everything");
	addr_parse("::1", &a);
	ok(!cidr_has(&c, &a), "of the other family");
	ok(cidr_parse("1.2.3.4", &c) == 0 && c.bits == 32, "one address");
}

static void test_reach(void)
{
	struct reach r = { 0 };
	struct err e;
	struct addr a;

	ok(reach_allow(&r, "10.0.0.1/8", &e) == -EINVAL && e.hint[0], "a bad rule is refused with a hint");
	ok(reach_allow(&r, "127.0.0.0/8", &e) == 0 && reach_allow(&r, "169.254.0.0/16", &e) == 0, "rules");
	addr_parse("127.0.0.1", &a);
	ok(reach_check(&r, &a) == ADDR_PUBLIC, "allowed loopback");
	addr_parse("::ffff:127.0.0.1", &a);
	ok(reach_check(&r, &a) == ADDR_PUBLIC, "in its mapped form too");
	addr_parse("::1", &a);
	ok(reach_check(&r, &a) == ADDR_LOOPBACK, "not the other loopback");
	addr_parse("169.254.169.254", &a);
	ok(reach_check(&r, &a) == ADDR_METADATA, "a wide rule doesn't open metadata");
	ok(reach_allow(&r, "169.254.169.254", &e) == 0 && reach_check(&r, &a) == ADDR_PUBLIC, "its own rule does");
	addr_parse("8.8.8.8", &a);
	ok(reach_check(&r, &a) == ADDR_PUBLIC, "public");
	reach_done(&r);
}

int main(void)
{
	char text[ADDR_TEXT];

	for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
		struct addr a;

		ok(addr_parse(classes[i].text, &a) == 0 && addr_class(&a) == classes[i].class, "%s is %s", classes[i].text,
		   addr_class_words(classes[i].class));
	}
	struct addr a, b;
	struct sockaddr_storage ss;
	uint16_t port = 0;

	addr_parse("::ffff:1.2.3.4", &a);
	addr_to_sockaddr(&a, 80, &ss);
	ok(addr_from_sockaddr(&ss, &b, &port) == 0 && b.family == 4 && port == 80, "a mapped address becomes IPv4");
	addr_format(&b, text);
	is_str(text, "1.2.3.4", "as text");
	test_cidr();
	test_reach();
	return done_testing();
}
