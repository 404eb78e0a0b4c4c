/* Files: stat, list, make, move, remove, read, write, and who owns what. */
#include "tap.h"
#include "guest_lab.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include "core/clock.h"

static struct lab l;

static struct lab_stream *ask(uint16_t type, const char *path, const char *user)
{
	struct msg_writer w;
	struct lab_stream *s = lab_begin(&l, &w, type);

	msg_put_str(&w, path);
	msg_put_str(&w, user);
	return lab_call(&l, s, &w);
}

struct entry {
	char path[GUEST_PATH + 1], owner[64], group[64], link[GUEST_PATH + 1], meta[200];
	uint32_t mode, uid;
	uint64_t size;
	uint8_t kind;
};

static struct entry *entry_of(struct lab_stream *s)
{
	static struct entry e;
	struct msg_reader r = { .p = s->reply, .end = s->reply + s->reply_len };
	const char *meta[9];
	size_t n;

	memset(&e, 0, sizeof e);
	snprintf(e.path, sizeof e.path, "%s", msg_get_str(&r, GUEST_PATH));
	e.mode = msg_get_u32(&r);
	e.size = msg_get_u64(&r);
	msg_get_u64(&r);
	e.uid = msg_get_u32(&r);
	msg_get_u32(&r);
	snprintf(e.owner, sizeof e.owner, "%s", msg_get_str(&r, 63));
	snprintf(e.group, sizeof e.group, "%s", msg_get_str(&r, 63));
	snprintf(e.link, sizeof e.link, "%s", msg_get_str(&r, GUEST_PATH));
	n = msg_get_strv(&r, meta, 8, 8192);
	for (size_t i = 0; i < n; i++)
		snprintf(e.meta + strlen(e.meta), sizeof e.meta - strlen(e.meta), "%s;", meta[i]);
	if (r.p < r.end)
		e.kind = msg_get_u8(&r);
	if (r.bad || r.p != r.end)
		printf("# entry of '%s' is badly formed\n", e.path);
	return &e;
}

static struct lab_stream *write_file(const char *path, const char *user, uint32_t mode, const char *meta, const char *text)
{
	struct msg_writer w;
	struct lab_stream *s = lab_begin(&l, &w, G_WRITE);

	msg_put_str(&w, path);
	msg_put_str(&w, user);
	msg_put_u32(&w, mode);
	msg_put_strv(&w, &meta, meta != NULL);
	msg_put_u64(&w, 0);
	lab_call(&l, s, &w);
	if (!s->failed && s->fd >= 0 && write(s->fd, text, strlen(text)) < 0)
		s->failed = true;
	if (s->fd >= 0)
		close(s->fd);
	return s;
}

static const char *content(struct lab_stream *s)
{
	static char text[65536];
	size_t n = 0;
	ssize_t k;

	while (s->fd >= 0 && n < sizeof text - 1 && (k = read(s->fd, text + n, sizeof text - 1 - n)) > 0)
		n += (size_t)k;
	text[n] = '\0';
	if (s->fd >= 0)
		close(s->fd);
	return text;
}

static void writing(void)
{
	const char *user = l.single ? "root" : "user";
	struct lab_stream *s = write_file("a/b/hello.txt", "", 0, "color=blue", "hello");
	struct entry *e = entry_of(s);

	ok(!s->failed, "written %s", s->msg);
	is_str(e->path, "/home/user/a/b/hello.txt", "below the home");
	ok((e->mode & 07777) == 0644 && S_ISREG(e->mode), "mode 0644");
	is_str(e->owner, user, "owner");
	is_str(e->meta, "color=blue;", "metadata");
	s = ask(G_STAT, "~/a/../a/b//hello.txt", "");
	e = entry_of(s);
	ok(e->size == 5, "size %llu", (unsigned long long)e->size);
	is_str(e->path, "/home/user/a/b/hello.txt", "clean");
	is_str(entry_of(ask(G_STAT, "a/b", ""))->owner, user, "parents are the user's");
	s = write_file("a/b/hello.txt", "", 0755, "size=big", "hi");
	e = entry_of(ask(G_STAT, "a/b/hello.txt", ""));
	ok(e->size == 2 && (e->mode & 07777) == 0755, "truncated, new mode");
	is_str(e->meta, "size=big;", "metadata is replaced");
	s = write_file("/app/main.py", "", 0, NULL, "x");
	ok(!s->failed, "the default user may write anywhere %s", s->msg);
	is_str(entry_of(ask(G_STAT, "/app/main.py", ""))->owner, user, "and owns it");
	s = write_file("/app", "", 0, NULL, "x");
	ok(s->failed && s->code == EISDIR, "%s", s->msg);
	s = write_file("/app/main.py/x", "", 0, NULL, "x");
	ok(s->failed && s->code == ENOTDIR, "%s", s->msg);
	lab_sh(&l, "", "mkfifo fifo");
	s = write_file("fifo", "", 0, NULL, "x");
	ok(s->failed && s->code == EINVAL, "%s", s->msg);
	s = write_file("/dev/null", "root", 0, NULL, "x");
	ok(s->failed && s->code == EINVAL, "%s", s->msg);
	if (l.single)
		return;
	s = write_file("/home/user/from-other", "other", 0, NULL, "x");
	ok(s->failed && s->code == EACCES, "another user has his own rights: %s", s->msg);
	s = write_file("mine", "other", 0, NULL, "x");
	is_str(entry_of(s)->owner, "other", "and his own files");
}

