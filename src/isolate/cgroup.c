/* cgroup -- see cgroup.h.
 *
 * Theory of operation. At start we look for each tree at its usual place and make BASE/bureau.TAG there; a tree where that
 * fails isn't used. v2 with controllers, v1 with one tree a controller, and both (v1 controllers beside a v2 tree that
 * has none) all end up in one table: fd[tree] is our folder, and a limit is a file name and a value in the first tree
 * that has its controller. As root, BASE is the top of the tree; as a plain user it is the group we are in, when it
 * was delegated to us (systemd does that for `Delegate=yes`). */
#include "isolate/cgroup.h"
#include "core/fd.h"
#include "core/str.h"
#include "isolate/backend.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#define ROOT "/sys/fs/cgroup"
static const char *const v1_place[CG_TREES] = {
	[CG_MEMORY] = ROOT "/memory", [CG_CPU] = ROOT "/cpu", [CG_CPUACCT] = ROOT "/cpuacct", [CG_PIDS] = ROOT "/pids", [CG_FREEZER] = ROOT "/freezer",
};
#define CPU_PERIOD_US 100000u
#define OLD_S 60
#define REST "bureau.rest"
#define ROOM_TRIES 10
#define MOVES_MAX 4096

static bool is_fs(const char *path, long magic)
{
	struct statfs s;

	return statfs(path, &s) == 0 && (long)s.f_type == magic;
}

