/* step -- the steps a task may have, each begun by one function of a table and ended in run_step_done(). */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "core/clock.h"
#include "core/str.h"
#include "secretary/input.h"
#include "secretary/run_priv.h"

void step_cancel(struct run *r)
{
	client_cancel(r->call);
	r->call = NULL;
	client_cancel(r->feed);
	r->feed = NULL;
	client_exec_cancel(r->exec);
	r->exec = NULL;
	client_tree_cancel(r->tree);
	r->tree = NULL;
	sweep_cancel(r->sweep);
	r->sweep = NULL;
	fd_drop(&r->fd);
}

static int text_of(struct run *r, const char *text, char **ret, struct err *e)
{
	AUTO_BUF struct buf b = BUF_INIT(1);
	int rc = run_text(r, text, &b, e);

	if (rc < 0)
		return rc;
	buf_add(&b, "", 1);
	*ret = buf_take(&b);
	return *ret ? 0 : err_set(e, ENOMEM, "no memory");
}

static const char *user_of(const struct run *r, const struct spec_step *st)
{
	return st->user ? st->user : r->spec->computer.user;
}

static int add_env(struct run *r, json_t *envs, const struct toml *env, struct err *e)
{
	if (!env)
		return 0;
	toml_each(v, env) {
		AUTO_FREE char *text = NULL;
		int rc = text_of(r, v->str, &text, e);

		if (rc < 0)
			return err_wrap(e, "env %.40s", v->key);
		if (json_object_set_new(envs, v->key, json_string(text)) < 0)
			return err_set(e, EILSEQ, "env %.40s: not UTF-8", v->key);
	}
	return 0;
}

static void on_output(void *ctx, enum client_stream s, const char *p, size_t n)
{
	struct run *r = ctx;

	keep_add(s == CLIENT_STDERR ? &r->err : &r->out, p, n);
}

static void on_exec_end(void *ctx, const struct client_exit *x)
{
	struct run *r = ctx;
	const struct spec_step *st = run_spec(r);
	json_t *step = json_array_get(r->steps, json_array_size(r->steps) - 1);
	struct err e = { 0 };

	r->exec = NULL;
	client_cancel(r->feed);
	r->feed = NULL;
	if (x->e) {
		run_step_failed(r, x->e, x->retry_ms);
		return;
	}
	json_object_set_new(step, x->how == CLIENT_SIGNALED ? "signal" : "exit", json_integer(x->code));
	if (x->oom)
		json_object_set_new(step, "oom", json_true());
	if (expect_check(r, st, x, &e) < 0 || expect_capture(r, st, x, &e) < 0)
		run_step_done(r, 0, 0, "%s", e.msg);
	else
		run_step_done(r, 0, 0, NULL);
}

static void on_fed(void *ctx, const struct client_answer *a)
{
	struct run *r = ctx;

	r->feed = NULL;
	/* part of its input for all of it: what the program makes of that must not count */
	if (a->e && r->input && (a->e->code == EPIPE || a->e->code == ECONNREFUSED || a->e->code == EAGAIN)) {
		client_exec_cancel(r->exec);
		r->exec = NULL;
		run_step_failed(r, a->e, a->retry_ms);
		return;
	}
	/* a program that doesn't read its input is judged by its exit code; the end of input comes after all of it was taken */
	if (r->input && r->exec) {
		free(r->input);
		r->input = NULL;
		r->feed = client_input(r->s->client, r->id, r->pid, false, 0, NULL, 0, on_fed, r);
	}
}

static void on_exec_start(void *ctx, int64_t pid)
{
	struct run *r = ctx;

	r->pid = pid;
	if (r->input)
		r->feed = client_input(r->s->client, r->id, pid, false, 0, r->input, strlen(r->input), on_fed, r);
}

static json_t *args_of(struct run *r, const struct spec_step *st, char **ret_cmd, struct err *e)
{
	AUTO_JSON json_t *args = json_array();

	if (st->shell) {
		*ret_cmd = strdup("/bin/sh");
		json_array_append_new(args, json_string("-c"));
		json_array_append_new(args, json_string(st->shell));
		return json_incref(args);
	}
	toml_each(v, st->run) {
		AUTO_FREE char *text = NULL;

		if (text_of(r, v->str, &text, e) < 0)
			return NULL;
		if (v == st->run->first) {
			*ret_cmd = text;
			text = NULL;
		} else if (json_array_append_new(args, json_string(text)) < 0) {
			err_set(e, EILSEQ, "an argument isn't UTF-8");
			return NULL;
		}
	}
	return json_incref(args);
}

