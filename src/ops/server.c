#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/fd.h"
#include "core/str.h"
#include "ops/ops_handlers.h"
#include "ops/ops_priv.h"

/* ---- status ---- */

static const struct { uint32_t bit; const char *name; } features[] = {
	{ KF_ROOT, "root" }, { KF_IDMAP, "idmap" }, { KF_CGROUP_V2, "cgroup2" }, { KF_CGROUP_V1, "cgroup1" }, { KF_MEMORY, "memory" },
	{ KF_CPU, "cpu" }, { KF_PIDS, "pids" }, { KF_SUBUID, "subuid" }, { KF_NET, "net" }, { KF_FREEZE, "freeze" },
	{ KF_OVERLAY, "overlay" }, { KF_IPV6, "ipv6" },
};

static const struct { uint32_t bit; const char *name; } limits[] = { { KF_MEMORY, "memory" }, { KF_CPU, "cpu" }, { KF_PIDS, "pids" } };

void op_server_status(struct op_call *c)
{
	json_t *have = json_array(), *lack = json_array(), *result;
	struct machine_status st;

	machines_status(c->o->o.machines, &st);
	for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
		if (st.features & features[i].bit)
			json_array_append_new(have, json_string(features[i].name));
	for (size_t i = 0; st.keeper && i < sizeof limits / sizeof limits[0]; i++)
		if (!(st.features & limits[i].bit))
			json_array_append_new(lack, json_string(limits[i].name));
	result = json_pack("{s:s,s:I,s:{s:i,s:i,s:i,s:i,s:i},s:o,s:s,s:s,s:o}", "version", BUREAU_VERSION, "uptime_ms", (json_int_t)st.uptime_ms,
		"sandboxes", "running", (int)st.running, "creating", (int)st.creating, "paused", (int)st.paused, "pooled", (int)st.pooled,
		"max", (int)st.max, "unenforced", lack, "keeper", st.keeper ? "up" : "down", "door", st.door ? "up" : "down", "features", have);
	if (st.missing[0])
		json_object_set_new(result, "missing", render_str(st.missing));
	op_done(c, result, -1);
}

/* ---- templates ---- */

static json_t *one_template(const char *dir, const char *name)
{
	AUTO_FREE char *path = NULL, *root = NULL;
	char target[256];
	ssize_t n;
	json_t *o = json_pack("{s:s}", "name", name);

	if (asprintf(&path, "%s/templates/%s/current", dir, name) < 0)
		path = NULL;
	if (asprintf(&root, "%s/templates/%s/current/rootfs", dir, name) < 0)
		root = NULL;
	json_object_set_new(o, "built", json_boolean(root && access(root, F_OK) == 0));
	n = path ? readlink(path, target, sizeof target - 1) : -1;
	if (n > 0) {
		target[n] = '\0';
		json_object_set_new(o, "digest", render_str(target));
	}
	return o;
}

static void host_and_base(json_t *list, bool base_seen)
{
	json_array_append_new(list, json_pack("{s:s,s:b,s:s}", "name", "host", "built", 1, "note", "this host's own /usr, read-only below"));
	if (!base_seen)
		json_array_append_new(list, json_pack("{s:s,s:b,s:s}", "name", "base", "built", 0, "note", "not built: 'host' is used in its place"));
}

void op_template_list(struct op_call *c)
{
	const char *dir = machines_dir(c->o->o.machines);
	AUTO_FREE char *path = NULL;
	json_t *list = json_array();
	struct dirent *d;
	bool base = false;
	DIR *f = NULL;

	if (asprintf(&path, "%s/templates", dir) < 0)
		path = NULL;
	if (path)
		f = opendir(path);
	while (f && (d = readdir(f)) && json_array_size(list) < 1000) {
		if (!str_name(d->d_name) || str_eq(d->d_name, "host"))
			continue;
		base = base || str_eq(d->d_name, "base");
		json_array_append_new(list, one_template(dir, d->d_name));
	}
	if (f)
		closedir(f);
	host_and_base(list, base);
	op_done(c, json_pack("{s:o}", "templates", list), -1);
}
