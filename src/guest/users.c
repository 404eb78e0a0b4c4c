#include "guest/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"

#define FILE_MAX (1u << 20)
#define LINE_MAX_ 2048
#define FIELDS 7

/* With "0 X 1" as its map this namespace has uid 0 and nobody else. */
static bool one_id(void)
{
	char map[4096];
	unsigned long in, out, count, most = 0;
	int used;

	if (fd_read_text(AT_FDCWD, "/proc/self/uid_map", map, sizeof map) < 0)
		return geteuid() != 0;
	for (const char *p = map; sscanf(p, " %lu %lu %lu%n", &in, &out, &count, &used) == 3; p += used)
		if (in + count > most)
			most = in + count;
	return most <= USER_DEFAULT_UID;
}

void users_init(struct users *u)
{
	char said[16];

	memset(u, 0, sizeof *u);
	u->single = one_id();
	if (fd_read_text(AT_FDCWD, "/proc/self/setgroups", said, sizeof said) >= 0)
		u->no_setgroups = str_starts(said, "deny");
}

static void file_done(struct users_file *f)
{
	free(f->text);
	memset(f, 0, sizeof *f);
}

void users_done(struct users *u)
{
	file_done(&u->passwd);
	file_done(&u->group);
}

/* The file is the computer's own: it may be a FIFO, huge, or gone. What can't be read has no names in it. */
static void refresh(struct users_file *f, const char *path)
{
	struct stat st;
	AUTO_FD int fd = -1;
	ssize_t n;
	char *text;

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
		file_done(f);
		return;
	}
	if (f->text && st.st_ino == f->st.st_ino && st.st_size == f->st.st_size && st.st_dev == f->st.st_dev &&
	    st.st_mtim.tv_sec == f->st.st_mtim.tv_sec && st.st_mtim.tv_nsec == f->st.st_mtim.tv_nsec)
		return;
	file_done(f);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	text = malloc((size_t)st.st_size + 1);
	if (fd < 0 || !text || (n = pread(fd, text, (size_t)st.st_size, 0)) < 0) {
		free(text);
		return;
	}
	text[n] = '\0';
	f->text = text;
	f->len = (size_t)n;
	f->st = st;
}

size_t users_fields(char *line, char **f, size_t max)
{
	size_t n = 0;

	while (n < max) {
		char *colon = strchr(line, ':');

		f[n++] = line;
		if (!colon)
			break;
		*colon = '\0';
		line = colon + 1;
	}
	return n;
}

/* The next line into buf (over-long ones are skipped), its fields into f. 0 at the end. */
static size_t next(const char **at, char *buf, char **f)
{
	while (*at && **at) {
		const char *end = strchr(*at, '\n');
		size_t n = end ? (size_t)(end - *at) : strlen(*at);
		const char *line = *at;

		*at = end ? end + 1 : NULL;
		if (n == 0 || n >= LINE_MAX_ || line[0] == '#')
			continue;
		memcpy(buf, line, n);
		buf[n] = '\0';
		return users_fields(buf, f, FIELDS);
	}
	return 0;
}

static bool number(const char *s, uint32_t *ret)
{
	uint64_t v;

	if (str_u64(s, UINT32_MAX - 1, &v) < 0)
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* Is `name` one of the comma-separated members? */
static bool member(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
			return true;
	}
	return false;
}

static void add_groups(struct users *u, struct user *who)
{
	char buf[LINE_MAX_], *f[FIELDS];
	const char *at;
	gid_t gid;

	refresh(&u->group, "/etc/group");
	at = u->group.text;
	for (size_t n; (n = next(&at, buf, f)) > 0;)
		if (n >= 4 && who->ngroups < USER_GROUPS && number(f[2], &gid) && gid != who->gid && member(f[3], who->name))
			who->groups[who->ngroups++] = gid;
}

static bool fill(struct users *u, char **f, size_t n, struct user *ret)
{
	memset(ret, 0, sizeof *ret);
	if (n < 6 || !number(f[2], &ret->uid) || !number(f[3], &ret->gid))
		return false;
	if (str_copy(ret->name, sizeof ret->name, f[0]) < 0)
		return false;
	if (f[5][0] != '/' || str_copy(ret->home, sizeof ret->home, f[5]) < 0)
		str_copy(ret->home, sizeof ret->home, "/");
	if (n < 7 || f[6][0] != '/' || str_copy(ret->shell, sizeof ret->shell, f[6]) < 0)
		str_copy(ret->shell, sizeof ret->shell, "/bin/sh");
	ret->admin = ret->uid == 0 || ret->uid == USER_DEFAULT_UID;
	ret->single = u->single;
	if (u->single) {
		ret->uid = ret->gid = 0;
		ret->admin = true;
	} else if (!u->no_setgroups) {
		add_groups(u, ret);
	}
	return true;
}

static int find(struct users *u, const char *name, uid_t uid, struct user *ret)
{
	char buf[LINE_MAX_], *f[FIELDS];
	const char *at;
	uint32_t id;

	refresh(&u->passwd, "/etc/passwd");
	at = u->passwd.text;
	for (size_t n; (n = next(&at, buf, f)) > 0;) {
		if (n < 4 || (name ? !str_eq(f[0], name) : !number(f[2], &id) || id != uid))
			continue;
		if (fill(u, f, n, ret))
			return 0;
	}
	if (uid != 0 && (!name || !str_eq(name, "root")))
		return -EACCES;
	/* root exists even where a template has no /etc/passwd */
	memset(ret, 0, sizeof *ret);
	str_copy(ret->name, sizeof ret->name, "root");
	str_copy(ret->home, sizeof ret->home, "/root");
	str_copy(ret->shell, sizeof ret->shell, "/bin/sh");
	ret->admin = true;
	ret->single = u->single;
	return 0;
}

int users_find(struct users *u, const char *name, struct user *ret, struct err *e)
{
	uint32_t uid;

	if (name[0] == '\0') {
		if (find(u, USER_DEFAULT, (uid_t)-1, ret) == 0)
			return 0;
		name = "root";
	}
	if (name[0] == '#' && number(name + 1, &uid) && find(u, NULL, uid, ret) == 0)
		return 0;
	if (find(u, name, (uid_t)-1, ret) == 0)
		return 0;
	return err_set(e, EACCES, "no user '%s' in this computer", name);
}

int users_find_uid(struct users *u, uid_t uid, struct user *ret, struct err *e)
{
	if (find(u, NULL, uid, ret) == 0)
		return 0;
	return err_set(e, EACCES, "no user with uid %u in this computer", (unsigned)uid);
}

static void name_of(struct users_file *file, uint32_t id, char *out, size_t size)
{
	char buf[LINE_MAX_], *f[FIELDS];
	const char *at = file->text;
	uint32_t have;

	for (size_t n; (n = next(&at, buf, f)) > 0;) {
		if (n >= 3 && number(f[2], &have) && have == id && str_copy(out, size, f[0]) == 0)
			return;
	}
	snprintf(out, size, "%u", (unsigned)id);
}

void users_name(struct users *u, uid_t uid, char *out, size_t size)
{
	refresh(&u->passwd, "/etc/passwd");
	name_of(&u->passwd, uid, out, size);
}

void users_group(struct users *u, gid_t gid, char *out, size_t size)
{
	refresh(&u->group, "/etc/group");
	name_of(&u->group, gid, out, size);
}

bool users_may_sudo(const struct users *u, uid_t uid)
{
	return uid == 0 || uid == USER_DEFAULT_UID;
}
