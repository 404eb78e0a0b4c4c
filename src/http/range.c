#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "http/parse.h"

/* 1 and the number, 0 = no digits here, -ERANGE = too large to be meant */
static int number(const char **s, uint64_t *ret)
{
	const char *p = *s;
	uint64_t v = 0;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (p - *s >= 18)
			return -ERANGE;
		v = v * 10 + (uint64_t)(*p - '0');
	}
	if (p == *s)
		return 0;
	*s = p;
	*ret = v;
	return 1;
}

int http_parse_range(const char *value, uint64_t size, uint64_t *ret_from, uint64_t *ret_to)
{
	uint64_t from = 0, last = 0;

	if (strncasecmp(value, "bytes=", 6) != 0)
		return 0;
	const char *s = value + 6;
	int has_from = number(&s, &from);

	if (has_from < 0)
		return -ERANGE;
	if (*s++ != '-')
		return 0;
	int has_last = number(&s, &last);

	if (has_last < 0) {     /* "to far beyond the end" is the end */
		last = UINT64_MAX - 1;
		s += strspn(s, "0123456789");
		has_last = 1;
	}
	if (*s || (!has_from && !has_last) || (has_from && has_last && last < from))
		return 0;
	if (!has_from) {        /* the last n bytes */
		if (last == 0 || size == 0)
			return -ERANGE;
		*ret_from = last < size ? size - last : 0;
		*ret_to = size;
		return 1;
	}
	if (from >= size)
		return -ERANGE;
	*ret_from = from;
	*ret_to = has_last && last + 1 < size ? last + 1 : size;
	return 1;
}

static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };

void http_date(int64_t unix_seconds, char out[32])
{
	time_t t = (time_t)unix_seconds;
	struct tm tm = { 0 };

	gmtime_r(&t, &tm);
	snprintf(out, 32, "%s, %02u %s %04u %02u:%02u:%02u GMT", days[(unsigned)tm.tm_wday % 7], (unsigned)tm.tm_mday % 100,
		months[(unsigned)tm.tm_mon % 12], (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
}

int http_parse_date(const char *s, int64_t *ret_unix_seconds)
{
	struct tm tm = { 0 };
	char mon[4], day[4], back[32];
	int used = 0;

	if (strlen(s) != 29 || sscanf(s, "%3s, %2d %3s %4d %2d:%2d:%2d GMT%n", day, &tm.tm_mday, mon, &tm.tm_year, &tm.tm_hour, &tm.tm_min,
	    &tm.tm_sec, &used) != 7 || used != 29)
		return -EINVAL;
	tm.tm_year -= 1900;
	for (tm.tm_mon = 0; tm.tm_mon < 12 && strcmp(mon, months[tm.tm_mon]) != 0;)
		tm.tm_mon++;
	if (tm.tm_mon == 12)
		return -EINVAL;
	int64_t t = (int64_t)timegm(&tm);

	http_date(t, back);     /* what doesn't come back the same wasn't a date */
	if (strcmp(back, s) != 0)
		return -EINVAL;
	*ret_unix_seconds = t;
	return 0;
}
