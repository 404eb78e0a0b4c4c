#include "door/dns.h"

#include <errno.h>
#include <string.h>

#define HEAD 12
#define WIRE_NAME 255
#define CHAIN 16            /* CNAMEs followed */
#define HOPS 32             /* pointers followed in one name */
#define RECORDS 256         /* records read in one section */

/* A cursor: the first fault makes it bad, and everything read after that is zero. */
struct cur { const uint8_t *p; size_t n, at; bool bad; };

static bool need(struct cur *c, size_t n)
{
	if (c->bad || c->n - c->at < n)
		c->bad = true;
	return !c->bad;
}

static uint16_t get16(struct cur *c)
{
	if (!need(c, 2))
		return 0;
	c->at += 2;
	return (uint16_t)(c->p[c->at - 2] << 8 | c->p[c->at - 1]);
}

static uint32_t get32(struct cur *c)
{
	uint32_t hi = get16(c);

	return hi << 16 | get16(c);
}

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static bool host_char(uint8_t ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '-' || ch == '_';
}

static uint8_t lower(uint8_t ch)
{
	return ch >= 'A' && ch <= 'Z' ? (uint8_t)(ch + 32) : ch;
}

/* Copies one label to out at len; returns whether every character may be in a host name. */
static bool label_copy(const uint8_t *p, size_t n, char *out, size_t *len)
{
	bool fine = true;

	if (*len)
		out[(*len)++] = '.';
	for (size_t i = 0; i < n; i++) {
		uint8_t ch = lower(p[i]);

		fine &= host_char(ch);
		out[(*len)++] = (char)ch;
	}
	return fine;
}

/* Reads a name. pointers: may be compressed. Each pointer must lead to before the label run it was found in, so the walk
 * strictly goes back and ends. out gets "" when odd. */
static void get_name(struct cur *c, bool pointers, char out[DNS_NAME], bool *ret_odd)
{
	size_t at = c->at, floor = c->at, len = 0, wire = 1;
	unsigned hops = 0;
	bool jumped = false, fine = true;

	out[0] = '\0';
	*ret_odd = true;
	for (;;) {
		if (at >= c->n)
			goto bad;
		uint8_t b = c->p[at];

		if ((b & 0xc0) == 0xc0) {
			if (!pointers || at + 1 >= c->n)
				goto bad;
			size_t to = (size_t)(b & 0x3f) << 8 | c->p[at + 1];

			if (to >= floor || to < HEAD || ++hops > HOPS)
				goto bad;
			if (!jumped)
				c->at = at + 2;
			jumped = true;
			at = floor = to;
			continue;
		}
		if (b & 0xc0)
			goto bad;
		at++;
		if (!b)
			break;
		wire += b + 1u;
		if (wire > WIRE_NAME || c->n - at < b)
			goto bad;
		fine &= label_copy(c->p + at, b, out, &len);
		at += b;
	}
	if (!jumped)
		c->at = at;
	out[fine ? len : 0] = '\0';
	*ret_odd = !fine;
	return;
bad:
	c->bad = true;
	out[0] = '\0';
}

struct rr { char name[DNS_NAME]; bool odd; uint16_t type, class; uint32_t ttl; size_t data, len; };

static void get_rr(struct cur *c, struct rr *r)
{
	get_name(c, true, r->name, &r->odd);
	r->type = get16(c);
	r->class = get16(c);
	r->ttl = get32(c);
	r->len = get16(c);
	r->data = c->at;
	if (need(c, r->len))
		c->at += r->len;
}

