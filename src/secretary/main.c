/* bureau-secretary -- bureau job …: runs jobs, shows them, goes on with them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/log.h"
#include "core/proc.h"
#include "core/str.h"
#include "secretary/job_priv.h"

enum { OUT_OK, OUT_FAILED, OUT_USAGE, OUT_MISSING, OUT_REFUSED, OUT_UNREACHABLE };

static const char about[] =
	"A job file lists tasks; each runs on a fresh computer, many at once, and a report is written. man bureau-job and docs/JOBS.md tell all of it.\n"
	"\n"
	"  bureau job run examples/jobs/census.toml        three computers count this machine's packages, a fourth merges\n"
	"  bureau job run rows.toml --computers 20 --json  one document at the end: state, tasks, report\n"
	"  bureau job resume                               go on with the newest job that isn't done; done tasks aren't repeated\n"
	"  bureau job resume ID --failed                   also try the failed tasks again\n"
	"\n"
	"Each word has --help.\n";

static const char exit_codes[] =
	"\nExit code: 0 all tasks done, 1 not all, 2 wrong use or a mistake in the job file, 3 no such job, 4 the server refuses the\n"
	"key, 5 no server answers.\n";

#define TAILS 20                   /* failed tasks whose last words are printed */

struct args {
	const char *verb, *what;
	bool json, help;
	struct job_opts o;
};

static void plain(FILE *f, const char *s)
{
	while (s && *s) {
		size_t n = str_obeyed(s);

		fputc(n ? '?' : *s, f);
		s += n ? n : 1;
	}
}

static int fail(const struct err *e)
{
	static const struct { int code, out; } map[] = {
		{ EACCES, OUT_REFUSED }, { ECONNREFUSED, OUT_UNREACHABLE }, { ENOENT, OUT_MISSING }, { EINVAL, OUT_USAGE }, { ELOOP, OUT_USAGE }, { EEXIST, OUT_USAGE },
		{ EILSEQ, OUT_USAGE }, { EXDEV, OUT_USAGE }, { EISDIR, OUT_USAGE },
	};

	/* a server's or a computer's words may be in it */
	fputs("bureau job: ", stderr);
	plain(stderr, e->msg);
	if (*e->hint) {
		fputs("\n  ", stderr);
		plain(stderr, e->hint);
	}
	fputc('\n', stderr);
	for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
		if (map[i].code == e->code)
			return map[i].out;
	}
	return OUT_FAILED;
}

static void print_json(const json_t *v)
{
	AUTO_BUF struct buf b = BUF_INIT(512u << 20);

	js_dump_pretty(v, &b);
	fwrite(buf_at(&b), 1, b.len, stdout);
}

/* The report without what fills pages: logs, rows, results. */
static json_t *short_document(const json_t *doc)
{
	static const char *const keep[] = { "id", "state", "computer", "attempts", "started", "ended", "error" };
	json_t *out = json_pack("{s:O, s:O, s:O, s:O, s:O, s:O, s:O}", "job", json_object_get(doc, "job"), "state", json_object_get(doc, "state"),
		"report", json_object_get(doc, "report"), "began", json_object_get(doc, "began"), "ended", json_object_get(doc, "ended"),
		"ran_ms", json_object_get(doc, "ran_ms"), "runs", json_object_get(doc, "runs"));
	char tail[TAIL_MAX];
	json_t *tasks = json_array(), *t;
	size_t i;

	json_array_foreach(json_object_get(doc, "tasks"), i, t) {
		json_t *o = json_object();

		for (size_t k = 0; k < sizeof keep / sizeof *keep; k++)
			json_object_set(o, keep[k], json_object_get(t, keep[k]));
		if (*tail_of_task(t, tail))
			json_object_set_new(o, "tail", json_string(tail));
		json_array_append_new(tasks, o);
	}
	json_object_set_new(out, "tasks", tasks);
	return out;
}

/* What the failed step had to say; 0 when nothing. */
static size_t print_tail(const json_t *task)
{
	char text[TAIL_MAX], *at = text, *nl;

	tail_of_task(task, text);
	for (; (nl = strchr(at, '\n')); at = nl + 1) {
		*nl = '\0';
		fputs("    | ", stdout);
		plain(stdout, at);
		putchar('\n');
	}
	return at != text;
}

