#ifndef CORE_JSON_H
#define CORE_JSON_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "core/buf.h"
#include "core/err.h"
/* json -- jansson behind a thin, strict layer: duplicates, bad UTF-8, NUL and trailing text are refused.
 * js_get_* read a member of an object: absent (or null) leaves *ret untouched and returns 0; the wrong type is -EINVAL
 * with an error that names the member; present returns 1. Strings are borrowed from the value. */
int js_parse(const char *p, size_t n, json_t **ret, struct err *e);
int js_dump(const json_t *v, struct buf *out);                        /* compact */
int js_dump_pretty(const json_t *v, struct buf *out);                 /* two spaces, stable order, newline at the end */
int js_get_str(const json_t *o, const char *key, const char **ret, struct err *e);
int js_get_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e);
int js_get_bool(const json_t *o, const char *key, bool *ret, struct err *e);
int js_get_obj(const json_t *o, const char *key, json_t **ret, struct err *e);
int js_get_arr(const json_t *o, const char *key, json_t **ret, struct err *e);
static inline void js_drop(json_t **v) { json_decref(*v); *v = NULL; }
#define AUTO_JSON __attribute__((cleanup(js_drop)))
#endif