int dns_parse_query(const void *p, size_t n, struct dns_query *ret)
{
	struct cur c = { .p = p, .n = n };
	struct rr r;

	memset(ret, 0, sizeof *ret);
	if (n < HEAD)
		return -EBADMSG;
	ret->id = get16(&c);
	uint16_t flags = get16(&c), qd = get16(&c), an = get16(&c), ns = get16(&c), ar = get16(&c);

	if (flags & 0x8000)
		return -EBADMSG;
	ret->opcode = flags >> 11 & 15;
	ret->recurse = flags & 0x0100;
	if (ret->opcode != 0)
		return 0;               /* answered by its opcode alone */
	if (qd != 1 || an || ns || ar > 4)
		return -EINVAL;
	get_name(&c, false, ret->name, &ret->odd);
	ret->type = get16(&c);
	ret->class = get16(&c);
	ret->question_end = c.at;
	for (unsigned i = 0; i < ar && !c.bad; i++) {
		get_rr(&c, &r);
		if (c.bad || r.type != DNS_OPT)
			continue;
		if (ret->edns || r.odd || r.name[0])
			return -EINVAL;
		ret->edns = true;
		ret->edns_version = (uint8_t)(r.ttl >> 16);
	}
	return c.bad || c.at != n ? -EINVAL : 0;
}

void dns_answer_init(struct dns_answer *a, const void *msg, const struct dns_query *q, unsigned rcode)
{
	size_t question = msg && q->question_end > HEAD ? q->question_end - HEAD : 0;

	memset(a->b, 0, HEAD);
	a->q = q;
	a->count = 0;
	put16(a->b, q->id);
	a->b[2] = (uint8_t)(0x80 | q->opcode << 3 | q->recurse);
	a->b[3] = (uint8_t)(0x80 | (rcode & 15));       /* recursion available */
	if (question > WIRE_NAME + 4)
		question = 0;
	if (question)
		memcpy(a->b + HEAD, (const uint8_t *)msg + HEAD, question);
	a->b[5] = question ? 1 : 0;
	a->len = HEAD + question;
	if (q->edns) {
		/* kept at the end of the additional section: written by dns_answer_end, which needs the high bits */
		a->b[11] = (uint8_t)(rcode >> 4);
	}
}

void dns_answer_add(struct dns_answer *a, uint16_t type, uint32_t ttl, const void *data, size_t n)
{
	uint8_t *p = a->b + a->len;

	if (!a->b[5] || DNS_MSG - a->len < 12 + n + 11)
		return;
	put16(p, 0xc000 | HEAD);        /* the question's name */
	put16(p + 2, type);
	put16(p + 4, 1);
	put16(p + 6, (uint16_t)(ttl >> 16));
	put16(p + 8, (uint16_t)ttl);
	put16(p + 10, (uint16_t)n);
	memcpy(p + 12, data, n);
	a->len += 12 + n;
	a->count++;
}

size_t dns_answer_end(struct dns_answer *a)
{
	put16(a->b + 6, a->count);
	if (a->q->edns) {
		uint8_t high = a->b[11];
		uint8_t *p = a->b + a->len;

		memset(p, 0, 11);
		p[2] = DNS_OPT;
		put16(p + 3, 1232);
		p[5] = high;
		a->len += 11;
		put16(a->b + 10, 1);
	}
	return a->len;
}

bool dns_name_valid(const char *name)
{
	size_t label = 0, n = strlen(name);

	if (n == 0 || n > 253)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (name[i] == '.') {
			if (!label)
				return false;
			label = 0;
		} else if (!host_char((uint8_t)name[i]) || ++label > 63) {
			return false;
		}
	}
	return label > 0;
}

size_t dns_name_encode(const char *name, uint8_t out[DNS_NAME])
{
	size_t len = 0;

	if (!dns_name_valid(name))
		return 0;
	while (*name) {
		size_t n = strcspn(name, ".");

		out[len++] = (uint8_t)n;
		memcpy(out + len, name, n);
		len += n;
		name += n + (name[n] == '.');
	}
	out[len++] = 0;
	return len;
}

