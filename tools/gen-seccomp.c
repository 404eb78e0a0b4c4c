/* gen-seccomp -- makes our system call filters at build time, so that nothing of ours needs libseccomp at run time.
 *
 * Theory of operation. Each filter is a list of system calls by name (tools/gen-seccomp.h) and a default; libseccomp knows the
 * numbers. The numbers of one action lie in a few dozen runs, so the program is a binary search over runs, not over calls: a
 * quarter of the length of libseccomp's own tree, and installing a filter costs what its length costs. In front of it:
 *
 *      arch is ours?  no -> killed (i386 on x86_64; x32 is the last run)
 *      nr == ioctl?   low word of argument 1 is TIOCSTI or TIOCLINUX -> EPERM, else allowed
 *      nr == socket? by family, type, protocol
 *      ...
 *
 * Checks of arguments look at 32 bits where the kernel does (libseccomp's look at 64). Only loads, jumps and returns that the
 * kernel's constant-action cache understands, so a call that is always allowed costs one bitmap test. */
#include <endian.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gen-seccomp.h"

#if defined __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "gen-seccomp: add this machine's AUDIT_ARCH"
#endif
#define MAX_PROG 2048
#define CALLS 1024              /* numbers of system calls lie below */
#define X32_BIT 0x40000000u
#define LEN(a) (sizeof(a) / sizeof *(a))

struct prog { struct sock_filter i[MAX_PROG]; size_t n; };

static void die(const char *what, const char *name)
{
	fprintf(stderr, "gen-seccomp: %s %s\n", what, name);
	exit(1);
}

static void emit(struct prog *p, struct sock_filter i)
{
	if (p->n == MAX_PROG)
		die("too long:", "program");
	p->i[p->n++] = i;
}

/* offset of the low 32 bits of argument n */
static uint32_t arg_at(unsigned n)
{
	return (uint32_t)(offsetof(struct seccomp_data, args) + n * 8 + (BYTE_ORDER == BIG_ENDIAN ? 4 : 0));
}

/* One check: "A == value" (or A & value) returns errno_; anything else goes on. */
static void emit_deny(struct prog *p, uint16_t test, uint32_t value, uint32_t errno_)
{
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, 0, 1));
	emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_));
}

static void check_ioctl(struct prog *p)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg_at(1)));
	emit_deny(p, BPF_JEQ, 0x5412, EPERM);   /* TIOCSTI: types into the terminal of whoever started us */
	emit_deny(p, BPF_JEQ, 0x541c, EPERM);   /* TIOCLINUX: the same by the console's selection */
}

static void check_clone(struct prog *p)
{
	/* NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET (NEWTIME is clone3's) */
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg_at(0)));
	emit_deny(p, BPF_JSET, 0x7e020000, EPERM);
}

static void emit_load(struct prog *p, unsigned arg, uint32_t mask)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg_at(arg)));
	if (~mask)
		emit(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
}

/* How many rules from `r` on agree with it in what has been compared so far. */
static size_t same(const struct socket_rule *r, unsigned depth)
{
	size_t n = 1;

	while (!r[n].last && r[n].family == r->family && (depth == 0 || r[n].type == r->type))
		n++;
	return n;
}

static uint32_t column(const struct socket_rule *r, unsigned depth)
{
	return depth == 0 ? r->family : depth == 1 ? r->type : r->protocol;
}

/* n rules that are equal before column `depth`: 0 family, 1 type, 2 protocol. What is compared is loaded once for all of them; ANY, the
 * last of its kind, ends them. A group that doesn't match is jumped over. */
static void emit_sockets(struct prog *p, const struct socket_rule *r, size_t n, unsigned depth)
{
	static const uint32_t masks[] = { ~0u, 0xf, ~0u };      /* type: without SOCK_NONBLOCK and SOCK_CLOEXEC, as the kernel does */

	if (depth == 3) {
		emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, r->answer ? SECCOMP_RET_ERRNO | r->answer : SECCOMP_RET_ALLOW));
		return;
	}
	if (column(r + n - 1, depth) != ANY)
		die("a group doesn't end with ANY:", "socket rules");
	if (column(r, depth) != ANY)
		emit_load(p, depth, masks[depth]);
	for (size_t i = 0, k; i < n; i += k) {
		uint32_t value = column(r + i, depth);
		struct prog body = { .n = 0 };

		k = depth == 2 ? 1 : same(r + i, depth);
		emit_sockets(&body, r + i, k, depth + 1);
		if (depth == 0 && value == INET)
			emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, INET6, 1, 0));
		if (value != ANY)
			emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, (uint8_t)body.n));
		for (size_t j = 0; j < body.n; j++)
			emit(p, body.i[j]);
	}
}

static void emit_table(struct prog *p, const struct socket_rule *r)
{
	size_t n = 0;

	while (!r[n].last)
		n++;
	emit_sockets(p, r, n, 0);
}

static void check_socket(struct prog *p)
{
	emit_table(p, computer_sockets);
}

static void check_socket_serve(struct prog *p)
{
	emit_table(p, serve_sockets);
}

static void check_socketpair(struct prog *p)
{
	emit_table(p, pairs);
}

