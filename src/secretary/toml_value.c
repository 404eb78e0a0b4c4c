/* toml_value -- strings, numbers, booleans, dates. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include "core/str.h"
#include "secretary/toml_priv.h"

static bool control(int c) { return (c >= 0 && c < 32 && c != '\t') || c == 127; }

static int add_rune(struct toml_in *in, struct buf *out, unsigned long c)
{
	char u[4];
	size_t n = 0;

	if (!c)
		return toml_fail(in, EINVAL, "a NUL in a string isn't supported");
	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return toml_fail(in, EINVAL, "the escape isn't a Unicode character");
	if (c < 0x80) {
		u[n++] = (char)c;
	} else if (c < 0x800) {
		u[n++] = (char)(0xc0 | c >> 6);
	} else if (c < 0x10000) {
		u[n++] = (char)(0xe0 | c >> 12);
		u[n++] = (char)(0x80 | (c >> 6 & 63));
	} else {
		u[n++] = (char)(0xf0 | c >> 18);
		u[n++] = (char)(0x80 | (c >> 12 & 63));
		u[n++] = (char)(0x80 | (c >> 6 & 63));
	}
	if (c >= 0x80)
		u[n++] = (char)(0x80 | (c & 63));
	return buf_add(out, u, n);
}

/* in->p is behind the backslash */
static int escape(struct toml_in *in, struct buf *out)
{
	static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
	int c = toml_peek(in, 0), digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
	const char *at = c > 0 ? strchr(from, c) : NULL;
	unsigned long rune = 0;

	if (at) {
		in->p++;
		return buf_addc(out, to[at - from]);
	}
	if (!digits)
		return toml_fail(in, EINVAL, "unknown escape in a string");
	in->p++;
	for (int i = 0; i < digits; i++) {
		int d = toml_peek(in, 0);

		d = d >= '0' && d <= '9' ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10 : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
		if (d < 0)
			return toml_fail(in, EINVAL, "an escape needs %d hexadecimal digits", digits);
		rune = rune << 4 | (unsigned long)d;
		in->p++;
	}
	return add_rune(in, out, rune);
}

/* A backslash at the end of a line of a multi-line string: it and all blank space after it go. 1 = it was one. */
static int fold(struct toml_in *in)
{
	const char *was = in->p;
	int line = in->line;

	toml_blanks(in);
	if (toml_newline(in) <= 0) {
		in->p = was;
		in->line = line;
		return 0;
	}
	do
		toml_blanks(in);
	while (toml_newline(in) > 0);
	return 1;
}

/* One piece inside a string: 1 = the closing quotes were reached, 0 = go on. */
static int piece(struct toml_in *in, int quote, bool many, struct buf *out)
{
	int c = toml_peek(in, 0), run = 0;

	if (c < 0)
		return toml_fail(in, EINVAL, "the string has no end");
	if (c == quote) {
		while (run < 5 && toml_peek(in, (size_t)run) == quote)
			run++;
		if (!many || run >= 3) {
			/* up to two quotes may stand right before the closing three */
			int inside = many ? run - 3 : 0;

			in->p += many ? run : 1;
			while (inside--)
				buf_addc(out, (char)quote);
			return 1;
		}
		in->p++;
		return buf_addc(out, (char)quote);
	}
	if (c == '\\' && quote == '"') {
		in->p++;
		return many && fold(in) ? 0 : escape(in, out);
	}
	if (c == '\n' || c == '\r') {
		if (!many || toml_newline(in) <= 0)
			return toml_fail(in, EINVAL, many ? "a stray carriage return" : "the string has no end on its line");
		return buf_addc(out, '\n');
	}
	if (control(c))
		return toml_fail(in, EINVAL, "a control character in a string");
	in->p++;
	return buf_addc(out, (char)c);
}

int toml_string(struct toml_in *in, bool many, char **ret)
{
	AUTO_BUF struct buf out = BUF_INIT(TOML_MAX + 1);
	int quote = toml_peek(in, 0), r;
	bool three = toml_peek(in, 1) == quote && toml_peek(in, 2) == quote;

	if (three && !many)
		return toml_fail(in, EINVAL, "a key can't be a multi-line string");
	in->p += three ? 3 : 1;
	if (three)
		toml_newline(in);
	do {
		r = piece(in, quote, three, &out);
	} while (!r);
	if (r < 0)
		return r;
	buf_addc(&out, '\0');
	*ret = buf_take(&out);
	return *ret ? 0 : toml_fail(in, ENOMEM, "no memory");
}

/* Matches a shape: 9 = a digit, any other = itself. */
static bool shaped(const char *s, const char *shape)
{
	for (; *shape; s++, shape++) {
		if (*shape == '9' ? !(*s >= '0' && *s <= '9') : *s != *shape)
			return false;
	}
	return true;
}

static int two(const char *s) { return (s[0] - '0') * 10 + s[1] - '0'; }

