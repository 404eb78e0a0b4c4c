#include "cli/run_priv.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Restored at exit whatever the path there; signals reach us as events, so every end but SIGKILL is an exit(). */
static struct tty *raw;

void tty_init(struct tty *t)
{
	t->on = tcgetattr(0, &t->saved) == 0 && isatty(1);
	if (t->on)
		tty_resized(t);
}

bool tty_resized(struct tty *t)
{
	struct winsize w;
	uint16_t cols = t->cols, rows = t->rows;

	if (ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row) {
		t->cols = w.ws_col;
		t->rows = w.ws_row;
	}
	return t->cols != cols || t->rows != rows;
}

static void restore_at_exit(void)
{
	if (raw)
		tty_restore(raw);
}

void tty_raw(struct tty *t)
{
	struct termios now = t->saved;

	cfmakeraw(&now);
	if (!raw)
		atexit(restore_at_exit);
	raw = t;
	tcsetattr(0, TCSADRAIN, &now);
}

void tty_restore(struct tty *t)
{
	if (raw != t)
		return;
	tcsetattr(0, TCSADRAIN, &t->saved);
	raw = NULL;
}
