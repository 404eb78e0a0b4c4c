#include "isolate/ns_priv.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
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

static uint64_t mask_of(const uint8_t *caps, size_t n)
{
	uint64_t m = 0;

	for (size_t i = 0; i < n; i++)
		m |= UINT64_C(1) << caps[i];
	return m;
}

bool caps_full(void)
{
	static const uint8_t needed[] = { CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID };
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];
	uint64_t want = mask_of(needed, sizeof needed);

	return syscall(SYS_capget, &head, d) == 0 && ((d[0].effective | (uint64_t)d[1].effective << 32) & want) == want;
}

static int bound(uint64_t keep, struct err *e)
{
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

int caps_drop(struct err *e)
{
	return bound(mask_of(computer_caps, sizeof computer_caps), e);
}

int caps_keep_for_keeper(struct err *e)
{
	uint64_t keep = mask_of(keeper_caps, sizeof keeper_caps), have;
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &head, d) < 0)
		return err_sys(e, "read our capabilities");
	have = d[0].permitted | (uint64_t)d[1].permitted << 32;
	if ((have >> CAP_SETPCAP & 1) && bound(keep, e) < 0)     /* root of a container may lack it: then only no_new_privs is in the way */
		return -e->code;
	have &= keep;
	for (int i = 0; i < 2; i++) {
		d[i].permitted = d[i].effective = (uint32_t)(have >> 32 * i);
		d[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &head, d) < 0)
		return err_sys(e, "drop capabilities");
	return 0;
}
