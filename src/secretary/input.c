#include "secretary/input.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "core/fd.h"
#include "core/str.h"

int input_open_below(int dirfd, const char *path, struct err *e)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	AUTO_FD int fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
	struct stat st;

	if (fd < 0 && errno == EXDEV) {
		err_set(e, EXDEV, "'%.120s' lies outside the job file's folder", path);
		return err_hint(e, "put the file beside the job file");
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "open '%.120s' beside the job file", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "'%.120s' is not a regular file", path);
	return fd_take(&fd);
}

static int read_fd(int fd, const char *path, char **ret, size_t *ret_n, struct err *e)
{
	char self[40];

	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	return fd_read_file(AT_FDCWD, self, INPUT_MAX, ret, ret_n, e) < 0 ? err_wrap(e, "read '%.120s'", path) : 0;
}

static int read_below(int dirfd, const char *path, char **ret, size_t *ret_n, struct err *e)
{
	AUTO_FD int fd = input_open_below(dirfd, path, e);

	return fd < 0 ? fd : read_fd(fd, path, ret, ret_n, e);
}

/* A file of this machine: only what everybody may read, by a path that everybody may walk. */
static int read_host(const char *path, char **ret, size_t *ret_n, struct err *e)
{
	AUTO_FD int fd = -1;
	char at[PATH_MAX];
	struct stat st;

	if (path[0] != '/' || str_copy(at, sizeof at, path) < 0)
		return err_set(e, EINVAL, "host_file must be an absolute path");
	for (char *slash = strrchr(at, '/'); slash && slash != at; slash = strrchr(at, '/')) {
		*slash = '\0';
		if (stat(at, &st) < 0) {
			if (errno == EACCES)
				goto secret;
			return err_sys(e, "look at '%.120s'", at);
		}
		if (!(st.st_mode & S_IXOTH))
			goto secret;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 && errno == EACCES)
		goto secret;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "open '%.120s'", path);
	if (!S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH))
		goto secret;
	return read_fd(fd, path, ret, ret_n, e);
secret:
	err_set(e, EACCES, "a job may not take '%.120s': not everybody may read it", path);
	return err_hint(e, "copy it beside the job file if the job may have it");
}

/* One field at *p into out; 1 = another field follows in this row, 0 = the row is over. */
static int csv_field(const char **p, const char *end, struct buf *out, struct err *e)
{
	const char *s = *p;

	buf_clear(out);
	if (s < end && *s == '"') {
		for (s++;; s++) {
			if (s == end)
				return err_set(e, EINVAL, "a quoted field has no end");
			if (*s == '"' && s + 1 < end && s[1] == '"')
				s++;
			else if (*s == '"')
				break;
			buf_addc(out, *s);
		}
		s++;
	} else {
		while (s < end && *s != ',' && *s != '\n' && *s != '"' && !(*s == '\r' && s + 1 < end && s[1] == '\n'))
			buf_addc(out, *s++);
	}
	if (s < end && *s == ',') {
		*p = s + 1;
		return 1;
	}
	if (s < end && *s == '\r')
		s++;
	if (s < end && *s != '\n')
		return err_set(e, EINVAL, "text around a quoted field");
	*p = s < end ? s + 1 : s;
	return 0;
}

static int csv_row(const char **p, const char *end, json_t *row, struct err *e)
{
	AUTO_BUF struct buf f = BUF_INIT(1u << 20);
	int r;

	do {
		r = csv_field(p, end, &f, e);
		if (r < 0)
			return r;
		if (json_array_size(row) == INPUT_COLUMNS)
			return err_set(e, E2BIG, "more than %d columns", INPUT_COLUMNS);
		if (!buf_ok(&f) || json_array_append_new(row, json_stringn(buf_at(&f), f.len)) < 0)
			return err_set(e, EINVAL, "a field is too large or not UTF-8");
	} while (r > 0);
	return 0;
}

