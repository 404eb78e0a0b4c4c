#!/usr/bin/env python3
"""A computer from inside, by a program that wants out: as root of the computer and as its user; computers made by real root, by a plain user
with 65,536 ids and by one with a single id. tests/security/inside.py tries, this file judges."""
import hashlib, json, os, shutil, socket, subprocess, tempfile
from lab import CTL, HERE, KEEPER, done, modes, needs, ok


def run(prefix, options, command, user="root", timeout=60, env=None):
    return subprocess.run(prefix + [CTL, "run", KEEPER] + options + ["--"] + command, capture_output=True, text=True, timeout=timeout,
                          env=dict(os.environ, GUEST_USER=user, BUREAU_SECRET_MARK="sesame", **(env or {})), stdin=subprocess.DEVNULL)


def host_state():
    """What must be the same afterwards."""
    names = []
    for d in ("/usr/bin", "/usr/local/bin", "/etc", "/usr/lib"):
        names += [(d, f, os.lstat(os.path.join(d, f)).st_ctime_ns) for f in sorted(os.listdir(d))]
    return hashlib.sha256(repr(names).encode()).hexdigest()


def own_mounts():
    """Mounts of the host that look like ours."""
    return [l for l in open("/proc/self/mounts") if "overlay" in l and ("ulayer" in l or "upperdir=layer" in l)]


DENIED = ("!EPERM", "!EACCES", "!EROFS", "!ENOENT", "!ENOSYS", "!EAFNOSUPPORT", "!EPROTONOSUPPORT", "!ENXIO")
REFUSED = ["mount tmpfs", "mount proc", "mount cgroup", "remount /proc/sys", "umount /proc/sys", "umount /usr/bin/sudo", "open_tree", "fsopen", "move_mount",
           "mount_setattr", "pivot_root", "setns", "bpf", "perf_event_open", "io_uring_setup", "userfaultfd", "keyctl", "add_key", "request_key",
           "open_by_handle_at", "kexec_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "acct", "quotactl",
           "syslog", "iopl", "settimeofday", "fanotify_init", "modify_ldt", "sethostname", "personality READ_IMPLIES_EXEC", "TIOCSTI", "TIOCLINUX",
           "TIOCSTI with high bits", "TIOCLINUX with high bits", "open /dev/tty", "shadow", "host marker", "host marker by ..",
           "host marker by /proc/1/root", "link out", "mknod block", "mknod char", "clone with high bits",
           "write /proc/sys/kernel/core_pattern", "write /proc/sys/kernel/hostname", "write /proc/sys/vm/drop_caches",
           "write /proc/sys/net/ipv4/ip_forward", "write /sys/kernel/uevent_helper", "write /etc/alternatives/x",
           "write /etc/ld.so.cache", "read PID 1's memory", "ptrace PID 1"]
NAMESPACES = ["NEWNS", "NEWUSER", "NEWNET", "NEWPID", "NEWIPC", "NEWUTS", "NEWCGROUP"]
ROOT = ["bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"]
DEV = ["fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"]
ENV = {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "PWD", "LC_CTYPE", "LANG"}
SOCKETS = [(family, *kind) for family in (2, 10) for kind in ((1, 0), (1, 6), (2, 0), (2, 17))] + [(16, 2, 0), (16, 3, 0)]
CAPS = 0xa00404fb    # CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE SYS_CHROOT AUDIT_WRITE SETFCAP


def judge_refusals(o, who):
    wrong = {k: o.get(k) for k in REFUSED if k in o and o[k] not in DENIED and not (k == "write /usr/bin/sudo" and o[k] == "!ETXTBSY")}
    missing = [k for k in REFUSED if k not in o and k not in ("iopl", "modify_ldt")]
    ok(not wrong and not missing, f"{who}: {len(REFUSED)} ways out are refused", f"{wrong} {missing}")
    wrong = {k: o[k] for k in (f"{how} {s}" for how in ("unshare", "clone") for s in NAMESPACES) if o[k] != "!EPERM"}
    ok(not wrong, f"{who}: no namespace can be made", wrong)
    ok(o["clone3"] == "!ENOSYS" and o["unknown call"] == "!ENOSYS", f"{who}: clone3 and unknown calls say ENOSYS", (o["clone3"], o["unknown call"]))
    if "x32 getpid" in o:
        by = {k: v for k, v in o.items() if k.startswith(("x32 ", "i386 "))}
        ok(len(by) == 5 and all(v == "killed 31" for v in by.values()), f"{who}: no other ABI, and no socket by one", by)
    wrong = {k: v for k, v in o.items() if k.startswith("socket ") and k != "socket NETLINK_ROUTE" and v not in DENIED}
    ok(not wrong and o["socket NETLINK_ROUTE"] is None, f"{who}: sockets of four families only", wrong)
    wrong = [tuple(t) for t in o["every socket"] if tuple(t) not in SOCKETS and t[0] != 1]
    missing = [t for t in SOCKETS if list(t) not in o["every socket"]]
    ok(not wrong and not missing, f"{who}: of {64 * 16 * 22} kinds of sockets, Unix, TCP, UDP and rtnetlink's can be made", f"{wrong} {missing}")
    others = {k: v for k, v in o.items() if k.startswith("protocol ")}
    ok(len(others) == 6 and set(others.values()) == {"!EPROTONOSUPPORT"}, f"{who}: MPTCP and others are answered so that programs fall back", others)
    ok((o["smc by TCP_ULP"], o["tls by TCP_ULP"], o["pair of INET"]) == ("!ENOENT", "!ENOENT", "!ENOTSUP"), f"{who}: nor by a detour",
       (o["smc by TCP_ULP"], o["tls by TCP_ULP"], o["pair of INET"]))
    ok(o["host's abstract socket"] == "!ECONNREFUSED" and o["host's loopback"] == "!ECONNREFUSED" and o["interfaces"] == ["lo"],
       f"{who}: the host's sockets can't be reached", (o["host's abstract socket"], o["host's loopback"], o["interfaces"]))


