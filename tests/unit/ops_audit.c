#include "ops/ops_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/fd.h"
#include "tap.h"

static char dir[] = "/tmp/bureau-audit-XXXXXX", folder[64];
static struct loop *l;

static struct ops *begin(uint64_t max)
{
	struct ops *o = calloc(1, sizeof *o);
	struct err e;

	if (!o)
		exit(1);
	o->o.loop = l;
	o->o.state_dir = dir;
	o->audit_dir = o->audit_fd = -1;
	o->audit_max = max;
	if (audit_open(o, &e) < 0) {
		printf("Bail out! %s\n", e.msg);
		exit(1);
	}
	return o;
}

static void end(struct ops *o)
{
	audit_close(o);
	free(o);
}

/* What its lines say, each whole; "torn" when one isn't. */
static const char *read_log(const char *name)
{
	static char out[4000];
	char path[100], *text = NULL;
	size_t n = 0;

	out[0] = '\0';
	snprintf(path, sizeof path, "%s/%s", folder, name);
	if (fd_read_file(AT_FDCWD, path, 1 << 20, &text, &n, NULL) < 0)
		return "none";
	for (char *p = text, *nl; (nl = strchr(p, '\n')); p = nl + 1) {
		json_t *v = json_loadb(p, (size_t)(nl - p), 0, NULL);

		snprintf(out + strlen(out), sizeof out - strlen(out), "%s ", v ? json_string_value(json_object_get(v, "op")) : "torn");
		json_decref(v);
	}
	free(text);
	return out;
}

static void note(struct ops *o, int n)
{
	char op[16];

	snprintf(op, sizeof op, "op%d", n);
	audit_line(o, "key:1", op, "iaaaaaaaaaaa", "ok", NULL);
	o->audit_job.run(&o->audit_job);        /* the end of the turn */
}

static void test_names(void)
{
	char path[100];
	struct stat st;
	struct ops *o = begin(200);             /* two lines */

	for (int i = 1; i <= 4; i++)
		note(o, i);
	is_str(read_log("audit.log"), "op3 op4 ", "two lines fill a file");
	is_str(read_log("audit.log.1"), "op1 op2 ", "older ones are beside it");
	for (int i = 5; i <= 13; i++)
		note(o, i);
	is_str(read_log("audit.log"), "op13 ", "the newest");
	is_str(read_log("audit.log.1"), "op11 op12 ", "then");
	is_str(read_log("audit.log.4"), "op5 op6 ", "to the oldest");
	is_str(read_log("audit.log.5"), "none", "and no more");
	snprintf(path, sizeof path, "%s/audit.log", folder);
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "a new file is its owner's alone");
	end(o);
}

/* What a kill may leave. */
static void test_cut(void)
{
	char path[100], more[100];
	struct ops *o;
	int fd;

	snprintf(path, sizeof path, "%s/audit.log.2", folder);
	snprintf(more, sizeof more, "%s/audit.log.3", folder);
	rename(path, more);                     /* killed after the third was renamed: the fourth is written over, the second is missing */
	snprintf(path, sizeof path, "%s/audit.log", folder);
	fd = open(path, O_WRONLY | O_APPEND);
	ok(fd >= 0 && write(fd, "{\"op\":\"to", 9) == 9, "a torn line");
	close(fd);
	o = begin(200);
	note(o, 14);
	is_str(read_log("audit.log"), "op14 ", "a new file");
	is_str(read_log("audit.log.1"), "op13 torn ", "the torn line is alone");
	is_str(read_log("audit.log.2"), "op11 op12 ", "the missing number is filled");
	is_str(read_log("audit.log.3"), "op9 op10 ", "what was behind it stays");
	end(o);
	snprintf(path, sizeof path, "%s/audit.log", folder);
	unlink(path);                           /* killed before the new one was made */
	o = begin(200);
	note(o, 15);
	is_str(read_log("audit.log"), "op15 ", "a missing file is made");
	end(o);
}

static void test_refused(void)
{
	struct ops *o = begin(200);
	char path[100], in[110];

	snprintf(path, sizeof path, "%s/audit.log.4", folder);
	snprintf(in, sizeof in, "%s/x", path);
	unlink(path);
	ok(mkdir(path, 0700) == 0 && mkdir(in, 0700) == 0, "a folder is in the way");
	for (int i = 16; i <= 18; i++)
		note(o, i);
	is_str(read_log("audit.log"), "op15 op16 op17 op18 ", "no line is lost when nothing can be renamed");
	rmdir(in);
	rmdir(path);
	for (int i = 19; i <= 20; i++)
		note(o, i);
	ok(strstr(read_log("audit.log.1"), "op15 op16 op17 op18 ") == read_log("audit.log.1"), "later it's tried again, and works");
	end(o);
}

static void test_fifo(void)
{
	struct ops *o = begin(200);
	char path[100];
	struct err e;

	end(o);
	snprintf(path, sizeof path, "%s/audit.log", folder);
	unlink(path);
	o = calloc(1, sizeof *o);
	if (!o || mkfifo(path, 0600) < 0)
		exit(1);
	o->o.loop = l;
	o->o.state_dir = dir;
	o->audit_dir = o->audit_fd = -1;
	ok(audit_open(o, &e) < 0 && strstr(e.msg, "isn't a regular file"), "a FIFO in its place is no log");
	end(o);
	unlink(path);
}

int main(void)
{
	struct err e;

	if (!mkdtemp(dir) || loop_create(&l, &e) < 0)
		return 1;
	snprintf(folder, sizeof folder, "%s/audit", dir);
	mkdir(folder, 0700);
	test_names();
	test_cut();
	test_refused();
	test_fifo();
	loop_free(l);
	fd_remove_tree(AT_FDCWD, dir, NULL);
	return done_testing();
}
