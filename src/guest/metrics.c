/* metrics -- how busy the computer is, from what can be seen inside. The keeper sees its cgroup from outside and knows better;
 * this is for where there is none. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"
#include "guest/net.h"

#define PROCESSES_MAX 4096      /* looked at for one answer: the loop waits meanwhile */

struct usage { uint64_t ticks, rss_pages; };

/* User and system time of a process and of its children that it has waited for: fields 14-17 of stat. */
static void add_process(struct usage *u, const char *pid)
{
	AUTO_FREE char *stat = NULL, *statm = NULL;
	char path[64];
	unsigned long t[4];
	unsigned long size, rss, shared;
	char *at;

	snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
	if (fd_read_file(AT_FDCWD, path, 4096, &stat, NULL, NULL) < 0)
		return;
	at = strrchr(stat, ')');
	if (at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu", &t[0], &t[1], &t[2], &t[3]) == 4)
		u->ticks += t[0] + t[1] + t[2] + t[3];
	snprintf(path, sizeof path, "/proc/%.20s/statm", pid);
	if (fd_read_file(AT_FDCWD, path, 4096, &statm, NULL, NULL) == 0 && sscanf(statm, "%lu %lu %lu", &size, &rss, &shared) == 3 && rss > shared)
		u->rss_pages += rss - shared;
}

static void all_processes(struct usage *u)
{
	DIR *dir = opendir("/proc");
	struct dirent *ent;

	for (int i = 0; dir && i < PROCESSES_MAX && (ent = readdir(dir)); i++)
		if (ent->d_name[0] >= '1' && ent->d_name[0] <= '9')
			add_process(u, ent->d_name);
	if (dir)
		closedir(dir);
}

/* The number after `name` in a file of "name number" lines, or alone in the file for "". 0 when there's none. */
static uint64_t number_in(const char *path, const char *name)
{
	AUTO_FREE char *text = NULL;
	char *at;

	if (fd_read_file(AT_FDCWD, path, 65536, &text, NULL, NULL) < 0)
		return 0;
	at = strstr(text, name);
	return at ? strtoull(at + strlen(name) + strspn(at + strlen(name), ": \t"), NULL, 10) : 0;
}

static unsigned cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) ? (unsigned)CPU_COUNT(&set) : 1;
}

/* Hundredths of a percent of all cpus since the last ask. */
static uint32_t cpu_used(struct guest *g, const struct usage *u, unsigned n)
{
	int64_t now = clock_mono_ms(), since = g->cpu_at_ms ? now - g->cpu_at_ms : now - g->started_ms;
	uint64_t ticks = u->ticks > g->cpu_ticks ? u->ticks - g->cpu_ticks : 0, ms = ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t used = since > 0 ? ms * 10000 / ((uint64_t)since * n) : 0;

	g->cpu_ticks = u->ticks;
	g->cpu_at_ms = now;
	return used > 10000 ? 10000 : (uint32_t)used;
}

void net_metrics(struct conn *c, struct msg_reader *r)
{
	struct usage u = { 0 };
	struct statvfs fs = { 0 };
	struct msg_writer w;
	struct err e;
	uint64_t total, used;
	unsigned n = cpus();

	if (msg_reader_end(r, &e) < 0)
		return;
	all_processes(&u);
	total = number_in("/sys/fs/cgroup/memory.max", "");
	used = number_in("/sys/fs/cgroup/memory.current", "");
	if (!used)
		used = u.rss_pages * (uint64_t)sysconf(_SC_PAGESIZE);
	if (!total)
		total = number_in("/proc/meminfo", "MemTotal:") * 1024;
	if (statvfs("/", &fs) < 0)
		memset(&fs, 0, sizeof fs);
	conn_begin(&w, G_OK, r->id);
	msg_put_u32(&w, n);
	msg_put_u32(&w, cpu_used(c->g, &u, n));
	msg_put_u64(&w, used);
	msg_put_u64(&w, total);
	msg_put_u64(&w, number_in("/sys/fs/cgroup/memory.stat", "\nfile "));
	msg_put_u64(&w, (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize);
	msg_put_u64(&w, (uint64_t)fs.f_blocks * fs.f_frsize);
	conn_send(c, &w);
}
