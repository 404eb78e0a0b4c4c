/* api_cp -- bureau sandbox cp: files and folders in and out, '-' for a stream. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/api.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/newfile.h"
#include "core/str.h"

#define SHOW_FROM (8u << 20)

struct copy { struct api *a; struct err err; struct client_tree_end end; int64_t shown; bool any; const char *name; };

/* "ID:PATH": where the path begins, or NULL for a local one. id gets the id. */
static const char *remote_path(const char *s, char id[40])
{
	const char *colon = strchr(s, ':');
	size_t n = colon ? (size_t)(colon - s) : 0;

	if (!colon || n >= 40)
		return NULL;
	memcpy(id, s, n);
	id[n] = '\0';
	return str_id(id) ? colon + 1 : NULL;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct copy *c = ctx;
	int64_t now = clock_mono_ms();
	char have[16], all[16];

	if ((total ? total : done) < SHOW_FROM || now - c->shown < 200 || !isatty(STDERR_FILENO))
		return;
	c->shown = now;
	c->any = true;
	str_size_human(done, have);
	str_size_human(total, all);
	if (total)
		fprintf(stderr, "\r\033[K%s  %s of %s, %d %%", c->name ? c->name : "", have, all, (int)(done * 100 / total));
	else
		fprintf(stderr, "\r\033[K%s  %s", c->name ? c->name : "", have);
}

static void on_copied(void *ctx, const struct client_answer *ans)
{
	struct copy *c = ctx;

	if (ans->e)
		c->err = *ans->e;
	loop_quit(c->a->loop, 0);
}

static void on_tree(void *ctx, const struct client_tree_end *x)
{
	struct copy *c = ctx;

	if (x->e)
		c->err = *x->e;
	c->end = *x;
	loop_quit(c->a->loop, 0);
}

static int finish(struct copy *c)
{
	if (c->any)
		fputs("\r\033[K", stderr);
	if (c->end.skipped)
		fprintf(stderr, "bureau: %u links and special files were left out\n", c->end.skipped);
	if (c->err.code)
		return api_fail(&c->err);
	if (c->a->o.json) {
		AUTO_JSON json_t *v = json_pack("{s:s, s:s, s:i}", "from", c->a->argv[0], "to", c->a->argv[1], "left_out", (int)c->end.skipped);

		api_json(v);
	}
	return API_OK;
}

/* -1 missing, 0 a file, 1 a folder; -errno below -1 */
static int remote_kind(struct api *a, const char *id, const char *path, struct err *e)
{
	AUTO_JSON json_t *v = NULL;
	json_t *args = json_pack("{s:s}", "path", path);
	const char *type;
	char url[128];
	int r;

	if (a->o.user)
		json_object_set_new(args, "user", json_string(a->o.user));
	snprintf(url, sizeof url, "/v1/sandboxes/%s/files/stat", id);
	r = api_call(a, "GET", url, args, &v, e);
	if (r < 0)
		return r == -ENOENT ? -1 : r < -1 ? r : -EIO;
	type = json_string_value(json_object_get(json_object_get(v, "entry"), "type"));
	return type && str_eq(type, "dir");
}

/* stdin of unknown length goes through a nameless file: its length is needed first */
static int spool(int *ret_fd, struct err *e)
{
	AUTO_FD int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char piece[65536];
	ssize_t n;

	if (fd < 0)
		return err_sys(e, "make a file in /tmp");
	while ((n = read(STDIN_FILENO, piece, sizeof piece)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, "read stdin");
		if (fd_write_all(fd, piece, (size_t)n, e) < 0)
			return -e->code;
	}
	lseek(fd, 0, SEEK_SET);
	*ret_fd = fd_take(&fd);
	return 0;
}

static int put_file(struct api *a, const char *from, int fd, const char *id, const char *to)
{
	struct copy c = { .a = a, .name = from };
	struct client_file f = { .id = id, .path = to, .user = a->o.user, .fd = fd, .progress = on_progress };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(&c.err, "stat '%.200s'", from), api_fail(&c.err);
	f.len = (uint64_t)st.st_size;
	f.mode = str_eq(from, "-") ? 0644 : st.st_mode & 0777;
	if (!client_put(a->client, &f, on_copied, &c))
		return API_FAILED;
	loop_run(a->loop);
	return finish(&c);
}

static int put_tree(struct api *a, int fd, const char *id, const char *to)
{
	struct copy c = { .a = a };
	struct client_tree_spec s = { .id = id, .remote = to, .user = a->o.user, .dirfd = fd, .progress = on_progress, .end = on_tree };

	if (!client_tree_put(a->client, &s, &c))
		return API_FAILED;
	loop_run(a->loop);
	return finish(&c);
}

