#include "cli/doctor.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"

#define ALL_NS (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
#define NOBODY 65534

long doctor_number(const char *path, long missing)
{
	AUTO_FREE char *text = NULL;
	struct err e;
	size_t n;

	if (fd_read_file(AT_FDCWD, path, 64, &text, &n, &e) < 0)
		return missing;
	return strtol(text, NULL, 10);
}

static int put(const char *path, const char *text)
{
	AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}

int doctor_enter(int flags)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (uid == 0) {
		if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
			return -errno;
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);     /* else the map files belong to root */
		uid = gid = NOBODY;
	}
	if (unshare(flags | CLONE_NEWUSER) < 0)
		return -errno;
	put("/proc/self/setgroups", "deny");
	snprintf(map, sizeof map, "0 %u 1", (unsigned)uid);
	int r = put("/proc/self/uid_map", map);

	if (r < 0)
		return r;
	snprintf(map, sizeof map, "0 %u 1", (unsigned)gid);
	return put("/proc/self/gid_map", map);
}

static void userns_reason(struct finding *f, int code)
{
	if (doctor_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) == 1)
		finding_fix(f, "AppArmor forbids it: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (and in /etc/sysctl.d), or run bureau as root");
	else if (doctor_number("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0)
		finding_fix(f, "sudo sysctl -w kernel.unprivileged_userns_clone=1 (and in /etc/sysctl.d), or run bureau as root");
	else if (doctor_number("/proc/sys/user/max_user_namespaces", 1) == 0)
		finding_fix(f, "sudo sysctl -w user.max_user_namespaces=65536 (and in /etc/sysctl.d)");
	else if (code == ENOSPC)
		finding_fix(f, "the limit is reached: sudo sysctl -w user.max_user_namespaces=65536");
	else
		finding_fix(f, "inside a container, start that with user namespaces allowed (its seccomp or LSM profile forbids them)");
}

static void check_kernel(struct finding *f)
{
	struct utsname u;
	int major = 0, minor = 0;

	uname(&u);
	major = (int)strtol(u.release, NULL, 10);
	minor = strchr(u.release, '.') ? (int)strtol(strchr(u.release, '.') + 1, NULL, 10) : 0;
	finding_set(f, major > 5 || (major == 5 && minor >= 15) ? HEALTH_OK : HEALTH_LESS, "Linux %.100s, %.40s", u.release, u.machine);
	if (f->health != HEALTH_OK)
		finding_fix(f, "5.15 or newer is what this is tested with");
}

/* The capabilities of a user namespace, used: an LSM may let it be made and then refuse everything in it. */
static void check_namespaces(struct finding *f)
{
	int r = doctor_enter(ALL_NS & ~CLONE_NEWUSER);

	if (r == 0 && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("t", "/tmp", "tmpfs", MS_NOSUID, "size=1M,nr_inodes=100") < 0))
		r = -errno;
	if (r == 0) {
		finding_set(f, HEALTH_OK, "user, mount, pid, net, ipc, uts and cgroup, for a plain user; tmpfs with limits inside");
		return;
	}
	finding_set(f, HEALTH_BAD, "a plain user can't make and use them: %s", strerror(-r));
	userns_reason(f, -r);
}

static void check_proc(struct finding *f)
{
	int status = 1, r = doctor_enter(ALL_NS & ~CLONE_NEWUSER);
	pid_t pid = r == 0 ? fork() : -1;

	if (pid == 0)
		_exit(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("p", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? errno : 0);
	if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0) {
		finding_set(f, HEALTH_OK, "a fresh /proc can be mounted in a new pid namespace");
		return;
	}
	finding_set(f, HEALTH_BAD, "a fresh /proc can't be mounted: %s", strerror(r < 0 ? -r : WIFEXITED(status) ? WEXITSTATUS(status) : EIO));
	finding_fix(f, "something is mounted over parts of /proc (a container does that): allow an unmasked /proc there, or run on the host");
}

