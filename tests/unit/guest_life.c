/* What the guest is told, ports, watches, and how a computer ends. */
#include <netinet/in.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tap.h"
#include "guest_lab.h"

static struct lab l;

static void put_hello(struct lab *at, uint32_t version, struct lab_stream **ret)
{
	struct msg_writer w;
	struct lab_stream *s = lab_begin(at, &w, G_HELLO);

	msg_put_u32(&w, version);
	*ret = lab_call(at, s, &w);
}

static struct lab_stream *configure(struct lab *at, const char *hostname, uint64_t deadline)
{
	const char *const envs[] = { "GLOBAL=yes", "PATH=/usr/bin" };
	struct msg_writer w;
	struct lab_stream *s = lab_begin(at, &w, G_CONFIGURE);

	msg_put_str(&w, "i0123456789");
	msg_put_str(&w, hostname);
	msg_put_strv(&w, envs, 2);
	msg_put_u64(&w, deadline);
	return lab_call(at, s, &w);
}

static void told(void)
{
	struct lab_stream *s;
	struct msg_writer w;

	put_hello(&l, GUEST_VERSION, &s);
	ok(!s->failed && s->reply[0] == GUEST_VERSION, "hello");
	put_hello(&l, 99, &s);
	ok(s->failed, "%s", s->msg);
	ok(!configure(&l, "alice", 0)->failed, "configured");
	s = lab_sh(&l, "", "cat /etc/hostname; grep -c alice /etc/hosts; echo $GLOBAL $PATH");
	is_str(s->text, "alice\n1\nyes /usr/bin\n", "hostname in /etc, and environment");
	ok(configure(&l, "a b", 0)->code == EINVAL, "a bad hostname");
	s = lab_begin(&l, &w, G_ENVS);
	lab_call(&l, s, &w);
	ok(s->reply[0] == 2 && memcmp(s->reply + 8, "GLOBAL=yes", 11) == 0, "environment can be asked for");
	s = lab_begin(&l, &w, 77);
	msg_put_u32(&w, 1);
	ok(lab_call(&l, s, &w)->code == ENOSYS, "%s", s->msg);
	s = lab_begin(&l, &w, G_METRICS);
	lab_call(&l, s, &w);
	ok(!s->failed && s->reply_len == 48 && s->reply[0] >= 1, "metrics");
}

