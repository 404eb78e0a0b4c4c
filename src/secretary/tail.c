#include <stdio.h>
#include <string.h>
#include "secretary/secretary.h"

#define LINES 5
#define LINE_BYTES 240

/* The step of these that went wrong, the last one if there are several. */
static const json_t *failed_step(const json_t *steps)
{
	for (size_t i = json_array_size(steps); i; i--) {
		const json_t *step = json_array_get(steps, i - 1);

		if (json_object_get(step, "error"))
			return step;
	}
	return NULL;
}

static size_t put_line(char *out, size_t size, const char *p, size_t n)
{
	size_t cut = n > LINE_BYTES ? LINE_BYTES : n;

	while (cut && cut < n && ((unsigned char)p[cut] & 0xc0) == 0x80)
		cut--;                  /* not in the middle of a character */
	return (size_t)snprintf(out, size, "%.*s%s\n", (int)cut, p, cut < n ? "…" : "");
}

const char *tail_of(const json_t *steps, char out[TAIL_MAX])
{
	const json_t *step = failed_step(steps);
	const char *text = json_string_value(json_object_get(step, "stderr")), *p, *end;
	size_t at = 0;
	int lines = 0;

	out[0] = '\0';
	if (!text || !text[strspn(text, " \t\r\n")])
		text = json_string_value(json_object_get(step, "stdout"));
	if (!text)
		return out;
	end = text + strlen(text);
	while (end > text && strchr(" \t\r\n", end[-1]))
		end--;
	for (p = end; p > text; p--)
		if (p[-1] == '\n' && ++lines == LINES)
			break;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((nl ? nl : end) - p);

		at += put_line(out + at, TAIL_MAX - at, p, n && p[n - 1] == '\r' ? n - 1 : n);
		p = nl ? nl + 1 : end;
	}
	return out;
}

const char *tail_of_task(const json_t *task, char out[TAIL_MAX])
{
	const json_t *log = json_object_get(task, "log");

	out[0] = '\0';
	if (!json_is_string(json_object_get(task, "error")) || !json_array_size(log))
		return out;
	return tail_of(json_object_get(json_array_get(log, json_array_size(log) - 1), "steps"), out);
}
