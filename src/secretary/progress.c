/* progress -- what happens, while it happens, on stderr: a small table that redraws itself on a terminal, one line a change
 * otherwise. Texts may come from computers: control characters never reach the terminal. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/str.h"
#include "secretary/secretary.h"

#define ROWS 14
#define REDRAW_MS 200

struct progress {
	struct loop *loop;
	struct secretary *s;
	bool quiet, tty;
	unsigned drawn;
	int64_t began;
	struct timer redraw;
};

static void plain(char *s)
{
	char *to = s;

	while (*s) {
		size_t n = str_obeyed(s);

		*to++ = n ? '?' : *s;
		s += n ? n : 1;
	}
	*to = '\0';
}

static void out(const char *p, size_t n)
{
	/* a terminal that went away ends nothing */
	while (n) {
		ssize_t r = write(STDERR_FILENO, p, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return;
		p += r;
		n -= (size_t)r;
	}
}

static unsigned columns(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

static void add_line(struct buf *b, unsigned width, unsigned *lines, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void add_line(struct buf *b, unsigned width, unsigned *lines, const char *fmt, ...)
{
	char text[400];
	size_t n;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	plain(text);
	n = strlen(text);
	if (n > width - 1)
		n = width - 1;
	while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;            /* not in the middle of a character */
	buf_add(b, text, n);
	buf_adds(b, "\033[K\n");
	++*lines;
}

static double seconds(int64_t ms) { return (double)ms / 1000; }

static void draw(struct progress *p)
{
	AUTO_BUF struct buf b = BUF_INIT(65536);
	unsigned width = columns(), lines = 0, shown = 0;
	int count[TASK_STATES], n, running;
	struct task *t = sched_tasks(p->s->sched, &n);
	int64_t now = clock_wall_ms();
	char bad[40] = "";

	sched_count(p->s->sched, count);
	running = count[TASK_STARTING] + count[TASK_WORKING] + count[TASK_CLAIMED];
	if (p->drawn)
		buf_printf(&b, "\033[%uA", p->drawn);
	if (count[TASK_FAILED] + count[TASK_BLOCKED])
		snprintf(bad, sizeof bad, ", %d not done", count[TASK_FAILED] + count[TASK_BLOCKED]);
	add_line(&b, width, &lines, "%s: %d of %d done, %d running, %d waiting%s  %.0f s", p->s->spec->name, count[TASK_DONE], n, running,
		count[TASK_WAITING] + count[TASK_PARKED], bad, seconds(now - p->began));
	for (int i = 0; i < n && shown < ROWS; i++) {
		if (!task_running(t[i].state) && t[i].state != TASK_PARKED)
			continue;
		shown++;
		add_line(&b, width, &lines, "  %-20s %-9s %-22s %s", t[i].id, task_state_name(t[i].state), t[i].computer,
			t[i].state == TASK_PARKED ? t[i].why : t[i].now);
	}
	buf_adds(&b, "\033[J");
	out(buf_at(&b), b.len);
	p->drawn = lines;
}

static void on_redraw(struct timer *t)
{
	struct progress *p = container_of(t, struct progress, redraw);

	draw(p);
	loop_arm(p->loop, &p->redraw, 1000);
}

static void erase(struct progress *p)
{
	char text[24];
	int n;

	if (!p->drawn)
		return;
	n = snprintf(text, sizeof text, "\033[%uA\033[J", p->drawn);
	out(text, (size_t)n);
	p->drawn = 0;
}

void progress_note(struct progress *p, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	if (!p || p->quiet)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	plain(text);
	if (p->tty)
		erase(p);
	out(text, strlen(text));
	out("\n", 1);
}

/* What the failed step had to say, below its line. */
static void tail(struct progress *p, const struct task *t)
{
	char text[TAIL_MAX], *at = text, *nl;

	tail_of(run_steps(t), text);
	for (; (nl = strchr(at, '\n')); at = nl + 1) {
		*nl = '\0';
		progress_note(p, "%10s| %s", "", at);
	}
}

/* The changes that are worth a line. */
static void line(struct progress *p, const struct task *t)
{
	double at = seconds(clock_wall_ms() - p->began);

	switch (t->state) {
	case TASK_WORKING:
		if (!*t->now)
			progress_note(p, "%7.1fs  %-20s computer %s", at, t->id, t->computer);
		return;
	case TASK_DONE:
		progress_note(p, "%7.1fs  %-20s done", at, t->id);
		return;
	case TASK_PARKED:
	case TASK_FAILED:
	case TASK_BLOCKED:
	case TASK_STOPPED:
		progress_note(p, "%7.1fs  %-20s %s%s: %s", at, t->id, task_state_name(t->state), t->state == TASK_PARKED ? ", tried again soon" : "", t->why);
		tail(p, t);
		return;
	default:
		return;
	}
}

void progress_task(struct progress *p, struct task *t)
{
	if (!p || p->quiet)
		return;
	if (!p->tty) {
		line(p, t);
		return;
	}
	if (t->state == TASK_FAILED)
		line(p, t);
	if (!p->redraw.pos || p->redraw.due_ms > clock_mono_ms() + REDRAW_MS)
		loop_arm(p->loop, &p->redraw, p->drawn ? REDRAW_MS : 0);
}

int progress_create(struct loop *l, struct secretary *s, bool quiet, struct progress **ret, struct err *e)
{
	struct progress *p = calloc(1, sizeof *p);
	const char *term = getenv("TERM");

	if (!p)
		return err_set(e, ENOMEM, "no memory");
	p->loop = l;
	p->s = s;
	p->quiet = quiet;
	p->tty = isatty(STDERR_FILENO) && term && !str_eq(term, "dumb");
	p->began = clock_wall_ms();
	p->redraw.fire = on_redraw;
	*ret = p;
	return 0;
}

void progress_free(struct progress *p)
{
	if (!p)
		return;
	if (p->tty && !p->quiet)
		erase(p);
	loop_disarm(p->loop, &p->redraw);
	free(p);
}