/* 1: it works, but has no place for its own marks. */
static int try_overlay(void)
{
	static const char *const dirs[] = { "/tmp/l", "/tmp/u", "/tmp/w", "/tmp/m", "/tmp/l/d" };

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("t", "/tmp", "tmpfs", MS_NOSUID, "size=1M,nr_inodes=100") < 0)
		return -errno;
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
		if (mkdir(dirs[i], 0755) < 0)
			return -errno;
	if (mount("o", "/tmp/m", "overlay", 0, "lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w,userxattr") < 0)
		return -errno;
	AUTO_FD int fd = open("/tmp/m/x", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	return rmdir("/tmp/m/d") < 0 || mkdir("/tmp/m/d", 0755) < 0;
}

/* A plain user's overlay may not uncover what a mount below /usr covers: the folder of /usr that holds one stays as it is. */
static bool usr_mount_below(char *out, size_t size)
{
	AUTO_FREE char *text = NULL;
	char *line, *rest;
	struct err e;

	if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", 1 << 20, &text, NULL, &e) < 0)
		return false;
	for (rest = text; (line = strsep(&rest, "\n"));) {
		char *at = line;

		for (int word = 1; word < 5 && at; word++)      /* the place is the fifth word */
			strsep(&at, " ");
		if (!at || !str_starts(at, "/usr/"))
			continue;
		at[strcspn(at, " ")] = '\0';
		str_copy(out, size, at);
		return true;
	}
	return false;
}

static void check_overlay(struct finding *f)
{
	bool root = geteuid() == 0;
	int r = doctor_enter(CLONE_NEWNS);
	char below[128];

	if (r == 0)
		r = try_overlay();
	if (r >= 0 && !root && usr_mount_below(below, sizeof below)) {
		finding_set(f, HEALTH_LESS, "works, but %s is a mount of its own: that folder of /usr stays read-only inside", below);
		finding_fix(f, "run bureau as root, or unmount it");
		return;
	}
	if (r == 1) {
		finding_set(f, HEALTH_NOTE, "works, but a folder of the template that was removed inside can't be made again under its name");
		finding_fix(f, "Linux 6.6 or newer can: its tmpfs keeps user.* attributes");
		return;
	}
	if (r == 0) {
		finding_set(f, HEALTH_OK, "works in a user namespace, on a tmpfs");
		return;
	}
	finding_set(f, HEALTH_LESS, "can't be used in a user namespace: %s; /usr stays read-only inside", strerror(-r));
	finding_fix(f, r == -ENODEV ? "sudo modprobe overlay" : "Linux 5.11 or newer allows it");
}

/* A user namespace to take an id map from: a child that waits in it. */
static int helper_userns(pid_t *ret_pid)
{
	char path[64], map[64];
	int ready[2];
	char ch;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	pid_t pid = fork();

	if (pid == 0) {
		ch = unshare(CLONE_NEWUSER) < 0 ? 'n' : 'y';
		if (write(ready[1], &ch, 1) == 1)
			pause();
		_exit(0);
	}
	close(ready[1]);
	if (pid < 0 || read(ready[0], &ch, 1) != 1 || ch != 'y') {
		close(ready[0]);
		return -EPERM;
	}
	close(ready[0]);
	*ret_pid = pid;
	snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
	snprintf(map, sizeof map, "0 65536 65536");
	int r = put(path, map);

	snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
	if (r == 0)
		r = put(path, map);
	snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
	return r < 0 ? r : open(path, O_RDONLY | O_CLOEXEC);
}

static int try_idmap(const char *path, int userns)
{
	AUTO_FD int tree = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns };

	if (userns < 0)
		return -userns;
	return tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0 ? errno : 0;
}

