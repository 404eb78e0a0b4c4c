#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include "core/fd.h"
#include "core/str.h"
#include "ops/ops_handlers.h"
#include "ops/ops_priv.h"

/* pid or tag, one of them */
static int selector(struct op_call *c, uint32_t *ret_pid, const char **ret_tag, struct err *e)
{
	int64_t pid = arg_int(c, "pid", 0);

	*ret_tag = arg_str(c, "tag");
	if (!pid == !(*ret_tag)[0])
		return err_set(e, EINVAL, "give 'pid' or 'tag', one of them");
	if (pid > INT32_MAX)
		return err_set(e, ESRCH, "process with pid %lld not found", (long long)pid);
	*ret_pid = (uint32_t)pid;
	return 0;
}

/* ---- streams ---- */

static void tell_exit(struct op_call *c, bool oom)
{
	static const char *const words[] = { "exited", "signaled", "timeout" };
	json_t *end = json_pack("{s:{s:s,s:i,s:b}}", "end", "how", words[c->how], "code", (int)c->code, "oom", (int)oom);

	/* the sink may cancel inside event(): done then isn't due */
	c->busy++;
	op_event(c, end);
	c->busy--;
	op_done(c, NULL, -1);
}

static void on_oom(struct keeper_call *k, struct keeper_answer *a, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, kc);
	bool oom = !e && c->computer && a->oom > computer_oom_seen(c->computer);

	if (oom)
		computer_set_oom_seen(c->computer, a->oom);
	tell_exit(c, oom);
}

static void on_exit_event(struct op_call *c, const struct guest_msg *m)
{
	c->how = m->how;
	c->code = m->code;
	/* killed by signal 9: by somebody, or by the kernel for want of memory; the keeper knows */
	if (m->how == GUEST_SIGNALED && m->code == SIGKILL && computer_row(c->computer)->limits.memory) {
		c->kc.on = on_oom;
		machine_stats(c->computer, &c->kc);
		return;
	}
	tell_exit(c, false);
}

static void tell_start(struct op_call *c, const struct guest_msg *m)
{
	json_t *start = json_pack("{s:i}", "pid", (int)m->prog.pid);

	if (c->gc.type == G_ATTACH) {
		json_t *args = json_array();

		for (size_t i = 0; i < m->prog.nargs; i++)
			json_array_append_new(args, render_str(m->prog.args[i]));
		json_object_set_new(start, "cmd", render_str(m->prog.cmd));
		json_object_set_new(start, "args", args);
		json_object_set_new(start, "cwd", render_str(m->prog.cwd));
		json_object_set_new(start, "tag", render_str(m->prog.tag));
		json_object_set_new(start, "pty", json_boolean(m->prog.flags & GS_PTY));
	}
	op_event(c, json_pack("{s:o}", "start", start));
}

static void on_stream(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);

	if (e) {
		op_fail(c, e);
		return;
	}
	switch (m->what) {
	case GW_OK:
		tell_start(c, m);
		break;
	case GW_OUT:
		c->sink.data(c->ctx, (enum op_stream)m->stream, m->bytes, m->len);
		break;
	case GW_GAP:
		op_event(c, json_pack("{s:{s:I}}", "gap", "bytes", (json_int_t)(m->lost & INT64_MAX)));
		break;
	default:
		on_exit_event(c, m);
		break;
	}
}

static int start_args(struct op_call *c, struct guest_start_args *a, const char ***args, const char ***envs, struct err *e)
{
	json_t *pty = arg_get(c, "pty");
	int64_t cols = 80, rows = 24;

	if (arg_strv(c, "args", args, &a->nargs, e) < 0 || arg_strv(c, "envs", envs, &a->nenvs, e) < 0)
		return -e->code;
	if (pty && (js_get_int(pty, "cols", 1, 65535, &cols, e) < 0 || js_get_int(pty, "rows", 1, 65535, &rows, e) < 0))
		return -e->code;
	if (!arg_str(c, "cmd")[0])
		return err_set(e, EINVAL, "'cmd' is empty");
	a->args = *args;
	a->envs = *envs;
	a->flags = pty ? GS_PTY : arg_bool(c, "stdin") ? GS_STDIN_PIPE : 0;
	a->cols = pty ? (uint16_t)cols : 0;
	a->rows = pty ? (uint16_t)rows : 0;
	return 0;
}

