#ifndef GUEST_LAB_H
#define GUEST_LAB_H
/* guest_lab -- bureau-guest as PID 1 of a bare computer: new namespaces, a root of its own on a tmpfs with the host's /usr
 * read-only, and a client over its socket. As root all ids are there, as a plain user only one. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/proc.h"
#include "core/clock.h"
#include "core/fd.h"
#include "wire/guest_proto.h"
#include "wire/sock.h"

#define LAB_WAIT_MS 10000
#if defined(__SANITIZE_ADDRESS__)
#define LAB_ROOMY 1             /* the guest is built with AddressSanitizer too: its memory says nothing */
#else
#define LAB_ROOMY 0
#endif
#define LAB_STREAMS 64
#define LAB_TEXT (2u << 20)

struct lab_stream {             /* what came for one id */
	uint32_t id, pid;
	bool answered, failed, exited, ended;
	uint32_t code, how, exit_code, count;
	uint64_t gap, next;         /* next: offset expected */
	size_t n, events;           /* bytes in text; G_OUT messages */
	char *text, *err;
	size_t nerr;
	char msg[400];
	uint8_t reply[MSG_MAX];     /* the G_OK's fields */
	size_t reply_len;
	int fd;                     /* the descriptor that came with it */
	char names[65536];          /* G_ENTRY paths and G_EVENT "K name" lines */
};
struct lab {
	pid_t pid;
	int fd, listen;
	bool single, gone;
	rlim_t nproc, nofile;   /* set before lab_start: limits of the guest itself (0 = as they are) */
	char dir[128];
	struct lab_stream *s[LAB_STREAMS];
	uint32_t next_id;
};

static inline int lab_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

static inline void lab_must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "# lab: %s: %s\n", what, strerror(errno));
	_exit(99);
}

static inline void lab_bind(const char *from, const char *to)
{
	close(open(to, O_CREAT | O_CLOEXEC, 0644));
	lab_must(mount(from, to, NULL, MS_BIND, NULL) == 0, to);
}

/* What is the host's can't be changed from the lab, whatever a test does: root there is the machine's own root. Where that
 * can't be had there is no lab. Checked by a write that must fail. */
static inline void lab_readonly(const char *path)
{
	struct { uint64_t set, clr, propagation, userns; } attr = { .set = 1 /* MOUNT_ATTR_RDONLY */ };

	lab_must(syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attr, sizeof attr) == 0, "make it read-only");
}

static inline void lab_seal(const char *path, bool folder)
{
	int fd;

	lab_readonly(path);
	fd = folder ? open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : open(path, O_WRONLY | O_CLOEXEC);
	lab_must(fd < 0 && errno != EOPNOTSUPP, "it must not be writable");
}

static inline void lab_root(const char *dir, const char *guest)
{
	static const char *const folders[] = { "usr", "etc", "proc", "dev", "dev/pts", "dev/shm", "tmp", "home", "home/user", "root", "run", "var", "old" };
	static const char *const links[] = { "bin", "sbin", "lib", "lib64" };
	static const char *const devices[] = { "null", "zero", "random", "urandom", "full" };
	char to[64], from[64];

	lab_must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
	lab_must(mount("tmpfs", dir, "tmpfs", MS_NOSUID, "mode=0755") == 0, "tmpfs");
	lab_must(chdir(dir) == 0, dir);
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		lab_must(mkdir(folders[i], 0755) == 0, folders[i]);
	chmod("tmp", 01777);
	lab_must(mount("/usr", "usr", NULL, MS_BIND | MS_REC, NULL) == 0, "usr");
	lab_seal("usr", true);
	lab_must(mkdir("sealed", 0755) == 0 && lab_write("sealed/file", "x") == 0, "sealed");     /* read-only, and the lab's own */
	lab_must(mount("sealed", "sealed", NULL, MS_BIND, NULL) == 0, "sealed");
	lab_seal("sealed", true);
	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		snprintf(from, sizeof from, "usr/%s", links[i]);
		lab_must(symlink(from, links[i]) == 0, links[i]);
	}
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		snprintf(to, sizeof to, "dev/%s", devices[i]);
		snprintf(from, sizeof from, "/dev/%s", devices[i]);
		lab_bind(from, to);
		lab_readonly(to);       /* a device can be used through it, but not chmodded */
	}
	lab_must(mount("tmpfs", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0, "another filesystem");
	lab_must(mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620") == 0, "devpts");
	lab_must(symlink("pts/ptmx", "dev/ptmx") == 0, "ptmx");
	lab_must(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "proc");
	lab_write("etc/passwd", "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\nother:x:1001:1001::/tmp:/bin/sh\n");
	lab_write("etc/group", "root:x:0:\nuser:x:1000:\nother:x:1001:\nteam:x:2000:other,user\n");
	if (chown("home/user", 1000, 1000) < 0)
		errno = 0;
	lab_bind(guest, "run/guest");
	lab_seal("run/guest", false);
	lab_must(mkdir("run/bin", 0755) == 0 && symlink("/run/guest", "run/bin/sudo") == 0, "sudo");
	lab_must(syscall(SYS_pivot_root, ".", "old") == 0, "pivot_root");
	lab_must(chdir("/") == 0 && umount2("/old", MNT_DETACH) == 0 && rmdir("/old") == 0, "leave the old root");
}

/* lo up, as the keeper does */
static inline void lab_lo(void)
{
	struct { char name[16]; short flags; char pad[24]; } ifr = { .name = "lo", .flags = 1 };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s >= 0 && syscall(SYS_ioctl, s, 0x8914, &ifr) < 0)
		errno = 0;
	close(s);
}

