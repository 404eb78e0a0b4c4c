#include "core/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int64_t clock_mono_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_mono_ms(void)
{
	return clock_mono_us() / 1000;
}

int64_t clock_wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t clock_boot_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Years 0000..9999 are all that RFC 3339 can say. */
#define WALL_MIN (-62167219200000LL)
#define WALL_MAX 253402300799999LL

void clock_rfc3339(int64_t wall_ms, char out[32])
{
	int64_t ms = wall_ms < WALL_MIN ? WALL_MIN : wall_ms > WALL_MAX ? WALL_MAX : wall_ms;
	int frac = (int)(((ms % 1000) + 1000) % 1000);
	time_t sec = (time_t)((ms - frac) / 1000);
	struct tm tm;

	gmtime_r(&sec, &tm);
	snprintf(out, 32, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)(tm.tm_year + 1900) % 10000,
		(unsigned)(tm.tm_mon + 1) % 100, (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100,
		(unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100, (unsigned)frac % 1000);
}

/* n digits, at most max; moves *s on; -1 when they aren't there */
static int digits(const char **s, int n, int max)
{
	int v = 0;

	for (int i = 0; i < n; i++) {
		if ((*s)[i] < '0' || (*s)[i] > '9')
			return -1;
		v = v * 10 + ((*s)[i] - '0');
	}
	*s += n;
	return v <= max ? v : -1;
}

static int literal(const char **s, const char *any)
{
	if (**s == '\0' || !strchr(any, **s))
		return -1;
	(*s)++;
	return 0;
}

static int month_days(int y, int m)
{
	static const int days[12] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

	return days[m - 1] + (m == 2 && (y % 4 == 0 && (y % 100 != 0 || y % 400 == 0)));
}

/* Days since 1970-01-01 of the proleptic Gregorian calendar, with years that begin in March. */
static int64_t civil_days(int64_t y, int m, int d)
{
	int64_t era, yoe, doy;

	y -= m <= 2;
	era = (y >= 0 ? y : y - 399) / 400;
	yoe = y - era * 400;
	doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static int fraction(const char **s, int *ret_ms)
{
	int ms = 0, n = 0;

	if (**s != '.')
		return 0;
	for ((*s)++; **s >= '0' && **s <= '9'; (*s)++, n++)
		if (n < 3)
			ms = ms * 10 + (**s - '0');
	if (n == 0 || n > 9)
		return -1;
	for (int i = n; i < 3; i++)
		ms *= 10;
	*ret_ms = ms;
	return 0;
}

static int zone(const char **s, int *ret_minutes)
{
	int sign, h, m;

	if (**s == 'Z' || **s == 'z') {
		(*s)++;
		return 0;
	}
	sign = **s == '-' ? -1 : 1;
	if (literal(s, "+-") < 0 || (h = digits(s, 2, 23)) < 0 || literal(s, ":") < 0 || (m = digits(s, 2, 59)) < 0)
		return -1;
	*ret_minutes = sign * (h * 60 + m);
	return 0;
}

int clock_parse_rfc3339(const char *s, int64_t *ret_wall_ms)
{
	int y, mo, d, h, mi, se, ms = 0, offset = 0;

	if ((y = digits(&s, 4, 9999)) < 0 || literal(&s, "-") < 0 || (mo = digits(&s, 2, 12)) < 1 ||
	    literal(&s, "-") < 0 || (d = digits(&s, 2, 31)) < 1 || d > month_days(y, mo) || literal(&s, "Tt ") < 0 ||
	    (h = digits(&s, 2, 23)) < 0 || literal(&s, ":") < 0 || (mi = digits(&s, 2, 59)) < 0 ||
	    literal(&s, ":") < 0 || (se = digits(&s, 2, 60)) < 0 || fraction(&s, &ms) < 0 ||
	    zone(&s, &offset) < 0 || *s)
		return -EINVAL;
	*ret_wall_ms = ((civil_days(y, mo, d) * 24 + h) * 60 + mi - offset) * 60000 + se * 1000 + ms;
	return 0;
}