static int tell(const struct args *a, const json_t *doc)
{
	const char *state = json_string_value(json_object_get(doc, "state"));
	bool done = str_eq(state, "done");
	AUTO_JSON json_t *brief = short_document(doc);
	json_t *tasks = json_object_get(doc, "tasks"), *t;
	const char *why = json_string_value(json_object_get(doc, "why"));
	int64_t took = json_integer_value(json_object_get(doc, "ran_ms")), runs = json_integer_value(json_object_get(doc, "runs"));
	size_t i, tails = 0;

	if (a->json) {
		print_json(brief);
		return done ? OUT_OK : OUT_FAILED;
	}
	json_array_foreach(tasks, i, t) {
		const char *error = json_string_value(json_object_get(t, "error"));

		if (!error)
			continue;
		printf("%-20s %-8s ", json_string_value(json_object_get(t, "id")), json_string_value(json_object_get(t, "state")));
		plain(stdout, error);
		putchar('\n');
		if (tails < TAILS)
			tails += print_tail(t);
	}
	printf("job %s: %s, %lld of %zu tasks done in %.1f s", json_string_value(json_object_get(json_object_get(doc, "job"), "id")), state,
		(long long)json_integer_value(json_object_get(json_object_get(doc, "counts"), "done")), json_array_size(tasks), (double)took / 1000);
	if (runs > 1)
		printf(" of %lld runs", (long long)runs);
	printf("\nreport: %s\n", json_string_value(json_object_get(doc, "report")));
	if (!done)
		printf("go on with: bureau job resume %s%s\n", json_string_value(json_object_get(json_object_get(doc, "job"), "id")),
			str_eq(state, "failed") ? " --failed" : why && str_starts(why, SCHED_TIME_OVER) ? " --time TIME" : "");
	return done ? OUT_OK : OUT_FAILED;
}

static int finish(const struct args *a, struct secretary *s, bool again)
{
	AUTO_JSON json_t *doc = NULL;
	struct err e = { 0 };
	char id[80];
	int r;

	str_copy(id, sizeof id, s->id);
	r = job_run(s, &a->o, again, &doc, &e);
	if (r != -EINTR)
		job_free(s);    /* left at once: tasks are still on the loop, the process ends with them */
	if (r < 0) {
		r = fail(&e);
		if (r != OUT_USAGE)
			fprintf(stderr, "  the job is kept: bureau job resume %s\n", id);
		return r;
	}
	return tell(a, doc);
}

/* Of the job file and what it names: that we may not read a file isn't a server's refusal. */
static int fail_file(const struct err *e)
{
	int out = fail(e);

	return out == OUT_REFUSED ? OUT_USAGE : out;
}

static int do_run(struct args *a)
{
	struct secretary *s = NULL;
	struct client_where w;
	struct err e = { 0 };

	/* no server, no job: nothing is left lying about */
	if (client_find(a->o.server, a->o.state, &w, &e) < 0)
		return fail(&e);
	if (job_new(&a->o, a->what, &s, &e) < 0)
		return fail_file(&e);
	return finish(a, s, false);
}

static int do_check(struct args *a)
{
	struct err e = { 0 };
	int n = 0;

	if (job_check(a->what, &n, &e) < 0) {
		int out = fail_file(&e);

		return out == OUT_MISSING ? OUT_USAGE : out;
	}
	printf("%s: no mistakes found; it makes %d task%s\n", a->what, n, n == 1 ? "" : "s");
	return OUT_OK;
}

static int do_list(struct args *a)
{
	AUTO_JSON json_t *list = NULL;
	struct err e = { 0 };
	json_t *j;
	size_t i;

	if (job_list(a->o.state, &list, &e) < 0)
		return fail(&e);
	if (a->json) {
		print_json(list);
		return OUT_OK;
	}
	if (!json_array_size(list))
		fprintf(stderr, "no jobs yet; run one: bureau job run FILE.toml\n");
	else
		printf("%-52s %-12s %s\n", "JOB", "STATE", "CREATED (UTC)");
	json_array_foreach(list, i, j) {
		char when[32];

		clock_rfc3339(json_integer_value(json_object_get(j, "created")), when);
		when[19] = '\0';
		printf("%-52s %-12s %s\n", json_string_value(json_object_get(j, "id")), json_string_value(json_object_get(j, "state")), when);
	}
	return OUT_OK;
}

