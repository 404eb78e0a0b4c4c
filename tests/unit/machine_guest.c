/* A guest that we play here, honest and hostile, against our side of the link. */
#include "machine/guest_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "core/loop.h"
#include "tap.h"
#include "wire/sock.h"

static struct loop *loop;
static struct guest *guest;
static int peer = -1;
static char story[4000];
static bool lost;
static uint8_t mem[MSG_MAX];

__attribute__((format(printf, 1, 2)))
static void tell(const char *fmt, ...)
{
	size_t at = strlen(story);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(story + at, sizeof story - at, fmt, ap);
	va_end(ap);
}

static void on_gone(void *ctx, const struct err *e)
{
	lost = true;
	tell("gone(%s) ", e->code == EPROTO ? "protocol" : e->code ? "error" : "end");
	guest_close(guest, e);
	guest = NULL;
}

static void on(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	if (e) {
		tell("%d:err %d ", k->type, e->code);
		return;
	}
	tell("%d:%s%s ", k->type, m->what == GW_OK ? "ok" : m->what == GW_OUT ? "out" : m->what == GW_EXIT ? "exit" : m->what == GW_ENTRY ? "entry" : "other",
		m->last ? "!" : "");
	if (m->what == GW_OUT)
		guest_credit(k, (uint32_t)m->len);
}

static void begin(void)
{
	struct err e;
	int pair[2];

	story[0] = '\0';
	lost = false;
	if (sock_pair(pair, &e) < 0 || guest_open(loop, pair[0], on_gone, NULL, &guest, &e) < 0)
		_exit(1);
	peer = pair[1];
}

static void end(void)
{
	struct err e;

	err_set(&e, ECANCELED, "over");
	guest_close(guest, &e);
	guest = NULL;
	close(peer);
	for (int i = 0; i < 3; i++)
		loop_turn(loop, 0);
}

static void turns(void)
{
	for (int i = 0; i < 8; i++)
		loop_turn(loop, 0);
}

/* The next request that was sent: its id */
static uint32_t request(uint16_t type)
{
	int fds[MSG_FDS];
	unsigned nfds;
	struct msg_reader r;
	struct err e;
	ssize_t n = msg_recv(peer, mem, sizeof mem, fds, &nfds);

	if (n <= 0 || msg_reader_init(&r, mem, (size_t)n, fds, nfds, &e) < 0)
		return 0;
	tell("<%u ", r.type);
	r.p = r.end;
	msg_reader_end(&r, &e);
	return r.type == type ? r.id : 0;
}

static struct msg_writer answer(uint16_t type, uint32_t id)
{
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, type, id);
	return w;
}

static void put_entry(struct msg_writer *w, const char *path)
{
	msg_put_str(w, path);
	msg_put_u32(w, 0100644);
	msg_put_u64(w, 5);
	msg_put_u64(w, 1);
	msg_put_u32(w, 0);
	msg_put_u32(w, 0);
	msg_put_str(w, "root");
	msg_put_str(w, "root");
	msg_put_str(w, "");
	msg_put_strv(w, NULL, 0);
}

static void start(struct guest_call *k, uint32_t window)
{
	struct guest_start_args a = { .cmd = "true", .window = window };
	struct err e;

	k->on = on;
	guest_start(guest, k, &a, &e);
}

static void send_out(uint32_t id, size_t n)
{
	static char bytes[GUEST_CHUNK + 1];
	struct msg_writer w = answer(G_OUT, id);

	msg_put_u8(&w, GUEST_STDOUT);
	msg_put_u64(&w, 0);
	msg_put_bytes(&w, bytes, n);
	msg_send(peer, &w);
}

static void send_started(uint32_t id)
{
	struct msg_writer w = answer(G_OK, id);

	msg_put_u32(&w, 7);
	msg_send(peer, &w);
}

static void send_exit(uint32_t id, uint32_t how)
{
	struct msg_writer w = answer(G_EXIT, id);

	msg_put_u32(&w, how);
	msg_put_u32(&w, 0);
	msg_put_u8(&w, 0);
	msg_send(peer, &w);
}

