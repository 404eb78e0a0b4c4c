#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What glibc's headers make our objects ask for, and musl's libc.a hasn't got: see docs/decisions/0005-small-libc.md.
 * Linked into static programs only, and only where they are linked with musl. */
struct statx;
int close_range(unsigned first, unsigned last, int flags);
int renameat2(int fromdir, const char *from, int todir, const char *to, unsigned flags);
int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st);
const char *strerrordesc_np(int code);
long __isoc23_strtol(const char *s, char **end, int base);
unsigned long __isoc23_strtoul(const char *s, char **end, int base);
long long __isoc23_strtoll(const char *s, char **end, int base);
unsigned long long __isoc23_strtoull(const char *s, char **end, int base);

int close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

int renameat2(int fromdir, const char *from, int todir, const char *to, unsigned flags)
{
	return (int)syscall(SYS_renameat2, fromdir, from, todir, to, flags);
}

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	return (int)syscall(SYS_statx, dir, path, flags, mask, st);
}

const char *strerrordesc_np(int code)
{
	return strerror(code);
}

/* glibc from 2.38 on, with _GNU_SOURCE */
long __isoc23_strtol(const char *s, char **end, int base)
{
	return (strtol)(s, end, base);
}

unsigned long __isoc23_strtoul(const char *s, char **end, int base)
{
	return (strtoul)(s, end, base);
}

long long __isoc23_strtoll(const char *s, char **end, int base)
{
	return (strtoll)(s, end, base);
}

unsigned long long __isoc23_strtoull(const char *s, char **end, int base)
{
	return (strtoull)(s, end, base);
}