def judge_files(o, who, as_root):
    ok(set(o["root folder"]) <= set(ROOT), f"{who}: nothing else in /", o["root folder"])
    ok(o["dev"] == DEV, f"{who}: only harmless devices", o["dev"])
    ok(o["chroot escape"] in ("same root", "!EPERM"), f"{who}: no way out of chroot", o["chroot escape"])
    ok(o["write /proc/1/exe"] in DENIED + ("!ETXTBSY",) and o["write /usr/bin/sudo"] in DENIED + ("!ETXTBSY",) and
       o["unlink /usr/bin/sudo"] in DENIED + ("!EBUSY",), f"{who}: the guest's program can't be changed",
       (o["write /proc/1/exe"], o["write /usr/bin/sudo"], o["unlink /usr/bin/sudo"]))
    ok(o["read kcore"] in (0, "!EACCES", "!EPERM", "!ENOENT") and o["read keys"] in (0, "!EACCES", "!ENOENT") and o["read timer_list"] in
       (0, "!EACCES", "!EPERM", "!ENOENT"), f"{who}: the kernel's own files are empty", (o["read kcore"], o["read keys"], o["read timer_list"]))
    ok(o["write /proc/sysrq-trigger"] in DENIED + (1,), f"{who}: sysrq goes nowhere", o["write /proc/sysrq-trigger"])
    ok(o["cgroup files"] in ([], "!ENOENT", "!EACCES") and o["release_agent"] == [], f"{who}: no control group to write to", (o["cgroup files"], o["release_agent"]))
    ok(o["nosuid"] is True and o["nodev"] is True, f"{who}: nosuid and nodev everywhere", (o["nosuid"], o["nodev"]))


def judge_layers(o, who, as_root, mode):
    """That the attempts on /usr are real: where ids are mapped, root inside may write there, into a layer of its own."""
    got = (o["write into /usr"], o["write over /usr/bin/env"])
    want = ("done", "done") if as_root and mode.uid == 0 else ("!EACCES", "!EACCES") if not as_root and mode.ids else (got[0], got[1])
    ok(got == want, f"{who}: /usr can be written by its root alone, in a layer", got)


def judge_self(o, who, as_root):
    s = o["status"]
    caps = int(s["CapBnd"], 16)
    ok(s["NoNewPrivs"] == "1" and s["Seccomp"] == "2" and caps & ~CAPS == 0 and int(s["CapEff"], 16) & ~CAPS == 0,
       f"{who}: no new privileges, a filter, few capabilities", s)
    ok(as_root or int(s["CapEff"], 16) == 0 or o["status"]["Uid"].startswith("0"), f"{who}: a plain user has none", s)
    ok(o["open descriptors"] == [0, 1, 2], f"{who}: no descriptor but 0, 1, 2", o["open descriptors"])
    ok(set(o["environment"]) <= ENV, f"{who}: nothing of the host's environment", o["environment"])
    ok("sesame" not in str(o["PID 1's environment"]), f"{who}: nor in PID 1", o["PID 1's environment"])
    ok(all(p < 200 for p in o["pids"]) and 1 in o["pids"], f"{who}: only its own processes", o["pids"])
    ok(o["ptrace own child"] == "0", f"{who}: its own programs can be debugged", o["ptrace own child"])


def inside(mode, marker):
    name = "bureau-test-" + os.urandom(6).hex()
    with socket.socket(socket.AF_UNIX) as a, socket.socket() as t:
        a.bind("\0" + name)
        a.listen()
        t.bind(("127.0.0.1", 0))
        t.listen()
        for user in ("root", "user"):
            for net in ([], ["--net", "--door"]):
                who = f"{mode.name}, as {user}" + (", with a door" if net else "")
                before = host_state()
                r = run(mode.prefix, net + ["--mount", os.path.join(HERE, "inside.py"), "ro:/srv/inside.py"],
                        ["/usr/bin/python3", "/srv/inside.py", name, str(t.getsockname()[1]), marker], user)
                try:
                    o = json.loads(r.stdout)
                except ValueError:
                    ok(False, f"{who}: the attempts ran", f"exit {r.returncode}: {r.stderr[-800:]}")
                    continue
                judge_refusals(o, who)
                judge_files(o, who, user == "root")
                judge_self(o, who, user == "root")
                judge_layers(o, who, user == "root", mode)
                ok(host_state() == before and not own_mounts(), f"{who}: the host is as it was", own_mounts())


needs(CTL, "keeperctl")
marker = tempfile.mkdtemp(prefix="bureau-marker-")
os.chmod(marker, 0o755)
try:
    for m in modes():
        inside(m, marker)
finally:
    shutil.rmtree(marker)
done()
