#ifndef HTTP_PARSE_H
#define HTTP_PARSE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
/* parse -- HTTP/1.x message heads, strictly. One parser for requests and responses, server, client and proxy.
 *
 * Refused, so that no peer behind us can read a message in another way than we do: a bare LF or CR, NUL and other
 * control bytes, folded lines, space before a colon, Content-Length with Transfer-Encoding, several
 * Content-Length (even equal ones), a transfer coding but "chunked", several Host, no Host in 1.1, heads over
 * 16 KiB or 100 fields, methods that aren't tokens, any version but 1.0 and 1.1.
 *
 * A head is parsed in place: names become lower case, names and values get a NUL behind them (there is always a
 * ':' or CR to overwrite). All places are offsets from `base`, so a parsed head may be moved: copy, set base. */
#define HTTP_MAX_HEAD 16384
#define HTTP_MAX_FIELDS 100
#define HTTP_MAX_TARGET 8192
#define HTTP_MAX_CHUNK_EXT 1024
#define HTTP_MAX_TRAILER 4096

struct http_field { uint16_t name, name_len, value, value_len; };

enum http_framing { HTTP_NO_BODY, HTTP_LENGTH, HTTP_CHUNKED, HTTP_TO_EOF /* responses only */ };
enum http_form { HTTP_ORIGIN /* /path */, HTTP_ABSOLUTE /* http://host/path */, HTTP_AUTHORITY /* CONNECT host:port */, HTTP_ASTERISK /* OPTIONS * */ };

struct http_head {
	char *base;
	uint16_t len;                          /* bytes of the head, with its empty line */
	uint16_t method, target, target_len;   /* request: strings at these offsets */
	uint16_t status, reason;               /* response: number; offset of the phrase */
	uint8_t minor;                         /* HTTP/1.minor */
	bool keep_alive;                       /* what the peer asks for, by version and Connection */
	bool expect_continue;
	bool upgrade;                          /* Connection: upgrade and an Upgrade field */
	enum http_form form;
	enum http_framing framing;
	uint64_t length;                       /* HTTP_LENGTH only */
	uint16_t nfields;
	struct http_field fields[HTTP_MAX_FIELDS];
};

/* Looks for the head's end in p[0..n). *scanned starts as 0 and remembers what was looked at, so that bytes that
 * drip in cost no second look. Returns the head's length, 0 = more is needed, or -EBADMSG (a bare LF, a control
 * byte), -E2BIG (over HTTP_MAX_HEAD). */
ssize_t http_head_end(const char *p, size_t n, uint32_t *scanned);

/* p[0..n) is a whole head as found by http_head_end; it is changed in place. Returns 0, or the HTTP status to answer
 * with (400, 414, 417, 431, 501, 505) and *ret_why, a short static text. */
int http_parse_request(char *p, size_t n, struct http_head *h, const char **ret_why);
/* method: of the request (decides whether a body follows). Returns 0 or 502. 1xx heads are returned like others. */
int http_parse_response(char *p, size_t n, const char *method, struct http_head *h, const char **ret_why);

/* The first field of that (lower-case) name, or NULL. */
const char *http_head_get(const struct http_head *h, const char *name);
static inline const char *http_field_name(const struct http_head *h, unsigned i) { return h->base + h->fields[i].name; }
static inline const char *http_field_value(const struct http_head *h, unsigned i) { return h->base + h->fields[i].value; }

bool http_is_token(const char *p, size_t n);
bool http_is_value(const char *p, size_t n);            /* may be a field's value: no control byte but tab */
/* Is word (lower case) an element of this comma list? Case is ignored. */
bool http_list_has(const char *list, const char *word);
/* Fields that belong to one connection and are never forwarded: the standard ones, and those that h's Connection names. */
bool http_is_hop(const struct http_head *h, const char *name);
const char *http_reason(int status);

/* Is s a plain "host" or "host:port" ("[::1]:80" too)? */
bool http_is_host(const char *s, size_t n);

/* Range: "bytes=a-b", "bytes=a-", "bytes=-n" for a body of size bytes. One range only (several: 0, send all).
 * Returns 1 and the half-open range, 0 = no (or an unusable) range, send everything, or -ERANGE = answer 416. */
int http_parse_range(const char *value, uint64_t size, uint64_t *ret_from, uint64_t *ret_to);
/* RFC 9110 date, "Sun, 06 Nov 1994 08:49:37 GMT". */
void http_date(int64_t unix_seconds, char out[32]);
int http_parse_date(const char *s, int64_t *ret_unix_seconds);   /* -EINVAL; the IMF-fixdate form only */

/* chunk -- the chunked transfer coding. Feed bytes; each call yields at most one run of body bytes, in place. */
struct http_chunked {
	uint64_t left;                         /* body bytes until this chunk's end */
	uint32_t line;                         /* bytes in the current size, extension or trailer line */
	uint32_t extra;                        /* trailer bytes; and the balance of framing to body bytes */
	uint8_t state, digits;
};
void http_chunked_init(struct http_chunked *c);
bool http_chunked_done(const struct http_chunked *c);
/* Consumes from p[0..n): returns how many bytes were taken, *ret_data and *ret_len the body bytes in them (maybe 0).
 * Stops after one run; -EBADMSG when it isn't chunked coding. Trailer fields are checked and dropped. */
ssize_t http_chunked_next(struct http_chunked *c, const char *p, size_t n, const char **ret_data, size_t *ret_len);
/* Body bytes that come next without any framing between them; and: n of these were taken past the decoder (splice). */
uint64_t http_chunked_run(const struct http_chunked *c);
void http_chunked_skip(struct http_chunked *c, uint64_t n);
#endif
