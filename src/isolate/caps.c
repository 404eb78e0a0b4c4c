#include "isolate/ns_priv.h"
#include "core/proc.h"

#include <linux/capability.h>
#include <sys/syscall.h>

/* What root inside a computer may do, of what its user namespace would give it. No SETPCAP, NET_ADMIN, NET_RAW, SYS_ADMIN,
 * SYS_PTRACE, MKNOD, SYS_NICE: files, ids and signals of its own, and ports. */
static const uint8_t computer_caps[] = {
	CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SETUID, CAP_SETGID, CAP_KILL, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
	CAP_SETFCAP, CAP_AUDIT_WRITE,
};
/* The keeper as root: namespaces and mounts (SYS_ADMIN), id maps (SETUID, SETGID; SETFCAP: since 5.12 for id 0), other users'
 * state and groups (DAC_OVERRIDE, CHOWN, FOWNER), ending computers (KILL), their /proc entries (SYS_PTRACE), lasting network
 * namespaces (NET_ADMIN), programs' limits (SYS_RESOURCE). A computer's user namespace begins with all capabilities again, whatever
 * is bounded here. */
static const uint8_t keeper_caps[] = {
	CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID, CAP_SETFCAP, CAP_DAC_OVERRIDE, CAP_CHOWN, CAP_FOWNER, CAP_KILL, CAP_SYS_PTRACE, CAP_NET_ADMIN,
	CAP_SYS_RESOURCE,
};

bool caps_full(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];
	const uint32_t want = 1u << CAP_SYS_ADMIN | 1u << CAP_SETUID | 1u << CAP_SETGID;

	return syscall(SYS_capget, &head, d) == 0 && (d[0].effective & want) == want;
}

int caps_drop(struct err *e)
{
	return proc_bound_caps(computer_caps, sizeof computer_caps, e);
}

int caps_keep_for_keeper(struct err *e)
{
	return proc_keep_caps(keeper_caps, sizeof keeper_caps, e);
}
