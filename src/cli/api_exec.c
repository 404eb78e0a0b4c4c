/* api_exec -- bureau sandbox exec: a program over there, with our stdin, stdout, stderr or terminal.
 *
 * Theory of operation. Output is written as it comes, blocking: a slow reader slows the program down, as a pipe would. Input goes one
 * piece at a time: read, send, and only when that is taken, read again. A stdin that can't be polled (a file) is read right then.
 * With a terminal: raw mode, restored on every way out; the size follows SIGWINCH. Without: Ctrl-C goes to the program; a second one
 * leaves. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "cli/api.h"
#include "core/fd.h"
#include "core/str.h"

#define PIECE 65536
#define KEPT_MAX (16u << 20)     /* with --json */

struct session {
	struct api *a;
	const char *id;
	int64_t pid;
	bool tty, polled, reading, eof;
	struct source in;
	struct client_call *feed, *side;
	struct client_run *run;
	uint64_t fed;              /* bytes of input so far */
	int signals;
	int code;
	const char *how;
	struct buf kept[2];        /* --json: stdout, stderr */
	bool cut;
	struct err err;
};

static struct termios saved;
static bool raw;

static void tty_restore(void)
{
	if (raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
	raw = false;
}

static int tty_raw(struct err *e)
{
	struct termios t;

	if (tcgetattr(STDIN_FILENO, &saved) < 0) {
		err_set(e, EINVAL, "--tty: stdin is not a terminal");
		return err_hint(e, "without --tty, -i alone passes it on");
	}
	t = saved;
	cfmakeraw(&t);
	if (tcsetattr(STDIN_FILENO, TCSADRAIN, &t) < 0)
		return err_sys(e, "make the terminal raw");
	raw = true;
	atexit(tty_restore);
	return 0;
}

static void pump(struct session *s);

static void on_fed(void *ctx, const struct client_answer *ans)
{
	struct session *s = ctx;

	s->feed = NULL;
	if (ans->e)
		s->eof = true;          /* it doesn't read any more; its exit code says the rest */
	if (s->eof) {
		if (s->polled)
			loop_remove(s->a->loop, &s->in);
		return;
	}
	if (s->polled)
		loop_mod(s->a->loop, &s->in, EPOLLIN);
	else
		pump(s);
}

/* One piece of stdin on its way. */
static void pump(struct session *s)
{
	static char piece[PIECE];
	ssize_t n;

	if (s->feed || s->eof)
		return;
	do {
		n = read(STDIN_FILENO, piece, sizeof piece);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return;
	if (s->polled)
		loop_mod(s->a->loop, &s->in, 0);
	if (n <= 0) {
		s->eof = true;
		if (s->tty) {
			piece[0] = 4;           /* end of file, as a terminal says it */
			n = 1;
		} else {
			n = 0;
		}
	}
	s->feed = client_input(s->a->client, s->id, s->pid, s->tty, s->fed, piece, (size_t)n, on_fed, s);
	s->fed += (uint64_t)n;
}

static void on_stdin(struct source *src, uint32_t events) { pump(container_of(src, struct session, in)); }

static void on_start(void *ctx, int64_t pid)
{
	struct session *s = ctx;
	struct err e;

	s->pid = pid;
	if (!s->a->o.stdin_open)
		return;
	s->in = (struct source){ .fd = STDIN_FILENO, .name = "stdin", .ready = on_stdin };
	s->polled = loop_add(s->a->loop, &s->in, EPOLLIN, &e) >= 0;
	if (!s->polled)
		pump(s);
}

static void on_output(void *ctx, enum client_stream stream, const char *p, size_t n)
{
	struct session *s = ctx;
	struct err e;

	if (s->a->o.json) {
		s->cut = buf_add(&s->kept[stream == CLIENT_STDERR], p, n) < 0 || s->cut;
		return;
	}
	/* a reader that went away ends nothing over there, but we have nobody to tell any more */
	if (fd_write_all(stream == CLIENT_STDERR ? STDERR_FILENO : STDOUT_FILENO, p, n, &e) < 0) {
		tty_restore();
		exit(128 + SIGPIPE);
	}
}

static void on_end(void *ctx, const struct client_exit *x)
{
	struct session *s = ctx;

	s->run = NULL;
	if (x->e)
		s->err = *x->e;
	s->how = x->how == CLIENT_SIGNALED ? "signaled" : x->how == CLIENT_TIMED_OUT ? "timeout" : "exited";
	s->code = x->how == CLIENT_SIGNALED ? 128 + x->code : x->how == CLIENT_TIMED_OUT ? 124 : x->code;
	if (x->oom)
		err_set(&s->err, ENOMEM, "the program was ended: the sandbox ran out of memory");
	else if (x->how == CLIENT_TIMED_OUT)
		err_set(&s->err, ETIMEDOUT, "the program took too long and was ended");
	else if (x->lost)
		fputs("bureau: some output was lost while the server was away\n", stderr);
	s->cut = s->cut || x->lost;
	loop_quit(s->a->loop, 0);
}

static void on_side(void *ctx, const struct client_answer *ans)
{
	struct session *s = ctx;

	s->side = NULL;
}

static void tell(struct session *s, const char *what, json_t *args)
{
	char path[128];

	if (!s->pid || s->side) {
		json_decref(args);
		return;
	}
	json_object_set_new(args, "pid", json_integer(s->pid));
	snprintf(path, sizeof path, "/v1/sandboxes/%s/processes/%s", s->id, what);
	s->side = client_json(s->a->client, "POST", path, args, true, on_side, s);
}

static void on_signal(void *ctx, int signo)
{
	struct session *s = ctx;
	struct winsize w;

	if (signo == SIGWINCH) {
		if (s->tty && ioctl(STDIN_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row)
			tell(s, "resize", json_pack("{s:i, s:i}", "cols", (int)w.ws_col, "rows", (int)w.ws_row));
		return;
	}
	if (s->signals++ || !s->pid) {
		s->code = 128 + signo;
		loop_quit(s->a->loop, 0);
		return;
	}
	tell(s, "signal", json_pack("{s:i, s:b}", "signal", signo, "group", 1));
}

/* Written by hand: bytes that aren't UTF-8 become U+FFFD, which jansson's strings can't take. */
static void print_json(struct session *s)
{
	AUTO_BUF struct buf b = BUF_INIT(SIZE_MAX / 2);
	static const char *const names[2] = { "stdout", "stderr" };

	buf_printf(&b, "{\n  \"id\": \"%s\",\n  \"pid\": %lld,\n  \"how\": \"%s\",\n  \"exit_code\": %d,\n  \"truncated\": %s", s->id,
		(long long)s->pid, s->how ? s->how : "unknown", s->code, s->cut ? "true" : "false");
	for (int i = 0; i < 2; i++) {
		buf_printf(&b, ",\n  \"%s\": ", names[i]);
		str_json(&b, buf_at(&s->kept[i]), s->kept[i].len);
		buf_done(&s->kept[i]);
	}
	buf_adds(&b, "\n}\n");
	fwrite(buf_at(&b), 1, b.len, stdout);
}

int api_sandbox_exec(struct api *a)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH };
	struct session s = { .a = a, .id = a->argv[0], .kept = { BUF_INIT(KEPT_MAX), BUF_INIT(KEPT_MAX) } };
	AUTO_JSON json_t *args = json_array();
	struct client_exec x = { .id = s.id, .cmd = a->argv[1], .args = args, .cwd = a->o.cwd, .user = a->o.user, .timeout_ms = a->o.timeout_ms,
		.stdin_open = a->o.stdin_open, .start = on_start, .output = on_output, .end = on_end };
	AUTO_JSON json_t *envs = a->o.envs ? json_incref(a->o.envs) : json_object();
	struct winsize w = { .ws_col = 80, .ws_row = 24 };
	const char *term = getenv("TERM");

	if (!str_id(s.id)) {
		err_set(&s.err, ENOENT, "'%.60s' is not a sandbox's id", s.id);
		err_hint(&s.err, "'bureau sandbox list' shows them; they are given whole");
		api_fail(&s.err);
		return API_OURS;
	}
	for (int i = 2; i < a->argc; i++) {
		if (json_array_append_new(args, json_string(a->argv[i])) < 0) {
			err_set(&s.err, EINVAL, "an argument isn't UTF-8");
			return api_fail(&s.err);
		}
	}
	if (a->o.tty && a->o.json) {
		err_set(&s.err, EINVAL, "--json and --tty don't go together");
		return api_fail(&s.err);
	}
	if (a->o.tty) {
		a->o.stdin_open = s.tty = true;
		if (tty_raw(&s.err) < 0)
			return api_fail(&s.err), API_USAGE;
		ioctl(STDIN_FILENO, TIOCGWINSZ, &w);
		x.cols = w.ws_col ? w.ws_col : 80;
		x.rows = w.ws_row ? w.ws_row : 24;
		x.stdin_open = false;
		if (term && !json_object_get(envs, "TERM"))
			json_object_set_new(envs, "TERM", json_string(term));
	}
	x.envs = envs;
	if (loop_signals(a->loop, signals, 4, on_signal, &s, &s.err) < 0 || !(s.run = client_exec(a->client, &x, &s))) {
		tty_restore();
		return api_fail(&s.err), API_OURS;
	}
	loop_run(a->loop);
	tty_restore();
	client_exec_cancel(s.run);
	client_cancel(s.feed);
	client_cancel(s.side);
	loop_remove(a->loop, &s.in);
	if (a->o.json && s.pid)
		print_json(&s);
	if (s.err.code) {
		api_fail(&s.err);
		return s.code ? s.code : s.err.code == ENOPKG ? API_NO_PROGRAM : s.err.code == ENOEXEC ? API_CANT_RUN : API_OURS;
	}
	return s.code;
}
