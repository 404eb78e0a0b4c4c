#ifndef GUEST_WATCH_H
#define GUEST_WATCH_H
#include "guest/guest.h"
/* watch -- what changes in a folder, or in a whole tree. */
struct watch;
void watch_start(struct conn *c, struct msg_reader *r);
void watch_stop(struct conn *c, uint32_t id);          /* G_DETACH; unknown is fine */
struct watch *watch_find(struct conn *c, uint32_t id);
void watch_close_conn(struct conn *c);
void watch_resume_conn(struct conn *c);                /* its queue has room again */
#endif
