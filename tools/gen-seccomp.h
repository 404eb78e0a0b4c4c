/* gen-seccomp.h -- what each of our filters says, as data. Arguments are checked by gen-seccomp.c. A call in several lists: eperm, then enosys, wins. */

/* Calls newer than the libseccomp of the oldest system we build on. Numbers above 402 are the same on every machine. */
static const struct { const char *name; int nr; } newer_calls[] = {
	{ "cachestat", 451 }, { "fchmodat2", 452 }, { "map_shadow_stack", 453 }, { "futex_wake", 454 }, { "futex_wait", 455 },
	{ "futex_requeue", 456 }, { "statmount", 457 }, { "listmount", 458 }, { "lsm_get_self_attr", 459 }, { "lsm_set_self_attr", 460 },
	{ "lsm_list_modules", 461 }, { "mseal", 462 }, { "setxattrat", 463 }, { "getxattrat", 464 }, { "listxattrat", 465 },
	{ "removexattrat", 466 }, { "open_tree_attr", 467 }, { "file_getattr", 468 }, { "file_setattr", 469 },
};

/* What no program of ours and nothing in a computer has a use for; each reaches a part of the kernel that has been a way out. */
#define DANGEROUS \
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", \
	"keyctl", "add_key", "request_key", "open_by_handle_at", "kexec_load", "kexec_file_load", \
	"init_module", "finit_module", "delete_module", "create_module", "get_kernel_syms", "query_module", "reboot", \
	"swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "nfsservctl", "lookup_dcookie", "vm86", "vm86old", \
	"iopl", "ioperm", "modify_ldt", "settimeofday", "stime", "clock_settime", "clock_settime64", "clock_adjtime", "adjtimex", \
	"uselib", "_sysctl", "sysfs", "ustat", "vhangup", "fanotify_init", "move_pages", "migrate_pages", \
	"lsm_set_self_attr", "set_mempolicy_home_node"

/* Making and entering namespaces and mounts: the keeper's work alone. */
#define NAMESPACES \
	"mount", "umount2", "umount", "pivot_root", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "open_tree_attr", \
	"move_mount", "mount_setattr", "setns", "unshare", "statmount", "listmount"

