/* tree -- folders to and from a computer.
 *
 * Theory of operation. First a list (ours by walking, theirs by file.list), then one item at a time. A computer's list is hostile:
 * each path must lie below the folder asked for, every part is checked, and files are opened with openat2() so that
 * neither ".." nor a link that is already there leads out of dirfd. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "client/client_priv.h"
#include "core/fd.h"
#include "core/newfile.h"
#include "core/str.h"

#define MAX_ITEMS 100000
#define MAX_DEPTH 64

struct item { char *rel; bool dir; unsigned mode; uint64_t size; };

struct client_tree {
	struct client *c;
	struct client_tree_spec s;
	char *id, *remote, *user;
	void *ctx;
	bool put;
	struct item *items;
	size_t n, cap, at;
	uint64_t got;              /* size of the file that has just come */
	int fd;                    /* of a file on its way in */
	struct newfile out;        /* or out */
	struct client_call *call;
	struct timer soon;
	struct client_tree_end end;
	struct err err;
};

static void tree_free(struct client_tree *t)
{
	loop_disarm(t->c->loop, &t->soon);
	client_cancel(t->call);
	fd_drop(&t->fd);
	newfile_drop(&t->out);
	for (size_t i = 0; i < t->n; i++)
		free(t->items[i].rel);
	free(t->items);
	free(t->id);
	free(t->remote);
	free(t->user);
	free(t);
}

void client_tree_cancel(struct client_tree *t)
{
	if (t)
		tree_free(t);
}

static void finish(struct client_tree *t)
{
	struct client_tree_end x = t->end;
	struct err err = t->err;
	void (*end)(void *, const struct client_tree_end *) = t->s.end;
	void *ctx = t->ctx;

	tree_free(t);
	x.e = err.code ? &err : NULL;
	end(ctx, &x);
}

static int item_add(struct client_tree *t, const char *rel, bool dir, unsigned mode, uint64_t size)
{
	if (t->n == MAX_ITEMS)
		return err_set(&t->err, E2BIG, "more than %d files", MAX_ITEMS);
	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 64;
		struct item *more = reallocarray(t->items, cap, sizeof *more);

		if (!more)
			return err_set(&t->err, ENOMEM, "no memory");
		t->items = more;
		t->cap = cap;
	}
	t->items[t->n] = (struct item){ strdup(rel), dir, mode & 07777, size };
	if (!t->items[t->n].rel)
		return err_set(&t->err, ENOMEM, "no memory");
	t->n++;
	return 0;
}

