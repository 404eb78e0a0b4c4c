/* api_util -- one call at a time, tables, output. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "cli/api.h"
#include "core/str.h"

struct waiting { struct api *a; struct err err; json_t *result; bool done; };

static void on_done(void *ctx, const struct client_answer *ans)
{
	struct waiting *w = ctx;

	if (ans->e)
		w->err = *ans->e;
	w->result = json_incref(ans->result);
	loop_quit(w->a->loop, 0);
}

int api_call(struct api *a, const char *method, const char *path, json_t *args, json_t **ret_result, struct err *e)
{
	struct waiting w = { .a = a };

	if (!client_json(a->client, method, path, args, false, on_done, &w))
		return err_set(e, ENOMEM, "no memory");
	loop_run(a->loop);
	if (w.err.code) {
		json_decref(w.result);
		*e = w.err;
		return -e->code;
	}
	if (ret_result)
		*ret_result = w.result;
	else
		json_decref(w.result);
	return 0;
}

int api_path(char *out, size_t size, const char *id, const char *rest, struct err *e)
{
	if (!str_id(id)) {
		err_set(e, ENOENT, "'%.60s' is not a sandbox's id", id);
		return err_hint(e, "'bureau sandbox list' shows them; they are given whole");
	}
	snprintf(out, size, "/v1/sandboxes/%s%s%s", id, *rest ? "/" : "", rest);
	return 0;
}

void api_json(const json_t *v)
{
	AUTO_BUF struct buf b = BUF_INIT(64u << 20);

	js_dump_pretty(v, &b);
	fwrite(buf_at(&b), 1, b.len, stdout);
}

void api_put(FILE *f, const char *s)
{
	while (s && *s) {
		size_t n = str_obeyed(s);

		fputc(n ? '?' : *s, f);
		s += n ? n : 1;
	}
}

void api_text(const char *s)
{
	api_put(stdout, s);
}

/* Columns on the screen: characters, not bytes */
static int width_of(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

void api_table(const json_t *rows, const struct api_column *c, size_t n)
{
	int width[16] = { 0 };
	char cell[200];
	json_t *row;
	size_t i, k;

	for (k = 0; k < n; k++)
		width[k] = width_of(c[k].title);
	json_array_foreach(rows, i, row) {
		for (k = 0; k < n; k++) {
			cell[0] = '\0';
			c[k].cell(row, cell, sizeof cell);
			if (width_of(cell) > width[k])
				width[k] = width_of(cell);
		}
	}
	for (k = 0; k < n; k++)
		printf("%s%*s", c[k].title, k + 1 < n ? width[k] - width_of(c[k].title) + 2 : 0, "");
	putchar('\n');
	json_array_foreach(rows, i, row) {
		int gap = 0;

		for (k = 0; k < n; k++) {
			cell[0] = '\0';
			c[k].cell(row, cell, sizeof cell);
			gap += width[k] + 2;
			if (!*cell)
				continue;      /* its blanks come before the next one, so none end a line */
			printf("%*s", gap - width[k] - 2, "");
			api_text(cell);
			gap = width[k] - width_of(cell) + 2;
		}
		putchar('\n');
	}
}