/* The ports that connections in the computer get theirs from. */
static bool port_range(const char *range)
{
	int status = 1;
	pid_t pid = fork();

	if (pid == 0) {
		int fd = (int)syscall(SYS_pidfd_open, l.pid, 0);

		if (fd < 0 || setns(fd, CLONE_NEWUSER | CLONE_NEWNET) < 0)
			_exit(1);
		_exit(lab_write("/proc/sys/net/ipv4/ip_local_port_range", range) < 0);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

static void ports(void)
{
	struct lab_stream *s, *srv;
	struct msg_writer w;
	char got[16] = "";

	srv = lab_run(&l, &(struct lab_prog){ .cmd = "python3", .args = { "-c",
		"import socket;a=socket.create_server(('127.0.0.1',8123));b=socket.create_server(('::1',8124),family=socket.AF_INET6);print('up',flush=True)\n"
		"for x in (a,b):\n c,_=x.accept();c.sendall(b'hi');c.close()" } });
	lab_until(&l, srv->n || srv->exited);
	if (srv->exited)
		printf("# %s\n", srv->err);
	s = lab_begin(&l, &w, G_PORTS);
	lab_call(&l, s, &w);
	ok(s->reply_len == 8 && s->reply[0] == 2 && s->reply[4] == (8123 & 255) && s->reply[6] == (8124 & 255), "two ports");
	for (uint16_t port = 8123; port <= 8124; port++) {
		s = lab_begin(&l, &w, G_DIAL);
		msg_put_u16(&w, port);
		lab_call(&l, s, &w);
		ok(!s->failed && s->fd >= 0, "dialled %u %s", port, s->msg);
		fd_nonblock(s->fd, 0);
		memset(got, 0, sizeof got);
		ok(read(s->fd, got, 2) == 2, "read");
		is_str(got, "hi", "connected");
		close(s->fd);
	}
	s = lab_begin(&l, &w, G_DIAL);
	msg_put_u16(&w, 9);
	ok(lab_call(&l, s, &w)->code == ECONNREFUSED, "%s", s->msg);
	lab_until(&l, srv->exited);
	ok(port_range("41000 41000"), "one port for all connections");
	s = lab_begin(&l, &w, G_DIAL);
	msg_put_u16(&w, 41000);
	ok(lab_call(&l, s, &w)->code == ECONNREFUSED, "which meets nobody there, itself neither: %s", s->msg);
	ok(port_range("32768 60999"), "and the usual ones again");
}

static struct lab_stream *watch(const char *path, bool recursive, bool entry)
{
	struct msg_writer w;
	struct lab_stream *s = lab_begin(&l, &w, G_WATCH);

	msg_put_str(&w, path);
	msg_put_str(&w, "");
	msg_put_u8(&w, recursive);
	msg_put_u8(&w, entry);
	msg_put_u8(&w, 0);
	return lab_call(&l, s, &w);
}

static void saw(struct lab_stream *s, const char *line, const char *what)
{
	lab_until(&l, strstr(s->names, line));
	if (!ok(strstr(s->names, line) != NULL, "%s", what))
		printf("# %s\n", s->names);
}

static void watches(void)
{
	struct lab_stream *s, *t;
	struct msg_writer w;

	lab_sh(&l, "", "mkdir -p w/old/deep");
	s = watch("w", false, false);
	ok(!s->failed, "watched %s", s->msg);
	lab_sh(&l, "", "cd w; echo x > a; chmod 600 a; mv a b; rm b; echo y > old/unseen");
	saw(s, "C a\n", "create");
	saw(s, "M a\n", "write");
	saw(s, "A a\n", "chmod");
	saw(s, "R a\n", "rename of the old name");
	saw(s, "C b\n", "create of the new one");
	saw(s, "D b\n", "remove");
	ok(!strstr(s->names, "unseen"), "not below");
	t = watch("w", true, true);
	lab_sh(&l, "", "cd w; echo x > old/deep/f; mkdir -p n/e/w; echo x > n/e/w/g");
	saw(t, "C old/deep/f\n", "in a folder that was there");
	/* seen before it's renamed: nobody can look into a folder that has left its name already */
	saw(t, "C n/e/w/g\n", "in folders made later, all at once");
	lab_sh(&l, "", "cd w; mv n m; echo x > m/e/w/h; mv /home/user/w/m /home/user/away; echo x > /home/user/away/e/w/i; mv ../away .; echo x > away/e/w/j");
	saw(t, "R n\n", "folder renamed");
	saw(t, "C away\n", "folder moved in");
	lab_sh(&l, "", "sleep 0.1; echo x > w/away/e/w/k");
	saw(t, "C away/e/w/k\n", "and watched again");
	ok(!strstr(t->names, "e/w/i"), "outside isn't seen");
	s = lab_begin(&l, &w, G_DETACH);
	msg_put_u32(&w, t->id);
	ok(!lab_call(&l, s, &w)->failed, "detached");
	ok(watch("w/old/unseen", false, false)->code == ENOTDIR && watch("w/none", false, false)->code == ENOENT, "faults");
	s = watch("w", true, false);
	t = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "cd w; mkdir q; cd q; seq 1 60000 | sed 's/$/-a-name-that-is-rather-long-so-that-the-queue-of-the-connection-fills-up-sooner/' | xargs touch; mv ../q ../q2; exec rm -rf ../q2" } });
	for (int i = 0; i < 300 && !l.gone; i++)
		poll(NULL, 0, 10);      /* we don't read */
	lab_until(&l, s->ended || (t->exited && strstr(s->names, "D q2\n")));
	ok(s->ended ? s->code == EOVERFLOW : t->exited, "a reader that is too slow is told all, or that it wasn't: %u events, %s", s->count, s->ended ? s->msg : "all");
	lab_until(&l, t->exited);
	lab_sh(&l, "", "mkdir w2");
	s = watch("w2", true, false);
	lab_sh(&l, "", "rmdir w2");
	lab_until(&l, s->ended);
	ok(s->ended && s->code == ENOENT, "%s", s->msg);
	lab_sh(&l, "", "mkdir /tmp/wide; cd /tmp/wide; seq 8200 | xargs mkdir");
	s = watch("/tmp/wide", true, false);
	ok(s->failed && s->code == ENOSPC, "a limit that is reached is told: %s", s->msg);
	ok(!watch("/tmp/wide", false, false)->failed, "of a whole tree");
	lab_sh(&l, "", "rm -rf /tmp/wide");
}

