/* sqlite -- the store. Theory of operation.
 *
 * All calls come from the daemon's loop, so none may wait for a disk. Writes go to sqlite's log (WAL) and from there, every 1,000 pages,
 * to the file; both are left to the kernel's cache (synchronous=OFF) and outlive any death of ours. What a power cut leaves is only
 * sure after a clean end, which does sync. So DIR/boot names the boot of this host that is writing, and goes with a clean end: found from
 * another boot, the file is checked from end to end before it's used, and set aside when it's torn. Its computers died with the host. */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/fd.h"
#include "core/str.h"

/* The columns of a row, in the order that bind_row() and read_row() use. */
#define COLUMNS "id, slot, state, template, net, secure, token, started, ends, ended, why, why_text, by, metadata, " \
	"memory, cpu, pids, disk, inodes, files, unenforced"

/* How much of a mark's key or value is in the index. */
#define MARK(text) "substr(" text ", 1, 200)"

/* One step a version; user_version says how many were taken. Never change one that was released: add the next. */
static const char *const migrations[] = {
	"CREATE TABLE sandboxes("
	" id TEXT PRIMARY KEY, slot INTEGER NOT NULL, state TEXT NOT NULL, template TEXT NOT NULL, net INTEGER NOT NULL,"
	" secure INTEGER NOT NULL, token TEXT NOT NULL, started INTEGER NOT NULL, ends INTEGER NOT NULL, ended INTEGER NOT NULL,"
	" why TEXT NOT NULL, why_text TEXT NOT NULL, by TEXT NOT NULL, metadata TEXT,"
	" memory INTEGER NOT NULL, cpu INTEGER NOT NULL, pids INTEGER NOT NULL, disk INTEGER NOT NULL, inodes INTEGER NOT NULL,"
	" files INTEGER NOT NULL, unenforced INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE INDEX live ON sandboxes(started, id) WHERE ended = 0;"
	"CREATE INDEX tombs ON sandboxes(started, id) WHERE ended > 0;"
	"CREATE INDEX tombs_by_end ON sandboxes(ended) WHERE ended > 0;",

	/* Which computers carry a mark, in a list's order. Of a long one its beginning: who asks looks at the row all the same. */
	"CREATE TABLE marks(key TEXT, value TEXT, begun INTEGER, computer TEXT, PRIMARY KEY(key, value, begun, computer)) WITHOUT ROWID;"
	"CREATE TRIGGER mark AFTER INSERT ON sandboxes WHEN new.metadata IS NOT NULL BEGIN"
	" INSERT OR IGNORE INTO marks SELECT " MARK("key") ", " MARK("value") ", new.started, new.id FROM json_each(new.metadata); END;"
	"CREATE TRIGGER unmark AFTER DELETE ON sandboxes WHEN old.metadata IS NOT NULL BEGIN"
	" DELETE FROM marks WHERE begun = old.started AND computer = old.id AND (key, value) IN"
	" (SELECT " MARK("key") ", " MARK("value") " FROM json_each(old.metadata)); END;"
	"INSERT OR IGNORE INTO marks SELECT " MARK("j.key") ", " MARK("j.value") ", s.started, s.id FROM sandboxes s, json_each(s.metadata) j"
	" WHERE json_valid(s.metadata);"
	"DROP INDEX tombs;"
	"CREATE INDEX starts ON sandboxes(started, id);",

	/* The template is a mark too (STORE_TEMPLATE). */
	"CREATE TRIGGER mark_template AFTER INSERT ON sandboxes BEGIN"
	" INSERT OR IGNORE INTO marks VALUES('', new.template, new.started, new.id); END;"
	"CREATE TRIGGER unmark_template AFTER DELETE ON sandboxes BEGIN"
	" DELETE FROM marks WHERE key = '' AND value = old.template AND begun = old.started AND computer = old.id; END;"
	"INSERT OR IGNORE INTO marks SELECT '', template, started, id FROM sandboxes;",
};
#define MARKS_TRIED 16
#define ASIDE_MAX 9
#define PRUNE_AT_ONCE 1000
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define VERSION ((int)(sizeof migrations / sizeof migrations[0]))

enum stmt { ST_PUT, ST_ENDS, ST_END, ST_GET, ST_PRUNE_AGE, ST_PRUNE_ROWS, ST_MARKED, ST_LIST, ST_COUNT = ST_LIST + 16 };

