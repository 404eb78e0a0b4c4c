#ifndef MACHINE_GUEST_PRIV_H
#define MACHINE_GUEST_PRIV_H
#include "machine/guest.h"
#include "wire/msg.h"
/* between guest.c (calls in flight) and guest_ask.c (requests), guest_decode.c (what comes back) */

/* Memory for one message to be sent; requests are made one at a time, on one loop. */
extern uint8_t guest_mem[MSG_MAX];

/* Gives the call a place and starts its message. NULL and e when there is no place or no link. */
struct msg_writer *guest_begin(struct guest *g, struct guest_call *k, uint16_t type, struct err *e);
int guest_commit(struct guest *g, struct guest_call *k, struct err *e);

/* Reads one message that answers `k` (or a call that was cancelled, of which only type and answered are known).
 * NULL when all is well, else what is wrong with it. A descriptor goes to *fd, which is -1 before and the caller's after. *m's pointers are good until the next message. */
const char *guest_decode(struct msg_reader *r, uint16_t request, bool answered, int *fd, struct guest_msg *m);
bool guest_is_stream(uint16_t type);
#endif
