/* The arguments of /v1: requests as the network sends them, through routes, path, query and JSON body, the table that tools/gen-ops made
 * and the real handlers, to what they ask of a computer's PID 1 (the other end of its link is read here) and of the machines (made
 * up here).
 *
 * What came through must be what its receiver takes: a guest ends its link at a request that is out of bounds, and with it
 * everybody's programs and files of that computer. The first byte says how the guest answers; what follows is the connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/api.h"
#include "core/fd.h"
#include "core/str.h"
#include "ops/ops_priv.h"
#include "wire/keeper_proto.h"
#include "wire/msg.h"
#include "wire/sock.h"

#define ID "iaaaaaaaaaaaaaaaaaaaa"

struct computer { struct store_sandbox row; struct guest *guest; void *slot; };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct loop *loop;
static struct http_server *server;
static struct computer box;
static struct ops ops;
static struct api api;
static int peer = -1;
static const char *strings[GUEST_ARGS + 1];

static void must(bool good)
{
	if (!good)
		abort();
}

/* ---- the machines ---- */

struct computer *machine_find(struct machines *ms, const char *id) { return str_eq(id, ID) ? &box : NULL; }
struct computer *machine_find_any(struct machines *ms, const char *id) { return machine_find(ms, id); }
struct computer *machine_find_token(struct machines *ms, const char *token) { return NULL; }
const struct store_sandbox *computer_row(const struct computer *c) { return &c->row; }
enum machine_state computer_state(const struct computer *c) { return MS_RUNNING; }
struct guest *computer_guest(const struct computer *c) { return c->guest; }
const char *computer_notice(const struct computer *c) { return NULL; }
void **computer_slot(struct computer *c) { return &c->slot; }
uint64_t computer_oom_seen(const struct computer *c) { return 0; }
void computer_set_oom_seen(struct computer *c, uint64_t n) { }
void machine_each(struct machines *ms, bool (*fn)(void *ctx, struct computer *c), void *ctx) { fn(ctx, &box); }
void machines_status(const struct machines *ms, struct machine_status *ret) { *ret = (struct machine_status){ .running = 1, .max = 1, .missing = "" }; }
struct store *machines_store(struct machines *ms) { return NULL; }
const char *machines_dir(const struct machines *ms) { return "/nonexistent"; }
const char *machine_limit_name(unsigned bit) { return NULL; }
void machine_wait_cancel(struct machine_wait *w) { }
int store_get(struct store *s, const char *id, struct store_sandbox *ret, struct err *e) { return 0; }

static void no_wait(struct machine_wait *w, const char *why)
{
	struct err e;

	err_set(&e, EAGAIN, "%s", why);
	w->done(w, NULL, &e);
}

void machine_create(struct machines *ms, const struct machine_create *a, struct machine_wait *w)
{
	size_t envs = 0;

	must(a->template && strlen(a->template) <= 65536 && (a->net == KEEPER_NET_NONE || a->net == KEEPER_NET_ALL));
	must(a->ends >= 0 && a->nenvs <= GUEST_ARGS);
	for (size_t i = 0; i < a->nenvs; i++) {
		must(strchr(a->envs[i], '=') > a->envs[i]);
		envs += strlen(a->envs[i]) + 1;
	}
	must(envs < MSG_MAX);                  /* it goes to the guest in one message */
	must(!a->metadata || a->metadata[0] == '{');
	no_wait(w, "made up");
}

void machine_end(struct computer *c, const char *why, const char *why_text, const char *by, struct machine_wait *w)
{
	if (w)
		no_wait(w, "made up");
}

int machine_set_ends(struct computer *c, int64_t ends, struct err *e)
{
	must(ends >= 0);
	return 0;
}

void machine_stats(struct computer *c, struct keeper_call *k)
{
	struct err e;

	err_set(&e, EAGAIN, "made up");
	k->on(k, NULL, &e);
}

int store_each(struct store *s, const struct store_query *q, bool (*fn)(void *ctx, const struct store_sandbox *row), void *ctx, struct err *e)
{
	fn(ctx, &box.row);
	return 0;
}

void audit_line(struct ops *o, const char *who, const char *what, const char *id, const char *outcome, const char *detail)
{
	must(who && what && id && outcome);
}

/* ---- the guest: its own bounds (src/guest), and every field there ---- */

static void get_path(struct msg_reader *r) { msg_get_str(r, GUEST_PATH); }
static void get_user(struct msg_reader *r) { msg_get_str(r, 63); }

static void get_pid(struct msg_reader *r)
{
	uint32_t pid = msg_get_u32(r);

	must(!pid == (msg_get_str(r, 256)[0] != '\0'));
}

static void get_start(struct msg_reader *r)
{
	uint32_t flags = msg_get_u32(r);

	must(!(flags & ~(uint32_t)(GS_STDIN_PIPE | GS_PTY)));
	must(msg_get_str(r, GUEST_PATH)[0] != '\0');
	msg_get_strv(r, strings, GUEST_ARGS, MSG_MAX);
	for (size_t i = 0, n = msg_get_strv(r, strings, GUEST_ARGS, MSG_MAX); i < n; i++)
		must(strchr(strings[i], '=') > strings[i]);
	get_path(r);
	get_user(r);
	msg_get_str(r, 256);
	must((msg_get_u16(r) > 0) == (flags & GS_PTY) > 0);
	must((msg_get_u16(r) > 0) == (flags & GS_PTY) > 0);
	msg_get_u32(r);
	must(msg_get_u64(r) <= INT64_MAX);
}