static const char *const sql[ST_LIST] = {
	[ST_PUT] = ("INSERT OR REPLACE INTO sandboxes(" COLUMNS ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"),
	[ST_ENDS] = "UPDATE sandboxes SET ends = ?2 WHERE id = ?1 AND ended = 0",
	[ST_END] = "UPDATE sandboxes SET state = ?2, ended = ?3, why = ?4, why_text = ?5, by = ?6, token = '' WHERE id = ?1 AND ended = 0",
	[ST_GET] = "SELECT " COLUMNS " FROM sandboxes WHERE id = ?1",
	/* some at a time: nobody waits long for the loop */
	[ST_PRUNE_AGE] = ("DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes WHERE ended > 0 AND ended < ?1 "
		"ORDER BY ended LIMIT " TEXT(PRUNE_AT_ONCE) ")"),
	[ST_PRUNE_ROWS] = ("DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes WHERE ended > 0 ORDER BY ended "
		"LIMIT min(" TEXT(PRUNE_AT_ONCE) ", max(0, (SELECT count(*) FROM sandboxes WHERE ended > 0) - ?1)))"),
	[ST_MARKED] = "SELECT count(*) FROM (SELECT 1 FROM marks WHERE key = " MARK("?1") " AND value = " MARK("?2") " LIMIT 1000)",
};

struct store {
	sqlite3 *db;
	char *path, *boot_file;
	char *aside;             /* where the torn one is that this one replaced; NULL = none was */
	sqlite3_stmt *st[ST_COUNT];
};

static int sql_fail(struct store *s, struct err *e, const char *what)
{
	int rc = sqlite3_errcode(s->db) & 0xff;

	return err_set(e, rc == SQLITE_FULL ? ENOSPC : rc == SQLITE_NOMEM ? ENOMEM : rc == SQLITE_BUSY ? EBUSY :
		rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? EBADMSG : EIO,
		"store: %s: %s", what, sqlite3_errmsg(s->db));
}

static int run(struct store *s, const char *text, struct err *e)
{
	return sqlite3_exec(s->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : sql_fail(s, e, "set up");
}

static int migrate(struct store *s, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int version = -1, r = 0;
	char pragma[40];

	if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
		version = sqlite3_column_int(st, 0);
	sqlite3_finalize(st);
	if (version < 0)
		return sql_fail(s, e, "read its version");
	if (version > VERSION)
		return err_set(e, EPROTO, "store: made by a newer bureau (version %d, this one knows %d)", version, VERSION);
	for (; version < VERSION && r == 0; version++) {
		snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", version + 1);
		r = run(s, "BEGIN IMMEDIATE", e);
		if (r == 0)
			r = run(s, migrations[version], e);
		if (r == 0)
			r = run(s, pragma, e);
		if (r == 0)
			r = run(s, "COMMIT", e);
	}
	return r;
}

/* sqlite opens what it finds, and would wait for the writer of a FIFO. */
static int look_at(const struct store *s, struct err *e)
{
	static const char *const tails[] = { "", "-wal", "-journal", "-shm" };
	struct stat st;

	for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
		AUTO_FREE char *path = NULL;

		if (asprintf(&path, "%s%s", s->path, tails[i]) < 0) {
			path = NULL;
			return err_set(e, ENOMEM, "store: no memory");
		}
		if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
			err_set(e, EINVAL, "store: '%s' isn't a regular file", path);
			return err_hint(e, "move it away");
		}
	}
	return 0;
}

static int open_db(struct store *s, struct err *e)
{
	int r = look_at(s, e);
	mode_t old;

	if (r < 0)
		return r;
	old = umask(077);
	r = sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK
		? 0 : sql_fail(s, e, s->path);

	if (r == 0) {
		sqlite3_busy_timeout(s->db, 2000);
		/* exclusive: one daemon a store, so no shared-memory file and no lock a transaction. recursive_triggers: a row that is
		 * replaced is a row that is deleted */
		r = run(s, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY;"
			"PRAGMA foreign_keys=ON; PRAGMA recursive_triggers=ON; PRAGMA trusted_schema=OFF; PRAGMA wal_autocheckpoint=1000;"
			"PRAGMA cache_size=-4000", e);
	}
	if (r == 0)
		r = migrate(s, e);
	umask(old);
	return r;
}

static int check_db(struct store *s, struct err *e)
{
	sqlite3_stmt *st = NULL;
	const char *says = NULL;
	int r = 0;

	if (sqlite3_prepare_v2(s->db, "PRAGMA integrity_check(1)", -1, &st, NULL) != SQLITE_OK || sqlite3_step(st) != SQLITE_ROW)
		r = sql_fail(s, e, "check it");
	else if ((says = (const char *)sqlite3_column_text(st, 0)) == NULL || !str_eq(says, "ok"))
		r = err_set(e, EBADMSG, "store: damaged: %.150s", says ? says : "");
	sqlite3_finalize(st);
	return r;
}

