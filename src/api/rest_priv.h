#ifndef API_REST_PRIV_H
#define API_REST_PRIV_H
#include "api/api.h"
#include "core/buf.h"
#include "core/loop.h"
/* rest.c (routes, arguments, who), rest_call.c (one call, streams), rest_body.c (bytes in and out).
 *
 * A rest_call lives until both its operation is over and its request has ended, whichever is later. */
struct rest_call {
	struct api *api;
	struct http_req *r;          /* NULL: the request has ended */
	const struct op_info *op;
	struct principal who;
	char who_name[64], only[40]; /* principal's strings are only good for a turn */
	json_t *args;
	struct op_call *call;        /* NULL: not running */
	bool text;                   /* output as text instead of base64 */
	bool started;                /* a stream's head was sent */
	unsigned busy;

	char tail[3][4];             /* of each output stream: the beginning of a character */
	uint8_t ntail[3];
	uint32_t owed;               /* credit to give when the client has read */
	struct timer alive;
	struct buf line;

	struct buf body;             /* process.input: what is still to be given */
	bool body_ended, waiting;    /* a piece is on its way to the program */
	size_t given;                /* its bytes: more may have come behind them */
	struct timer again;
	int fd;                      /* file.write: where the body goes; a pipe that is read */
	json_t *result;              /* file.write: what to answer when it is written */
	struct source pipe;
	bool pipe_on;
	char id[40];                 /* of the computer, for the tie */
	struct op_tie tie;           /* a descriptor of a computer's is not held when the computer is gone */
};

void rest_fail(struct http_req *r, const struct err *e);   /* of an operation; who asks is known */
int rest_code(int code);                         /* errno of an operation, as the API tells it */
void rest_free_if_over(struct rest_call *c);
void rest_run(struct rest_call *c);               /* starts the operation of a call whose arguments are whole */
void rest_json(struct http_req *r, int status, const json_t *v);
const struct op_sink *rest_sink(const struct op_info *op);
void rest_input(struct rest_call *c);             /* process.input: the body goes to the program, piece by piece */
void rest_bytes_done(void *ctx, const struct err *e, const json_t *result, int fd);   /* operations that give a descriptor */
void rest_bytes_drop(struct rest_call *c);
void rest_proxy(struct api *a, struct http_req *r, const struct principal *who, const char *id, const char *port, const char *target);
struct rest_call *rest_call_new(struct api *a, struct http_req *r, const struct op_info *op, const struct principal *who);
#endif
