/* keeperctl -- speaks keeper_proto and guest_proto from a command line, for tests and measurements.
 *
 *   keeperctl run KEEPER [option]… -- CMD [ARG]…    one computer by --once; CMD with our own stdin, stdout, stderr; its exit code
 *      --guest PATH --state DIR --net --template T --limits mem,cpu,pids,disk,inodes,files --mount SRC DEST --host NAME --times N --door
 *   keeperctl ask SOCKET REQUEST…                   one connection, requests in order, one line each on stdout
 *      create ID SLOT [TEMPLATE [NET [LIMITS]]] | kill ID | list | stats ID | limits ID LIMITS | freeze ID 0|1 | doors ID | hello | hold
 *      exec ID CMD…  (rest of the line: in the computer created in this call, or by --run DIR at its socket)
 */
#include "core/clock.h"
#include "core/fd.h"
#include "core/loop.h"
#include "core/proc.h"
#include "core/str.h"
#include "wire/guest_proto.h"
#include "wire/keeper_proto.h"
#include "wire/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static uint8_t in[MSG_MAX], out[MSG_MAX];
static struct msg_writer w;
static struct msg_reader r;
static uint32_t next_id = 1;

static _Noreturn void die(const char *what, int code)
{
	fprintf(stderr, "keeperctl: %s: %s\n", what, strerror(code < 0 ? -code : code));
	exit(120);
}

static void begin(uint16_t type)
{
	msg_writer_init(&w, out, sizeof out, type, next_id++);
}

static void take(int fd)
{
	int fds[MSG_FDS];
	unsigned nfds = 0;
	struct err e;
	ssize_t n;

	do {
		struct pollfd p = { fd, POLLIN, 0 };

		if (poll(&p, 1, 60000) == 0)
			die("no answer", ETIMEDOUT);
		n = msg_recv(fd, in, sizeof in, fds, &nfds);
	} while (n == -EAGAIN);
	if (n <= 0)
		die("peer ended", n < 0 ? (int)n : EPIPE);
	if (msg_reader_init(&r, in, (size_t)n, fds, nfds, &e) < 0)
		die(e.msg, e.code);
}

/* Sends and waits for the answer to it; true = K_OK, false = K_ERR, printed. */
static bool ask(int fd, bool loud)
{
	if (msg_send(fd, &w) < 0)
		die("send", errno);
	take(fd);
	if (r.type == K_ERR) {
		uint32_t code = msg_get_u32(&r);
		const char *msg = msg_get_str(&r, 4096), *hint = msg_get_str(&r, 4096);
		if (loud)
			fprintf(stderr, "error %u: %s%s%s\n", code, msg, *hint ? " -- " : "", hint);
		printf("error %u\n", code);
		return false;
	}
	return true;
}

static void put_limits(const char *text)
{
	for (int i = 0; i < 6; i++) {
		char *end = NULL;

		msg_put_u64(&w, text ? strtoull(text, &end, 10) : 0);
		text = end && *end == ',' ? end + 1 : NULL;
	}
}

struct run {
	const char *keeper, *guest, *state, *template_name, *limits, *host, *mounts[2 * KEEPER_MOUNTS];
	size_t nmounts;
	uint8_t net;
	int times;
	bool quiet;
};

static int start_keeper(const struct run *o, pid_t *pid)
{
	int pair[2];
	struct err e;

	if (sock_pair(pair, &e) < 0)
		die(e.msg, e.code);
	*pid = fork();
	if (*pid == 0) {
		const char *argv[12] = { "bureau-keeper", "--once", "--fd", "3" };
		size_t n = 4;

		if (o->guest) {
			argv[n++] = "--guest";
			argv[n++] = o->guest;
		}
		if (o->state) {
			argv[n++] = "--state";
			argv[n++] = o->state;
		}
		if (pair[1] == 3)
			fcntl(3, F_SETFD, 0);
		else
			dup2(pair[1], 3);
		execv(o->keeper, (char **)argv);
		_exit(127);
	}
	close(pair[1]);
	return pair[0];
}

