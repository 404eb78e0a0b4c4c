#include "core/newfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/fd.h"
#include "tap.h"

static char path[] = "/tmp/bureau-newfile-XXXXXX";
static int dir;

/* Names there but "." and "..", and a file's text. */
static int names(void)
{
	DIR *d = opendir(path);
	int n = -2;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static const char *text(const char *name)
{
	static char out[100];
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, out, sizeof out - 1) : -1;

	out[n < 0 ? 0 : n] = '\0';
	fd_drop(&fd);
	return n < 0 ? "none" : out;
}

static int put(const char *name, const char *s, bool commit, struct err *e)
{
	struct newfile f;
	int r = newfile_begin(&f, dir, name, 0640, e);

	if (r == 0)
		r = fd_write_all(f.fd, s, strlen(s), e);
	if (r == 0 && commit)
		return newfile_commit(&f, e);
	newfile_drop(&f);
	return r;
}

static void test_all(void)
{
	struct stat st, before;
	struct newfile f;
	struct err e;

	umask(022);
	ok(put("a", "one", false, &e) == 0 && names() == 0, "dropped: nothing is left");
	ok(put("a", "one", true, &e) == 0 && names() == 1, "a new file");
	is_str(text("a"), "one", "with its text");
	ok(fstatat(dir, "a", &st, 0) == 0 && (st.st_mode & 07777) == 0640, "and mode");
	fchmodat(dir, "a", 0604, 0);
	before = st;
	ok(put("a", "two", false, &e) == 0 && strcmp(text("a"), "one") == 0, "dropped: the old one stays");
	ok(put("a", "two", true, &e) == 0 && names() == 1, "replaced");
	is_str(text("a"), "two", "the new text");
	ok(fstatat(dir, "a", &st, 0) == 0 && (st.st_mode & 07777) == 0604 && st.st_ino != before.st_ino, "the old mode");
	if (geteuid() == 0) {
		ok(fchownat(dir, "a", 7, 8, 0) == 0 && put("a", "x", true, &e) == 0 && fstatat(dir, "a", &st, 0) == 0 && st.st_uid == 7 && st.st_gid == 8,
			"the old owner");
	} else {
		skip("the owner: not root");
	}
	ok(symlinkat("a", dir, "link") == 0 && put("link", "x", true, &e) == -EEXIST, "not through a link");
	ok(mkdirat(dir, "folder", 0700) == 0 && put("folder", "x", true, &e) == -EEXIST, "not over a folder");
	ok(put("../a", "x", true, &e) == -EINVAL && put("", "x", true, &e) == -EINVAL && put("..", "x", true, &e) == -EINVAL, "a name is one part");
	ok(newfile_begin(&f, dir, "late", 0600, &e) == 0 && mkdirat(dir, "late", 0700) == 0 && newfile_commit(&f, &e) < 0, "a folder that came in between stays");
	ok(names() == 4, "and nothing is left beside it");
	ok(newfile_begin(&f, dir, "b", 0600, &e) == 0 && put("b", "other", true, &e) == 0 && newfile_commit(&f, &e) == 0 && names() == 5, "the last of two wins");
	is_str(text("b"), "", "whole");
}

int main(void)
{
	if (!mkdtemp(path))
		return 1;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	test_all();
	close(dir);
	fd_remove_tree(AT_FDCWD, path, NULL);
	return done_testing();
}
