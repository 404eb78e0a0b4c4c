/* Requests to the guest: dispatch, decoding, the table of programs, streams and credit.
 *
 * Nothing here may touch the machine that fuzzes: what would start or signal a process, or go to a file or a port, is
 * replaced below by a fake that reads the request and no more (the archive's own objects are then not linked at all). */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/file.h"
#include "guest/guest.h"
#include "guest/net.h"
#include "guest/proc.h"
#include "guest/spawn.h"
#include "guest/sudo.h"
#include "guest/watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static pid_t last_pid;

int kill(pid_t pid, int signo)
{
	(void)signo;
	errno = ESRCH;
	return pid < 0 ? 0 : -1;
}

int spawn_program(const struct spawn *s, pid_t *ret, struct err *e)
{
	if (s->cmd[0] == 'n')
		return err_set(e, ENOENT, "no program");
	if (write(s->fds[1], s->cmd, strlen(s->cmd)) < 0)
		errno = 0;
	*ret = last_pid = 1000 + (last_pid + 1) % 50;
	return 0;
}

int spawn_pty(const struct user *u, unsigned cols, unsigned rows, int *ret_master, int *ret_slave, struct err *e)
{
	int s[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s) < 0)
		return err_sys(e, "a pretended terminal");
	*ret_master = s[0];
	*ret_slave = s[1];
	return 0;
}

int spawn_become(const struct user *u) { return -EPERM; }

static void fake(struct conn *c, struct msg_reader *r)
{
	const char *v[65];
	struct err e;

	msg_get_str(r, GUEST_PATH);
	msg_get_str(r, 63);
	msg_get_u32(r);
	msg_get_strv(r, v, 64, 8192);
	if (msg_reader_end(r, &e) == 0)
		conn_ok(c, r->id);
}

void file_stat(struct conn *c, struct msg_reader *r) { fake(c, r); }
void file_dir(struct conn *c, struct msg_reader *r) { fake(c, r); }
void file_mkdir(struct conn *c, struct msg_reader *r) { fake(c, r); }
void file_move(struct conn *c, struct msg_reader *r) { fake(c, r); }
void file_remove(struct conn *c, struct msg_reader *r) { fake(c, r); }
void file_read(struct conn *c, struct msg_reader *r) { fake(c, r); }
void file_write(struct conn *c, struct msg_reader *r) { fake(c, r); }
void watch_start(struct conn *c, struct msg_reader *r) { fake(c, r); }
void watch_stop(struct conn *c, uint32_t id) { }
struct watch *watch_find(struct conn *c, uint32_t id) { return NULL; }
void watch_close_conn(struct conn *c) { }
void watch_resume_conn(struct conn *c) { }
void net_dial(struct conn *c, struct msg_reader *r) { fake(c, r); }
void net_close_conn(struct conn *c) { }
void net_ports(struct conn *c, struct msg_reader *r) { fake(c, r); }
void net_metrics(struct conn *c, struct msg_reader *r) { fake(c, r); }
void life_configure(struct conn *c, struct msg_reader *r) { fake(c, r); }
void life_deadline(struct conn *c, struct msg_reader *r) { fake(c, r); }
void life_shutdown(struct conn *c, struct msg_reader *r) { fake(c, r); }
void life_hello(struct conn *c, struct msg_reader *r) { fake(c, r); }
void life_envs(struct conn *c, struct msg_reader *r) { fake(c, r); }
void life_end(struct guest *g, bool kindly) { }

static void begin(struct guest *g, int fd)
{
	struct err e;

	memset(g, 0, sizeof *g);
	list_init(&g->conns);
	list_init(&g->procs);
	list_init(&g->helpers);
	list_init(&g->sudos);
	g->null_fd = 0;
	if (loop_create(&g->loop, &e) < 0 || conn_add(g, fd, &e) < 0)
		abort();
}

/* The asker goes: its connection ends by itself once what it still sent has been read. */
static void finish(struct guest *g, int peer)
{
	close(peer);
	for (int turns = 0; g->nconns && turns < 10000; turns++)
		loop_turn(g->loop, 0);
	list_each(it, &g->procs)
		proc_free(container_of(it, struct proc, node));
	if (g->kept || g->nprocs || g->nconns)
		abort();        /* the accounts must come out even */
	users_done(&g->users);
	loop_turn(g->loop, 0);
	loop_free(g->loop);
}

/* u8 what: 0xff = a program ended (u8 pid, u8 status); 0xfe = read what was answered; else a message of that many bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct guest g;
	static uint8_t sink[MSG_MAX];
	int s[2];
	struct err e;

	if (sock_pair(s, &e) < 0)
		return 0;
	last_pid = 0;
	signal(SIGPIPE, SIG_IGN);       /* the guest blocks it */
	begin(&g, s[0]);
	while (size) {
		size_t n = *data++;

		size--;
		if (n == 0xff && size >= 2) {
			proc_reaped(&g, 1000 + data[0] % 50, data[1] & 1 ? data[1] << 8 : data[1] & 15);
			data += 2;
			size -= 2;
		} else if (n == 0xfe) {
			while (recv(s[1], sink, sizeof sink, MSG_DONTWAIT) > 0)
				;
		} else {
			if (n > size)
				n = size;
			if (n && send(s[1], data, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
				errno = 0;
			data += n;
			size -= n;
		}
		loop_turn(g.loop, 0);
		loop_turn(g.loop, 0);
	}
	finish(&g, s[1]);
	return 0;
}