/* The allow list of a computer. Ordered by use. */
static const char *const computer_allow[] = {
	/* memory */
	"brk", "mmap", "mmap2", "munmap", "mprotect", "mremap", "madvise", "process_madvise", "mincore", "msync", "mlock", "mlock2", "mlockall",
	"munlock", "munlockall", "membarrier", "memfd_create", "memfd_secret", "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
	"get_mempolicy", "set_mempolicy", "mbind", "mseal", "map_shadow_stack", "cachestat",
	/* files */
	"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "open", "openat", "openat2", "creat",
	"close", "close_range", "lseek", "_llseek", "dup", "dup2", "dup3", "fcntl", "fcntl64", "flock", "ioctl", "stat", "fstat", "lstat", "newfstatat",
	"fstatat64", "stat64", "fstat64", "lstat64", "statx", "statfs", "fstatfs", "statfs64", "fstatfs64", "access", "faccessat", "faccessat2",
	"chdir", "fchdir", "getcwd", "name_to_handle_at", "kcmp", "chroot", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "link", "linkat", "symlink", "symlinkat",
	"unlink", "unlinkat", "readlink", "readlinkat", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat",
	"chown32", "fchown32", "lchown32", "mknod", "mknodat", "umask", "utime", "utimes", "utimensat", "futimesat", "utimensat_time64", "truncate",
	"ftruncate", "truncate64", "ftruncate64", "fallocate", "fadvise64", "fadvise64_64", "readahead", "sync", "syncfs", "fsync", "fdatasync",
	"sync_file_range", "getdents", "getdents64", "sendfile", "sendfile64", "copy_file_range", "splice", "tee", "vmsplice", "setxattr", "lsetxattr",
	"fsetxattr", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr", "removexattr", "lremovexattr", "fremovexattr",
	"setxattrat", "getxattrat", "listxattrat", "removexattrat", "file_getattr", "file_setattr",
	"inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch", "fanotify_mark",
	"io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents", "io_pgetevents_time64",
	"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
	/* waiting */
	"poll", "ppoll", "ppoll_time64", "select", "_newselect", "pselect6", "pselect6_time64", "epoll_create", "epoll_create1", "epoll_ctl",
	"epoll_ctl_old", "epoll_wait", "epoll_wait_old", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2", "signalfd", "signalfd4", "timerfd_create",
	"timerfd_settime", "timerfd_gettime", "timerfd_settime64", "timerfd_gettime64", "pipe", "pipe2", "futex", "futex_time64", "futex_waitv",
	"futex_wake", "futex_wait", "futex_requeue", "set_robust_list", "get_robust_list", "nanosleep", "clock_nanosleep", "clock_nanosleep_time64",
	"pause", "restart_syscall", "sched_yield",
	/* time */
	"time", "gettimeofday", "clock_gettime", "clock_gettime64", "clock_getres", "clock_getres_time64", "times", "alarm", "getitimer", "setitimer",
	"timer_create", "timer_settime", "timer_settime64", "timer_gettime", "timer_gettime64", "timer_getoverrun", "timer_delete",
	/* programs and signals */
	"clone", "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "waitpid", "kill", "tkill", "tgkill", "rt_sigaction",
	"rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
	"rt_sigsuspend", "sigaltstack", "sigreturn", "signal", "sigaction", "sigprocmask", "sigpending", "sigsuspend", "pidfd_open", "pidfd_send_signal",
	"pidfd_getfd", "process_mrelease", "process_vm_readv", "process_vm_writev", "ptrace", "getpid", "getppid", "gettid", "getpgid", "getpgrp",
	"setpgid", "getsid", "setsid", "set_tid_address", "set_thread_area", "get_thread_area", "arch_prctl", "prctl", "seccomp", "rseq",
	"personality", "getcpu", "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_setparam", "sched_getscheduler",
	"sched_setscheduler", "sched_getattr", "sched_setattr", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval",
	"sched_rr_get_interval_time64", "getpriority", "setpriority", "nice", "ioprio_get", "ioprio_set", "getrlimit", "ugetrlimit", "setrlimit",
	"prlimit64", "getrusage", "lsm_get_self_attr", "lsm_list_modules",
	/* who */
	"getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "setuid", "setgid", "setreuid", "setregid", "setresuid",
	"setresgid", "setgroups", "setfsuid", "setfsgid", "getuid32", "geteuid32", "getgid32", "getegid32", "getresuid32", "getresgid32", "getgroups32",
	"setuid32", "setgid32", "setreuid32", "setregid32", "setresuid32", "setresgid32", "setgroups32", "setfsuid32", "setfsgid32", "capget", "capset",
	/* network and IPC */
	"socket", "socketpair", "bind", "listen", "accept", "accept4", "connect", "getsockname", "getpeername", "send", "sendto", "sendmsg",
	"sendmmsg", "recv", "recvfrom", "recvmsg", "recvmmsg", "recvmmsg_time64", "shutdown", "setsockopt", "getsockopt", "shmget", "shmat", "shmdt",
	"shmctl", "semget", "semop", "semctl", "semtimedop", "semtimedop_time64", "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink",
	"mq_timedsend", "mq_timedsend_time64", "mq_timedreceive", "mq_timedreceive_time64", "mq_notify", "mq_getsetattr",
	/* the system */
	"uname", "sysinfo", "getrandom", "sethostname", "setdomainname", "arm_fadvise64_64", "sync_file_range2", "riscv_flush_icache", NULL,
};

/* Which sockets may be made. The first rule that fits answers, 0 = made; what no rule names is none of our families: EAFNOSUPPORT. Rules of
 * one family stand together, in it those of one type, ANY last. Errors are those of a kernel without that protocol, from which programs
 * fall back (MPTCP to TCP). */
#define ANY (~0u)
struct socket_rule { uint32_t family, type, protocol; uint16_t answer; int last; };
enum { UNIX = 1, INET = 2, INET6 = 10, NETLINK = 16, STREAM = 1, DGRAM = 2, RAW = 3, ICMP = 1, TCP = 6, UDP = 17, ICMP6 = 58, ROUTE = 0, NETFILTER = 12 };

#define IP_SOCKETS /* INET stands for INET6 too */ \
	{ INET, STREAM, 0, 0, 0 }, { INET, STREAM, TCP, 0, 0 }, { INET, STREAM, ANY, EPROTONOSUPPORT, 0 },        /* MPTCP SCTP SMC */ \
	{ INET, DGRAM, 0, 0, 0 }, { INET, DGRAM, UDP, 0, 0 }, \
	{ INET, DGRAM, ICMP, EACCES, 0 }, { INET, DGRAM, ICMP6, EACCES, 0 },                                      /* as ping_group_range says */ \
	{ INET, DGRAM, ANY, EPROTONOSUPPORT, 0 },                                                                 /* UDPLITE L2TP */ \
	{ INET, RAW, ANY, EPERM, 0 }, { INET, ANY, ANY, ESOCKTNOSUPPORT, 0 }                                      /* DCCP, SCTP's others */