static void reading(void)
{
	struct lab_stream *s = ask(G_READ, "a/b/hello.txt", "");

	ok(entry_of(s)->kind == GUEST_FILE && s->fd >= 0, "a file");
	is_str(content(s), "hi", "content");
	s = ask(G_READ, "/proc/self/status", "");
	ok(entry_of(s)->kind == GUEST_PIPE, "a pipe for /proc");
	ok(strstr(content(s), "Name:"), "content of /proc");
	s = ask(G_READ, "fifo", "");
	ok(!s->failed && strlen(content(s)) == 0, "an empty FIFO doesn't block");
	s = ask(G_READ, "/dev/zero", "");
	ok(!s->failed && entry_of(s)->kind == GUEST_PIPE, "a device");
	close(s->fd);
	s = ask(G_READ, "a", "");
	ok(s->code == EISDIR, "%s", s->msg);
	s = ask(G_READ, "nothing", "");
	ok(s->code == ENOENT, "%s", s->msg);
	if (!l.single) {
		lab_sh(&l, "", "chmod 700 /home/user; echo secret > s; chmod 600 s");
		s = ask(G_READ, "/home/user/s", "other");
		ok(s->code == EACCES, "%s", s->msg);
		s = ask(G_STAT, "/home/user/s", "other");
		ok(s->code == EACCES, "%s", s->msg);
		s = ask(G_READ, "/home/user/s", "root");
		is_str(content(s), "secret\n", "root may");
	}
	s = ask(G_STAT, "x", "who");
	ok(s->code == EACCES, "%s", s->msg);
}

static struct lab_stream *dir(const char *path, uint32_t depth)
{
	struct msg_writer w;
	struct lab_stream *s = lab_begin(&l, &w, G_DIR);

	msg_put_str(&w, path);
	msg_put_str(&w, "");
	msg_put_u32(&w, depth);
	return lab_call(&l, s, &w);
}

static void listing(void)
{
	struct lab_stream *s;

	lab_sh(&l, "", "mkdir -p d/y/z d/x && touch d/f d/x/g d/y/z/h && ln -s f d/link && ln -s nowhere d/lost && ln -s ../d d/x/up");
	s = dir("d", 1);
	is_str(s->names, "/home/user/d/f\n/home/user/d/link\n/home/user/d/lost\n/home/user/d/x\n/home/user/d/y\n", "one level, sorted");
	ok(s->reply_len == 4 && s->reply[0] == 5, "counted");
	s = dir("d", 9);
	is_str(s->names, "/home/user/d/f\n/home/user/d/link\n/home/user/d/lost\n/home/user/d/x\n/home/user/d/x/g\n/home/user/d/x/up\n"
		"/home/user/d/y\n/home/user/d/y/z\n/home/user/d/y/z/h\n", "all levels, links not followed");
	ok(S_ISLNK(entry_of(ask(G_STAT, "d/link", ""))->mode), "a link is a link");
	is_str(entry_of(ask(G_STAT, "d/link", ""))->link, "/home/user/d/f", "that leads there");
	ok(S_ISREG(entry_of(ask(G_STAT, "d/link", ""))->mode >> 16), "to a file");
	is_str(entry_of(ask(G_STAT, "d/lost", ""))->link, "nowhere", "or nowhere");
	ok(dir("d/f", 1)->code == ENOTDIR && dir("d/none", 1)->code == ENOENT && dir("d", 0)->code == EINVAL, "faults");
	lab_sh(&l, "", "mkdir many; cd many; seq 1 5000 | xargs touch");
	s = dir("many", 1);
	ok(!s->failed && s->count == 5000, "%u of 5000", s->count);
}

