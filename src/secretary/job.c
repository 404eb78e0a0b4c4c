/* job -- one run of a job, from the first look at the server to the report.
 *
 * Theory of operation. job_run drives one loop through: status (is there a server that knows us?) → sweep (only when the job was begun
 * before: end what the last secretary left) → tasks → sweep again (creates whose outcome nobody knows) → report → journal "end". It may be
 * killed anywhere: the journal says which tasks are done, the lock goes with the process, and the next one starts at the top. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "core/clock.h"
#include "core/str.h"
#include "secretary/job_priv.h"

#define PATIENCE_MS 30000

static int on_journal(void *ctx, json_t *line, bool durable)
{
	struct secretary *s = ctx;

	/* a job that is only looked at has no journal to write */
	if (!s->journal) {
		json_decref(line);
		return -EBADF;
	}
	return journal_add(s->journal, line, durable, &s->journal_err);
}

static void on_changed(void *ctx, struct task *t)
{
	struct secretary *s = ctx;

	progress_task(s->progress, t);
}

static void on_last_sweep(void *ctx, int killed, const struct err *e)
{
	struct secretary *s = ctx;

	s->sweep = NULL;
	loop_quit(s->loop, 0);
}

static void on_finished(void *ctx)
{
	struct secretary *s = ctx;

	s->sweep = sweep_start(s, NULL, 0, on_last_sweep, s);
	if (!s->sweep)
		loop_quit(s->loop, 0);
}

const struct sched_ops job_ops = { .journal = on_journal, .start = run_start, .stop = run_stop, .changed = on_changed, .finished = on_finished };

int64_t job_ran(const struct secretary *s)
{
	/* a clock that was set back takes nothing away */
	return s->ran + (s->run_began && s->ended > s->run_began ? s->ended - s->run_began : 0);
}

void job_run_over(struct secretary *s)
{
	s->ran = job_ran(s);
	s->run_began = 0;
}

int job_replay_line(void *secretary, const json_t *line, struct err *e)
{
	struct secretary *s = secretary;
	const char *ev = json_string_value(json_object_get(line, "ev"));
	bool mine = ev && !json_object_get(line, "task");
	int64_t t = 0;

	if (mine && str_eq(ev, "begin"))
		job_run_over(s);                /* the one before was killed: it lasted to its last line */
	js_get_int(line, "t", 0, INT64_MAX, &t, NULL);
	s->ended = t;
	if (!s->began)
		s->began = t;
	if (mine && str_eq(ev, "begin")) {
		s->run_began = t;
		s->runs++;
	} else if (mine && str_eq(ev, "end")) {
		job_run_over(s);
	}
	return sched_replay(s->sched, line, e);
}

/* Runs the loop until what it waits for has set *done. */
struct waiting { struct secretary *s; struct err err; int killed; };

static void on_status(void *ctx, const struct client_answer *a)
{
	struct waiting *w = ctx;

	if (a->e)
		w->err = *a->e;
	loop_quit(w->s->loop, 0);
}

static void on_first_sweep(void *ctx, int killed, const struct err *e)
{
	struct waiting *w = ctx;

	w->s->sweep = NULL;
	w->killed = killed;
	if (e)
		w->err = *e;
	loop_quit(w->s->loop, 0);
}

static int reach_server(struct secretary *s, const struct job_opts *o, struct err *e)
{
	struct client_opts first = { .patience_ms = 5000 }, co = { .patience_ms = PATIENCE_MS };
	struct waiting w = { .s = s };
	int r = client_find(o->server, o->state, &s->where, e);

	if (r >= 0)
		r = client_create(s->loop, &s->where, &first, &s->client, e);
	if (r < 0)
		return r;
	if (!client_json(s->client, "GET", "/v1/status", NULL, false, on_status, &w))
		return err_set(e, ENOMEM, "no memory");
	loop_run(s->loop);
	client_free(s->client);
	s->client = NULL;
	if (w.err.code) {
		*e = w.err;
		return -w.err.code;
	}
	return client_create(s->loop, &s->where, &co, &s->client, e);
}

static void stop_on_signal(void *ctx, int signo)
{
	struct secretary *s = ctx;

	if (sched_stop_why(s->sched)) {
		/* asked twice: go now; what is left is found by the next run, or ends by its lease */
		loop_quit(s->loop, EINTR);
		return;
	}
	progress_note(s->progress, "stopping: ending computers (once more to leave them)");
	sched_stop(s->sched, signo == SIGINT ? "stopped by Ctrl-C" : "stopped by a signal");
}

