#include "cli/cli.h"
#include "cli/run_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/proc.h"
#include "core/str.h"
#include "wire/door_proto.h"
#include "wire/guest_proto.h"
#include "wire/sock.h"

/* `bureau run` -- theory of operation.
 *
 * It starts a keeper of its own (--once), whose one asker it is: when this process ends, however it ends, the keeper sees the end
 * of its socket and removes the computer. The request for a computer is in that socket before the keeper has
 * even started, and the program's start is sent to the guest as soon as the keeper hands over its socket, before the guest
 * has started: nobody waits for a greeting. With no terminal the program gets our own three descriptors and no byte passes
 * through us; with one it gets a PTY inside, and bytes are carried.
 *
 * This is a poll loop and not core/loop because it is the path whose every system call is counted; it serves one person, and
 * its writes to a terminal may block. What comes from the guest is checked all the same. */
enum phase { CREATING, STARTING, RUNNING, ENDED };
enum { ASK_CREATE = 1, ASK_KILL, ASK_NET, ASK_OPEN = 1, ASK_START = 1, ASK_SIGNAL, ASK_RESIZE, ASK_INPUT, ASK_CREDIT };
enum { WINDOW = 256 << 10, INPUT = 4096, SWEEP_MS = 5000, LATE_MS = 3000, HANGUP_MS = 5000 };
enum { DOOR_TRIES = 5, DOOR_STEADY_MS = 10000, DOOR_AGAIN_MS = 20, DOOR_TURN = 64 /* messages at once */ };

struct run {
	struct run_options o;
	enum phase phase;
	char id[24];
	int keeper, guest, door, signals;
	struct tty tty;
	uint32_t pid;
	int code;                       /* what we will answer */
	bool killed, timed_out;         /* the program ended by SIGKILL; by its timeout */
	bool swept;                     /* the keeper said that all is gone */
	uint64_t oom_kills;
	int64_t deadline;               /* mono ms, 0 = none: then it's over whatever the others do */
	const char *deadline_words;
	int last_signal, same_signal, early_signal;    /* early: came while the program was being started */
	char input[INPUT];              /* typed and not yet taken */
	size_t input_len;
	bool input_asked, input_end;
	int64_t input_again;            /* the program's queue was full: when to offer it again */
	unsigned denied;
	unsigned door_lost;             /* how many doors in a row ended soon after their start */
	int64_t door_started, door_again;       /* again: when to ask for its sockets once more */
	uint8_t mem[MSG_MAX];
};

/* Ends this process now; the terminal is restored at exit. */
static _Noreturn void give_up(struct run *r, int code)
{
	tty_restore(&r->tty);
	exit(code);
}

static _Noreturn void fail(struct run *r, const struct err *e, int code)
{
	tty_restore(&r->tty);
	cli_error("run", e);
	exit(code);
}

/* ---- sending ---- */

static int send_all(int fd, const struct msg_writer *w)
{
	int n, tries = 0;

	while ((n = msg_send(fd, w)) == -EAGAIN && tries++ < 50) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };

		poll(&p, 1, 100);
	}
	return n;
}

static void ask_create(struct run *r)
{
	const struct run_options *o = &r->o;
	struct msg_writer w;
	struct err e;

	str_new_id(r->id);
	msg_writer_init(&w, r->mem, sizeof r->mem, K_CREATE, ASK_CREATE);
	msg_put_str(&w, r->id);
	msg_put_u32(&w, 0);
	msg_put_str(&w, o->template_name);
	msg_put_u8(&w, o->net);
	msg_put_u64(&w, o->memory);
	msg_put_u64(&w, o->cpu);
	msg_put_u64(&w, o->pids);
	msg_put_u64(&w, o->disk);
	msg_put_u64(&w, o->inodes);
	msg_put_u64(&w, 0);
	msg_put_str(&w, o->hostname);
	msg_put_strv(&w, o->mounts, o->nmounts);
	if (send_all(r->keeper, &w) < 0) {
		err_set(&e, EIO, "ask the keeper for a sandbox: the request is too long, or the keeper is gone");
		fail(r, &e, CLI_OURS);
	}
}

