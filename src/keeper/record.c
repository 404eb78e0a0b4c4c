/* record -- DIR/keeper/<id>: what a restarted keeper must know to adopt a computer. Not synced to disk on purpose: it says
 * something about running processes only, and a power cut ends those too (the boot's id in it says so). */
#include "keeper/keeper.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/proc.h"
#include "core/str.h"
#include "isolate/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define RECORD_MAX 1024

int record_write(const struct keeper *k, const char *id, const struct record *r, struct err *e)
{
	char text[RECORD_MAX];
	AUTO_FD int fd = -1;
	int n;

	n = snprintf(text, sizeof text, "bureau-keeper 1\nboot %s\npid %d\nstart %" PRIu64 "\nslot %" PRIu32 "\nnet %u\ntemplate %s\n",
		k->boot, r->pid, r->start_time, r->slot, r->net, r->template_name);
	/* Straight to its name: who dies in the middle leaves half a record, and a first process that then ends by itself. */
	fd = openat(k->records_fd, id, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fd_write_all(fd, text, (size_t)n, e) < 0) {
		err_sys(e, "write the record of computer '%s'", id);
		if (fd >= 0)
			unlinkat(k->records_fd, id, 0);
		return -e->code;
	}
	return 0;
}

static bool next_field(const char **at, const char *name, char *out, size_t size)
{
	size_t n = strlen(name), len;

	if (strncmp(*at, name, n) != 0 || (*at)[n] != ' ')
		return false;
	*at += n + 1;
	len = strcspn(*at, "\n");
	if ((*at)[len] != '\n' || len >= size)
		return false;
	memcpy(out, *at, len);
	out[len] = 0;
	*at += len + 1;
	return true;
}

static bool next_number(const char **at, const char *name, uint64_t max, uint64_t *ret)
{
	char text[24];

	return next_field(at, name, text, sizeof text) && str_u64(text, max, ret) == 0;
}

int record_parse(const char *text, const char *boot, struct record *ret)
{
	const char *at = text;
	char version[8], made_in[40];
	uint64_t pid, start, slot, net;

	if (!next_field(&at, "bureau-keeper", version, sizeof version) || !str_eq(version, "1") || !next_field(&at, "boot", made_in, sizeof made_in))
		return -EINVAL;
	if (!next_number(&at, "pid", INT32_MAX, &pid) || !next_number(&at, "start", UINT64_MAX, &start) ||
	    !next_number(&at, "slot", KEEPER_SLOTS, &slot) || !next_number(&at, "net", 1, &net) ||
	    !next_field(&at, "template", ret->template_name, sizeof ret->template_name) || !str_name(ret->template_name) || *at || pid < 1)
		return -EINVAL;
	ret->pid = (int)pid;
	ret->start_time = start;
	ret->slot = (uint32_t)slot;
	ret->net = (uint8_t)net;
	return str_eq(made_in, boot) ? 0 : -ESTALE;
}

int record_read(const struct keeper *k, const char *id, struct record *ret)
{
	AUTO_FREE char *text = NULL;
	size_t n;
	struct err e;
	int r = fd_read_regular(k->records_fd, id, RECORD_MAX, &text, &n, &e);

	if (r < 0)
		return r;
	return strlen(text) == n ? record_parse(text, k->boot, ret) : -EINVAL;
}

void record_remove(const struct keeper *k, const char *id)
{
	if (k->records_fd >= 0)
		unlinkat(k->records_fd, id, 0);
	if (k->run_fd >= 0)
		unlinkat(k->run_fd, id, 0);
}

/* Calls fn for every name in a folder; fn may remove that name. */
static void each_name(int dir, void (*fn)(struct keeper *k, const char *name), struct keeper *k)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (!str_eq(de->d_name, ".") && !str_eq(de->d_name, ".."))
			fn(k, de->d_name);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
}

size_t keeper_living(struct keeper *k, pid_t *out, size_t max)
{
	int fd = openat(k->records_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	size_t n = 0;

	while (d && n < max && (de = readdir(d))) {
		struct record r;
		uint64_t start_time;

		if (str_id(de->d_name) && record_read(k, de->d_name, &r) == 0 && proc_start_time(r.pid, &start_time) == 0 && start_time == r.start_time)
			out[n++] = r.pid;
	}
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	return n;
}

static void sweep_record(struct keeper *k, const char *name)
{
	struct err e;

	if (!str_id(name)) {
		unlinkat(k->records_fd, name, 0);
		return;
	}
	if (computer_adopt(k, name, &e) == 0)
		return;
	log_info("computer %s: %s; swept", name, e.msg);
	if (!computer_find(k, name))     /* else its end does it */
		record_remove(k, name);
}

static void sweep_run(struct keeper *k, const char *name)
{
	if (str_id(name) && !computer_find(k, name))
		unlinkat(k->run_fd, name, 0);
}

static void sweep_group(void *ctx, const char *id)
{
	computer_sweep_orphan(ctx, id, 0);
}

int keeper_sweep(struct keeper *k, struct err *e)
{
	if (k->records_fd < 0)
		return 0;
	each_name(k->records_fd, sweep_record, k);
	each_name(k->run_fd, sweep_run, k);
	groups_each(isolate_groups(k->host), sweep_group, k);
	return 0;
}