static int csv_named(const json_t *names, const json_t *row, json_t *rows, struct err *e)
{
	json_t *o = json_object(), *v;
	size_t i;

	json_array_foreach(row, i, v)
		json_object_set(o, json_string_value(json_array_get(names, i)), v);
	return json_array_append_new(rows, o) < 0 ? err_set(e, ENOMEM, "no memory") : 0;
}

static int csv_header(const json_t *names, struct err *e)
{
	json_t *v;
	size_t i;

	json_array_foreach(names, i, v) {
		if (!json_string_length(v))
			return err_set(e, EINVAL, "row 1: column %zu has no name", i + 1);
		for (size_t k = 0; k < i; k++) {
			if (json_equal(json_array_get(names, k), v))
				return err_set(e, EINVAL, "row 1: two columns are called '%.60s'", json_string_value(v));
		}
	}
	return 0;
}

int input_csv(const char *p, size_t n, json_t **ret_rows, struct err *e)
{
	AUTO_JSON json_t *names = json_array(), *rows = json_array();
	const char *end = p + n;
	size_t line = 1;
	int r;

	if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
		p += 3;
	r = csv_row(&p, end, names, e);
	if (r >= 0)
		r = csv_header(names, e);
	while (r >= 0 && p < end) {
		AUTO_JSON json_t *row = json_array();

		line++;
		r = csv_row(&p, end, row, e);
		if (r < 0)
			break;
		if (json_array_size(row) == 1 && json_array_size(names) > 1 && !json_string_length(json_array_get(row, 0)))
			continue;       /* an empty line */
		if (json_array_size(row) != json_array_size(names))
			r = err_set(e, EINVAL, "%zu fields instead of %zu", json_array_size(row), json_array_size(names));
		else if (json_array_size(rows) == INPUT_ROWS)
			r = err_set(e, E2BIG, "more than %d rows", INPUT_ROWS);
		else
			r = csv_named(names, row, rows, e);
	}
	if (r < 0)
		return err_wrap(e, "row %zu", line);
	*ret_rows = json_incref(rows);
	return 0;
}

int input_jsonl(const char *p, size_t n, json_t **ret_rows, struct err *e)
{
	AUTO_JSON json_t *rows = json_array();
	const char *end = p + n;
	size_t line = 0;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t len = (size_t)((nl ? nl : end) - p);
		json_t *v = NULL;

		line++;
		if (len && p[len - 1] == '\r')
			len--;
		if (len) {
			if (js_parse(p, len, &v, e) < 0)
				return err_wrap(e, "line %zu", line);
			if (!json_is_object(v) || json_array_size(rows) == INPUT_ROWS) {
				json_decref(v);
				return err_set(e, EINVAL, "line %zu: %s", line, "not an object, or too many rows");
			}
			json_array_append_new(rows, v);
		}
		p = nl ? nl + 1 : end;
	}
	*ret_rows = json_incref(rows);
	return 0;
}

int input_split(const char *p, size_t n, const char *separator, int parts, size_t *ends)
{
	size_t at = 0, len = strlen(separator);
	int k = 0;

	while (at < n && k < parts) {
		size_t want = at + (n - at) / (size_t)(parts - k);
		const char *hit = k == parts - 1 || want >= n ? NULL : memmem(p + want, n - want, separator, len);

		at = hit ? (size_t)(hit - p) + len : n;
		ends[k++] = at;
	}
	return k;
}