static void too_long(struct err *e)
{
	err_set(e, E2BIG, "the command, its arguments and its variables are too long: %d bytes together, %d arguments at most", MSG_MAX, GUEST_ARGS);
	err_hint(e, "pass much by stdin, or as a file: --mount FILE:/tmp/FILE:ro");
}

static void ask_start(struct run *r)
{
	const struct run_options *o = &r->o;
	struct msg_writer w;
	struct err e;
	int code;

	if (o->nargs > GUEST_ARGS) {
		too_long(&e);
		fail(r, &e, CLI_OURS);
	}
	msg_writer_init(&w, r->mem, sizeof r->mem, G_START, ASK_START);
	msg_put_u32(&w, GS_END_COMPUTER | (r->tty.on ? GS_PTY : GS_FDS));
	msg_put_str(&w, o->cmd);
	msg_put_strv(&w, o->args, o->nargs);
	msg_put_strv(&w, o->envs, o->nenvs);
	msg_put_str(&w, o->workdir);
	msg_put_str(&w, o->user);
	msg_put_str(&w, "");
	msg_put_u16(&w, r->tty.cols);
	msg_put_u16(&w, r->tty.rows);
	msg_put_u32(&w, WINDOW);
	msg_put_u64(&w, o->timeout_ms);
	for (int i = 0; i < 3 && !r->tty.on; i++)
		msg_put_fd(&w, i);
	code = send_all(r->guest, &w);
	if (code < 0) {
		if (code == -EINVAL)
			too_long(&e);
		else
			err_set(&e, -code, "start '%.100s': the sandbox is gone", o->cmd);
		fail(r, &e, CLI_OURS);
	}
	if (o->timeout_ms) {    /* the guest keeps the time; if it doesn't answer for it, we do */
		r->deadline = clock_mono_ms() + (int64_t)o->timeout_ms + LATE_MS;
		r->deadline_words = "timeout";
	}
}

/* What a terminal sends to all in the foreground, and what ends things, goes to the program's whole group; SIGUSR1 and SIGUSR2, which
 * end whoever doesn't expect them, to the program alone, as if it had been told directly. */
static void ask_signal(struct run *r, int signo)
{
	struct msg_writer w;

	msg_writer_init(&w, r->mem, sizeof r->mem, G_SIGNAL, ASK_SIGNAL);
	msg_put_u32(&w, r->pid);
	msg_put_str(&w, "");
	msg_put_u32(&w, (uint32_t)signo);
	msg_put_u8(&w, signo != SIGUSR1 && signo != SIGUSR2);
	send_all(r->guest, &w);
}

static void ask_resize(struct run *r)
{
	struct msg_writer w;

	msg_writer_init(&w, r->mem, sizeof r->mem, G_RESIZE, ASK_RESIZE);
	msg_put_u32(&w, r->pid);
	msg_put_str(&w, "");
	msg_put_u16(&w, r->tty.cols);
	msg_put_u16(&w, r->tty.rows);
	send_all(r->guest, &w);
}

static void ask_input(struct run *r)
{
	struct msg_writer w;

	msg_writer_init(&w, r->mem, sizeof r->mem, G_INPUT, ASK_INPUT);
	msg_put_u32(&w, r->pid);
	msg_put_str(&w, "");
	msg_put_u8(&w, 1);
	msg_put_bytes(&w, r->input, r->input_len);
	r->input_again = 0;
	r->input_asked = send_all(r->guest, &w) == 0;
}

static void give_credit(struct run *r, size_t bytes)
{
	struct msg_writer w;

	msg_writer_init(&w, r->mem, sizeof r->mem, G_CREDIT, ASK_CREDIT);
	msg_put_u32(&w, ASK_START);
	msg_put_u32(&w, (uint32_t)bytes);
	send_all(r->guest, &w);
}

/* ---- starting the others ---- */

