/* hostileguest -- PID 1 of a computer that somebody has taken over: it has our side's link, and says there whatever it likes.
 *
 * It stands where bureau-guest stands in a private copy of the programs (hostile_guest.t). A computer made without the variable HOSTILE
 * gets the real guest, so that there are honest neighbours on the same server. With HOSTILE=ACT it answers hello and configure as it
 * should, and every other request by that act of the table below. HOSTILE=ACT:TYPE keeps the act for requests of that type (a
 * number of guest_proto.h); others are answered with an error. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log.h"
#include "core/proc.h"
#include "guest/guest.h"
#include "guest/sudo.h"

#define MANY 1000000
#define BIG_NAME 8000

static int conn = GUEST_CONN_FD;
static char id[64], act_name[32];
static unsigned only;                   /* requests of this type alone */
static uint8_t mem[2 * MSG_MAX];
static struct msg_writer w;
static bool stalling;                   /* a flood waits for room; others are dropped when there is none */

static void begin(uint16_t type, uint32_t of)
{
	msg_writer_init(&w, mem, MSG_MAX, type, of);
}

/* False: nobody is there any more. */
static bool send_it(void)
{
	for (;;) {
		struct pollfd p = { conn, POLLOUT, 0 };
		int r = msg_send(conn, &w);

		if (r == 0 || (r == -EAGAIN && !stalling))
			return true;
		if (r != -EAGAIN || poll(&p, 1, -1) < 0)
			return false;
	}
}

