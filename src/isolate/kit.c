/* kit -- what all computers of a root's keeper share: one /sys.
 *
 * A /sys of its own costs a computer more the more computers there are: to mount one the kernel compares it with every other
 * sysfs that is mounted. So the keeper mounts one, in a mount namespace of its own (in place of /sys, which nobody needs there: the
 * trees of control groups are open already) and of an empty network namespace, and each computer gets a read-only copy of that
 * mount. All that differs from a /sys of the computer's own is class/net: it shows an idle lo, and none any more when this
 * keeper has ended. */
#include "isolate/ns_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

int kit_make(struct isolate *h, struct err *e)
{
	h->own_net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	/* what is mounted and unmounted outside from now on still comes here */
	if (h->own_net < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 || unshare(CLONE_NEWNET) < 0)
		return 0;
	/* with all that is mounted in it: a clone copies each mount, and takes it apart again */
	umount2("/sys", MNT_DETACH);
	if (mount("sysfs", "/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0)
		h->kit_net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return stock_leave(h, e);
}

int kit_sys(const struct isolate *h)
{
	return h->kit_net < 0 ? -ENOTSUP : sys_clone_tree(AT_FDCWD, "/sys", false);
}
