#include "store/store.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/fd.h"
#include "core/str.h"

/* The columns of a row, in the order that bind_row() and read_row() use. */
#define COLUMNS "id, slot, state, template, net, secure, token, started, ends, ended, why, why_text, by, metadata, " \
	"memory, cpu, pids, disk, inodes, files, unenforced"

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
};
#define VERSION ((int)(sizeof migrations / sizeof migrations[0]))

enum stmt { ST_PUT, ST_ENDS, ST_END, ST_GET, ST_PRUNE_AGE, ST_PRUNE_ROWS, ST_LIST, ST_COUNT = ST_LIST + 8 };

static const char *const sql[ST_LIST] = {
	[ST_PUT] = ("INSERT OR REPLACE INTO sandboxes(" COLUMNS ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"),
	[ST_ENDS] = "UPDATE sandboxes SET ends = ?2 WHERE id = ?1 AND ended = 0",
	[ST_END] = "UPDATE sandboxes SET state = ?2, ended = ?3, why = ?4, why_text = ?5, by = ?6, token = '' WHERE id = ?1 AND ended = 0",
	[ST_GET] = "SELECT " COLUMNS " FROM sandboxes WHERE id = ?1",
	[ST_PRUNE_AGE] = "DELETE FROM sandboxes WHERE ended > 0 AND ended < ?1",
	[ST_PRUNE_ROWS] = ("DELETE FROM sandboxes WHERE ended > 0 AND ended < "
		"(SELECT ended FROM sandboxes WHERE ended > 0 ORDER BY ended DESC LIMIT 1 OFFSET ?1)"),
};

struct store {
	sqlite3 *db;
	sqlite3_stmt *st[ST_COUNT];
};

static int sql_fail(struct store *s, struct err *e, const char *what)
{
	int rc = sqlite3_errcode(s->db) & 0xff;

	return err_set(e, rc == SQLITE_FULL ? ENOSPC : rc == SQLITE_NOMEM ? ENOMEM : rc == SQLITE_BUSY ? EBUSY : EIO,
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

int store_open(const char *dir, struct store **ret, struct err *e)
{
	struct store *s = calloc(1, sizeof *s);
	AUTO_FREE char *path = NULL;
	mode_t old;
	int r;

	if (!s || asprintf(&path, "%s/bureau.db", dir) < 0) {
		free(s);
		path = NULL;
		return err_set(e, ENOMEM, "store: no memory");
	}
	old = umask(077);
	r = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK
		? 0 : sql_fail(s, e, path);
	if (r == 0) {
		sqlite3_busy_timeout(s->db, 2000);
		/* exclusive: one daemon a store, so no shared-memory file and no lock a transaction */
		r = run(s, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY;"
			"PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF; PRAGMA wal_autocheckpoint=4000; PRAGMA cache_size=-4000", e);
	}
	if (r == 0)
		r = migrate(s, e);
	umask(old);
	if (r < 0) {
		store_close(s);
		return err_wrap(e, "open '%s'", path);
	}
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (int i = 0; i < ST_COUNT; i++)
		sqlite3_finalize(s->st[i]);
	sqlite3_close(s->db);
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

static sqlite3_stmt *list_stmt(struct store *s, const struct store_query *q, struct err *e)
{
	int kind = (q->live ? 1 : 0) + (q->ended ? 2 : 0), i = ST_LIST + kind * 2 + q->oldest_first;
	static const char *const which[] = { "0", "ended = 0", "ended > 0", "1" };
	char text[700];

	snprintf(text, sizeof text, "SELECT " COLUMNS " FROM sandboxes WHERE %s AND started >= ?1 AND "
		"(?3 IS NULL OR (started, id) %s (?2, ?3)) ORDER BY started %s, id %s",
		which[kind], q->oldest_first ? ">" : "<", q->oldest_first ? "ASC" : "DESC", q->oldest_first ? "ASC" : "DESC");
	return get(s, i, text, e);
}

int store_each(struct store *s, const struct store_query *q, bool (*fn)(void *ctx, const struct store_sandbox *row), void *ctx, struct err *e)
{
	sqlite3_stmt *st = list_stmt(s, q, e);
	struct store_sandbox row;
	int rc;

	if (!st)
		return -EIO;
	sqlite3_bind_int64(st, 1, q->after);
	sqlite3_bind_int64(st, 2, q->cursor_started);
	bind_text(st, 3, q->cursor_id);
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
	sqlite3_stmt *st = get(s, ST_PRUNE_AGE, sql[ST_PRUNE_AGE], e);
	int r;

	if (!st)
		return -EIO;
	sqlite3_bind_int64(st, 1, now - STORE_KEEP_MS);
	r = finish(s, st, "forget old tombstones", e);
	st = r < 0 ? NULL : get(s, ST_PRUNE_ROWS, sql[ST_PRUNE_ROWS], e);
	if (!st)
		return -EIO;
	sqlite3_bind_int64(st, 1, STORE_KEEP_ROWS - 1);
	return finish(s, st, "forget tombstones", e);
}
