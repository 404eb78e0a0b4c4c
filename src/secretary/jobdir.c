/* jobdir -- the folders of jobs: made, opened, locked, listed.
 *
 * Order when one is made: folder, lock, copy of the job file, inputs, and meta.json last, so a folder without meta.json is one that
 * never was. The lock is held on a descriptor: it goes when the process does, however it ends. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include "core/clock.h"
#include "core/str.h"
#include "secretary/input.h"
#include "secretary/job_priv.h"
#include "secretary/subst.h"

/* STATE/jobs */
static int job_folder(const char *state, char *out, size_t size, struct err *e)
{
	char dir[PATH_MAX / 2];
	int r = client_state_dir(state, dir, sizeof dir, e);

	if (r >= 0 && snprintf(out, size, "%s/jobs", dir) >= (int)size)
		r = err_set(e, ENAMETOOLONG, "the state folder's path is too long");
	return r < 0 ? r : 0;
}

static int job_lock(struct secretary *s, struct err *e)
{
	s->lockfd = openat(s->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lockfd < 0)
		return err_sys(e, "open the job's lock");
	for (int tries = 0; flock(s->lockfd, LOCK_EX | LOCK_NB) < 0; tries++) {
		struct timespec pause = { 0, 50000000 };

		if (errno != EWOULDBLOCK || tries == 20)
			return err_set(e, EBUSY, "job '%s' is being run by another secretary", s->id);
		nanosleep(&pause, NULL);        /* somebody who only looks lets go at once */
	}
	return 0;
}

bool job_locked(const char *dir)
{
	char path[PATH_MAX + 8];
	AUTO_FD int fd = -1;

	snprintf(path, sizeof path, "%s/lock", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

void job_free(struct secretary *s)
{
	if (!s)
		return;
	progress_free(s->progress);
	sweep_cancel(s->sweep);
	sched_free(s->sched);
	client_free(s->client);
	if (s->loop) {
		loop_remove(s->loop, &s->watch);
		loop_free(s->loop);
	}
	journal_close(s->journal);
	for (int i = 0; i < SPEC_INPUTS; i++)
		json_decref(s->rows[i]);
	spec_free(s->spec);
	fd_drop(&s->watchfd);
	fd_drop(&s->dirfd);
	fd_drop(&s->folderfd);
	fd_drop(&s->lockfd);
	free(s->file);
	free(s->folder);
	free(s);
}

static void job_drop(struct secretary **s) { job_free(*s); }
#define AUTO_JOB __attribute__((cleanup(job_drop)))

static struct secretary *job_alloc(void)
{
	struct secretary *s = calloc(1, sizeof *s);

	if (s)
		s->dirfd = s->folderfd = s->lockfd = s->watchfd = -1;
	return s;
}

/* Rows and scheduler, from what the folder holds. */
static int job_prepare(struct secretary *s, struct err *e)
{
	int r = 0;

	for (int i = 0; i < s->spec->ninputs && r >= 0; i++)
		r = input_load(s->spec, i, s->folderfd, s->dirfd, &s->rows[i], e);
	if (r >= 0)
		r = spec_check_rows(s->spec, s->rows, e);
	if (r >= 0 && !s->loop)
		r = loop_create(&s->loop, e);
	if (r >= 0)
		r = sched_create(s->loop, s->spec, s->rows, &job_ops, s, &s->sched, e);
	return r;
}

/* Where the job file lies, absolute: its files are looked for there. */
static int find_folder(struct secretary *s, const char *file, struct err *e)
{
	AUTO_FREE char *real = realpath(file, NULL);
	char *slash;

	if (!real)
		return err_sys(e, "read '%.200s'", file);
	slash = strrchr(real, '/');
	if (slash == real)
		slash[1] = '\0';
	else
		*slash = '\0';
	s->folder = strdup(real);
	s->file = strdup(file);
	if (!s->folder || !s->file)
		return err_set(e, ENOMEM, "no memory");
	s->folderfd = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->folderfd < 0 ? err_sys(e, "open '%.200s'", s->folder) : 0;
}

static int write_meta(struct secretary *s, struct err *e)
{
	AUTO_JSON json_t *v = json_pack("{s:s, s:s, s:s, s:s, s:I}", "id", s->id, "name", s->spec->name, "file", s->file, "folder", s->folder, "created",
		(json_int_t)s->created);
	AUTO_BUF struct buf b = BUF_INIT(65536);

	if (!v || js_dump_pretty(v, &b) < 0)
		return err_set(e, EILSEQ, "the job file's path isn't UTF-8");
	return fd_write_file(s->dirfd, "meta.json", 0600, buf_at(&b), b.len, e);
}

static int make_folder(struct secretary *s, const char *jobs, struct err *e)
{
	static const char *const inside[] = { "inputs", "files", "tasks" };
	time_t now = (time_t)(s->created / 1000);
	unsigned char dice[2];
	struct tm tm;
	char when[20];
	int r;

	gmtime_r(&now, &tm);
	strftime(when, sizeof when, "%Y%m%d-%H%M%S", &tm);
	str_random(dice, sizeof dice);
	snprintf(s->id, sizeof s->id, "%.36s-%s-%02x%02x", s->spec->name, when, dice[0], dice[1]);
	if (snprintf(s->dir, sizeof s->dir, "%s/%s", jobs, s->id) >= (int)sizeof s->dir)
		return err_set(e, ENAMETOOLONG, "the state folder's path is too long");
	r = fd_mkdirs(jobs, 0700, e);
	if (r < 0)
		return r;
	if (mkdir(s->dir, 0700) < 0)
		return err_sys(e, "make '%.200s'", s->dir);
	s->dirfd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s->dirfd < 0)
		return err_sys(e, "open '%.200s'", s->dir);
	for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
		if (mkdirat(s->dirfd, inside[i], 0700) < 0)
			return err_sys(e, "make '%.200s/%s'", s->dir, inside[i]);
	}
	return job_lock(s, e);
}

