/* host -- what this machine lets us do, found out once at the keeper's start. */
#include "isolate/ns_priv.h"
#include "core/proc.h"
#include "core/str.h"
#include "isolate/host.h"
#define WANT_seccomp_keeper
#include "isolate/filters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>

/* Are ids [0, 0x10000 * (KEEPER_SLOTS + 0x101)) ours to give? Only real root, or a container that has them all. */
static enum id_mode id_mode_of(void)
{
	AUTO_FREE char *text = NULL;
	unsigned inside, outside, count;
	struct err e;

	if (geteuid() != 0 || fd_read_file(AT_FDCWD, "/proc/self/uid_map", 4096, &text, NULL, &e) < 0)
		return IDS_ONE;
	if (sscanf(text, "%u %u %u", &inside, &outside, &count) != 3 || inside != 0)
		return IDS_ONE;
	return count == 4294967295u ? IDS_RANGE : count >= BOX_IDS ? IDS_NESTED : IDS_ONE;
}

int isolate_create(const char *guest, const char *tag, struct isolate **ret, struct err *e)
{
	struct isolate *h = calloc(1, sizeof *h);
	struct stat st;

	if (!h)
		return err_set(e, ENOMEM, "no memory");
	h->once = !tag;
	h->uid = geteuid();
	h->gid = getegid();
	h->ids = id_mode_of();
	if (stat(guest, &st) < 0 || str_copy(h->guest, sizeof h->guest, guest) < 0) {
		err_sys(e, "find '%s'", guest);
		free(h);
		return -e->code;
	}
	h->ipv6 = faccessat(AT_FDCWD, "/proc/sys/net/ipv6", F_OK, 0) == 0;
	cgroup_host_init(&h->groups, tag ? tag : "run", h->ids == IDS_RANGE, !h->once);
	etc_scan(h);
	h->features = cgroup_features(&h->groups) | BOX_OVERLAY | BOX_NET;
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
	free(h);
}

const struct cgroup_host *isolate_groups(const struct isolate *h)
{
	return &h->groups;
}

bool isolate_full_ids(const struct isolate *h)
{
	return h->ids == IDS_RANGE;
}

int isolate_confine(const struct isolate *h, struct err *e)
{
	if (h->ids != IDS_ONE && caps_keep_for_keeper(e) < 0)
		return -e->code;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, "make ourselves undumpable");
	return proc_seccomp(seccomp_keeper, sizeof seccomp_keeper / sizeof *seccomp_keeper, e);
}