static int copy_in(struct api *a, const char *from, const char *id, const char *to)
{
	char path[PATH_MAX];
	struct err e = { 0 };
	AUTO_FD int fd = -1;
	struct stat st;
	bool into;
	int kind;

	if (str_eq(from, "-")) {
		if (spool(&fd, &e) < 0)
			return api_fail(&e);
		return put_file(a, from, fd, id, to);
	}
	fd = open(from, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(&e, "open '%.200s'", from), api_fail(&e);
	kind = *to && !str_ends(to, "/") ? remote_kind(a, id, to, &e) : 1;
	if (kind < -1)
		return api_fail(&e);
	into = kind == 1;
	if (into) {
		AUTO_FREE char *real = realpath(from, NULL);
		size_t n = strlen(to);

		/* of "." and "dir/" the name is the folder's own */
		snprintf(path, sizeof path, "%s%s%s", to, n && to[n - 1] != '/' ? "/" : "", base_of(real ? real : from));
	} else {
		snprintf(path, sizeof path, "%s", to);
	}
	return S_ISDIR(st.st_mode) ? put_tree(a, fd, id, path) : put_file(a, from, fd, id, path);
}

/* out NULL: fd is written to as it comes */
static int get_file(struct api *a, const char *id, const char *from, int fd, struct newfile *out)
{
	struct copy c = { .a = a, .name = from };
	struct client_file f = { .id = id, .path = from, .user = a->o.user, .fd = fd, .progress = on_progress };

	if (!client_get(a->client, &f, on_copied, &c))
		return API_FAILED;
	loop_run(a->loop);
	if (out && !c.err.code)
		newfile_commit(out, &c.err);
	return finish(&c);
}

static int get_tree(struct api *a, const char *id, const char *from, const char *to)
{
	struct copy c = { .a = a };
	AUTO_FD int fd = -1;
	struct client_tree_spec s = { .id = id, .remote = from, .user = a->o.user, .progress = on_progress, .end = on_tree };

	if (fd_mkdirs(to, 0777, &c.err) < 0)
		return api_fail(&c.err);
	fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(&c.err, "open '%.200s'", to), api_fail(&c.err);
	s.dirfd = fd;
	if (!client_tree_get(a->client, &s, &c))
		return API_FAILED;
	loop_run(a->loop);
	return finish(&c);
}

/* What isn't a file to be replaced: pipes, devices, and what is open already by another name. */
static bool written_as_it_is(const char *path, const struct stat *st)
{
	return !S_ISREG(st->st_mode) || str_starts(path, "/dev/") || str_starts(path, "/proc/");
}

/* The target appears whole, or stays what it was. Through a link, what it leads to is replaced, not the link. */
static int get_whole(struct api *a, const char *id, const char *from, const char *to)
{
	AUTO(newfile_drop) struct newfile out = NEWFILE_INIT;
	AUTO_FREE char *real = realpath(to, NULL), *folder = strdup(real ? real : to);
	AUTO_FD int dir = -1;
	struct err e = { 0 };
	struct stat st;
	char *slash;

	if (!real && lstat(to, &st) == 0)
		return err_sys(&e, "write '%.200s': where the link leads", to), api_fail(&e);
	slash = folder ? strrchr(folder, '/') : NULL;
	if (slash)
		slash[slash == folder] = '\0';
	dir = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!folder || dir < 0)
		return err_sys(&e, "write '%.200s'", to), api_fail(&e);
	if (newfile_begin(&out, dir, base_of(real ? real : to), 0666, &e) < 0) {
		if (strchr(to, '/'))
			err_wrap(&e, "copy to '%.200s'", to);
		return api_fail(&e);
	}
	return get_file(a, id, from, out.fd, &out);
}

static int copy_out(struct api *a, const char *id, const char *from, const char *to)
{
	char path[PATH_MAX], name[NAME_MAX + 1];
	struct err e = { 0 };
	AUTO_FD int fd = -1;
	struct stat st;
	int kind;
	size_t n;

	if (str_eq(to, "-"))
		return get_file(a, id, from, STDOUT_FILENO, NULL);
	kind = remote_kind(a, id, from, &e);
	if (kind < 0)
		return api_fail(&e);
	snprintf(path, sizeof path, "%s", from);
	for (n = strlen(path); n > 1 && path[n - 1] == '/';)
		path[--n] = '\0';
	if (str_copy(name, sizeof name, base_of(path)) < 0 || !*name || str_eq(name, ".") || str_eq(name, ".."))
		str_copy(name, sizeof name, id);
	if (str_ends(to, "/") || (stat(to, &st) == 0 && S_ISDIR(st.st_mode)))
		snprintf(path, sizeof path, "%.3800s%s%s", to, str_ends(to, "/") ? "" : "/", name);
	else
		snprintf(path, sizeof path, "%s", to);
	if (kind == 1)
		return get_tree(a, id, from, path);
	if (stat(path, &st) < 0 || !written_as_it_is(path, &st))
		return get_whole(a, id, from, path);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return err_sys(&e, "write '%.200s'", path), api_fail(&e);
	return get_file(a, id, from, fd, NULL);
}

int api_sandbox_cp(struct api *a)
{
	char from_id[40] = "", to_id[40] = "";
	const char *from = remote_path(a->argv[0], from_id), *to = remote_path(a->argv[1], to_id);
	struct err e = { 0 };

	if (!from == !to) {
		err_set(&e, EINVAL, from ? "one side must be on this machine" : "one side must be in a sandbox: ID:PATH");
		return api_fail(&e);
	}
	if (a->o.json && !to && str_eq(a->argv[1], "-")) {
		err_set(&e, EINVAL, "--json and '-' can't both have stdout");
		return api_fail(&e);
	}
	return to ? copy_in(a, a->argv[0], to_id, to) : copy_out(a, from_id, from, a->argv[1]);
}
