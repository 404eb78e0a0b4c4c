#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"
#include "ops/ops_handlers.h"
#include "ops/ops_priv.h"

#define MEMORY_MIN (16LL << 20)
#define CPU_MIN 10
#define METADATA_MAX 65536

static void answer_computer(struct op_call *c, struct computer *x)
{
	op_done(c, render_sandbox(c, computer_row(x), x), -1);
}

/* ---- create ---- */

static void on_created(struct machine_wait *w, struct computer *x, const struct err *e)
{
	struct op_call *c = container_of(w, struct op_call, wait);

	if (e) {
		op_fail(c, e);
		return;
	}
	str_copy(c->id, sizeof c->id, computer_row(x)->id);
	answer_computer(c, x);
}

static int check_limits(struct op_call *c, struct store_limits *l, struct err *e)
{
	int64_t memory = arg_int(c, "memory", 0), cpu = arg_int(c, "cpu", 0), pids = arg_int(c, "pids", 0), disk = arg_int(c, "disk", 0);

	if (memory && memory < MEMORY_MIN)
		return err_set(e, EINVAL, "'memory' must be at least %lld bytes", MEMORY_MIN);
	if (memory > (int64_t)c->o->host_memory)
		return err_set(e, EINVAL, "'memory' is more than this host has (%" PRIu64 " bytes)", c->o->host_memory);
	if (cpu && (cpu < CPU_MIN || cpu > c->o->cpus * 1000))
		return err_set(e, EINVAL, "'cpu' must be from %d to %ld thousandths of one cpu here", CPU_MIN, c->o->cpus * 1000);
	if (pids && pids < 4)
		return err_set(e, EINVAL, "'pids' must be at least 4");
	if (pids > 4194304)
		return err_set(e, EINVAL, "'pids' must be at most 4194304");
	if (disk && disk < (1 << 20))
		return err_set(e, EINVAL, "'disk' must be at least 1 MiB");
	*l = (struct store_limits){ .memory = (uint64_t)memory, .cpu = (uint64_t)cpu, .pids = (uint64_t)pids, .disk = (uint64_t)disk };
	return 0;
}

void op_sandbox_create(struct op_call *c)
{
	AUTO_FREE const char **envs = NULL;
	AUTO_BUF struct buf metadata = BUF_INIT(METADATA_MAX);
	int64_t timeout = arg_int(c, "timeout_ms", c->o->o.default_timeout_ms);
	struct machine_create a = { .template = arg_str(c, "template"), .net = str_eq(arg_str(c, "net"), "all") ? KEEPER_NET_ALL : KEEPER_NET_NONE,
		.ends = timeout ? clock_wall_ms() + timeout : 0, .secure = arg_bool(c, "secure"), .early = !arg_bool(c, "wait") };
	struct err e;

	if (check_limits(c, &a.limits, &e) < 0) {
		op_fail(c, &e);
		return;
	}
	if (arg_has(c, "metadata") && js_dump(arg_get(c, "metadata"), &metadata) < 0) {
		err_set(&e, E2BIG, "'metadata' is more than %d bytes", METADATA_MAX);
		op_fail(c, &e);
		return;
	}
	a.metadata = metadata.len ? buf_at(&metadata) : NULL;
	if (arg_has(c, "envs") && arg_strv(c, "envs", &envs, &a.nenvs, &e) < 0) {
		op_fail(c, &e);
		return;
	}
	a.envs = envs;
	c->wait.done = on_created;
	machine_create(c->o->o.machines, &a, &c->wait);
}

/* ---- get, kill, timeout ---- */

void op_sandbox_get(struct op_call *c)
{
	struct computer *x = c->computer ? c->computer : machine_find_any(c->o->o.machines, c->id);
	struct store_sandbox row;
	struct err e;
	int r;

	if (x) {
		answer_computer(c, x);
		return;
	}
	r = store_get(machines_store(c->o->o.machines), c->id, &row, &e);
	if (r == 1)
		op_done(c, render_sandbox(c, &row, NULL), -1);
	else if (r == 0) {
		err_set(&e, ENOENT, "computer '%s' isn't known", c->id);
		op_fail(c, &e);
	} else
		op_fail(c, &e);
}

static void on_killed(struct machine_wait *w, struct computer *x, const struct err *e)
{
	struct op_call *c = container_of(w, struct op_call, wait);

	if (e)
		op_fail(c, e);
	else
		op_done(c, NULL, -1);
}

