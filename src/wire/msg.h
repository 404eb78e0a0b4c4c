#ifndef WIRE_MSG_H
#define WIRE_MSG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
/* msg -- the one bounded encoder and decoder for messages between our processes and with the guest.
 *
 * A message is one SOCK_SEQPACKET record: an 8-byte head, then fields in the order that its protocol header gives.
 *   head    u16 type, u16 number of descriptors that come with it, u32 id
 *   u8 u16 u32 u64   little endian
 *   str     u32 length, the bytes, one NUL; no NUL inside
 *   bytes   u32 length, the bytes
 *   list    u32 count, then that many items
 * A writer never writes past its buffer and a reader never reads past its message: the first fault makes it `bad`,
 * every later call is then harmless (zero, empty), and msg_reader_end() says so once. Trailing bytes are a fault. */
#define MSG_MAX 65536      /* bytes in one message, head included */
#define MSG_FDS 8          /* descriptors in one message */
#define MSG_HEAD 8

struct msg_writer {
	uint8_t *p;
	size_t len, cap;
	bool bad;
	int fds[MSG_FDS];      /* borrowed; sent by msg_send */
	unsigned nfds;
};
void msg_writer_init(struct msg_writer *w, void *mem, size_t cap, uint16_t type, uint32_t id);
void msg_put_u8(struct msg_writer *w, uint8_t v);
void msg_put_u16(struct msg_writer *w, uint16_t v);
void msg_put_u32(struct msg_writer *w, uint32_t v);
void msg_put_u64(struct msg_writer *w, uint64_t v);
void msg_put_str(struct msg_writer *w, const char *s);                   /* NULL is written as "" */
void msg_put_bytes(struct msg_writer *w, const void *p, size_t n);
void msg_put_strv(struct msg_writer *w, const char *const *v, size_t n); /* list of str */
void msg_put_fd(struct msg_writer *w, int fd);

struct msg_reader {
	const uint8_t *p, *end;
	uint16_t type;
	uint32_t id;
	bool bad;
	int fds[MSG_FDS];      /* owned: msg_take_fd hands them out, msg_reader_end closes the rest */
	unsigned nfds, next_fd;
};
/* Checks the head and the number of descriptors; owns fds from here on, also on failure (then they are closed). */
int msg_reader_init(struct msg_reader *r, const void *mem, size_t n, const int *fds, unsigned nfds, struct err *e);
uint8_t msg_get_u8(struct msg_reader *r);
uint16_t msg_get_u16(struct msg_reader *r);
uint32_t msg_get_u32(struct msg_reader *r);
uint64_t msg_get_u64(struct msg_reader *r);
/* Borrowed from the message. Longer than max, not ended by NUL, or with a NUL inside: bad, and "" comes back. */
const char *msg_get_str(struct msg_reader *r, size_t max);
const void *msg_get_bytes(struct msg_reader *r, size_t max, size_t *ret_n);
/* A list of str: `v` has room for cap + 1 pointers and is ended by NULL. More than cap items: bad. Returns the count. */
size_t msg_get_strv(struct msg_reader *r, const char **v, size_t cap, size_t max_each);
int msg_take_fd(struct msg_reader *r);                                   /* -1 and bad when there is none */
/* Closes descriptors nobody took. 0, or -EPROTO with an error naming the peer's fault. */
int msg_reader_end(struct msg_reader *r, struct err *e);

#endif