static int hex_value(char ch)
{
	if (ch >= '0' && ch <= '9')
		return ch - '0';
	return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static int reverse6(const char *name, struct addr *ret)
{
	*ret = (struct addr){ .family = 6 };
	for (int i = 31; i >= 0; i--, name += 2) {
		int v = hex_value(name[0]);

		if (v < 0 || name[1] != '.')
			return -EINVAL;
		ret->b[i / 2] |= (uint8_t)(i % 2 ? v : v << 4);
	}
	return strcmp(name, "ip6.arpa") == 0 ? 0 : -EINVAL;
}

int dns_name_reverse(const char *name, struct addr *ret)
{
	const char *s = name;

	*ret = (struct addr){ .family = 4 };
	for (int i = 3; i >= 0; i--) {
		unsigned v = 0, digits = 0;

		for (; *s >= '0' && *s <= '9' && digits < 4; s++, digits++)
			v = v * 10 + (unsigned)(*s - '0');
		if (!digits || v > 255 || *s != '.')
			return reverse6(name, ret);
		ret->b[i] = (uint8_t)v;
		s++;
	}
	return strcmp(s, "in-addr.arpa") == 0 ? 0 : reverse6(name, ret);
}

size_t dns_build_query(uint16_t id, const char *name, uint16_t type, uint8_t out[DNS_MSG])
{
	uint8_t wire[DNS_NAME];
	size_t n = dns_name_encode(name, wire);

	if (!n)
		return 0;
	memset(out, 0, HEAD);
	put16(out, id);
	out[2] = 1;                     /* recursion desired */
	out[5] = 1;
	memcpy(out + HEAD, wire, n);
	put16(out + HEAD + n, type);
	put16(out + HEAD + n + 2, 1);
	return HEAD + n + 4;
}

/* Follows CNAMEs from the asked name through the answer section, whatever their order, and takes the addresses of where
 * that ends. One pass for each step: messages are small. */
static int read_chain(const struct cur *start, unsigned an, const char *name, uint16_t type, struct dns_reply *ret)
{
	char want[DNS_NAME], next[DNS_NAME];
	uint32_t ttl = UINT32_MAX;
	struct rr r;

	memcpy(want, name, strlen(name) + 1);
	for (int step = 0; step < CHAIN; step++) {
		struct cur c = *start;
		bool more = false;

		for (unsigned i = 0; i < an; i++) {
			bool odd;

			get_rr(&c, &r);
			if (c.bad)
				return -EBADMSG;
			if (r.odd || r.class != 1 || strcmp(r.name, want) != 0)
				continue;
			if (r.type == DNS_CNAME) {
				struct cur d = { .p = c.p, .n = r.data + r.len, .at = r.data };

				get_name(&d, true, next, &odd);
				if (d.bad || d.at != d.n)
					return -EBADMSG;
				more = !odd && next[0];
			} else if (r.type == type && r.len == (type == DNS_A ? 4u : 16u)) {
				if (ret->n < DNS_ADDRS) {
					ret->addrs[ret->n].family = type == DNS_A ? 4 : 6;
					memcpy(ret->addrs[ret->n++].b, c.p + r.data, r.len);
				}
			} else {
				continue;
			}
			ttl = r.ttl < ttl ? r.ttl : ttl;
		}
		if (ret->n || !more)
			break;
		memcpy(want, next, sizeof want);
	}
	ret->ttl = ret->n && ttl < 0x80000000u ? ttl : 0;
	return 0;
}

int dns_parse_reply(const void *p, size_t n, uint16_t id, const char *name, uint16_t type, struct dns_reply *ret)
{
	struct cur c = { .p = p, .n = n };
	char asked[DNS_NAME];
	bool odd;

	memset(ret, 0, sizeof *ret);
	if (get16(&c) != id || c.bad)
		return -EBADMSG;
	uint16_t flags = get16(&c), qd = get16(&c), an = get16(&c);

	get32(&c);
	if (c.bad || !(flags & 0x8000) || (flags >> 11 & 15) != 0 || qd != 1)
		return -EBADMSG;
	get_name(&c, false, asked, &odd);
	if (get16(&c) != type || get16(&c) != 1 || c.bad || odd || strcmp(asked, name) != 0)
		return -EBADMSG;
	ret->rcode = flags & 15;
	ret->truncated = flags & 0x0200;
	if (ret->truncated || ret->rcode != DNS_NOERROR)
		return 0;
	return read_chain(&c, an < RECORDS ? an : RECORDS, name, type, ret);
}