/* A sibling whose descriptor 3 is its end of a new pair; it gets a session of its own, so that the terminal's Ctrl-C is ours alone. */
static int start_sibling(const char *program, const char *const *argv, const struct proc_spec *more, struct err *e)
{
	char path[4096];
	const char *log = getenv("BUREAU_LOG"), *env[2] = { NULL, NULL };
	char log_env[64];
	int pair[2], fds[4] = { -1, -1, 2, -1 };

	if (log) {
		snprintf(log_env, sizeof log_env, "BUREAU_LOG=%s", log);
		env[0] = log_env;
	}
	if (proc_sibling(program, path, sizeof path, e) < 0 || sock_pair(pair, e) < 0)
		return -e->code;
	fds[3] = pair[1];
	struct proc_spec s = { .path = path, .argv = argv, .envp = env, .fds = fds, .nfds = 4, .new_session = 1, .cwd = "/",
			       .set_ids = more ? more->set_ids : 0, .uid = more ? more->uid : 0, .gid = more ? more->gid : 0 };
	int code = proc_spawn(&s, NULL, NULL, e);

	close(pair[1]);
	if (code < 0) {
		close(pair[0]);
		return code;
	}
	return pair[0];
}

static void start_keeper(struct run *r, const char *state)
{
	const char *argv[] = { "bureau-keeper", "--once", "--fd", "3", state ? "--state" : NULL, state, NULL };
	struct err e;

	r->keeper = start_sibling("bureau-keeper", argv, NULL, &e);
	if (r->keeper < 0) {
		err_hint(&e, "bureau-keeper belongs beside bureau: build everything, or install again");
		fail(r, &e, CLI_OURS);
	}
}

static int start_door(struct run *r, struct err *e)
{
	const char *argv[2 * RUN_ALLOW + 12] = { "bureau-door", "--fd", "3" };
	size_t n = 3;

	for (size_t i = 0; i < r->o.nallow; i++) {
		argv[n++] = "--allow";
		argv[n++] = r->o.allow[i];
	}
	if (r->o.resolver) {
		argv[n++] = "--resolver";
		argv[n++] = r->o.resolver;
	}
	if (geteuid() == 0) {           /* nobody's rights are enough to reach the network */
		argv[n++] = "--uid";
		argv[n++] = "65534";
		argv[n++] = "--gid";
		argv[n++] = "65534";
	}
	argv[n] = NULL;
	r->door = start_sibling("bureau-door", argv, NULL, e);
	r->door_started = clock_mono_ms();
	return r->door < 0 ? -e->code : 0;
}

static void open_door(struct run *r, unsigned n, const int *fds)
{
	struct msg_writer w;

	msg_writer_init(&w, r->mem, sizeof r->mem, D_OPEN, ASK_OPEN);
	msg_put_str(&w, r->id);
	msg_put_u8(&w, r->o.net);
	msg_put_u8(&w, (uint8_t)n);
	for (unsigned i = 0; i < n; i++)
		msg_put_fd(&w, fds[i]);
	send_all(r->door, &w);
}

/* The sockets of a door that died went with it: the keeper makes them again, once nothing of it is left. */
static void ask_net(struct run *r)
{
	struct msg_writer w;

	r->door_again = 0;
	msg_writer_init(&w, r->mem, sizeof r->mem, K_NET_OPEN, ASK_NET);
	msg_put_str(&w, r->id);
	send_all(r->keeper, &w);
}

static void no_door(struct run *r, const char *why)
{
	fd_drop(&r->door);
	cli_say("run", "%s: no network from here on", why);
}

static void on_door_lost(struct run *r)
{
	struct err e;

	fd_drop(&r->door);
	r->door_again = 0;
	if (r->phase == ENDED)
		return;
	if (clock_mono_ms() - r->door_started > DOOR_STEADY_MS)
		r->door_lost = 0;
	if (++r->door_lost > DOOR_TRIES) {
		no_door(r, "the door ended again and again");
	} else if (start_door(r, &e) < 0) {
		no_door(r, e.msg);
	} else {
		cli_say("run", "the door ended, and its connections with it: another one is started");
		if (r->phase != CREATING)       /* else its sockets are yet to come */
			ask_net(r);
	}
}

/* ---- what the keeper says ---- */

static const struct { uint32_t bit; const char *option; } limit_names[] = {
	{ KL_MEMORY, "--memory" }, { KL_CPU, "--cpus" }, { KL_PIDS, "--pids" }, { KL_DISK, "--disk" },
};

