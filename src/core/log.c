#include "core/log.h"
#include "core/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = { "error", "warn", "info", "debug" };
static const char *log_program = "bureau";
static enum log_level log_max = LOG_INFO;

void log_init(const char *program, enum log_level max)
{
	const char *want = getenv("BUREAU_LOG");

	log_program = program;
	log_max = max;
	for (size_t i = 0; want && i < sizeof level_names / sizeof *level_names; i++)
		if (strcmp(want, level_names[i]) == 0)
			log_max = (enum log_level)i;
}

/* Control bytes as \xNN, so that nobody's words can look like a second line or move a terminal's cursor. */
static size_t escape(char *out, size_t size, const char *s)
{
	static const char hex[] = "0123456789abcdef";
	size_t n = 0;

	for (; *s && n + 4 < size; s++) {
		unsigned char c = (unsigned char)*s;

		if (c >= 0x20 && c != 0x7f) {
			out[n++] = (char)c;
			continue;
		}
		out[n++] = '\\';
		out[n++] = 'x';
		out[n++] = hex[c >> 4];
		out[n++] = hex[c & 15];
	}
	return n;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char text[1024], line[2048], when[32];
	int saved = errno;
	size_t n;
	va_list ap;

	if (level > log_max)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	clock_rfc3339(clock_wall_ms(), when);
	n = (size_t)snprintf(line, 160, "%s %s %.60s: ", when, level_names[level], log_program);
	n += escape(line + n, sizeof line - n - 1, text);
	line[n++] = '\n';
	/* One write a line, so that lines of several processes don't mix. A log that can't be written is nobody's failure. */
	if (write(STDERR_FILENO, line, n) < 0)
		errno = saved;
	errno = saved;
}
