/* Job files, {{names}}, inputs, the journal. */
#include "secretary/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "core/fd.h"
#include "secretary/input.h"
#include "secretary/journal.h"
#include "secretary/subst.h"
#include "tap.h"

#define STEP "[[task.step]]\nrun=[\"true\"]\n"

static void refused(const char *text, const char *want)
{
	struct spec *s = NULL;
	struct err e = { 0 };
	int r = spec_parse(text, strlen(text), "j.toml", &s, &e);

	ok(r < 0 && strstr(e.msg, want), "refused: %s (%s)", want, r < 0 ? e.msg : "taken");
	spec_free(s);
}

static void specs(void)
{
	struct spec *s = NULL;
	struct err e = { 0 };
	static const char text[] = "name=\"x\"\n[limits]\ncomputers=7\ntask_time=\"90s\"\n[computer]\nmemory=\"1G\"\ncpus=0.5\n"
		"[inputs.r]\nrows=[{a=1}]\n[[task]]\nid=\"t\"\neach=\"r\"\n[task.computer]\nnet=\"all\"\n[[task.step]]\nrun=[\"echo\",\"{{row.a}}\"]\n"
		"expect={exit=[0,2],stdout_matches=\"^x\"}\ncapture={v=\"stdout\"}\n";

	ok(spec_parse(text, strlen(text), "j.toml", &s, &e) == 0, "a good file: %s", e.msg);
	if (!s)
		return;
	ok(s->limits.computers == 7 && s->limits.task_ms == 90000 && s->limits.retries == 1, "limits and their defaults");
	ok(s->tasks[0].computer.memory == 1u << 30 && s->tasks[0].computer.cpus == 500 && !strcmp(s->tasks[0].computer.net, "all"), "a task's computer");
	ok(!strcmp(s->computer.net, "none") && s->tasks[0].input == 0 && s->tasks[0].nsteps == 1, "its rows and steps");
	spec_free(s);
	refused("name=\"X y\"\n[[task]]\nid=\"a\"\n" STEP, "needs a name");
	refused("name=\"x\"\n", "at least one [[task]]");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n", "has no [[task.step]]");
	refused("name=\"x\"\n[[task]]\nid=\"a.b\"\n" STEP, "needs an id");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n" STEP "[[task]]\nid=\"a\"\n" STEP, "two tasks 'a'");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\nneeds=[\"b\"]\n" STEP, "no task 'b'");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\nneeds=[\"a\"]\n" STEP, "a needs a");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\nworker=\"model\"\n" STEP, "worker 'model'");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n[[task.step]]\nrun=[\"a\"]\nput=\"b\"\nto=\"c\"\n", "does one thing");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n[[task.step]]\nput=\"b\"\n", "'to' is missing");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n[[task.step]]\nrun=[\"a\"]\nto=\"b\"\n", "doesn't go with 'run'");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n[[task.step]]\nrun=[\"a\"]\nexpect={stdout_matches=\"(\"}\n", "regular expression");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n[[task.step]]\nrun=[\"a\",\"{{nix}}\"]\n", "{{nix}} is not known");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n[[task.step]]\nrun=[\"a\",\"{{x\"]\n", "without '}}'");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n[[task.step]]\nrun=[\"python3\",\"-c\",\"{{job.id}}\"]\n", "program's text");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n" STEP "[[task]]\nid=\"b\"\n[[task.step]]\nrun=[\"a\",\"{{tasks.a.result.x}}\"]\n", "must be in needs");
	refused("name=\"x\"\n[computer]\nnet=\"some\"\n[[task]]\nid=\"a\"\n" STEP, "net is");
	refused("name=\"x\"\n[limits]\ncomputers=0\n[[task]]\nid=\"a\"\n" STEP, "from 1 to 1000");
	refused("name=\"x\"\n[inputs.r]\n[[task]]\nid=\"a\"\n" STEP, "exactly one of csv");
	refused("name=\"x\"\n[[task]]\nid=\"a\"\n" STEP "[[task.check]]\nget=\"x\"\n", "a check may");
}

static int get(void *ctx, const char *name, json_t **ret, struct err *e)
{
	json_t *v = json_object_get(ctx, name);

	if (!v)
		return err_set(e, ENOENT, "no %s", name);
	*ret = json_incref(v);
	return 0;
}

