/* toml -- tables, headers, dotted keys, arrays.
 *
 * Theory of operation. One pass, line by line: a header chooses the table that the following `key = value` lines go
 * to. What makes TOML hard is what may be defined again: a table that came to be on the way to another ([a.b] makes
 * a) may be opened by its own header once; one made by dotted keys (a.b = 1) may only get more dotted keys from the
 * same table; an inline table or a written array is closed for ever; [[x]] appends only to arrays made by [[x]].
 * Four flags a node carry that: header, dotted, closed, of_tables. */
#include "secretary/toml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/fd.h"
#include "core/str.h"
#include "secretary/toml_priv.h"

#define MAX_NODES 20000
#define MAX_KEYS 1000
#define MAX_DEPTH 32
#define MAX_PARTS 16

int toml_fail(struct toml_in *in, int code, const char *fmt, ...)
{
	char text[240];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return err_set(in->e, code, "%.60s:%d: %s", in->name, in->line, text);
}

const char *toml_type_name(enum toml_type t)
{
	static const char *const names[] = {
		[TOML_TABLE] = "a table", [TOML_ARRAY] = "an array", [TOML_STR] = "a string", [TOML_INT] = "a whole number",
		[TOML_FLOAT] = "a number", [TOML_BOOL] = "true or false", [TOML_TIME] = "a date or time",
	};

	return names[t];
}

void toml_free(struct toml *t)
{
	/* siblings in a loop, children by recursion: depth is bounded by the parser */
	while (t) {
		struct toml *next = t->next;

		toml_free(t->first);
		free(t->key);
		free(t->str);
		free(t);
		t = next;
	}
}

struct toml *toml_get(const struct toml *table, const char *key)
{
	for (struct toml *m = table && table->type == TOML_TABLE ? table->first : NULL; m; m = m->next) {
		if (str_eq(m->key, key))
			return m;
	}
	return NULL;
}

static struct toml *add(struct toml_in *in, struct toml *parent, const char *key, enum toml_type type)
{
	struct toml *v = NULL;

	if (in->nodes >= MAX_NODES || (key && parent->count >= MAX_KEYS)) {
		toml_fail(in, E2BIG, "too many values");
		return NULL;
	}
	v = calloc(1, sizeof *v);
	if (v && key)
		v->key = strdup(key);
	if (!v || (key && !v->key)) {
		free(v);
		toml_fail(in, ENOMEM, "no memory");
		return NULL;
	}
	in->nodes++;
	v->type = type;
	v->line = in->line;
	if (parent->last)
		parent->last->next = v;
	else
		parent->first = v;
	parent->last = v;
	parent->count++;
	return v;
}

void toml_blanks(struct toml_in *in)
{
	while (toml_peek(in, 0) == ' ' || toml_peek(in, 0) == '\t')
		in->p++;
}

int toml_newline(struct toml_in *in)
{
	int cr = toml_peek(in, 0) == '\r';

	if (toml_peek(in, (size_t)cr) != '\n')
		return 0;
	in->p += cr + 1;
	in->line++;
	return 1;
}

/* blanks and a comment, up to the line's end */
static int rest(struct toml_in *in)
{
	int c;

	toml_blanks(in);
	if (toml_peek(in, 0) != '#')
		return 0;
	while ((c = toml_peek(in, 0)) >= 0 && c != '\n' && !(c == '\r' && toml_peek(in, 1) == '\n')) {
		if ((c < 32 && c != '\t') || c == 127)
			return toml_fail(in, EINVAL, "a control character in a comment");
		in->p++;
	}
	return 0;
}

int toml_lines(struct toml_in *in)
{
	int r;

	do {
		r = rest(in);
		if (r < 0)
			return r;
	} while (toml_newline(in) > 0);
	return 0;
}

static int line_end(struct toml_in *in)
{
	int r = rest(in);

	if (r < 0)
		return r;
	if (toml_newline(in) > 0 || in->p == in->end)
		return 0;
	return toml_fail(in, EINVAL, "unexpected text at the end of the line");
}

