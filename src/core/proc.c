#include "core/proc.h"
#include "core/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int proc_pidfd_open(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

int proc_pidfd_signal(int pidfd, int signo)
{
	return syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0) < 0 ? -errno : 0;
}

int proc_pidfd_reap(int pidfd, int *ret_status)
{
	siginfo_t si = { .si_pid = 0 };
	int status;

	while (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &si, WEXITED | WNOHANG) < 0)
		if (errno != EINTR)
			return -errno;
	if (si.si_pid == 0)
		return 0;
	status = si.si_code == CLD_EXITED ? (si.si_status & 0xff) << 8 : si.si_status & 0x7f;
	if (si.si_code == CLD_DUMPED)
		status |= 0x80;
	if (ret_status)
		*ret_status = status;
	return 1;
}

int proc_start_time(pid_t pid, uint64_t *ret_ticks)
{
	char path[40], text[2048], *at, *end;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	n = fd_read_text(AT_FDCWD, path, text, sizeof text);
	if (n < 0)
		return n == -ENOENT ? -ESRCH : (int)n;
	/* field 2 is the program's name in brackets and may hold anything, brackets too */
	at = strrchr(text, ')');
	if (!at)
		return -EINVAL;
	at++;
	for (int field = 3; field <= 22; field++) {
		at = strchr(at, ' ');
		if (!at)
			return -EINVAL;
		at++;
	}
	errno = 0;
	*ret_ticks = strtoull(at, &end, 10);
	return errno || end == at ? -EINVAL : 0;
}

int proc_harden(struct err *e)
{
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, "make this process undumpable");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, "give up new privileges");
	return 0;
}

int proc_seccomp(const struct sock_filter *prog, unsigned short len, struct err *e)
{
	struct sock_fprog p = { .len = len, .filter = (struct sock_filter *)(uintptr_t)prog };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, "give up new privileges");
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p) < 0)
		return err_sys(e, "install the system call filter");
	return 0;
}

static uint64_t caps_mask(const uint8_t *caps, size_t n)
{
	uint64_t m = 0;

	for (size_t i = 0; i < n; i++)
		m |= UINT64_C(1) << caps[i];
	return m;
}

int proc_bound_caps(const uint8_t *caps, size_t n, struct err *e)
{
	uint64_t keep = caps_mask(caps, n);

	for (int c = 0; c < 64; c++) {
		if (keep >> c & 1)
			continue;
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL)     /* past this kernel's last */
			return 0;
		return err_sys(e, "drop capability %d", c);
	}
	return 0;
}

int proc_keep_caps(const uint8_t *caps, size_t n, struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];
	uint64_t have;

	if (syscall(SYS_capget, &head, d) < 0)
		return err_sys(e, "read our capabilities");
	have = d[0].permitted | (uint64_t)d[1].permitted << 32;
	if ((have >> CAP_SETPCAP & 1) && proc_bound_caps(caps, n, e) < 0)    /* root of a container may lack it: then only no_new_privs is in the way */
		return -e->code;
	have &= caps_mask(caps, n);
	for (int i = 0; i < 2; i++) {
		d[i].permitted = d[i].effective = (uint32_t)(have >> 32 * i);
		d[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &head, d) < 0)
		return err_sys(e, "drop capabilities");
	return 0;
}

void proc_title(const char *name)
{
	prctl(PR_SET_NAME, name, 0, 0, 0);
}

int proc_sibling(const char *program, char *out, size_t size, struct err *e)
{
	static const char *const places[][2] = { { "", NULL }, { "/../libexec/bureau", NULL }, { "", BUREAU_LIBEXEC } };
	char self[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n < 0)
		return err_sys(e, "find this program's own file");
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return err_set(e, ENOENT, "find this program's own file: '%s'", self);
	*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		int k = snprintf(out, size, "%s%s/%s", places[i][1] ? places[i][1] : self, places[i][0], program);

		if (k < 0 || (size_t)k >= size)
			return err_set(e, ENAMETOOLONG, "find '%s': its path is too long", program);
		if (access(out, X_OK) == 0)
			return 0;
	}
	return err_set(e, ENOENT, "find '%s': it is neither beside this program nor in %s", program, BUREAU_LIBEXEC);
}

int proc_ask(const char *program, const char *const *argv, struct err *e)
{
	char path[4096], text[sizeof e->msg + sizeof e->hint], *hint, *rest;
	int p[2], fds[3] = { -1, -1, 2 }, status = -1;
	struct proc_spec spec = { .path = path, .argv = argv, .fds = fds, .nfds = 3 };
	size_t n = 0;
	ssize_t k;
	pid_t pid;

	if (proc_sibling(program, path, sizeof path, e) < 0)
		return -e->code;
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, "ask '%s'", program);
	fds[1] = p[1];
	k = proc_spawn(&spec, &pid, NULL, e);
	close(p[1]);
	if (k < 0) {
		close(p[0]);
		return (int)k;
	}
	while ((k = read(p[0], text + n, sizeof text - 1 - n)) > 0 || (k < 0 && errno == EINTR))
		n += k > 0 ? (size_t)k : 0;
	close(p[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0)
		return 0;
	text[n] = '\0';
	hint = text;
	strsep(&hint, "\n");
	rest = hint;
	strsep(&rest, "\n");
	err_set(e, EINVAL, "%s", *text ? text : "it ended without a word");
	return err_hint(e, "%s", hint ? hint : "");
}