static void raw(const void *p, size_t n)
{
	if (send(conn, p, n, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
		log_warn("a message of %zu bytes can't be sent", n);
}

static void put_entry(void)
{
	msg_put_str(&w, "/home/user/f");
	msg_put_u32(&w, 0100644);
	for (int i = 0; i < 2; i++)
		msg_put_u64(&w, 5);
	for (int i = 0; i < 2; i++)
		msg_put_u32(&w, 1000);
	for (int i = 0; i < 3; i++)
		msg_put_str(&w, "");
	msg_put_strv(&w, NULL, 0);
}

/* The right answer to a request, but for what the act does to it. */
static void ok(const struct msg_reader *r)
{
	begin(G_OK, r->id);
	switch (r->type) {
	case G_START:
		msg_put_u32(&w, 7);
		break;
	case G_ATTACH:
		msg_put_u32(&w, 7);
		msg_put_u32(&w, 0);
		msg_put_str(&w, "x");
		msg_put_strv(&w, NULL, 0);
		msg_put_str(&w, "/");
		msg_put_str(&w, "");
		break;
	case G_READ:
		put_entry();
		msg_put_u8(&w, GUEST_FILE);
		break;
	case G_STAT:
	case G_MKDIR:
	case G_MOVE:
	case G_WRITE:
		put_entry();
		break;
	case G_LIST:
	case G_DIR:
		msg_put_u32(&w, 0);
		break;
	default:
		break;
	}
}

/* ---- what it says ---- */

static void act_silent(const struct msg_reader *r)
{
}

static void act_deaf(const struct msg_reader *r)
{
	for (;;)
		pause();
}

static void act_garbage(const struct msg_reader *r)
{
	uint8_t junk[700];

	for (size_t i = 0; i < sizeof junk; i++)
		junk[i] = (uint8_t)(i * 151 + r->id * 31 + 7);
	for (size_t n = 1; n < sizeof junk; n += 23)
		raw(junk, n);
}

static void act_giant(const struct msg_reader *r)
{
	int room = 1 << 20;

	setsockopt(conn, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	ok(r);
	raw(mem, sizeof mem);
}

static void act_short(const struct msg_reader *r)
{
	ok(r);
	raw(mem, w.len > MSG_HEAD ? w.len - 1 : MSG_HEAD - 1);
}

static void act_trailing(const struct msg_reader *r)
{
	ok(r);
	raw(mem, w.len + 3);
}

/* The first field behind the head claims to be as long as can be, or as many. */
static void act_lengths(const struct msg_reader *r)
{
	ok(r);
	while (w.len < 64)
		msg_put_u8(&w, 0xff);
	memset(mem + MSG_HEAD, 0xff, 16);
	raw(mem, w.len);
}

static void act_bomb(const struct msg_reader *r)      /* a list of as many empty strings as fit */
{
	begin(G_ENTRY, r->id);
	put_entry();
	w.len -= 4;
	msg_put_u32(&w, UINT32_MAX);
	send_it();
}

static void act_twice(const struct msg_reader *r)
{
	ok(r);
	send_it();
	send_it();
}

static void act_stranger(const struct msg_reader *r)  /* answers what nobody asked */
{
	begin(G_OK, r->id ^ 0x5a5a);
	send_it();
}

static void act_events(const struct msg_reader *r)    /* output, exits and watch events for whatever was asked */
{
	begin(G_EXIT, r->id);
	msg_put_u32(&w, GUEST_EXITED);
	msg_put_u32(&w, 0);
	msg_put_u8(&w, 0);
	send_it();
}

static void act_exit(const struct msg_reader *r)      /* an exit that can't be */
{
	ok(r);
	send_it();
	begin(G_EXIT, r->id);
	msg_put_u32(&w, 77);
	msg_put_u32(&w, 99999);
	msg_put_u8(&w, 0);
	send_it();
}

static void act_error(const struct msg_reader *r)     /* an error of an impossible number, with words that aren't text */
{
	begin(G_ERR, r->id);
	msg_put_u32(&w, 0xfffffff0);
	msg_put_str(&w, "\xff\xfe\x1b[2J\"}{\r\nSet-Cookie: a=b\r\n\r\n");
	send_it();
}

static void act_empty(const struct msg_reader *r)
{
	raw(mem, 0);
}

static void act_close(const struct msg_reader *r)
{
	shutdown(conn, SHUT_RDWR);
}

static void act_half(const struct msg_reader *r)      /* a right beginning, and no more */
{
	ok(r);
	if (r->type != G_DIR && r->type != G_LIST)
		send_it();
}

/* ---- descriptors ---- */

static void send_fds(int fd, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		msg_put_fd(&w, fd);
	send_it();
	w.nfds = 0;
}

static void act_fds(const struct msg_reader *r)       /* where none belong */
{
	ok(r);
	send_fds(0, MSG_FDS);
}

static void act_fds_many(const struct msg_reader *r)  /* more than a message may have */
{
	union { char buf[CMSG_SPACE(sizeof(int) * 64)]; struct cmsghdr align; } c;
	struct iovec iov = { mem, 0 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof c.buf };
	int fds[64] = { 0 };

	ok(r);
	iov.iov_len = w.len;
	memset(&c, 0, sizeof c);
	c.align.cmsg_level = SOL_SOCKET;
	c.align.cmsg_type = SCM_RIGHTS;
	c.align.cmsg_len = CMSG_LEN(sizeof fds);
	memcpy(CMSG_DATA(&c.align), fds, sizeof fds);
	if (sendmsg(conn, &m, MSG_NOSIGNAL) < 0)
		log_warn("64 descriptors can't be sent");
}

static int fd_pair(int type, bool full)
{
	static char junk[4096];
	int pair[2];

	if (type ? socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, pair) < 0 : pipe2(pair, O_NONBLOCK) < 0)
		return -1;
	while (full && write(pair[1], junk, sizeof junk) > 0)
		;
	fcntl(pair[0], F_SETFL, 0);                   /* and it would block */
	return pair[0];
}

static int fd_sparse(void)
{
	int fd = (int)syscall(SYS_memfd_create, "sparse", 0);

	if (fd < 0)
		fd = open("/tmp/sparse", O_RDWR | O_CREAT | O_TRUNC, 0600);
	return fd < 0 || ftruncate(fd, INT64_MAX / 4096 * 4096) < 0 ? fd : fd;
}

static int fd_tcp(bool listening)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), s;

	if (l < 0 || bind(l, (struct sockaddr *)&a, sizeof a) < 0 || listen(l, 1) < 0 || getsockname(l, (struct sockaddr *)&a, &n) < 0 || listening)
		return l;
	s = socket(AF_INET, SOCK_STREAM, 0);
	return connect(s, (struct sockaddr *)&a, sizeof a) < 0 ? -1 : s;
}

/* A descriptor of the kind that is named, or -1. */
static int fd_of(const char *kind)
{
	static const struct { const char *kind, *path; int flags; } files[] = {
		{ "dir", "/etc", O_RDONLY | O_DIRECTORY }, { "path", "/etc/passwd", O_PATH }, { "writeonly", "/tmp/w", O_WRONLY | O_CREAT },
		{ "readonly", "/etc/passwd", O_RDONLY }, { "zero", "/dev/zero", O_RDWR }, { "tty", "/dev/ptmx", O_RDWR | O_NOCTTY },
		{ "mem", "/proc/self/mem", O_RDWR }, { "mounts", "/proc/self/mounts", O_RDONLY }, { "append", "/tmp/a", O_RDWR | O_CREAT | O_APPEND },
		{ "direct", "/tmp/d", O_RDWR | O_CREAT | O_DIRECT },
	};

	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (strcmp(files[i].kind, kind) == 0)
			return open(files[i].path, files[i].flags, 0600);
	return strcmp(kind, "pipe") == 0 ? fd_pair(0, false) : strcmp(kind, "fullpipe") == 0 ? fd_pair(0, true) :
		strcmp(kind, "stream") == 0 ? fd_pair(SOCK_STREAM, false) : strcmp(kind, "dgram") == 0 ? fd_pair(SOCK_DGRAM, false) :
		strcmp(kind, "seqpacket") == 0 ? fd_pair(SOCK_SEQPACKET, false) : strcmp(kind, "own") == 0 ? conn :
		strcmp(kind, "listen") == 0 ? fd_tcp(true) : strcmp(kind, "tcp") == 0 ? fd_tcp(false) :
		strcmp(kind, "udp") == 0 ? socket(AF_INET, SOCK_DGRAM, 0) : strcmp(kind, "epoll") == 0 ? epoll_create1(0) :
		strcmp(kind, "event") == 0 ? eventfd(0, 0) : strcmp(kind, "pidfd") == 0 ? (int)syscall(SYS_pidfd_open, 1, 0) :
		strcmp(kind, "sparse") == 0 ? fd_sparse() : -1;
}

