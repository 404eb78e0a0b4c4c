#ifndef DOOR_DNS_H
#define DOOR_DNS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "door/addr.h"
/* dns -- DNS messages: queries from computers and our answers, our queries upstream and the answers to them.
 *
 * Both sides are hostile. One strict reader: no name longer than 255 bytes on the wire, compression pointers only
 * backwards (so a walk always ends), lengths inside the message, nothing after the end. Names come out in lower case,
 * dotted, without the last dot; "" is the root. Only names that can be a host's ([a-z0-9_-] labels) come out at all: any
 * other is `odd`, and equal to nothing, so no later comparer can be led astray by dots or NULs inside labels. */
#define DNS_NAME 256            /* 253 and a NUL, rounded up */
#define DNS_MSG 512             /* what we send fits a plain datagram */
#define DNS_ADDRS 16            /* addresses kept of one answer */

enum dns_type {
	DNS_A = 1, DNS_NS = 2, DNS_CNAME = 5, DNS_SOA = 6, DNS_PTR = 12, DNS_MX = 15, DNS_TXT = 16, DNS_AAAA = 28, DNS_SRV = 33,
	DNS_OPT = 41, DNS_SVCB = 64, DNS_HTTPS = 65, DNS_IXFR = 251, DNS_AXFR = 252, DNS_ANY = 255,
};
enum dns_rcode { DNS_NOERROR, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED, DNS_BADVERS = 16 };

struct dns_query {
	uint16_t id, type, class;
	uint8_t opcode;
	bool recurse, edns, odd;
	uint8_t edns_version;
	size_t question_end;        /* the question is bytes 12..question_end of the message */
	char name[DNS_NAME];
};
/* 0; -EBADMSG: not a query at all, say nothing; -EINVAL: a query that can't be read, id and opcode are set (FORMERR). */
int dns_parse_query(const void *p, size_t n, struct dns_query *ret);

struct dns_answer { uint8_t b[DNS_MSG]; size_t len; uint16_t count; const struct dns_query *q; };
/* Starts the answer to a query that was read from `msg` (NULL: answer without the question). */
void dns_answer_init(struct dns_answer *a, const void *msg, const struct dns_query *q, unsigned rcode);
/* One record of the asked name; dropped when it wouldn't fit. */
void dns_answer_add(struct dns_answer *a, uint16_t type, uint32_t ttl, const void *data, size_t n);
size_t dns_answer_end(struct dns_answer *a);                    /* the message's length */

size_t dns_name_encode(const char *name, uint8_t out[DNS_NAME]); /* wire form; 0 when it isn't a valid host name */
bool dns_name_valid(const char *name);                          /* lower case, labels 1..63 of [a-z0-9_-], at most 253 */
/* "4.3.2.1.in-addr.arpa" and the ip6.arpa form. */
int dns_name_reverse(const char *name, struct addr *ret);       /* 0 or -EINVAL */

size_t dns_build_query(uint16_t id, const char *name, uint16_t type, uint8_t out[DNS_MSG]);   /* 0: bad name */

struct dns_reply {
	uint8_t rcode;
	bool truncated;
	uint32_t ttl;               /* the smallest along the chain */
	size_t n;
	struct addr addrs[DNS_ADDRS];
};
/* The answer to dns_build_query(id, name, type). -EBADMSG: not that answer (ignore it and wait on). */
int dns_parse_reply(const void *p, size_t n, uint16_t id, const char *name, uint16_t type, struct dns_reply *ret);
#endif
