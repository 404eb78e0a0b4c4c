/* A computer that ends, or can't be made, while the keeper still owes an answer about it; a listener that cancels in the middle. The
 * keeper isn't there: what it's asked waits until its link is closed. */
#include "machine/machine_priv.h"
#include "ops/ops_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "core/fd.h"
#include "core/str.h"
#include "tap.h"
#include "wire/sock.h"

static char dir[] = "/tmp/bureau-ends-XXXXXX", run_dir[64];
static struct machines ms = { .clock.fd = -1 };
static struct ops *o;
static const struct keeper_events keeper_events;
static uint8_t mem[MSG_MAX];
static int pid1;                    /* the test's end of the link to a computer's PID 1 */
static struct { int done, events; char code[20], text[400]; struct op_call *call; bool cancel; } saw;

static void on_end(void *ctx, struct computer *c) { ops_on_end(o, c); }
static void on_gone(void *ctx, const struct err *e) { }

static void begin_all(void)
{
	char path[64];
	struct err e;

	if (!mkdtemp(dir))
		exit(1);
	snprintf(run_dir, sizeof run_dir, "%s/run", dir);
	snprintf(path, sizeof path, "%s/audit", dir);
	mkdir(run_dir, 0700);
	mkdir(path, 0700);
	o = calloc(1, sizeof *o);
	if (!o || loop_create(&ms.o.loop, &e) < 0 || store_open(dir, &ms.o.store, &e) < 0 || map_create(&ms.by_id) < 0 || map_create(&ms.by_token) < 0)
		exit(1);
	ms.dir = dir;
	ms.max = 10;
	ms.heard = true;
	ms.o.on_end = on_end;
	list_init(&ms.all);
	o->o.loop = ms.o.loop;
	o->o.machines = &ms;
	o->o.state_dir = dir;
	list_init(&o->calls);
	if (audit_open(o, &e) < 0)
		exit(1);
}

static void open_keeper(void)
{
	struct err e;

	if (keeper_open(ms.o.loop, run_dir, "nobody", &keeper_events, NULL, &ms.keeper, &e) < 0)
		exit(1);
}

/* A running computer that somebody knows. */
static struct computer *computer(const char *id)
{
	uint32_t slot = slot_take(&ms);
	struct computer *c = computer_new(&ms, id, slot);
	struct err e;
	int pair[2];

	if (!c || sock_pair(pair, &e) < 0 || guest_open(ms.o.loop, pair[0], on_gone, c, &c->guest, &e) < 0)
		exit(1);
	pid1 = pair[1];
	c->told = true;
	c->pid = 7;
	c->row.limits.memory = 1 << 30;
	computer_move(c, ME_MADE);
	return c;
}

static void on_event(void *ctx, const json_t *event)
{
	saw.events++;
	if (saw.cancel && json_object_get(event, "end"))
		ops_cancel(saw.call);
}

static void on_done(void *ctx, const struct err *e, const json_t *result, int fd)
{
	saw.done++;
	str_copy(saw.code, sizeof saw.code, e ? ops_code_name(e->code) : "ok");
	str_copy(saw.text, sizeof saw.text, e ? e->msg : "");
}

static void ask(const char *op, json_t *args)
{
	static const struct op_sink sink = { .event = on_event, .done = on_done };
	const struct principal who = { .rights = OP_READ | OP_USE, .name = "test" };
	const struct op_in in = { .args = args };

	memset(&saw, 0, sizeof saw);
	ops_run(o, op, &who, &in, &sink, NULL, &saw.call);
}

/* The number of the last request that came to PID 1. */
static uint32_t asked(void)
{
	static uint8_t got[MSG_MAX];
	int fds[MSG_FDS];
	unsigned nfds = 0;
	struct msg_reader r;
	uint32_t id = 0;
	ssize_t n;

	loop_turn(ms.o.loop, 0);
	while ((n = msg_recv(pid1, got, sizeof got, fds, &nfds)) > 0 && msg_reader_init(&r, got, (size_t)n, fds, nfds, NULL) == 0) {
		id = r.id;
		msg_reader_end(&r, NULL);
	}
	return id;
}

static void say(const struct msg_writer *w)
{
	msg_send(pid1, w);
	loop_turn(ms.o.loop, 100);
}

