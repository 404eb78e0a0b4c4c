/* entry -- what is said about one file. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/str.h"
#include "guest/file.h"

#define PREFIX "user.e2b."
#define NAMES 4096

/* "key=value" of each attribute of ours, while they fit. Returns how many. */
static uint32_t metadata(const char *path, char *out, size_t size, size_t *ret_len)
{
	char names[NAMES];
	ssize_t n = llistxattr(path, names, sizeof names);
	size_t at = 0;
	uint32_t count = 0;

	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
		size_t key;
		ssize_t v;

		if (!str_starts(p, PREFIX))
			continue;
		key = strlen(p + strlen(PREFIX));
		if (at + key + 2 >= size)
			break;
		v = lgetxattr(path, p, out + at + key + 1, size - at - key - 2);
		if (v < 0 || memchr(out + at + key + 1, 0, (size_t)v))
			continue;
		memcpy(out + at, p + strlen(PREFIX), key);
		out[at + key] = '=';
		at += key + 1 + (size_t)v;
		out[at++] = '\0';
		count++;
	}
	*ret_len = at;
	return count;
}

/* Where a link leads in the end, or what it says when that leads nowhere. The mode of what is there, or 0. */
static mode_t follow(const char *path, char *out)
{
	struct stat st;
	ssize_t n;

	if (realpath(path, out) && stat(out, &st) == 0)
		return st.st_mode;
	n = readlink(path, out, PATH_MAX - 1);
	out[n > 0 ? n : 0] = '\0';
	return 0;
}

int entry_put(struct users *users, struct msg_writer *w, const char *path, struct err *e)
{
	char link[PATH_MAX] = "", name[64], meta[ENTRY_META];
	mode_t target = 0;
	struct stat st;
	size_t len = 0;
	uint32_t n;

	if (lstat(path, &st) < 0) {
		if (errno == ENOENT)
			return err_set(e, ENOENT, "path '%.250s' does not exist", path);
		return err_sys(e, "stat '%s'", path);
	}
	if (S_ISLNK(st.st_mode))
		target = follow(path, link);
	n = metadata(path, meta, sizeof meta, &len);
	msg_put_str(w, path);
	msg_put_u32(w, (uint32_t)st.st_mode | (uint32_t)target << 16);
	msg_put_u64(w, (uint64_t)st.st_size);
	msg_put_u64(w, (uint64_t)((int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000));
	msg_put_u32(w, st.st_uid);
	msg_put_u32(w, st.st_gid);
	users_name(users, st.st_uid, name, sizeof name);
	msg_put_str(w, name);
	users_group(users, st.st_gid, name, sizeof name);
	msg_put_str(w, name);
	msg_put_str(w, link);
	msg_put_u32(w, n);
	for (const char *p = meta; p < meta + len; p += strlen(p) + 1)
		msg_put_str(w, p);
	return 0;
}

static void clear_meta(int fd)
{
	char names[NAMES];
	ssize_t n = flistxattr(fd, names, sizeof names);

	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		if (str_starts(p, PREFIX))
			fremovexattr(fd, p);
}

int entry_set_meta(int fd, const char *const *kv, size_t n, struct err *e)
{
	char name[XATTR_NAME_MAX + 1];

	clear_meta(fd);
	for (size_t i = 0; i < n; i++) {
		const char *eq = strchr(kv[i], '=');
		int k = eq ? snprintf(name, sizeof name, PREFIX "%.*s", (int)(eq - kv[i]), kv[i]) : -1;

		if (k <= (int)strlen(PREFIX) || (size_t)k >= sizeof name)
			return err_set(e, EINVAL, "metadata '%.40s' is not a name and a value", kv[i]);
		if (fsetxattr(fd, name, eq + 1, strlen(eq + 1), 0) < 0)
			return err_sys(e, "set metadata '%.60s'", name + strlen(PREFIX));
	}
	return 0;
}
