#ifndef WIRE_DOOR_PROTO_H
#define WIRE_DOOR_PROTO_H
/* door_proto -- what the daemon (or `bureau run`) asks of bureau-door. Encoding: wire/msg.h over SOCK_SEQPACKET.
 *   bureau-door --fd N [--resolver ADDR[:PORT]] [--allow CIDR]…     one asker on N; its end ends the door
 * --allow names private addresses that may be reached all the same (tests, a company's own net); --resolver replaces /etc/resolv.conf.
 * The door has no state on disk. After it died the daemon starts another and opens every computer again. */
#define DOOR_VERSION 1
#define DOOR_CONNS_PER_COMPUTER 512
#define DOOR_NAMES_PER_COMPUTER 4096

enum door_type {
	D_HELLO = 1,      /* u32 version → u32 version */
	D_OPEN,           /* str computer id, u8 mode (enum keeper_net; policy comes later), u8 number of sockets, descriptors as K_CREATE gives them without [0] → nothing. EEXIST */
	D_CLOSE,          /* str computer id → nothing; its connections are cut */
	D_STATS,          /* str computer id → u64 bytes out, u64 bytes in, u32 open connections, u64 connections so far, u64 refused */
	D_OK = 128,
	D_ERR,            /* u32 errno, str message */
	D_DENIED,         /* event, id 0: str computer id, str what ("tcp 169.254.169.254:80", "dns NAME"), str rule */
};
#endif
