/* bureaud -- the daemon: listens, decides, keeps state; asks the keeper. This file only wires the modules together.
 *
 * Order of a start: arguments; descriptors checked; TLS files read (as whoever started us); then our own user, no way back; store,
 * machines, operations, API; HTTP is served when the keeper was heard and old computers are adopted, so that a client who
 * waited in the listening socket's queue finds its computers. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/api.h"
#include "core/fd.h"
#define WANT_seccomp_daemon
#include "core/filters.h"
#include "core/log.h"
#include "core/loop.h"
#include "core/proc.h"
#include "core/str.h"
#include "daemon/control.h"
#include "http/server.h"
#include "http/stream.h"
#include "machine/machine.h"
#include "ops/setup.h"
#include "store/store.h"
#include "wire/sock.h"

#define LISTEN_MAX 8
#define HTTP_PENDING (16u << 20)     /* one stream's credit, in the worst case of one byte an event */
#define END_ALL_MS 20000

static const char usage[] =
	"usage: bureaud --state DIR --listen-fd N [--listen-fd N]... [--control-fd N] [--keeper-sock NAME]\n"
	"               [--tls-cert F --tls-key F] [--domain D] [--pool N] [--max N] [--no-key] [--uid UID --gid GID] [--end-all]\n"
	"bureau-serve starts it; 'bureau serve' is what people type.\n";

struct options {
	const char *state, *keeper_sock, *cert, *key, *domain;
	int listen[LISTEN_MAX];
	unsigned nlisten;
	uint64_t control, pool, max, uid, gid;
	bool has_control, no_key, has_uid, has_gid, end_all;
};

struct daemon {
	struct options o;
	struct loop *loop;
	struct link *control;
	struct store *store;
	struct machines *machines;
	struct ops *ops;
	struct api api;
	struct http_server *http;
	SSL_CTX *tls;
	struct timer end_timer;
	bool ending;
};

/* ---- arguments ---- */

static int number(const char *s, uint64_t *ret)
{
	return s && str_u64(s, UINT32_MAX, ret) == 0 ? 0 : -1;
}

static int parse_value(struct options *o, const char *a, const char *v)
{
	uint64_t n;

	if (str_eq(a, "--state"))
		o->state = v;
	else if (str_eq(a, "--keeper-sock"))
		o->keeper_sock = v;
	else if (str_eq(a, "--tls-cert"))
		o->cert = v;
	else if (str_eq(a, "--tls-key"))
		o->key = v;
	else if (str_eq(a, "--domain"))
		o->domain = v;
	else if (str_eq(a, "--listen-fd") && o->nlisten < LISTEN_MAX && number(v, &n) == 0)
		o->listen[o->nlisten++] = (int)n;
	else if (str_eq(a, "--control-fd") && number(v, &o->control) == 0)
		o->has_control = true;
	else if (str_eq(a, "--uid") && number(v, &o->uid) == 0)
		o->has_uid = true;
	else if (str_eq(a, "--gid") && number(v, &o->gid) == 0)
		o->has_gid = true;
	else if (str_eq(a, "--pool"))
		return number(v, &o->pool);
	else if (str_eq(a, "--max"))
		return number(v, &o->max);
	else
		return -1;
	return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
	for (int i = 1; i < argc; i++) {
		if (str_eq(argv[i], "--no-key"))
			o->no_key = true;
		else if (str_eq(argv[i], "--end-all"))
			o->end_all = true;
		else if (i + 1 >= argc || parse_value(o, argv[i], argv[i + 1]) < 0)
			return -1;
		else
			i++;
	}
	return o->state && o->has_uid == o->has_gid && !o->cert == !o->key ? 0 : -1;
}

/* ---- the door ---- */

static int spawn_here(int fd, struct err *e)
{
	char path[4096];
	const char *argv[] = { "bureau-door", "--fd", "3", NULL };
	int fds[] = { -1, -1, 2, fd };
	struct proc_spec s = { .path = path, .argv = argv, .fds = fds, .nfds = 4, .death_signal = SIGKILL };

	if (proc_sibling("bureau-door", path, sizeof path, e) < 0)
		return -e->code;
	return proc_spawn(&s, NULL, NULL, e);
}

