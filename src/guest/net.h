#ifndef GUEST_NET_H
#define GUEST_NET_H
#include "guest/guest.h"
/* net -- ports of the computer, and how busy it is. */
void net_dial(struct conn *c, struct msg_reader *r);
void net_close_conn(struct conn *c);
void net_ports(struct conn *c, struct msg_reader *r);
void net_metrics(struct conn *c, struct msg_reader *r);       /* metrics.c */
#endif
