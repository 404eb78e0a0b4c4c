#include "cli/doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/fd.h"
#include "core/proc.h"
#include "core/str.h"

/* What the machine has: memory, control groups, limits, our own programs; and the netlink of one redirect. */

void doctor_memory(struct finding *f)
{
	AUTO_FREE char *text = NULL;
	struct err e;
	size_t n;
	char total[16], free_[16], disk[16];

	if (fd_read_file(AT_FDCWD, "/proc/meminfo", 1 << 16, &text, &n, &e) < 0 || !strstr(text, "MemAvailable:") || !strstr(text, "MemTotal:")) {
		finding_set(f, HEALTH_NOTE, "/proc/meminfo can't be read");
		return;
	}
	uint64_t all = strtoull(strstr(text, "MemTotal:") + 9, NULL, 10) << 10, avail = strtoull(strstr(text, "MemAvailable:") + 13, NULL, 10) << 10;

	str_size_human(all, total);
	str_size_human(avail, free_);
	str_size_human(cli_default_disk(0), disk);
	finding_set(f, avail >= 256 << 20 ? HEALTH_OK : HEALTH_LESS, "%s, %s of it free; a sandbox of ours costs under 1 MiB besides its programs, and may write %s of files into it unless --disk says otherwise", total, free_, disk);
}

static const struct { const char *path; long least; const char *what, *sysctl; } kernel_limits[] = {
	{ "/proc/sys/kernel/pid_max", 65536, "processes", "kernel.pid_max=4194304" },
	{ "/proc/sys/user/max_user_namespaces", 1024, "user namespaces", "user.max_user_namespaces=65536" },
	{ "/proc/sys/user/max_net_namespaces", 1024, "network namespaces", "user.max_net_namespaces=65536" },
	{ "/proc/sys/user/max_mnt_namespaces", 1024, "mount namespaces", "user.max_mnt_namespaces=65536" },
	{ "/proc/sys/fs/inotify/max_user_instances", 256, "inotify instances", "fs.inotify.max_user_instances=8192" },
	{ "/proc/sys/fs/inotify/max_user_watches", 65536, "inotify watches", "fs.inotify.max_user_watches=524288" },
};

void doctor_limits(struct finding *f)
{
	char low[160] = "";
	struct rlimit files = { 0 };

	for (size_t i = 0; i < sizeof kernel_limits / sizeof *kernel_limits; i++) {
		long v = doctor_number(kernel_limits[i].path, -1);

		if (v < 0 || v >= kernel_limits[i].least)
			continue;
		size_t n = strlen(low);

		snprintf(low + n, sizeof low - n, "%s%ld %s", n ? ", " : "", v, kernel_limits[i].what);
		if (!f->fix[0])
			finding_fix(f, "for many sandboxes at once: sudo sysctl -w %s", kernel_limits[i].sysctl);
	}
	getrlimit(RLIMIT_NOFILE, &files);
	if (low[0])
		finding_set(f, HEALTH_NOTE, "low: %s", low);
	else
		finding_set(f, HEALTH_OK, "high enough for hundreds of sandboxes; %llu open files a process", (unsigned long long)files.rlim_max);
}

void doctor_programs(struct finding *f)
{
	static const char *const names[] = { "bureau-keeper", "bureau-guest", "bureau-door" };
	char path[4096], missing[100] = "";
	struct err e;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (proc_sibling(names[i], path, sizeof path, &e) < 0) {
			size_t n = strlen(missing);

			snprintf(missing + n, sizeof missing - n, " %s", names[i]);
		}
	}
	if (!missing[0]) {
		finding_set(f, HEALTH_OK, "bureau-keeper, bureau-guest and bureau-door are beside this one");
		return;
	}
	finding_set(f, HEALTH_BAD, "missing:%s", missing);
	finding_fix(f, "make build, or make install: they belong beside bureau or in " BUREAU_LIBEXEC);
}

/* ---- control groups: a group is made and removed ---- */

static bool group_works(const char *base)
{
	char path[4300];

	if (snprintf(path, sizeof path, "%s/bureau-doctor.%d", base, (int)getpid()) >= (int)sizeof path || mkdir(path, 0755) < 0)
		return false;
	rmdir(path);
	return true;
}

/* The v2 group that this process is in, below where v2 is mounted. */
static bool own_group(const char *root, char *out, size_t size)
{
	AUTO_FREE char *text = NULL;
	struct err e;
	size_t n;

	if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &text, &n, &e) < 0)
		return false;
	for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		if (!str_starts(line, "0::"))
			continue;
		int len = (int)strcspn(line + 3, "\n");

		return snprintf(out, size, "%s%.*s", root, len, line + 3) < (int)size;
	}
	return false;
}

static bool has_word(const char *path, const char *word)
{
	AUTO_FREE char *text = NULL;
	struct err e;
	size_t n, len = strlen(word);

	if (fd_read_file(AT_FDCWD, path, 4096, &text, &n, &e) < 0)
		return false;
	for (const char *s = text; (s = strstr(s, word)); s += len)
		if ((s == text || s[-1] == ' ') && (s[len] == ' ' || s[len] == '\n' || !s[len]))
			return true;
	return false;
}

