#include "api/e2b_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <openssl/evp.h>

#include "core/str.h"

bool e2b_id(const char *s, size_t n, char ret_id[E2B_ID_SIZE])
{
	const char *dash = memchr(s, '-', n);
	size_t len = dash ? (size_t)(dash - s) : n;

	if (len == 0 || len >= E2B_ID_SIZE)
		return false;
	memcpy(ret_id, s, len);
	ret_id[len] = '\0';
	return str_id(ret_id);
}

static bool port_number(const char *s, size_t n, uint16_t *ret)
{
	char text[6];
	uint64_t v;

	if (n == 0 || n >= sizeof text)
		return false;
	memcpy(text, s, n);
	text[n] = '\0';
	if (str_u64(text, 65535, &v) < 0 || v == 0)
		return false;
	*ret = (uint16_t)v;
	return true;
}

/* Length of a host without its port. Sandboxes have no IPv6 literals for names. */
static size_t host_len(const char *s)
{
	return strcspn(s, ":");
}

static bool below(const char *host, size_t n, const char *domain, size_t dn)
{
	return dn > 0 && n > dn + 1 && host[n - dn - 1] == '.' && strncasecmp(host + n - dn, domain, dn) == 0;
}

int e2b_addr_host(const char *host, const char *domain, struct e2b_addr *ret, const char **ret_why)
{
	size_t n = host_len(host), dn = domain ? host_len(domain) : 0;
	const char *dash;
	size_t label;

	if (!below(host, n, domain, dn) && !below(host, n, "localhost", 9))
		return 0;
	label = strcspn(host, ".");
	dash = memchr(host, '-', label);
	if (!dash)      /* api.DOMAIN, or a plain name: not a sandbox's */
		return 0;
	if (!port_number(host, (size_t)(dash - host), &ret->port)) {
		*ret_why = "Invalid sandbox port";
		return -EINVAL;
	}
	if (!e2b_id(dash + 1, label - (size_t)(dash + 1 - host), ret->id)) {
		*ret_why = "Invalid sandbox ID";
		return -EINVAL;
	}
	return 1;
}

int e2b_addr_fields(const char *id, const char *port, struct e2b_addr *ret, const char **ret_why)
{
	if (!id && !port)
		return 0;
	if (!id || !port) {
		*ret_why = "missing header";
		return -EINVAL;
	}
	if (!e2b_id(id, strlen(id), ret->id)) {
		*ret_why = "Invalid sandbox ID";
		return -EINVAL;
	}
	if (!port_number(port, strlen(port), &ret->port)) {
		*ret_why = "Invalid sandbox port";
		return -EINVAL;
	}
	return 1;
}

int e2b_basic_user(const char *authorization, char *out, size_t size)
{
	struct buf AUTO_BUF b = BUF_INIT(1024);
	const char *colon;
	size_t n;

	if (!authorization || strncasecmp(authorization, "Basic ", 6) != 0)
		return 0;
	authorization += 6 + strspn(authorization + 6, " ");
	if (str_base64_decode(authorization, strlen(authorization), &b) < 0 || !b.len)
		return -EINVAL;
	colon = memchr(buf_at(&b), ':', b.len);
	n = colon ? (size_t)(colon - buf_at(&b)) : b.len;
	if (n >= size || memchr(buf_at(&b), '\0', n))
		return -EINVAL;
	memcpy(out, buf_at(&b), n);
	out[n] = '\0';
	return n > 0;
}

bool e2b_sign_ok(const struct e2b_sign *s, const char *token)
{
	struct buf AUTO_BUF raw = BUF_INIT(16384), AUTO_BUF want = BUF_INIT(128);
	unsigned char sum[EVP_MAX_MD_SIZE];
	char given[80];
	unsigned n = 0;

	buf_printf(&raw, "%s:%s:%s:%s", s->path, s->op, s->user, token);
	if (s->has_expires)
		buf_printf(&raw, ":%lld", (long long)s->expires);
	if (!buf_ok(&raw) || EVP_Digest(buf_at(&raw), raw.len, sum, &n, EVP_sha256(), NULL) != 1)
		return false;
	buf_adds(&want, "v1_");
	str_base64(&want, sum, n);
	if (!buf_ok(&want))
		return false;
	while (want.len && want.data[want.off + want.len - 1] == '=')
		want.data[want.off + --want.len] = '\0';
	if (str_copy(given, sizeof given, s->signature) < 0)
		return false;
	for (char *p = given; *p; p++)          /* a '+' that a client didn't escape in the query */
		if (*p == ' ')
			*p = '+';
	return str_eq_ct(given, buf_at(&want));
}

