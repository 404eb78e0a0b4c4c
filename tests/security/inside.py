"""What a hostile program tries from inside a computer. Prints one JSON object: name of the attempt -> what came of it, "!NAME" for an
errno, "killed N" for a signal. computer.t runs it and judges; nothing here knows what is right."""
import ctypes, errno, fcntl, json, mmap, os, platform, signal, socket, stat, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
X86 = platform.machine() == "x86_64"
NR = dict(mount=165, umount2=166, pivot_root=155, unshare=272, setns=308, open_tree=428, move_mount=429, fsopen=430, mount_setattr=442,
          bpf=321, perf_event_open=298, io_uring_setup=425, userfaultfd=323, keyctl=250, add_key=248, request_key=249, open_by_handle_at=304,
          kexec_load=246, init_module=175, finit_module=313, delete_module=176, reboot=169, swapon=167, swapoff=168, acct=163, quotactl=179,
          syslog=103, clone3=435, personality=135, sethostname=170, chroot=161, iopl=172, settimeofday=164, fanotify_init=300, ptrace=101,
          clone=56, modify_ldt=154)
if not X86:
    NR = dict(mount=40, umount2=39, pivot_root=41, unshare=97, setns=268, open_tree=428, move_mount=429, fsopen=430, mount_setattr=442,
              bpf=280, perf_event_open=241, io_uring_setup=425, userfaultfd=282, keyctl=219, add_key=217, request_key=218,
              open_by_handle_at=265, kexec_load=104, init_module=105, finit_module=273, delete_module=106, reboot=142, swapon=224,
              swapoff=225, acct=89, quotactl=60, syslog=116, clone3=435, personality=92, sethostname=161, chroot=51, settimeofday=170,
              fanotify_init=262, ptrace=117, clone=220)
out = {}


def sys_(name, *args):
    r = libc.syscall(NR[name], *args)
    return r if r >= 0 else "!" + errno.errorcode.get(ctypes.get_errno(), "?")


def attempt(name, f, *a):
    try:
        out[name] = f(*a)
    except OSError as e:
        out[name] = "!" + errno.errorcode.get(e.errno, str(e.errno))
    except Exception as e:
        out[name] = repr(e)


