#include "http/multipart.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/buf.h"
#include "core/str.h"
#include "http/parse.h"

/* Theory of operation. The body is preamble, then for each part a delimiter line, a head, an empty line, content. A
 * delimiter is CRLF "--" boundary, so content can't be told from a delimiter until that many bytes have been seen: `match` says
 * how many bytes of the delimiter the last bytes fed agree with. They're handed out as content if the match breaks. The
 * delimiter starts with the only CR in it that could begin it anew (a boundary holds no control byte), so after a break
 * matching restarts either at this very byte or not at all: no backtracking. */

enum { BOUNDARY_MAX = 70, HEAD_MAX = 8192, PARTS_MAX = 1000, PREAMBLE_MAX = 65536 };
enum state { PREAMBLE, AFTER_DELIMITER, HEAD, CONTENT, EPILOGUE, FAILED };

struct http_multipart {
	struct http_multipart_cb cb;
	void *ctx;
	enum state state;
	char delimiter[BOUNDARY_MAX + 5];       /* CR LF - - boundary */
	size_t delimiter_len, match, after;     /* after: bytes of the line behind a delimiter */
	bool closing, cr;
	bool first;                             /* the matched CRLF is one that wasn't fed: nothing to hand out */
	int failed;
	unsigned parts;
	size_t preamble;
	struct buf head;
};

/* A parameter's value at s (bare or quoted-string) into out. Returns behind it, or NULL. Browsers escape only the quote, as %22 or \";
 * a backslash before anything else is kept, for old clients that send Windows paths. A bare value may hold '/': not a
 * token, but some clients leave it so in filename*. */
static const char *value(const char *s, char *out, size_t size)
{
	size_t n = 0;

	if (*s != '"') {
		n = strcspn(s, "; \t");
		if (n == 0 || n >= size || memchr(s, '"', n))
			return NULL;
		memcpy(out, s, n);
		out[n] = 0;
		return s + n;
	}
	for (s++; *s != '"'; s++) {
		if (*s == '\\' && (s[1] == '"' || s[1] == '\\'))
			s++;
		if (!*s || n + 1 >= size)
			return NULL;
		out[n++] = *s;
	}
	out[n] = 0;
	return s + 1;
}

/* The next "; name=value" of a field. 1, 0 = no more, negative = malformed. */
static int parameter(const char **s, char *name, size_t name_size, char *out, size_t size)
{
	const char *p = *s + strspn(*s, " \t");

	if (!*p)
		return 0;
	if (*p++ != ';')
		return -EINVAL;
	p += strspn(p, " \t");
	if (!*p)
		return 0;
	size_t n = strcspn(p, "= \t;\"");

	if (!http_is_token(p, n) || n >= name_size || p[n] != '=')
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		name[i] = (char)(p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 32 : p[i]);
	name[n] = 0;
	p = value(p + n + 1, out, size);
	if (!p)
		return -EINVAL;
	*s = p;
	return 1;
}

/* RFC 2046: what a boundary may hold, beyond letters and digits */
static bool good_boundary(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n > BOUNDARY_MAX || s[n - 1] == ' ')
		return false;
	for (; *s; s++)
		if (!strchr("'()+_,-./:=? ", *s) && !(*s >= '0' && *s <= '9') && !(*s >= 'a' && *s <= 'z') && !(*s >= 'A' && *s <= 'Z'))
			return false;
	return true;
}

int http_multipart_create(const char *content_type, const struct http_multipart_cb *cb, void *ctx, struct http_multipart **ret, struct err *e)
{
	static const char type[] = "multipart/form-data";
	char name[32], v[128], boundary[128] = "";
	int more;

	if (strncasecmp(content_type, type, sizeof type - 1) != 0)
		return err_set(e, EINVAL, "not a multipart/form-data body");
	const char *s = content_type + sizeof type - 1;

	while ((more = parameter(&s, name, sizeof name, v, sizeof v)) > 0)
		if (str_eq(name, "boundary"))
			str_copy(boundary, sizeof boundary, v);
	if (more < 0 || !good_boundary(boundary))
		return err_set(e, EINVAL, "a multipart body without a usable boundary");
	struct http_multipart *m = calloc(1, sizeof *m);

	if (!m)
		return err_set(e, ENOMEM, "read a multipart body: no memory");
	m->cb = *cb;
	m->ctx = ctx;
	buf_init(&m->head, HEAD_MAX);
	memcpy(m->delimiter, "\r\n--", 4);
	str_copy(m->delimiter + 4, sizeof m->delimiter - 4, boundary);
	m->delimiter_len = 4 + strlen(boundary);
	m->match = 2;           /* the first delimiter needs no CRLF before it */
	m->first = true;
	*ret = m;
	return 0;
}