int e2b_env_next(const char *p, size_t n, size_t max, uint8_t *ret_flags, const char **ret_msg, size_t *ret_len)
{
	const unsigned char *u = (const unsigned char *)p;
	size_t len;

	if (n < E2B_ENV_HEAD)
		return 0;
	if (u[0] & ~(unsigned)E2B_ENV_END)      /* bit 0: compressed, and we never offered a compression */
		return -EPROTO;
	len = (size_t)u[1] << 24 | (size_t)u[2] << 16 | (size_t)u[3] << 8 | u[4];
	if (len > max)
		return -EMSGSIZE;
	if (n - E2B_ENV_HEAD < len)
		return 0;
	*ret_flags = u[0];
	*ret_msg = p + E2B_ENV_HEAD;
	*ret_len = len;
	return 1;
}

/* An envelope is begun with its length unknown, and closed once the message stands behind it. */
static size_t env_open(struct buf *out, uint8_t flags)
{
	const char head[E2B_ENV_HEAD] = { (char)flags };

	buf_add(out, head, sizeof head);
	return out->len;
}

static int env_close(struct buf *out, size_t start)
{
	unsigned char *h;
	size_t n;

	if (!buf_ok(out))
		return -ENOSPC;
	n = out->len - start;
	h = (unsigned char *)out->data + out->off + start - 4;
	h[0] = (unsigned char)(n >> 24);
	h[1] = (unsigned char)(n >> 16);
	h[2] = (unsigned char)(n >> 8);
	h[3] = (unsigned char)n;
	return 0;
}

int e2b_env_text(struct buf *out, uint8_t flags, const char *json, size_t n)
{
	size_t start = env_open(out, flags);

	buf_add(out, json, n);
	return env_close(out, start);
}

int e2b_env_json(struct buf *out, uint8_t flags, const json_t *v)
{
	size_t start = env_open(out, flags);

	js_dump(v, out);
	return env_close(out, start);
}

int e2b_env_data(struct buf *out, enum op_stream s, const void *p, size_t n)
{
	static const char *const open[] = {
		[OP_STDOUT] = "{\"event\":{\"data\":{\"stdout\":\"",
		[OP_STDERR] = "{\"event\":{\"data\":{\"stderr\":\"",
		[OP_PTY] = "{\"event\":{\"data\":{\"pty\":\"",
	};
	size_t start = env_open(out, 0);

	buf_adds(out, open[s]);
	str_base64(out, p, n);
	buf_adds(out, "\"}}}");
	return env_close(out, start);
}

static const struct { int code; const char *word; } code_words[] = {
	{ ENOENT, "not_found" }, { ENOPKG, "not_found" }, { ESRCH, "not_found" }, { ENXIO, "not_found" },
	{ EEXIST, "already_exists" },
	{ EINVAL, "invalid_argument" }, { ENOTDIR, "invalid_argument" }, { EISDIR, "invalid_argument" },
	{ ENAMETOOLONG, "invalid_argument" }, { E2BIG, "invalid_argument" }, { ERANGE, "invalid_argument" },
	{ ELOOP, "invalid_argument" }, { EBADMSG, "invalid_argument" }, { EPROTO, "invalid_argument" },
	{ EACCES, "permission_denied" }, { EPERM, "permission_denied" }, { ENOEXEC, "permission_denied" }, { EROFS, "permission_denied" },
	{ EMSGSIZE, "resource_exhausted" }, { EAGAIN, "resource_exhausted" }, { ENOSPC, "resource_exhausted" },
	{ EDQUOT, "resource_exhausted" }, { EFBIG, "resource_exhausted" }, { ENOMEM, "resource_exhausted" },
	{ EMFILE, "resource_exhausted" }, { ENFILE, "resource_exhausted" },
	{ EPIPE, "failed_precondition" }, { ENOTEMPTY, "failed_precondition" }, { EBUSY, "failed_precondition" },
	{ ETIMEDOUT, "deadline_exceeded" }, { ETIME, "deadline_exceeded" },
	{ ENOSYS, "unimplemented" }, { ENOTSUP, "unimplemented" },
	{ ECONNREFUSED, "unavailable" }, { ECONNRESET, "unavailable" }, { EHOSTDOWN, "unavailable" }, { ENOTCONN, "unavailable" },
	{ ECANCELED, "canceled" },
};

const char *e2b_code(int code)
{
	for (size_t i = 0; i < sizeof code_words / sizeof *code_words; i++)
		if (code_words[i].code == code)
			return code_words[i].word;
	return "internal";
}

int e2b_code_status(const char *word)
{
	static const struct { const char *word; int status; } table[] = {
		{ "not_found", 404 }, { "already_exists", 409 }, { "invalid_argument", 400 }, { "permission_denied", 403 },
		{ "resource_exhausted", 429 }, { "failed_precondition", 400 }, { "deadline_exceeded", 504 },
		{ "unimplemented", 501 }, { "unavailable", 503 }, { "canceled", 499 }, { "unauthenticated", 401 },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (str_eq(table[i].word, word))
			return table[i].status;
	return 500;
}

int e2b_error_json(struct buf *out, const char *word, const char *text)
{
	buf_printf(out, "{\"code\":\"%s\",\"message\":", word);
	str_json(out, text, strlen(text));
	buf_addc(out, '}');
	return buf_ok(out) ? 0 : -ENOSPC;
}
