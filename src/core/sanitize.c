/* sanitize -- what AddressSanitizer and UBSan do in a sanitized build of our programs; no other build has this file.
 *
 * The options are compiled in and not in the environment, since most of our programs start with an empty one. A report goes into
 * a folder of the build, which tools/test looks at when the tests are over. Inside a computer that folder is out of reach:
 * there the report goes to stderr, which for bureau-guest is the file that sanitize_report_fd() opened (isolate/ns_child.c).
 * Leaks are looked for in the unit tests only: LeakSanitizer stops the process by ptrace, and ours are not dumpable. */
#include <dlfcn.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* These run before the sanitizers are set up. */
#define EARLY __attribute__((no_sanitize("address", "undefined"), visibility("default"), used))

#define STDERR "detect_leaks=0:halt_on_error=1:exitcode=86:print_stacktrace=1:handle_abort=0:log_path=stderr"
#define FOLDER "detect_leaks=0:halt_on_error=1:exitcode=86:print_stacktrace=1:handle_abort=0:log_path=" BUREAU_REPORTS "/report"

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

EARLY const char *__asan_default_options(void)
{
	return syscall(SYS_access, BUREAU_REPORTS, W_OK) == 0 ? FOLDER : STDERR;
}

EARLY const char *__ubsan_default_options(void)
{
	return __asan_default_options();
}

/* Each of gcc's two libraries has a file of its own, but what libubsan does to set its file reaches libasan's, which is found first. */
static void __attribute__((constructor)) file_of_ubsan(void)
{
	void *lib = dlopen("libubsan.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void (*set)(const char *path) = lib ? (void (*)(const char *))(uintptr_t)dlsym(lib, "__sanitizer_set_report_path") : NULL;

	if (set && access(BUREAU_REPORTS, W_OK) == 0)
		set(BUREAU_REPORTS "/report-ub");
}