void op_process_start(struct op_call *c)
{
	AUTO_FREE const char **args = NULL, **envs = NULL;
	struct guest_start_args a = { .cmd = arg_str(c, "cmd"), .cwd = arg_str(c, "cwd"), .user = arg_str(c, "user"), .tag = arg_str(c, "tag"),
		.window = c->window, .timeout_ms = (uint64_t)arg_int(c, "timeout_ms", 0) };
	struct guest *g = op_guest(c);
	struct err e;
	int r;

	if (!g)
		return;
	if (start_args(c, &a, &args, &envs, &e) < 0) {
		op_fail(c, &e);
		return;
	}
	c->gc.on = on_stream;
	r = guest_start(g, &c->gc, &a, &e);
	if (r == -E2BIG) {
		err_set(&e, E2BIG, "the command, its arguments and its variables are too long: %d bytes together", MSG_MAX);
		err_hint(&e, "pass much by stdin, or as a file");
	}
	op_sent(c, r, &e);
}

void op_process_connect(struct op_call *c)
{
	struct guest *g = op_guest(c);
	uint64_t from = 0;
	const char *tag;
	uint32_t pid;
	struct err e;

	if (!g)
		return;
	if (selector(c, &pid, &tag, &e) < 0) {
		op_fail(c, &e);
		return;
	}
	c->gc.on = on_stream;
	if (arg_bool(c, "live"))
		from = UINT64_MAX;
	else if (arg_has(c, "from"))
		from = arg_int(c, "from", 0) ? (uint64_t)arg_int(c, "from", 0) : GUEST_FROM_FIRST;
	op_sent(c, guest_attach(g, &c->gc, pid, tag, from, c->window, &e), &e);
}

/* ---- one question, no answer but that it was done ---- */

static void on_plain(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);

	if (e)
		op_fail(c, e);
	else
		op_done(c, NULL, -1);
}

struct which { struct guest *g; const char *tag; uint32_t pid; };

static bool find(struct op_call *c, struct which *w)
{
	struct err e;

	w->g = op_guest(c);
	if (!w->g)
		return false;
	c->gc.on = on_plain;
	if (selector(c, &w->pid, &w->tag, &e) == 0)
		return true;
	op_fail(c, &e);
	return false;
}

void op_process_input(struct op_call *c)
{
	struct which w;
	struct err e;

	if (find(c, &w))
		op_sent(c, guest_input(w.g, &c->gc, w.pid, w.tag, arg_bool(c, "pty"), (uint64_t)arg_int(c, "at", -1), c->data, c->len, &e), &e);
}

void op_process_close_stdin(struct op_call *c)
{
	struct which w;
	struct err e;

	if (find(c, &w))
		op_sent(c, guest_input_close(w.g, &c->gc, w.pid, w.tag, &e), &e);
}

void op_process_signal(struct op_call *c)
{
	struct which w;
	struct err e;

	if (find(c, &w))
		op_sent(c, guest_signal(w.g, &c->gc, w.pid, w.tag, (uint32_t)arg_int(c, "signal", 0), arg_bool(c, "group"), &e), &e);
}

void op_process_resize(struct op_call *c)
{
	struct which w;
	struct err e;

	if (find(c, &w))
		op_sent(c, guest_resize(w.g, &c->gc, w.pid, w.tag, (uint16_t)arg_int(c, "cols", 80), (uint16_t)arg_int(c, "rows", 24), &e), &e);
}

/* ---- list ---- */

static json_t *render_prog(const struct guest_msg *m)
{
	json_t *args = json_array(), *o;

	for (size_t i = 0; i < m->prog.nargs; i++)
		json_array_append_new(args, render_str(m->prog.args[i]));
	o = json_pack("{s:i,s:o,s:o,s:o,s:b,s:b}", "pid", (int)m->prog.pid, "cmd", render_str(m->prog.cmd), "args", args,
		"cwd", render_str(m->prog.cwd), "pty", (int)(m->prog.flags & GS_PTY) != 0, "ended", (int)m->prog.ended);
	if (m->prog.tag[0])
		json_object_set_new(o, "tag", render_str(m->prog.tag));
	if (m->prog.ended)
		json_object_set_new(o, "code", json_integer(m->code));
	return o;
}

static void on_proc(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);
	json_t *list;

	if (e) {
		op_fail(c, e);
	} else if (m->what == GW_PROC) {
		json_array_append_new(c->list, render_prog(m));
	} else {
		list = c->list;
		c->list = NULL;
		op_done(c, json_pack("{s:o}", "processes", list), -1);
	}
}

void op_process_list(struct op_call *c)
{
	struct guest *g = op_guest(c);
	struct err e;

	if (!g)
		return;
	c->list = json_array();
	c->gc.on = on_proc;
	op_sent(c, guest_list(g, &c->gc, arg_bool(c, "ended"), &e), &e);
}
