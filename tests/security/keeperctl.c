/* keeperctl -- speaks keeper_proto and guest_proto from a command line, for tests and measurements.
 *
 *   keeperctl run KEEPER [option]… -- CMD [ARG]…    one computer by --once; CMD with our own stdin, stdout, stderr; its exit code
 *      --guest PATH --state DIR --net --template T --limits mem,cpu,pids,disk,inodes,files --mount SRC DEST --host NAME --times N --door
 *   keeperctl serve KEEPER SOCKET ARG…              becomes the keeper, listening at SOCKET
 *   keeperctl ask SOCKET                            one connection; requests are lines on stdin, answers lines on stdout
 *      hello | create ID SLOT [TEMPLATE [NET [LIMITS [SRC DEST]]]] | kill ID | list | stats ID | limits ID LIMITS | freeze ID 0|1
 *      doors ID | bad | exited | exec CMD ARG…  (in the computer created last)
 */
#include "core/clock.h"
#include "core/fd.h"
#include "core/loop.h"
#include "core/proc.h"
#include "core/str.h"
#include "wire/guest_proto.h"
#include "wire/keeper_proto.h"
#include "wire/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/prctl.h>
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
	do
		take(fd);
	while (r.type == K_EXITED);
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
	bool door;
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

/* A door of the plainest kind: tells who connects where they were going, and answers every datagram. */
static void door_answer(int fd, bool v6)
{
	int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	char text[160], addr[64] = "?";
	struct sockaddr_in6 to6;
	struct sockaddr_in to;
	socklen_t n = v6 ? sizeof to6 : sizeof to;
	int port = 0;

	if (c < 0)
		return;
	if (!v6 && getsockopt(c, SOL_IP, 80 /* SO_ORIGINAL_DST */, &to, &n) == 0) {
		inet_ntop(AF_INET, &to.sin_addr, addr, sizeof addr);
		port = ntohs(to.sin_port);
	} else if (v6 && getsockopt(c, SOL_IPV6, 80 /* IP6T_SO_ORIGINAL_DST */, &to6, &n) == 0) {
		inet_ntop(AF_INET6, &to6.sin6_addr, addr, sizeof addr);
		port = ntohs(to6.sin6_port);
	}
	n = (socklen_t)snprintf(text, sizeof text, "door %s %d\n", addr, port);
	if (write(c, text, n) < 0)
		perror("door");
	close(c);
}