static void start_program(const char *id)
{
	struct msg_writer w;
	uint32_t call;

	ask("process.start", json_pack("{s:s, s:s}", "id", id, "cmd", "x"));
	call = asked();
	msg_writer_init(&w, mem, sizeof mem, G_OK, call);
	msg_put_u32(&w, 12);
	say(&w);
	msg_writer_init(&w, mem, sizeof mem, G_EXIT, call);
	msg_put_u32(&w, GUEST_SIGNALED);
	msg_put_u32(&w, 9);
	msg_put_u8(&w, 0);
	say(&w);
}

static void ends_while_asked(void)
{
	const struct keeper_exit x = { .id = "i000000000000000000a1", .how = 0, .code = 0 };
	struct msg_writer w;

	open_keeper();
	computer(x.id);
	ask("sandbox.metrics", json_pack("{s:s}", "id", x.id));
	msg_writer_init(&w, mem, sizeof mem, G_OK, asked());
	msg_put_u32(&w, 2);
	for (int i = 0; i < 6; i++)
		i ? msg_put_u64(&w, 5) : msg_put_u32(&w, 5);
	say(&w);
	ok(!saw.done, "metrics: the keeper is asked");
	adopt_exited(&ms, &x);
	ok(!map_get(ms.by_id, x.id), "meanwhile the computer ends by itself");
	keeper_close(ms.keeper);
	ok(saw.done == 1 && str_eq(saw.code, "not_found"), "its metrics aren't read from where it was: %s %s", saw.code, saw.text);
	close(pid1);

	open_keeper();
	computer(x.id);
	start_program(x.id);
	ok(!saw.done && saw.events == 1, "a program was killed: the keeper is asked why");
	adopt_exited(&ms, &x);
	keeper_close(ms.keeper);
	ok(saw.done == 1 && saw.events == 2 && str_eq(saw.code, "ok"), "its end is told, also when the computer has ended since: %s", saw.code);
	close(pid1);
	ok(list_empty(&o->calls), "no call is left");
}

static void cancelled_inside(void)
{
	struct computer *c;

	open_keeper();
	c = computer("i000000000000000000a2");
	c->row.limits.memory = 0;       /* nothing to ask the keeper */
	ask("process.start", json_pack("{s:s, s:s}", "id", c->row.id, "cmd", "x"));
	saw.cancel = true;
	{
		struct msg_writer w;
		uint32_t call = asked();

		msg_writer_init(&w, mem, sizeof mem, G_OK, call);
		msg_put_u32(&w, 12);
		say(&w);
		msg_writer_init(&w, mem, sizeof mem, G_EXIT, call);
		msg_put_u32(&w, GUEST_EXITED);
		msg_put_u32(&w, 0);
		msg_put_u8(&w, 0);
		say(&w);
	}
	ok(!saw.done && saw.events == 2 && list_empty(&o->calls), "who cancels when told of the end leaves nothing behind");
	life_gone(c, "killed", "");
	keeper_close(ms.keeper);
	close(pid1);
}

static struct computer *made;
static int answers;

static void on_made(struct machine_wait *w, struct computer *c, const struct err *e)
{
	made = c;
	answers++;
}

static void late_create(void)
{
	const struct machine_create a = { .template = "host" };
	struct machine_wait w = { .done = on_made };
	struct computer *c;
	uint32_t slot;

	open_keeper();
	machine_create(&ms, &a, &w);
	c = container_of(ms.all.next, struct computer, node);
	slot = c->row.slot;
	loop_disarm(ms.o.loop, &c->watch);
	c->watch.fire(&c->watch);       /* its time is over, and the keeper hasn't answered */
	ok(answers == 1 && !made, "a create that takes too long fails");
	ok(!list_empty(&ms.all) && ms.slots[0] >> slot & 1, "its place is not given to another while the keeper may still be making it");
	keeper_close(ms.keeper);
	ok(list_empty(&ms.all) && !(ms.slots[0] >> slot & 1), "but when the keeper has answered");
}

int main(void)
{
	begin_all();
	ends_while_asked();
	cancelled_inside();
	late_create();
	audit_close(o);
	free(o);
	store_close(ms.o.store);
	map_free(ms.by_id);
	map_free(ms.by_token);
	loop_free(ms.o.loop);
	fd_remove_tree(AT_FDCWD, dir, NULL);
	return done_testing();
}
