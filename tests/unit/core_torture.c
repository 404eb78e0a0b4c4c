/* Each allocation fails once: for every case, first count its allocations, then run it again that many times, failing the first,
 * the second, ... Whatever happens must be a clean error or a complete success, and nothing may leak. */
#include "core/buf.h"
#include "core/fd.h"
#include "core/json.h"
#include "core/loop.h"
#include "core/map.h"
#include "core/str.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
int main(void)
{
	skip("the allocator belongs to the sanitizer here");
	return done_testing();
}
#else
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static char top[256];
static bool counting;
static int calls, fail_at, live;

static bool fails(void)
{
	return counting && ++calls == fail_at;
}

static void *track(void *p)
{
	live += counting && p;
	return p;
}

void *malloc(size_t n) { if (fails()) { errno = ENOMEM; return NULL; } return track(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { if (fails()) { errno = ENOMEM; return NULL; } return track(__libc_calloc(n, size)); }
void free(void *p) { live -= counting && p; __libc_free(p); }

void *realloc(void *p, size_t n)
{
	void *q;

	if (fails()) {
		errno = ENOMEM;
		return NULL;
	}
	q = __libc_realloc(p, n);
	live += counting && !p && q;
	return q;
}

static int case_buf(void)
{
	AUTO_BUF struct buf b = BUF_INIT(10000);
	AUTO_FREE char *taken = NULL;

	for (int i = 0; i < 200; i++)
		buf_printf(&b, "line %d\n", i);
	if (!buf_ok(&b))
		return -ENOMEM;
	buf_consume(&b, 900);
	if (buf_reserve(&b, 5000) == NULL)
		return -ENOMEM;
	taken = buf_take(&b);
	return taken ? 0 : -ENOMEM;
}

static int case_map(void)
{
	struct map *m;
	char key[16];
	int r = map_create(&m), put = 0;

	if (r < 0)
		return r;
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof key, "k%d", i);
		r = map_put(m, key, &calls);
		if (r < 0)
			break;
		put++;
	}
	for (int i = 0; i < put; i++) {
		snprintf(key, sizeof key, "k%d", i);
		if (map_get(m, key) != &calls)
			r = -EILSEQ;
	}
	if (map_count(m) != (size_t)put)
		r = -EILSEQ;
	map_free(m);
	return r;
}

static int case_json(void)
{
	static const char text[] = "{\"a\":[1,2,{\"b\":\"text that is longer than a word\"}],\"c\":1.25,\"d\":{\"e\":null,\"f\":true}}";
	AUTO_BUF struct buf out = BUF_INIT(1000);
	AUTO_JSON json_t *v = NULL;
	int r = js_parse(text, sizeof text - 1, &v, NULL);

	if (r < 0)
		return r;
	r = js_dump(v, &out);
	/* a success must be a whole one: nothing silently left out */
	return r < 0 ? -ENOMEM : str_eq(buf_at(&out), text) ? 0 : -EILSEQ;
}

static int case_file(void)
{
	AUTO_FREE char *text = NULL, *proc = NULL;
	size_t n;
	char path[400];
	int r;

	snprintf(path, sizeof path, "%s/file", top);
	r = fd_mkdirs(path, 0700, NULL);
	if (r == 0) {
		AUTO_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		r = fd_write_file(dir, "f", 0600, "hello", 5, NULL);
		if (r == 0)
			r = fd_read_file(dir, "f", 100, &text, &n, NULL);
	}
	if (r == 0)
		r = fd_read_file(AT_FDCWD, "/proc/self/status", 1 << 20, &proc, &n, NULL);
	return r;
}

static int case_loop(void)
{
	struct loop *l;
	int r = loop_create(&l, NULL);

	if (r < 0)
		return r;
	loop_free(l);
	return 0;
}

static int case_tree(void)
{
	char path[400], deep[500];
	int r;

	snprintf(path, sizeof path, "%s/tree", top);
	snprintf(deep, sizeof deep, "%s/a/b/c", path);
	r = fd_mkdirs(deep, 0700, NULL);
	return r < 0 ? r : fd_remove_tree(AT_FDCWD, path, NULL);
}

static int case_text(void)
{
	AUTO_BUF struct buf a = BUF_INIT(4000), b = BUF_INIT(4000), c = BUF_INIT(4000), d = BUF_INIT(4000);
	char bytes[500];
	int r;

	memset(bytes, 0x7e, sizeof bytes);
	r = str_base64(&a, bytes, sizeof bytes);
	if (r == 0)
		r = str_base64_decode(buf_at(&a), a.len, &b);
	if (r == 0)
		r = str_json(&c, buf_at(&b), b.len);
	if (r == 0)
		r = str_percent_encode(&d, buf_at(&c));
	return r < 0 ? -ENOMEM : b.len == sizeof bytes && c.len == sizeof bytes + 2 ? 0 : -EILSEQ;
}

static const struct { const char *name; int (*run)(void); } cases[] = {
	{ "buf", case_buf }, { "map", case_map }, { "json", case_json }, { "file", case_file }, { "loop", case_loop },
	{ "tree", case_tree }, { "text", case_text },
};

static int run(int (*fn)(void), int at)
{
	int r;

	calls = live = 0;
	fail_at = at;
	counting = true;
	r = fn();
	counting = false;
	return r;
}

int main(void)
{
	char buffer[4096];

	/* stdout and first-time allocations of libraries must not be counted */
	setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
	if (!mkdtemp(tap_tmp(top, sizeof top, "bureau-torture")))
		return 1;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int r = run(cases[i].run, 0), total, leaks = 0, wrong = 0, masked = 0;

		r = run(cases[i].run, 0);
		total = calls;
		ok(r == 0 && live == 0 && total > 0, "%s: succeeds with %d allocations and frees them all", cases[i].name, total);
		for (int at = 1; at <= total; at++) {
			r = run(cases[i].run, at);
			leaks += live != 0;
			wrong += r != 0 && r != -ENOMEM;
			masked += r == 0;
		}
		ok(leaks == 0, "%s: no leak, whichever fails", cases[i].name);
		ok(wrong == 0, "%s: each failure is told as -ENOMEM (%d were got over)", cases[i].name, masked);
	}
	ok(fd_remove_tree(AT_FDCWD, top, NULL) == 0, "nothing stays in /tmp");
	return done_testing();
}
#endif