static int do_show(struct args *a)
{
	AUTO_JSON json_t *doc = NULL;
	struct secretary *s = NULL;
	struct err e = { 0 };
	json_t *t;
	size_t i;

	if (job_load(&a->o, a->what, true, &s, &e) < 0)
		return fail(&e);
	doc = report_document(s);
	json_object_set_new(doc, "state", json_string(job_state(s->dirfd, s->dir)));
	job_free(s);
	if (a->json) {
		AUTO_JSON json_t *brief = short_document(doc);

		print_json(brief);
		return OUT_OK;
	}
	json_array_foreach(json_object_get(doc, "tasks"), i, t) {
		printf("%-20s %-9s attempts %lld  %s", json_string_value(json_object_get(t, "id")), json_string_value(json_object_get(t, "state")),
			(long long)json_integer_value(json_object_get(t, "attempts")),
			json_is_string(json_object_get(t, "computer")) ? json_string_value(json_object_get(t, "computer")) : "-");
		if (json_is_string(json_object_get(t, "error")))
			fputs("  ", stdout);
		plain(stdout, json_string_value(json_object_get(t, "error")));
		putchar('\n');
		print_tail(t);
	}
	printf("job %s: %s\nreport: %s\n", a->what, json_string_value(json_object_get(doc, "state")), json_string_value(json_object_get(doc, "report")));
	return OUT_OK;
}

/* The newest job that may go on. */
static int newest_open(const struct args *a, char *out, size_t size, struct err *e)
{
	AUTO_JSON json_t *list = NULL;
	json_t *j;
	size_t i;
	int r = job_list(a->o.state, &list, e);

	if (r < 0)
		return r;
	json_array_foreach(list, i, j) {
		const char *state = json_string_value(json_object_get(j, "state"));

		if (str_eq(state, "interrupted") || str_eq(state, "stopped") || (str_eq(state, "failed") && a->o.failed_too))
			return str_copy(out, size, json_string_value(json_object_get(j, "id")));
	}
	err_set(e, ENOENT, "there is no job to go on with");
	return a->o.failed_too ? -ENOENT : err_hint(e, "with --failed also one that failed; bureau job list shows them all");
}

static int do_resume(struct args *a)
{
	struct secretary *s = NULL;
	struct err e = { 0 };
	char id[80];

	if (a->what)
		str_copy(id, sizeof id, a->what);
	else if (newest_open(a, id, sizeof id, &e) < 0)
		return fail(&e);
	if (job_load(&a->o, id, false, &s, &e) < 0)
		return fail(&e);
	return finish(a, s, true);
}

/* Somebody runs it: leave word and wait until they have let go. */
static int cancel_running(const char *dir, struct err *e)
{
	struct timespec pause = { 0, 100000000 };
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof path, "%.4080s/cancel", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(e, "leave word in '%.200s'", dir);
	close(fd);
	for (int i = 0; i < 1200; i++) {
		if (!job_locked(dir))
			return 0;
		nanosleep(&pause, NULL);
	}
	return err_set(e, ETIMEDOUT, "the secretary that runs the job doesn't stop");
}

static int do_cancel(struct args *a)
{
	struct secretary *s = NULL;
	struct err e = { 0 };
	char dir[PATH_MAX];
	const char *state;
	bool running;
	int r;

	if (job_load(&a->o, a->what, true, &s, &e) < 0)
		return fail(&e);
	str_copy(dir, sizeof dir, s->dir);
	state = job_state(s->dirfd, s->dir);
	job_free(s);
	/* one that came to its end stays what it is: "stopped" would offer it to a bare `resume` */
	if (str_eq(state, "done") || str_eq(state, "failed")) {
		if (a->json)
			return do_show(a);
		printf("job %s is over already: %s\n", a->what, state);
		return OUT_OK;
	}
	running = job_locked(dir);
	if (running) {
		if (cancel_running(dir, &e) < 0)
			return fail(&e);
		if (a->json)
			return do_show(a);
		printf("job %s is stopped\n", a->what);
		return OUT_OK;
	}
	a->o.cancel = a->o.quiet = true;
	s = NULL;
	if (job_load(&a->o, a->what, false, &s, &e) < 0)
		return fail(&e);
	r = finish(a, s, true);
	return r == OUT_FAILED ? OUT_OK : r;
}

