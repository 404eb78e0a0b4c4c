#include "wire/sock.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct loop *loop;
static struct link *link_;
static int messages, gone, drained, last_code, free_in_message, want_fault;
static char seen[64];

static void on_message(void *ctx, struct msg_reader *r)
{
	messages++;
	if (want_fault)
		return;
	snprintf(seen, sizeof seen, "%s", msg_get_str(r, 60));
	while (r->next_fd < r->nfds)
		close(msg_take_fd(r));
	if (free_in_message) {
		link_free(link_);
		link_ = NULL;
	}
}

static void on_gone(void *ctx, const struct err *e) { gone++; last_code = e->code; }
static void on_drained(void *ctx) { drained++; }
static const struct link_ops ops = { .message = on_message, .gone = on_gone, .drained = on_drained };

static int peer(size_t max)
{
	int s[2];
	struct err e;

	messages = gone = drained = 0;
	sock_pair(s, &e);
	ok(link_create(loop, s[0], max, &ops, NULL, "test", &link_, &e) == 0, "a link");
	return s[1];
}

static void put(int fd, const char *s, int with_fd)
{
	uint8_t mem[256];
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, 1, 1);
	msg_put_str(&w, s);
	if (with_fd >= 0)
		msg_put_fd(&w, with_fd);
	ok(msg_send(fd, &w) == 0, "send '%s'", s);
}

static void basics(void)
{
	int p = peer(1000);
	uint8_t mem[64];
	struct msg_writer w;

	put(p, "one", -1);
	put(p, "two", p);
	loop_turn(loop, 0);
	ok(messages == 2, "both came");
	is_str(seen, "two", "in order");
	want_fault = 1;
	put(p, "three", -1);
	loop_turn(loop, 0);
	ok(gone == 1 && last_code == EPROTO, "unread bytes end the peer");
	want_fault = 0;
	link_free(link_);
	close(p);

	p = peer(1000);
	put(p, "last words", -1);
	close(p);
	loop_turn(loop, 0);
	loop_turn(loop, 0);
	ok(messages == 1 && gone == 1 && last_code == 0, "what was sent before the end is read");
	link_free(link_);

	p = peer(1000);
	msg_writer_init(&w, mem, sizeof mem, 1, 1);
	ok(link_send(link_, &w) == 0, "a word that the peer never reads");
	put(p, "one", -1);
	put(p, "last words", p);
	close(p);
	loop_turn(loop, 0);
	loop_turn(loop, 0);
	ok(messages == 2 && gone == 1 && last_code == 0, "what the peer had sent is read all the same: %d", messages);
	is_str(seen, "last words", "to the last");
	link_free(link_);

	p = peer(1000);
	free_in_message = 1;
	put(p, "x", -1);
	put(p, "y", -1);
	loop_turn(loop, 0);
	ok(messages == 1 && gone == 0 && !link_, "freed inside its own callback");
	free_in_message = 0;
	close(p);

	p = peer(1000);
	ok(send(p, "\1\0\7\0\0\0\0\0", 8, 0) == 8, "a head that lies about descriptors");
	loop_turn(loop, 0);
	ok(gone == 1 && last_code == EPROTO && messages == 0, "ends the peer");
	link_free(link_);
	close(p);
}

static void back_pressure(void)
{
	static uint8_t mem[MSG_MAX], in[MSG_MAX];
	int p = peer(3 * MSG_MAX), rc = 0, sent = 0, got = 0, fds[MSG_FDS];
	unsigned n;
	struct msg_writer w;

	while (sent < 1000) {
		msg_writer_init(&w, mem, sizeof mem, 2, (uint32_t)sent);
		msg_put_bytes(&w, in, 32768);
		msg_put_fd(&w, p);
		rc = link_send(link_, &w);
		if (rc < 0)
			break;
		sent++;
	}
	ok(rc == -ENOBUFS && link_full(link_), "bounded after %d messages", sent);
	for (int turn = 0; turn < 100 && got < sent; turn++) {
		while (msg_recv(p, in, sizeof in, fds, &n) > 0) {
			if (in[4] != got || n != 1)
				ok(0, "message %d in its place", got);
			close(fds[0]);
			got++;
		}
		loop_turn(loop, 0);
	}
	ok(got == sent && drained == 1 && !link_full(link_), "all arrived, drained once");
	link_pause(link_, 1);
	put(p, "later", -1);
	loop_turn(loop, 0);
	ok(messages == 0, "paused");
	close(p);
	loop_turn(loop, 0);
	ok(gone == 0, "a hang-up waits too");
	link_pause(link_, 0);
	loop_turn(loop, 0);
	loop_turn(loop, 0);
	ok(messages == 1 && gone == 1, "and comes after the message");
	ok(link_send(link_, &w) == -EPIPE, "nothing can be sent then");
	link_free(link_);
}

/* Answers wait, and can't ever be sent. */
static void unsendable(int pause, int close_peer)
{
	static uint8_t mem[MSG_MAX], in[MSG_MAX];
	int p = peer(3 * MSG_MAX), rc, small = 1, fds[MSG_FDS];
	unsigned n;
	struct msg_writer w;

	do {
		msg_writer_init(&w, mem, sizeof mem, 2, 1);
		msg_put_bytes(&w, in, 32768);
		rc = link_send(link_, &w);
	} while (rc == 0);
	link_pause(link_, pause);
	if (close_peer) {
		close(p);
	} else {                /* longer than the socket's buffer now */
		setsockopt(link_fd(link_), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
		while (msg_recv(p, in, sizeof in, fds, &n) > 0)
			;
	}
	for (int turn = 0; turn < 5 && !gone; turn++)
		loop_turn(loop, 0);
	ok(gone == 1 && drained == 0, "answers that can't be sent end the link, %s, %s", pause ? "paused" : "reading", close_peer ? "its peer gone" : "its peer alive");
	link_free(link_);
	if (!close_peer)
		close(p);
}

static void named(void)
{
	char dir[256], deep[600];
	struct err e;
	struct stat st;
	pid_t pid;
	uid_t uid;
	int d, l, c, a;

	if (!mkdtemp(tap_tmp(dir, sizeof dir, "wire")))
		return;
	snprintf(deep, sizeof deep, "%s/%0200d", dir, 1);
	mkdir(deep, 0700);
	d = open(deep, O_PATH | O_DIRECTORY | O_CLOEXEC);
	umask(077);
	ok(sock_listen_at(d, "s", 0666, 4, &l, &e) == 0, "listen below a long path");
	close(l);
	ok(sock_listen_at(d, "s", 0666, 4, &l, &e) == 0, "an old socket is replaced");
	fstatat(d, "s", &st, 0);
	ok((st.st_mode & 0777) == 0666, "mode is as asked");
	ok(sock_connect_at(d, "s", &c, &e) == 0, "connect");
	a = accept(l, NULL, NULL);
	ok(sock_peer(a, &pid, &uid, &e) == 0 && pid == getpid() && uid == getuid(), "peer is us");
	ok(sock_connect_at(d, "none", &c, &e) == -ENOENT, "nobody there: %s", e.msg);
	unlinkat(d, "s", 0);
	rmdir(deep);
	rmdir(dir);
}

int main(void)
{
	struct err e;

	if (loop_create(&loop, &e) < 0)
		return 1;
	basics();
	back_pressure();
	for (int i = 0; i < 4; i++)
		unsendable(i & 1, i & 2);
	named();
	loop_free(loop);
	return done_testing();
}