void op_sandbox_kill(struct op_call *c)
{
	c->wait.done = on_killed;
	machine_end(c->computer, "killed", "asked for", c->who_name, &c->wait);
}

void op_sandbox_timeout(struct op_call *c)
{
	int64_t timeout = arg_int(c, "timeout_ms", 0), ends = timeout ? clock_wall_ms() + timeout : 0, now = computer_row(c->computer)->ends;
	struct err e;

	/* later is later; never is latest */
	if (arg_bool(c, "extend_only") && (!now || (ends && ends < now)))
		ends = now;
	if (ends != now && machine_set_ends(c->computer, ends, &e) < 0)
		op_fail(c, &e);
	else
		answer_computer(c, c->computer);
}

static void on_envs(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);
	json_t *map;

	if (e) {
		op_fail(c, e);
		return;
	}
	map = json_object();
	for (size_t i = 0; i < m->nstrs; i++) {
		const char *eq = strchr(m->strs[i], '=');
		AUTO_FREE char *key = eq ? strndup(m->strs[i], (size_t)(eq - m->strs[i])) : NULL;

		if (key && str_utf8(key, strlen(key)))
			json_object_set_new(map, key, render_str(eq + 1));
	}
	op_done(c, json_pack("{s:o}", "envs", map), -1);
}

void op_sandbox_envs(struct op_call *c)
{
	struct guest *g = op_guest(c);
	struct err e;

	if (!g)
		return;
	c->gc.on = on_envs;
	op_sent(c, guest_envs(g, &c->gc, &e), &e);
}

/* ---- metrics: from inside, and from the keeper ---- */

static void on_stats(struct keeper_call *k, struct keeper_answer *a, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, kc);
	const struct store_sandbox *row;
	json_t *result = c->list;
	struct err mine;

	if (!c->computer) {
		err_set(&mine, ENOENT, "computer '%s' has ended", c->id);
		op_fail(c, &mine);
		return;
	}
	row = computer_row(c->computer);
	c->list = NULL;
	/* inside, the host's memory is seen; what counts is the limit, and what the host charges to it */
	if (row->limits.memory && !(row->unenforced & KL_MEMORY))
		json_object_set_new(result, "mem_total", json_integer((json_int_t)row->limits.memory));
	if (!e && a->memory)
		json_object_set_new(result, "mem_used", json_integer((json_int_t)a->memory));
	json_object_set_new(result, "processes", json_integer(e ? 0 : a->processes));
	json_object_set_new(result, "oom_kills", json_integer(e ? 0 : (json_int_t)a->oom));
	op_done(c, result, -1);
}

static void on_metrics(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);

	if (e) {
		op_fail(c, e);
		return;
	}
	c->list = json_pack("{s:I,s:i,s:f,s:I,s:I,s:I,s:I,s:I}", "time", (json_int_t)clock_wall_ms(), "cpus", (int)m->metrics.cpus,
		"cpu_pct", m->metrics.cpu_used / 100.0, "mem_used", (json_int_t)m->metrics.mem_used, "mem_total", (json_int_t)m->metrics.mem_total,
		"mem_cache", (json_int_t)m->metrics.mem_cache, "disk_used", (json_int_t)m->metrics.disk_used,
		"disk_total", (json_int_t)m->metrics.disk_total);
	c->kc.on = on_stats;
	machine_stats(c->computer, &c->kc);
}

void op_sandbox_metrics(struct op_call *c)
{
	struct guest *g = op_guest(c);
	struct err e;

	if (!g)
		return;
	c->gc.on = on_metrics;
	op_sent(c, guest_metrics(g, &c->gc, &e), &e);
}

/* ---- list ---- */

struct listing {
	struct op_call *c;
	json_t *out, *metadata;
	const char *template;
	unsigned states;             /* OS_* */
	size_t limit;
	bool more;
	char next[64];
};

static bool metadata_match(const struct listing *l, const struct store_sandbox *row)
{
	json_t *have, *v;
	const char *key;
	bool all = true;

	if (!l->metadata || !json_object_size(l->metadata))
		return true;
	have = row->metadata ? json_loads(row->metadata, 0, NULL) : NULL;
	json_object_foreach(l->metadata, key, v)
		all = all && json_equal(json_object_get(have, key), v);
	json_decref(have);
	return all;
}

static unsigned row_state(const struct store_sandbox *row, const struct computer *x)
{
	/* one that is ending has no tombstone yet; 'get' says ended too */
	if (row->ended || (x && !state_is_live(computer_state(x))))
		return OS_ENDED;
	if (!x)
		return 0;
	return computer_state(x) == MS_CREATING ? OS_CREATING : computer_state(x) == MS_PAUSED ? OS_PAUSED : OS_RUNNING;
}

