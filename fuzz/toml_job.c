/* Any bytes as a job file, as CSV, as JSON lines, as a text with {{names}}. */
#include <stdlib.h>
#include <string.h>
#include "secretary/input.h"
#include "secretary/spec.h"
#include "secretary/subst.h"

int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n);

static int get(void *ctx, const char *name, json_t **ret, struct err *e)
{
	*ret = json_string("{{x}}");
	return 0;
}

static void text(const char *p, size_t n)
{
	struct subst s = { get, NULL };
	struct buf b = BUF_INIT(1u << 20);
	char *copy = strndup(p, n);
	struct err e;

	if (copy)
		subst_text(&s, copy, &b, &e);
	buf_done(&b);
	free(copy);
}

int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n)
{
	const char *at = (const char *)p + 1;
	struct spec *s = NULL;
	json_t *rows = NULL;
	size_t ends[8];
	struct err e;

	if (!n)
		return 0;
	n--;
	switch (*p & 3) {
	case 0:
		if (spec_parse(at, n, "fuzz", &s, &e) == 0)
			spec_free(s);
		break;
	case 1:
		if (input_csv(at, n, &rows, &e) == 0)
			json_decref(rows);
		break;
	case 2:
		if (input_jsonl(at, n, &rows, &e) == 0)
			json_decref(rows);
		break;
	default:
		text(at, n);
		if (n > 1)
			input_split(at + 1, n - 1, "\n\n", 1 + (unsigned char)at[0] % 8, ends);
	}
	return 0;
}
