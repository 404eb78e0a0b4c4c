/* gen-seccomp -- makes src/isolate's seccomp programs at build time, so that nothing of ours needs libseccomp at run time.
 *
 * Theory of operation. Each filter is a list of system calls by name (tools/gen-seccomp.h) and a default. libseccomp
 * turns it into a binary tree of jumps. Checks of arguments are not given to libseccomp: it can't say "all but these two
 * ioctls", and it compares 64 bits where the kernel looks at 32. They are a hand-made prologue in front of the tree:
 *
 *      arch is ours?  no -> tree (which kills it)
 *      nr == ioctl?   low word of argument 1 is TIOCSTI or TIOCLINUX -> EPERM, else -> tree
 *      ...
 *
 * The prologue holds only loads, jumps and returns that the kernel's constant-action cache understands, so a call that
 * is always allowed still costs one bitmap test. Output: a C header with one array a filter. */
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

static void check_socket(struct prog *p)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg_at(0)));
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 6, 0));      /* UNIX */
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 2, 5, 0));      /* INET */
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 10, 4, 0));     /* INET6 */
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 16, 0, 2));     /* NETLINK, ROUTE only */
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg_at(2)));
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
	emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT));
}

static void check_personality(struct prog *p)
{
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, arg_at(0)));
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 0));
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 2, 0));   /* ask only */
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x0040000, 1, 0));    /* ADDR_NO_RANDOMIZE: debuggers */
	emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
}

static const struct { int nr; void (*emit)(struct prog *); } checks[] = {
	{ SYS_ioctl, check_ioctl }, { SYS_clone, check_clone }, { SYS_socket, check_socket }, { SYS_personality, check_personality },
};

/* A check falls through when it finds nothing; the jump over the later checks is one JA (its reach is 32 bits). */
static void emit_prologue(struct prog *p)
{
	struct prog body[LEN(checks)];
	size_t rest = 0;

	for (size_t k = 0; k < LEN(checks); k++) {
		body[k].n = 0;
		checks[k].emit(&body[k]);
		rest += body[k].n + 2;
	}
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
	emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
	emit(p, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)rest + 1));
	emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	for (size_t k = 0; k < LEN(checks); k++) {
		rest -= body[k].n + 2;
		emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)checks[k].nr, 0, (uint8_t)(body[k].n + 1)));
		for (size_t j = 0; j < body[k].n; j++)
			emit(p, body[k].i[j]);
		emit(p, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)rest));
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

static void add_all(scmp_filter_ctx c, uint32_t action, uint32_t standard, const char *const *names)
{
	for (; *names; names++) {
		int nr = number_of(*names);

		if (nr < 0 || action == standard)
			continue;
		if (seccomp_rule_add(c, action, nr, 0) < 0)
			die("can't add", *names);
	}
}

static void make(const struct filter *f, struct prog *p)
{
	scmp_filter_ctx c = seccomp_init(f->standard);
	FILE *tmp = tmpfile();
	struct sock_filter i;

	if (!c || !tmp || seccomp_attr_set(c, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) < 0 ||
	    seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0)
		die("libseccomp refused", f->name);
	add_all(c, SCMP_ACT_ERRNO(EPERM), f->standard, f->eperm);
	add_all(c, SCMP_ACT_ERRNO(ENOSYS), f->standard, f->enosys);
	add_all(c, SCMP_ACT_ALLOW, f->standard, f->allow);
	if (f->prologue)
		emit_prologue(p);
	if (seccomp_export_bpf(c, fileno(tmp)) < 0)
		die("can't export", f->name);
	rewind(tmp);
	while (fread(&i, sizeof i, 1, tmp) == 1)
		emit(p, i);
	fclose(tmp);
	seccomp_release(c);
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