static int write_at(int dirfd, const char *file, const char *text)
{
	AUTO_FD int fd = openat(dirfd, file, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int write_in(int tree, const char *id, const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", id, file);
	return write_at(tree, path, text);
}

static int read_in(int tree, const char *id, const char *file, char *out, size_t size)
{
	char path[128];
	AUTO_FD int fd = -1;
	ssize_t n;

	snprintf(path, sizeof path, "%s/%s", id, file);
	fd = openat(tree, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, out, size - 1);
	if (n < 0)
		return -errno;
	out[n] = 0;
	return 0;
}

/* The value after "name " at the start of a line, 0 where there is none; the whole text's number when name is NULL. */
static uint64_t number_in(const char *text, const char *name)
{
	size_t n = name ? strlen(name) : 0;

	if (!name)
		return strtoull(text, NULL, 10);
	for (; *text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : "")
		if (strncmp(text, name, n) == 0 && text[n] == ' ')
			return strtoull(text + n + 1, NULL, 10);
	return 0;
}

static int open_tree_folder(const char *base, const char *name)
{
	AUTO_FD int fd = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || (mkdirat(fd, name, 0755) < 0 && errno != EEXIST))
		return -1;
	return openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Our own group in the v2 tree, for a plain user. */
static int own_group(const char *mount, char *out, size_t size)
{
	AUTO_FREE char *text = NULL;
	char *at;
	struct err e;

	if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", 16384, &text, NULL, &e) < 0)
		return -1;
	at = str_starts(text, "0::/") ? text : strstr(text, "\n0::/");
	if (!at)
		return -1;
	at = strchr(at, '/');
	at[strcspn(at, "\n")] = 0;
	if (str_ends(at, "/" REST))
		at[strlen(at) - strlen("/" REST)] = 0;
	return (size_t)snprintf(out, size, "%s%s", mount, at) < size ? 0 : -1;
}

/* Those of our controllers that `file` of a group names, as words for cgroup.subtree_control. */
static void controllers_in(int fd, const char *file, char *out, size_t size)
{
	static const char *const wanted[] = { "memory", "cpu", "pids" };
	char text[512], *word, *rest = text;

	*out = 0;
	if (read_in(fd, ".", file, text, sizeof text) < 0)
		return;
	while ((word = strsep(&rest, " \n")))
		for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
			if (str_eq(word, wanted[i]))
				snprintf(out + strlen(out), size - strlen(out), "+%s ", word);
}

/* Moves what is in the group at fd into REST below it. 0 when nothing is left. */
static int make_room(int fd)
{
	AUTO_FD int procs = -1;
	char pid[16];

	if (mkdirat(fd, REST, 0755) < 0 && errno != EEXIST)
		return -errno;
	for (int i = 0; i < MOVES_MAX; i++) {
		fd_drop(&procs);
		procs = openat(fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
		ssize_t n = procs < 0 ? -1 : read(procs, pid, sizeof pid - 1);

		if (n <= 0)
			return n < 0 ? -errno : 0;
		pid[n] = 0;
		pid[strcspn(pid, "\n")] = 0;
		if (str_eq(pid, "0"))     /* of another process namespace: can't be named here, and 0 would be ourselves */
			return -EBUSY;
		n = write_in(fd, REST, "cgroup.procs", pid);
		if (n < 0 && n != -ESRCH)
			return (int)n;
	}
	return -EBUSY;
}

/* Lets groups below the one at fd have limits. `top`: of the whole tree, where processes don't matter. */
static void give_controllers(int fd, bool top)
{
	char have[64], given[64];

	controllers_in(fd, "cgroup.controllers", have, sizeof have);
	controllers_in(fd, "cgroup.subtree_control", given, sizeof given);
	if (str_eq(have, given))
		return;
	/* a program that forks at this moment takes another turn */
	for (int i = 0; i < ROOM_TRIES; i++)
		if ((top || make_room(fd) == 0) && write_at(fd, "cgroup.subtree_control", have) != -EBUSY)
			return;
}

static void find_v2(struct cgroup_host *h, const char *name, bool root)
{
	const char *mount = is_fs(ROOT, CGROUP2_SUPER_MAGIC) ? ROOT : ROOT "/unified";
	char base[4096], text[64];
	AUTO_FD int tree = -1, fd = -1;

	if (!is_fs(mount, CGROUP2_SUPER_MAGIC))
		return;
	tree = open(mount, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* every group but the very first has a type */
	if (root && faccessat(tree, "cgroup.type", F_OK, 0) == 0)
		root = false;
	if (root ? str_copy(base, sizeof base, mount) < 0 : own_group(mount, base, sizeof base) < 0)
		return;
	fd = open_tree_folder(base, name);
	if (fd < 0)
		return;
	fd_drop(&tree);
	tree = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (tree >= 0)
		give_controllers(tree, root);
	give_controllers(fd, true);
	/* below a group that shares its processes between groups, ours can hold none */
	if (read_in(fd, ".", "cgroup.type", text, sizeof text) < 0 || !str_eq(text, "domain\n"))
		return;
	controllers_in(fd, "cgroup.subtree_control", text, sizeof text);
	h->memory2 = strstr(text, "+memory ");
	h->cpu2 = strstr(text, "+cpu ");
	h->pids2 = strstr(text, "+pids ");
	h->fd[CG_V2] = fd_take(&fd);
}

/* What a `bureau run` that was killed left: groups that are empty (the kernel refuses others) and not quite new. */
static void sweep_old(void *ctx, const char *id)
{
	struct cgroup_host *h = ctx;
	struct stat st;

	for (int t = 0; t < CG_TREES; t++)
		if (h->fd[t] >= 0 && fstatat(h->fd[t], id, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ctim.tv_sec + OLD_S < time(NULL))
			unlinkat(h->fd[t], id, AT_REMOVEDIR);
}

static void open_trees(struct cgroup_host *h)
{
	h->opened = true;
	find_v2(h, h->name, h->root);
	for (int t = CG_MEMORY; h->root && t < CG_TREES; t++)
		if (is_fs(v1_place[t], CGROUP_SUPER_MAGIC))
			h->fd[t] = open_tree_folder(v1_place[t], h->name);
	if (!h->all)
		groups_each(h, sweep_old, h);
}

void cgroup_host_init(struct cgroup_host *h, const char *tag, bool root, bool all)
{
	*h = (struct cgroup_host){ .root = root, .all = all };
	for (int t = 0; t < CG_TREES; t++)
		h->fd[t] = -1;
	snprintf(h->name, sizeof h->name, "bureau.%s", tag);
	if (all)
		open_trees(h);
}

void cgroup_host_need(struct cgroup_host *h, const struct box_limits *l)
{
	if (!h->opened && (l->memory || l->cpu || l->pids))
		open_trees(h);
}

/* Our folders go too, unless computers go on in them (the kernel refuses then). `bureau run` shares its own with others. */
void cgroup_host_done(struct cgroup_host *h)
{
	for (int t = 0; t < CG_TREES; t++) {
		AUTO_FD int above = h->all && h->fd[t] >= 0 ? openat(h->fd[t], "..", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

		if (above >= 0)
			unlinkat(above, h->name, AT_REMOVEDIR);
		fd_drop(&h->fd[t]);
	}
}

uint32_t cgroup_features(const struct cgroup_host *h)
{
	uint32_t f = 0;

	if (h->fd[CG_V2] >= 0)
		f |= BOX_CGROUP_V2 | BOX_FREEZE;
	for (int t = CG_MEMORY; t < CG_TREES; t++)
		if (h->fd[t] >= 0)
			f |= BOX_CGROUP_V1;
	if (h->memory2 || h->fd[CG_MEMORY] >= 0)
		f |= BOX_MEMORY;
	if (h->cpu2 || h->fd[CG_CPU] >= 0)
		f |= BOX_CPU;
	if (h->pids2 || h->fd[CG_PIDS] >= 0)
		f |= BOX_PIDS;
	if (h->fd[CG_FREEZER] >= 0)
		f |= BOX_FREEZE;
	return f;
}

/* Which v1 trees a computer with these limits needs. v2 always: it kills and freezes without controllers. */
static bool needed(const struct cgroup_host *h, enum cgroup_tree t, const struct box_limits *l)
{
	switch (t) {
	case CG_MEMORY: return !h->memory2 && (h->all || l->memory);
	case CG_CPU: return !h->cpu2 && (h->all || l->cpu);
	case CG_CPUACCT: return h->all && h->fd[CG_V2] < 0;     /* v2 counts time without a controller */
	case CG_PIDS: return !h->pids2 && (h->all || l->pids);
	case CG_FREEZER: return h->all && h->fd[CG_V2] < 0;
	default: return h->all || l->memory || l->cpu || l->pids;
	}
}

static int make(const struct cgroup_host *h, const char *id, enum cgroup_tree t, const struct box_limits *l, struct box_groups *g, struct err *e)
{
	if (h->fd[t] < 0 || !needed(h, t, l))
		return 0;
	if (mkdirat(h->fd[t], id, 0755) < 0 && errno != EEXIST)
		return err_sys(e, "make the control group of computer '%s'", id);
	g->made[t] = true;
	return 0;
}

int groups_make_v2(const struct cgroup_host *h, const char *id, const struct box_limits *l, struct box_groups *g, int *ret_v2, struct err *e)
{
	int r;

	*g = (struct box_groups){ .made = { false } };
	*ret_v2 = -1;
	r = make(h, id, CG_V2, l, g, e);
	if (r == 0 && g->made[CG_V2])
		*ret_v2 = openat(h->fd[CG_V2], id, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return r;
}

static int limit(const struct cgroup_host *h, const char *id, const struct box_groups *g, const struct box_limits *l, bool fresh, uint32_t *unenforced);

int groups_make(const struct cgroup_host *h, const char *id, const struct box_limits *l, struct box_groups *g, uint32_t *unenforced, struct err *e)
{
	int r = 0;

	for (int t = CG_MEMORY; t < CG_TREES && r == 0; t++)
		r = make(h, id, (enum cgroup_tree)t, l, g, e);
	return r < 0 ? r : limit(h, id, g, l, true, unenforced);
}

int groups_enter_v2(const struct cgroup_host *h, const char *id, const struct box_groups *g, pid_t pid, struct err *e)
{
	char text[16];
	int r;

	snprintf(text, sizeof text, "%d", (int)pid);
	r = g->made[CG_V2] ? write_in(h->fd[CG_V2], id, "cgroup.procs", text) : 0;
	return r < 0 ? err_set(e, -r, "put computer '%s' into its control group: %s", id, strerror(-r)) : 0;
}

int groups_open_v1(const struct cgroup_host *h, const char *id, const struct box_groups *g, int *ret_fds, struct err *e)
{
	char path[64];
	int n = 0;

	snprintf(path, sizeof path, "%s/tasks", id);
	for (int t = CG_MEMORY; t < CG_TREES; t++) {
		if (!g->made[t])
			continue;
		ret_fds[n] = openat(h->fd[t], path, O_WRONLY | O_CLOEXEC);
		if (ret_fds[n] < 0) {
			err_sys(e, "open the control groups of computer '%s'", id);
			while (n > 0)
				close(ret_fds[--n]);
			return -e->code;
		}
		n++;
	}
	return n;
}

/* Writes a limit (or "none") to the tree that has its controller: v2 name and text, or v1 name and text. */
static bool set_limit(const struct cgroup_host *h, const char *id, const struct box_groups *g, bool have2, enum cgroup_tree v1,
	const char *file2, const char *text2, const char *file1, const char *text1)
{
	if (have2 && g->made[CG_V2])
		return write_in(h->fd[CG_V2], id, file2, text2) == 0;
	return g->made[v1] && write_in(h->fd[v1], id, file1, text1) == 0;
}

/* memory + swap may not be less than memory: so the one limit is written before and after the other. */
static void no_swap_v1(int tree, const char *id, const char *memory)
{
	write_in(tree, id, "memory.swappiness", "0");
	write_in(tree, id, "memory.memsw.limit_in_bytes", memory);
	write_in(tree, id, "memory.limit_in_bytes", memory);
	write_in(tree, id, "memory.memsw.limit_in_bytes", memory);
}

/* A fresh group has no limits: to write that it has none of processor time takes the kernel a look at every such group there is. */
static int limit(const struct cgroup_host *h, const char *id, const struct box_groups *g, const struct box_limits *l, bool fresh, uint32_t *unenforced)
{
	char n[32], quota[32], both[64];
	bool good;

	snprintf(n, sizeof n, l->memory ? "%llu" : "-1", (unsigned long long)l->memory);
	good = set_limit(h, id, g, h->memory2, CG_MEMORY, "memory.max", l->memory ? n : "max", "memory.limit_in_bytes", n);
	/* no swap: what a computer may use is memory, and a full disk must not slow everyone */
	if (h->memory2 && g->made[CG_V2])
		write_in(h->fd[CG_V2], id, "memory.swap.max", "0");
	else if (g->made[CG_MEMORY])
		no_swap_v1(h->fd[CG_MEMORY], id, n);
	if (l->memory && !good)
		*unenforced |= BL_MEMORY;
	snprintf(quota, sizeof quota, "%llu", (unsigned long long)(l->cpu * (CPU_PERIOD_US / 1000)));
	snprintf(both, sizeof both, "%s %u", l->cpu ? quota : "max", CPU_PERIOD_US);
	good = (fresh && !l->cpu) || set_limit(h, id, g, h->cpu2, CG_CPU, "cpu.max", both, "cpu.cfs_quota_us", l->cpu ? quota : "-1");
	if (l->cpu && !good)
		*unenforced |= BL_CPU;
	snprintf(n, sizeof n, l->pids ? "%llu" : "max", (unsigned long long)l->pids);
	good = set_limit(h, id, g, h->pids2, CG_PIDS, "pids.max", n, "pids.max", n);
	if (l->pids && !good)
		*unenforced |= BL_PIDS;
	return 0;
}

int groups_limit(const struct cgroup_host *h, const char *id, const struct box_groups *g, const struct box_limits *l, uint32_t *unenforced)
{
	return limit(h, id, g, l, false, unenforced);
}

void groups_find(const struct cgroup_host *h, const char *id, struct box_groups *g)
{
	for (int t = 0; t < CG_TREES; t++)
		g->made[t] = h->fd[t] >= 0 && faccessat(h->fd[t], id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static uint64_t count_of(int tree, const char *id, const char *file, const char *name)
{
	char text[4096];

	return tree >= 0 && read_in(tree, id, file, text, sizeof text) == 0 ? number_in(text, name) : 0;
}

void groups_count(const struct cgroup_host *h, const char *id, const struct box_groups *g, struct box_counts *ret)
{
	*ret = (struct box_counts){ 0 };
	if (g->made[CG_V2])
		ret->cpu_us = count_of(h->fd[CG_V2], id, "cpu.stat", "usage_usec");
	if (!ret->cpu_us && g->made[CG_CPUACCT])
		ret->cpu_us = count_of(h->fd[CG_CPUACCT], id, "cpuacct.usage", NULL) / 1000;
	if (h->memory2 && g->made[CG_V2]) {
		ret->memory = count_of(h->fd[CG_V2], id, "memory.current", NULL);
		ret->memory_peak = count_of(h->fd[CG_V2], id, "memory.peak", NULL);
		ret->oom_kills = count_of(h->fd[CG_V2], id, "memory.events", "oom_kill");
	} else if (g->made[CG_MEMORY]) {
		ret->memory = count_of(h->fd[CG_MEMORY], id, "memory.usage_in_bytes", NULL);
		ret->memory_peak = count_of(h->fd[CG_MEMORY], id, "memory.max_usage_in_bytes", NULL);
		ret->oom_kills = count_of(h->fd[CG_MEMORY], id, "memory.oom_control", "oom_kill");
	}
	if (h->pids2 && g->made[CG_V2])
		ret->procs = (uint32_t)count_of(h->fd[CG_V2], id, "pids.current", NULL);
	else if (g->made[CG_PIDS])
		ret->procs = (uint32_t)count_of(h->fd[CG_PIDS], id, "pids.current", NULL);
}

int groups_freeze(const struct cgroup_host *h, const char *id, const struct box_groups *g, bool frozen, struct err *e)
{
	int r = -ENOTSUP;

	if (g->made[CG_V2])
		r = write_in(h->fd[CG_V2], id, "cgroup.freeze", frozen ? "1" : "0");
	else if (g->made[CG_FREEZER])
		r = write_in(h->fd[CG_FREEZER], id, "freezer.state", frozen ? "FROZEN" : "THAWED");
	if (r < 0)
		return err_set(e, -r, "%s computer '%s': %s", frozen ? "freeze" : "thaw", id, r == -ENOTSUP ? "no freezer here" : strerror(-r));
	return 0;
}

void groups_kill(const struct cgroup_host *h, const char *id, const struct box_groups *g)
{
	if (g->made[CG_V2])
		write_in(h->fd[CG_V2], id, "cgroup.kill", "1");
	if (g->made[CG_FREEZER])    /* v1: a frozen task doesn't die */
		write_in(h->fd[CG_FREEZER], id, "freezer.state", "THAWED");
}

int groups_remove(const struct cgroup_host *h, const char *id, struct box_groups *g)
{
	int busy = 0;

	for (int t = 0; t < CG_TREES; t++) {
		if (!g->made[t])
			continue;
		if (unlinkat(h->fd[t], id, AT_REMOVEDIR) < 0 && errno != ENOENT)
			busy = -EBUSY;
		else
			g->made[t] = false;
	}
	return busy;
}

void groups_each(const struct cgroup_host *h, void (*fn)(void *ctx, const char *id), void *ctx)
{
	for (int t = 0; t < CG_TREES; t++) {
		int fd = h->fd[t] < 0 ? -1 : openat(h->fd[t], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		DIR *d = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *de;

		while (d && (de = readdir(d)))
			if (de->d_type == DT_DIR && str_id(de->d_name))
				fn(ctx, de->d_name);
		if (d)
			closedir(d);
		else if (fd >= 0)
			close(fd);
	}
}