static int spawn_door(void *ctx, int *ret_fd, struct err *e)
{
	struct daemon *d = ctx;
	struct msg_writer w;
	uint8_t mem[64];
	int pair[2], r;

	if (sock_pair(pair, e) < 0)
		return -e->code;
	if (d->control) {
		msg_writer_init(&w, mem, sizeof mem, C_DOOR, 0);
		msg_put_fd(&w, pair[1]);
		r = link_send(d->control, &w);
		if (r < 0)
			r = err_set(e, EAGAIN, "the supervisor doesn't answer");
	} else {
		r = spawn_here(pair[1], e);
	}
	close(pair[1]);
	if (r < 0) {
		close(pair[0]);
		return r;
	}
	*ret_fd = pair[0];
	return 0;
}

/* ---- the end ---- */

static void on_end_timer(struct timer *t)
{
	struct daemon *d = container_of(t, struct daemon, end_timer);
	static int waited;

	if (!machines_left(d->machines) || (waited += 20) > END_ALL_MS) {
		loop_quit(d->loop, machines_left(d->machines) ? 3 : 0);
		return;
	}
	loop_arm(d->loop, t, 20);
}

static void end_all(struct daemon *d)
{
	if (d->ending)
		return;
	d->ending = true;
	if (d->http)
		http_server_drain(d->http);
	machines_end_all(d->machines, "shutdown", "the server was stopped", "server");
	d->end_timer.fire = on_end_timer;
	loop_arm(d->loop, &d->end_timer, 0);
}

static void on_signal(void *ctx, int signo)
{
	struct daemon *d = ctx;

	loop_quit(d->loop, 0);   /* computers go on; the next daemon adopts them */
}

/* ---- the supervisor ---- */

static void on_control(void *ctx, struct msg_reader *r)
{
	if (r->type == C_END_ALL)
		end_all(ctx);
	else
		r->bad = true;
}

static void on_control_gone(void *ctx, const struct err *e)
{
	struct daemon *d = ctx;

	log_warn("the supervisor is gone: ending, computers go on");
	loop_quit(d->loop, 0);
}

static const struct link_ops control_ops = { .message = on_control, .gone = on_control_gone };

static void tell_ready(struct daemon *d)
{
	struct msg_writer w;
	uint8_t mem[64];

	if (!d->control)
		return;
	msg_writer_init(&w, mem, sizeof mem, C_READY, 0);
	link_send(d->control, &w);
}

/* ---- wiring ---- */

static void on_computer_end(void *ctx, struct computer *c)
{
	struct daemon *d = ctx;

	if (d->ops)
		ops_on_end(d->ops, c);
}

static void on_denied(void *ctx, const char *id, const char *what, const char *rule)
{
	struct daemon *d = ctx;

	ops_on_denied(d->ops, id, what, rule);
}

static int start_http(struct daemon *d, struct err *e)
{
	const struct http_server_opts o = { .on_request = api_handle, .on_refuse = api_refuse, .ctx = &d->api, .max_conns = 16384, .max_pending = HTTP_PENDING, .server_name = "bureau" };

	if (http_server_create(d->loop, &o, &d->http, e) < 0)
		return -e->code;
	for (unsigned i = 0; i < d->o.nlisten; i++) {
		const struct http_listen li = { .fd = d->o.listen[i], .tls = d->tls };

		d->o.listen[i] = -1;
		if (http_server_listen(d->http, &li, NULL, 0, e) < 0)
			return -e->code;
	}
	return 0;
}

static void on_ready(void *ctx)
{
	struct daemon *d = ctx;
	struct err e;

	if (d->o.end_all)
		end_all(d);
	if (d->ending)
		return;
	if (start_http(d, &e) < 0) {
		log_error("%s", e.msg);
		loop_quit(d->loop, 1);
		return;
	}
	tell_ready(d);
	log_info("ready");
}