static void test_honest(void)
{
	struct guest_call a = { 0 }, b = { 0 };
	struct msg_writer w;
	struct err e;
	uint32_t id, id2;

	begin();
	start(&a, 100000);
	b.on = on;
	guest_stat(guest, &b, "/x", "", &e);
	id = request(G_START);
	id2 = request(G_STAT);
	w = answer(G_OK, id2);
	put_entry(&w, "/x");
	msg_send(peer, &w);
	send_started(id);
	send_out(id, 10);
	send_exit(id, GUEST_EXITED);
	turns();
	is_str(story, "<4 <13 13:ok! 4:ok 4:out 4:exit! ", "answers find their calls, in any order");
	ok(!a.guest && !b.guest && !lost, "both are over, the link lives");
	guest_stat(guest, &b, "/y", "", &e);
	id = request(G_STAT);
	w = answer(G_ERR, id);
	msg_put_u32(&w, ENOENT);
	msg_put_str(&w, "no such thing");
	msg_send(peer, &w);
	turns();
	ok(strstr(story, "13:err 2 ") != NULL, "a refusal is one");
	start(&a, 10);
	close(peer);
	turns();
	ok(strstr(story, "4:err 11 gone(end)") != NULL, "the end of the link ends its calls: %s", story);
	peer = -1;
	end();
}

static void test_cancel(void)
{
	struct guest_call a = { 0 };
	uint32_t id, id2;
	struct msg_writer w;

	begin();
	start(&a, 1000);
	id = request(G_START);
	guest_cancel(&a);
	send_started(id);
	send_out(id, 10);
	turns();
	id2 = request(G_DETACH);
	ok(id2 != 0, "a start that nobody waits for is detached once it is answered: %s", story);
	send_out(id, 10);
	w = answer(G_OK, id2);
	msg_send(peer, &w);
	turns();
	ok(!lost && strstr(story, "4:") == NULL, "what still comes for it is dropped");
	send_out(id, 10);
	turns();
	ok(lost, "but nothing may come after the answer to detach");
	end();
}

/* The guest says that nothing listens in it. */
static void no_ports(void)
{
	struct msg_writer w = answer(G_OK, request(G_PORTS));

	msg_put_u32(&w, 0);
	msg_send(peer, &w);
	turns();
}

/* Each sends something that no honest guest would; the link must end as a fault of the protocol. */
static void bad_output(uint32_t id) { send_started(id); send_out(id, 101); }
static void bad_chunk(uint32_t id) { send_started(id); send_out(id, GUEST_CHUNK + 1); }
static void bad_order(uint32_t id) { send_out(id, 1); }
static void bad_twice(uint32_t id) { send_started(id); send_started(id); }
static void bad_id(uint32_t id) { send_started(id ^ 0x10000); }
static void bad_place(uint32_t id) { send_started(id + 900); }
static void bad_how(uint32_t id) { send_started(id); send_exit(id, 9); }
static void bad_kind(uint32_t id) { struct msg_writer w = answer(G_ENTRY, id); put_entry(&w, "/x"); msg_send(peer, &w); }
static void bad_type(uint32_t id) { struct msg_writer w = answer(999, id); msg_send(peer, &w); }
static void bad_short(uint32_t id) { struct msg_writer w = answer(G_OK, id); msg_put_u16(&w, 7); msg_send(peer, &w); }
static void bad_long(uint32_t id) { struct msg_writer w = answer(G_OK, id); msg_put_u64(&w, 7); msg_send(peer, &w); }
static void bad_pid(uint32_t id) { struct msg_writer w = answer(G_OK, id); msg_put_u32(&w, 0); msg_send(peer, &w); }
static void bad_fd(uint32_t id)
{
	struct msg_writer w = answer(G_OK, id);

	msg_put_u32(&w, 7);
	msg_put_fd(&w, 0);
	msg_send(peer, &w);
	send_started(id);
}
static void bad_bytes(uint32_t id)
{
	if (write(peer, "\377\377\377", 3) != 3)
		tell("?");
}

static void test_hostile(void)
{
	static const struct { const char *name; void (*act)(uint32_t id); } acts[] = {
		{ "more output than its credit", bad_output }, { "a chunk that is too long", bad_chunk }, { "output before the answer", bad_order },
		{ "two answers", bad_twice }, { "an answer to an old id", bad_id }, { "an answer to a place that isn't", bad_place },
		{ "an exit of no kind", bad_how }, { "an entry nobody asked for", bad_kind }, { "a type of its own", bad_type },
		{ "a cut answer", bad_short }, { "an answer with more in it", bad_long }, { "a program without a pid", bad_pid },
		{ "descriptors", bad_fd }, { "no message at all", bad_bytes },
	};

	for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
		struct guest_call k = { 0 };

		begin();
		start(&k, 100);
		acts[i].act(request(G_START));
		turns();
		ok(lost && strstr(story, "gone(protocol)") && strstr(story, "4:err 11"), "%s ends the link: %s", acts[i].name, story);
		ok(!k.guest, "and its call");
		end();
	}
}

static unsigned entries;

static void on_listed(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	entries += !e;
	if (e)
		tell("err %d ", e->code);
}

