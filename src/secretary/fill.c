#include "secretary/fill.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include "core/str.h"

int fill_error(const char *name, const struct toml *t, struct err *e, const char *fmt, ...)
{
	char text[240];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return err_set(e, EINVAL, "%.60s:%d: %s", name, t->line, text);
}

static const struct { const char *want; enum toml_type type[3]; int n; } kinds[] = {
	[FILL_STR] = { "a string", { TOML_STR }, 1 },
	[FILL_INT] = { "a whole number", { TOML_INT }, 1 },
	[FILL_BOOL] = { "true or false", { TOML_BOOL }, 1 },
	[FILL_MS] = { "a time such as \"90s\" or \"5m\"", { TOML_STR, TOML_INT }, 2 },
	[FILL_BYTES] = { "a size such as \"512M\"", { TOML_STR, TOML_INT }, 2 },
	[FILL_MILLI] = { "a number", { TOML_INT, TOML_FLOAT }, 2 },
	[FILL_TABLE] = { "a table", { TOML_TABLE }, 1 },
	[FILL_ARRAY] = { "an array", { TOML_ARRAY }, 1 },
	[FILL_ANY] = { "a value", { TOML_STR }, 0 },
};

static bool fits(const struct toml *v, enum fill_kind kind)
{
	for (int i = 0; i < kinds[kind].n; i++) {
		if (v->type == kinds[kind].type[i])
			return true;
	}
	return !kinds[kind].n;
}

static int take(const struct toml *v, const struct fill *f, void *at, const char *name, struct err *e)
{
	struct err why = { 0 };
	int64_t num = v->num;

	if (f->kind == FILL_MILLI) {
		if (!(v->real >= -1e6 && v->real <= 1e6) || num > 1000000 || num < -1000000)
			return fill_error(name, v, e, "'%s' is out of range", f->key);
		num = v->type == TOML_INT ? v->num * 1000 : (int64_t)(v->real * 1000 + 0.5);
	}
	if (f->max && (f->kind == FILL_INT || f->kind == FILL_MILLI) && (num < f->min || num > f->max)) {
		int64_t unit = f->kind == FILL_MILLI ? 1000 : 1;

		return fill_error(name, v, e, "'%s' must be from %g to %g", f->key, (double)f->min / (double)unit, (double)f->max / (double)unit);
	}
	switch (f->kind) {
	case FILL_STR:
		*(const char **)at = v->str;
		return 0;
	case FILL_INT:
	case FILL_MILLI:
		*(int64_t *)at = num;
		return 0;
	case FILL_BOOL:
		*(bool *)at = v->yes;
		return 0;
	case FILL_MS:
	case FILL_BYTES:
		if (v->type == TOML_INT) {
			if (num < 0 || num > INT64_MAX / 1000)
				return fill_error(name, v, e, "'%s' is out of range", f->key);
			*(uint64_t *)at = (uint64_t)num * (f->kind == FILL_MS ? 1000 : 1);
			return 0;
		}
		if ((f->kind == FILL_MS ? str_duration : str_size)(v->str, at, &why) < 0)
			return fill_error(name, v, e, "'%s' must be %s: %.100s", f->key, kinds[f->kind].want, why.msg);
		return 0;
	default:
		*(const struct toml **)at = v;
		return 0;
	}
}

int fill(const struct toml *t, const struct fill *fields, size_t n, void *into, const char *name, struct err *e)
{
	toml_each(v, t) {
		const struct fill *f = NULL;
		int r;

		for (size_t i = 0; i < n && !f; i++) {
			if (str_eq(fields[i].key, v->key))
				f = &fields[i];
		}
		if (!f)
			return fill_error(name, v, e, "'%.60s' is not known here", v->key);
		if (!fits(v, f->kind))
			return fill_error(name, v, e, "'%s' must be %s, not %s", f->key, kinds[f->kind].want, toml_type_name(v->type));
		r = take(v, f, (char *)into + f->offset, name, e);
		if (r < 0)
			return r;
	}
	return 0;
}
