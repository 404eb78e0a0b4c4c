#ifndef WIRE_KEEPER_PROTO_H
#define WIRE_KEEPER_PROTO_H
/* keeper_proto -- what the daemon (or `bureau run`) asks of bureau-keeper. Encoding: wire/msg.h over SOCK_SEQPACKET.
 *
 * Two ways to run it:
 *   bureau-keeper --serve --state DIR --listen-fd N [--daemon-uid UID]   for bureaud: accepts on N (bound by the supervisor), answers only that uid
 *   bureau-keeper --once --fd N [--state DIR]                            for `bureau run`: one asker on N; its end ends all
 * The keeper trusts nobody's paths: templates are names below DIR/templates, run files are in DIR/run and DIR/keeper.
 * --once runs with the caller's own rights, so mounts of host folders are allowed there and refused with --serve.
 *
 * Files (--serve): DIR/keeper/<id>: one small record a computer (pid, start time, slot, template, net): a restarted keeper
 * adopts what it finds there and sweeps what is dead. DIR/run/<id>: the guest's listening socket, for the daemon only.
 * Answers: K_OK or K_ERR with the request's id. */

#define KEEPER_VERSION 1
#define KEEPER_MOUNTS 32
#define KEEPER_SLOTS 65000         /* slots 1..KEEPER_SLOTS: computer n owns ids [0x10000 * (n + 0x100) .. + 65535] */

enum keeper_type {
	K_HELLO = 1,      /* u32 version → u32 version, u32 features (enum keeper_feature), str what is missing and why ("" = nothing) */
	K_CREATE,         /* str id, u32 slot (0 with --once: any free), str template, u8 net (enum keeper_net), limits, str hostname,
	                     str… mounts in pairs: source, destination ("ro:/x" = read-only at /x; "rw:/x")
	                     → u32 pid, u64 start time, u32 unenforced (enum keeper_limit bits), u8 number of door sockets,
	                     descriptors: [0] a socket connected to the guest; then with KEEPER_NET_ALL four listening sockets: TCP on 127.0.0.1, TCP on ::1,
	                     UDP DNS, TCP DNS (three when the host has no IPv6: without the ::1 one).
	                     Answered when the computer is set up; G_HELLO needn't have been asked. EEXIST id or slot in use, ENOENT template,
	                     EINVAL, ENOSPC, EAGAIN (a kernel limit, named). Nothing is left on failure. */
	K_KILL,           /* str id → nothing, once the last process, cgroup, mount and file of it are gone; ENOENT unknown */
	K_LIST,           /* → K_ITEM events, then K_OK u32 count: all that holds an id and a slot, pid 0 when it is starting or ending */
	K_LIMITS,         /* str id, limits → u32 unenforced (disk and inodes too: the root's tmpfs is remounted) */
	K_STATS,          /* str id → u64 cpu used (us), u64 memory now, u64 memory peak, u64 oom kills, u32 processes: from the host's side; 0 where unknown */
	K_NET_OPEN,       /* str id → u8 number, listening sockets again as in K_CREATE (after a door died); EBUSY while the old ones are still open */
	K_FREEZE,         /* str id, u8 frozen → nothing */

	K_OK = 128,
	K_ERR,            /* u32 errno, str message, str hint */
	K_ITEM,           /* str id, u32 slot, u32 pid, u64 start time, str template, u8 net */
	K_EXITED,         /* event, id 0: str id, u32 how (0 exited, 1 signalled), u32 code, u64 oom kills: ended by itself, and swept */
};

/* limits: u64 memory bytes, u64 cpu (thousandths of one cpu), u64 pids, u64 disk bytes, u64 inodes, u64 open files per process; 0 = none.
 * disk and inodes bound the tmpfs that holds everything the computer writes; it counts towards memory too. */
enum keeper_limit { KL_MEMORY = 1, KL_CPU = 2, KL_PIDS = 4, KL_DISK = 8, KL_INODES = 16, KL_FILES = 32 };
enum keeper_net { KEEPER_NET_NONE = 0, KEEPER_NET_ALL = 1 };   /* ALL: through the door, by redirect */
enum keeper_feature {
	KF_ROOT = 1, KF_IDMAP = 2, KF_CGROUP_V2 = 4, KF_CGROUP_V1 = 8, KF_MEMORY = 16, KF_CPU = 32, KF_PIDS = 64,
	KF_SUBUID = 128, KF_NET = 256 /* redirect works */, KF_FREEZE = 512, KF_OVERLAY = 1024, KF_IPV6 = 2048,
};

/* Fixed ports of the listening sockets inside a computer's network namespace. */
#define DOOR_PORT_TCP 1        /* on 127.0.0.1 and ::1: where every TCP connection to elsewhere is redirected */
#define DOOR_PORT_DNS 53       /* on 127.0.0.1, UDP and TCP; every UDP packet to port 53 is redirected there, other UDP is refused */

#endif
