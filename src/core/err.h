#ifndef CORE_ERR_H
#define CORE_ERR_H
/* err -- one failure, owned by the caller's frame: nothing to free, safe to ignore.
 *
 * Every function that can fail returns 0 (or a useful non-negative value) on success and the negative
 * code on failure, so "return err_set(...)" is a whole error path. Codes are errno numbers: they are the
 * one vocabulary from a system call up to an API's stable error code (ops/ maps them to words).
 * A function that takes `struct err *e` accepts NULL there. Library code fills err and never logs. */
struct err {
	int code;       /* errno number, positive */
	char msg[320];  /* acts and cause, outermost act first; names the object */
	char hint[160]; /* the next step for a person, or "" */
};

/* The first cause, in our own words. Clears the hint. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The first cause, a failed system call: reads errno once, before anything can change it. */
int err_sys(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What was being attempted; keeps code, cause and hint. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What the person can do next. Returns -e->code, so it can end an error path. */
int err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