/* Opens below dirfd, never through a link or out of it. */
static int open_below(int dirfd, const char *rel, int flags, mode_t mode)
{
	struct open_how how = { .flags = (uint64_t)flags | O_CLOEXEC, .mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

	return (int)syscall(SYS_openat2, dirfd, rel, &how, sizeof how);
}

/* A relative path of plain parts: not empty, no "." or "..". Its other bytes may be any: who prints it cleans it. */
static bool rel_ok(const char *rel)
{
	const char *p = rel;

	if (strlen(rel) >= PATH_MAX)
		return false;
	for (;;) {
		size_t n = strcspn(p, "/");

		if (!n || n > NAME_MAX || (n == 1 && *p == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		if (!p[n])
			return true;
		p += n + 1;
	}
}

/* The folder that rel lies in, and its name there. */
static int open_parent(int dirfd, const char *rel, const char **ret_name)
{
	char path[PATH_MAX];
	const char *slash = strrchr(rel, '/');
	int fd;

	*ret_name = slash ? slash + 1 : rel;
	if (slash && (size_t)snprintf(path, sizeof path, "%.*s", (int)(slash - rel), rel) >= sizeof path)
		return -ENAMETOOLONG;
	fd = open_below(dirfd, slash ? path : ".", O_PATH | O_DIRECTORY, 0);
	return fd < 0 ? -errno : fd;
}

static int make_folder(int dirfd, const char *rel)
{
	const char *name;
	AUTO_FD int parent = open_parent(dirfd, rel, &name);

	if (parent < 0)
		return parent;
	return mkdirat(parent, name, 0777) < 0 && errno != EEXIST ? -errno : 0;
}

static void next(struct client_tree *t);

static void item_done(void *ctx, const struct client_answer *a)
{
	struct client_tree *t = ctx;
	const struct item *it = &t->items[t->at];
	struct stat st = { .st_size = 0 };

	t->call = NULL;
	if (!a->e && !t->put && (fchmod(t->out.fd, it->mode & 0777) < 0 || fstat(t->out.fd, &st) < 0))
		err_sys(&t->err, "chmod '%s'", it->rel);
	else if (!a->e && !t->put)
		newfile_commit(&t->out, &t->err);
	t->got = (uint64_t)st.st_size;
	fd_drop(&t->fd);
	if (a->e) {
		t->err = *a->e;
		err_wrap(&t->err, "copy '%.120s'", it->rel);
	}
	if (t->err.code) {
		finish(t);
		return;
	}
	t->end.bytes += t->put ? it->size : t->got;
	t->at++;
	next(t);
}

static int start_put(struct client_tree *t, const struct item *it)
{
	char remote[PATH_MAX * 2];
	struct client_file f = { .id = t->id, .path = remote, .user = t->user, .mode = it->mode & 0777, .progress = t->s.progress };
	struct stat st;

	snprintf(remote, sizeof remote, "%s/%s", t->remote, it->rel);
	if (it->dir) {
		json_t *args = json_pack("{s:s}", "path", remote);
		char path[96];

		if (t->user)
			json_object_set_new(args, "user", json_string(t->user));
		snprintf(path, sizeof path, "/v1/sandboxes/%.40s/files/mkdir", t->id);
		t->call = client_json(t->c, "POST", path, args, false, item_done, t);
		if (t->call)
			t->call->repeatable = true;     /* one that is there already is fine */
		return 0;
	}
	t->fd = open_below(t->s.dirfd, it->rel, O_RDONLY | O_NOCTTY, 0);
	if (t->fd < 0 || fstat(t->fd, &st) < 0)
		return err_sys(&t->err, "open '%s'", it->rel);
	f.fd = t->fd;
	f.len = (uint64_t)st.st_size;
	t->call = client_put(t->c, &f, item_done, t);
	return 0;
}

static int start_get(struct client_tree *t, const struct item *it)
{
	char remote[PATH_MAX * 2];
	const char *name;
	AUTO_FD int parent = -1;
	/* a file may have grown since it was listed, but not without end */
	struct client_file f = { .id = t->id, .path = remote, .user = t->user, .progress = t->s.progress, .len = it->size + (1u << 20) };

	if (t->s.max && t->end.bytes + it->size > t->s.max)
		return err_set(&t->err, EFBIG, "the folder is larger than %llu bytes", (unsigned long long)t->s.max);
	snprintf(remote, sizeof remote, "%s/%s", t->remote, it->rel);
	parent = open_parent(t->s.dirfd, it->rel, &name);
	if (parent < 0) {
		errno = -parent;
		return err_sys(&t->err, "write '%s'", it->rel);
	}
	if (newfile_begin(&t->out, parent, name, 0666, &t->err) < 0)
		return err_wrap(&t->err, "'%.120s'", it->rel);
	f.fd = t->out.fd;
	t->call = client_get(t->c, &f, item_done, t);
	return 0;
}

static void next(struct client_tree *t)
{
	int r = 0;

	for (; t->at < t->n; t->at++) {
		const struct item *it = &t->items[t->at];

		if (it->dir) {
			t->end.folders++;
			if (!t->put) {
				r = make_folder(t->s.dirfd, it->rel);
				if (r < 0) {
					errno = -r;
					err_sys(&t->err, "make folder '%s'", it->rel);
					break;
				}
				continue;
			}
		} else {
			t->end.files++;
			if (t->s.each)
				t->s.each(t->ctx, it->rel, it->size);
		}
		r = t->put ? start_put(t, it) : start_get(t, it);
		if (r >= 0 && t->call)
			return;
		if (r >= 0)
			err_set(&t->err, ENOMEM, "no memory");
		break;
	}
	finish(t);
}

static int walk(struct client_tree *t, int root, const char *prefix, int depth)
{
	int fd = open_below(root, *prefix ? prefix : ".", O_RDONLY | O_DIRECTORY, 0), r = 0;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;

	if (!d) {
		r = err_sys(&t->err, "read folder '%s'", prefix);
		fd_drop(&fd);
		return r;
	}
	while (r >= 0 && (de = readdir(d))) {
		char rel[PATH_MAX];
		struct stat st;

		if (str_eq(de->d_name, ".") || str_eq(de->d_name, ".."))
			continue;
		if (snprintf(rel, sizeof rel, "%s%s%s", prefix, *prefix ? "/" : "", de->d_name) >= (int)sizeof rel || depth == MAX_DEPTH)
			r = err_set(&t->err, ENAMETOOLONG, "'%.200s' lies too deep", prefix);
		else if (fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			r = err_sys(&t->err, "stat '%s'", rel);
		else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
			t->end.skipped++;
		else
			r = item_add(t, rel, S_ISDIR(st.st_mode), st.st_mode, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
		if (r >= 0 && t->n && t->items[t->n - 1].dir && str_eq(t->items[t->n - 1].rel, rel))
			r = walk(t, root, rel, depth + 1);
	}
	closedir(d);
	return r;
}

static int take_entry(struct client_tree *t, const json_t *v, const char *base)
{
	const char *path = "", *type = "";
	int64_t mode = 0644, size = 0;
	size_t n = strlen(base);

	if (js_get_str(v, "path", &path, &t->err) < 0 || js_get_str(v, "type", &type, &t->err) < 0
		|| js_get_int(v, "mode", 0, 07777777, &mode, &t->err) < 0 || js_get_int(v, "size", 0, INT64_MAX, &size, &t->err) < 0)
		return -1;
	if (strncmp(path, base, n) != 0 || path[n] != '/' || !rel_ok(path + n + 1))
		return err_set(&t->err, EBADMSG, "the computer listed a path that doesn't belong there");
	if (!str_eq(type, "file") && !str_eq(type, "dir")) {
		t->end.skipped++;
		return 0;
	}
	return item_add(t, path + n + 1, *type == 'd', (unsigned)mode, *type == 'd' ? 0 : (uint64_t)size);
}

static int by_path(const void *a, const void *b) { return strcmp(((const struct item *)a)->rel, ((const struct item *)b)->rel); }

static void listed(void *ctx, const struct client_answer *a)
{
	struct client_tree *t = ctx;
	json_t *entries = NULL, *v;
	size_t i;

	t->call = NULL;
	if (a->e)
		t->err = *a->e;
	else if (js_get_arr(a->result, "entries", &entries, &t->err) == 0)
		err_set(&t->err, EBADMSG, "the server's list has no entries");
	json_array_foreach(entries, i, v) {
		if (t->err.code || take_entry(t, v, t->remote) < 0)
			break;
	}
	if (t->err.code) {
		finish(t);
		return;
	}
	if (t->n)
		qsort(t->items, t->n, sizeof *t->items, by_path);       /* parents before what is in them */
	next(t);
}

/* The folder's absolute path, as the entries below it will be named. */
static void statted(void *ctx, const struct client_answer *a)
{
	struct client_tree *t = ctx;
	json_t *entry = NULL, *args;
	const char *path = NULL;
	char url[96];
	size_t n;

	t->call = NULL;
	if (a->e)
		t->err = *a->e;
	else if (js_get_obj(a->result, "entry", &entry, &t->err) == 1 && js_get_str(entry, "path", &path, &t->err) == 1) {
		free(t->remote);
		t->remote = strdup(path);
	}
	if (!path || !t->remote) {
		if (!t->err.code)
			err_set(&t->err, EBADMSG, "the server didn't say where the folder is");
		finish(t);
		return;
	}
	n = strlen(t->remote);
	while (n && t->remote[n - 1] == '/')
		t->remote[--n] = '\0';
	args = json_pack("{s:s, s:i}", "path", n ? t->remote : "/", "depth", MAX_DEPTH);
	if (t->user)
		json_object_set_new(args, "user", json_string(t->user));
	snprintf(url, sizeof url, "/v1/sandboxes/%.40s/files/list", t->id);
	t->call = client_json(t->c, "GET", url, args, false, listed, t);
}

static void on_soon(struct timer *timer)
{
	struct client_tree *t = container_of(timer, struct client_tree, soon);
	char url[96];
	json_t *args;

	if (t->put) {
		if (walk(t, t->s.dirfd, "", 0) < 0)
			finish(t);
		else
			next(t);
		return;
	}
	args = json_pack("{s:s}", "path", t->remote);
	if (t->user)
		json_object_set_new(args, "user", json_string(t->user));
	snprintf(url, sizeof url, "/v1/sandboxes/%.40s/files/stat", t->id);
	t->call = client_json(t->c, "GET", url, args, false, statted, t);
}

static struct client_tree *tree_new(struct client *c, const struct client_tree_spec *s, bool put, void *ctx)
{
	struct client_tree *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->c = c;
	t->s = *s;
	t->id = strdup(s->id);
	t->remote = strdup(s->remote);
	t->user = s->user ? strdup(s->user) : NULL;
	t->ctx = ctx;
	t->put = put;
	t->fd = -1;
	t->out = (struct newfile)NEWFILE_INIT;
	t->soon.fire = on_soon;
	if (!t->id || !t->remote || (s->user && !t->user)) {
		tree_free(t);
		return NULL;
	}
	loop_arm(c->loop, &t->soon, 0);
	return t;
}

struct client_tree *client_tree_put(struct client *c, const struct client_tree_spec *s, void *ctx) { return tree_new(c, s, true, ctx); }
struct client_tree *client_tree_get(struct client *c, const struct client_tree_spec *s, void *ctx) { return tree_new(c, s, false, ctx); }
