/* host -- what this machine lets us do, found out once at the keeper's start. */
#include "isolate/ns_priv.h"
#include "core/proc.h"
#include "core/str.h"
#include "isolate/host.h"
#define WANT_seccomp_keeper
#include "core/filters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* Our own map as a computer's: the same ids on both sides, cut at BOX_IDS. The kernel takes a range only when it lies within one
 * of ours, so it has as many lines. How many ids that is. */
static uint64_t own_map(const char *file, char *out, size_t size)
{
	char text[4096];
	uint64_t total = 0;
	size_t n = 0;

	*out = 0;
	if (fd_read_text(AT_FDCWD, file, text, sizeof text) < 0)
		return 0;
	for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		unsigned inside, outside, count;

		if (sscanf(line, "%u %u %u", &inside, &outside, &count) != 3)
			return 0;
		total += count;
		if (inside >= BOX_IDS || n + 40 > size)
			continue;
		n += (size_t)snprintf(out + n, size - n, "%u %u %u\n", inside, inside, count < BOX_IDS - inside ? count : BOX_IDS - inside);
	}
	return total;
}

/* Every id there is: real root. 65,536 or more: root of a container, or a plain user with granted ids. */
static enum id_mode id_mode_of(struct isolate *h, const pid_t *living, size_t n_living, int ids_fd)
{
	uint64_t n;

	if (geteuid() != 0 ? !subid_enter(living, n_living, ids_fd) : !caps_full())
		return IDS_ONE;
	n = own_map("/proc/self/uid_map", h->map[0], sizeof h->map[0]);
	if (own_map("/proc/self/gid_map", h->map[1], sizeof h->map[1]) < n || n < BOX_IDS)
		return IDS_ONE;
	return n == 4294967295u ? IDS_RANGE : IDS_NESTED;
}

/* Some things the kernel counts for the owner of a user namespace too (ns.c), and a plain user owns those of all its computers. Half
 * of them stays for the user's own programs. */
static const char *const share_files[SHARES] = { "/proc/sys/user/max_inotify_instances", "/proc/sys/user/max_inotify_watches" };

static void share_read(struct isolate *h)
{
	char text[24];
	uint64_t n;

	for (int i = 0; i < SHARES && h->uid != 0; i++) {
		if (fd_read_text(AT_FDCWD, share_files[i], text, sizeof text) < 0)
			continue;
		text[strcspn(text, "\n")] = 0;
		if (str_u64(text, INT32_MAX, &n) == 0)
			snprintf(h->share[i], sizeof h->share[i], "%llu", (unsigned long long)(n / 2));
	}
}

void share_inside(const struct isolate *h)
{
	for (int i = 0; i < SHARES; i++)
		if (*h->share[i])
			sys_write(AT_FDCWD, share_files[i], h->share[i]);
}

static void share_halve(const struct isolate *h)
{
	static const int counted[] = { RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE };
	struct rlimit l;

	for (size_t i = 0; i < sizeof counted / sizeof *counted && h->ids != IDS_RANGE; i++) {
		/* the kernel keeps what we may have as we make a namespace as what all in it may add to ours */
		if (getrlimit((unsigned)counted[i], &l) == 0 && l.rlim_cur != RLIM_INFINITY) {
			l.rlim_cur /= 2;
			setrlimit((unsigned)counted[i], &l);
		}
	}
	if (h->ids == IDS_NESTED)        /* ours, which all computers' are below */
		share_inside(h);
}

static bool has_terminal(void)
{
	AUTO_FD int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

	return fd >= 0;
}

int isolate_create(const char *guest, const char *tag, const pid_t *living, size_t n_living, int ids_fd, struct isolate **ret, struct err *e)
{
	struct isolate *h = calloc(1, sizeof *h);
	struct stat st;

	if (!h)
		return err_set(e, ENOMEM, "no memory");
	h->once = !tag;
	h->uid = geteuid();
	h->gid = getegid();
	share_read(h);
	h->ids = id_mode_of(h, living, n_living, ids_fd);
	share_halve(h);
	if (stat(guest, &st) < 0 || str_copy(h->guest, sizeof h->guest, guest) < 0) {
		err_sys(e, "find '%s'", guest);
		free(h);
		return -e->code;
	}
	h->ipv6 = faccessat(AT_FDCWD, "/proc/sys/net/ipv6", F_OK, 0) == 0;
	setsid();      /* fails when we lead one already; that one may have a terminal */
	h->own_session = getsid(0) == getpid() && !has_terminal();
	cgroup_host_init(&h->groups, tag ? tag : "run", h->ids == IDS_RANGE, !h->once);
	etc_scan(h);
	h->kit_net = h->own_net = -1;
	if (h->ids == IDS_RANGE && !h->once && kit_make(h, e) < 0) {
		isolate_free(h);
		return -e->code;
	}
	h->features = cgroup_features(&h->groups) | BOX_OVERLAY | BOX_PIDS;     /* pids: at worst by RLIMIT_NPROC */
	if (h->ids == IDS_RANGE)
		h->features |= BOX_ROOT | BOX_IDMAP;
	if (h->ids == IDS_NESTED)
		h->features |= BOX_SUBUID;
	if (h->ipv6)
		h->features |= BOX_IPV6;
	*ret = h;
	return 0;
}

void isolate_free(struct isolate *h)
{
	if (!h)
		return;
	cgroup_host_done(&h->groups);
	stock_free(h);
	fd_drop(&h->kit_net);
	fd_drop(&h->own_net);
	free(h);
}

const struct cgroup_host *isolate_groups(const struct isolate *h)
{
	return &h->groups;
}

int isolate_confine(const struct isolate *h, struct err *e)
{
	if (h->ids != IDS_ONE && caps_keep_for_keeper(e) < 0)
		return -e->code;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, "make ourselves undumpable");
	return proc_seccomp(seccomp_keeper, sizeof seccomp_keeper / sizeof *seccomp_keeper, e);
}
