#ifndef DAEMON_CONTROL_H
#define DAEMON_CONTROL_H
/* control -- what bureaud and its supervisor (bureau-serve) tell each other, over a SOCK_SEQPACKET pair in wire/msg.h's form. When
 * one end closes the other side of it has died: bureaud then leaves its computers running and ends. */
enum control_type {
	C_READY = 1,      /* bureaud: listening, old computers are adopted */
	C_DOOR,           /* bureaud: start a door; one descriptor: its end of the link */
	C_END_ALL = 64,   /* supervisor: end every computer, then yourself */
};
#endif
