/* ops -- the door to every operation: checks, then the handler, then one line in the audit. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"
#include "ops/ops_priv.h"

static int by_name(const void *name, const void *def)
{
	return strcmp(name, ((const struct op_def *)def)->info.name);
}

const struct op_info *ops_table(size_t *ret_n)
{
	static struct op_info *table;

	if (!table) {
		table = calloc(op_defs_n, sizeof *table);
		for (size_t i = 0; table && i < op_defs_n; i++)
			table[i] = op_defs[i].info;
	}
	*ret_n = table ? op_defs_n : 0;
	return table;
}

/* ---- a call's end ---- */

static void call_free(struct op_call *c)
{
	list_unlink(&c->node);
	guest_cancel(&c->gc);
	keeper_cancel(&c->kc);
	json_decref(c->args);
	json_decref(c->list);
	free(c);
}

static void end(struct op_call *c, const struct err *e, json_t *result, int fd)
{
	if (c->over) {          /* cancelled by who listens, inside an event: it was kept until now */
		json_decref(result);
		fd_drop(&fd);
		if (!c->busy)
			call_free(c);
		return;
	}
	c->over = true;
	if (c->def->audit)
		audit_line(c->o, c->who_name, c->def->info.name, c->id, e ? ops_code_name(e->code) : "ok", e ? e->msg : NULL);
	if (c->ret)
		*c->ret = NULL;
	c->busy++;
	c->sink.done(c->ctx, e, result, fd);
	c->busy--;
	json_decref(result);
	if (!c->busy)
		call_free(c);
}

void op_done(struct op_call *c, json_t *result, int fd)
{
	end(c, NULL, result, fd);
}

void op_fail(struct op_call *c, const struct err *e)
{
	end(c, e, NULL, -1);
}

void op_event(struct op_call *c, json_t *event)
{
	if (!c->over)
		c->sink.event(c->ctx, event);
	json_decref(event);
}

struct guest *op_guest(struct op_call *c)
{
	struct guest *g = computer_guest(c->computer);
	struct err e;

	if (!g) {
		err_set(&e, EAGAIN, "computer '%s' can't be reached at the moment", c->id);
		err_hint(&e, "ask again in a second");
		op_fail(c, &e);
	}
	return g;
}

void op_sent(struct op_call *c, int r, const struct err *e)
{
	if (r < 0)
		op_fail(c, e);
}

void ops_cancel(struct op_call *c)
{
	if (!c || c->over)
		return;
	c->over = true;
	if (c->ret)
		*c->ret = NULL;
	if (c->wait.node.next)
		machine_wait_cancel(&c->wait);
	guest_cancel(&c->gc);
	keeper_cancel(&c->kc);
	if (c->def->audit)
		audit_line(c->o, c->who_name, c->def->info.name, c->id, "left", NULL);
	if (!c->busy)
		call_free(c);
}

void ops_credit(struct op_call *c, uint32_t bytes)
{
	if (c && !c->over)
		guest_credit(&c->gc, bytes);
}

/* ---- the checks ---- */

static unsigned state_bit(const struct computer *c)
{
	switch (computer_state(c)) {
	case MS_CREATING:
		return OS_CREATING;
	case MS_RUNNING:
		return OS_RUNNING;
	case MS_PAUSED:
		return OS_PAUSED;
	default:
		return OS_ENDED;
	}
}

/* What became of a computer that isn't live. */
static int not_live(struct op_call *c, struct err *e)
{
	struct computer *x = machine_find_any(c->o->o.machines, c->id);      /* one that is ending */
	struct store_sandbox stored;
	const struct store_sandbox *row = x ? computer_row(x) : NULL;
	struct err mine;

	if (!x && store_get(machines_store(c->o->o.machines), c->id, &stored, &mine) == 1)
		row = &stored;
	if (row && row->why[0])
		return err_set(e, ENOENT, "computer '%s' has ended: %s%s%.150s", c->id, row->why, row->why_text[0] ? ", " : "", row->why_text);
	return err_set(e, ENOENT, "computer '%s' isn't known", c->id);
}

static int check_computer(struct op_call *c, struct err *e)
{
	const struct op_def *d = c->def;

	if (!d->info.nargs || d->info.args[0].kind != OP_ID)
		return c->only[0] ? err_set(e, EPERM, "this token is for computer '%s' alone", c->only) : 0;
	str_copy(c->id, sizeof c->id, arg_str(c, "id"));
	if (c->only[0] && !str_eq(c->only, c->id))
		return err_set(e, EPERM, "this token is for computer '%s' alone", c->only);
	c->computer = machine_find(c->o->o.machines, c->id);
	if (!c->computer)
		return d->states & OS_ENDED ? 0 : not_live(c, e);
	if (!(d->states & state_bit(c->computer)))
		return err_set(e, EBUSY, "computer '%s' is %s: '%s' isn't possible now", c->id, state_name(computer_state(c->computer)), d->info.name);
	return 0;
}

static int check(struct op_call *c, struct err *e)
{
	int r;

	if (c->def->info.right & ~c->who.rights)
		return err_set(e, EPERM, "%s may not do '%s'", c->who_name, c->def->info.name);
	r = args_check(c->def, c->args, e);
	return r < 0 ? r : check_computer(c, e);
}

static struct op_call *call_new(struct ops *o, const struct op_def *d, const struct principal *who, const struct op_in *in,
	const struct op_sink *sink, void *ctx)
{
	struct op_call *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->o = o;
	c->def = d;
	c->sink = *sink;
	c->ctx = ctx;
	c->args = in->args ? in->args : json_object();
	c->data = in->data;
	c->len = in->len;
	c->window = in->window ? in->window : 262144;
	c->who = *who;
	snprintf(c->who_name, sizeof c->who_name, "%s", who->name ? who->name : "somebody");
	snprintf(c->only, sizeof c->only, "%s", who->only_computer ? who->only_computer : "");
	list_append(&o->calls, &c->node);
	return c;
}