static int load_split(const struct spec_input *in, int folder_fd, int job_fd, json_t **ret_rows, struct err *e)
{
	AUTO_JSON json_t *rows = json_array();
	AUTO_FREE char *text = NULL;
	AUTO_FREE size_t *ends = calloc((size_t)in->split.parts, sizeof *ends);
	size_t n, from = 0;
	char dir[128], path[160];
	int r = in->split.host_file ? read_host(in->split.host_file, &text, &n, e) : read_below(folder_fd, in->split.file, &text, &n, e);
	int parts;

	if (r < 0)
		return r;
	if (!ends)
		return err_set(e, ENOMEM, "no memory");
	parts = input_split(text, n, in->split.separator ? in->split.separator : "\n", (int)in->split.parts, ends);
	snprintf(dir, sizeof dir, "inputs/%s", in->name);
	if (mkdirat(job_fd, dir, 0700) < 0 && errno != EEXIST)
		return err_sys(e, "make '%s'", dir);
	for (int i = 0; i < parts; i++) {
		snprintf(path, sizeof path, "%s/part-%d", dir, i + 1);
		r = fd_write_file(job_fd, path, 0600, text + from, ends[i] - from, e);
		if (r < 0)
			return r;
		json_array_append_new(rows, json_pack("{s:s, s:i, s:i, s:I}", "file", path, "part", i + 1, "parts", parts, "bytes", (json_int_t)(ends[i] - from)));
		from = ends[i];
	}
	*ret_rows = json_incref(rows);
	return 0;
}

static json_t *of_toml(const struct toml *v)
{
	switch (v->type) {
	case TOML_STR:
	case TOML_TIME: return json_string(v->str);
	case TOML_INT: return json_integer(v->num);
	case TOML_FLOAT: return json_real(v->real);
	case TOML_BOOL: return json_boolean(v->yes);
	default: return NULL;
	}
}

static int load_inline(const struct spec *s, const struct toml *rows_node, json_t **ret_rows, struct err *e)
{
	AUTO_JSON json_t *rows = json_array();

	toml_each(row, rows_node) {
		AUTO_JSON json_t *o = json_object();

		if (row->type != TOML_TABLE)
			return err_set(e, EINVAL, "%.60s:%d: rows are tables: { name = \"value\" }", s->file, row->line);
		toml_each(v, row) {
			json_t *m = of_toml(v);

			if (!m)
				return err_set(e, EINVAL, "%.60s:%d: a row holds plain values", s->file, v->line);
			json_object_set_new(o, v->key, m);
		}
		json_array_append(rows, o);
	}
	*ret_rows = json_incref(rows);
	return 0;
}

static int load_fresh(const struct spec *s, const struct spec_input *in, int folder_fd, int job_fd, json_t **ret_rows, struct err *e)
{
	AUTO_FREE char *text = NULL;
	const char *path = in->csv ? in->csv : in->jsonl;
	size_t n;
	int r;

	if (in->rows)
		return load_inline(s, in->rows, ret_rows, e);
	if (in->split_node)
		return load_split(in, folder_fd, job_fd, ret_rows, e);
	r = read_below(folder_fd, path, &text, &n, e);
	if (r < 0)
		return r;
	r = in->csv ? input_csv(text, n, ret_rows, e) : input_jsonl(text, n, ret_rows, e);
	return r < 0 ? err_wrap(e, "'%.100s'", path) : 0;
}

int input_load(const struct spec *s, int index, int folder_fd, int job_fd, json_t **ret_rows, struct err *e)
{
	const struct spec_input *in = &s->inputs[index];
	AUTO_JSON json_t *rows = NULL;
	AUTO_BUF struct buf out = BUF_INIT(INPUT_MAX * 2);
	AUTO_FREE char *text = NULL;
	char path[128];
	size_t n;
	int r;

	snprintf(path, sizeof path, "inputs/%s.json", in->name);
	r = fd_read_file(job_fd, path, INPUT_MAX * 2, &text, &n, e);
	if (r >= 0)
		return js_parse(text, n, ret_rows, e);
	if (r != -ENOENT)
		return r;
	r = load_fresh(s, in, folder_fd, job_fd, &rows, e);
	if (r < 0)
		return err_wrap(e, "%.60s:%d: input '%s'", s->file, in->line, in->name);
	if (!json_array_size(rows))
		return err_set(e, EINVAL, "%.60s:%d: input '%s' has no rows", s->file, in->line, in->name);
	js_dump(rows, &out);
	if (!buf_ok(&out))
		return err_set(e, EFBIG, "input '%s' is too large", in->name);
	r = fd_write_file(job_fd, path, 0600, buf_at(&out), out.len, e);
	if (r < 0)
		return r;
	*ret_rows = json_incref(rows);
	return 0;
}
