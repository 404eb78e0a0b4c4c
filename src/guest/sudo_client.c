/* sudo_client -- what runs under the name `sudo` in a computer: asks PID 1, passes its descriptors, relays a terminal.
 *
 * With a terminal on stdin and stdout, and in its foreground, the program gets one of its own and this client is a relay:
 * the user's is raw meanwhile, so that Ctrl-C and Ctrl-Z are bytes for the other one. Otherwise the program has our
 * descriptors themselves and we only pass signals on and wait. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"
#include "guest/sudo.h"

extern char **environ;

struct client {
	int sock, master, sigs;
	bool pty, raw, input;           /* input: our stdin is still read */
	struct termios before;
	sigset_t mask;
	uint8_t msg[MSG_MAX];
};

static const int passed_on[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP, SIGWINCH };

/* Kept without -E: how the terminal looks and which language it speaks. */
static const char *const harmless[] = { "TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "DISPLAY", "XAUTHORITY", "LS_COLORS", "DEBIAN_FRONTEND", NULL };
/* Never taken from the caller: they say who the program is, or how it is found. */
static const char *const never[] = { "PATH", "SUDO_USER", "SUDO_UID", "SUDO_GID", "SUDO_COMMAND", "LD_PRELOAD", "LD_LIBRARY_PATH", NULL };

static bool named(const char *kv, const char *const *names)
{
	size_t n = strcspn(kv, "=");

	for (; *names; names++)
		if (strlen(*names) == n && memcmp(*names, kv, n) == 0)
			return true;
	return false;
}

/* "A,B,C" of --preserve-env=A,B,C */
static bool in_list(const char *kv, const char *list)
{
	size_t n = strcspn(kv, "=");

	for (const char *p = list; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (strncmp(p, kv, n) == 0 && (p[n] == ',' || p[n] == '\0'))
			return true;
	}
	return false;
}

static bool wanted(const char *kv, const struct sudo_args *a)
{
	if (named(kv, never))
		return false;
	return a->preserve || str_starts(kv, "LC_") || named(kv, harmless) || in_list(kv, a->only);
}

static void put_envs(struct msg_writer *w, const struct sudo_args *a)
{
	uint32_t n = (uint32_t)a->nvars;

	for (char **v = environ; *v; v++)
		n += wanted(*v, a);
	msg_put_u32(w, n);
	for (char **v = environ; *v; v++)
		if (wanted(*v, a))
			msg_put_str(w, *v);
	for (size_t i = 0; i < a->nvars; i++)
		msg_put_str(w, a->vars[i]);
}

/* The program and its words: what was asked for, or a shell. */
static int put_command(struct msg_writer *w, const struct sudo_args *a)
{
	const char *words[4] = { NULL };
	char name[264];
	struct users users;
	struct user u;
	struct err e;
	char *line = a->cmd[0] ? sudo_quote(a->cmd) : NULL;
	const char *shell = a->shell ? getenv("SHELL") : NULL, *base;

	users_init(&users);
	if (users_find(&users, a->user, &u, &e) < 0) {
		fprintf(stderr, "sudo: unknown user %s\n", a->user);
		return -1;
	}
	if (!shell || shell[0] != '/')
		shell = u.shell;
	base = strrchr(shell, '/') ? strrchr(shell, '/') + 1 : shell;
	snprintf(name, sizeof name, "%s%.255s", a->login ? "-" : "", base);
	words[0] = name;
	if (line) {
		words[1] = "-c";
		words[2] = line;
	}
	msg_put_str(w, shell);
	msg_put_strv(w, words, line ? 3 : 1);
	free(line);
	users_done(&users);
	return 0;
}

static int send_run(struct client *c, const struct sudo_args *a)
{
	AUTO_FD int cwd = open(a->chdir ? a->chdir : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	uint32_t flags = c->pty ? SF_PTY : 0;
	struct winsize ws = { 0 };
	struct msg_writer w;
	size_t n = 0;

	if (cwd < 0)
		cwd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; c->pty && i < 3; i++)
		flags |= isatty(i) ? (uint32_t)SF_TTY0 << i : 0;
	if (a->login && !a->chdir)
		flags |= SF_HOME;
	if (c->pty)
		ioctl(0, TIOCGWINSZ, &ws);
	msg_writer_init(&w, c->msg, sizeof c->msg, S_RUN, 0);
	msg_put_u32(&w, flags);
	msg_put_str(&w, a->user);
	if (a->login || a->shell) {
		if (put_command(&w, a) < 0)
			return 1;
	} else {
		while (a->cmd[n])
			n++;
		msg_put_str(&w, a->cmd[0]);
		msg_put_strv(&w, (const char *const *)(uintptr_t)a->cmd, n);
	}
	put_envs(&w, a);
	msg_put_u16(&w, ws.ws_col);
	msg_put_u16(&w, ws.ws_row);
	msg_put_bytes(&w, &c->before, c->pty ? sizeof c->before : 0);
	for (int i = 0; i < 3; i++)
		msg_put_fd(&w, i);
	msg_put_fd(&w, cwd);
	if (w.bad) {
		fprintf(stderr, "sudo: the command line and environment are longer than %d bytes\n", MSG_MAX);
		return 1;
	}
	if (msg_send(c->sock, &w) < 0) {
		fprintf(stderr, "sudo: you may not use sudo in this computer\n");
		return 1;
	}
	return 0;
}

/* ---- the terminal ---- */

static void raw(struct client *c, bool on)
{
	struct termios t = c->before;

	if (!c->pty || c->raw == on)
		return;
	if (on)
		cfmakeraw(&t);
	tcsetattr(0, TCSADRAIN, &t);
	c->raw = on;
}

static void resize(struct client *c)
{
	struct winsize ws;

	if (c->master >= 0 && ioctl(0, TIOCGWINSZ, &ws) == 0)
		ioctl(c->master, TIOCSWINSZ, &ws);
}

static void write_out(const char *p, size_t n)
{
	while (n) {
		ssize_t k = write(1, p, n);

		if (k < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){ .fd = 1, .events = POLLOUT }, 1, -1);
			continue;
		}
		if (k < 0 && errno != EINTR)
			return;
		if (k > 0) {
			p += k;
			n -= (size_t)k;
		}
	}
}