static void connections(void)
{
	struct lab other = l;
	struct lab_stream *s, *run;
	int fd;

	memset(other.s, 0, sizeof other.s);
	other.fd = lab_connect(&l);
	other.next_id = 1;
	put_hello(&other, GUEST_VERSION, &s);
	ok(!s->failed, "a second connection");
	run = lab_run(&other, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "sleep 0.2; echo survived > /tmp/mark" }, .tag = "x" });
	ok(!run->failed, "starts a program");
	close(other.fd);
	lab_free(&other);
	for (int i = 0; i < 100; i++) {
		s = lab_sh(&l, "", "cat /tmp/mark 2>/dev/null; sleep 0.02");
		if (s->n)
			break;
	}
	is_str(s->text, "survived\n", "which goes on without it");
	fd = lab_connect(&l);
	ok(send(fd, "\1\0\0\0\1\0\0\0", 8, 0) == 8, "a request without its fields");
	ok(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, LAB_WAIT_MS) == 1 && read(fd, &other, 1) == 0, "ends that connection");
	close(fd);
	s = lab_sh(&l, "", "echo fine");
	is_str(s->text, "fine\n", "only");
}

static void hostile(void)
{
	struct lab_stream *s = lab_sh(&l, "root", "kill -9 1; kill -TERM 1; cat /proc/1/environ /proc/1/maps; ls -l /proc/1/fd /proc/1/exe");

	ok(!strstr(s->text, "bureau") && !strstr(s->text, "socket") && !strstr(s->text, "r-xp"), "PID 1 can't be looked into or killed by root: %s", s->text);
	s = lab_sh(&l, "", "for i in $(seq 300); do (sleep 0.01 &) ; done; echo ok");
	is_str(s->text, "ok\n", "many orphans");
	s = lab_sh(&l, "", "yes | head -c 3000000 >&2; yes | head -c 300000");
	ok(s->exited, "much output on both");
}

static void ends(void)
{
	struct lab_stream *s;
	struct msg_writer w;

	s = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done" } });
	lab_until(&l, s->n);
	lab_call(&l, lab_begin(&l, &w, G_SHUTDOWN), &w);
	lab_until(&l, s->exited);
	ok(strstr(s->text, "bye"), "programs are asked to end");
	ok(lab_wait_end(&l) == 0, "and the computer is over");
	lab_end(&l);

	lab_start(&l);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "sleep 100 & echo last; exit 4" }, .flags = GS_END_COMPUTER, .timeout = 200 });
	lab_until(&l, s->exited);
	ok(s->how == GUEST_TIMED_OUT, "its end");
	is_str(s->text, "last\n", "comes with its output");
	ok(lab_wait_end(&l) == 0, "and ends the computer");
	lab_end(&l);

	lab_start(&l);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "seq 1000; exit 6" }, .flags = GS_END_COMPUTER, .window = 100 });
	for (int i = 0; i < 15; i++)
		lab_turn(&l, 20);
	ok(!l.gone && s->n == 100, "a reader without credit isn't left without the end");
	msg_writer_init(&w, lab_mem, sizeof lab_mem, G_CREDIT, 0);
	msg_put_u32(&w, s->id), msg_put_u32(&w, 1 << 20);
	lab_send(&l, &w);
	lab_until(&l, s->exited);
	ok(s->n == 3893 && s->exit_code == 6, "it gets all of it: %zu", s->n);
	ok(lab_wait_end(&l) == 0, "then the computer ends");
	lab_end(&l);

	lab_start(&l);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "seq", .args = { "1000" }, .flags = GS_END_COMPUTER, .window = 100 });
	lab_until(&l, s->n == 100);
	close(l.fd);
	ok(lab_wait_end(&l) == 0, "or when it goes away");
	lab_end(&l);

	lab_start(&l);
	configure(&l, "", (uint64_t)clock_boot_ms() - GUEST_GRACE_MS + 300);
	ok(lab_wait_end(&l) == 0, "the deadline ends it too");
	lab_end(&l);
}

int main(void)
{
	if (!lab_start(&l)) {
		skip("no user namespaces here");
		return done_testing();
	}
	told();
	ports();
	watches();
	connections();
	hostile();
	ends();
	return done_testing();
}
