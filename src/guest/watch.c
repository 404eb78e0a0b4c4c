/* watch -- theory of operation.
 *
 * One inotify instance for each G_WATCH. A recursive one has an inotify watch for every folder of the tree. Folders
 * wait in a list to be entered: each is watched first and read afterwards, so nothing falls between; what the reading
 * finds in a folder made after the start is reported, since its own event may have been missed (a name may so be told
 * twice, never not at all). A few folders a turn: a huge tree doesn't stop the loop; the G_OK comes when all are entered.
 * A folder that is moved away loses the watches below it, one that is moved in is entered like a new one, without
 * reporting what it brought. Events wait in the kernel while the connection is full; when the kernel drops some, or
 * there are more folders than we watch, the watch ends and says so: an incomplete one would be a lie. */
#include "guest/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/map.h"
#include "core/str.h"
#include "guest/file.h"
#include "guest/path.h"

#define MASK (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define TURN_FOLDERS 32
#define TOO_MUCH "more happened than could be told"
#define FOLDER_NAMES 262144     /* names looked at in one folder */

struct todo { struct list node; bool report; char rel[]; };

struct watch {
	struct list node;
	struct conn *c;
	uint32_t id;
	bool recursive, with_entry, started;
	bool lost;              /* an event didn't fit into the connection's queue: the end is told once it has room */
	struct user user;
	struct source src;
	struct map *rels;       /* watch descriptor → path relative to root ("" = root itself) */
	int root_wd;
	struct list todo;
	size_t ntodo;
	struct job enter;
	char root[GUEST_PATH + 1];
};

static void watch_free(struct watch *w);

/* ---- telling ---- */

static void send_end(struct watch *w, int code, const char *why)
{
	struct msg_writer m;
	struct err e;

	if (w->started) {
		conn_begin(&m, G_WATCH_END, w->id);
		msg_put_u32(&m, (uint32_t)code);
		msg_put_str(&m, why);
		conn_send(w->c, &m);
	} else {
		err_set(&e, code, "%s", why);
		conn_err(w->c, w->id, &e);
	}
	watch_free(w);
}

static void full_path(const struct watch *w, const char *rel, char *out)
{
	if (snprintf(out, GUEST_PATH + 1, "%s%s%s", w->root, rel[0] && w->root[1] ? "/" : "", rel) > GUEST_PATH)
		out[0] = '\0';
}

static void send_event(struct watch *w, uint8_t kind, const char *rel)
{
	char path[GUEST_PATH + 1];
	struct msg_writer m, without;
	struct err e;
	bool want = w->with_entry && (kind == GUEST_CREATE || kind == GUEST_MODIFY || kind == GUEST_CHMOD);

	conn_begin(&m, G_EVENT, w->id);
	msg_put_u8(&m, kind);
	msg_put_str(&m, rel);
	without = m;
	if (want) {
		full_path(w, rel, path);
		msg_put_u8(&m, 1);
		act_begin(&w->user);
		want = entry_put(&w->c->g->users, &m, path, &e) == 0;
		act_end(&w->user);
	}
	if (!want) {
		m = without;
		msg_put_u8(&m, 0);
	}
	if (!w->lost && conn_send(w->c, &m) == -ENOBUFS)
		w->lost = true;
}

/* Nothing more is told; watch_resume_conn ends it. */
static bool silenced(struct watch *w)
{
	if (!w->lost)
		return false;
	loop_remove(w->c->g->loop, &w->src);
	loop_cancel(w->c->g->loop, &w->enter);
	return true;
}

/* ---- the folders ---- */

static int push(struct watch *w, const char *rel, bool report)
{
	size_t n = strlen(rel) + 1;
	struct todo *t;

	if (w->ntodo >= GUEST_WATCH_DIRS)
		return -ENOSPC;
	t = malloc(sizeof *t + n);
	if (!t)
		return -ENOMEM;
	w->ntodo++;
	t->report = report;
	memcpy(t->rel, rel, n);
	list_append(&w->todo, &t->node);
	loop_defer(w->c->g->loop, &w->enter);
	return 0;
}