/* From the program's terminal to ours. false when there's nothing more. */
static bool relay_out(struct client *c)
{
	char buf[8192];
	ssize_t n = read(c->master, buf, sizeof buf);

	if (n > 0)
		write_out(buf, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		fd_drop(&c->master);
	return n > 0;
}

static void relay_in(struct client *c)
{
	char buf[1024];
	ssize_t n = read(0, buf, sizeof buf), done = 0;

	if (n <= 0) {
		c->input = n < 0 && (errno == EAGAIN || errno == EINTR);
		return;
	}
	while (c->master >= 0 && done < n) {
		ssize_t k = write(c->master, buf + done, (size_t)(n - done));

		if (k > 0)
			done += k;
		else if (errno == EAGAIN)       /* a program that doesn't read: what it says goes on being shown */
			poll(&(struct pollfd){ .fd = c->master, .events = POLLOUT }, 1, 100), relay_out(c);
		else if (errno != EINTR)
			return;
	}
}

/* ---- signals and the end ---- */

static void pass_signal(struct client *c, uint32_t signo)
{
	struct msg_writer w;
	uint8_t mem[32];

	msg_writer_init(&w, mem, sizeof mem, S_SIGNAL, 0);
	msg_put_u32(&w, signo);
	msg_send(c->sock, &w);
}

/* Stops as the program did, the whole job, and goes on with it when the shell says so. */
static void stop_too(struct client *c)
{
	sigset_t tstp;

	raw(c, false);
	sigemptyset(&tstp);
	sigaddset(&tstp, SIGTSTP);
	kill(0, SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &tstp, NULL);          /* stopped here; in an orphaned job it's ignored */
	sigprocmask(SIG_SETMASK, &c->mask, NULL);
	raw(c, true);
	resize(c);
	pass_signal(c, SIGCONT);
}

static void on_signal(struct client *c)
{
	struct signalfd_siginfo si;

	if (read(c->sigs, &si, sizeof si) != (ssize_t)sizeof si)
		return;
	if (si.ssi_signo == SIGWINCH)
		resize(c);
	else
		pass_signal(c, si.ssi_signo);
}

static int leave(struct client *c, bool signalled, int code)
{
	while (c->master >= 0 && relay_out(c))
		;
	raw(c, false);
	if (!signalled)
		return code;
	signal(code, SIG_DFL);
	sigprocmask(SIG_SETMASK, &(sigset_t){ 0 }, NULL);
	raise(code);
	return 128 + code;
}

/* -1: go on; else the exit status */
static int on_message(struct client *c)
{
	int fds[MSG_FDS], code = -1;
	unsigned nfds;
	struct msg_reader r;
	struct err e;
	ssize_t n = msg_recv(c->sock, c->msg, sizeof c->msg, fds, &nfds);
	uint32_t a, b;

	if (n == -EAGAIN)
		return -1;
	if (n <= 0 || msg_reader_init(&r, c->msg, (size_t)n, fds, nfds, &e) < 0) {
		raw(c, false);
		fprintf(stderr, "sudo: you may not use sudo in this computer, or too many are at work\n");
		return 1;
	}
	switch (r.type) {
	case S_STARTED:
		if (r.nfds)
			c->master = msg_take_fd(&r);
		raw(c, true);
		break;
	case S_FAILED:
		a = msg_get_u32(&r);
		fprintf(stderr, "sudo: %s\n", msg_get_str(&r, 1000));
		code = a == ENOPKG ? 127 : a == ENOEXEC ? 126 : 1;
		break;
	case S_STOPPED:
		msg_get_u32(&r);
		stop_too(c);
		break;
	case S_EXIT:
		a = msg_get_u32(&r);
		b = msg_get_u32(&r);
		code = leave(c, a != 0, (int)b & 0xff);
		break;
	}
	msg_reader_end(&r, &e);
	return code;
}

static int serve(struct client *c)
{
	for (;;) {
		struct pollfd p[4] = {
			{ .fd = c->sock, .events = POLLIN }, { .fd = c->sigs, .events = POLLIN }, { .fd = c->master, .events = POLLIN },
			{ .fd = c->input && c->master >= 0 ? 0 : -1, .events = POLLIN },
		};
		int code;

		if (poll(p, 4, -1) < 0)
			continue;
		if (p[2].revents)
			relay_out(c);
		if (p[1].revents)
			on_signal(c);
		if (p[3].revents)
			relay_in(c);
		if (p[0].revents && (code = on_message(c)) >= 0)
			return code;
	}
}

static int open_client(struct client *c)
{
	struct sockaddr_un sa;
	unsigned len;

	sudo_addr(&sa, &len);
	c->master = -1;
	c->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (c->sock < 0 || connect(c->sock, (struct sockaddr *)&sa, len) < 0) {
		fprintf(stderr, "sudo: can't reach PID 1 of this computer: %s\n", strerror(errno));
		return -1;
	}
	c->pty = isatty(0) && isatty(1) && tcgetpgrp(0) == getpgrp() && tcgetattr(0, &c->before) == 0;
	c->input = c->pty;
	sigemptyset(&c->mask);
	for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
		sigaddset(&c->mask, passed_on[i]);
	sigprocmask(SIG_SETMASK, &c->mask, NULL);
	c->sigs = signalfd(-1, &c->mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return c->sigs < 0 ? -1 : 0;
}

static const char usage[] =
	"usage: sudo [-EHinSs] [-u USER] [-D FOLDER] [VAR=value] [command ...]\n"
	"       sudo -l | -v | -k | -V\n"
	"PID 1 of this computer runs the command as USER (root). There is no password.\n";

int sudo_main(int argc, char **argv)
{
	static struct client c;
	struct sudo_args a;

	if (sudo_parse(argc, argv, &a) < 0)
		return 1;
	if (a.help || a.version) {
		printf(a.help ? "%s" : "Sudo of Bureau %s\n", a.help ? usage : BUREAU_VERSION);
		return 0;
	}
	if (a.list) {
		printf("This user may run the following commands on this computer:\n    (ALL) NOPASSWD: ALL\n");
		return 0;
	}
	if (a.validate || (a.reset && !a.cmd[0]))
		return 0;
	if (!a.cmd[0] && !a.login && !a.shell) {
		fputs(usage, stderr);
		return 1;
	}
	if (open_client(&c) < 0 || send_run(&c, &a) != 0)
		return 1;
	return serve(&c);
}