static void close_db(struct store *s)
{
	for (int i = 0; i < ST_COUNT; i++) {
		sqlite3_finalize(s->st[i]);
		s->st[i] = NULL;
	}
	sqlite3_close(s->db);
	s->db = NULL;
}

/* DIR/bureau.db.damaged, for those who want to look (or .damaged.1 to 9, when a folder is in the way); its log would be taken for
 * the new one's. */
static int set_aside(struct store *s, struct err *e)
{
	AUTO_FREE char *wal = NULL;
	char aside[PATH_MAX];
	int r = -1;

	if (asprintf(&wal, "%s-wal", s->path) < 0)
		return wal = NULL, err_set(e, ENOMEM, "store: no memory");
	for (unsigned n = 0; n <= ASIDE_MAX && r < 0; n++) {
		if (snprintf(aside, sizeof aside, n ? "%s.damaged.%u" : "%s.damaged", s->path, n) >= (int)sizeof aside)
			return err_set(e, ENAMETOOLONG, "store: '%s' is too long a name", s->path);
		r = rename(s->path, aside);
		if (r < 0 && errno != EISDIR)
			break;
	}
	if (r < 0 || (unlink(wal) < 0 && errno != ENOENT))
		return err_sys(e, "set the damaged store '%s' aside", s->path);
	s->aside = strdup(aside);
	return s->aside ? 0 : err_set(e, ENOMEM, "store: no memory");
}

/* Did another boot of this host write here last, without a clean end? What can't be read isn't of this boot. ret_named: it says
 * this boot already. */
static bool was_cut(const struct store *s, const char *boot, bool *ret_named)
{
	AUTO_FREE char *last = NULL;
	size_t n;
	int r = fd_read_regular(AT_FDCWD, s->boot_file, 100, &last, &n, NULL);

	*ret_named = r == 0 && str_eq(last, boot);
	return r != -ENOENT && !*ret_named;
}

static int open_whole(struct store *s, struct err *e)
{
	AUTO_FREE char *boot = NULL;
	size_t n = 0;
	bool cut, named;
	int r;

	/* who can't see it checks after every end that wasn't clean */
	if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 100, &boot, &n, e) < 0)
		n = 0;
	cut = was_cut(s, n ? boot : "", &named);
	r = open_db(s, e);
	if (r == 0 && cut)
		r = check_db(s, e);
	if (r == -EBADMSG && cut) {
		close_db(s);
		r = set_aside(s, e);
		if (r == 0)
			r = open_db(s, e);
	}
	/* not again after a kill: the disk may be full by now */
	if (r == 0 && !named)
		r = fd_write_file(AT_FDCWD, s->boot_file, 0600, n ? boot : "?", n ? n : 1, e);
	/* a folder of that name says the same as a boot's name that can't be read: to be checked */
	if (r == -EISDIR)
		r = 0;
	return r < 0 ? r : run(s, "PRAGMA synchronous=OFF", e);
}

int store_open(const char *dir, struct store **ret, struct err *e)
{
	struct store *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return err_set(e, ENOMEM, "store: no memory");
	if (asprintf(&s->path, "%s/bureau.db", dir) < 0 || asprintf(&s->boot_file, "%s/boot", dir) < 0)
		r = err_set(e, ENOMEM, "store: no memory");
	else
		r = open_whole(s, e);
	if (r < 0) {
		err_wrap(e, "open '%s'", s->path ? s->path : dir);
		close_db(s);
		free(s->boot_file);
		free(s->aside);
		free(s->path);
		free(s);
		return -e->code;
	}
	*ret = s;
	return 0;
}

const char *store_replaced(const struct store *s) { return s->aside; }

void store_close(struct store *s)
{
	struct err e;

	if (!s)
		return;
	/* on disk whole; only then forget that it might not be */
	if (run(s, "PRAGMA synchronous=FULL; PRAGMA wal_checkpoint(TRUNCATE)", &e) == 0)
		unlink(s->boot_file);
	close_db(s);
	free(s->boot_file);
	free(s->aside);
	free(s->path);
	free(s);
}

static sqlite3_stmt *get(struct store *s, int i, const char *text, struct err *e)
{
	if (!s->st[i] && sqlite3_prepare_v3(s->db, text, -1, SQLITE_PREPARE_PERSISTENT, &s->st[i], NULL) != SQLITE_OK) {
		sql_fail(s, e, "prepare");
		return NULL;
	}
	return s->st[i];
}