/* The rest of our life as our own user. */
static int become(const struct options *o, struct err *e)
{
	if (o->has_uid) {
		if (setgroups(0, NULL) < 0 || setresgid((gid_t)o->gid, (gid_t)o->gid, (gid_t)o->gid) < 0 ||
		    setresuid((uid_t)o->uid, (uid_t)o->uid, (uid_t)o->uid) < 0)
			return err_sys(e, "become user %llu", (unsigned long long)o->uid);
		if (o->uid && setresuid(0, 0, 0) == 0)
			return err_set(e, EPERM, "becoming user %llu could be undone", (unsigned long long)o->uid);
	}
	if (proc_harden(e) < 0)
		return -e->code;
	return proc_seccomp(seccomp_daemon, sizeof seccomp_daemon / sizeof *seccomp_daemon, e);
}

static int set_up(struct daemon *d, struct err *e)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	struct machines_opts m = { .state_dir = d->o.state, .keeper_name = d->o.keeper_sock ? d->o.keeper_sock : "keeper.sock",
		.pool = d->o.end_all ? 0 : (unsigned)d->o.pool, .max = (unsigned)d->o.max, .spawn_door = d->o.end_all ? NULL : spawn_door,
		.on_end = on_computer_end, .on_ready = on_ready, .on_denied = on_denied, .ctx = d };
	struct ops_opts o = { .state_dir = d->o.state };
	AUTO_FREE char *store_dir = NULL;

	if (d->o.cert && http_tls_server_ctx(d->o.cert, d->o.key, &d->tls, e) < 0)
		return -e->code;
	if (become(&d->o, e) < 0 || loop_create(&d->loop, e) < 0 || loop_signals(d->loop, signals, 3, on_signal, d, e) < 0)
		return -e->code;
	if (d->o.has_control && link_create(d->loop, (int)d->o.control, 65536, &control_ops, d, "supervisor", &d->control, e) < 0)
		return -e->code;
	if (asprintf(&store_dir, "%s/store", d->o.state) < 0) {
		store_dir = NULL;
		return err_set(e, ENOMEM, "no memory");
	}
	if (store_open(store_dir, &d->store, e) < 0)
		return -e->code;
	if (store_replaced(d->store))
		log_warn("the store was torn by a power cut: what has ended is forgotten; the old one is '%s'", store_replaced(d->store));
	m.loop = o.loop = d->api.loop = d->loop;
	m.store = d->store;
	if (machines_create(&m, &d->machines, e) < 0)
		return -e->code;
	o.machines = d->machines;
	if (ops_create(&o, &d->ops, e) < 0)
		return -e->code;
	d->api.ops = d->ops;
	d->api.domain = d->o.domain;
	d->api.no_key = d->o.no_key;
	return e2b_create(&d->api, e);
}

static void tear_down(struct daemon *d)
{
	d->ending = true;
	if (d->http)
		http_server_free(d->http);
	ops_cut(d->ops);         /* tunnels outlive their requests */
	loop_turn(d->loop, 0);   /* what has been cut ends in jobs */
	e2b_free(&d->api);
	ops_free(d->ops);
	d->ops = NULL;
	machines_free(d->machines);
	store_close(d->store);
	link_free(d->control);
	loop_disarm(d->loop, &d->end_timer);
	loop_free(d->loop);
	SSL_CTX_free(d->tls);
}

int main(int argc, char **argv)
{
	struct daemon d = { .o = { .pool = 0 } };
	struct err e = { .code = 0 };
	int r;

	if (parse(argc, argv, &d.o) < 0) {
		fputs(usage, stderr);
		return 2;
	}
	log_init("bureaud", LOG_INFO);
	proc_title("bureaud");
	signal(SIGPIPE, SIG_IGN);
	umask(077);
	for (unsigned i = 0; i < d.o.nlisten; i++)
		fcntl(d.o.listen[i], F_SETFD, FD_CLOEXEC);
	fd_raise_limit();
	if (set_up(&d, &e) < 0) {
		log_error("%s%s%s", e.msg, e.hint[0] ? "; " : "", e.hint);
		return 1;
	}
	r = loop_run(d.loop);
	tear_down(&d);
	return r;
}