static int step_run(struct run *r, const struct spec_step *st, struct err *e)
{
	AUTO_FREE char *cmd = NULL, *cwd = NULL;
	AUTO_JSON json_t *args = args_of(r, st, &cmd, e), *envs = json_object();
	json_t *step = json_array_get(r->steps, json_array_size(r->steps) - 1);
	int64_t left = r->deadline ? r->deadline - clock_mono_ms() : 0;
	struct client_exec x = { .id = r->id, .args = args, .envs = envs, .user = user_of(r, st), .start = on_exec_start, .output = on_output, .end = on_exec_end };

	if (!args || add_env(r, envs, r->spec->env, e) < 0 || add_env(r, envs, st->env, e) < 0 || (st->cwd && text_of(r, st->cwd, &cwd, e) < 0))
		return -EINVAL;
	free(r->input);
	r->input = NULL;
	if (st->input && text_of(r, st->input, &r->input, e) < 0)
		return -EINVAL;
	x.stdin_open = r->input != NULL;
	if (r->input && !*r->input) {   /* no input is no stdin */
		free(r->input);
		r->input = NULL;
		x.stdin_open = false;
	}
	x.cmd = cmd;
	x.cwd = cwd;
	x.timeout_ms = st->timeout_ms;
	if (r->deadline && (!x.timeout_ms || (int64_t)x.timeout_ms > left))
		x.timeout_ms = left > 1 ? (uint64_t)left : 1;
	json_object_set_new(step, "cmd", json_string(cmd));
	json_object_set(step, "args", args);
	r->exec = client_exec(r->s->client, &x, r);
	return r->exec ? 0 : err_set(e, ENOMEM, "no memory");
}

static void note(struct run *r, const char *path, uint64_t bytes, bool show)
{
	json_array_append_new(r->files, json_pack("{s:s, s:I, s:b}", "path", path, "bytes", (json_int_t)bytes, "show", show));
}

static void on_moved(void *ctx, const struct client_answer *a)
{
	struct run *r = ctx;

	r->call = NULL;
	fd_drop(&r->fd);
	if (a->e)
		run_step_failed(r, a->e, a->retry_ms);
	else
		run_step_done(r, 0, 0, NULL);
}

static void detail(struct run *r, const char *key, const char *text)
{
	json_object_set_new(json_array_get(r->steps, json_array_size(r->steps) - 1), key, json_string(text));
}

static int put_fd(struct run *r, const struct spec_step *st, const char *from, int fd, struct err *e)
{
	AUTO_FREE char *to = NULL;
	struct client_file f = { .id = r->id, .user = user_of(r, st), .fd = fd, .mode = (unsigned)st->mode };
	struct stat sb;

	if (fd < 0)
		return fd;
	r->fd = fd;
	if (text_of(r, st->to, &to, e) < 0)
		return -EINVAL;
	if (fstat(fd, &sb) < 0)
		return err_sys(e, "stat '%.120s'", from);
	f.path = to;
	f.len = (uint64_t)sb.st_size;
	if (!f.mode)
		f.mode = sb.st_mode & 0111 ? 0755 : 0644;
	detail(r, "from", from);
	detail(r, "to", to);
	r->call = client_put(r->s->client, &f, on_moved, r);
	return r->call ? 0 : err_set(e, ENOMEM, "no memory");
}

static int step_put(struct run *r, const struct spec_step *st, struct err *e)
{
	AUTO_FREE char *from = NULL;

	if (text_of(r, st->put, &from, e) < 0)
		return -EINVAL;
	return put_fd(r, st, from, input_open_below(r->s->folderfd, from, e), e);
}

static int step_put_part(struct run *r, const struct spec_step *st, struct err *e)
{
	const char *file = json_string_value(json_object_get(sched_row(r->s->sched, r->t), "file"));

	if (!file)
		return err_set(e, EINVAL, "the row has no part of a file");
	return put_fd(r, st, file, input_open_below(r->s->dirfd, file, e), e);
}

static int step_write(struct run *r, const struct spec_step *st, struct err *e)
{
	AUTO_BUF struct buf text = BUF_INIT(1);
	AUTO_FREE char *to = NULL;
	struct client_file f = { .id = r->id, .user = user_of(r, st), .mode = (unsigned)st->mode };

	if (text_of(r, st->write, &to, e) < 0)
		return -EINVAL;
	buf_init(&text, SUBST_MAX);
	if (subst_text(&r->subst, st->content, &text, e) < 0)
		return -EINVAL;
	f.path = to;
	detail(r, "to", to);
	r->call = client_put_bytes(r->s->client, &f, buf_at(&text), text.len, on_moved, r);
	return r->call ? 0 : err_set(e, ENOMEM, "no memory");
}