static int finish(struct store *s, sqlite3_stmt *st, const char *what, struct err *e)
{
	int r = sqlite3_step(st) == SQLITE_DONE ? 0 : sql_fail(s, e, what);

	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return r;
}

static void bind_text(sqlite3_stmt *st, int i, const char *s)
{
	if (s)
		sqlite3_bind_text(st, i, s, -1, SQLITE_STATIC);
}

static void bind_row(sqlite3_stmt *st, const struct store_sandbox *r)
{
	const int64_t limits[] = { (int64_t)r->limits.memory, (int64_t)r->limits.cpu, (int64_t)r->limits.pids, (int64_t)r->limits.disk,
		(int64_t)r->limits.inodes, (int64_t)r->limits.files, r->unenforced };

	bind_text(st, 1, r->id);
	sqlite3_bind_int64(st, 2, r->slot);
	bind_text(st, 3, r->state);
	bind_text(st, 4, r->template);
	sqlite3_bind_int(st, 5, r->net);
	sqlite3_bind_int(st, 6, r->secure);
	bind_text(st, 7, r->token);
	sqlite3_bind_int64(st, 8, r->started);
	sqlite3_bind_int64(st, 9, r->ends);
	sqlite3_bind_int64(st, 10, r->ended);
	bind_text(st, 11, r->why);
	bind_text(st, 12, r->why_text);
	bind_text(st, 13, r->by);
	bind_text(st, 14, r->metadata);
	for (int i = 0; i < 7; i++)
		sqlite3_bind_int64(st, 15 + i, limits[i]);
}

static void col(sqlite3_stmt *st, int i, char *out, size_t size)
{
	const char *s = (const char *)sqlite3_column_text(st, i);

	if (str_copy(out, size, s ? s : "") < 0)
		out[0] = '\0';
}

static void read_row(sqlite3_stmt *st, struct store_sandbox *r)
{
	memset(r, 0, sizeof *r);
	col(st, 0, r->id, sizeof r->id);
	r->slot = (uint32_t)sqlite3_column_int64(st, 1);
	col(st, 2, r->state, sizeof r->state);
	col(st, 3, r->template, sizeof r->template);
	r->net = (uint8_t)sqlite3_column_int(st, 4);
	r->secure = sqlite3_column_int(st, 5) != 0;
	col(st, 6, r->token, sizeof r->token);
	r->started = sqlite3_column_int64(st, 7);
	r->ends = sqlite3_column_int64(st, 8);
	r->ended = sqlite3_column_int64(st, 9);
	col(st, 10, r->why, sizeof r->why);
	col(st, 11, r->why_text, sizeof r->why_text);
	col(st, 12, r->by, sizeof r->by);
	r->metadata = (const char *)sqlite3_column_text(st, 13);
	r->limits.memory = (uint64_t)sqlite3_column_int64(st, 14);
	r->limits.cpu = (uint64_t)sqlite3_column_int64(st, 15);
	r->limits.pids = (uint64_t)sqlite3_column_int64(st, 16);
	r->limits.disk = (uint64_t)sqlite3_column_int64(st, 17);
	r->limits.inodes = (uint64_t)sqlite3_column_int64(st, 18);
	r->limits.files = (uint64_t)sqlite3_column_int64(st, 19);
	r->unenforced = (uint32_t)sqlite3_column_int64(st, 20);
}

int store_put(struct store *s, const struct store_sandbox *row, struct err *e)
{
	sqlite3_stmt *st = get(s, ST_PUT, sql[ST_PUT], e);

	if (!st)
		return -EIO;
	bind_row(st, row);
	return finish(s, st, "keep a computer's row", e);
}

int store_set_ends(struct store *s, const char *id, int64_t ends, struct err *e)
{
	sqlite3_stmt *st = get(s, ST_ENDS, sql[ST_ENDS], e);

	if (!st)
		return -EIO;
	bind_text(st, 1, id);
	sqlite3_bind_int64(st, 2, ends);
	return finish(s, st, "keep a deadline", e);
}

int store_end(struct store *s, const char *id, const char *state, int64_t when, const char *why, const char *why_text,
	const char *by, struct err *e)
{
	sqlite3_stmt *st = get(s, ST_END, sql[ST_END], e);

	if (!st)
		return -EIO;
	bind_text(st, 1, id);
	bind_text(st, 2, state);
	sqlite3_bind_int64(st, 3, when);
	bind_text(st, 4, why);
	bind_text(st, 5, why_text);
	bind_text(st, 6, by);
	return finish(s, st, "leave a tombstone", e);
}

