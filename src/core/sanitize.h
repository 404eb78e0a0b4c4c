#ifndef CORE_SANITIZE_H
#define CORE_SANITIZE_H
/* sanitize -- where a sanitizer's report from inside a computer goes: a descriptor, or -1, as always where there is no sanitizer. */
#ifdef BUREAU_REPORTS
#include <fcntl.h>
static inline int sanitize_report_fd(void)
{
	return open(BUREAU_REPORTS "/guest", O_WRONLY | O_APPEND | O_CLOEXEC);
}
#else
static inline int sanitize_report_fd(void)
{
	return -1;
}
#endif
#endif
