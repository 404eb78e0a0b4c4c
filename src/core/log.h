#ifndef CORE_LOG_H
#define CORE_LOG_H
/* log -- lines on stderr, for programs (library code fills struct err instead). "time level program: text".
 * Control characters in the text are escaped, so a peer's words can't forge a line. Never log a key, token or secret. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_init(const char *program, enum log_level max);   /* BUREAU_LOG=error|warn|info|debug overrides */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#endif