void ops_run(struct ops *o, const char *name, const struct principal *who, const struct op_in *in, const struct op_sink *sink, void *ctx,
	struct op_call **ret_call)
{
	const struct op_def *d = bsearch(name, op_defs, op_defs_n, sizeof *op_defs, by_name);
	struct op_call *c = d ? call_new(o, d, who, in, sink, ctx) : NULL;
	struct err e;

	if (ret_call)
		*ret_call = c;
	if (!c) {
		json_decref(in->args);
		err_set(&e, d ? ENOMEM : ENOSYS, d ? "no memory" : "there is no operation '%s'", name);
		sink->done(ctx, &e, NULL, -1);
		return;
	}
	c->ret = ret_call;
	c->busy++;
	if (check(c, &e) < 0)
		op_fail(c, &e);
	else
		d->run(c);
	c->data = NULL;
	if (--c->busy == 0 && c->over)
		call_free(c);
}

/* ---- who ---- */

int ops_auth_key(struct ops *o, const char *key, struct principal *ret, struct err *e)
{
	if (!key || !str_eq_ct(key, o->key))
		return err_set(e, EACCES, "the API key isn't right");
	*ret = (struct principal){ .rights = OP_READ | OP_USE | OP_MANAGE | OP_ADMIN, .name = o->key_name };
	return 0;
}

int ops_auth_token(struct ops *o, const char *sandbox_id, const char *token, struct principal *ret, struct err *e)
{
	static char name[40];
	struct computer *c = machine_find(o->o.machines, sandbox_id);
	const struct store_sandbox *row;

	if (!c)
		return err_set(e, ENOENT, "computer '%.40s' isn't known", sandbox_id);
	row = computer_row(c);
	if (row->secure && (!token || !row->token[0] || !str_eq_ct(token, row->token)))
		return err_set(e, EACCES, "the access token isn't right");
	snprintf(name, sizeof name, "token:%s", row->id);
	*ret = (struct principal){ .rights = OP_READ | OP_USE, .only_computer = row->id, .name = name };
	return 0;
}

const char *ops_find_by_token(struct ops *o, const char *token)
{
	struct computer *c = token && token[0] ? machine_find_token(o->o.machines, token) : NULL;

	return c ? computer_row(c)->id : NULL;
}

struct each { bool (*fn)(void *ctx, const char *id, const char *token); void *ctx; const char *found; };

static bool each_token(void *ctx, struct computer *c)
{
	const struct store_sandbox *row = computer_row(c);
	struct each *x = ctx;

	if (!row->token[0] || !x->fn(x->ctx, row->id, row->token))
		return false;
	x->found = row->id;
	return true;
}

const char *ops_each_token(struct ops *o, bool (*fn)(void *ctx, const char *id, const char *token), void *ctx)
{
	struct each x = { fn, ctx, NULL };

	machine_each(o->o.machines, each_token, &x);
	return x.found;
}

/* ---- a computer's life, for those who hold something of it ---- */

enum op_life ops_life(struct ops *o, const char *sandbox_id)
{
	struct computer *c = machine_find(o->o.machines, sandbox_id);
	struct store_sandbox row;
	struct err e;

	if (!c)
		return store_get(machines_store(o->o.machines), sandbox_id, &row, &e) == 1 ? OP_LIFE_ENDED : OP_LIFE_UNKNOWN;
	switch (computer_state(c)) {
	case MS_CREATING:
		return OP_LIFE_CREATING;
	case MS_PAUSED:
		return OP_LIFE_PAUSED;
	default:
		return OP_LIFE_RUNNING;
	}
}

int ops_tie(struct ops *o, const char *sandbox_id, struct op_tie *t)
{
	struct computer *c = machine_find(o->o.machines, sandbox_id);
	struct op_tie **head;

	t->next = NULL;
	t->at = NULL;
	if (!c)
		return -ENOENT;
	head = (struct op_tie **)computer_slot(c);
	t->next = *head;
	t->at = head;
	if (t->next)
		t->next->at = &t->next;
	*head = t;
	return 0;
}

void ops_tie_drop(struct op_tie *t)
{
	if (!t->at)
		return;
	*t->at = t->next;
	if (t->next)
		t->next->at = t->at;
	t->next = NULL;
	t->at = NULL;
}

static bool cut_ties(void *ctx, struct computer *c)
{
	struct op_tie **head = (struct op_tie **)computer_slot(c);

	while (*head) {
		struct op_tie *t = *head;

		ops_tie_drop(t);
		t->cut(t);
	}
	return false;
}

void ops_cut(struct ops *o)
{
	machine_each(o->o.machines, cut_ties, NULL);
}

void ops_on_end(struct ops *o, struct computer *c)
{
	const struct store_sandbox *row = computer_row(c);

	audit_line(o, row->by[0] ? row->by : "itself", "sandbox.end", row->id, row->why, row->why_text);
	/* what the keeper was asked about it is answered later than it is freed */
	list_each(it, &o->calls)
		if (container_of(it, struct op_call, node)->computer == c)
			container_of(it, struct op_call, node)->computer = NULL;
	cut_ties(NULL, c);
}

void ops_on_denied(struct ops *o, const char *id, const char *what, const char *rule)
{
	audit_line(o, "door", "net.refuse", id, "denied", what);
}