static void give(const struct msg_reader *r, const char *kind, uint8_t body)
{
	int fd = fd_of(kind);

	ok(r);
	if (r->type == G_READ)
		mem[w.len - 1] = body;
	if (fd >= 0)
		msg_put_fd(&w, fd);
	send_it();                                    /* without one, when it can't be had: that is an act too */
	w.nfds = 0;
	if (fd > 4 && fd != conn)
		close(fd);
}

static void act_file(const struct msg_reader *r)
{
	give(r, strchr(act_name, '-') + 1, GUEST_FILE);
}

static void act_pipe(const struct msg_reader *r)
{
	give(r, strchr(act_name, '-') + 1, GUEST_PIPE);
}

/* ---- floods ---- */

/* A program with as many arguments as may be, all of them empty: five bytes each on the link. */
static void put_dear(uint32_t pid)
{
	msg_put_u32(&w, pid);
	msg_put_u32(&w, 0);
	msg_put_str(&w, "x");
	msg_put_u32(&w, GUEST_ARGS);
	for (int k = 0; k < GUEST_ARGS; k++)
		msg_put_str(&w, "");
	msg_put_str(&w, "/");
	msg_put_str(&w, "");
	msg_put_u8(&w, 0);
	msg_put_u32(&w, 0);
	msg_put_u32(&w, 0);
}

static void put_event(uint16_t type, uint32_t i)
{
	static char name[BIG_NAME];

	memset(name, 'n', sizeof name - 1);
	switch (type) {
	case G_OUT:
		msg_put_u8(&w, GUEST_STDOUT);
		msg_put_u64(&w, i);
		msg_put_bytes(&w, name, sizeof name);
		break;
	case G_GAP:
		msg_put_u64(&w, 1);
		break;
	case G_EVENT:
		msg_put_u8(&w, GUEST_MODIFY);
		msg_put_str(&w, name);
		msg_put_u8(&w, 0);
		break;
	case G_ENTRY:
		put_entry();
		break;
	default:
		put_dear(i + 1);
		break;
	}
}

static void flood(uint16_t type, uint32_t of, uint32_t times)
{
	stalling = true;
	for (uint32_t i = 0; i < times; i++) {
		begin(type, of);
		put_event(type, i);
		if (!send_it())
			break;
	}
	stalling = false;
}

static void act_flood(const struct msg_reader *r)
{
	static const struct { uint16_t request, event; bool first; } kinds[] = {
		{ G_START, G_OUT, true }, { G_WATCH, G_EVENT, true }, { G_DIR, G_ENTRY, false }, { G_LIST, G_PROC, false },
	};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i].request == r->type) {
			ok(r);
			if (kinds[i].first)
				send_it();
			flood(kinds[i].event, r->id, MANY);
		}
}

static void act_gaps(const struct msg_reader *r)
{
	ok(r);
	send_it();
	flood(G_GAP, r->id, MANY);
}

/* ---- the link ---- */

static const struct { const char *name; void (*run)(const struct msg_reader *r); } acts[] = {
	{ "silent", act_silent }, { "deaf", act_deaf }, { "garbage", act_garbage }, { "giant", act_giant }, { "short", act_short },
	{ "trailing", act_trailing }, { "lengths", act_lengths }, { "bomb", act_bomb }, { "twice", act_twice }, { "stranger", act_stranger },
	{ "events", act_events }, { "exit", act_exit }, { "error", act_error }, { "empty", act_empty }, { "close", act_close }, { "half", act_half },
	{ "fds", act_fds }, { "manyfds", act_fds_many }, { "flood", act_flood }, { "gaps", act_gaps }, { "file", act_file }, { "pipe", act_pipe },
	{ "mute", act_silent }, { "gone", act_deaf }, { "flap", act_close }, { "liar", act_silent },
};