#define NO_OTHER { ANY, ANY, ANY, EAFNOSUPPORT, 0 }, { .last = 1 }

static const struct socket_rule computer_sockets[] = {
	{ UNIX, ANY, ANY, 0, 0 }, IP_SOCKETS,
	{ NETLINK, RAW, ROUTE, 0, 0 }, { NETLINK, RAW, ANY, EPROTONOSUPPORT, 0 }, { NETLINK, DGRAM, ROUTE, 0, 0 }, { NETLINK, DGRAM, ANY, EPROTONOSUPPORT, 0 },
	{ NETLINK, ANY, ANY, EPROTONOSUPPORT, 0 },
	NO_OTHER,
};
/* The keeper writes the door's rules. */
static const struct socket_rule serve_sockets[] = {
	{ UNIX, ANY, ANY, 0, 0 }, IP_SOCKETS,
	{ NETLINK, RAW, ROUTE, 0, 0 }, { NETLINK, RAW, NETFILTER, 0, 0 }, { NETLINK, RAW, ANY, EPROTONOSUPPORT, 0 },
	{ NETLINK, DGRAM, ROUTE, 0, 0 }, { NETLINK, DGRAM, ANY, EPROTONOSUPPORT, 0 },
	{ NETLINK, ANY, ANY, EPROTONOSUPPORT, 0 },
	NO_OTHER,
};
/* socketpair() makes both sockets before it finds that their kind has no pairs. */
static const struct socket_rule pairs[] = { { UNIX, ANY, ANY, 0, 0 }, { INET, ANY, ANY, EOPNOTSUPP, 0 }, NO_OTHER };

static const char *const computer_eperm[] = { DANGEROUS, NAMESPACES, NULL };
static const char *const computer_enosys[] = { "clone3", NULL };   /* its flags are in memory, where a filter can't look: programs fall back to clone */

/* The keeper makes namespaces and mounts; what it has no use for is the rest. Its computers inherit this filter and put their own
 * on top, so it must not deny what a computer may do. */
static const char *const keeper_eperm[] = { DANGEROUS, NULL };

/* The daemon and the door: ordinary programs with sockets and files. */
static const char *const daemon_eperm[] = { DANGEROUS, NAMESPACES, "ptrace", "process_vm_readv", "process_vm_writev", "personality", "chroot",
	"mknod", "mknodat", "shmget", "shmat", "msgget", "semget", "mq_open", NULL };
static const char *const door_eperm[] = { DANGEROUS, NAMESPACES, "ptrace", "process_vm_readv", "process_vm_writev", "personality", "chroot",
	"mknod", "mknodat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "link", "linkat", "symlink",
	"symlinkat", "truncate", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "execve", "execveat", "fork", "vfork",
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "shmget", "shmat", "msgget", "semget", "mq_open", NULL };
/* The supervisor of a server: all its parts and their computers inherit it. So it allows what any of them needs, each of them forbids
 * itself more, and what is in no list reaches none of them. */
static const char *const serve_eperm[] = { DANGEROUS, NULL };
static const char *const serve_also[] = { NAMESPACES, "clone3", NULL };
static const char *const none[] = { NULL };

/* Whose checks of arguments (gen-seccomp.c). */
enum { CHECK_NONE, CHECK_COMPUTER = 1, CHECK_SERVE = 2, CHECK_BOTH = CHECK_COMPUTER | CHECK_SERVE };

static const struct filter {
	const char *name;
	uint32_t standard;               /* for every call that isn't listed */
	unsigned checks;
	const char *const *eperm, *const *enosys, *const *allow, *const *also;
} filters[] = {
	{ "seccomp_computer", SECCOMP_RET_ERRNO | ENOSYS, CHECK_COMPUTER, computer_eperm, computer_enosys, computer_allow, none },
	{ "seccomp_serve", SECCOMP_RET_ERRNO | ENOSYS, CHECK_SERVE, serve_eperm, none, computer_allow, serve_also },
	{ "seccomp_keeper", SECCOMP_RET_ALLOW, CHECK_NONE, keeper_eperm, none, none, none },
	{ "seccomp_daemon", SECCOMP_RET_ALLOW, CHECK_NONE, daemon_eperm, none, none, none },
	{ "seccomp_door", SECCOMP_RET_ALLOW, CHECK_NONE, door_eperm, none, none, none },
};