static void todo_free(struct watch *w, struct todo *t)
{
	list_unlink(&t->node);
	free(t);
	w->ntodo--;
}

static const char *why(int rc)
{
	return rc == -ENOSPC ? "more folders or names than can be watched" : strerror(-rc);
}

/* Watches root/rel. 0, 1 when it's no folder (any more), -errno */
static int add_folder(struct watch *w, const char *rel)
{
	char path[GUEST_PATH + 1], *copy, *old;
	int wd;

	if (map_count(w->rels) >= GUEST_WATCH_DIRS)
		return -ENOSPC;
	full_path(w, rel, path);
	wd = inotify_add_watch(w->src.fd, path, MASK | (rel[0] ? IN_DONT_FOLLOW : 0));
	if (wd < 0)
		return errno == ENOSPC || errno == ENOMEM || !rel[0] ? -errno : 1;
	copy = strdup(rel);
	old = map_get_u64(w->rels, (uint64_t)wd);
	if (!copy || map_put_u64(w->rels, (uint64_t)wd, copy) < 0) {
		free(copy);
		return -ENOMEM;
	}
	free(old);
	if (!rel[0])
		w->root_wd = wd;
	return 0;
}

static bool is_dir(int dirfd, const struct dirent *ent)
{
	struct stat st;

	if (ent->d_type != DT_UNKNOWN)
		return ent->d_type == DT_DIR;
	return fstatat(dirfd, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int read_folder(struct watch *w, const struct todo *t)
{
	char path[GUEST_PATH + 1], rel[GUEST_PATH + 1];
	struct dirent *ent;
	DIR *dir;
	int rc = 0;

	full_path(w, t->rel, path);
	dir = opendir(path);
	for (int i = 0; dir && rc == 0 && (ent = readdir(dir)); i++) {
		if (i == FOLDER_NAMES) {
			rc = -ENOSPC;
			break;
		}
		if (str_eq(ent->d_name, ".") || str_eq(ent->d_name, ".."))
			continue;
		if (snprintf(rel, sizeof rel, "%s%s%s", t->rel, t->rel[0] ? "/" : "", ent->d_name) >= (int)sizeof rel)
			continue;
		if (t->report)
			send_event(w, GUEST_CREATE, rel);
		if (is_dir(dirfd(dir), ent))
			rc = push(w, rel, t->report);
	}
	if (dir)
		closedir(dir);
	return rc;
}

static int enter(struct watch *w, const struct todo *t)
{
	int rc;

	act_begin(&w->user);
	rc = add_folder(w, t->rel);
	if (rc == 0 && w->recursive)
		rc = read_folder(w, t);
	act_end(&w->user);
	return rc;
}

static void enter_some(struct job *j)
{
	struct watch *w = container_of(j, struct watch, enter);

	for (int i = 0; i < TURN_FOLDERS && !list_empty(&w->todo); i++) {
		struct todo *t = container_of(w->todo.next, struct todo, node);
		int rc = enter(w, t);

		todo_free(w, t);
		if (rc < 0) {
			send_end(w, -rc, why(rc));
			return;
		}
		if (silenced(w))
			return;
	}
	if (!list_empty(&w->todo)) {
		loop_defer(w->c->g->loop, j);
	} else if (!w->started) {
		w->started = true;
		conn_ok(w->c, w->id);
	}
}

struct prefix { struct watch *w; const char *rel; size_t len; };

static void drop_below(void *ctx, const char *key, uint64_t wd, void *value)
{
	struct prefix *p = ctx;
	const char *rel = value;

	if (strncmp(rel, p->rel, p->len) != 0 || (rel[p->len] != '/' && rel[p->len] != '\0'))
		return;
	inotify_rm_watch(p->w->src.fd, (int)wd);
	map_del_u64(p->w->rels, wd);
	free(value);
}

/* ---- events ---- */

static void drop_folder(struct watch *w, const char *rel)
{
	struct prefix p = { w, rel, strlen(rel) };

	map_each(w->rels, drop_below, &p);
	list_each(it, &w->todo) {
		struct todo *t = container_of(it, struct todo, node);

		if (strncmp(t->rel, rel, p.len) == 0 && (t->rel[p.len] == '/' || t->rel[p.len] == '\0')) {
			todo_free(w, t);
		}
	}
}

static const struct { uint32_t bit; uint8_t kind; } kinds[] = {
	{ IN_CREATE, GUEST_CREATE }, { IN_MOVED_TO, GUEST_CREATE }, { IN_MODIFY, GUEST_MODIFY }, { IN_DELETE, GUEST_DELETE },
	{ IN_MOVED_FROM, GUEST_RENAME }, { IN_ATTRIB, GUEST_CHMOD },
};

/* 0, or 1 when the watch ended. */
static int one_event(struct watch *w, const struct inotify_event *ev)
{
	char rel[GUEST_PATH + 1];
	const char *base;
	int rc;

	if (ev->mask & IN_Q_OVERFLOW)
		return send_end(w, EOVERFLOW, TOO_MUCH), 1;
	if (ev->wd == w->root_wd && (ev->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)))
		return send_end(w, ENOENT, "the watched folder is gone"), 1;
	base = map_get_u64(w->rels, (uint64_t)ev->wd);
	if (!base)
		return 0;
	if (ev->mask & IN_IGNORED) {
		free(map_del_u64(w->rels, (uint64_t)ev->wd));
		return 0;
	}
	if (!ev->len && !(ev->mask & IN_ATTRIB && ev->wd == w->root_wd))
		return 0;       /* about a folder itself: its parent tells the same with its name */
	if (snprintf(rel, sizeof rel, "%s%s%s", base, base[0] && ev->len ? "/" : "", ev->len ? ev->name : "") >= (int)sizeof rel)
		return 0;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (ev->mask & kinds[i].bit)
			send_event(w, kinds[i].kind, rel[0] ? rel : ".");
	if (!w->recursive || !(ev->mask & IN_ISDIR))
		return 0;
	if (ev->mask & IN_MOVED_FROM)
		drop_folder(w, rel);
	if (ev->mask & (IN_CREATE | IN_MOVED_TO) && (rc = push(w, rel, ev->mask & IN_CREATE)) < 0)
		return send_end(w, -rc, why(rc)), 1;
	return 0;
}

static void ready(struct source *s, uint32_t events)
{
	_Alignas(struct inotify_event) char buf[8192];
	struct watch *w = container_of(s, struct watch, src);
	ssize_t n = read(s->fd, buf, sizeof buf);

	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *ev = (const struct inotify_event *)(buf + at);

		if (one_event(w, ev))
			return;
		at += (ssize_t)(sizeof *ev + ev->len);
	}
	if (silenced(w))
		return;
	if (link_full(w->c->link))
		loop_mod(w->c->g->loop, s, 0);
}

