/* What each of our filters says: a computer's and the supervisor's about which sockets may be made, what is refused and how, and that programs
 * can be started below the supervisor's; the keeper's, the daemon's and the door's about what each has no use for. They are installed in children. */
#include "core/proc.h"
#define WANT_seccomp_computer
#define WANT_seccomp_serve
#define WANT_seccomp_keeper
#define WANT_seccomp_daemon
#define WANT_seccomp_door
#include "core/filters.h"
#include "tap.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct filter { const char *name; const struct sock_filter *prog; unsigned short len; };
static const struct filter computer = { "computer", seccomp_computer, sizeof seccomp_computer / sizeof *seccomp_computer };
static const struct filter serve = { "serve", seccomp_serve, sizeof seccomp_serve / sizeof *seccomp_serve };
static const struct filter keeper = { "keeper", seccomp_keeper, sizeof seccomp_keeper / sizeof *seccomp_keeper };
static const struct filter daemon_filter = { "daemon", seccomp_daemon, sizeof seccomp_daemon / sizeof *seccomp_daemon };
static const struct filter door = { "door", seccomp_door, sizeof seccomp_door / sizeof *seccomp_door };

/* The wait status of f in a child below the filter. */
static int below(const struct filter *f, int (*run)(const struct filter *))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (proc_seccomp(f->prog, f->len, NULL) < 0)
			_exit(99);
		_exit(run(f));
	}
	return pid < 0 || waitpid(pid, &status, 0) < 0 ? -1 : status;
}

static int answer(long r)
{
	if (r >= 0)
		close((int)r);
	return r < 0 ? errno : 0;
}

/* ---- sockets ---- */

enum { ANY = -1, MPTCP = 262, SCTP = 132, UDPLITE = 136, SMC = 256, L2TP = 115, DCCP = 33 };
/* Every triple that can be made; all others, of any family, must not be. */
static const struct { int family, type, protocol; } made[] = {
	{ AF_UNIX, SOCK_STREAM, ANY }, { AF_UNIX, SOCK_DGRAM, ANY }, { AF_UNIX, SOCK_SEQPACKET, ANY }, { AF_UNIX, SOCK_RAW, ANY },
	{ AF_INET, SOCK_STREAM, 0 }, { AF_INET, SOCK_STREAM, 6 }, { AF_INET, SOCK_DGRAM, 0 }, { AF_INET, SOCK_DGRAM, 17 },
	{ AF_INET6, SOCK_STREAM, 0 }, { AF_INET6, SOCK_STREAM, 6 }, { AF_INET6, SOCK_DGRAM, 0 }, { AF_INET6, SOCK_DGRAM, 17 },
	{ AF_NETLINK, SOCK_RAW, 0 }, { AF_NETLINK, SOCK_DGRAM, 0 },
};
static const struct { int family, type, protocol, code; } refused[] = {
	{ AF_INET, SOCK_STREAM, MPTCP, EPROTONOSUPPORT }, { AF_INET6, SOCK_STREAM, MPTCP, EPROTONOSUPPORT }, { AF_INET, SOCK_STREAM, SCTP, EPROTONOSUPPORT },
	{ AF_INET, SOCK_STREAM, SMC, EPROTONOSUPPORT }, { AF_INET, SOCK_DGRAM, UDPLITE, EPROTONOSUPPORT }, { AF_INET6, SOCK_DGRAM, UDPLITE, EPROTONOSUPPORT },
	{ AF_INET, SOCK_DGRAM, L2TP, EPROTONOSUPPORT }, { AF_INET, SOCK_DGRAM, 1, EACCES }, { AF_INET6, SOCK_DGRAM, 58, EACCES },
	{ AF_INET, SOCK_RAW, 1, EPERM }, { AF_INET, SOCK_RAW, 255, EPERM }, { AF_INET6, SOCK_RAW, 58, EPERM }, { AF_INET, SOCK_SEQPACKET, SCTP, ESOCKTNOSUPPORT },
	{ AF_INET, 6, DCCP, ESOCKTNOSUPPORT }, { AF_INET, 10, 0, ESOCKTNOSUPPORT }, { AF_NETLINK, SOCK_RAW, 9, EPROTONOSUPPORT },
	{ AF_NETLINK, SOCK_DGRAM, 15, EPROTONOSUPPORT }, { AF_NETLINK, SOCK_SEQPACKET, 0, EPROTONOSUPPORT }, { AF_PACKET, SOCK_RAW, 0x300, EAFNOSUPPORT },
	{ 40, SOCK_STREAM, 0, EAFNOSUPPORT }, { 38, SOCK_SEQPACKET, 0, EAFNOSUPPORT }, { 44, SOCK_RAW, 0, EAFNOSUPPORT }, { 30, SOCK_STREAM, 0, EAFNOSUPPORT },
	{ 21, SOCK_SEQPACKET, 0, EAFNOSUPPORT }, { 31, SOCK_RAW, 1, EAFNOSUPPORT }, { 29, SOCK_RAW, 1, EAFNOSUPPORT }, { 43, SOCK_STREAM, 0, EAFNOSUPPORT },
	{ 45, SOCK_DGRAM, 1, EAFNOSUPPORT }, { AF_UNSPEC, SOCK_STREAM, 0, EAFNOSUPPORT }, { -1, SOCK_STREAM, 0, EAFNOSUPPORT },
};
static const int protocols[] = { 0, 1, 2, 4, 6, 8, 9, 12, 15, 16, 17, 21, 33, 41, 46, 47, 58, 89, 115, 132, 136, 137, 255, 256, 262, 300, 0x300, -1 };

