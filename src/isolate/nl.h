#ifndef ISOLATE_NL_H
#define ISOLATE_NL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
/* nl -- netlink messages, built in one bounded buffer and sent as one batch. What doesn't fit makes the batch bad; nl_talk says so. */
struct nl { _Alignas(4) uint8_t mem[8192]; size_t len, at; uint32_t seq, acks; bool bad; };
void nl_init(struct nl *n);
void nl_begin(struct nl *n, uint16_t type, uint16_t flags, const void *head, size_t size);
void nl_end(struct nl *n);
void nl_put(struct nl *n, uint16_t attr, const void *p, size_t size);
void nl_u8(struct nl *n, uint16_t attr, uint8_t v);
void nl_u32(struct nl *n, uint16_t attr, uint32_t v);
void nl_be32(struct nl *n, uint16_t attr, uint32_t v);
void nl_str(struct nl *n, uint16_t attr, const char *s);
size_t nl_nest(struct nl *n, uint16_t attr);
void nl_close(struct nl *n, size_t at);
int nl_talk(struct nl *n, int protocol, struct err *e);     /* sends; waits for every acknowledgement; the first error wins */
#endif