static void on_net(struct run *r, struct msg_reader *m)
{
	int fds[MSG_FDS] = { -1 };
	unsigned n = 0;

	if (m->type == K_ERR) {
		uint32_t code = msg_get_u32(m);
		const char *why = msg_get_str(m, 1024);

		msg_get_str(m, 1024);
		if (code == EBUSY)              /* the old door's end isn't complete */
			r->door_again = clock_mono_ms() + DOOR_AGAIN_MS;
		else if (r->door >= 0)
			no_door(r, m->bad ? "the keeper's answer can't be read" : why);
		return;
	}
	for (unsigned want = msg_get_u8(m); n < want && n < MSG_FDS && !m->bad; n++)
		fds[n] = msg_take_fd(m);
	if (r->door >= 0 && !m->bad)
		open_door(r, n, fds);
	for (unsigned i = 0; i < n; i++)
		fd_drop(&fds[i]);
}

static void on_created(struct run *r, struct msg_reader *m)
{
	int fds[MSG_FDS];
	uint32_t unenforced;
	unsigned n;

	msg_get_u32(m);
	msg_get_u64(m);
	unenforced = msg_get_u32(m);
	n = msg_get_u8(m);
	r->guest = msg_take_fd(m);
	for (unsigned i = 0; i < n && i < MSG_FDS - 1; i++)
		fds[i] = msg_take_fd(m);
	if (m->bad || n >= MSG_FDS)
		return;
	r->phase = STARTING;
	ask_start(r);
	if (r->o.net)
		open_door(r, n, fds);
	for (unsigned i = 0; i < n; i++)
		fd_drop(&fds[i]);
	for (size_t i = 0; i < sizeof limit_names / sizeof *limit_names && !r->o.quiet; i++)
		if (unenforced & limit_names[i].bit & ~(r->o.disk_given ? 0u : (uint32_t)KL_DISK))
			cli_say("run", "%s can't be enforced here ('bureau doctor' says why)", limit_names[i].option);
}

static void on_keeper_error(struct run *r, struct msg_reader *m)
{
	struct err e;

	e.code = (int)msg_get_u32(m);
	str_copy(e.msg, sizeof e.msg, msg_get_str(m, 1024));
	str_copy(e.hint, sizeof e.hint, msg_get_str(m, 1024));
	if (m->bad || !e.msg[0])
		err_set(&e, EPROTO, "make a sandbox: the keeper refused, and its reason can't be read");
	else if (!e.hint[0])
		err_hint(&e, "'bureau doctor' checks what this needs");
	if (r->phase == CREATING)
		fail(r, &e, CLI_OURS);
}

static void on_keeper(struct run *r)
{
	struct msg_reader m;
	int fds[MSG_FDS];
	unsigned nfds;
	struct err e;
	ssize_t n = msg_recv(r->keeper, r->mem, sizeof r->mem, fds, &nfds);

	if (n == -EAGAIN)
		return;
	if (n <= 0 || msg_reader_init(&m, r->mem, (size_t)n, fds, nfds, &e) < 0) {
		fd_drop(&r->keeper);
		if (r->phase == ENDED)
			return;
		err_set(&e, EPIPE, "the keeper ended before the sandbox did: nothing of it is left");
		fail(r, &e, CLI_OURS);
	}
	if (m.type == K_OK && m.id == ASK_CREATE && r->phase == CREATING) {
		on_created(r, &m);
	} else if (m.id == ASK_NET && (m.type == K_OK || m.type == K_ERR)) {
		on_net(r, &m);
	} else if (m.type == K_ERR) {
		on_keeper_error(r, &m);
	} else if (m.type == K_EXITED) {
		msg_get_str(&m, 32);
		msg_get_u32(&m);
		msg_get_u32(&m);
		r->oom_kills = msg_get_u64(&m);
		r->swept = true;
	} else if (m.type == K_OK && m.id == ASK_KILL) {
		r->swept = true;
	}
	msg_reader_end(&m, &e);
}

/* ---- what the guest says ---- */