static int is_made(const struct filter *f, int family, int type, int protocol)
{
	for (size_t i = 0; i < sizeof made / sizeof *made; i++)
		if (made[i].family == family && made[i].type == type && (made[i].protocol == ANY || made[i].protocol == protocol))
			return 1;
	return f == &serve && family == AF_NETLINK && type == SOCK_RAW && protocol == 12;
}

static int other_sockets(const struct filter *f)
{
	int wrong = 0;

	for (int family = -1; family < 64; family++)
		for (int type = 0; type < 16; type++)
			for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
				static const int flags[] = { 0, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC };

				for (size_t k = 0; k < 3; k++)
					wrong += answer(syscall(SYS_socket, family, type | flags[k], protocols[i])) == 0 && !is_made(f, family, type, protocols[i]);
			}
	return wrong > 90 ? 90 : wrong;
}

static int good_sockets(const struct filter *f)
{
	for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
		int protocol = made[i].protocol == ANY ? 0 : made[i].protocol;
		int code = answer(syscall(SYS_socket, made[i].family | (int64_t)1 << 32, made[i].type | SOCK_CLOEXEC, protocol));

		if (code != 0 && !(code == EAFNOSUPPORT && made[i].family == AF_INET6))
			return 1 + (int)i;
	}
	return 0;
}

static int refused_sockets(const struct filter *f)
{
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (answer(syscall(SYS_socket, refused[i].family, refused[i].type | SOCK_CLOEXEC, refused[i].protocol)) != refused[i].code)
			return 1 + (int)i;
	return 0;
}

static int pairs(const struct filter *f)
{
	int p[2];

	for (int family = 0; family < 64; family++)
		for (int type = 1; type < 6; type++) {
			int code = socketpair(family, type, 0, p) == 0 ? 0 : errno;

			if (family == AF_UNIX ? type != 4 && code != 0 && type != SOCK_RAW : code != (family == AF_INET || family == AF_INET6 ? EOPNOTSUPP : EAFNOSUPPORT))
				return family + 1;
			if (code == 0)
				close(p[0]), close(p[1]);
		}
	return 0;
}

static int other_kind(const struct filter *f)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (setsockopt(fd, 6, 31, "smc", 4) == 0 || errno != ENOENT)
		return 1;
	if (setsockopt(fd, 6, 31, "tls", 4) == 0 || errno != ENOENT)
		return 2;
	return setsockopt(fd, 6, 1, &one, sizeof one) == 0 && setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0 ? 0 : 3;
}

/* ---- other ways in ---- */

#ifdef __x86_64__
/* int 0x80: the 32-bit kernel entry, with up to three arguments. */
static long i386_call(int nr, long a, long b, long c)
{
	long r;

	__asm__ volatile ("int $0x80" : "=a"(r) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
	return r;
}

static int i386_socket(const struct filter *f) { return i386_call(359, AF_INET, SOCK_STREAM, MPTCP) < 0; }
static int i386_socketcall(const struct filter *f) { return i386_call(102, 1, 0, 0) < 0; }
static int x32_socket(const struct filter *f) { return syscall(0x40000000 + SYS_socket, AF_INET, SOCK_STREAM, MPTCP) < 0; }
static int x32_old(const struct filter *f) { return syscall(0x40000000 + 512, 0, 0, 0) < 0; }

static void test_entries(const struct filter *f)
{
	static const struct { const char *name; int (*run)(const struct filter *); } t[] = {
		{ "socket by the 32-bit entry", i386_socket }, { "socketcall by the 32-bit entry", i386_socketcall }, { "socket of x32", x32_socket }, { "a call of x32 alone", x32_old },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		int status = below(f, t[i].run);

		ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "%s: %s: killed", f->name, t[i].name);
	}
}
#else
static void test_entries(const struct filter *f) { skip("no other entry known on this machine"); }
#endif

static int uring(const struct filter *f)
{
	char params[120] = { 0 };

	return syscall(SYS_io_uring_setup, 8, params) < 0 && errno == EPERM && syscall(SYS_io_uring_enter, 0, 0, 0, 0, 0) < 0 && errno == EPERM &&
		syscall(SYS_io_uring_register, 0, 0, 0, 0) < 0 && errno == EPERM ? 0 : 1;
}

/* ---- the supervisor's ---- */

static int dangerous(const struct filter *f)
{
	static const int calls[] = { SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_open_by_handle_at, SYS_kexec_load,
		SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_swapon, SYS_acct, SYS_quotactl, SYS_syslog, SYS_settimeofday, SYS_fanotify_init };

	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (syscall(calls[i], -1, -1, -1, -1, -1) != -1 || errno != EPERM)
			return 1 + (int)i;
	return syscall(999, 0) == -1 && errno == ENOSYS ? 0 : 90;
}