static void texts(void)
{
	json_t *o = json_pack("{s:s,s:i,s:{s:i}}", "row.a", "{{row.b}} $(x)", "row.b", 7, "o", "k", 1);
	struct subst s = { get, o };
	struct buf b = BUF_INIT(4096);
	struct err e = { 0 };

	ok(subst_text(&s, "<{{row.a}}|{{ row.b }}|{{o}}|{{open}}x}}>", &b, &e) == 0, "put in");
	is_str(buf_at(&b), "<{{row.b}} $(x)|7|{\"k\":1}|{{x}}>", "a value is never looked at again");
	buf_clear(&b);
	ok(subst_text(&s, "{{row.c}}", &b, &e) == -ENOENT, "an unknown name");
	ok(subst_text(&s, "{{a;b}}", &b, &e) == -EINVAL, "not a name");
	buf_done(&b);
	json_decref(o);
}

static void inputs(void)
{
	json_t *rows = NULL;
	struct err e = { 0 };
	static const char csv[] = "\xef\xbb\xbf" "a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n,2";
	size_t ends[8];
	int n;

	ok(input_csv(csv, sizeof csv - 1, &rows, &e) == 0, "CSV: %s", e.msg);
	ok(json_array_size(rows) == 2, "two rows");
	is_str(json_string_value(json_object_get(json_array_get(rows, 0), "b")), "x, \"y\"\nz", "quotes, a comma, a line end in a field");
	is_str(json_string_value(json_object_get(json_array_get(rows, 1), "a")), "", "an empty field");
	json_decref(rows);
	ok(input_csv("a,a\n1,2", 7, &rows, &e) < 0, "two columns of one name");
	ok(input_csv("a,b\n1", 5, &rows, &e) < 0 && strstr(e.msg, "row 2"), "too few fields, with the row: %s", e.msg);
	ok(input_csv("a\n\"x", 4, &rows, &e) < 0, "a quote without an end");
	ok(input_csv("a\n\"x\"y", 6, &rows, &e) < 0, "text behind a quote");
	ok(input_csv("a\n\xff", 3, &rows, &e) < 0, "not UTF-8");
	ok(input_jsonl("{\"a\":1}\n\n{\"a\":2}", 16, &rows, &e) == 0 && json_array_size(rows) == 2, "JSON lines");
	json_decref(rows);
	ok(input_jsonl("{}\n[1]", 6, &rows, &e) < 0 && strstr(e.msg, "line 2"), "a line that isn't an object");
	n = input_split("aa--bbbb--c--dd", 15, "--", 3, ends);
	ok(n == 2 && ends[0] == 10 && ends[1] == 15, "cut behind separators, fewer parts when there are too few: %d %zu %zu", n, ends[0], ends[1]);
	n = input_split("a\nb\nc\nd\n", 8, "\n", 2, ends);
	ok(n == 2 && ends[0] == 6 && ends[1] == 8, "every byte is in one part");
	n = input_split("abc", 3, "-", 4, ends);
	ok(n == 1 && ends[0] == 3, "nothing to cut: one part");
	ok(input_split("", 0, "-", 4, ends) == 0, "nothing: no part");
}

static int count(void *ctx, const json_t *line, struct err *e) { ++*(int *)ctx; return 0; }

static void journals(void)
{
	char dir[256];
	int fd = mkdtemp(tap_tmp(dir, sizeof dir, "bureau-unit")) ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, n = 0, f;
	struct journal *j = NULL;
	struct err e = { 0 };

	ok(journal_open(fd, "j", count, &n, &j, &e) == 0 && n == 0, "a new journal");
	journal_add(j, json_pack("{s:i}", "a", 1), true, &e);
	journal_add(j, json_pack("{s:i}", "a", 2), false, &e);
	journal_close(j);
	f = openat(fd, "j", O_WRONLY | O_APPEND | O_CLOEXEC);
	ok(write(f, "{\"a\":", 5) == 5, "torn");
	close(f);
	ok(journal_open(fd, "j", count, &n, &j, &e) == 0 && n == 2, "two lines; the torn end is cut off");
	journal_add(j, json_pack("{s:i}", "a", 3), true, &e);
	journal_close(j);
	n = 0;
	ok(journal_read(fd, "j", count, &n, &e) == 0 && n == 3, "three whole lines");
	f = openat(fd, "j", O_WRONLY | O_CLOEXEC);
	ok(write(f, "x", 1) == 1, "damaged");
	close(f);
	ok(journal_open(fd, "j", count, &n, &j, &e) == -EBADMSG && strstr(e.msg, "line 1"), "damage is told: %s", e.msg);
	fd_remove_tree(AT_FDCWD, dir, &e);
	close(fd);
}

int main(void)
{
	specs();
	texts();
	inputs();
	journals();
	return done_testing();
}