static inline void lab_guest_path(char *out, size_t size)
{
	char self[3000], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	snprintf(out, size, "%s/bureau-guest", self);
}

/* What the keeper leaves to a computer's root. */
static inline void lab_capabilities(void)
{
	static const int keep[] = { 0 /* CHOWN */, 1 /* DAC_OVERRIDE */, 3 /* FOWNER */, 4 /* FSETID */, 5 /* KILL */, 6 /* SETGID */, 7 /* SETUID */,
		10 /* NET_BIND_SERVICE */, 18 /* SYS_CHROOT */, 29 /* AUDIT_WRITE */, 31 /* SETFCAP */ };

	for (int cap = 0; cap <= 63; cap++) {
		bool kept = false;

		for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
			kept |= keep[i] == cap;
		if (!kept)
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	}
}

struct lab_child { const char *dir, *guest; int ready, listen, conn; struct lab *lab; bool root; };

static inline int lab_child(void *arg)
{
	struct lab_child *c = arg;
	static char *argv[] = { (char *)"bureau-guest", NULL }, *envp[] = { NULL };
	char b;
	int fd;

	if (read(c->ready, &b, 1) != 1)
		_exit(98);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	proc_signals_default();         /* as a computer's first process does */
	lab_root(c->dir, c->guest);
	lab_lo();
	fd = open("/run/guest", O_PATH | O_CLOEXEC);
	setsid();
	lab_must(dup2(c->listen, 50) == 50 && dup2(c->conn, 51) == 51 && dup2(fd, 52) == 52, "dup2");
	lab_must(dup2(50, 3) == 3 && dup2(51, 4) == 4, "dup2");
	close_range(5, 51, 0);
	close_range(53, ~0u, 0);
	fcntl(52, F_SETFD, FD_CLOEXEC);
	if (c->lab->nproc)
		setrlimit(RLIMIT_NPROC, &(struct rlimit){ c->lab->nproc, c->lab->nproc });
	if (c->lab->nofile)
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ c->lab->nofile, c->lab->nofile });
	lab_capabilities();
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	syscall(SYS_execveat, 52, "", argv, envp, AT_EMPTY_PATH);
	lab_must(0, "exec the guest");
	return 99;
}

static inline void lab_map(pid_t pid, bool root)
{
	char path[64], text[64];

	snprintf(path, sizeof path, "/proc/%d/setgroups", (int)pid);
	if (!root)
		lab_write(path, "deny");
	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	snprintf(text, sizeof text, root ? "0 0 65536" : "0 %u 1", (unsigned)getuid());
	lab_must(lab_write(path, text) == 0, "uid_map");
	snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
	snprintf(text, sizeof text, root ? "0 0 65536" : "0 %u 1", (unsigned)getgid());
	lab_must(lab_write(path, text) == 0, "gid_map");
}

static inline bool lab_start(struct lab *l)
{
	static char stack[65536] __attribute__((aligned(16)));
	char guest[3100];
	struct lab_child c = { 0 };
	struct err e;
	int pair[2], ready[2], d;

	*l = (struct lab){ .nproc = l->nproc, .nofile = l->nofile };
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!mkdtemp(tap_tmp(l->dir, sizeof l->dir, "guest-lab")) || pipe2(ready, O_CLOEXEC) < 0 || sock_pair(pair, &e) < 0)
		return false;
	d = open(l->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (sock_listen_at(d, "sock", 0600, 16, &l->listen, &e) < 0)
		return false;
	close(d);
	lab_guest_path(guest, sizeof guest);
	/* what is mounted over dir hides the socket inside only */
	c = (struct lab_child){ .dir = l->dir, .guest = guest, .ready = ready[0], .listen = l->listen, .conn = pair[1], .lab = l, .root = geteuid() == 0 };
	l->single = !c.root;
	l->pid = clone(lab_child, stack + sizeof stack, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | SIGCHLD, &c);
	if (l->pid < 0)
		return false;
	lab_map(l->pid, c.root);
	if (write(ready[1], "x", 1) != 1)
		return false;
	close(ready[0]);
	close(ready[1]);
	close(pair[1]);
	l->fd = pair[0];
	l->next_id = 1;
	return true;
}