static void on_watch(struct source *src, uint32_t events)
{
	struct secretary *s = container_of(src, struct secretary, watch);
	_Alignas(struct inotify_event) char b[4096];

	while (read(src->fd, b, sizeof b) > 0)
		;
	if (faccessat(s->dirfd, "cancel", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		sched_stop(s->sched, "cancelled");
}

static int watch_cancel(struct secretary *s, struct err *e)
{
	unlinkat(s->dirfd, "cancel", 0);
	s->watchfd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (s->watchfd < 0 || inotify_add_watch(s->watchfd, s->dir, IN_CREATE | IN_MOVED_TO) < 0)
		return err_sys(e, "watch the job's folder");
	s->watch = (struct source){ .fd = s->watchfd, .name = "cancel", .ready = on_watch };
	return loop_add(s->loop, &s->watch, EPOLLIN, e);
}

static int left_at_once(const struct secretary *s, struct err *e)
{
	return err_set(e, EINTR, "left at once; go on with: bureau job resume %s", s->id);
}

/* What the last secretary left is ended before anything starts. */
static int sweep_first(struct secretary *s, struct err *e)
{
	struct waiting w = { .s = s };

	s->sweep = sweep_start(s, NULL, 0, on_first_sweep, &w);
	if (!s->sweep)
		return err_set(e, ENOMEM, "no memory");
	loop_run(s->loop);
	if (s->sweep) {                 /* a second signal: w isn't there for its answer */
		sweep_cancel(s->sweep);
		s->sweep = NULL;
		return left_at_once(s, e);
	}
	if (w.killed)
		progress_note(s->progress, "ended %d computers that an earlier run left", w.killed);
	if (w.err.code) {
		*e = w.err;
		return err_wrap(e, "look for computers of an earlier run");
	}
	return 0;
}

static int mark(struct secretary *s, const char *ev, const char *state, struct err *e)
{
	json_t *v = json_pack("{s:I, s:s}", "t", (json_int_t)clock_wall_ms(), "ev", ev);

	if (v && state)
		json_object_set_new(v, "state", json_string(state));
	return journal_add(s->journal, v, true, e);
}

static int finish(struct secretary *s, json_t **ret_doc, struct err *e)
{
	AUTO_JSON json_t *doc = NULL;
	int r;

	s->ended = clock_wall_ms();
	r = report_write(s, &doc, e);
	if (r < 0)
		return r;
	r = mark(s, "end", json_string_value(json_object_get(doc, "state")), e);
	if (r >= 0)
		*ret_doc = json_incref(doc);
	return r;
}

static int nothing(void *ctx, const json_t *line, struct err *e) { return 0; }

/* job_time is for all runs together. */
static int64_t time_left(const struct secretary *s, const struct job_opts *o)
{
	if (o->time_ms)
		return o->time_ms < INT64_MAX ? (int64_t)o->time_ms : INT64_MAX;
	return s->spec->limits.job_ms ? (int64_t)s->spec->limits.job_ms - s->ran : INT64_MAX;
}

int job_run(struct secretary *s, const struct job_opts *o, bool again, json_t **ret_doc, struct err *e)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	int64_t computers = o->computers ? o->computers : s->spec->limits.computers;
	int n, r;

	sched_tasks(s->sched, &n);
	r = progress_create(s->loop, s, o->quiet, &s->progress, e);
	if (r >= 0)
		r = reach_server(s, o, e);
	if (r >= 0)
		r = journal_open(s->dirfd, "journal", nothing, NULL, &s->journal, e);
	if (r >= 0)
		r = mark(s, "begin", NULL, e);
	if (r >= 0)
		r = watch_cancel(s, e);
	if (r >= 0)
		r = loop_signals(s->loop, signals, 3, stop_on_signal, s, e);
	if (r >= 0 && again)
		r = sweep_first(s, e);
	if (r < 0)
		return r;
	s->run_began = s->ended = clock_wall_ms();
	s->runs++;
	if (!s->began)
		s->began = s->run_began;
	progress_note(s->progress, "job %s: %d tasks, at most %lld computers at once, on %s", s->id, n, (long long)computers, s->where.url);
	for (int i = 0; i < s->spec->ninputs; i++) {
		if (s->spec->inputs[i].split.host_file)
			progress_note(s->progress, "input '%s' is %s of this machine", s->spec->inputs[i].name, s->spec->inputs[i].split.host_file);
	}
	r = sched_begin(s->sched, computers, time_left(s, o), again && !o->cancel, o->failed_too, e);
	if (r >= 0 && o->cancel)
		sched_stop(s->sched, "cancelled");
	if (r >= 0)
		r = -loop_run(s->loop);
	progress_free(s->progress);
	s->progress = NULL;
	if (s->journal_err.code) {
		*e = s->journal_err;
		return -e->code;
	}
	if (r == -EINTR)
		return left_at_once(s, e);
	return r < 0 ? r : finish(s, ret_doc, e);
}