static void changing(void)
{
	struct msg_writer w;
	struct lab_stream *s = ask(G_MKDIR, "n/e/w", "");

	ok(!s->failed && S_ISDIR(entry_of(s)->mode) && (entry_of(s)->mode & 0777) == 0755, "made");
	ok(ask(G_MKDIR, "n/e/w", "")->code == EEXIST, "exists");
	ok(ask(G_MKDIR, "d/f", "")->code == ENOTDIR, "something else there");
	ok(ask(G_MKDIR, "d/f/x", "")->code == ENOTDIR, "something else on the way");
	s = lab_begin(&l, &w, G_MOVE);
	msg_put_str(&w, "d"), msg_put_str(&w, "p/q/d2"), msg_put_str(&w, "");
	lab_call(&l, s, &w);
	is_str(entry_of(s)->path, "/home/user/p/q/d2", "moved");
	ok(ask(G_STAT, "d", "")->code == ENOENT, "away");
	s = lab_begin(&l, &w, G_MOVE);
	msg_put_str(&w, "d"), msg_put_str(&w, "x"), msg_put_str(&w, "");
	ok(lab_call(&l, s, &w)->code == ENOENT, "%s", s->msg);
	write_file("p/q/meta", "", 0640, "k=v", "text");
	lab_sh(&l, "", "mkfifo p/fifo; touch -d 2001-02-03 p/q/meta");
	s = lab_begin(&l, &w, G_MOVE);
	msg_put_str(&w, "p"), msg_put_str(&w, "/dev/shm/to/p"), msg_put_str(&w, "");
	lab_call(&l, s, &w);
	is_str(entry_of(s)->path, "/dev/shm/to/p", "moved to another filesystem by copying");
	ok(ask(G_STAT, "p", "")->code == ENOENT && dir("/dev/shm/to/p", 9)->count == 13 && dir("/dev/shm/to", 1)->count == 1, "all of it, nothing left over");
	s = lab_sh(&l, "", "cd /dev/shm/to/p; stat -c '%a %U %y' q/meta | cut -c1-19; cat q/meta; readlink q/d2/lost; stat -c ' %F' fifo");
	is_str(s->text, l.single ? "640 root 2001-02-03\ntextnowhere\n fifo\n" : "640 user 2001-02-03\ntextnowhere\n fifo\n", "mode, owner, time, content, links, FIFOs");
	is_str(entry_of(ask(G_STAT, "/dev/shm/to/p/q/meta", ""))->meta, "k=v;", "and metadata");
	s = lab_begin(&l, &w, G_MOVE);
	msg_put_str(&w, "/dev/shm/to/p"), msg_put_str(&w, "/dev/shm/p"), msg_put_str(&w, "");
	ok(!lab_call(&l, s, &w)->failed, "and by rename");
	ok(!ask(G_REMOVE, "/dev/shm/p", "")->failed && ask(G_STAT, "/dev/shm/p", "")->code == ENOENT, "a tree is removed");
	ok(!ask(G_REMOVE, "/dev/shm/p", "")->failed, "missing is fine");
	ok(!ask(G_REMOVE, "a/b/hello.txt", "")->failed && ask(G_STAT, "a/b/hello.txt", "")->code == ENOENT, "a file");
	ok(ask(G_REMOVE, "/", "")->code == EINVAL && ask(G_REMOVE, "/usr/..", "root")->code == EINVAL, "not everything");
	ok(ask(G_REMOVE, "/sealed/file", "")->code == EROFS, "not what is read-only");
}

static int64_t held(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? -1 : (int64_t)st.st_blocks * 512;
}

/* Room for what comes is made in the computer, and given back when less came. */
static void room(void)
{
	const uint64_t size = 8 << 20;
	struct msg_writer w;
	struct lab_stream *s = lab_begin(&l, &w, G_WRITE);
	int64_t until = clock_mono_ms() + 10000;
	char self[40];
	int look;

	msg_put_str(&w, "/tmp/large");
	msg_put_str(&w, "");
	msg_put_u32(&w, 0);
	msg_put_strv(&w, NULL, 0);
	msg_put_u64(&w, size);
	lab_call(&l, s, &w);
	snprintf(self, sizeof self, "/proc/self/fd/%d", s->fd);
	look = open(self, O_RDONLY | O_CLOEXEC);
	if (!ok(!s->failed && look >= 0, "a large file"))
		return;
	if (held(look) == 0)
		skip("this file system makes no room");
	else
		ok(held(look) >= (int64_t)size && lseek(look, 0, SEEK_END) == 0, "has its room before anything comes, and is empty");
	ok(write(s->fd, "abc", 3) == 3, "little comes");
	close(s->fd);
	while (held(look) > 65536 && clock_mono_ms() < until)
		poll(NULL, 0, 5);
	ok(held(look) <= 65536 && lseek(look, 0, SEEK_END) == 3, "the rest is given back");
	close(look);
	s = write_file("/tmp/large", "", 0, NULL, "again");
	ok(!s->failed, "and it can be written again");
}

int main(void)
{
	if (!lab_start(&l)) {
		skip("no user namespaces here");
		return done_testing();
	}
	writing();
	reading();
	listing();
	changing();
	room();
	lab_end(&l);
	return done_testing();
}