static inline int lab_connect(struct lab *l)
{
	struct err e;
	int d = open(l->dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;

	sock_connect_at(d, "sock", &fd, &e);
	close(d);
	return fd;
}

/* Waits for the end of PID 1; its status, or -1 when it had to be killed. */
static inline int lab_wait_end(struct lab *l)
{
	int64_t until = clock_mono_ms() + LAB_WAIT_MS;
	int status;

	while (clock_mono_ms() < until) {
		if (waitpid(l->pid, &status, WNOHANG) == l->pid) {
			l->pid = 0;
			return status;
		}
		poll(NULL, 0, 5);
	}
	return -1;
}

static inline void lab_free(struct lab *l)
{
	for (size_t i = 0; i < LAB_STREAMS; i++)
		if (l->s[i]) {
			free(l->s[i]->text);
			free(l->s[i]->err);
			free(l->s[i]);
		}
}

static inline void lab_end(struct lab *l)
{
	char path[200];

	if (l->pid > 0) {
		kill(l->pid, SIGKILL);
		waitpid(l->pid, NULL, 0);
	}
	close(l->fd);
	close(l->listen);
	snprintf(path, sizeof path, "%s/sock", l->dir);
	unlink(path);
	rmdir(l->dir);
	lab_free(l);
}

/* ---- requests ---- */

static uint8_t lab_mem[MSG_MAX];

static inline struct lab_stream *lab_stream(struct lab *l, uint32_t id)
{
	struct lab_stream *s = l->s[id % LAB_STREAMS];

	if (s && s->id == id)
		return s;
	if (!s) {
		s = l->s[id % LAB_STREAMS] = calloc(1, sizeof *s);
		s->text = malloc(LAB_TEXT + 1);
		s->err = malloc(65536);
	} else {
		char *t = s->text, *e = s->err;

		memset(s, 0, sizeof *s);
		s->text = t;
		s->err = e;
	}
	s->id = id;
	s->fd = -1;
	s->text[0] = s->err[0] = '\0';
	return s;
}

static inline struct lab_stream *lab_begin(struct lab *l, struct msg_writer *w, uint16_t type)
{
	struct lab_stream *s = lab_stream(l, l->next_id++);

	msg_writer_init(w, lab_mem, sizeof lab_mem, type, s->id);
	return s;
}

static inline int lab_send(struct lab *l, const struct msg_writer *w)
{
	int rc;

	while ((rc = msg_send(l->fd, w)) == -EAGAIN) {
		struct pollfd p = { .fd = l->fd, .events = POLLOUT };

		if (poll(&p, 1, LAB_WAIT_MS) <= 0)
			return -ETIMEDOUT;
	}
	return rc;
}

static inline void lab_skip_entry(struct msg_reader *r, struct lab_stream *s)
{
	const char *meta[64];
	size_t at = strlen(s->names);

	snprintf(s->names + at, sizeof s->names - at, "%s\n", msg_get_str(r, GUEST_PATH));
	msg_get_u32(r), msg_get_u64(r), msg_get_u64(r), msg_get_u32(r), msg_get_u32(r);
	msg_get_str(r, 100), msg_get_str(r, 100), msg_get_str(r, GUEST_PATH);
	msg_get_strv(r, meta, 63, 8192);
}

static inline void lab_out(struct lab_stream *s, struct msg_reader *r)
{
	uint8_t kind = msg_get_u8(r);
	uint64_t at = msg_get_u64(r);
	size_t n;
	const char *p = msg_get_bytes(r, GUEST_CHUNK, &n);

	if (at != s->next && s->events)
		printf("# offset %llu instead of %llu\n", (unsigned long long)at, (unsigned long long)s->next);
	s->next = at + n;
	s->events++;
	if (kind == GUEST_STDERR) {
		if (s->nerr + n < 65536) {
			memcpy(s->err + s->nerr, p, n);
			s->nerr += n;
			s->err[s->nerr] = '\0';
		}
	} else if (s->n + n <= LAB_TEXT) {
		memcpy(s->text + s->n, p, n);
		s->n += n;
		s->text[s->n] = '\0';
	}
}

static inline void lab_event(struct lab *l, struct msg_reader *r)
{
	struct lab_stream *s = lab_stream(l, r->id);
	size_t at = strlen(s->names);
	char kind;

	switch (r->type) {
	case G_OK:
		s->answered = true;
		s->reply_len = (size_t)(r->end - r->p);
		memcpy(s->reply, r->p, s->reply_len);
		r->p = r->end;
		if (r->nfds)
			s->fd = msg_take_fd(r);
		break;
	case G_ERR:
		s->answered = s->failed = true;
		s->code = msg_get_u32(r);
		snprintf(s->msg, sizeof s->msg, "%s", msg_get_str(r, 1000));
		break;
	case G_OUT:
		lab_out(s, r);
		break;
	case G_GAP:
		s->gap += msg_get_u64(r);
		s->events = 0;
		break;
	case G_EXIT:
		s->exited = true;
		s->how = msg_get_u32(r);
		s->exit_code = msg_get_u32(r);
		msg_get_u8(r);
		break;
	case G_PROC:
		s->count++;
		r->p = r->end;
		break;
	case G_ENTRY:
		s->count++;
		lab_skip_entry(r, s);
		break;
	case G_EVENT:
		kind = "?CMDRA"[msg_get_u8(r) % 6];
		snprintf(s->names + at, sizeof s->names - at, "%c %s\n", kind, msg_get_str(r, GUEST_PATH));
		s->count++;
		if (msg_get_u8(r)) {
			char *names = strdup(s->names);

			lab_skip_entry(r, s);
			snprintf(s->names, sizeof s->names, "%s", names);
			free(names);
		}
		break;
	case G_WATCH_END:
		s->ended = true;
		s->code = msg_get_u32(r);
		snprintf(s->msg, sizeof s->msg, "%s", msg_get_str(r, 1000));
		break;
	}
}

/* One message; false at the deadline or the end. */
static inline bool lab_turn(struct lab *l, int wait_ms)
{
	static uint8_t mem[MSG_MAX];
	struct pollfd p = { .fd = l->fd, .events = POLLIN };
	int fds[MSG_FDS];
	unsigned nfds;
	struct msg_reader r;
	struct err e;
	ssize_t n;

	if (poll(&p, 1, wait_ms) <= 0)
		return false;
	n = msg_recv(l->fd, mem, sizeof mem, fds, &nfds);
	if (n <= 0 || msg_reader_init(&r, mem, (size_t)n, fds, nfds, &e) < 0) {
		l->gone = true;
		return false;
	}
	lab_event(l, &r);
	if (msg_reader_end(&r, &e) < 0)
		printf("# bad message: %s\n", e.msg);
	return true;
}

#define lab_until(l, cond) do { \
	int64_t lab_end_ms = clock_mono_ms() + LAB_WAIT_MS; \
	while (!(cond) && !(l)->gone && clock_mono_ms() < lab_end_ms && (lab_turn((l), 200) || clock_mono_ms() < lab_end_ms)) ; \
} while (0)