static bool date_ok(const char *s)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int y = two(s) * 100 + two(s + 2), m = two(s + 5), d = two(s + 8);
	bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;

	return m >= 1 && m <= 12 && d >= 1 && d <= days[m - 1] + (m == 2 && leap);
}

/* The rest of a date and time behind "T" or a local time: 99:99:99[.9+][Z|+99:99] */
static bool time_ok(const char *s, bool zone)
{
	if (!shaped(s, "99:99:99") || two(s) > 23 || two(s + 3) > 59 || two(s + 6) > 60)
		return false;
	s += 8;
	if (*s == '.') {
		s++;
		if (!shaped(s, "9"))
			return false;
		while (shaped(s, "9"))
			s++;
	}
	if (!*s)
		return true;
	if (!zone)
		return false;
	if ((*s == 'Z' || *s == 'z') && !s[1])
		return true;
	return (*s == '+' || *s == '-') && strlen(s) == 6 && shaped(s + 1, "99:99") && two(s + 1) < 24 && two(s + 4) < 60;
}

static bool is_time(const char *s)
{
	if (shaped(s, "99:"))
		return time_ok(s, false);
	if (!shaped(s, "9999-99-99") || !date_ok(s))
		return false;
	return !s[10] || (strchr("Tt ", s[10]) && time_ok(s + 11, true));
}

/* Takes the underscores out; each must stand between two digits. */
static bool plain_digits(char *s, bool hex)
{
	char *w = s;

	for (char *r = s; *r; r++) {
		const char *set = hex ? "0123456789abcdefABCDEF" : "0123456789";

		if (*r != '_') {
			*w++ = *r;
			continue;
		}
		if (r == s || !strchr(set, r[-1]) || !r[1] || !strchr(set, r[1]))
			return false;
	}
	*w = '\0';
	return true;
}

static bool as_int(char *s, int64_t *ret)
{
	static const struct { const char *prefix; int base; const char *digits; } forms[] = {
		{ "0x", 16, "0123456789abcdefABCDEF" }, { "0o", 8, "01234567" }, { "0b", 2, "01" },
	};
	const char *body = s + (*s == '+' || *s == '-'), *digits = "0123456789";
	int base = 10;
	char *end;

	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		if (str_starts(s, forms[i].prefix)) {
			base = forms[i].base;
			digits = forms[i].digits;
			body = s + 2;
		}
	}
	if (!*body || body[strspn(body, digits)] || (base == 10 && body[0] == '0' && body[1]))
		return false;
	errno = 0;
	*ret = strtoll(base == 10 ? s : body, &end, base);
	return !errno && !*end;
}

static bool as_float(const char *s, double *ret)
{
	const char *p = s + (*s == '+' || *s == '-');
	size_t whole = strspn(p, "0123456789"), n;
	bool some = false;

	if (str_eq(p, "inf") || str_eq(p, "nan")) {
		*ret = *p == 'n' ? NAN : *s == '-' ? -INFINITY : INFINITY;
		return true;
	}
	if (!whole || (whole > 1 && *p == '0'))
		return false;
	p += whole;
	if (*p == '.') {
		n = strspn(++p, "0123456789");
		if (!n)
			return false;
		p += n;
		some = true;
	}
	if (*p == 'e' || *p == 'E') {
		p++;
		p += *p == '+' || *p == '-';
		n = strspn(p, "0123456789");
		if (!n)
			return false;
		p += n;
		some = true;
	}
	if (*p || !some)
		return false;
	*ret = strtod(s, NULL);
	return true;
}

static bool word_char(int c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c > 0 && strchr("+-_.:", c));
}

int toml_scalar(struct toml_in *in, struct toml *v)
{
	char word[128];
	size_t n = 0;
	int c;

	while (n < sizeof word - 1 && word_char(toml_peek(in, n)))
		n++;
	/* "1979-05-27 07:32:00": a date may be followed by one space and a time */
	if (n == 10 && in->end - in->p > 14 && shaped(in->p, "9999-99-99 99:")) {
		n++;
		while ((c = toml_peek(in, n)) > 0 && strchr("+-.:0123456789Zz", c) && n < sizeof word - 1)
			n++;
	}
	memcpy(word, in->p, n);
	word[n] = '\0';
	if (!n)
		return toml_fail(in, EINVAL, "a value is missing");
	if (str_eq(word, "true") || str_eq(word, "false")) {
		v->type = TOML_BOOL;
		v->yes = *word == 't';
	} else if (is_time(word)) {
		v->type = TOML_TIME;
		v->str = strdup(word);
		if (!v->str)
			return toml_fail(in, ENOMEM, "no memory");
	} else if (plain_digits(word, str_starts(word, "0x")) && as_int(word, &v->num)) {
		v->type = TOML_INT;
	} else if (as_float(word, &v->real)) {
		v->type = TOML_FLOAT;
	} else {
		return toml_fail(in, EINVAL, "'%.40s' is not a value (text needs quotes)", word);
	}
	in->p += n;
	return 0;
}