static int run_program(int guest, int argc, char **argv)
{
	begin(G_START);
	msg_put_u32(&w, GS_FDS | GS_END_COMPUTER);
	msg_put_str(&w, argv[0]);
	msg_put_strv(&w, (const char *const *)argv + 1, (size_t)argc - 1);
	msg_put_strv(&w, NULL, 0);
	msg_put_str(&w, "/");
	msg_put_str(&w, getenv("GUEST_USER") ? getenv("GUEST_USER") : "root");
	msg_put_str(&w, "");
	msg_put_u16(&w, 0);
	msg_put_u16(&w, 0);
	msg_put_u32(&w, 1 << 20);
	msg_put_u64(&w, 0);
	for (int i = 0; i < 3; i++)
		msg_put_fd(&w, i);
	if (msg_send(guest, &w) < 0)
		die("start", errno);
	for (;;) {
		take(guest);
		if (r.type == G_ERR) {
			uint32_t code = msg_get_u32(&r);

			fprintf(stderr, "guest: %u: %s\n", code, msg_get_str(&r, 4096));
			return 121;
		}
		if (r.type == G_EXIT) {
			uint32_t how = msg_get_u32(&r), code = msg_get_u32(&r);

			return how == GUEST_EXITED ? (int)code : 128 + (int)code;
		}
	}
}

static int run_once(const struct run *o, int argc, char **argv)
{
	pid_t keeper;
	int fd = start_keeper(o, &keeper), guest, code;

	begin(K_CREATE);
	msg_put_str(&w, "testcomputer1");
	msg_put_u32(&w, 0);
	msg_put_str(&w, o->template_name);
	msg_put_u8(&w, o->net);
	put_limits(o->limits);
	msg_put_str(&w, o->host);
	msg_put_strv(&w, o->mounts, o->nmounts);
	if (!ask(fd, true)) {
		close(fd);
		waitpid(keeper, NULL, 0);
		return 122;
	}
	msg_get_u32(&r);
	msg_get_u64(&r);
	code = (int)msg_get_u32(&r);
	if (code && getenv("SHOW_UNENFORCED"))
		fprintf(stderr, "unenforced %d\n", code);
	msg_get_u8(&r);
	guest = msg_take_fd(&r);
	if (r.bad)
		die("answer", EPROTO);
	code = run_program(guest, argc, argv);
	close(guest);
	close(fd);
	waitpid(keeper, NULL, 0);
	return code;
}

static int run(int argc, char **argv)
{
	struct run o = { .keeper = argv[0], .template_name = "host", .host = "test", .times = 1 };
	int i = 1, code = 0;

	for (; i < argc && !str_eq(argv[i], "--"); i++) {
		if (str_eq(argv[i], "--net"))
			o.net = KEEPER_NET_ALL;
		else if (str_eq(argv[i], "--guest"))
			o.guest = argv[++i];
		else if (str_eq(argv[i], "--state"))
			o.state = argv[++i];
		else if (str_eq(argv[i], "--template"))
			o.template_name = argv[++i];
		else if (str_eq(argv[i], "--limits"))
			o.limits = argv[++i];
		else if (str_eq(argv[i], "--host"))
			o.host = argv[++i];
		else if (str_eq(argv[i], "--times"))
			o.times = (int)strtol(argv[++i], NULL, 10);
		else if (str_eq(argv[i], "--mount") && o.nmounts + 2 <= 2 * KEEPER_MOUNTS) {
			o.mounts[o.nmounts++] = argv[++i];
			o.mounts[o.nmounts++] = argv[++i];
		} else
			die(argv[i], EINVAL);
	}
	if (i + 1 >= argc)
		die("no command", EINVAL);
	for (int t = 0; t < o.times; t++) {
		int64_t at = clock_mono_us();

		code = run_once(&o, argc - i - 1, argv + i + 1);
		if (o.times > 1)
			fprintf(stderr, "%" PRId64 " us\n", clock_mono_us() - at);
	}
	return code;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && str_eq(argv[1], "run"))
		return run(argc - 2, argv + 2);
	fprintf(stderr, "usage: keeperctl run KEEPER ...\n");
	return 2;
}