static void test_long_list(void)
{
	static char path[8000];
	struct guest_call k = { .on = on_listed }, after = { .on = on };
	struct msg_writer w;
	struct err e;
	uint32_t id;

	begin();
	memset(path, 'x', sizeof path - 1);
	guest_dir(guest, &k, "/", "", 1, &e);
	id = request(G_DIR);
	story[0] = '\0';
	for (int i = 0; i < 15000; i++) {
		w = answer(G_ENTRY, id);
		put_entry(&w, path);
		if (msg_send(peer, &w) < 0)
			tell("?");
		loop_turn(loop, 0);
	}
	turns();
	is_str(story, "err 7 ", "a list that is too long ends its call alone");
	ok(!lost && !k.guest && entries > 11000 && entries < 12500, "after what may be kept: %u entries", entries);
	w = answer(G_OK, id);
	msg_put_u32(&w, 15000);
	msg_send(peer, &w);
	ok(guest_ports(guest, &after, &e) == 0, "the link goes on");
	no_ports();
	ok(!lost && !after.guest && strstr(story, "ok!"), "and answers: %s", story);
	end();
}

/* Our own table of descriptors is full: that must not look like a fault of the guest, which would end its computer. */
static void test_no_fds(void)
{
	struct guest_call k = { .on = on }, after = { .on = on };
	struct rlimit was, full;
	struct msg_writer w;
	struct err e;
	uint32_t id;
	int next;

	begin();
	guest_read(guest, &k, "/f", "", &e);
	id = request(G_READ);
	story[0] = '\0';
	w = answer(G_OK, id);
	put_entry(&w, "/f");
	msg_put_u8(&w, GUEST_FILE);
	msg_put_fd(&w, 0);               /* whatever it is: it doesn't arrive */
	msg_send(peer, &w);
	next = dup(0);
	close(next);
	getrlimit(RLIMIT_NOFILE, &was);
	full = (struct rlimit){ (rlim_t)next, was.rlim_max };
	setrlimit(RLIMIT_NOFILE, &full);
	turns();
	setrlimit(RLIMIT_NOFILE, &was);
	ok(!lost && !k.guest && strstr(story, ":err 11"), "no room for a descriptor ends the call alone: %s", story);
	guest_ports(guest, &after, &e);
	no_ports();
	ok(!lost && !after.guest, "and the link goes on");
	end();
}

/* Programs with thousands of empty arguments: little on the link, much in memory. */
static void test_dear_list(void)
{
	struct guest_call k = { .on = on_listed };
	struct err e;
	uint32_t id;

	begin();
	guest_list(guest, &k, true, &e);
	id = request(G_LIST);
	story[0] = '\0';
	entries = 0;
	for (int i = 0; i < 1000 && k.guest; i++) {
		struct msg_writer w = answer(G_PROC, id);

		msg_put_u32(&w, 7);
		msg_put_u32(&w, 0);
		msg_put_str(&w, "x");
		msg_put_u32(&w, GUEST_ARGS);
		for (int j = 0; j < GUEST_ARGS; j++)
			msg_put_str(&w, "");
		msg_put_str(&w, "/");
		msg_put_str(&w, "");
		msg_put_u8(&w, 0);
		msg_put_u32(&w, 0);
		msg_put_u32(&w, 0);
		msg_send(peer, &w);
		loop_turn(loop, 0);
	}
	is_str(story, "err 7 ", "a list that costs too much ends its call alone");
	ok(!lost && entries < 400, "long before a thousand such programs: %u", entries);
	end();
}

static void opened(uint16_t type, int fd, uint8_t kind, bool good, const char *what)
{
	struct guest_call k = { .on = on };
	struct msg_writer w;
	struct err e;
	uint32_t id;

	begin();
	if (type == G_READ)
		guest_read(guest, &k, "/f", "", &e);
	else if (type == G_WRITE)
		guest_write(guest, &k, "/f", "", 0, NULL, 0, 0, &e);
	else
		guest_dial(guest, &k, 80, &e);
	id = request(type);
	w = answer(G_OK, id);
	if (type != G_DIAL)
		put_entry(&w, "/f");
	if (type == G_READ)
		msg_put_u8(&w, kind);
	msg_put_fd(&w, fd);
	msg_send(peer, &w);
	turns();
	ok(good ? !lost && strstr(story, "ok!") : lost && strstr(story, "gone(protocol)"), "%s: %s", what, story);
	end();
	close(fd);
}