/* The folder of a task's files, made when `make`; -ENOENT without that when there is none. */
static int files_folder(struct secretary *s, const char *task, bool make)
{
	AUTO_FD int files = openat(s->dirfd, "files", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int fd;

	if (files < 0)
		return -errno;
	if (make && mkdirat(files, task, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(files, task, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static void put_files_next(struct run *r);

static void on_tree_put(void *ctx, const struct client_tree_end *x)
{
	struct run *r = ctx;

	r->tree = NULL;
	fd_drop(&r->fd);
	if (x->e) {
		run_step_failed(r, x->e, 0);
		return;
	}
	r->bytes += x->bytes;
	r->file_task++;
	put_files_next(r);
}

/* One task's folder after the other, each to TO/TASK */
static void put_files_next(struct run *r)
{
	const struct spec_step *st = run_spec(r);
	AUTO_FREE char *to = NULL;
	char remote[PATH_MAX];
	struct client_tree_spec ts = { .id = r->id, .remote = remote, .user = user_of(r, st), .end = on_tree_put };
	struct err e = { 0 };
	int n;
	struct task *t = sched_of_spec(r->s->sched, st->files_of, &n);

	while (r->file_task < n) {
		const struct task *from = &t[r->file_task];
		int fd = from->state == TASK_DONE ? files_folder(r->s, from->id, false) : -ENOENT;

		if (fd < 0) {
			r->file_task++;
			continue;
		}
		r->fd = fd;
		if (text_of(r, st->to, &to, &e) < 0)
			break;
		snprintf(remote, sizeof remote, "%s/%s", to, from->id);
		ts.dirfd = r->fd;
		r->tree = client_tree_put(r->s->client, &ts, r);
		if (!r->tree)
			err_set(&e, ENOMEM, "no memory");
		break;
	}
	if (e.code)
		run_step_done(r, FAIL_FINAL, 0, "%s", e.msg);
	else if (!r->tree)
		run_step_done(r, 0, 0, NULL);
}

static int step_put_files(struct run *r, const struct spec_step *st, struct err *e)
{
	detail(r, "from", st->put_files);
	detail(r, "to", st->to);
	r->file_task = 0;
	put_files_next(r);
	return 0;
}

/* A path below a task's files: plain parts only, folders made on the way. */
static int artifact_open(int dir, const char *path, struct err *e)
{
	struct open_how how = { .flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, .mode = 0600, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	char at[PATH_MAX];
	int fd;

	if (!*path || *path == '/' || str_copy(at, sizeof at, path) < 0)
		return err_set(e, EINVAL, "'%.100s' is not a path below the task's files", path);
	for (char *p = at; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (str_eq(at, "..") || str_ends(at, "/..") || (mkdirat(dir, at, 0700) < 0 && errno != EEXIST))
			return err_set(e, EINVAL, "'%.100s' is not a path below the task's files", path);
		*p = '/';
	}
	fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
	return fd < 0 ? err_sys(e, "keep '%.100s'", path) : fd;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void on_got(void *ctx, const struct client_answer *a)
{
	struct run *r = ctx;
	const struct spec_step *st = run_spec(r);
	json_t *step = json_array_get(r->steps, json_array_size(r->steps) - 1);
	const char *to = json_string_value(json_object_get(step, "to"));
	struct err e = { 0 };
	struct stat sb;
	char part[8192];
	ssize_t n;

	r->call = NULL;
	if (a->e && a->e->code == ENOENT && st->optional) {
		int dir = files_folder(r->s, r->t->id, false);

		if (dir >= 0)
			unlinkat(dir, to, 0);
		fd_drop(&dir);
		json_object_set_new(step, "missing", json_true());
		run_step_done(r, 0, 0, NULL);
		return;
	}
	if (a->e) {
		run_step_failed(r, a->e, a->retry_ms);
		return;
	}
	if (fstat(r->fd, &sb) == 0)
		note(r, to, (uint64_t)sb.st_size, st->show);
	if (st->capture) {
		struct keep got = r->out;

		keep_init(&r->out);
		for (off_t at = 0; r->out.total <= KEEP_HEAD && (n = pread(r->fd, part, sizeof part, at)) > 0; at += n)
			keep_add(&r->out, part, (size_t)n);
		expect_capture(r, st, NULL, &e);
		keep_done(&r->out);
		r->out = got;
	}
	fd_drop(&r->fd);
	if (e.code)
		run_step_done(r, 0, 0, "%s", e.msg);
	else
		run_step_done(r, 0, 0, NULL);
}

static void on_tree_got(void *ctx, const struct client_tree_end *x)
{
	struct run *r = ctx;
	const struct spec_step *st = run_spec(r);
	json_t *step = json_array_get(r->steps, json_array_size(r->steps) - 1);

	r->tree = NULL;
	fd_drop(&r->fd);
	if (x->e && !(x->e->code == ENOENT && st->optional)) {
		run_step_failed(r, x->e, 0);
		return;
	}
	json_object_set_new(step, "count", json_integer(x->files));
	if (x->skipped)
		json_object_set_new(step, "skipped", json_integer(x->skipped));
	run_step_done(r, 0, 0, NULL);
}

/* get = "FOLDER/": all of it, into the folder `to` (or its own name) */
static int get_folder(struct run *r, const struct spec_step *st, const char *from, const char *to, struct err *e)
{
	struct client_tree_spec ts = { .id = r->id, .remote = from, .user = user_of(r, st), .max = RUN_FILE_MAX,
		.end = on_tree_got };
	AUTO_FD int dir = files_folder(r->s, r->t->id, true);
	AUTO_FREE char *inside = NULL;
	int keep;

	if (dir < 0 || asprintf(&inside, "%s/.keep", to) < 0)
		return err_set(e, EIO, "keep '%.100s'", to);
	keep = artifact_open(dir, inside, e);           /* makes the folders, with every check */
	if (keep < 0)
		return keep;
	close(keep);
	unlinkat(dir, inside, 0);
	r->fd = openat(dir, to, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (r->fd < 0)
		return err_sys(e, "keep '%.100s'", to);
	ts.dirfd = r->fd;
	r->tree = client_tree_get(r->s->client, &ts, r);
	return r->tree ? 0 : err_set(e, ENOMEM, "no memory");
}

static int step_get(struct run *r, const struct spec_step *st, struct err *e)
{
	AUTO_FREE char *from = NULL, *to = NULL;
	struct client_file f = { .id = r->id, .user = user_of(r, st), .len = RUN_FILE_MAX };
	AUTO_FD int dir = -1;
	size_t n;
	bool folder;

	if (text_of(r, st->get, &from, e) < 0 || (st->to && text_of(r, st->to, &to, e) < 0))
		return -EINVAL;
	n = strlen(from);
	folder = n > 1 && from[n - 1] == '/';
	if (folder)
		from[n - 1] = '\0';
	if (!to)
		to = strdup(base_of(from));
	if (!to)
		return err_set(e, ENOMEM, "no memory");
	detail(r, "from", from);
	detail(r, "to", to);
	if (folder)
		return get_folder(r, st, from, to, e);
	dir = files_folder(r->s, r->t->id, true);
	if (dir < 0)
		return err_set(e, -dir, "make the folder of the task's files");
	r->fd = artifact_open(dir, to, e);
	if (r->fd < 0)
		return r->fd;
	f.fd = r->fd;
	f.path = from;
	r->call = client_get(r->s->client, &f, on_got, r);
	return r->call ? 0 : err_set(e, ENOMEM, "no memory");
}

static void on_stat(void *ctx, const struct client_answer *a)
{
	struct run *r = ctx;

	r->call = NULL;
	if (a->e && a->e->code == ENOENT)
		run_step_done(r, 0, 0, "the file isn't there");
	else if (a->e)
		run_step_failed(r, a->e, a->retry_ms);
	else
		run_step_done(r, 0, 0, NULL);
}

static int step_exists(struct run *r, const struct spec_step *st, struct err *e)
{
	AUTO_FREE char *path = NULL;
	char url[96];
	json_t *args;

	if (text_of(r, st->exists, &path, e) < 0)
		return -EINVAL;
	detail(r, "path", path);
	args = json_pack("{s:s}", "path", path);
	if (user_of(r, st))
		json_object_set_new(args, "user", json_string(user_of(r, st)));
	snprintf(url, sizeof url, "/v1/sandboxes/%s/files/stat", r->id);
	r->call = client_json(r->s->client, "GET", url, args, false, on_stat, r);
	return r->call ? 0 : err_set(e, ENOMEM, "no memory");
}

static int (*const begins[])(struct run *r, const struct spec_step *st, struct err *e) = {
	[STEP_RUN] = step_run, [STEP_SHELL] = step_run, [STEP_PUT] = step_put, [STEP_PUT_PART] = step_put_part, [STEP_PUT_FILES] = step_put_files,
	[STEP_WRITE] = step_write, [STEP_GET] = step_get, [STEP_EXISTS] = step_exists,
};

void step_begin(struct run *r)
{
	const struct spec_step *st = run_spec(r);
	struct err e = { 0 };
	json_t *step = json_pack("{s:s, s:b, s:I}", "kind", step_kind_name(st->kind), "check", (int)r->checking, "started", (json_int_t)clock_wall_ms());

	if (st->title)
		json_object_set_new(step, "title", json_string(st->title));
	json_array_append_new(r->steps, step);
	if (begins[st->kind](r, st, &e) < 0)
		run_step_done(r, FAIL_FINAL, 0, "%s", e.msg);
}
