#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/fd.h"
#include "../tests/e2b_fake.h"

/* The whole E2B dialect below a real server: requests as the network sends them, operations made up. The first byte says how the
 * operations go (failing, streams that stay open, the sandbox's life, a file to read or write); what follows is the connection. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct loop *loop;
static struct http_server *server;
static struct api api;

static void on_request(void *ctx, struct http_req *r)
{
	if (!e2b_try(&api, r))
		http_reply(r, 404, NULL, "", 0);
}

static void set_up(void)
{
	static struct ops none;
	struct http_server_opts o = { .on_request = on_request };
	struct err e;

	if (loop_create(&loop, &e) < 0 || http_server_create(loop, &o, &server, &e) < 0)
		abort();
	api = (struct api){ .loop = loop, .ops = &none, .domain = "box.test" };
	if (e2b_create(&api, &e) < 0)
		abort();
}

static void choose(uint8_t how)
{
	static const int errors[] = { ENOENT, EAGAIN, EACCES, EINVAL, ENOSPC, ESRCH, ECONNRESET, EISDIR };
	int file = memfd_create("f", MFD_CLOEXEC);

	fake.error = how & 1 ? errors[how >> 5] : 0;
	fake.error_times = 2;
	fake.hold = how & 2;
	fake.life = how & 4 ? OP_LIFE_ENDED : OP_LIFE_RUNNING;
	fake.fd = how & 8 ? file : -1;
	if (!(how & 8))
		close(file);
	fake.ndata = 0;
	fake.asked[0] = '\0';
	fake.result = how & 16
		? "{\"entry\":{\"path\":\"/a\",\"name\":\"a\",\"type\":\"file\",\"mode\":1,\"size\":1,\"modified_at\":1},\"envs\":{},\"processes\":[{\"pid\":7,\"ended\":true}]}"
		: "{\"id\":\"" ID "\",\"template\":\"base\",\"state\":\"running\",\"started_at\":0,\"sandboxes\":[],\"next\":\"\",\"templates\":[{\"name\":\"x\"}]}";
}

/* The sandbox ends: whatever is tied to it is cut. */
static void end_ties(void)
{
	while (fake.ties) {
		struct op_tie *t = fake.ties;

		ops_tie_drop(t);
		t->cut(t);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static char sink[65536];
	int pair[2];
	struct err e;

	if (!loop)
		set_up();
	if (n < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return 0;
	choose(data[0]);
	if (http_server_serve(server, pair[1], NULL, NULL, &e) < 0)
		abort();
	if (write(pair[0], data + 1, n - 1) < 0)
		abort();
	for (int i = 0; i < 4; i++) {
		loop_turn(loop, 0);
		while (read(pair[0], sink, sizeof sink) > 0)
			;
	}
	if (n & 1)
		end_ties();
	close(pair[0]);
	for (int i = 0; i < 3; i++)
		loop_turn(loop, 0);
	end_ties();                      /* watchers go on without a connection */
	loop_turn(loop, 0);
	fd_drop(&fake.fd);
	return 0;
}