/* s as job_alloc() gave it. */
static int read_job(struct secretary *s, const char *file, char **ret_text, size_t *ret_n, struct err *e)
{
	int r = s ? fd_read_file(AT_FDCWD, file, TOML_MAX, ret_text, ret_n, e) : err_set(e, ENOMEM, "no memory");

	if (r >= 0)
		r = find_folder(s, file, e);
	return r < 0 ? r : spec_parse(*ret_text, *ret_n, file, &s->spec, e);
}

int job_new(const struct job_opts *o, const char *file, struct secretary **ret, struct err *e)
{
	AUTO_JOB struct secretary *s = job_alloc();
	AUTO_FREE char *text = NULL;
	char jobs[PATH_MAX - 128];
	size_t n;
	int r;

	r = read_job(s, file, &text, &n, e);
	if (r >= 0)
		r = job_folder(o->state, jobs, sizeof jobs, e);
	if (r < 0)
		return r;
	s->created = clock_wall_ms();
	r = make_folder(s, jobs, e);
	if (r >= 0)
		r = fd_write_file(s->dirfd, "job.toml", 0600, text, n, e);
	if (r >= 0)
		r = job_prepare(s, e);
	if (r >= 0)
		r = write_meta(s, e);
	if (r < 0) {
		if (e->code == ENOENT)
			e->code = EINVAL;       /* a file that the job file names: a mistake in it, not a missing job */
		if (s->dirfd >= 0)
			fd_remove_tree(AT_FDCWD, s->dir, NULL);
		return r;
	}
	*ret = s;
	s = NULL;
	return 0;
}

/* Files that steps put are there, as far as their names are known. */
static int look_for_files(const struct secretary *s, struct err *e)
{
	for (int i = 0; i < s->spec->ntasks; i++) {
		const struct spec_task *t = &s->spec->tasks[i];

		for (int k = 0; k < t->nsteps; k++) {
			const char *put = t->steps[k].put;
			AUTO_FD int fd = put && !subst_has(put) ? input_open_below(s->folderfd, put, e) : -1;

			if (fd < 0 && put && !subst_has(put))
				return err_wrap(e, "%.60s:%d: put", s->file, t->steps[k].line);
		}
	}
	return 0;
}

int job_check(const char *file, int *ret_tasks, struct err *e)
{
	AUTO_JOB struct secretary *s = job_alloc();
	AUTO_FREE char *text = NULL;
	char dir[] = "/tmp/bureau-check-XXXXXX";
	size_t n;
	int r;

	r = read_job(s, file, &text, &n, e);
	if (r >= 0)
		r = look_for_files(s, e);
	if (r < 0)
		return r;
	if (!mkdtemp(dir))
		return err_sys(e, "make a folder in /tmp");
	s->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	r = s->dirfd < 0 || mkdirat(s->dirfd, "inputs", 0700) < 0 ? err_sys(e, "make '%s/inputs'", dir) : job_prepare(s, e);
	if (r >= 0)
		sched_tasks(s->sched, ret_tasks);
	fd_remove_tree(AT_FDCWD, dir, NULL);
	return r;
}

static int read_meta(int dirfd, json_t **ret, struct err *e)
{
	AUTO_FREE char *text = NULL;
	size_t n;
	int r = fd_read_file(dirfd, "meta.json", 65536, &text, &n, e);

	return r < 0 ? r : js_parse(text, n, ret, e);
}