void http_multipart_free(struct http_multipart *m)
{
	if (!m)
		return;
	buf_done(&m->head);
	free(m);
}

/* ---- a part's head ---- */

/* RFC 5987: UTF-8'lang'percent-encoded */
static int extended(const char *v, char *out, size_t size)
{
	struct buf b = BUF_INIT(size - 1);
	const char *q = strncasecmp(v, "utf-8'", 6) == 0 ? strchr(v + 6, '\'') : NULL;
	int bad = q ? str_percent_decode(q + 1, strlen(q + 1), false, &b) : -EINVAL;

	if (bad >= 0)
		bad = str_copy(out, size, buf_at(&b));
	buf_done(&b);
	return bad;
}

struct names { char name[1024], file[4200], star[4200], type[256]; bool has_name, has_file, has_star, has_type; };

static int disposition(const char *s, struct names *p)
{
	char key[32], v[4200];
	int more;

	if (strncasecmp(s, "form-data", 9) != 0)
		return -EINVAL;
	s += 9;
	while ((more = parameter(&s, key, sizeof key, v, sizeof v)) > 0) {
		if (str_eq(key, "name")) {
			if (p->has_name || str_copy(p->name, sizeof p->name, v) < 0)
				return -EINVAL;
			p->has_name = true;
		} else if (str_eq(key, "filename")) {
			if (p->has_file)
				return -EINVAL;
			str_copy(p->file, sizeof p->file, v);
			p->has_file = true;
		} else if (str_eq(key, "filename*")) {
			if (p->has_star || extended(v, p->star, sizeof p->star) < 0)
				return -EINVAL;
			p->has_star = true;
		}
	}
	return more < 0 || !p->has_name ? -EINVAL : 0;
}

/* One line of the head, NUL-terminated without its CRLF */
static int head_line(char *line, struct names *p)
{
	char *colon = strchr(line, ':');

	if (!colon || !http_is_token(line, (size_t)(colon - line)))
		return -EINVAL;
	char *v = colon + 1 + strspn(colon + 1, " \t");

	*colon = 0;
	if (strcasecmp(line, "content-disposition") == 0)
		return p->has_name ? -EINVAL : disposition(v, p);
	if (strcasecmp(line, "content-type") == 0) {
		p->has_type = str_copy(p->type, sizeof p->type, v) == 0;
		return p->has_type ? 0 : -EINVAL;
	}
	/* old clients may encode content; nobody may leave it encoded unnoticed */
	if (strcasecmp(line, "content-transfer-encoding") == 0)
		return strcasecmp(v, "binary") == 0 || strcasecmp(v, "8bit") == 0 || strcasecmp(v, "7bit") == 0 ? 0 : -EINVAL;
	return 0;
}

static int head_done(struct http_multipart *m, struct err *e)
{
	struct names *p = calloc(1, sizeof *p);
	int bad = p ? 0 : -ENOMEM;

	for (char *line = (char *)buf_at(&m->head); bad == 0 && *line;) {
		char *end = strstr(line, "\r\n");

		*end = 0;
		bad = head_line(line, p);
		line = end + 2;
	}
	if (bad == 0 && !p->has_name)
		bad = -EINVAL;
	if (bad == 0) {
		struct http_part part = { .name = p->name, .filename = p->has_star ? p->star : p->has_file ? p->file : NULL,
			.type = p->has_type ? p->type : NULL };

		buf_clear(&m->head);
		m->state = CONTENT;
		m->match = 2;   /* an empty part: the delimiter may follow its empty line at once */
		m->first = true;
		bad = m->cb.begin(m->ctx, &part);
		free(p);
		return bad < 0 ? err_set(e, -bad, "a part of the body was refused") : 0;
	}
	free(p);
	return err_set(e, -bad, "a malformed part head");
}

/* One byte of a head. Control bytes but the CRLFs and tabs are refused; the end is an empty line. */
static int head_byte(struct http_multipart *m, char c, struct err *e)
{
	if (m->cr ? c != '\n' : c != '\r' && !http_is_value(&c, 1))
		return err_set(e, EBADMSG, "a byte in a part's head that can't be there");
	m->cr = c == '\r';
	if (buf_addc(&m->head, c) < 0)
		return err_set(e, E2BIG, "a part's head of more than %d bytes", HEAD_MAX);
	const char *h = buf_at(&m->head);
	size_t n = m->head.len;

	if (c != '\n' || !(n == 2 || (n >= 4 && h[n - 3] == '\n')))
		return 0;
	((char *)h)[n - 2] = 0;         /* cut the empty line: what's left are whole lines */
	return head_done(m, e);
}