static bool is(const char *name)
{
	return strcmp(act_name, name) == 0;
}

static void act(const struct msg_reader *r)
{
	size_t n = strcspn(act_name, "-");

	if (only && r->type != only) {
		begin(G_ERR, r->id);
		msg_put_u32(&w, ENOSYS);
		msg_put_str(&w, "not by this guest");
		send_it();
		return;
	}
	for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
		if (strlen(acts[i].name) == n && strncmp(acts[i].name, act_name, n) == 0)
			acts[i].run(r);
}

static void hello(const struct msg_reader *r, bool again)
{
	if (again && is("mute"))
		return;
	begin(G_OK, r->id);
	msg_put_u32(&w, GUEST_VERSION);
	msg_put_str(&w, again && is("liar") ? "somebodyelse" : id);
	msg_put_u32(&w, 0);
	msg_put_u64(&w, 1);
	send_it();
}

/* One request; false when the link is over. */
static bool serve(bool again)
{
	struct pollfd p = { conn, POLLIN, 0 };
	int fds[MSG_FDS];
	static uint8_t in[MSG_MAX];
	unsigned nfds = 0;
	struct msg_reader r;
	struct err e;
	ssize_t n;

	poll(&p, 1, -1);
	n = msg_recv(conn, in, sizeof in, fds, &nfds);
	if (n == -EAGAIN)
		return true;
	if (n <= 0 || msg_reader_init(&r, in, (size_t)n, fds, nfds, &e) < 0)
		return false;
	if (r.type == G_HELLO) {
		hello(&r, again);
	} else if (r.type == G_CONFIGURE || r.type == G_DEADLINE) {
		begin(G_OK, r.id);
		if (!is("stillborn"))
			send_it();
	} else if (r.type != G_CREDIT && r.type != G_DETACH) {
		act(&r);
	} else if (r.type == G_DETACH && !is("flood")) {
		begin(G_OK, r.id);
		send_it();
	}
	for (unsigned i = 0; i < nfds; i++)
		close(fds[i]);
	return !(again && is("flap"));
}

static void serve_all(void)
{
	while (serve(false))
		;
	if (is("gone"))
		for (;;)
			pause();
	for (;;) {
		struct pollfd p = { GUEST_LISTEN_FD, POLLIN, 0 };

		close(conn);
		poll(&p, 1, -1);
		conn = accept4(GUEST_LISTEN_FD, NULL, NULL, SOCK_NONBLOCK);
		while (conn >= 0 && serve(true))
			;
	}
}

/* Looks at the first message without taking it: HOSTILE among the variables of a G_CONFIGURE. */
static bool hostile(void)
{
	static uint8_t in[MSG_MAX];
	static const char *envs[GUEST_ARGS + 1];
	struct pollfd p = { GUEST_CONN_FD, POLLIN, 0 };
	struct msg_reader r;
	struct err e;
	char *colon;
	ssize_t n;
	size_t k;

	poll(&p, 1, -1);
	n = recv(GUEST_CONN_FD, in, sizeof in, MSG_PEEK);
	if (n < MSG_HEAD || msg_reader_init(&r, in, (size_t)n, NULL, 0, &e) < 0 || r.type != G_CONFIGURE)
		return false;
	strncpy(id, msg_get_str(&r, sizeof id - 1), sizeof id - 1);
	msg_get_str(&r, 64);
	k = msg_get_strv(&r, envs, GUEST_ARGS, 4096);
	for (size_t i = 0; i < k; i++)
		if (strncmp(envs[i], "HOSTILE=", 8) == 0)
			strncpy(act_name, envs[i] + 8, sizeof act_name - 1);
	colon = strchr(act_name, ':');
	if (colon) {
		only = (unsigned)strtoul(colon + 1, NULL, 10);
		*colon = '\0';
	}
	return act_name[0] != '\0';
}

static int honest(void)
{
	static struct guest g;
	struct err e;

	fcntl(GUEST_LISTEN_FD, F_SETFD, FD_CLOEXEC);
	fcntl(GUEST_CONN_FD, F_SETFD, FD_CLOEXEC);
	if (life_start(&g, GUEST_LISTEN_FD, GUEST_CONN_FD, &e) < 0)
		return 1;
	return loop_run(g.loop);
}

int main(int argc, char **argv)
{
	const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;

	name = name ? name + 1 : argc > 0 ? argv[0] : "";
	if (strcmp(name, "sudo") == 0)
		return sudo_main(argc, argv);
	log_init("bureau-guest", LOG_INFO);
	proc_title("bureau-guest");
	signal(SIGPIPE, SIG_IGN);
	if (!hostile())
		return honest();
	serve_all();
	return 0;
}