/* ---- requests ---- */

static void free_value(void *ctx, const char *key, uint64_t num, void *value)
{
	free(value);
}

static void watch_free(struct watch *w)
{
	struct guest *g = w->c->g;

	loop_remove(g->loop, &w->src);
	loop_cancel(g->loop, &w->enter);
	if (w->src.fd >= 0)
		close(w->src.fd);
	list_each(it, &w->todo)
		free(container_of(it, struct todo, node));
	if (w->rels)
		map_each(w->rels, free_value, NULL);
	map_free(w->rels);
	list_unlink(&w->node);
	g->nwatches--;
	free(w);
}

struct watch *watch_find(struct conn *c, uint32_t id)
{
	list_each(it, &c->watches) {
		struct watch *w = container_of(it, struct watch, node);

		if (w->id == id)
			return w;
	}
	return NULL;
}

void watch_stop(struct conn *c, uint32_t id)
{
	struct watch *w = watch_find(c, id);

	if (w)
		watch_free(w);
}

void watch_close_conn(struct conn *c)
{
	list_each(it, &c->watches)
		watch_free(container_of(it, struct watch, node));
}

void watch_resume_conn(struct conn *c)
{
	list_each(it, &c->watches) {
		struct watch *w = container_of(it, struct watch, node);

		if (w->lost)
			send_end(w, EOVERFLOW, TOO_MUCH);
		else
			loop_mod(c->g->loop, &w->src, EPOLLIN);
	}
}

