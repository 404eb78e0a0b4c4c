#ifndef WIRE_GUEST_PROTO_H
#define WIRE_GUEST_PROTO_H
/* guest_proto -- what our side asks of bureau-guest (PID 1 of a computer), and what it answers.
 *
 * Transport: SOCK_SEQPACKET. The guest listens on descriptor GUEST_LISTEN_FD, a socket bound before it started, so a
 * restarted daemon can connect again; it serves up to GUEST_CONNS connections at once. A first connection may be handed
 * in as GUEST_CONN_FD. Encoding: wire/msg.h. Each request has an id chosen by the asker, unique among its open requests
 * on that connection. It's answered once, by G_OK or G_ERR with the same id; streams (START, ATTACH, WATCH) go on with
 * events of that id after their G_OK until their last event, or until DETACH. A fault in a request that can be decoded is
 * a G_ERR; one that can't ends the connection. A connection that closes ends its attachments and watches, never a program.
 *
 * Trust: our side bounds and checks every field it gets from a guest. The guest trusts its socket (only our side can
 * connect), but checks lengths all the same.
 *
 * Users: "" means the default user ("user"); else a name in the computer's /etc/passwd. Unknown: G_ERR EACCES.
 * Root and the default user act on files with root's rights (the default user has sudo anyway), and what they make belongs to the
 * asked-for user; everybody else has just his own rights.
 * Paths: "" = the user's home; relative = below the home; "~", "~/x" = the home. Replies give the absolute path.
 * Fields below are in order; "…" after a type is a list. */

#define GUEST_VERSION 2
#define GUEST_LISTEN_FD 3
#define GUEST_CONN_FD 4            /* a connected socket, or closed */
#define GUEST_CONNS 64
#define GUEST_CHUNK 32768          /* bytes of output in one event, at most */
#define GUEST_PROCS 4096           /* programs known at once, ended ones included (the oldest ended go first) */
#define GUEST_RING 262144          /* output kept for replay per program (the newest bytes) */
#define GUEST_STDIN_MAX 1048576    /* input waiting for a program; above: G_ERR EAGAIN, nothing taken */
#define GUEST_FROM_FIRST (UINT64_MAX - 1)
#define GUEST_ARGS 4096            /* args or envs in a START */
#define GUEST_PATH 4096
#define GUEST_META_BYTES 8192      /* one "key=value" of a file's metadata, at most */
#define GUEST_GRACE_MS 15000