int store_get(struct store *s, const char *id, struct store_sandbox *ret, struct err *e)
{
	sqlite3_stmt *st = get(s, ST_GET, sql[ST_GET], e);
	int rc;

	if (!st)
		return -EIO;
	sqlite3_reset(st);       /* here, not at the end: the row's metadata is lent to the caller */
	sqlite3_bind_text(st, 1, id, -1, SQLITE_TRANSIENT);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW) {
		read_row(st, ret);
		return 1;
	}
	sqlite3_reset(st);
	return rc == SQLITE_DONE ? 0 : sql_fail(s, e, "look up a computer");
}

static sqlite3_stmt *list_stmt(struct store *s, const struct store_query *q, bool marked, struct err *e)
{
	int kind = (q->live ? 1 : 0) + (q->ended ? 2 : 0), i = ST_LIST + (kind + (marked ? 4 : 0)) * 2 + q->oldest_first;
	static const char *const which[] = { "0", "ended = 0", "ended > 0", "1" };
	const char *started = marked ? "begun" : "started", *id = marked ? "computer" : "id", *dir = q->oldest_first ? "ASC" : "DESC";
	char text[900];

	/* CROSS: sqlite keeps the order of the two tables, the index of marks first */
	snprintf(text, sizeof text, "SELECT " COLUMNS " FROM %s WHERE %s AND %s >= ?1 AND (%s, %s) %s (?2, ?3)%s ORDER BY %s %s, %s %s",
		marked ? "marks CROSS JOIN sandboxes" : "sandboxes", which[kind], started, started, id, q->oldest_first ? ">" : "<",
		marked ? " AND key = " MARK("?4") " AND value = " MARK("?5") " AND id = computer" : "", started, dir, id, dir);
	return get(s, i, text, e);
}

/* The mark that the fewest computers carry. */
static const struct store_mark *rarest(struct store *s, const struct store_query *q, struct err *e)
{
	sqlite3_stmt *st = get(s, ST_MARKED, sql[ST_MARKED], e);
	const struct store_mark *best = q->marks;
	int64_t least = INT64_MAX;

	for (size_t i = 0; st && i < q->nmarks && i < MARKS_TRIED && q->nmarks > 1; i++) {
		int64_t n = INT64_MAX;

		bind_text(st, 1, q->marks[i].key);
		bind_text(st, 2, q->marks[i].value);
		if (sqlite3_step(st) == SQLITE_ROW)
			n = sqlite3_column_int64(st, 0);
		sqlite3_reset(st);
		sqlite3_clear_bindings(st);
		if (n < least) {
			least = n;
			best = &q->marks[i];
		}
	}
	return best;
}

int store_each(struct store *s, const struct store_query *q, bool (*fn)(void *ctx, const struct store_sandbox *row), void *ctx, struct err *e)
{
	/* of live ones there are few, and an index of their own */
	const struct store_mark *mark = q->nmarks && q->ended ? rarest(s, q, e) : NULL;
	sqlite3_stmt *st = list_stmt(s, q, mark, e);
	struct store_sandbox row;
	int rc;

	if (!st)
		return -EIO;
	sqlite3_bind_int64(st, 1, q->after);
	sqlite3_bind_int64(st, 2, q->cursor_id ? q->cursor_started : q->oldest_first ? INT64_MIN : INT64_MAX);
	bind_text(st, 3, q->cursor_id ? q->cursor_id : "");
	if (mark) {
		bind_text(st, 4, mark->key);
		bind_text(st, 5, mark->value);
	}
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		read_row(st, &row);
		if (!fn(ctx, &row))
			break;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		sql_fail(s, e, "list computers");
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : -EIO;
}

int store_prune(struct store *s, int64_t now, struct err *e)
{
	static const enum stmt how[] = { ST_PRUNE_AGE, ST_PRUNE_ROWS };
	const int64_t limit[] = { now - STORE_KEEP_MS, STORE_KEEP_ROWS };
	int most = 0;

	for (size_t i = 0; i < 2; i++) {
		sqlite3_stmt *st = get(s, (int)how[i], sql[how[i]], e);

		if (!st)
			return -EIO;
		sqlite3_bind_int64(st, 1, limit[i]);
		if (finish(s, st, "forget tombstones", e) < 0)
			return -e->code;
		most = sqlite3_changes(s->db) > most ? sqlite3_changes(s->db) : most;
	}
	return most == PRUNE_AT_ONCE;
}