static void on_ended(struct run *r, struct msg_reader *m)
{
	uint32_t how = msg_get_u32(m), code = msg_get_u32(m);

	msg_get_u8(m);
	if (m->bad)
		return;
	r->phase = ENDED;
	r->code = how == GUEST_EXITED ? (int)(code & 255) : 128 + (int)(code & 127);
	r->killed = how == GUEST_SIGNALED && code == SIGKILL;
	r->timed_out = how == GUEST_TIMED_OUT;
	r->deadline = clock_mono_ms() + SWEEP_MS;
	r->deadline_words = NULL;
}

static void on_out(struct run *r, struct msg_reader *m)
{
	const char *bytes;
	size_t n;
	struct err e;

	msg_get_u8(m);
	msg_get_u64(m);
	bytes = msg_get_bytes(m, GUEST_CHUNK, &n);
	if (m->bad || !r->tty.on)
		return;
	if (fd_write_all(1, bytes, n, &e) < 0)
		give_up(r, 128 + SIGHUP);       /* the terminal is gone */
	give_credit(r, n);
}

static void on_start_error(struct run *r, struct msg_reader *m)
{
	struct err e = { 0 };

	e.code = (int)msg_get_u32(m);
	str_copy(e.msg, sizeof e.msg, msg_get_str(m, 1024));
	if (m->bad || !e.msg[0])
		err_set(&e, e.code, "start '%.200s': refused", r->o.cmd);
	if (e.code == ENOPKG && str_eq(r->o.template_name, "host"))
		err_hint(&e, "the sandbox sees this machine's /usr, and nothing of your home or of /usr/local's links to elsewhere");
	fail(r, &e, e.code == ENOPKG ? CLI_NOT_FOUND : e.code == ENOEXEC ? CLI_CANT_RUN : CLI_OURS);
}

static void on_input_answer(struct run *r, struct msg_reader *m)
{
	uint32_t code = m->type == G_ERR ? msg_get_u32(m) : 0;

	if (m->type == G_ERR)
		msg_get_str(m, 1024);
	r->input_asked = false;
	if (code == EAGAIN)
		r->input_again = clock_mono_ms() + 20;
	else
		r->input_len = 0;
}

static void on_guest(struct run *r)
{
	struct msg_reader m;
	int fds[MSG_FDS];
	unsigned nfds;
	struct err e;
	ssize_t n = msg_recv(r->guest, r->mem, sizeof r->mem, fds, &nfds);

	if (n == -EAGAIN)
		return;
	if (n <= 0 || msg_reader_init(&m, r->mem, (size_t)n, fds, nfds, &e) < 0) {
		fd_drop(&r->guest);
		if (r->phase != ENDED) {        /* its keeper says why; without a word of the program's exit it's ours */
			r->phase = ENDED;
			r->code = CLI_OURS;
			r->killed = true;
			r->deadline = clock_mono_ms() + SWEEP_MS;
			r->deadline_words = NULL;
		}
		return;
	}
	if (m.id == ASK_START && m.type == G_OK && r->phase == STARTING) {
		r->pid = msg_get_u32(&m);
		r->phase = RUNNING;
		if (r->early_signal)
			ask_signal(r, r->early_signal);
	} else if (m.id == ASK_START && m.type == G_ERR && r->phase == STARTING) {
		on_start_error(r, &m);
	} else if (m.id == ASK_START && m.type == G_EXIT) {
		on_ended(r, &m);
	} else if (m.id == ASK_START && m.type == G_OUT) {
		on_out(r, &m);
	} else if (m.id == ASK_INPUT) {
		on_input_answer(r, &m);
	}
	m.p = m.end;            /* answers that we don't read to the end are none of its faults */
	msg_reader_end(&m, &e);
}

/* ---- the door, signals, the terminal ---- */