/* ---- content ---- */

static int give(struct http_multipart *m, const char *p, size_t n, struct err *e)
{
	if (n == 0)
		return 0;
	if (m->state == PREAMBLE) {
		m->preamble += n;
		return m->preamble > PREAMBLE_MAX ? err_set(e, EBADMSG, "no part in the first %d bytes", PREAMBLE_MAX) : 0;
	}
	int bad = m->cb.data(m->ctx, p, n);

	return bad < 0 ? err_set(e, -bad, "a part of the body was refused") : 0;
}

static int delimiter_seen(struct http_multipart *m, struct err *e)
{
	int bad = m->state == CONTENT ? m->cb.end(m->ctx) : 0;

	m->match = m->after = 0;
	m->closing = m->cr = m->first = false;
	m->state = AFTER_DELIMITER;
	return bad < 0 ? err_set(e, -bad, "a part of the body was refused") : 0;
}

/* Content or preamble from p; returns how many bytes were used, up to a whole delimiter. */
static ssize_t content(struct http_multipart *m, const char *p, size_t n, struct err *e)
{
	size_t i = 0;

	while (i < n) {
		if (m->match == 0) {
			const char *cr = memchr(p + i, '\r', n - i);
			size_t run = cr ? (size_t)(cr - (p + i)) : n - i;
			int bad = give(m, p + i, run, e);

			if (bad < 0)
				return bad;
			i += run;
			if (!cr)
				break;
		}
		for (; i < n && m->match < m->delimiter_len && p[i] == m->delimiter[m->match]; i++)
			m->match++;
		if (m->match == m->delimiter_len) {
			int bad = delimiter_seen(m, e);

			return bad < 0 ? bad : (ssize_t)i;
		}
		if (i == n)
			break;
		/* it wasn't one: what had matched is content, but for a CRLF that we took as given */
		size_t from = m->first ? 2 : 0, had = m->match;

		m->match = 0;
		m->first = false;
		if (had > from) {
			int bad = give(m, m->delimiter + from, had - from, e);

			if (bad < 0)
				return bad;
		}
	}
	return (ssize_t)i;
}

/* Behind a delimiter: "--" closes; then spaces and CRLF. */
static int after_byte(struct http_multipart *m, char c, struct err *e)
{
	size_t at = m->after++;

	if (m->after > 128)
		return err_set(e, EBADMSG, "a boundary line with something behind it");
	if (m->cr) {
		if (c != '\n')
			return err_set(e, EBADMSG, "a boundary line that doesn't end");
		m->cr = false;
		if (++m->parts > PARTS_MAX)
			return err_set(e, E2BIG, "more than %d parts", PARTS_MAX);
		m->state = HEAD;
		return 0;
	}
	if (c == '-' && (at == 0 || (at == 1 && m->closing))) {
		m->closing = true;
		if (at == 1)
			m->state = EPILOGUE;
	} else if (m->closing) {
		return err_set(e, EBADMSG, "a boundary line with something behind it");
	} else if (c == '\r') {
		m->cr = true;
	} else if (c != ' ' && c != '\t') {
		return err_set(e, EBADMSG, "a boundary line with something behind it");
	}
	return 0;
}

int http_multipart_feed(struct http_multipart *m, const char *p, size_t n, struct err *e)
{
	ssize_t used = 0;

	while (n && m->state != EPILOGUE) {
		bool runs = m->state == PREAMBLE || m->state == CONTENT;

		if (m->state == FAILED)
			return err_set(e, -m->failed, "the body was refused before");
		if (runs)
			used = content(m, p, n, e);
		else
			used = m->state == HEAD ? head_byte(m, *p, e) : after_byte(m, *p, e);
		if (used < 0) {
			m->state = FAILED;
			m->failed = (int)used;
			return m->failed;
		}
		if (!runs)
			used = 1;
		p += used;
		n -= (size_t)used;
	}
	return 0;
}

int http_multipart_finish(struct http_multipart *m, struct err *e)
{
	return m->state == EPILOGUE ? 0 : err_set(e, EBADMSG, "the body ended before its closing boundary");
}