enum guest_type {
	/* requests: fields → fields of G_OK */
	G_HELLO = 1,      /* u32 version → u32 version, str computer id (as CONFIGUREd, or ""), u32 running programs, u64 ms since start */
	G_CONFIGURE,      /* str computer id, str hostname, str… global envs "K=V", u64 deadline (CLOCK_BOOTTIME ms, 0 = none: the guest ends itself
	                     GUEST_GRACE_MS after it if nobody moved it, so a computer never outlives a server that went away for good) → nothing.
	                     May be repeated: replaces all. /etc/hostname and /etc/hosts are rewritten when the hostname changes. */
	G_DEADLINE,       /* u64 deadline → nothing */
	G_START,          /* u32 flags (enum guest_start), str cmd, str… args, str… envs "K=V", str cwd, str user, str tag, u16 cols, u16 rows,
	                     u32 window (bytes of output the guest may send before G_CREDIT; UINT32_MAX = no bound), u64 timeout ms (0 = none; then the program's
	                     whole process group gets SIGKILL) → u32 pid.
	                     cmd is looked up in PATH when it has no '/'. With GS_FDS three descriptors come along: 0, 1, 2 of the program.
	                     Environment: PATH HOME USER LOGNAME SHELL (TERM with a PTY), then global envs, then envs: later wins.
	                     ENOENT cwd, ENOPKG no such program, ENOEXEC it can't be run, EACCES user, EAGAIN pid limit, E2BIG. The program leads a session and process group of its own. */
	G_ATTACH,         /* u32 pid (0 = by tag), str tag, u64 from (byte offset; 0 = all that is kept, UINT64_MAX = live only, GUEST_FROM_FIRST = from the
	                     very first byte, so that what isn't kept any more is a G_GAP), u32 window
	                     → u32 pid, u32 flags, str cmd, str… args, str cwd, str tag. Ended programs can be attached to: kept output, then G_EXIT. ESRCH: unknown. */
	G_DETACH,         /* u32 id of the stream → nothing; no event of that stream comes after the G_OK */
	G_CREDIT,         /* u32 id of the stream, u32 bytes more; never answered */
	G_INPUT,          /* u32 pid, str tag, u8 pty (1: for a PTY, 0: for stdin), bytes, [u64 offset of the first of them in all input of the program: what it has
	                     already is skipped, so a lost answer may be asked for again] → nothing; answered when taken (written or queued).
	                     ESRCH; EINVAL wrong kind; EPIPE closed; EAGAIN queue full */
	G_INPUT_CLOSE,    /* u32 pid, str tag → nothing; twice is fine; EINVAL for a PTY */
	G_SIGNAL,         /* u32 pid, str tag, u32 signal, u8 group (1: its process group) → nothing; ESRCH when unknown or ended */
	G_RESIZE,         /* u32 pid, str tag, u16 cols, u16 rows → nothing; EINVAL without a PTY */
	G_LIST,           /* u8 ended too → G_PROC events, then G_OK with u32 count */
	G_STAT,           /* str path, str user → entry */
	G_DIR,            /* str path, str user, u32 depth (>= 1) → G_ENTRY events, then G_OK u32 count. ENOENT, ENOTDIR. Links aren't followed below path. */
	G_MKDIR,          /* str path, str user → entry (missing parents are made, owned by user). EEXIST when it's a folder, ENOTDIR when something else is in the way */
	G_MOVE,           /* str from, str to, str user → entry (parents of `to` are made) */
	G_REMOVE,         /* str path, str user → nothing; whole tree; missing is fine; "/" and the like: EINVAL */
	G_READ,           /* str path, str user → entry, u8 kind (enum guest_body), one descriptor. EISDIR. */
	G_WRITE,          /* str path, str user, u32 mode (0 = 0644), str… xattrs "name=value" (replace all user.e2b.*), u64 bytes that will come at most (0 = not known: room
	                     for them is made in the computer's name) → entry before the body, one
	                     writable descriptor of a truncated regular file. Parents are made; owner is user. EISDIR; EINVAL not a regular file. */
	G_WATCH,          /* str path, str user, u8 recursive, u8 with entry, u8 network mounts too → nothing, then G_EVENT…; ENOENT, ENOTDIR */
	G_DIAL,           /* u16 port → one connected TCP socket (127.0.0.1, else ::1). ECONNREFUSED */
	G_PORTS,          /* → u32 count, then u16 each: ports somebody listens on */
	G_METRICS,        /* → u32 cpus, u32 cpu used (hundredths of a percent of all cpus, since the last ask), u64 mem used, u64 mem total,
	                     u64 mem cache, u64 disk used, u64 disk total (bytes; as seen inside) */
	G_ENVS,           /* → str… global envs */
	G_SHUTDOWN,       /* → nothing, then the guest ends: the computer is over */

	/* answers and events */
	G_OK = 128,
	G_ERR,            /* u32 errno, str message (names act and object) */
	G_OUT,            /* u8 stream (enum guest_stream), u64 offset of the first byte in that program's whole output (all streams together), bytes */
	G_GAP,            /* u64 bytes that were lost before the next G_OUT (a ring that ran over) */
	G_EXIT,           /* u32 how (enum guest_exit), u32 exit code or signal, u8 core dumped; last event of its stream */
	G_PROC,           /* u32 pid, u32 flags, str cmd, str… args, str cwd, str tag, u8 ended, u32 how, u32 code */
	G_ENTRY,          /* entry */
	G_EVENT,          /* u8 kind (enum guest_event), str name relative to the watched path, u8 has entry, [entry] */
	G_WATCH_END,      /* u32 errno, str message: the watched folder is gone, or a limit was hit; last event */
};

/* entry: str path (absolute), u32 st_mode (of the file itself; for a link that leads somewhere the upper 16 bits are the st_mode of what is there), u64 size, u64 modified (wall ms), u32 uid, u32 gid, str owner, str group,
 *        str link target (absolute and
 *        resolved where it leads somewhere, else its text; "" if none), str… metadata "key=value" (user.e2b.* without the prefix) */

enum guest_start {
	GS_STDIN_PIPE = 1,     /* stdin is a pipe fed by G_INPUT; otherwise /dev/null */
	GS_PTY = 2,            /* a terminal: one merged stream */
	GS_FDS = 4,            /* the three descriptors that come along; no output events, only G_EXIT */
	GS_END_COMPUTER = 8,   /* when this program ends, the guest sends its G_EXIT, then ends itself (bureau run) */
};
enum guest_stream { GUEST_STDOUT = 1, GUEST_STDERR, GUEST_PTY };
enum guest_exit { GUEST_EXITED, GUEST_SIGNALED, GUEST_TIMED_OUT /* our own timeout killed it */ };
enum guest_body {
	GUEST_FILE = 1,        /* regular file: fstat gives the size */
	GUEST_PIPE,            /* read end of a pipe that the guest fills (/proc, devices): size unknown until EOF */
};
enum guest_event { GUEST_CREATE = 1, GUEST_MODIFY, GUEST_DELETE, GUEST_RENAME, GUEST_CHMOD };

#endif
