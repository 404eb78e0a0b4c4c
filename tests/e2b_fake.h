#ifndef E2B_FAKE_H
#define E2B_FAKE_H
/* Operations as a test of the E2B dialect wants them: one sandbox, answers from `fake`. Included by one file of a program. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api.h"
#include "core/str.h"

#define ID "iaaaaaaaaaaaaaaaaaaaa"
#define TOKEN "secrettoken"

struct ops { int none; };
struct op_call { const struct op_sink *sink; void *ctx; struct op_call **back; };

static struct {
	char asked[65536];               /* "name args" of each call, a line each */
	const char *result;              /* JSON of the next answers */
	int error;
	int error_times;                 /* how often; then result */
	int fd;
	enum op_life life;
	bool open;                       /* made with secure=false: any token will do */
	bool hold;                       /* streams: stay open after `start` */
	struct op_call *held;
	struct op_tie *ties;
	unsigned cancelled, credits;
	char data[65536];
	size_t ndata;
} fake;

static void start_stream(struct op_call *c)
{
	json_t *ev = json_pack("{s:{s:i}}", "start", "pid", 7);

	c->sink->event(c->ctx, ev);
	json_decref(ev);
	if (fake.hold) {
		fake.held = c;
		return;
	}
	if (c->sink->data)
		c->sink->data(c->ctx, OP_STDOUT, "hi\n", 3);
	ev = json_pack("{s:{s:s, s:i}}", "end", "how", "exited", "code", 3);
	c->sink->event(c->ctx, ev);
	json_decref(ev);
	*c->back = NULL;
	c->sink->done(c->ctx, NULL, NULL, -1);
	free(c);
}

void ops_run(struct ops *o, const char *name, const struct principal *who, const struct op_in *in,
	const struct op_sink *sink, void *ctx, struct op_call **ret_call)
{
	char *args = json_dumps(in->args, JSON_COMPACT | JSON_SORT_KEYS);
	struct op_call *c = calloc(1, sizeof *c);
	json_t *res = NULL;
	struct err e;
	size_t n = strlen(fake.asked);
	int fd = fake.fd;

	snprintf(fake.asked + n, sizeof fake.asked - n, "%s %s\n", name, args ? args : "-");
	free(args);
	json_decref(in->args);
	*c = (struct op_call){ sink, ctx, ret_call };
	*ret_call = c;
	if (fake.error && fake.error_times-- > 0) {
		err_set(&e, fake.error, "made up");
		*ret_call = NULL;
		free(c);
		sink->done(ctx, &e, NULL, -1);
		return;
	}
	if (str_eq(name, "process.start") || str_eq(name, "process.connect") || str_eq(name, "file.watch")) {
		start_stream(c);
		return;
	}
	if (in->data) {
		size_t room = sizeof fake.data - fake.ndata, take = in->len < room ? in->len : room;

		memcpy(fake.data + fake.ndata, in->data, take);
		fake.ndata += take;
	}
	if (fake.result)
		js_parse(fake.result, strlen(fake.result), &res, &e);
	*ret_call = NULL;
	free(c);
	fake.fd = -1;
	sink->done(ctx, NULL, res, fd);
	json_decref(res);
}

void ops_cancel(struct op_call *c)
{
	if (!c)
		return;
	fake.cancelled++;
	if (fake.held == c)
		fake.held = NULL;
	free(c);
}

void ops_credit(struct op_call *c, uint32_t bytes) { fake.credits += bytes; }
enum op_life ops_life(struct ops *o, const char *id) { return str_eq(id, ID) ? fake.life : OP_LIFE_UNKNOWN; }

int ops_auth_token(struct ops *o, const char *id, const char *token, struct principal *ret, struct err *e)
{
	if (!fake.open && (!token || !str_eq(token, TOKEN)))
		return err_set(e, EACCES, "wrong token");
	*ret = (struct principal){ .rights = OP_USE, .only_computer = ID, .name = "token:x" };
	return 0;
}

const char *ops_find_by_token(struct ops *o, const char *token) { return str_eq(token, TOKEN) ? ID : NULL; }
const char *ops_each_token(struct ops *o, bool (*fn)(void *ctx, const char *id, const char *token), void *ctx)
{ return fn(ctx, ID, TOKEN) ? ID : NULL; }

int ops_tie(struct ops *o, const char *id, struct op_tie *t)
{
	if (fake.life != OP_LIFE_RUNNING)
		return -ENOENT;
	t->next = fake.ties;
	t->at = &fake.ties;
	if (t->next)
		t->next->at = &t->next;
	fake.ties = t;
	return 0;
}

void ops_tie_drop(struct op_tie *t)
{
	if (!t->at)
		return;
	*t->at = t->next;
	if (t->next)
		t->next->at = t->at;
	t->at = NULL;
}

int ops_http_status(int code) { return code == ENOENT ? 404 : code == EINVAL ? 400 : code == EAGAIN ? 503 : 500; }

int api_auth(struct api *a, struct http_req *r, struct principal *ret, struct err *e)
{
	const char *key = http_req_header(r, "x-api-key");

	if (!key || !str_eq(key, "e2b_1"))
		return err_set(e, EACCES, "an API key is needed");
	*ret = (struct principal){ .rights = OP_READ | OP_USE | OP_MANAGE, .name = "key:x" };
	return 0;
}

bool api_auth_is_ours(struct api *a, const struct http_req *r)
{
	return false;
}

int api_same_site(struct api *a, struct http_req *r, struct err *e)
{
	return http_req_header(r, "origin") ? err_set(e, EPERM, "another site") : 0;
}

#endif