static void test_descriptors(void)
{
	int pipes[2], pair[2], l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), mem_fd = memfd_create("f", MFD_CLOEXEC);
	struct err e;

	if (pipe(pipes) < 0 || sock_pair(pair, &e) < 0 || listen(l, 1) < 0)
		_exit(1);
	opened(G_READ, dup(mem_fd), GUEST_FILE, true, "a file to read");
	opened(G_WRITE, dup(mem_fd), 0, true, "a file to write");
	opened(G_READ, dup(mem_fd), GUEST_PIPE, false, "a file that should be a pipe");
	opened(G_DIAL, mem_fd, 0, false, "a file for a connection");
	opened(G_READ, dup(pipes[0]), GUEST_PIPE, true, "a pipe to read");
	opened(G_READ, dup(pipes[0]), GUEST_FILE, false, "a pipe that should be a file");
	opened(G_READ, pipes[1], GUEST_PIPE, false, "a pipe's other end");
	opened(G_WRITE, pipes[0], 0, false, "a pipe to write");
	opened(G_READ, open("/etc", O_RDONLY | O_DIRECTORY), GUEST_FILE, false, "a folder");
	opened(G_READ, open("/etc/passwd", O_PATH), GUEST_FILE, false, "a name of a file");
	opened(G_WRITE, open("/etc/passwd", O_RDONLY), 0, false, "a file that can't be written");
	opened(G_READ, open("/dev/null", O_RDWR), GUEST_FILE, false, "a device");
	opened(G_DIAL, socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), 0, true, "a TCP socket");
	opened(G_DIAL, socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), 0, false, "a UDP socket");
	opened(G_DIAL, l, 0, false, "a listening socket");
	opened(G_DIAL, pair[0], 0, false, "a socket of another kind");
	close(pair[1]);
}

/* Turns until the call is over, or two seconds. */
static void wait_for(const struct guest_call *k)
{
	for (int i = 0; i < 200 && k->guest; i++)
		loop_turn(loop, 10);
}

static void test_silence(void)
{
	struct guest_call k = { .on = on, .limit_ms = 60 }, after = { .on = on };
	struct msg_writer w;
	struct err e;
	uint32_t id;

	begin();
	guest_ports(guest, &k, &e);
	guest_ports(guest, &after, &e);
	id = request(G_PORTS);
	story[0] = '\0';
	wait_for(&k);
	is_str(story, "22:err 110 ", "an answer that doesn't come ends its call alone");
	w = answer(G_OK, id);
	msg_put_u32(&w, 0);
	msg_send(peer, &w);
	turns();
	is_str(story, "22:err 110 ", "when it does come it's dropped");
	no_ports();
	ok(!lost && !after.guest && strstr(story, "ok!"), "and the other call is answered: %s", story);
	end();
}

/* A program with a time limit that the guest doesn't keep. */
static void test_no_end(void)
{
	struct guest_start_args a = { .cmd = "true", .window = 100, .timeout_ms = 40 };
	struct guest_call k = { .on = on, .limit_ms = 60 }, held = k, without = k;
	struct err e;
	uint32_t id;

	begin();
	guest_start(guest, &k, &a, &e);
	id = request(G_START);
	send_started(id);
	turns();
	story[0] = '\0';
	wait_for(&k);
	ok(!lost && !k.guest && strstr(story, "4:err 110"), "a program that outlives its limit ends its call: %s", story);
	ok(request(G_DETACH) != 0, "and is let go of");
	guest_start(guest, &held, &a, &e);
	id = request(G_START);
	send_started(id);
	send_out(id, 100);
	a.timeout_ms = 0;
	guest_start(guest, &without, &a, &e);
	send_started(request(G_START));
	turns();
	held.credit = 0;                 /* its reader doesn't take what it said last */
	for (int i = 0; i < 30; i++)
		loop_turn(loop, 10);
	ok(!lost && held.guest && without.guest, "not when it's our side that holds it back, nor without a limit: %s", story);
	end();
}

static void test_many(void)
{
	static struct guest_call k[GUEST_CALLS + 1];
	struct err e = { 0 };
	int n = 0, over = 0;

	begin();
	for (; n <= GUEST_CALLS; n++) {
		k[n].on = on;
		if (guest_ports(guest, &k[n], &e) < 0)
			break;
	}
	ok(n == GUEST_CALLS && e.code == EAGAIN, "calls in flight are bounded: %d, %s", n, e.msg);
	story[0] = '\0';
	close(peer);
	turns();
	for (int i = 0; i < n; i++)
		over += !k[i].guest;
	ok(lost && over == n, "and all end with the link");
	peer = -1;
	end();
}

int main(void)
{
	struct err e;
	int before, after;

	if (loop_create(&loop, &e) < 0)
		return 1;
	before = dup(0);
	close(before);
	test_honest();
	test_cancel();
	test_hostile();
	test_long_list();
	test_dear_list();
	test_descriptors();
	test_silence();
	test_no_end();
	test_no_fds();
	test_many();
	after = dup(0);
	ok(before == after, "no descriptor is left");
	loop_free(loop);
	return done_testing();
}