static void check_idmap(struct finding *f)
{
	pid_t pid = 0;

	if (geteuid() != 0) {
		finding_set(f, HEALTH_NOTE, "only root may use them; as a plain user newuidmap takes their place");
		return;
	}
	AUTO_FD int userns = helper_userns(&pid);
	int code = try_idmap("/usr", userns), tmpfs = try_idmap("/dev/shm", userns);

	if (pid)
		kill(pid, SIGKILL);
	if (!code && tmpfs) {
		finding_set(f, HEALTH_NOTE, "work on the file system of /usr, not on tmpfs: a folder there that you --mount belongs to nobody inside");
		finding_fix(f, "Linux 6.3 or newer can; or mount a folder that is on a disk");
		return;
	}
	if (!code) {
		finding_set(f, HEALTH_OK, "the file systems of /usr and of /dev/shm can be mounted with other owners");
		return;
	}
	finding_set(f, HEALTH_LESS, "not on the file system of /usr: %s; files there can't be changed inside", strerror(code));
	finding_fix(f, "ext4, xfs and btrfs can (Linux 5.12 to 5.15), overlayfs since 5.19");
}

static bool in_path(const char *name)
{
	static const char *const dirs[] = { "/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin" };
	char path[128];

	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
		snprintf(path, sizeof path, "%s/%s", dirs[i], name);
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/* The caller's name in /etc/passwd; "" when it isn't there. USER may be somebody else's, under su. */
static void user_name(char *out, size_t size)
{
	AUTO_FREE char *text = NULL;
	char want[24], *rest, *line;
	struct err e;

	*out = '\0';
	snprintf(want, sizeof want, "%u", (unsigned)getuid());
	if (fd_read_file(AT_FDCWD, "/etc/passwd", 1 << 20, &text, NULL, &e) < 0)
		return;
	for (rest = text; (line = strsep(&rest, "\n"));) {
		const char *name = strsep(&line, ":");

		strsep(&line, ":");
		const char *id = line ? strsep(&line, ":") : NULL;

		if (id && str_eq(id, want)) {
			str_copy(out, size, name);
			return;
		}
	}
}

/* Whether a line of file begins with "name:" or "number:". */
static bool grants(const char *file, const char *name)
{
	AUTO_FREE char *text = NULL;
	char number[16], *rest, *line;
	struct err e;

	snprintf(number, sizeof number, "%u", (unsigned)getuid());
	if (fd_read_file(AT_FDCWD, file, 1 << 20, &text, NULL, &e) < 0)
		return false;
	for (rest = text; (line = strsep(&rest, "\n"));) {
		const char *who = strsep(&line, ":");

		if (line && (str_eq(who, number) || (*name && str_eq(who, name))))
			return true;
	}
	return false;
}

static void check_subuid(struct finding *f)
{
	char user[64], command[160];

	user_name(user, sizeof user);

	if (geteuid() == 0) {
		finding_set(f, HEALTH_OK, "root has all ids; plain users %s", in_path("newuidmap") ? "may have newuidmap" : "won't have newuidmap (package uidmap)");
		return;
	}
	if (!in_path("newuidmap") || !in_path("newgidmap")) {
		finding_set(f, HEALTH_LESS, "newuidmap isn't installed: one user id inside, so root and user are the same there");
		finding_fix(f, "sudo apt install uidmap");
		return;
	}
	if (!grants("/etc/subuid", user) || !grants("/etc/subgid", user)) {
		finding_set(f, HEALTH_LESS, "/etc/subuid and /etc/subgid grant you no ids: one user id inside, so root and user are the same there");
		cli_subid_command(*user ? user : "$USER", command, sizeof command);
		finding_fix(f, "%s", command);
		return;
	}
	finding_set(f, HEALTH_OK, "newuidmap is there and /etc/subuid grants ids");
}

static void check_nft(struct finding *f)
{
	int r = doctor_enter(CLONE_NEWNET);
	AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP };

	if (r == 0 && ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
		r = -errno;
	if (r == 0)
		r = doctor_nft_redirect();
	if (r == 0) {
		finding_set(f, HEALTH_OK, "connections can be redirected to the door in a namespace of a plain user");
		return;
	}
	finding_set(f, HEALTH_LESS, "no nftables redirect in a network namespace: %s; --net all won't work", strerror(-r));
	finding_fix(f, "sudo modprobe nf_tables nft_chain_nat nft_redir nf_conntrack (a kernel with CONFIG_NFT_REDIR)");
}

static void check_ipv6(struct finding *f)
{
	AUTO_FD int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		finding_set(f, HEALTH_NOTE, "not on this host: IPv4 only inside too");
	else
		finding_set(f, HEALTH_OK, "there");
}

static void check_seccomp(struct finding *f)
{
	struct sock_filter prog[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { .len = sizeof prog / sizeof *prog, .filter = prog };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) < 0)
		finding_set(f, HEALTH_BAD, "a filter can't be installed: %s", strerror(errno));
	else if (syscall(SYS_getppid) != -1 || errno != EXDEV)
		finding_set(f, HEALTH_BAD, "a filter was installed and doesn't act");
	else
		finding_set(f, HEALTH_OK, "a filter can be installed, and acts");
	if (f->health != HEALTH_OK)
		finding_fix(f, "a kernel with CONFIG_SECCOMP_FILTER; under gVisor and the like: run on the host");
}