def forked(f):
    """f in a child of its own: an attempt may kill it."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            v = f()
        except OSError as e:
            v = "!" + errno.errorcode.get(e.errno, "?")
        os.write(w, str(v).encode())
        os._exit(0)
    os.close(w)
    text = os.read(r, 4096).decode()
    os.close(r)
    st = os.waitpid(pid, 0)[1]
    return f"killed {os.WTERMSIG(st)}" if os.WIFSIGNALED(st) else text


def write(path, text="x"):
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, text.encode())
    finally:
        os.close(fd)


CLONE_NEW = {"NEWNS": 0x20000, "NEWUSER": 0x10000000, "NEWNET": 0x40000000, "NEWPID": 0x20000000, "NEWIPC": 0x8000000, "NEWUTS": 0x4000000,
             "NEWCGROUP": 0x2000000, "NEWTIME": 0x80}
buf = ctypes.create_string_buffer(4096)

# mounts and namespaces
attempt("mount tmpfs", sys_, "mount", b"none", b"/mnt", b"tmpfs", 0, None)
attempt("mount proc", sys_, "mount", b"proc", b"/mnt", b"proc", 0, None)
attempt("mount cgroup", sys_, "mount", b"none", b"/mnt", b"cgroup", 0, b"memory")
attempt("remount /proc/sys", sys_, "mount", b"none", b"/proc/sys", None, 0x1020, None)
attempt("umount /proc/sys", sys_, "umount2", b"/proc/sys", 2)
attempt("umount /usr/bin/sudo", sys_, "umount2", b"/usr/bin/sudo", 2)
attempt("open_tree", sys_, "open_tree", -100, b"/", 1)
attempt("fsopen", sys_, "fsopen", b"tmpfs", 0)
attempt("move_mount", sys_, "move_mount", -100, b"/tmp", -100, b"/mnt", 0)
attempt("mount_setattr", sys_, "mount_setattr", -100, b"/proc/sys", 0, buf, 32)
attempt("pivot_root", sys_, "pivot_root", b"/tmp", b"/tmp")
for k, v in CLONE_NEW.items():
    attempt("unshare " + k, lambda v=v: forked(lambda: sys_("unshare", v)))
    if k != "NEWTIME":
        attempt("clone " + k, lambda v=v: forked(lambda: sys_("clone", v | signal.SIGCHLD, 0, 0, 0, 0)))
attempt("clone with high bits", lambda: forked(lambda: sys_("clone", ctypes.c_ulong(0x20000 | (1 << 40) | signal.SIGCHLD), 0, 0, 0, 0)))
attempt("setns", lambda: sys_("setns", os.open("/proc/1/ns/net", os.O_RDONLY), 0))
attempt("clone3", sys_, "clone3", buf, 88)

# system calls that are nobody's business
for name in ("bpf", "perf_event_open", "io_uring_setup", "userfaultfd", "keyctl", "add_key", "request_key", "open_by_handle_at", "kexec_load",
             "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "acct", "quotactl", "syslog", "iopl", "settimeofday",
             "fanotify_init", "modify_ldt"):
    if name in NR:
        attempt(name, sys_, name, 0, 0, 0, 0, 0)
attempt("unknown call", lambda: "!" + errno.errorcode[(libc.syscall(999), ctypes.get_errno())[1]])
attempt("sethostname", sys_, "sethostname", b"evil", 4)
attempt("personality READ_IMPLIES_EXEC", sys_, "personality", 0x0400000)
attempt("personality ask", lambda: sys_("personality", 0xffffffff) >= 0)
if X86:
    attempt("x32 getpid", lambda: forked(lambda: (libc.syscall(0x40000000 + 39), "!" + errno.errorcode.get(ctypes.get_errno(), "?"))[1]))

    def i386(nr, a=0, b=0, c=0):
        m = mmap.mmap(-1, 4096, prot=7)
        # push rbx; mov eax, nr; mov ebx, a; mov ecx, b; mov edx, c; int 0x80; pop rbx; ret
        m.write(b"\x53" + b"".join(op + struct.pack("<I", v) for op, v in ((b"\xb8", nr), (b"\xbb", a), (b"\xb9", b), (b"\xba", c))) + b"\xcd\x80\x5b\xc3")
        return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
    attempt("i386 getpid", lambda: forked(lambda: i386(20)))
    attempt("i386 socket MPTCP", lambda: forked(lambda: i386(359, 2, 1, 262)))
    attempt("i386 socketcall", lambda: forked(lambda: i386(102, 1)))
    attempt("x32 socket MPTCP", lambda: forked(lambda: (libc.syscall(0x40000000 + 41, 2, 1, 262), "!" + errno.errorcode.get(ctypes.get_errno(), "?"))[1]))

# terminals: into the one that controls us, which the kernel lets anybody do
ptm, pts = os.openpty()


def controlled(f):
    os.setsid()
    fcntl.ioctl(pts, 0x540E, 0)      # TIOCSCTTY
    return f()


for name, cmd in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C)):
    def io(c=cmd):
        return forked(lambda: controlled(lambda: ioctl_raw(c)))

    def ioctl_raw(c):
        r = libc.syscall(16 if X86 else 29, pts, ctypes.c_ulong(c), b"x")
        return r if r >= 0 else "!" + errno.errorcode[ctypes.get_errno()]
    attempt(name, io)
    attempt(name + " with high bits", io, cmd | 1 << 32)
attempt("open /dev/tty", os.open, "/dev/tty", os.O_RDWR)

# sockets
for name, a in {"AF_VSOCK": (40, 1, 0), "AF_PACKET": (17, 3, 0), "AF_ALG": (38, 5, 0), "AF_XDP": (44, 3, 0), "AF_BLUETOOTH": (31, 3, 0),
                "NETLINK_NETFILTER": (16, 3, 12), "NETLINK_AUDIT": (16, 3, 9), "raw": (2, 3, 1), "raw6": (10, 3, 58)}.items():
    attempt("socket " + name, lambda a=a: socket.socket(*a).close())
attempt("socket NETLINK_ROUTE", lambda: socket.socket(16, 3, 0).close())
for name, a in {"MPTCP": (2, 1, 262), "MPTCP6": (10, 1, 262), "UDPLITE": (2, 2, 136), "UDPLITE6": (10, 2, 136), "SCTP": (2, 1, 132), "SMC": (2, 1, 256)}.items():
    attempt("protocol " + name, lambda a=a: socket.socket(*a).close())


def makeable():
    """Every (family, type, protocol) of which a socket can be made."""
    nr, found = 41 if X86 else 198, []
    for family in range(64):
        for kind in range(16):
            for protocol in (0, 1, 2, 4, 6, 9, 12, 15, 16, 17, 33, 41, 47, 58, 115, 132, 136, 137, 255, 256, 262, 0x300):
                fd = libc.syscall(nr, family, kind, protocol)
                if fd >= 0:
                    os.close(fd)
                    found.append((family, kind, protocol))
    return found


def ulp(name):
    with socket.socket() as s:
        s.setsockopt(socket.IPPROTO_TCP, 31, name)


attempt("every socket", makeable)
attempt("smc by TCP_ULP", ulp, b"smc")
attempt("tls by TCP_ULP", ulp, b"tls")
attempt("pair of INET", lambda: socket.socketpair(socket.AF_INET, socket.SOCK_STREAM, 262))


def connect(family, addr):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(3)
    s.connect(addr)
    return "connected"


if len(sys.argv) > 2:
    attempt("host's abstract socket", connect, socket.AF_UNIX, "\0" + sys.argv[1])
    attempt("host's loopback", connect, socket.AF_INET, ("127.0.0.1", int(sys.argv[2])))
attempt("interfaces", lambda: sorted(n for _, n in socket.if_nameindex()))

# files
out["root folder"] = sorted(os.listdir("/"))
out["dev"] = sorted(os.listdir("/dev"))
out["etc"] = sorted(os.listdir("/etc"))
attempt("host marker", os.stat, sys.argv[3] if len(sys.argv) > 3 else "/nonexistent")
attempt("host marker by ..", os.stat, "/../../../.." + (sys.argv[3] if len(sys.argv) > 3 else "/nonexistent"))
attempt("host marker by /proc/1/root", os.stat, "/proc/1/root" + (sys.argv[3] if len(sys.argv) > 3 else "/nonexistent"))
attempt("shadow", os.stat, "/etc/shadow")


def chroot_escape():
    here = os.open("/", os.O_RDONLY)
    os.mkdir("/tmp/jail")
    os.chroot("/tmp/jail")
    os.fchdir(here)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    return "saw the host" if len(sys.argv) > 3 and os.path.exists(sys.argv[3]) else "same root"


attempt("chroot escape", lambda: forked(chroot_escape))
attempt("link out", lambda: (os.symlink("/proc/1/root/../../../..", "/tmp/out"), os.stat("/tmp/out" + (sys.argv[3] if len(sys.argv) > 3 else "/x")))[1])
attempt("mknod block", lambda: os.mknod("/tmp/disk", stat.S_IFBLK | 0o600, os.makedev(254, 0)))
attempt("mknod char", lambda: os.mknod("/tmp/mem", stat.S_IFCHR | 0o600, os.makedev(1, 1)))
attempt("write /proc/1/exe", write, "/proc/1/exe")
attempt("write /usr/bin/sudo", write, "/usr/bin/sudo")
attempt("unlink /usr/bin/sudo", os.unlink, "/usr/bin/sudo")
for p in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward",
          "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/proc/1/oom_score_adj", "/etc/ld.so.cache"):
    attempt("write " + p, write, p)
# what of the host's /etc is shown
attempt("write /etc/alternatives/x", lambda: os.close(os.open("/etc/alternatives/x", os.O_WRONLY | os.O_CREAT)))
attempt("read kcore", lambda: len(open("/proc/kcore", "rb").read(16)))
attempt("read keys", lambda: len(open("/proc/keys", "rb").read(16)))
attempt("read timer_list", lambda: len(open("/proc/timer_list", "rb").read(16)))
attempt("cgroup files", lambda: os.listdir("/sys/fs/cgroup"))
attempt("release_agent", lambda: [d for d, _, f in os.walk("/sys") if "release_agent" in f])
attempt("read PID 1's memory", lambda: len(open("/proc/1/mem", "rb").read(1)))
attempt("ptrace PID 1", sys_, "ptrace", 16, 1, 0, 0)


def trace_own():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    r = sys_("ptrace", 16, pid, 0, 0)
    os.kill(pid, 9)
    return r


attempt("ptrace own child", lambda: forked(trace_own))
attempt("PID 1's environment", lambda: open("/proc/1/environ").read())
out["environment"] = sorted(os.environ)
out["open descriptors"] = sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) not in (ptm, pts))[:-1]
out["pids"] = sorted(int(n) for n in os.listdir("/proc") if n.isdigit())
status = dict(l.split(":\t", 1) for l in open("/proc/self/status").read().splitlines() if ":\t" in l)
out["status"] = {k: status[k].strip() for k in ("NoNewPrivs", "Seccomp", "CapBnd", "CapEff", "CapPrm", "CapAmb", "Uid", "Groups")}
out["umask"] = status["Umask"]


def run_setuid():
    p = "/tmp/suid"
    with open("/proc/self/exe", "rb") as f, open(p, "wb") as t:
        t.write(f.read())
    os.chmod(p, 0o4755)
    return os.statvfs("/tmp").f_flag & os.ST_NOSUID != 0


attempt("nosuid", run_setuid)
attempt("nodev", lambda: os.statvfs("/usr").f_flag & 4 != 0 and os.statvfs("/").f_flag & 4 != 0)
attempt("write into /usr", lambda: (open("/usr/bin/evil", "w").close(), "done")[1])
attempt("write over /usr/bin/env", lambda: (open("/usr/bin/env", "r+b").write(b"evil"), "done")[1])
attempt("kill everyone", lambda: forked(lambda: os.kill(-1, 0)))
print(json.dumps(out, default=str))