static void get_fields(struct msg_reader *r)
{
	size_t len;

	switch (r->type) {
	case G_START: get_start(r); break;
	case G_ATTACH: get_pid(r); msg_get_u64(r); msg_get_u32(r); break;
	case G_DETACH: msg_get_u32(r); break;
	case G_CREDIT: msg_get_u32(r); msg_get_u32(r); break;
	case G_INPUT:
		get_pid(r);
		must(msg_get_u8(r) <= 1);
		msg_get_bytes(r, MSG_MAX, &len);
		if (r->p != r->end)
			msg_get_u64(r);
		break;
	case G_INPUT_CLOSE: get_pid(r); break;
	case G_SIGNAL: get_pid(r); must(msg_get_u32(r) - 1 < 64); must(msg_get_u8(r) <= 1); break;
	case G_RESIZE: get_pid(r); must(msg_get_u16(r) && msg_get_u16(r)); break;
	case G_LIST: must(msg_get_u8(r) <= 1); break;
	case G_STAT: case G_MKDIR: case G_REMOVE: case G_READ: get_path(r); get_user(r); break;
	case G_DIR: get_path(r); get_user(r); must(msg_get_u32(r) >= 1); break;
	case G_MOVE: get_path(r); get_path(r); get_user(r); break;
	case G_WRITE: get_path(r); get_user(r); must(msg_get_u32(r) <= 07777); msg_get_strv(r, strings, GUEST_META, GUEST_META_BYTES); msg_get_u64(r); break;
	case G_WATCH: get_path(r); get_user(r); msg_get_u8(r); msg_get_u8(r); msg_get_u8(r); break;
	case G_DIAL: must(msg_get_u16(r) > 0); break;
	case G_PORTS: case G_METRICS: case G_ENVS: break;
	default: abort();
	}
}

static void answer(uint16_t type, uint32_t id, int code)
{
	uint8_t mem[256];
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, code ? G_ERR : G_OK, id);
	if (code) {
		msg_put_u32(&w, (uint32_t)code);
		msg_put_str(&w, "made up");
	} else if (type == G_START || type == G_LIST || type == G_DIR || type == G_PORTS) {
		msg_put_u32(&w, type == G_START ? 7 : 0);
	} else if (type != G_INPUT && type != G_INPUT_CLOSE && type != G_SIGNAL && type != G_RESIZE && type != G_REMOVE && type != G_WATCH && type != G_DETACH) {
		msg_writer_init(&w, mem, sizeof mem, G_ERR, id);
		msg_put_u32(&w, ENOENT);
		msg_put_str(&w, "made up");
	}
	msg_send(peer, &w);
}

/* Everything that was asked; how: what is answered. */
static void guest_turn(uint8_t how)
{
	static const int codes[] = { 0, ENOENT, EAGAIN, EACCES, 0, ENOSPC, ESRCH, EPIPE };
	static uint8_t mem[MSG_MAX];
	int fds[MSG_FDS];
	unsigned nfds;
	struct msg_reader r;
	struct err e;
	ssize_t n;

	while ((n = msg_recv(peer, mem, sizeof mem, fds, &nfds)) > 0) {
		must(msg_reader_init(&r, mem, (size_t)n, fds, nfds, &e) == 0 && nfds == 0);
		get_fields(&r);
		must(msg_reader_end(&r, &e) == 0);
		if (r.type != G_CREDIT && !(how & 8))
			answer(r.type, r.id, codes[how & 7]);
	}
}

static void on_lost(void *ctx, const struct err *e)
{
	abort();
}

/* ---- one connection ---- */

static void set_up(void)
{
	struct http_server_opts o = { .on_request = api_handle, .ctx = &api };
	struct err e;

	must(loop_create(&loop, &e) == 0 && http_server_create(loop, &o, &server, &e) == 0);
	ops.o = (struct ops_opts){ .loop = loop, .state_dir = "/nonexistent", .default_timeout_ms = 300000 };
	ops.cpus = 2;
	ops.host_memory = 1u << 30;
	list_init(&ops.calls);
	ops.audit_dir = ops.audit_fd = -1;
	api = (struct api){ .loop = loop, .ops = &ops, .no_key = true };
	str_copy(box.row.id, sizeof box.row.id, ID);
	str_copy(box.row.template, sizeof box.row.template, "base");
	str_copy(box.row.state, sizeof box.row.state, "running");
	must(e2b_create(&api, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static char sink[65536];
	int pair[2], link[2];
	struct err e;

	if (!loop)
		set_up();
	if (n < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return 0;
	must(sock_pair(link, &e) == 0 && guest_open(loop, link[0], on_lost, NULL, &box.guest, &e) == 0);
	peer = link[1];
	must(http_server_serve(server, pair[1], NULL, NULL, &e) == 0);
	must(write(pair[0], p + 1, n - 1) >= 0);
	for (int i = 0; i < 6; i++) {
		loop_turn(loop, 0);
		guest_turn(p[0]);
		while (read(pair[0], sink, sizeof sink) > 0)
			;
	}
	close(pair[0]);
	for (int i = 0; i < 3; i++)
		loop_turn(loop, 0);
	guest_turn(8);
	err_set(&e, ECANCELED, "over");
	guest_close(box.guest, &e);
	close(peer);
	loop_turn(loop, 0);
	must(list_empty(&ops.calls));
	return 0;
}
