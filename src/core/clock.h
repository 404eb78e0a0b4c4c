#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H
#include <stddef.h>
#include <stdint.h>
/* clock -- milliseconds. Mono for waiting and ages inside one process; wall (Unix) for what is stored or shown. */
int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);
int64_t clock_wall_ms(void);
/* Since the host's start, its sleep counted; nobody sets it. The same in a computer as outside. */
int64_t clock_boot_ms(void);
/* RFC 3339 UTC with milliseconds, "2026-11-30T20:05:10.399Z". */
void clock_rfc3339(int64_t wall_ms, char out[32]);
int clock_parse_rfc3339(const char *s, int64_t *ret_wall_ms);   /* -EINVAL */
#endif
