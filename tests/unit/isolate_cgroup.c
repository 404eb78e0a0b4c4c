/* cgroup over plain folders that stand for the trees: what is written where, and what is said not to be enforced. */
#include "isolate/backend.h"
#include "core/fd.h"
#include "core/str.h"
#include "tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[256];

static int tree(const char *name)
{
	char path[400];

	snprintf(path, sizeof path, "%s/%s", top, name);
	mkdir(path, 0755);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void touch(int dir, const char *file, const char *text)
{
	AUTO_FD int fd = openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		perror(file);
}

static const char *content(int dir, const char *file)
{
	static char text[256];
	AUTO_FD int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	text[n > 0 ? n : 0] = 0;
	return text;
}

static const char *const v2_files[] = { "memory.max", "memory.swap.max", "cpu.max", "pids.max", "cgroup.freeze", "cgroup.kill" };
static const struct box_limits some = { .memory = 1 << 20, .cpu = 1500, .pids = 9 }, none = { 0 };

static void unified(void)
{
	struct cgroup_host h = { .fd = { tree("v2"), -1, -1, -1, -1, -1 }, .memory2 = true, .cpu2 = true, .pids2 = true, .all = true };
	struct box_groups g;
	struct box_counts n;
	struct err e;
	uint32_t un = 0;
	int fd, dir;

	ok(groups_make_v2(&h, "abcdefgh1", &none, &g, &fd, &e) == 0 && fd >= 0 && g.made[CG_V2], "v2: made");
	ok(groups_make(&h, "abcdefgh1", &none, &g, &un, &e) == 0 && !g.made[CG_CPUACCT], "v2: no other is needed");
	close(fd);
	dir = openat(h.fd[CG_V2], "abcdefgh1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < sizeof v2_files / sizeof *v2_files; i++)
		touch(dir, v2_files[i], "");
	un = 0;
	groups_limit(&h, "abcdefgh1", &g, &some, &un);
	ok(un == 0, "v2: everything is enforced");
	is_str(content(dir, "memory.max"), "1048576", "v2: memory");
	is_str(content(dir, "memory.swap.max"), "0", "v2: no swap");
	is_str(content(dir, "cpu.max"), "150000 100000", "v2: one and a half cpus");
	is_str(content(dir, "pids.max"), "9", "v2: pids");
	touch(dir, "cpu.stat", "usage_usec 1234\nuser_usec 5\n");
	touch(dir, "memory.current", "77\n");
	touch(dir, "memory.peak", "88\n");
	touch(dir, "memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n");
	touch(dir, "pids.current", "4\n");
	groups_count(&h, "abcdefgh1", &g, &n);
	ok(n.cpu_us == 1234 && n.memory == 77 && n.memory_peak == 88 && n.oom_kills == 2 && n.procs == 4, "v2: counts");
	ok(groups_freeze(&h, "abcdefgh1", &g, true, &e) == 0, "v2: freezes");
	is_str(content(dir, "cgroup.freeze"), "1", "v2: by cgroup.freeze");
	close(dir);
}

static void hybrid(void)
{
	struct cgroup_host h = { .fd = { tree("v2b"), tree("memory"), -1, -1, tree("pids"), -1 }, .all = false };
	struct box_groups g;
	struct err e;
	uint32_t un = 0;
	int fd, dir;

	ok(groups_make_v2(&h, "abcdefgh2", &none, &g, &fd, &e) == 0 && groups_make(&h, "abcdefgh2", &none, &g, &un, &e) == 0 && fd < 0 &&
	   !g.made[CG_V2] && !g.made[CG_MEMORY], "no limits, no groups");
	ok(groups_make_v2(&h, "abcdefgh2", &some, &g, &fd, &e) == 0 && groups_make(&h, "abcdefgh2", &some, &g, &un, &e) == 0 && g.made[CG_V2] &&
	   g.made[CG_MEMORY] && g.made[CG_PIDS], "hybrid: made");
	close(fd);
	dir = openat(h.fd[CG_MEMORY], "abcdefgh2", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	touch(dir, "memory.limit_in_bytes", "");
	un = 0;
	groups_limit(&h, "abcdefgh2", &g, &some, &un);
	ok(un == (BL_CPU | BL_PIDS), "hybrid: no cpu tree and no pids file are said");
	is_str(content(dir, "memory.limit_in_bytes"), "1048576", "hybrid: memory is in its own tree");
	close(dir);
}

static void nothing(void)
{
	struct cgroup_host h = { .fd = { -1, -1, -1, -1, -1, -1 }, .all = true };
	struct box_groups g;
	struct box_counts n;
	struct err e;
	uint32_t un = 0;
	int fd;

	ok(groups_make_v2(&h, "abcdefgh3", &some, &g, &fd, &e) == 0 && groups_make(&h, "abcdefgh3", &some, &g, &un, &e) == 0 && un == (BL_MEMORY | BL_CPU | BL_PIDS), "without groups every limit is said");
	groups_count(&h, "abcdefgh3", &g, &n);
	ok(n.memory == 0 && n.procs == 0, "and counts are 0");
	ok(groups_freeze(&h, "abcdefgh3", &g, true, &e) < 0 && groups_remove(&h, "abcdefgh3", &g) == 0, "no freezing, nothing to remove");
}

int main(void)
{
	struct err e;

	if (!mkdtemp(tap_tmp(top, sizeof top, "bureau-cgroup")))
		return 1;
	unified();
	hybrid();
	nothing();
	fd_remove_tree(AT_FDCWD, top, &e);
	return done_testing();
}