static bool list_row(void *ctx, const struct store_sandbox *row)
{
	struct listing *l = ctx;
	struct computer *x = row->ended ? NULL : machine_find_any(l->c->o->o.machines, row->id);

	if (!(l->states & row_state(row, x)) || (l->template && !str_eq(l->template, row->template)) || !metadata_match(l, row))
		return true;
	if (json_array_size(l->out) == l->limit) {
		l->more = true;
		return false;
	}
	json_array_append_new(l->out, render_listed(l->c, x ? computer_row(x) : row, x));
	snprintf(l->next, sizeof l->next, "%" PRId64 ".%s", row->started, row->id);
	return true;
}

static int parse_states(const char *s, unsigned *ret, struct err *e)
{
	static const struct { const char *name; unsigned bit; } words[] = {
		{ "creating", OS_CREATING }, { "running", OS_RUNNING }, { "paused", OS_PAUSED }, { "ended", OS_ENDED },
	};

	*ret = 0;
	while (*s) {
		size_t n = strcspn(s, ","), i = 0;

		while (i < 4 && !(strlen(words[i].name) == n && strncmp(words[i].name, s, n) == 0))
			i++;
		if (i == 4)
			return err_set(e, EINVAL, "'state' has an unknown word '%.*s'", (int)(n > 40 ? 40 : n), s);
		*ret |= words[i].bit;
		s += n + (s[n] == ',');
	}
	return *ret ? 0 : err_set(e, EINVAL, "'state' is empty");
}

static int parse_cursor(const char *s, struct store_query *q, struct err *e)
{
	const char *dot = strchr(s, '.');
	char number[24];
	uint64_t n;

	if (!dot || (size_t)(dot - s) >= sizeof number || !str_id(dot + 1))
		return err_set(e, EINVAL, "'cursor' isn't one of ours");
	memcpy(number, s, (size_t)(dot - s));
	number[dot - s] = '\0';
	if (str_u64(number, INT64_MAX, &n) < 0)
		return err_set(e, EINVAL, "'cursor' isn't one of ours");
	q->cursor_started = (int64_t)n;
	q->cursor_id = dot + 1;
	return 0;
}

/* What the store may look for in its index. NULL: nothing, or no memory for it; the rows are looked at anyway. */
static struct store_mark *marks_of(const struct listing *l, size_t *ret_n)
{
	size_t most = json_object_size(l->metadata) + (l->template != NULL);
	struct store_mark *m = most ? calloc(most, sizeof *m) : NULL;
	const char *key;
	json_t *v;

	*ret_n = 0;
	if (m && l->template)
		m[(*ret_n)++] = (struct store_mark){ STORE_TEMPLATE, l->template };
	json_object_foreach(l->metadata, key, v)
		if (m)
			m[(*ret_n)++] = (struct store_mark){ key, json_string_value(v) };
	return m;
}

void op_sandbox_list(struct op_call *c)
{
	struct listing l = { .c = c, .metadata = arg_get(c, "metadata"), .template = arg_has(c, "template") ? arg_str(c, "template") : NULL,
		.states = OS_CREATING | OS_RUNNING | OS_PAUSED, .limit = (size_t)arg_int(c, "limit", 100) };
	struct store_query q = { .after = arg_int(c, "started_after", 0), .oldest_first = str_eq(arg_str(c, "order"), "asc") };
	AUTO_FREE struct store_mark *marks = marks_of(&l, &q.nmarks);
	struct machine_status st;
	struct err e;
	json_t *result;

	q.marks = marks;
	if ((arg_has(c, "state") && parse_states(arg_str(c, "state"), &l.states, &e) < 0) ||
	    (arg_has(c, "cursor") && parse_cursor(arg_str(c, "cursor"), &q, &e) < 0)) {
		op_fail(c, &e);
		return;
	}
	q.live = true;               /* one that is ending is among them */
	q.ended = l.states & OS_ENDED;
	l.out = json_array();
	if (store_each(machines_store(c->o->o.machines), &q, list_row, &l, &e) < 0) {
		json_decref(l.out);
		op_fail(c, &e);
		return;
	}
	machines_status(c->o->o.machines, &st);
	result = json_pack("{s:o,s:i}", "sandboxes", l.out, "total_running", (int)st.running);
	if (l.more)
		json_object_set_new(result, "next", json_string(l.next));
	op_done(c, result, -1);
}