static const struct verb {
	const char *name;
	int (*run)(struct args *a);
	int what;                       /* an argument: 0 none, 1 may be, 2 must be */
	const char *args, *options;     /* as help shows them; names, blank between and around */
	const char *summary, *more;
} verbs[] = {
	{ "run", do_run, 2, "FILE.toml", " computers quiet json server state ", "do a job: its tasks, the checks, the report",
		"  bureau job run examples/jobs/census.toml\n"
		"  bureau job run rows.toml --computers 20 --json > result.json\n"
		"Ctrl-C ends its computers and keeps the job: 'bureau job resume' goes on.\n" },
	{ "check", do_check, 2, "FILE.toml", " ", "is a job file right, are its files there? Nothing is started",
		"  bureau job check rows.toml\n" },
	{ "list", do_list, 0, "", " json state ", "jobs, newest first: running, interrupted, stopped, failed, done", "" },
	{ "show", do_show, 2, "ID", " json state ", "a job's tasks, and what those that failed said last",
		"  bureau job show census-20260101-120000-ab12 --json\n" },
	{ "resume", do_resume, 1, "[ID]", " failed time computers quiet json server state ", "go on with a job; what is done isn't done again",
		"  bureau job resume                  the newest that isn't done\n"
		"  bureau job resume ID --failed      the failed tasks too\n"
		"  bureau job resume ID --time 30m    its limits.job_time is used up: this run may take 30 minutes\n" },
	{ "cancel", do_cancel, 2, "ID", " json server state ", "stop a job, wherever it runs, and end its computers",
		"It's kept and can be resumed.\n" },
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static const struct { const char *name, *left, *right; } options[] = {
	{ " computers ", "--computers N", "so many at once, instead of the file's number" },
	{ " failed ", "--failed", "the failed tasks too" },
	{ " time ", "--time TIME", "what this run may take (30s, 5m, 1h), whatever limits.job_time leaves" },
	{ " json ", "--json", "for programs: one document at the end" },
	{ " quiet ", "--quiet", "no lines about progress" },
	{ " server ", "--server URL", "which server (else BUREAU_URL, else this machine's)" },
	{ " state ", "--state DIR", "its state folder (else BUREAU_STATE); jobs and reports are kept in DIR/jobs" },
};

static void help(FILE *f, const struct verb *v)
{
	if (v)
		fprintf(f, "usage: bureau job %s%s%s [options]\n\n%s\n%s%s", v->name, *v->args ? " " : "", v->args, v->summary, *v->more ? "\n" : "", v->more);
	for (size_t i = 0; i < VERBS && !v; i++)
		fprintf(f, "%s bureau job %-7s %-10s %s\n", i ? "      " : "usage:", verbs[i].name, verbs[i].args, verbs[i].summary);
	if (!v || v->options[1])
		fputc('\n', f);
	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		if (!v || strstr(v->options, options[i].name))
			fprintf(f, "      %-15s %s\n", options[i].left, options[i].right);
	}
	if (!v)
		fprintf(f, "\n%s", about);
	fputs(exit_codes, f);
}

static int unknown_option(const char *typed, struct err *e)
{
	enum { OPTIONS = sizeof options / sizeof *options };
	const char *names[OPTIONS], *near;
	char text[OPTIONS][16];

	for (size_t i = 0; i < OPTIONS; i++) {
		snprintf(text[i], sizeof text[i], "%.*s", (int)strcspn(options[i].left, " "), options[i].left);
		names[i] = text[i];
	}
	err_set(e, EINVAL, "'%.40s' is not known", typed);
	near = str_nearest(typed, names, OPTIONS);
	if (near)
		err_hint(e, "did you mean %s? bureau job --help lists them all", near);
	return -EINVAL;
}