static int take_meta(struct secretary *s, struct err *e)
{
	AUTO_JSON json_t *meta = NULL;
	const char *file = "", *folder = "/";
	int r = read_meta(s->dirfd, &meta, e);

	if (r < 0 || js_get_str(meta, "file", &file, e) < 0 || js_get_str(meta, "folder", &folder, e) < 0
		|| js_get_int(meta, "created", 0, INT64_MAX, &s->created, e) < 0)
		return err_wrap(e, "job '%s'", s->id);
	s->file = strdup(file);
	s->folder = strdup(folder);
	/* the folder may be gone: only a step that wants a file of it will mind */
	s->folderfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->file && s->folder ? 0 : err_set(e, ENOMEM, "no memory");
}

int job_load(const struct job_opts *o, const char *id, bool look, struct secretary **ret, struct err *e)
{
	AUTO_JOB struct secretary *s = job_alloc();
	AUTO_FREE char *text = NULL;
	char jobs[PATH_MAX - 128];
	size_t n;
	int r;

	if (!s)
		return err_set(e, ENOMEM, "no memory");
	r = job_folder(o->state, jobs, sizeof jobs, e);
	if (r < 0)
		return r;
	if (!str_name(id) || str_copy(s->id, sizeof s->id, id) < 0)
		return err_set(e, ENOENT, "'%.80s' is not a job's id", id);
	snprintf(s->dir, sizeof s->dir, "%s/%s", jobs, id);
	s->dirfd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s->dirfd < 0) {
		err_set(e, ENOENT, "there is no job '%s'", id);
		return err_hint(e, "see them: bureau job list");
	}
	r = look ? 0 : job_lock(s, e);
	if (r >= 0)
		r = take_meta(s, e);
	if (r >= 0)
		r = fd_read_file(s->dirfd, "job.toml", TOML_MAX, &text, &n, e);
	if (r >= 0)
		r = spec_parse(text, n, s->file, &s->spec, e);
	if (r >= 0)
		r = job_prepare(s, e);
	if (r >= 0)
		r = journal_read(s->dirfd, "journal", job_replay_line, s, e);
	if (r < 0)
		return r;
	job_run_over(s);
	*ret = s;
	s = NULL;
	return 0;
}

static int last_line(void *ctx, const json_t *line, struct err *e)
{
	const char **state = ctx, *ev = json_string_value(json_object_get(line, "ev"));
	static const char *const known[] = { "done", "failed", "stopped" };

	if (json_object_get(line, "task") || !ev)
		return 0;
	if (str_eq(ev, "begin"))
		*state = "interrupted";
	for (size_t i = 0; i < 3 && str_eq(ev, "end"); i++) {
		const char *s = json_string_value(json_object_get(line, "state"));

		if (s && str_eq(s, known[i]))
			*state = known[i];
	}
	return 0;
}

const char *job_state(int dirfd, const char *dir)
{
	const char *state = "interrupted";

	if (journal_read(dirfd, "journal", last_line, &state, NULL) < 0)
		state = "broken";
	return job_locked(dir) ? "running" : state;
}

static json_t *list_one(const char *jobs, const char *id)
{
	char dir[PATH_MAX];
	AUTO_FD int fd = -1;
	AUTO_JSON json_t *meta = NULL;
	const char *name = "";
	int64_t created = 0;

	snprintf(dir, sizeof dir, "%.3800s/%s", jobs, id);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || read_meta(fd, &meta, NULL) < 0)
		return NULL;
	js_get_str(meta, "name", &name, NULL);
	js_get_int(meta, "created", 0, INT64_MAX, &created, NULL);
	return json_pack("{s:s, s:s, s:s, s:I, s:s}", "id", id, "name", name, "state", job_state(fd, dir), "created", (json_int_t)created, "folder", dir);
}

static int newest_first(const void *a, const void *b)
{
	json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "created"));
	json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "created"));

	return (x < y) - (x > y);
}

int job_list(const char *state, json_t **ret, struct err *e)
{
	char jobs[PATH_MAX - 128];
	AUTO_JSON json_t *all = json_array();
	json_t *list[4096];
	size_t n = 0;
	struct dirent *de;
	DIR *d;
	int r = job_folder(state, jobs, sizeof jobs, e);

	if (r < 0)
		return r;
	d = opendir(jobs);
	if (!d && errno != ENOENT)
		return err_sys(e, "read '%.200s'", jobs);
	while (d && n < 4096 && (de = readdir(d))) {
		list[n] = str_name(de->d_name) ? list_one(jobs, de->d_name) : NULL;
		n += list[n] != NULL;
	}
	if (d)
		closedir(d);
	qsort(list, n, sizeof *list, newest_first);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(all, list[i]);
	*ret = json_incref(all);
	return 0;
}
