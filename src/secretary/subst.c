#include "secretary/subst.h"

#include <errno.h>
#include "core/str.h"

#define NAME_LEN 200

/* The next {{name}} from *at: 1 and the name, the text before it (before, nbefore), *at behind it; 0 = none left. */
static int next(const char **at, const char **before, size_t *nbefore, char name[NAME_LEN], struct err *e)
{
	const char *open = strstr(*at, "{{"), *close, *p;
	size_t n;

	*before = *at;
	*nbefore = open ? (size_t)(open - *at) : strlen(*at);
	if (!open)
		return 0;
	close = strstr(open, "}}");
	if (!close)
		return err_set(e, EINVAL, "'{{' without '}}'");
	for (p = open + 2; *p == ' '; p++)
		;
	for (n = (size_t)(close - p); n && p[n - 1] == ' '; n--)
		;
	if (!n || n >= NAME_LEN)
		return err_set(e, EINVAL, "a {{name}} is empty or too long");
	for (size_t i = 0; i < n; i++) {
		char c = p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("._- ", c) || (c & 0x80)))
			return err_set(e, EINVAL, "'{{%.*s}}' is not a name", (int)n, p);
	}
	memcpy(name, p, n);
	name[n] = '\0';
	*at = close + 2;
	return 1;
}

int subst_names(const char *text, int (*each)(void *ctx, const char *name, struct err *e), void *ctx, struct err *e)
{
	char name[NAME_LEN];
	const char *before;
	size_t n;
	int r;

	while ((r = next(&text, &before, &n, name, e)) > 0) {
		r = str_eq(name, "open") ? 0 : each(ctx, name, e);
		if (r < 0)
			return r;
	}
	return r;
}

static int add_value(const struct subst *s, const char *name, struct buf *out, struct err *e)
{
	AUTO_JSON json_t *v = NULL;
	int r = s->get(s->ctx, name, &v, e);

	if (r < 0)
		return r;
	if (json_is_string(v))
		buf_add(out, json_string_value(v), json_string_length(v));
	else if (!json_is_null(v))
		js_dump(v, out);
	return 0;
}

int subst_text(const struct subst *s, const char *text, struct buf *out, struct err *e)
{
	char name[NAME_LEN];
	const char *before;
	size_t n;
	int r;

	while ((r = next(&text, &before, &n, name, e)) >= 0) {
		buf_add(out, before, n);
		if (!r)
			break;
		if (str_eq(name, "open"))
			buf_adds(out, "{{");
		else
			r = add_value(s, name, out, e);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	return buf_ok(out) ? 0 : err_set(e, E2BIG, "the text is too large with its values put in");
}