/* The parts of a dotted key. */
struct path { char *part[MAX_PARTS]; int n; };

static void path_drop(struct path *k)
{
	while (k->n)
		free(k->part[--k->n]);
}

static int bare_or_quoted(struct toml_in *in, char **ret)
{
	const char *from = in->p;
	int c = toml_peek(in, 0);

	if (c == '"' || c == '\'')
		return toml_string(in, false, ret);
	while ((c = toml_peek(in, 0)) > 0 && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-'))
		in->p++;
	if (in->p == from)
		return toml_fail(in, EINVAL, "a key is missing");
	*ret = strndup(from, (size_t)(in->p - from));
	return *ret ? 0 : toml_fail(in, ENOMEM, "no memory");
}

static int dotted(struct toml_in *in, struct path *k)
{
	for (;;) {
		int r;

		toml_blanks(in);
		if (k->n == MAX_PARTS)
			return toml_fail(in, E2BIG, "a key has too many parts");
		r = bare_or_quoted(in, &k->part[k->n]);
		if (r < 0)
			return r;
		k->n++;
		toml_blanks(in);
		if (toml_peek(in, 0) != '.')
			return 0;
		in->p++;
	}
}

static int pair(struct toml_in *in, struct toml *table, int depth);

static int array(struct toml_in *in, struct toml *v, int depth);

static int inline_table(struct toml_in *in, struct toml *v, int depth)
{
	v->type = TOML_TABLE;
	in->p++;
	toml_blanks(in);
	while (toml_peek(in, 0) != '}') {
		int r = pair(in, v, depth + 1);

		if (r < 0)
			return r;
		toml_blanks(in);
		if (toml_peek(in, 0) == '}')
			break;
		if (toml_peek(in, 0) != ',')
			return toml_fail(in, EINVAL, "',' or '}' is missing in an inline table");
		in->p++;
		toml_blanks(in);
		if (toml_peek(in, 0) == '}')
			return toml_fail(in, EINVAL, "an inline table may not end in ','");
	}
	in->p++;
	v->closed = true;
	return 0;
}

static int value(struct toml_in *in, struct toml *v, int depth)
{
	int c = toml_peek(in, 0);

	if (depth >= MAX_DEPTH)
		return toml_fail(in, E2BIG, "values are nested too deep");
	if (c == '"' || c == '\'') {
		v->type = TOML_STR;
		return toml_string(in, true, &v->str);
	}
	if (c == '[')
		return array(in, v, depth);
	if (c == '{')
		return inline_table(in, v, depth);
	return toml_scalar(in, v);
}

static int array(struct toml_in *in, struct toml *v, int depth)
{
	v->type = TOML_ARRAY;
	v->closed = true;
	in->p++;
	for (;;) {
		struct toml *item;
		int r = toml_lines(in);

		if (r < 0)
			return r;
		if (toml_peek(in, 0) == ']')
			break;
		item = add(in, v, NULL, TOML_BOOL);
		if (!item)
			return -in->e->code;
		r = value(in, item, depth + 1);
		if (r >= 0)
			r = toml_lines(in);
		if (r < 0)
			return r;
		if (toml_peek(in, 0) == ']')
			break;
		if (toml_peek(in, 0) != ',')
			return toml_fail(in, EINVAL, "',' or ']' is missing in an array");
		in->p++;
	}
	in->p++;
	return 0;
}

/* key = value, into table */
static int pair(struct toml_in *in, struct toml *table, int depth)
{
	AUTO(path_drop) struct path k = { .n = 0 };
	struct toml *v;
	int r = dotted(in, &k);

	if (r < 0)
		return r;
	for (int i = 0; i + 1 < k.n; i++) {
		v = toml_get(table, k.part[i]);
		if (v && (v->type != TOML_TABLE || !v->dotted || v->closed))
			return toml_fail(in, EEXIST, "'%.40s' is already defined", k.part[i]);
		if (!v)
			v = add(in, table, k.part[i], TOML_TABLE);
		if (!v)
			return -in->e->code;
		v->dotted = true;
		table = v;
	}
	if (toml_get(table, k.part[k.n - 1]))
		return toml_fail(in, EEXIST, "'%.40s' is already defined", k.part[k.n - 1]);
	if (toml_peek(in, 0) != '=')
		return toml_fail(in, EINVAL, "'=' is missing after '%.40s'", k.part[k.n - 1]);
	in->p++;
	toml_blanks(in);
	v = add(in, table, k.part[k.n - 1], TOML_BOOL);
	return v ? value(in, v, depth + k.n - 1) : -in->e->code;
}

/* Walks all parts but the last of a header. */
static struct toml *header_walk(struct toml_in *in, struct toml *t, const struct path *k)
{
	for (int i = 0; t && i + 1 < k->n; i++) {
		struct toml *v = toml_get(t, k->part[i]);

		if (v && v->type == TOML_ARRAY && v->of_tables)
			v = v->last;
		if (v && (v->type != TOML_TABLE || v->closed)) {
			toml_fail(in, EEXIST, "'%.40s' is already defined", k->part[i]);
			return NULL;
		}
		t = v ? v : add(in, t, k->part[i], TOML_TABLE);
	}
	return t;
}

static struct toml *header_open(struct toml_in *in, struct toml *t, const char *key, bool many)
{
	struct toml *v = toml_get(t, key);

	if (v && (many ? v->type != TOML_ARRAY || !v->of_tables : v->type != TOML_TABLE || v->header || v->dotted || v->closed)) {
		toml_fail(in, EEXIST, "'%.40s' is already defined", key);
		return NULL;
	}
	if (!v)
		v = add(in, t, key, many ? TOML_ARRAY : TOML_TABLE);
	if (v && many) {
		v->of_tables = true;
		v = add(in, v, NULL, TOML_TABLE);
	}
	if (v) {
		v->header = true;
		v->line = in->line;
	}
	return v;
}

static int header(struct toml_in *in, struct toml *root, struct toml **ret)
{
	AUTO(path_drop) struct path k = { .n = 0 };
	bool many = toml_peek(in, 1) == '[';
	struct toml *t;
	int r;

	in->p += many ? 2 : 1;
	r = dotted(in, &k);
	if (r < 0)
		return r;
	if (toml_peek(in, 0) != ']' || (many && toml_peek(in, 1) != ']'))
		return toml_fail(in, EINVAL, "']' is missing");
	in->p += many ? 2 : 1;
	t = header_walk(in, root, &k);
	if (t)
		t = header_open(in, t, k.part[k.n - 1], many);
	if (!t)
		return -in->e->code;
	*ret = t;
	return line_end(in);
}

static void root_drop(struct toml **t) { toml_free(*t); }

int toml_parse(const char *p, size_t n, const char *name, struct toml **ret, struct err *e)
{
	struct err own = { 0 };
	struct toml_in in = { .p = p, .end = p + n, .line = 1, .name = name, .e = e ? e : &own };
	AUTO(root_drop) struct toml *root = NULL;
	struct toml *cur;
	int r = 0;

	if (n > TOML_MAX)
		return err_set(e, EFBIG, "%.60s: larger than %u bytes", name, TOML_MAX);
	if (!str_utf8(p, n))
		return err_set(e, EILSEQ, "%.60s: not UTF-8", name);
	if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
		in.p += 3;
	root = calloc(1, sizeof *root);
	if (!root)
		return err_set(e, ENOMEM, "no memory");
	root->line = 1;
	cur = root;
	while (r >= 0 && (r = toml_lines(&in)) >= 0 && in.p < in.end) {
		if (toml_peek(&in, 0) == '[') {
			r = header(&in, root, &cur);
		} else {
			r = pair(&in, cur, 0);
			if (r >= 0)
				r = line_end(&in);
		}
	}
	if (r < 0)
		return r;
	*ret = root;
	root = NULL;
	return 0;
}
