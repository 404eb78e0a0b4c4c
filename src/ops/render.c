#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/fd.h"
#include "core/str.h"
#include "ops/ops_priv.h"

/* What a computer says may be any bytes. */
json_t *render_str(const char *s)
{
	json_t *v = json_string(s), *parsed = NULL;
	AUTO_BUF struct buf b = BUF_INIT(1 << 20);

	if (v)
		return v;
	if (str_json(&b, s, strlen(s)) == 0)
		parsed = json_loadb(buf_at(&b), b.len, JSON_DECODE_ANY, NULL);
	return parsed ? parsed : json_string("");
}

static void set(json_t *o, const char *name, json_t *v)
{
	json_object_set_new_nocheck(o, name, v);
}

static json_t *metadata_of(const char *text)
{
	json_t *v = text ? json_loads(text, 0, NULL) : NULL;

	return v ? v : json_object();
}

static json_t *unenforced_of(uint32_t mask)
{
	json_t *a = json_array();

	for (unsigned i = 0; machine_limit_name(i); i++)
		if (mask & 1u << i)
			json_array_append_new(a, json_string(machine_limit_name(i)));
	return a;
}

static json_t *limits_of(const struct op_call *c, const struct store_limits *l)
{
	json_t *o = json_object();

	set(o, "memory", json_integer((json_int_t)l->memory));
	set(o, "cpu", json_integer(l->cpu ? (json_int_t)l->cpu : c->o->cpus * 1000));
	set(o, "pids", json_integer((json_int_t)l->pids));
	set(o, "disk", json_integer((json_int_t)l->disk));
	return o;
}

/* The state as the API knows it: one that is going is over for everybody. */
static const char *public_state(const struct store_sandbox *row, const struct computer *live)
{
	enum machine_state s = live ? computer_state(live) : MS_ENDED;

	return state_name(state_is_live(s) && !row->ended ? s : MS_ENDED);
}

json_t *render_listed(const struct op_call *c, const struct store_sandbox *row, const struct computer *live)
{
	bool ended = !live || !state_is_live(computer_state(live));
	json_t *o = json_object();

	set(o, "id", json_string(row->id));
	set(o, "template", json_string(row->template));
	set(o, "state", json_string(public_state(row, live)));
	set(o, "started_at", json_integer(row->started));
	set(o, "ends_at", row->ends ? json_integer(row->ends) : json_null());
	if (ended) {
		if (row->ended)
			set(o, "ended_at", json_integer(row->ended));
		set(o, "why", json_string(row->why));
		set(o, "why_text", render_str(row->why_text));
		set(o, "by", render_str(row->by));
	}
	set(o, "metadata", metadata_of(row->metadata));
	set(o, "net", json_string(row->net ? "all" : "none"));
	set(o, "limits", limits_of(c, &row->limits));
	set(o, "unenforced", unenforced_of(row->unenforced));
	set(o, "secure", json_boolean(row->secure));
	if (live && computer_notice(live))
		set(o, "notice", json_string(computer_notice(live)));
	return o;
}

json_t *render_sandbox(const struct op_call *c, const struct store_sandbox *row, const struct computer *live)
{
	json_t *o = render_listed(c, row, live);

	if (live && state_is_live(computer_state(live)) && c->who.rights & OP_USE)
		set(o, "access_token", row->token[0] ? json_string(row->token) : json_null());
	return o;
}

static const char *type_of(uint32_t mode)
{
	return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "symlink" : "other";
}

json_t *render_entry(const struct guest_entry *n)
{
	const char *name = strrchr(n->path, '/');
	json_t *o = json_object(), *meta = json_object();

	set(o, "path", render_str(n->path));
	set(o, "name", render_str(name && name[1] ? name + 1 : n->path));
	set(o, "type", json_string(type_of(n->mode)));
	set(o, "mode", json_integer(n->mode & 07777));
	set(o, "size", json_integer((json_int_t)(n->size & INT64_MAX)));
	set(o, "modified_at", json_integer((json_int_t)(n->modified & INT64_MAX)));
	set(o, "owner", render_str(n->owner));
	set(o, "group", render_str(n->group));
	set(o, "uid", json_integer(n->uid));
	set(o, "gid", json_integer(n->gid));
	if (n->target[0])
		set(o, "target", render_str(n->target));
	if (n->mode >> 16) {             /* a link that leads somewhere: what is there */
		set(o, "target_type", json_string(type_of(n->mode >> 16)));
		set(o, "target_mode", json_integer(n->mode >> 16 & 07777));
	}
	for (size_t i = 0; i < n->nmeta; i++) {
		const char *eq = strchr(n->meta[i], '=');
		AUTO_FREE char *key = eq ? strndup(n->meta[i], (size_t)(eq - n->meta[i])) : NULL;

		if (key && str_utf8(key, strlen(key)))
			json_object_set_new(meta, key, render_str(eq + 1));
	}
	set(o, "metadata", meta);
	return o;
}