static void door_run(const int *fds, int n, int keeper, int guest)
{
	if (fork() != 0)
		return;
	close(keeper);
	close(guest);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	for (;;) {
		struct pollfd p[4];

		for (int i = 0; i < n; i++)
			p[i] = (struct pollfd){ fds[i], POLLIN, 0 };
		poll(p, (nfds_t)n, -1);
		for (int i = 0; i < n; i++) {
			struct sockaddr_storage a;
			socklen_t len = sizeof a;
			char text[512];

			if (!p[i].revents)
				continue;
			if (i != n - 2)
				door_answer(fds[i], n == 4 && i == 1);
			else if (recvfrom(fds[i], text, sizeof text, 0, (struct sockaddr *)&a, &len) >= 0)
				sendto(fds[i], "dns", 3, 0, (struct sockaddr *)&a, len);
		}
	}
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
	int fd = start_keeper(o, &keeper), guest, code, doors[4], ndoors;

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
	ndoors = msg_get_u8(&r);
	guest = msg_take_fd(&r);
	for (int i = 0; i < ndoors && i < 4; i++)
		doors[i] = msg_take_fd(&r);
	if (r.bad)
		die("answer", EPROTO);
	if (o->door && ndoors)
		door_run(doors, ndoors, fd, guest);
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
		else if (str_eq(argv[i], "--door"))
			o.door = true;
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

static void print_doors(int n)
{
	for (int i = 0; i < n; i++)
		msg_take_fd(&r);     /* open until we end */
	printf("ok doors %d\n", n);
}

static int guest_fd = -1;

static void on_created(void)
{
	uint32_t pid = msg_get_u32(&r);
	uint64_t start = msg_get_u64(&r);
	uint32_t unenforced = msg_get_u32(&r);
	int n = msg_get_u8(&r);

	guest_fd = msg_take_fd(&r);
	printf("ok created %u %" PRIu64 " unenforced %u ", pid, start, unenforced);
	print_doors(n);
}

static void on_list(int fd)
{
	for (; r.type == K_ITEM; take(fd)) {
		const char *id = msg_get_str(&r, 255);
		uint32_t slot = msg_get_u32(&r), pid = msg_get_u32(&r);
		uint64_t start_time = msg_get_u64(&r);
		const char *template_name = msg_get_str(&r, 255);

		printf("item %s %u %u %" PRIu64 " %s %u\n", id, slot, pid, start_time, template_name, msg_get_u8(&r));
	}
	printf("ok list %u\n", msg_get_u32(&r));
}

static void on_stats(int fd)
{
	(void)fd;
	printf("ok stats");
	for (int i = 0; i < 4; i++)
		printf(" %" PRIu64, msg_get_u64(&r));
	printf(" %u\n", msg_get_u32(&r));
}

static void on_limits(int fd)
{
	(void)fd;
	printf("ok limits unenforced %u\n", msg_get_u32(&r));
}

static void on_doors(int fd)
{
	(void)fd;
	print_doors(msg_get_u8(&r));
}

static void on_hello(int fd)
{
	uint32_t version = msg_get_u32(&r), features = msg_get_u32(&r);

	(void)fd;
	printf("ok hello %u %u %s\n", version, features, msg_get_str(&r, 4096));
}

static void on_plain(int fd)
{
	(void)fd;
	puts("ok");
}

static void create(int fd, int n, char **v)
{
	begin(K_CREATE);
	msg_put_str(&w, v[1]);
	msg_put_u32(&w, n > 2 ? (uint32_t)strtoul(v[2], NULL, 10) : 0);
	msg_put_str(&w, n > 3 ? v[3] : "host");
	msg_put_u8(&w, n > 4 ? (uint8_t)strtoul(v[4], NULL, 10) : 0);
	put_limits(n > 5 ? v[5] : NULL);
	msg_put_str(&w, "test");
	msg_put_strv(&w, (const char *const *)v + 6, n > 7 ? 2 : 0);
	if (ask(fd, true))
		on_created();
}

static void wait_exited(int fd)
{
	do
		take(fd);
	while (r.type != K_EXITED);
	printf("ok exited %s", msg_get_str(&r, 255));
	printf(" %u", msg_get_u32(&r));
	printf(" %u", msg_get_u32(&r));
	printf(" %" PRIu64 "\n", msg_get_u64(&r));
}

static const struct { const char *name; uint16_t type; const char *fields; void (*run)(int fd); } asks[] = {
	{ "hello", K_HELLO, "V", on_hello }, { "kill", K_KILL, "s", on_plain }, { "list", K_LIST, "", on_list }, { "stats", K_STATS, "s", on_stats },
	{ "limits", K_LIMITS, "sL", on_limits }, { "freeze", K_FREEZE, "sb", on_plain }, { "doors", K_NET_OPEN, "s", on_doors },
};

/* One request, its words in v. */
static void request(int fd, int n, char **v)
{
	size_t i = 0;

	if (str_eq(v[0], "create") && n > 1) {
		create(fd, n, v);
	} else if (str_eq(v[0], "bad")) {       /* no request there is: the keeper must end this peer */
		if (send(fd, "\143\0\0\0nonsense", 12, MSG_NOSIGNAL) < 0)
			die("send", errno);
		puts("ok sent");
	} else if (str_eq(v[0], "exited")) {
		wait_exited(fd);
	} else if (str_eq(v[0], "exec") && n > 1) {
		printf("ok exit %d\n", run_program(guest_fd, n - 1, v + 1));
	} else {
		while (i < sizeof asks / sizeof *asks && !str_eq(asks[i].name, v[0]))
			i++;
		if (i == sizeof asks / sizeof *asks)
			die(v[0], EINVAL);
		begin(asks[i].type);
		for (const char *f = asks[i].fields; *f; f++)
			if (*f == 's')
				msg_put_str(&w, n > 1 ? v[1] : "");
			else if (*f == 'b')
				msg_put_u8(&w, n > 2 && *v[2] == '1');
			else if (*f == 'L')
				put_limits(n > 2 ? v[2] : NULL);
			else
				msg_put_u32(&w, KEEPER_VERSION);
		if (ask(fd, true))
			asks[i].run(fd);
	}
	fflush(stdout);
}

/* Requests are lines on stdin, so that a script can look at the world between two of them. */
static int ask_lines(const char *path)
{
	int fd;
	char line[8192];
	struct err e;

	if (sock_connect_at(AT_FDCWD, path, &fd, &e) < 0)
		die(e.msg, e.code);
	while (fgets(line, sizeof line, stdin)) {
		char *v[64] = { NULL }, *at = line;
		int n = 0;

		line[strcspn(line, "\n")] = 0;
		while (n < 60 && (v[n] = strsep(&at, " ")))
			n++;
		v[n] = NULL;
		if (n && *v[0])
			request(fd, n, v);
	}
	return 0;
}

/* keeperctl serve KEEPER SOCKET ARG…: becomes the keeper, listening there. */
static int serve(int argc, char **argv)
{
	struct err e;
	int fd;
	char made[128];
	char *v[32] = { (char *)"bureau-keeper", (char *)"--serve", (char *)"--listen-fd", (char *)"3" };

	/* once the name is there one can connect: between bind() and listen() that would be refused */
	if (snprintf(made, sizeof made, "%s.new", argv[1]) >= (int)sizeof made)
		die(argv[1], ENAMETOOLONG);
	if (sock_listen_at(AT_FDCWD, made, 0600, 16, &fd, &e) < 0)
		die(e.msg, e.code);
	if (rename(made, argv[1]) < 0)
		die(argv[1], errno);
	for (int i = 2; i < argc && i < 28; i++)
		v[i + 2] = argv[i];
	if (fd == 3)
		fcntl(3, F_SETFD, 0);
	else
		dup2(fd, 3);
	execv(argv[0], v);
	die(argv[0], errno);
}

int main(int argc, char **argv)
{
	if (argc >= 4 && str_eq(argv[1], "run"))
		return run(argc - 2, argv + 2);
	if (argc == 3 && str_eq(argv[1], "ask"))
		return ask_lines(argv[2]);
	if (argc >= 4 && str_eq(argv[1], "serve"))
		return serve(argc - 2, argv + 2);
	fprintf(stderr, "usage: keeperctl run|ask|serve ...\n");
	return 2;
}