static void check_landlock(struct finding *f)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);

	if (abi > 0) {
		finding_set(f, HEALTH_OK, "version %ld", abi);
		return;
	}
	finding_set(f, HEALTH_NOTE, "not there: a second wall for guards, not needed by sandboxes");
	finding_fix(f, "start the kernel with landlock in its lsm= list");
}

/* The system calls that the keeper starts a computer with; EINVAL or EBADF means that they are there. */
static void check_calls(struct finding *f)
{
	static const struct { const char *name; long nr; } calls[] = {
		{ "clone3", SYS_clone3 }, { "pidfd_open", SYS_pidfd_open }, { "close_range", SYS_close_range }, { "openat2", SYS_openat2 },
		{ "open_tree", SYS_open_tree }, { "move_mount", SYS_move_mount }, { "fsopen", SYS_fsopen }, { "mount_setattr", SYS_mount_setattr },
	};
	char missing[200] = "";

	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		if (syscall(calls[i].nr, -1, -1, -1, -1, -1) < 0 && errno == ENOSYS) {
			size_t n = strlen(missing);

			snprintf(missing + n, sizeof missing - n, " %s", calls[i].name);
		}
	}
	if (!missing[0]) {
		finding_set(f, HEALTH_OK, "clone3, pidfds, close_range, openat2 and the mount calls are there");
		return;
	}
	finding_set(f, HEALTH_BAD, "missing:%s", missing);
	finding_fix(f, "Linux 5.12 or newer; inside a container: a newer seccomp profile");
}

static void check_devices(struct finding *f)
{
	int r = doctor_enter(CLONE_NEWNS);

	if (r == 0 && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("t", "/tmp", "tmpfs", 0, "size=1M") < 0 || mkdir("/tmp/p", 0755) < 0 ||
		       mount("d", "/tmp/p", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620") < 0))
		r = -errno;
	AUTO_FD int fd = r == 0 ? open("/tmp/p/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;

	if (r == 0 && fd < 0)
		r = -errno;
	if (r == 0)
		finding_set(f, HEALTH_OK, "terminals of their own can be made inside");
	else
		finding_set(f, HEALTH_LESS, "no terminals inside: %s", strerror(-r));
}

const struct check doctor_checks[] = {
	{ "kernel", false, check_kernel },
	{ "programs", true, doctor_programs },
	{ "namespaces", true, check_namespaces },
	{ "proc", true, check_proc },
	{ "system calls", true, check_calls },
	{ "seccomp", true, check_seccomp },
	{ "overlay", false, check_overlay },
	{ "idmapped mounts", false, check_idmap },
	{ "user ids", false, check_subuid },
	{ "limits", false, doctor_cgroups },
	{ "network", false, check_nft },
	{ "IPv6", false, check_ipv6 },
	{ "terminals", false, check_devices },
	{ "landlock", false, check_landlock },
	{ "memory", false, doctor_memory },
	{ "kernel limits", false, doctor_limits },
};
const size_t doctor_nchecks = sizeof doctor_checks / sizeof *doctor_checks;