/* False: there is nothing more now. */
static bool on_door(struct run *r)
{
	struct msg_reader m;
	int fds[MSG_FDS];
	unsigned nfds;
	struct err e;
	ssize_t n = msg_recv(r->door, r->mem, sizeof r->mem, fds, &nfds);

	if (n == -EAGAIN)
		return false;
	if (n <= 0 || msg_reader_init(&m, r->mem, (size_t)n, fds, nfds, &e) < 0) {
		on_door_lost(r);
		return false;
	}
	if (m.type == D_DENIED && r->phase != ENDED) {
		msg_get_str(&m, 32);
		const char *what = msg_get_str(&m, 600), *rule = msg_get_str(&m, 200);

		if (!m.bad && r->denied++ < 20 && !r->tty.on && !r->o.quiet)
			cli_say("run", "refused: %s: %s", what, rule);
	} else if (m.type == D_ERR) {
		msg_get_u32(&m);
		cli_say("run", "the door refused the sandbox: %s", msg_get_str(&m, 512));
	}
	m.p = m.end;
	msg_reader_end(&m, &e);
	return true;
}

static void on_signal(struct run *r)
{
	struct signalfd_siginfo si;

	if (read(r->signals, &si, sizeof si) != sizeof si)
		return;
	int signo = (int)si.ssi_signo;

	if (signo == SIGWINCH) {
		if (r->tty.on && tty_resized(&r->tty) && r->phase == RUNNING)
			ask_resize(r);
		return;
	}
	if (signo == SIGCONT) {
		if (r->tty.on)
			tty_raw(&r->tty);
		return;
	}
	r->same_signal = signo == r->last_signal ? r->same_signal + 1 : 1;
	r->last_signal = signo;
	/* no program yet, or it was told three times: we end, and the keeper removes the rest */
	if (r->phase == CREATING || r->phase == ENDED || r->same_signal > 3)
		give_up(r, 128 + signo);
	if (r->phase == STARTING)
		r->early_signal = signo;
	else
		ask_signal(r, signo);
	if (signo == SIGHUP && !r->deadline) {
		r->deadline = clock_mono_ms() + HANGUP_MS;
		r->deadline_words = "hang-up";
	}
}

static void on_typed(struct run *r)
{
	ssize_t n = read(0, r->input, sizeof r->input);

	if (n > 0) {
		r->input_len = (size_t)n;
		ask_input(r);
	} else if (n == 0 || errno != EINTR) {
		r->input_end = true;
	}
}