/* TCP_ULP turns a TCP socket into another kind (SMC, kernel TLS); what a kernel without them says. */
static void check_setsockopt(struct prog *p)
{
	emit_load(p, 1, ~0u);
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 6, 0, 3));       /* TCP */
	emit_load(p, 2, ~0u);
	emit_deny(p, BPF_JEQ, 31, ENOENT);                                              /* TCP_ULP */
}

static void check_personality(struct prog *p)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg_at(0)));
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 0));
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 2, 0));   /* ask only */
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x0040000, 1, 0));    /* ADDR_NO_RANDOMIZE: debuggers */
	emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
}

static const struct { unsigned set; int nr; void (*emit)(struct prog *); } checks[] = {
	{ CHECK_BOTH, SYS_ioctl, check_ioctl }, { CHECK_COMPUTER, SYS_clone, check_clone }, { CHECK_COMPUTER, SYS_socket, check_socket },
	{ CHECK_SERVE, SYS_socket, check_socket_serve }, { CHECK_BOTH, SYS_socketpair, check_socketpair },
	{ CHECK_BOTH, SYS_setsockopt, check_setsockopt }, { CHECK_BOTH, SYS_personality, check_personality },
};

/* A check falls through when it finds nothing: then the call is allowed. */
static void emit_checks(struct prog *p, unsigned set)
{
	for (size_t k = 0; k < LEN(checks); k++) {
		struct prog body = { .n = 0 };

		if (!(checks[k].set & set))
			continue;
		checks[k].emit(&body);
		if (body.n > 254)
			die("too long:", "check");
		emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)checks[k].nr, 0, (uint8_t)(body.n + 1)));
		for (size_t j = 0; j < body.n; j++)
			emit(p, body.i[j]);
		emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	}
}

/* A name that this libseccomp or this machine doesn't know is left to the default, but for the numbers of newer calls. */
static int number_of(const char *name)
{
	int nr = seccomp_syscall_resolve_name(name);

	for (size_t k = 0; nr == __NR_SCMP_ERROR && k < LEN(newer_calls); k++)
		if (strcmp(newer_calls[k].name, name) == 0)
			return newer_calls[k].nr;
	return nr;
}

/* From `start` up to the next run's start, every number has this action. */
struct run { uint32_t start, action; };

static void set_all(uint32_t action[CALLS], uint32_t value, const char *const *names)
{
	for (; *names; names++) {
		int nr = number_of(*names);

		if (nr >= CALLS)
			die("number too high:", *names);
		if (nr >= 0)
			action[nr] = value;
	}
}

static size_t runs_of(const struct filter *f, struct run *runs)
{
	uint32_t action[CALLS];
	size_t n = 0;

	for (size_t i = 0; i < CALLS; i++)
		action[i] = f->standard;
	set_all(action, SECCOMP_RET_ALLOW, f->allow);
	set_all(action, SECCOMP_RET_ALLOW, f->also);
	set_all(action, SECCOMP_RET_ERRNO | ENOSYS, f->enosys);
	set_all(action, SECCOMP_RET_ERRNO | EPERM, f->eperm);
	for (uint32_t i = 0; i < CALLS; i++)
		if (n == 0 || runs[n - 1].action != action[i])
			runs[n++] = (struct run){ i, action[i] };
	if (runs[n - 1].action != f->standard)
		runs[n++] = (struct run){ CALLS, f->standard };
	runs[n++] = (struct run){ X32_BIT, SECCOMP_RET_KILL_PROCESS };
	return n;
}

/* "nr >= start of the upper half ? upper : lower", lower first; a jump over more than 255 takes two instructions. */
static void emit_search(struct prog *p, const struct run *runs, size_t n)
{
	struct prog lower = { .n = 0 };
	size_t half = n / 2;

	if (n == 1) {
		emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, runs->action));
		return;
	}
	emit_search(&lower, runs, half);
	if (lower.n < 256) {
		emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, runs[half].start, (uint8_t)lower.n, 0));
	} else {
		emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, runs[half].start, 0, 1));
		emit(p, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)lower.n));
	}
	for (size_t i = 0; i < lower.n; i++)
		emit(p, lower.i[i]);
	emit_search(p, runs + half, n - half);
}

static void make(const struct filter *f, struct prog *p)
{
	struct run runs[CALLS + 2];
	size_t n = runs_of(f, runs);

	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
	emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	emit_checks(p, f->checks);
	emit_search(p, runs, n);
}

int main(void)
{
	printf("/* made by tools/gen-seccomp.c; don't edit */\n#include <linux/filter.h>\n");
	for (size_t k = 0; k < LEN(filters); k++) {
		struct prog p = { .n = 0 };

		make(&filters[k], &p);
		printf("#ifdef WANT_%s\nstatic const struct sock_filter %s[%zu] = {\n", filters[k].name, filters[k].name, p.n);
		for (size_t j = 0; j < p.n; j++)
			printf("\t{ 0x%04x, %u, %u, 0x%08x },\n", p.i[j].code, p.i[j].jt, p.i[j].jf, p.i[j].k);
		printf("};\n#endif\n");
	}
	return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