static int starts(const struct filter *f)
{
	static const char *const argv[] = { "true", NULL };
	const struct proc_spec s = { .path = "/bin/true", .argv = argv, .new_session = 1 };
	pid_t pid;
	int status;

	return proc_spawn(&s, &pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}

static int typing(const struct filter *f)
{
	return ioctl(0, 0x5412, "x") == -1 && errno == EPERM ? 0 : 1;
}

/* A computer's filter on top of the supervisor's says what it says alone. */
static int stacked(const struct filter *f)
{
	if (proc_seccomp(computer.prog, computer.len, NULL) < 0)
		return 91;
	if (syscall(SYS_unshare, CLONE_NEWNS) == 0 || errno != EPERM || syscall(SYS_mount, 0, 0, 0, 0, 0) == 0 || errno != EPERM)
		return 92;
	if (syscall(SYS_clone3, NULL, 0) == 0 || errno != ENOSYS || answer(syscall(SYS_socket, AF_NETLINK, SOCK_RAW, 12)) != EPROTONOSUPPORT)
		return 93;
	return good_sockets(f) || refused_sockets(f) || starts(f);
}

/* ---- the keeper's, the daemon's and the door's ---- */

/* How many of the calls are answered otherwise than by the filter: with arguments that no kernel takes, EPERM is nobody else's. */
static int not_refused(const int *calls, size_t n)
{
	int wrong = 0;

	for (size_t i = 0; i < n; i++)
		wrong += syscall(calls[i], -1, -1, -1, -1, -1) != -1 || errno != EPERM;
	return wrong;
}

static int no_namespaces(const struct filter *f)
{
	static const int calls[] = { SYS_mount, SYS_umount2, SYS_pivot_root, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_open_tree, SYS_move_mount, SYS_mount_setattr,
		SYS_setns, SYS_unshare, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_chroot, SYS_mknodat };

	return not_refused(calls, sizeof calls / sizeof *calls);
}

static int no_programs(const struct filter *f)
{
	static const int calls[] = { SYS_execve, SYS_execveat, SYS_mkdirat, SYS_renameat2, SYS_unlinkat, SYS_linkat, SYS_symlinkat, SYS_truncate, SYS_fchmodat, SYS_fchownat,
		SYS_setuid, SYS_setgid, SYS_setresuid, SYS_setresgid, SYS_setgroups };

	return not_refused(calls, sizeof calls / sizeof *calls);
}

/* What the keeper is there for is left to it: the kernel refuses these, the filter would say EPERM. */
static int namespaces(const struct filter *f)
{
	if (syscall(SYS_clone3, NULL, 0) == 0 || errno == EPERM || errno == ENOSYS)
		return 1;
	if (syscall(SYS_setns, -1, 0) == 0 || errno != EBADF)
		return 2;
	return syscall(SYS_unshare, 1) == 0 || errno == EPERM || starts(f) ? 3 : 0;
}

static int sockets_alone(const struct filter *f)
{
	return answer(syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) || answer(syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

static void test_own(const struct filter *f)
{
	ok(below(f, dangerous) == 0, "%s: what has been a way out is refused, the unknown unknown", f->name);
	ok(below(f, uring) == 0, "%s: no io_uring", f->name);
	ok(below(f, sockets_alone) == 0, "%s: its sockets can be made", f->name);
	test_entries(f);
}

static void test_both(const struct filter *f)
{
	ok(below(f, good_sockets) == 0, "%s: the sockets that programs use can be made", f->name);
	ok(below(f, refused_sockets) == 0, "%s: MPTCP, UDPLITE, SCTP and the rest say what a kernel without them says", f->name);
	ok(below(f, other_sockets) == 0, "%s: none of any other family, type or protocol", f->name);
	ok(below(f, pairs) == 0, "%s: pairs of Unix sockets only", f->name);
	ok(below(f, other_kind) == 0, "%s: no TCP socket becomes one of another kind", f->name);
	ok(below(f, uring) == 0, "%s: no io_uring, which makes sockets unseen", f->name);
	ok(below(f, dangerous) == 0, "%s: what has been a way out is refused, the unknown unknown", f->name);
	ok(below(f, starts) == 0, "%s: programs can be started", f->name);
	ok(below(f, typing) == 0, "%s: nothing is typed into a terminal", f->name);
	test_entries(f);
}

int main(void)
{
	test_both(&computer);
	test_both(&serve);
	ok(below(&serve, stacked) == 0, "a computer's filter above the supervisor's");
	test_own(&keeper);
	ok(below(&keeper, namespaces) == 0, "keeper: namespaces and programs are its work");
	test_own(&daemon_filter);
	ok(below(&daemon_filter, no_namespaces) == 0, "daemon: no mounts, no namespaces, no other process's memory");
	test_own(&door);
	ok(below(&door, no_namespaces) == 0, "door: no mounts, no namespaces, no other process's memory");
	ok(below(&door, no_programs) == 0, "door: no programs, no files changed, no other user");
	return done_testing();
}
