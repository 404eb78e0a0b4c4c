#include "machine/guest_priv.h"

/* The requests: fields in the order of wire/guest_proto.h. */

int guest_hello(struct guest *g, struct guest_call *k, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, G_HELLO, e);

	if (!w)
		return -e->code;
	msg_put_u32(w, GUEST_VERSION);
	return guest_commit(g, k, e);
}

int guest_configure(struct guest *g, struct guest_call *k, const char *id, const char *hostname, const char *const *envs, size_t nenvs,
	int64_t deadline, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, G_CONFIGURE, e);

	if (!w)
		return -e->code;
	msg_put_str(w, id);
	msg_put_str(w, hostname);
	msg_put_strv(w, envs, nenvs);
	msg_put_u64(w, (uint64_t)deadline);
	return guest_commit(g, k, e);
}

int guest_deadline(struct guest *g, struct guest_call *k, int64_t deadline, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, G_DEADLINE, e);

	if (!w)
		return -e->code;
	msg_put_u64(w, (uint64_t)deadline);
	return guest_commit(g, k, e);
}

int guest_start(struct guest *g, struct guest_call *k, const struct guest_start_args *a, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, G_START, e);

	if (!w)
		return -e->code;
	k->window = a->window;
	k->credit = a->window;
	k->run_ms = a->timeout_ms;
	msg_put_u32(w, a->flags);
	msg_put_str(w, a->cmd);
	msg_put_strv(w, a->args, a->nargs);
	msg_put_strv(w, a->envs, a->nenvs);
	msg_put_str(w, a->cwd);
	msg_put_str(w, a->user);
	msg_put_str(w, a->tag);
	msg_put_u16(w, a->cols);
	msg_put_u16(w, a->rows);
	msg_put_u32(w, a->window);
	msg_put_u64(w, a->timeout_ms);
	return guest_commit(g, k, e);
}

int guest_attach(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, uint64_t from, uint32_t window, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, G_ATTACH, e);

	if (!w)
		return -e->code;
	k->window = window;
	k->credit = window;
	msg_put_u32(w, pid);
	msg_put_str(w, tag);
	msg_put_u64(w, from);
	msg_put_u32(w, window);
	return guest_commit(g, k, e);
}

static struct msg_writer *begin_pid(struct guest *g, struct guest_call *k, uint16_t type, uint32_t pid, const char *tag, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, type, e);

	if (w) {
		msg_put_u32(w, pid);
		msg_put_str(w, tag);
	}
	return w;
}

int guest_input(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, bool pty, uint64_t at, const void *p, size_t n, struct err *e)
{
	struct msg_writer *w = begin_pid(g, k, G_INPUT, pid, tag, e);

	if (!w)
		return -e->code;
	msg_put_u8(w, pty);
	msg_put_bytes(w, p, n);
	if (at != UINT64_MAX)
		msg_put_u64(w, at);
	return guest_commit(g, k, e);
}

int guest_input_close(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, struct err *e)
{
	return begin_pid(g, k, G_INPUT_CLOSE, pid, tag, e) ? guest_commit(g, k, e) : -e->code;
}

int guest_signal(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, uint32_t signo, bool group, struct err *e)
{
	struct msg_writer *w = begin_pid(g, k, G_SIGNAL, pid, tag, e);

	if (!w)
		return -e->code;
	msg_put_u32(w, signo);
	msg_put_u8(w, group);
	return guest_commit(g, k, e);
}

int guest_resize(struct guest *g, struct guest_call *k, uint32_t pid, const char *tag, uint16_t cols, uint16_t rows, struct err *e)
{
	struct msg_writer *w = begin_pid(g, k, G_RESIZE, pid, tag, e);

	if (!w)
		return -e->code;
	msg_put_u16(w, cols);
	msg_put_u16(w, rows);
	return guest_commit(g, k, e);
}

int guest_list(struct guest *g, struct guest_call *k, bool ended, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, G_LIST, e);

	if (!w)
		return -e->code;
	msg_put_u8(w, ended);
	return guest_commit(g, k, e);
}

static struct msg_writer *begin_path(struct guest *g, struct guest_call *k, uint16_t type, const char *path, const char *user, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, type, e);

	if (w) {
		msg_put_str(w, path);
		msg_put_str(w, user);
	}
	return w;
}

static int ask_path(struct guest *g, struct guest_call *k, uint16_t type, const char *path, const char *user, struct err *e)
{
	return begin_path(g, k, type, path, user, e) ? guest_commit(g, k, e) : -e->code;
}

int guest_stat(struct guest *g, struct guest_call *k, const char *path, const char *user, struct err *e)
{
	return ask_path(g, k, G_STAT, path, user, e);
}

int guest_mkdir(struct guest *g, struct guest_call *k, const char *path, const char *user, struct err *e)
{
	return ask_path(g, k, G_MKDIR, path, user, e);
}

int guest_remove(struct guest *g, struct guest_call *k, const char *path, const char *user, struct err *e)
{
	return ask_path(g, k, G_REMOVE, path, user, e);
}

int guest_read(struct guest *g, struct guest_call *k, const char *path, const char *user, struct err *e)
{
	return ask_path(g, k, G_READ, path, user, e);
}

int guest_dir(struct guest *g, struct guest_call *k, const char *path, const char *user, uint32_t depth, struct err *e)
{
	struct msg_writer *w = begin_path(g, k, G_DIR, path, user, e);

	if (!w)
		return -e->code;
	msg_put_u32(w, depth);
	return guest_commit(g, k, e);
}

int guest_move(struct guest *g, struct guest_call *k, const char *from, const char *to, const char *user, struct err *e)
{
	struct msg_writer *w = begin_path(g, k, G_MOVE, from, to, e);

	if (!w)
		return -e->code;
	msg_put_str(w, user);
	return guest_commit(g, k, e);
}

int guest_write(struct guest *g, struct guest_call *k, const char *path, const char *user, uint32_t mode, const char *const *meta, size_t nmeta,
	uint64_t size, struct err *e)
{
	struct msg_writer *w = begin_path(g, k, G_WRITE, path, user, e);

	if (!w)
		return -e->code;
	msg_put_u32(w, mode);
	msg_put_strv(w, meta, nmeta);
	msg_put_u64(w, size);
	return guest_commit(g, k, e);
}

int guest_watch(struct guest *g, struct guest_call *k, const char *path, const char *user, bool recursive, bool entries, bool network, struct err *e)
{
	struct msg_writer *w = begin_path(g, k, G_WATCH, path, user, e);

	if (!w)
		return -e->code;
	msg_put_u8(w, recursive);
	msg_put_u8(w, entries);
	msg_put_u8(w, network);
	return guest_commit(g, k, e);
}

int guest_dial(struct guest *g, struct guest_call *k, uint16_t port, struct err *e)
{
	struct msg_writer *w = guest_begin(g, k, G_DIAL, e);

	if (!w)
		return -e->code;
	msg_put_u16(w, port);
	return guest_commit(g, k, e);
}

static int ask_plain(struct guest *g, struct guest_call *k, uint16_t type, struct err *e)
{
	return guest_begin(g, k, type, e) ? guest_commit(g, k, e) : -e->code;
}

int guest_ports(struct guest *g, struct guest_call *k, struct err *e)
{
	return ask_plain(g, k, G_PORTS, e);
}

int guest_metrics(struct guest *g, struct guest_call *k, struct err *e)
{
	return ask_plain(g, k, G_METRICS, e);
}

int guest_envs(struct guest *g, struct guest_call *k, struct err *e)
{
	return ask_plain(g, k, G_ENVS, e);
}