/* inotify on a mount that others change too sees only our own changes. */
static bool network_mount(const char *path)
{
	static const unsigned long types[] = { NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, 0xff534d42 /* CIFS */, 0xfe534d42 /* SMB2 */, FUSE_SUPER_MAGIC, V9FS_MAGIC };
	struct statfs fs;

	if (statfs(path, &fs) < 0)
		return false;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (((unsigned long)fs.f_type & 0xffffffff) == types[i])
			return true;
	return false;
}

static int check_root(const struct watch *w, bool network_too, struct err *e)
{
	struct stat st;

	if (stat(w->root, &st) < 0)
		return errno == ENOENT ? err_set(e, ENOENT, "path '%.250s' does not exist", w->root) : err_sys(e, "stat '%s'", w->root);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ENOTDIR, "path '%.250s' is not a directory", w->root);
	if (!network_too && network_mount(w->root))
		return err_set(e, EINVAL, "path '%.250s' is on a network filesystem, which tells only of changes made here", w->root);
	return 0;
}

static int open_watch(struct watch *w, const char *path, const char *user, bool network_too, struct err *e)
{
	struct guest *g = w->c->g;
	int rc = users_find(&g->users, user, &w->user, e);

	if (rc == 0 && g->nwatches > GUEST_WATCHES)
		rc = err_set(e, EAGAIN, "%u folders are watched already", GUEST_WATCHES);
	if (rc == 0)
		rc = path_resolve(path, w->user.home, w->root, sizeof w->root, e);
	if (rc < 0)
		return rc;
	act_begin(&w->user);
	rc = check_root(w, network_too, e);
	act_end(&w->user);
	if (rc < 0)
		return rc;
	w->src.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->src.fd < 0)
		return err_sys(e, "watch '%s'", w->root);
	if (map_create(&w->rels) < 0 || push(w, "", false) < 0)
		return err_set(e, ENOMEM, "no memory for a watch");
	return loop_add(g->loop, &w->src, EPOLLIN, e);
}

void watch_start(struct conn *c, struct msg_reader *r)
{
	const char *path = msg_get_str(r, GUEST_PATH), *user = msg_get_str(r, 63);
	bool recursive = msg_get_u8(r), with_entry = msg_get_u8(r), network_too = msg_get_u8(r);
	struct watch *w;
	struct err e;

	if (msg_reader_end(r, &e) < 0)
		return;
	w = conn_id_used(c, r->id) ? NULL : calloc(1, sizeof *w);
	if (!w) {
		err_set(&e, conn_id_used(c, r->id) ? EEXIST : ENOMEM, "no watch with id %u can be made", r->id);
		conn_err(c, r->id, &e);
		return;
	}
	w->c = c;
	w->id = r->id;
	w->recursive = recursive;
	w->with_entry = with_entry;
	w->root_wd = -1;
	w->src = (struct source){ .fd = -1, .name = "watch", .ready = ready };
	w->enter.run = enter_some;
	list_init(&w->todo);
	list_append(&c->watches, &w->node);
	c->g->nwatches++;
	if (open_watch(w, path, user, network_too, &e) < 0) {
		conn_err(c, r->id, &e);
		watch_free(w);
	}
}
