#ifndef API_E2B_WIRE_H
#define API_E2B_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/buf.h"
#include "core/err.h"
#include "core/json.h"
#include "ops/ops.h"
/* e2b_wire -- the pure parts of the E2B dialect: names of sandboxes, Connect envelopes, proto3-JSON, signatures.
 * No request, no loop, no operation is touched here. */

#define E2B_ENVD_PORT 49983
#define E2B_ENVD_VERSION "0.6.4"
enum { E2B_ID_SIZE = 33 };

/* ---- which sandbox is meant ---- */
struct e2b_addr { char id[E2B_ID_SIZE]; uint16_t port; };
/* An id as clients send it: old ones carry a suffix "-client". False when what's left isn't an id. */
bool e2b_id(const char *s, size_t n, char ret_id[E2B_ID_SIZE]);
/* Host is PORT-ID.DOMAIN (domain may have a port, which is ignored; "localhost" always counts as one).
 * 1 = it names a sandbox, 0 = it's another host, -EINVAL = below the domain but wrong (*ret_why: short text). */
int e2b_addr_host(const char *host, const char *domain, struct e2b_addr *ret, const char **ret_why);
/* The fields E2b-Sandbox-Id and E2b-Sandbox-Port, each may be NULL. 0 = neither. */
int e2b_addr_fields(const char *id, const char *port, struct e2b_addr *ret, const char **ret_why);

/* ---- who acts ---- */
/* The user in "Basic base64(user:password)": 1, 0 = no such field or no user, -EINVAL. */
int e2b_basic_user(const char *authorization, char *out, size_t size);
struct e2b_sign { const char *path, *op, *user, *signature; int64_t expires; bool has_expires; };
/* Is it the signature made with this token? Constant time in the comparison. Says nothing about expiry. */
bool e2b_sign_ok(const struct e2b_sign *s, const char *token);

/* ---- Connect ---- */
enum { E2B_ENV_HEAD = 5, E2B_ENV_END = 2 };
/* The first envelope in p[0..n): 1 and its parts, 0 = more is needed, -EMSGSIZE over max, -EPROTO for flags we don't speak. */
int e2b_env_next(const char *p, size_t n, size_t max, uint8_t *ret_flags, const char **ret_msg, size_t *ret_len);
/* Appends one envelope. */
int e2b_env_text(struct buf *out, uint8_t flags, const char *json, size_t n);
int e2b_env_json(struct buf *out, uint8_t flags, const json_t *v);
/* Output bytes as a data event, encoded straight into out: no JSON tree on the hot path. */
int e2b_env_data(struct buf *out, enum op_stream s, const void *p, size_t n);
/* Connect's word for an errno, and the HTTP status of a word. */
const char *e2b_code(int code);
int e2b_code_status(const char *word);
/* {"code":word,"message":text} */
int e2b_error_json(struct buf *out, const char *word, const char *text);

/* ---- proto3-JSON ---- */
/* A member by its camelCase name or by its proto name (NULL when they are the same); JSON null counts as absent. */
json_t *e2b_member(const json_t *o, const char *camel, const char *snake);
/* Our entry as filesystem.EntryInfo; NULL without memory. */
json_t *e2b_entry(const json_t *entry);
/* {"watch":…} of file.watch as a FilesystemEvent. */
json_t *e2b_watch_event(const json_t *watch);
/* {"end":…} of process.start as an EndEvent. */
json_t *e2b_end_event(const json_t *end);

/* ---- control plane ---- */
/* ops' sandbox as E2B's Sandbox, SandboxDetail and ListedSandbox. */
enum e2b_shape { E2B_SANDBOX, E2B_DETAIL, E2B_LISTED };
json_t *e2b_sandbox(const json_t *sandbox, const char *domain, enum e2b_shape shape);
/* The body of create as arguments of sandbox.create. -EINVAL names the field that is wrong, or that can't be honoured here. */
int e2b_create_args(const json_t *body, bool v2, json_t **ret_args, struct err *e);
/* "a=b&c=d", its parts encoded once more, as an object. Empty or NULL: *ret stays NULL. */
int e2b_metadata_filter(const char *s, json_t **ret, struct err *e);
#endif