static int parse(int argc, char **argv, struct args *a, struct err *e)
{
	for (int i = 0; i < argc; i++) {
		const char *w = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
		uint64_t n;

		if (str_eq(w, "--json"))
			a->json = true;
		else if (str_eq(w, "--help") || str_eq(w, "-h"))
			a->help = true;
		else if (str_eq(w, "--failed"))
			a->o.failed_too = true;
		else if (str_eq(w, "--quiet"))
			a->o.quiet = true;
		else if ((str_eq(w, "--server") || str_eq(w, "--state") || str_eq(w, "--computers") || str_eq(w, "--time")) && !next)
			return err_set(e, EINVAL, "%s needs a value", w);
		else if (str_eq(w, "--server"))
			a->o.server = argv[++i];
		else if (str_eq(w, "--state"))
			a->o.state = argv[++i];
		else if (str_eq(w, "--computers")) {
			if (str_u64(argv[++i], 1000, &n) < 0 || !n)
				return err_set(e, EINVAL, "--computers: a number from 1 to 1000");
			a->o.computers = (int64_t)n;
		} else if (str_eq(w, "--time")) {
			if (str_duration(argv[++i], &a->o.time_ms, e) < 0)
				return err_wrap(e, "--time");
		} else if (*w == '-' && w[1])
			return unknown_option(w, e);
		else if (!a->verb)
			a->verb = str_eq(w, "ls") ? "list" : w;
		else if (!a->what)
			a->what = w;
		else
			return err_set(e, EINVAL, "'%.40s' is one word too many", w);
	}
	return 0;
}

/* One that would change what is done, and that this word has no use for. */
static const char *misplaced_option(const struct verb *v, const struct args *a)
{
	const struct { const char *name, *typed; bool given; } all[] = {
		{ " json ", "--json", a->json }, { " failed ", "--failed", a->o.failed_too }, { " computers ", "--computers", a->o.computers != 0 },
		{ " time ", "--time", a->o.time_ms != 0 },
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i].given && !strstr(v->options, all[i].name))
			return all[i].typed;
	return NULL;
}

int main(int argc, char **argv)
{
	struct args a = { 0 };
	const char *misplaced;
	struct err e = { 0 };
	size_t v = 0;

	log_init("bureau-secretary", LOG_WARN);
	signal(SIGPIPE, SIG_IGN);
	if (proc_harden(&e) < 0)
		return fail(&e);
	argc--;
	argv++;
	if (argc && str_eq(*argv, "job")) {
		argc--;
		argv++;
	}
	if (parse(argc, argv, &a, &e) < 0) {
		if (!*e.hint)
			err_hint(&e, "see: bureau job --help");
		return fail(&e);
	}
	while (v < VERBS && !(a.verb && str_eq(verbs[v].name, a.verb)))
		v++;
	if (!a.verb || (a.help && v < VERBS)) {
		help(a.help ? stdout : stderr, a.verb ? &verbs[v] : NULL);
		return a.help ? OUT_OK : OUT_USAGE;
	}
	a.o.quiet |= a.json && !isatty(STDERR_FILENO);
	if (v == VERBS) {
		const char *names[VERBS], *near;

		for (size_t i = 0; i < VERBS; i++)
			names[i] = verbs[i].name;
		near = str_nearest(a.verb, names, VERBS);
		err_set(&e, EINVAL, "'job %.40s' is not known", a.verb);
		err_hint(&e, near ? "did you mean 'bureau job %s'? bureau job --help lists them all" : "see: bureau job --help", near);
		return fail(&e);
	}
	if ((verbs[v].what == 2 && !a.what) || (verbs[v].what == 0 && a.what)) {
		err_set(&e, EINVAL, a.what ? "'job %s' takes no argument" : "'job %s' needs %s", a.verb, verbs[v].args);
		err_hint(&e, "see: bureau job %s --help", a.verb);
		return fail(&e);
	}
	if ((misplaced = misplaced_option(&verbs[v], &a))) {
		err_set(&e, EINVAL, "%s isn't for 'job %s'", misplaced, a.verb);
		err_hint(&e, "see: bureau job %s --help", a.verb);
		return fail(&e);
	}
	return verbs[v].run(&a);
}