static int take_signals(struct err *e)
{
	static const int always[] = { SIGTERM, SIGWINCH, SIGCONT, SIGUSR1, SIGUSR2 };
	static const int unless_ignored[] = { SIGINT, SIGQUIT, SIGHUP };        /* nohup, and `&` in a shell, ignore some */
	struct sigaction was;
	sigset_t set;
	int fd;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof always / sizeof *always; i++)
		sigaddset(&set, always[i]);
	for (size_t i = 0; i < sizeof unless_ignored / sizeof *unless_ignored; i++)
		if (sigaction(unless_ignored[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
			sigaddset(&set, unless_ignored[i]);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_sys(e, "take signals") : fd;
}

/* ---- the whole ---- */

static int wait_ms(const struct run *r)
{
	int64_t until = r->deadline;

	if (r->input_again && (!until || r->input_again < until))
		until = r->input_again;
	if (r->door_again && (!until || r->door_again < until))
		until = r->door_again;
	if (!until)
		return -1;
	int64_t left = until - clock_mono_ms();

	return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static void turn(struct run *r)
{
	bool typed = r->tty.on && r->phase == RUNNING && !r->input_len && !r->input_end;
	struct pollfd p[] = {
		{ .fd = r->guest, .events = POLLIN }, { .fd = r->keeper, .events = POLLIN }, { .fd = r->signals, .events = POLLIN },
		{ .fd = r->door, .events = POLLIN }, { .fd = typed ? 0 : -1, .events = POLLIN },
	};

	if (poll(p, sizeof p / sizeof *p, wait_ms(r)) < 0)
		return;
	/* first: a refusal may be why the program has ended, and is told before that */
	for (int i = 0; i < DOOR_TURN && p[3].revents && on_door(r); i++)
		;
	if (p[0].revents)
		on_guest(r);
	if (p[1].revents)
		on_keeper(r);
	if (p[2].revents)
		on_signal(r);
	if (p[4].revents)
		on_typed(r);
	if (r->input_again && clock_mono_ms() >= r->input_again)
		ask_input(r);
	if (r->door_again && clock_mono_ms() >= r->door_again)
		ask_net(r);
	if (r->deadline && clock_mono_ms() >= r->deadline && r->phase != ENDED) {
		r->phase = ENDED;
		r->swept = true;
		r->timed_out = r->o.timeout_ms && str_eq(r->deadline_words, "timeout");
		r->code = 128 + SIGHUP;
	}
}

static int verdict(struct run *r)
{
	if (r->timed_out) {
		cli_say("run", "stopped after its timeout of %g s", (double)r->o.timeout_ms / 1000);
		return CLI_TIMED_OUT;
	}
	if (r->oom_kills && r->killed) {
		char limit[16] = "";

		str_size_human(r->o.memory, limit);
		cli_say("run", "killed: it needed more than its memory limit of %s; --memory raises it", r->o.memory ? limit : "the machine");
		return 128 + SIGKILL;
	}
	if (r->code == CLI_OURS && r->killed)
		cli_say("run", "the sandbox ended without telling how the program did");
	if (r->denied > 20 && !r->tty.on && !r->o.quiet)
		cli_say("run", "refused: %u more", r->denied - 20);
	return r->code;
}

/* A folder as stdin, stdout or stderr would let the program out: everything beside and above it can be opened from it. */
static int check_stdio(struct err *e)
{
	static const char *const names[] = { "input", "output", "error output" };
	struct stat st;

	for (int i = 0; i < 3; i++) {
		if (fstat(i, &st) < 0) {
			if (open("/dev/null", O_RDWR) != i)     /* ends up at i: the lowest free number; stays open over exec */
				return err_set(e, EBADF, "standard %s is closed", names[i]);
		} else if (S_ISDIR(st.st_mode)) {
			return err_set(e, EISDIR, "standard %s is a folder: a sandbox can't be given one that way, use --mount", names[i]);
		}
	}
	return 0;
}

/* Until it is built, the name base means host: as with a server, and told as there. */
static void check_template(struct run *r, const char *state)
{
	char path[4200];
	struct err e;

	snprintf(path, sizeof path, "%s/templates/%s/current/rootfs", state, r->o.template_name);
	if (access(path, F_OK) == 0)
		return;
	if (errno == ENOENT && str_eq(r->o.template_name, "base")) {
		r->o.template_name = "host";
		if (!r->o.quiet)
			cli_say("run", "template 'base' isn't built here, so this is 'host'; 'bureau template build base' builds it");
		return;
	}
	err_sys(&e, "use template '%s' of '%s'", r->o.template_name, state);
	cli_template_hint(&e, r->o.template_name);
	fail(r, &e, CLI_OURS);
}

int run_main(int argc, char **argv)
{
	static struct run run = { .keeper = -1, .guest = -1, .door = -1, .signals = -1 };
	static char term[128], state[4096];
	struct run *r = &run;
	struct err e = { 0 };
	bool host;
	int code = run_parse(argc, argv, &r->o, &e);

	if (code > 0)
		return CLI_OK;
	if (code < 0)
		fail(r, &e, CLI_USAGE);
	host = str_eq(r->o.template_name, "host");
	if (check_stdio(&e) < 0 || (!host && cli_state(r->o.state, state, sizeof state, &e) < 0))
		fail(r, &e, CLI_OURS);
	if (!host)
		check_template(r, state);
	host = str_eq(r->o.template_name, "host");
	tty_init(&r->tty);
	if (r->tty.on && getenv("TERM") && snprintf(term, sizeof term, "TERM=%s", getenv("TERM")) < (int)sizeof term)
		r->o.envs[r->o.nenvs++] = term;
	if ((r->signals = take_signals(&e)) < 0)
		fail(r, &e, CLI_OURS);
	start_keeper(r, host ? NULL : state);
	ask_create(r);
	if (r->o.net && start_door(r, &e) < 0)
		fail(r, &e, CLI_OURS);
	while (r->phase != ENDED) {
		bool before = r->phase == RUNNING;

		turn(r);
		if (r->tty.on && !before && r->phase == RUNNING)
			tty_raw(&r->tty);
	}
	tty_restore(&r->tty);
	while (!r->swept && r->keeper >= 0 && clock_mono_ms() < r->deadline)
		turn(r);
	return verdict(r);
}
