/* subid -- a plain user's 65,536 ids: a user namespace mapped by newuidmap and newgidmap, entered by the keeper itself.
 *
 * Inside it the keeper may do what root may, with these ids. The caller is id 1000 there, so that a folder of the caller's
 * belongs to `user` in a computer; the granted range fills 0-999 and 1001-65535. Each computer still gets a namespace of its
 * own below this one. Without the two programs or without a grant the caller's one id is all there is (IDS_ONE).
 *
 * The two programs are set-id, which no_new_privs forbids. A server has it from its start on: its supervisor has the namespace made once,
 * by a keeper that does nothing else, keeps it by descriptor and gives it to every keeper (isolate_ids(), src/daemon/ids.c). */
#include "isolate/ns_priv.h"
#include "isolate/host.h"
#include "core/clock.h"
#include "core/proc.h"
#include "core/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define FILE_MAX (1 << 20)
#define HELPER_MS 5000

/* The name of uid in /etc/passwd; "" when it isn't there. No NSS in a static program. */
static void name_of(uid_t uid, char *out, size_t size)
{
	AUTO_FREE char *text = NULL;
	struct err e;
	char want[24], *line, *rest;

	*out = 0;
	snprintf(want, sizeof want, ":%u:", (unsigned)uid);
	if (fd_read_file(AT_FDCWD, "/etc/passwd", FILE_MAX, &text, NULL, &e) < 0)
		return;
	for (rest = text; (line = strsep(&rest, "\n"));) {
		char *at = strchr(line, ':'), *id = at ? strchr(at + 1, ':') : NULL;

		if (!id || strncmp(id, want, strlen(want)) != 0)
			continue;
		*at = 0;
		str_copy(out, size, line);
		return;
	}
}

/* The first range of at least BOX_IDS - 1 ids that file grants to name or to the number. */
static int granted(const char *file, const char *name, uid_t uid, uint64_t *ret_first)
{
	AUTO_FREE char *text = NULL;
	struct err e;
	char number[16], *line, *rest;
	int r = fd_read_file(AT_FDCWD, file, FILE_MAX, &text, NULL, &e);

	if (r < 0)
		return r;
	snprintf(number, sizeof number, "%u", (unsigned)uid);
	for (rest = text; (line = strsep(&rest, "\n"));) {
		char *first = strchr(line, ':'), *count = first ? strchr(first + 1, ':') : NULL;
		uint64_t f, n;

		if (!count)
			continue;
		*first = *count = 0;
		if ((!str_eq(line, number) && !(*name && str_eq(line, name))) || str_u64(first + 1, UINT32_MAX, &f) < 0 ||
		    str_u64(count + 1, UINT32_MAX, &n) < 0 || n < BOX_IDS - 1)
			continue;
		*ret_first = f;
		return 0;
	}
	return -ENOENT;
}

static void spawn_map(const char *program, pid_t pid, uint64_t first, unsigned own, int *ret_pidfd)
{
	char path[32], p[12], f[16], o[12], g[16];
	const char *argv[] = { program, p, "0", f, "1000", "1000", o, "1", "1001", g, "64535", NULL };
	struct proc_spec s = { .path = path, .argv = argv };

	snprintf(path, sizeof path, "/usr/bin/%s", program);
	snprintf(p, sizeof p, "%d", (int)pid);
	snprintf(f, sizeof f, "%llu", (unsigned long long)first);
	snprintf(o, sizeof o, "%u", own);
	snprintf(g, sizeof g, "%llu", (unsigned long long)first + 1000);
	proc_spawn(&s, NULL, ret_pidfd, NULL);
}

static bool ended_well(int pidfd)
{
	struct pollfd p = { pidfd, POLLIN, 0 };
	int status = 1;

	if (pidfd < 0)
		return false;
	if (poll(&p, 1, HELPER_MS) <= 0)
		proc_pidfd_signal(pidfd, SIGKILL);
	poll(&p, 1, HELPER_MS);
	return proc_pidfd_reap(pidfd, &status) == 1 && status == 0;
}

static int map_and_open(pid_t pid, uint64_t uids, uint64_t gids)
{
	AUTO_FD int a = -1, b = -1;
	char path[40];
	bool good;

	/* both at once: each is a program start of its own */
	spawn_map("newuidmap", pid, uids, getuid(), &a);
	spawn_map("newgidmap", pid, gids, getgid(), &b);
	good = ended_well(a);
	good = ended_well(b) && good;
	snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
	return good ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

/* Opens the user namespace of an earlier keeper's computer. One that was being started when that keeper died is shut to us from its
 * change of id to its exec: its memory is still counted as the keeper's, and not dumpable. It soon gets there or ends, and to go on
 * without it could mean a namespace from which it can't be ended. */
static int open_computer(pid_t computer)
{
	AUTO_FD int pidfd = proc_pidfd_open(computer);
	struct pollfd p = { pidfd, POLLIN, 0 };
	int64_t until = clock_mono_ms() + HELPER_MS;
	char path[40];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/ns/user", (int)computer);
	/* its end comes as an event, its exec doesn't */
	while ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 && errno == EACCES && pidfd >= 0 && clock_mono_ms() < until && poll(&p, 1, 2) == 0)
		;
	return fd;
}

/* The namespace that a keeper before us made: the parent of a living computer's. Only from there can its computers be ended. */
static bool enter_earlier(pid_t computer)
{
	AUTO_FD int own = open_computer(computer), parent = own < 0 ? -1 : ioctl(own, NS_GET_PARENT);
	uid_t owner;

	return parent >= 0 && ioctl(parent, NS_GET_OWNER_UID, &owner) == 0 && owner == getuid() && setns(parent, CLONE_NEWUSER) == 0;
}

int isolate_ids(void)
{
	char name[64];
	uint64_t uids, gids;
	int userns;
	pid_t pid;

	name_of(getuid(), name, sizeof name);
	if (access("/usr/bin/newuidmap", X_OK) < 0 || granted("/etc/subuid", name, getuid(), &uids) < 0 ||
	    granted("/etc/subgid", name, getuid(), &gids) < 0)
		return -1;
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	pid = idmap_holder();
	if (pid < 0)
		return -1;
	userns = map_and_open(pid, uids, gids);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return userns;
}

bool subid_enter(const pid_t *living, size_t n_living, int given)
{
	AUTO_FD int made = -1;

	/* any of them may be ending just now; a namespace of another would leave the rest beyond our reach */
	for (size_t i = 0; i < n_living; i++)
		if (enter_earlier(living[i]))
			return true;
	if (given < 0)
		given = made = isolate_ids();
	return given >= 0 && setns(given, CLONE_NEWUSER) == 0;
}
