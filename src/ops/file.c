#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "core/fd.h"
#include "core/str.h"
#include "ops/ops_handlers.h"
#include "ops/ops_priv.h"

#define TREE_MS 240000           /* for what takes as long as a tree is big; less than an HTTP client is kept waiting without a byte (http/server.h) */

static bool begin(struct op_call *c, struct guest **ret_g, void (*on)(struct guest_call *k, const struct guest_msg *m, const struct err *e))
{
	*ret_g = op_guest(c);
	c->gc.on = on;
	return *ret_g != NULL;
}

static void on_entry(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);

	if (e)
		op_fail(c, e);
	else
		op_done(c, m->has_entry ? json_pack("{s:o}", "entry", render_entry(&m->entry)) : NULL, -1);
}

void op_file_stat(struct op_call *c)
{
	struct guest *g;
	struct err e;

	if (begin(c, &g, on_entry))
		op_sent(c, guest_stat(g, &c->gc, arg_str(c, "path"), arg_str(c, "user"), &e), &e);
}

void op_file_mkdir(struct op_call *c)
{
	struct guest *g;
	struct err e;

	if (begin(c, &g, on_entry))
		op_sent(c, guest_mkdir(g, &c->gc, arg_str(c, "path"), arg_str(c, "user"), &e), &e);
}

void op_file_move(struct op_call *c)
{
	struct guest *g;
	struct err e;

	c->gc.limit_ms = TREE_MS;
	if (begin(c, &g, on_entry))
		op_sent(c, guest_move(g, &c->gc, arg_str(c, "from"), arg_str(c, "to"), arg_str(c, "user"), &e), &e);
}

void op_file_remove(struct op_call *c)
{
	struct guest *g;
	struct err e;

	c->gc.limit_ms = TREE_MS;
	if (begin(c, &g, on_entry))
		op_sent(c, guest_remove(g, &c->gc, arg_str(c, "path"), arg_str(c, "user"), &e), &e);
}

static void on_opened(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);
	json_t *result;
	int fd;

	if (e) {
		op_fail(c, e);
		return;
	}
	result = json_pack("{s:o}", "entry", render_entry(&m->entry));
	if (k->type == G_READ)
		json_object_set_new(result, "kind", json_string(m->kind == GUEST_FILE ? "file" : "pipe"));
	fd = guest_take_fd(m);
	op_done(c, result, fd);
}

void op_file_read(struct op_call *c)
{
	struct guest *g;
	struct err e;

	if (begin(c, &g, on_opened))
		op_sent(c, guest_read(g, &c->gc, arg_str(c, "path"), arg_str(c, "user"), &e), &e);
}

/* More would end the guest's link, and with it what others do in that computer. */
static int meta_fits(const char *const *meta, size_t n, struct err *e)
{
	if (n > GUEST_META)
		return err_set(e, E2BIG, "'metadata' has more than %d members", GUEST_META);
	for (size_t i = 0; i < n; i++)
		if (strlen(meta[i]) > GUEST_META_BYTES)
			return err_set(e, E2BIG, "'metadata': '%.40s...' is longer than %d bytes", meta[i], GUEST_META_BYTES);
	return 0;
}

void op_file_write(struct op_call *c)
{
	AUTO_FREE const char **meta = NULL;
	size_t n = 0;
	struct guest *g;
	struct err e;

	if (arg_strv(c, "metadata", &meta, &n, &e) < 0 || meta_fits(meta, n, &e) < 0) {
		op_fail(c, &e);
		return;
	}
	if (begin(c, &g, on_opened))
		op_sent(c, guest_write(g, &c->gc, arg_str(c, "path"), arg_str(c, "user"), (uint32_t)arg_int(c, "mode", 0) & 07777, meta, n,
			(uint64_t)arg_int(c, "size", 0), &e), &e);
}

/* ---- many ---- */

static void on_dir(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);
	json_t *list;

	if (e) {
		op_fail(c, e);
	} else if (m->what == GW_ENTRY) {
		json_array_append_new(c->list, render_entry(&m->entry));
	} else {
		list = c->list;
		c->list = NULL;
		op_done(c, json_pack("{s:o}", "entries", list), -1);
	}
}

void op_file_list(struct op_call *c)
{
	struct guest *g;
	struct err e;

	c->gc.limit_ms = TREE_MS;
	if (!begin(c, &g, on_dir))
		return;
	c->list = json_array();
	op_sent(c, guest_dir(g, &c->gc, arg_str(c, "path"), arg_str(c, "user"), (uint32_t)arg_int(c, "depth", 1), &e), &e);
}

static void on_watch(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	static const char *const kinds[] = { [GUEST_CREATE] = "create", [GUEST_MODIFY] = "modify", [GUEST_DELETE] = "remove",
		[GUEST_RENAME] = "rename", [GUEST_CHMOD] = "chmod" };
	struct op_call *c = container_of(k, struct op_call, gc);
	json_t *ev;

	if (e) {
		op_fail(c, e);
	} else if (m->what == GW_OK) {
		op_event(c, json_pack("{s:{}}", "start"));
	} else if (m->what == GW_EVENT) {
		ev = json_pack("{s:s,s:o}", "type", kinds[m->kind], "name", render_str(m->name));
		if (m->has_entry)
			json_object_set_new(ev, "entry", render_entry(&m->entry));
		op_event(c, json_pack("{s:o}", "watch", ev));
	} else {
		op_done(c, NULL, -1);
	}
}

void op_file_watch(struct op_call *c)
{
	struct guest *g;
	struct err e;

	if (begin(c, &g, on_watch))
		op_sent(c, guest_watch(g, &c->gc, arg_str(c, "path"), arg_str(c, "user"), arg_bool(c, "recursive"), arg_bool(c, "entries"),
			arg_bool(c, "network_mounts"), &e), &e);
}

/* ---- ports ---- */

static void on_dialled(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);

	if (e)
		op_fail(c, e);
	else
		op_done(c, NULL, guest_take_fd(m));
}

void op_port_dial(struct op_call *c)
{
	struct guest *g;
	struct err e;

	if (begin(c, &g, on_dialled))
		op_sent(c, guest_dial(g, &c->gc, (uint16_t)arg_int(c, "port", 0), &e), &e);
}

static void on_ports(struct guest_call *k, const struct guest_msg *m, const struct err *e)
{
	struct op_call *c = container_of(k, struct op_call, gc);
	json_t *list;

	if (e) {
		op_fail(c, e);
		return;
	}
	list = json_array();
	for (size_t i = 0; i < m->nports; i++)
		json_array_append_new(list, json_integer(m->ports[i]));
	op_done(c, json_pack("{s:o}", "ports", list), -1);
}

void op_port_list(struct op_call *c)
{
	struct guest *g;
	struct err e;

	if (begin(c, &g, on_ports))
		op_sent(c, guest_ports(g, &c->gc, &e), &e);
}