/* Sends and waits for the answer. */
static inline struct lab_stream *lab_call(struct lab *l, struct lab_stream *s, const struct msg_writer *w)
{
	if (w->bad || lab_send(l, w) < 0) {
		s->failed = true;
		return s;
	}
	lab_until(l, s->answered);
	return s;
}

struct lab_prog {
	const char *cmd, *args[8], *envs[4], *cwd, *user, *tag;
	uint32_t flags, window;
	uint16_t cols, rows;
	uint64_t timeout;
	int fds[3];
};

static inline size_t lab_count(const char *const *v, size_t max)
{
	size_t n = 0;

	while (n < max && v[n])
		n++;
	return n;
}

static inline struct lab_stream *lab_run(struct lab *l, const struct lab_prog *p)
{
	struct msg_writer w;
	struct lab_stream *s = lab_begin(l, &w, G_START);

	msg_put_u32(&w, p->flags);
	msg_put_str(&w, p->cmd);
	msg_put_strv(&w, p->args, lab_count(p->args, 8));
	msg_put_strv(&w, p->envs, lab_count(p->envs, 4));
	msg_put_str(&w, p->cwd);
	msg_put_str(&w, p->user);
	msg_put_str(&w, p->tag);
	msg_put_u16(&w, p->cols);
	msg_put_u16(&w, p->rows);
	msg_put_u32(&w, p->window ? p->window : UINT32_MAX);
	msg_put_u64(&w, p->timeout);
	if (p->flags & GS_FDS)
		for (int i = 0; i < 3; i++)
			msg_put_fd(&w, p->fds[i]);
	lab_call(l, s, &w);
	if (!s->failed)
		memcpy(&s->pid, s->reply, 4);
	return s;
}

/* `sh -c text` as user to its end. */
static inline struct lab_stream *lab_sh(struct lab *l, const char *user, const char *text)
{
	struct lab_stream *s = lab_run(l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", text }, .user = user });

	if (!s->failed)
		lab_until(l, s->exited);
	return s;
}

/* A request of pid, tag and then what `rest` puts. */
static inline struct lab_stream *lab_about(struct lab *l, struct msg_writer *w, uint16_t type, uint32_t pid, const char *tag)
{
	struct lab_stream *s = lab_begin(l, w, type);

	msg_put_u32(w, pid);
	msg_put_str(w, tag);
	return s;
}
#endif
