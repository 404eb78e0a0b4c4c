/* file -- whole files to and from a computer, and input for its programs. */
#include <stdio.h>
#include "client/client_priv.h"
#include "core/str.h"

static json_t *where(const struct client_file *f, bool put)
{
	json_t *q = json_pack("{s:s}", "path", f->path);

	if (q && f->user)
		json_object_set_new(q, "user", json_string(f->user));
	if (q && put && f->mode)
		json_object_set_new(q, "mode", json_integer(f->mode));
	return q;
}

static struct client_call *file_call(struct client *c, const struct client_file *f, const char *method)
{
	AUTO_JSON json_t *q = where(f, *method == 'P');
	char path[96];
	struct client_call *k;

	snprintf(path, sizeof path, "/v1/sandboxes/%.40s/files", f->id);
	k = q ? call_new(c, method, path, q) : NULL;
	if (!k)
		return NULL;
	k->repeatable = true;
	k->progress = f->progress;
	k->len = f->len;
	return k;
}

struct client_call *client_put(struct client *c, const struct client_file *f, client_fn_done, void *ctx)
{
	struct client_call *k = file_call(c, f, "POST");

	if (k) {
		k->type = "application/octet-stream";
		k->fd = f->fd;
		k->send_fd = true;
	}
	return call_start(k, done, ctx);
}

struct client_call *client_put_bytes(struct client *c, const struct client_file *f, const void *p, size_t n, client_fn_done, void *ctx)
{
	struct client_call *k = file_call(c, f, "POST");

	if (k) {
		k->type = "application/octet-stream";
		buf_add(&k->body, p, n);
	}
	return call_start(k, done, ctx);
}

struct client_call *client_get(struct client *c, const struct client_file *f, client_fn_done, void *ctx)
{
	struct client_call *k = file_call(c, f, "GET");

	if (k) {
		k->fd = f->fd;
		k->recv_fd = true;
	}
	return call_start(k, done, ctx);
}

struct client_call *client_input(struct client *c, const char *id, int64_t pid, bool pty, uint64_t at, const void *p, size_t n, client_fn_done, void *ctx)
{
	AUTO_JSON json_t *q = json_pack("{s:I}", "pid", (json_int_t)pid);
	char path[96];
	struct client_call *k;

	if (!n) {
		snprintf(path, sizeof path, "/v1/sandboxes/%.40s/processes/close-stdin", id);
		k = client_json(c, "POST", path, json_incref(q), false, done, ctx);
		if (k)
			k->repeatable = true;
		return k;
	}
	json_object_set_new(q, "at", json_integer((json_int_t)at));
	if (pty)
		json_object_set_new(q, "pty", json_true());
	snprintf(path, sizeof path, "/v1/sandboxes/%.40s/processes/input", id);
	k = call_new(c, "POST", path, q);
	if (k) {
		k->repeatable = true;
		k->type = "application/octet-stream";
		buf_add(&k->body, p, n);
	}
	return call_start(k, done, ctx);
}