void doctor_cgroups(struct finding *f)
{
	static const char *const wanted[] = { "memory", "cpu", "pids" };
	const char *root = access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified";
	char base[4096] = "", path[4200], have[64] = "", lack[64] = "";
	bool v1 = false, v2 = false, is_root = geteuid() == 0;

	if (is_root)
		str_copy(base, sizeof base, root);
	else if (!own_group(root, base, sizeof base))
		base[0] = '\0';
	bool usable = base[0] && group_works(base);

	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		bool is2, is1;

		snprintf(path, sizeof path, "%s/cgroup.controllers", base);
		is2 = usable && has_word(path, wanted[i]);
		snprintf(path, sizeof path, "/sys/fs/cgroup/%s", wanted[i]);
		is1 = !is2 && group_works(path);
		v2 |= is2;
		v1 |= is1;
		char *list = is1 || is2 ? have : lack;
		size_t n = strlen(list);

		snprintf(list + n, sizeof have - n, "%s%s", n ? ", " : "", wanted[i]);
	}
	if (!lack[0]) {
		finding_set(f, HEALTH_OK, "memory, cpu and pids are enforced by control groups (%s)", v1 && v2 ? "v1 and v2" : v1 ? "v1" : "v2");
		return;
	}
	finding_set(f, HEALTH_LESS, "not by control groups: %s%s%s; disk and open files are limited all the same", lack, have[0] ? "; by them: " : "", have);
	if (is_root)
		finding_fix(f, "mount cgroup2 with its controllers (a systemd host does), or the v1 ones");
	else
		finding_fix(f, "run as root, or in a group of your own: systemd-run --user --scope -p Delegate=yes bureau ...");
}

/* ---- nftables: a table, a nat chain on output and one rule that redirects TCP ---- */

struct batch { char b[2048]; size_t n; uint32_t seq; };

static size_t pad(size_t n)
{
	return (n + 3) & ~(size_t)3;
}

static struct nlmsghdr *msg_begin(struct batch *m, uint16_t type, uint16_t flags, uint8_t family, uint16_t res)
{
	struct nlmsghdr *h = (void *)(m->b + m->n);
	struct nfgenmsg *g = (void *)(h + 1);

	*h = (struct nlmsghdr){ .nlmsg_len = sizeof *h + sizeof *g, .nlmsg_type = type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags), .nlmsg_seq = m->seq++ };
	*g = (struct nfgenmsg){ .nfgen_family = family, .res_id = htons(res) };
	return h;
}

static struct nlattr *attr(struct nlmsghdr *h, uint16_t type, const void *p, size_t n)
{
	struct nlattr *a = (void *)((char *)h + pad(h->nlmsg_len));

	a->nla_type = type;
	a->nla_len = (uint16_t)(sizeof *a + n);
	if (n)
		memcpy(a + 1, p, n);
	h->nlmsg_len = (uint32_t)(pad(h->nlmsg_len) + pad(a->nla_len));
	return a;
}

static void attr_str(struct nlmsghdr *h, uint16_t type, const char *s)
{
	attr(h, type, s, strlen(s) + 1);
}

static void attr_u32(struct nlmsghdr *h, uint16_t type, uint32_t v)
{
	v = htonl(v);
	attr(h, type, &v, sizeof v);
}

static struct nlattr *nest(struct nlmsghdr *h, uint16_t type)
{
	return attr(h, type | NLA_F_NESTED, NULL, 0);
}

static void nest_end(struct nlmsghdr *h, struct nlattr *a)
{
	a->nla_len = (uint16_t)((char *)h + h->nlmsg_len - (char *)a);
}

static void msg_done(struct batch *m, struct nlmsghdr *h)
{
	m->n += pad(h->nlmsg_len);
}

static void add_rule(struct batch *m)
{
	struct nlmsghdr *h = msg_begin(m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_ACK, NFPROTO_IPV4, 0);

	attr_str(h, NFTA_RULE_TABLE, "t");
	attr_str(h, NFTA_RULE_CHAIN, "c");
	struct nlattr *list = nest(h, NFTA_RULE_EXPRESSIONS), *elem = nest(h, NFTA_LIST_ELEM);

	attr_str(h, NFTA_EXPR_NAME, "redir");
	nest_end(h, nest(h, NFTA_EXPR_DATA));
	nest_end(h, elem);
	nest_end(h, list);
	msg_done(m, h);
}

int doctor_nft_redirect(void)
{
	struct batch m = { 0 };
	struct nlmsghdr *h;
	char reply[8192];
	AUTO_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	struct timeval wait = { .tv_sec = 2 };

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	msg_done(&m, msg_begin(&m, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
	h = msg_begin(&m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, NFPROTO_IPV4, 0);
	attr_str(h, NFTA_TABLE_NAME, "t");
	msg_done(&m, h);
	h = msg_begin(&m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_ACK, NFPROTO_IPV4, 0);
	attr_str(h, NFTA_CHAIN_TABLE, "t");
	attr_str(h, NFTA_CHAIN_NAME, "c");
	struct nlattr *hook = nest(h, NFTA_CHAIN_HOOK);

	attr_u32(h, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
	attr_u32(h, NFTA_HOOK_PRIORITY, (uint32_t)-100);
	nest_end(h, hook);
	attr_str(h, NFTA_CHAIN_TYPE, "nat");
	msg_done(&m, h);
	add_rule(&m);
	msg_done(&m, msg_begin(&m, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES));
	if (send(fd, m.b, m.n, 0) < 0)
		return -errno;
	for (int acks = 0; acks < 3;) {
		ssize_t n = recv(fd, reply, sizeof reply, 0);

		if (n < 0)
			return -errno;
		for (h = (void *)reply; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
			const struct nlmsgerr *x = NLMSG_DATA(h);

			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			if (x->error)
				return x->error;
			acks++;
		}
	}
	return 0;
}
