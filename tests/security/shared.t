#!/usr/bin/env python3
"""What computers and their host could share and don't: a hostile computer beside an honest one tries to reach the other and the host by every
common name, to end their processes, and to use up what the kernel counts for more than one of them. Each attempt is made from where it must
succeed too (the other computer itself, the host), so that none fails for want of a target. As root and as plain users. timeout: 600"""
import json, os, shutil, signal, socket, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import bureau_test as bt
import lab
from bureau_test import ok, wait_for

COMMON = r'''
import ctypes, errno, json, os, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
M = os.uname().machine == "x86_64"
NR = dict(shmget=29, msgget=68, mq_open=240, timer_create=222) if M else dict(shmget=194, msgget=186, mq_open=180, timer_create=107)
class Attr(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_long), ("max", ctypes.c_long), ("size", ctypes.c_long), ("rest", ctypes.c_long * 5)]
def call(name, *a):
    r = libc.syscall(NR[name], *a)
    if r < 0:
        raise OSError(ctypes.get_errno(), name)
    return r
'''
# Runs in the honest computer, and on the host: things with names to be found by. Ends when it's killed.
TARGET = COMMON + r'''
what = json.loads(sys.argv[1])
keep = []
for p in what["files"]:
    with open(p, "w") as f:
        f.write("secret")
for path in what["unix"]:
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0" + path[1:] if path[0] == "@" else path)
    s.listen()
    keep.append(s)
t = socket.create_server(("127.0.0.1", what["port"]))
call("shmget", what["key"], 4096, 0o1666)
call("msgget", what["key"], 0o1666)
call("mq_open", what["queue"].encode(), os.O_CREAT | os.O_RDWR, 0o666, ctypes.byref(Attr(0, 1, 16)))
print(json.dumps(dict(pid=os.getpid(), port=t.getsockname()[1])), flush=True)
time.sleep(600)
'''
# Tries to reach what that made.
PROBE = COMMON + r'''
what, out = json.loads(sys.argv[1]), {}
def attempt(name, f, *a):
    try:
        out[name] = f(*a) or "reached"
    except OSError as e:
        out[name] = "!" + errno.errorcode.get(e.errno, str(e.errno))
def connect(family, to):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect(to)
def read(path):
    with open(path) as f:
        return None if f.read() == "secret" else "another"
def any_root(path):
    """By the root, the working folder and the descriptors of every process that can be seen."""
    for pid in [p for p in os.listdir("/proc") if p.isdigit()] + ["self", "thread-self"]:
        ways = ["root", "cwd"]
        try:
            ways += ["fd/" + f for f in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            pass
        for w in ways:
            for up in ("", "/..", "/../../../../../.."):
                try:
                    return read(f"/proc/{pid}/{w}{up}{path}")
                except OSError:
                    pass
    raise OSError(errno.ENOENT, path)
for p in what["files"]:
    attempt("file " + p, read, p)
    attempt("file by /proc " + p, any_root, p)
for path in what["unix"]:
    attempt("unix " + path, connect, socket.AF_UNIX, "\0" + path[1:] if path[0] == "@" else path)
attempt("port", connect, socket.AF_INET, ("127.0.0.1", what["port"]))
attempt("shm", lambda: call("shmget", what["key"], 0, 0) < 0)
attempt("msg", lambda: call("msgget", what["key"], 0) < 0)
attempt("mq", lambda: call("mq_open", what["queue"].encode(), os.O_RDWR, 0, None) < 0)
attempt("/dev/mqueue", lambda: os.stat("/dev/mqueue/" + what["queue"]) and None)
def process():
    """One that carries the token and isn't ourselves: numbers alone are anybody's."""
    for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
        try:
            if what["queue"].encode() in open(f"/proc/{pid}/cmdline", "rb").read():
                return os.kill(int(pid), 0)
        except OSError:
            pass
    raise OSError(errno.ESRCH, "")
attempt("process", process)
print(json.dumps(out))
'''
# Ends all it can, then shows that it could end something.
KILLER = r'''
import os, signal, sys, time
own = os.fork()
if own == 0:
    time.sleep(600)
for p in sys.argv[1:]:
    try:
        os.kill(int(p), signal.SIGKILL)
    except OSError:
        pass
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
print(os.WTERMSIG(os.waitpid(own, 0)[1]))
'''
# Takes all there is of something; prints how much that was, then holds it until it's killed (or for a moment).
TAKER = COMMON + r'''
import resource
def inotify():
    if libc.inotify_init1(0) < 0:
        raise OSError(ctypes.get_errno(), "")
def timers():
    call("timer_create", 1, 0, ctypes.byref(ctypes.c_int()))
def queues():
    call("mq_open", b"q%d" % n, os.O_CREAT | os.O_RDWR, 0o600, ctypes.byref(Attr(0, 10, 8192)))
def files():
    open(f"/tmp/f{n}", "w").close()
def processes():
    if os.fork() == 0:
        time.sleep(hold)
        os._exit(0)
def sockets():
    for s in socket.socketpair():
        s.setblocking(False)
        keep.append(s)
        try:
            while True:
                s.send(bytes(65536))
        except BlockingIOError:
            pass
f, most, hold = globals()[sys.argv[1]], int(sys.argv[2]), float(sys.argv[3])
n, why, keep = 0, "enough", []
try:
    while n < most:
        f()
        n += 1
except OSError as e:
    why = errno.errorcode[e.errno]
if sys.argv[1] == "queues":
    for k in range(n if hold < 1 else 0):
        libc.syscall(NR["mq_open"] + 1, b"q%d" % k)
elif sys.argv[1] == "files":
    for k in range(min(n, 20)):
        os.unlink(f"/tmp/f{k}")
print(n, why, flush=True)
time.sleep(hold)
'''


class Side:
    """The server's user on the host; as a computer is, for whoever runs programs in it."""

    def __init__(self, prefix):
        self.prefix = prefix

    def run(self, code, *args):
        r = subprocess.run([*self.prefix, sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60)
        return r.stdout or r.stderr[-500:]

    def start(self, code, *args):
        self.p = subprocess.Popen([*self.prefix, sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True)
        return json.loads(self.p.stdout.readline())


def run(s, id, code, *args, **kw):
    out, err, end = s.exec(id, "python3", "-c", code, *args, **kw)
    return out.decode() or err.decode()[-500:]


def start(s, id, code, *args):
    """In the background, and its first line."""
    s.exec(id, "sh", "-c", 'rm -f /tmp/out; (python3 -c "$CODE" "$@" >/tmp/out 2>&1 || echo ? ENOMEM >>/tmp/out) >/dev/null 2>&1 &', "sh", *args, envs={"CODE": code}, user="root")
    def said():
        r = s.raw("GET", f"/v1/sandboxes/{id}/files?path=/tmp/out")      # takes no process, of which there may be none left
        return r.read().decode() if r.status == 200 else r.read() and None
    return wait_for(said, 60)


def names(where, token):
    return dict(files=[f"{d}/{token}" for d in where], unix=["@" + token, *(f"{d}/{token}.sock" for d in where)], port=0, pid=0,
                key=int(token[-6:], 16) | 1, queue=token)


def judge(who, got, control, want):
    """Nothing was reached from there; all was reached from where it must be."""
    try:
        got, control = json.loads(got), json.loads(control)
    except ValueError:
        return ok(False, f"{who}: the attempts ran", f"{got}\n{control}")
    missed = {k: v for k, v in control.items() if v != "reached" and k not in want}
    reached = {k: v for k, v in got.items() if v[0] != "!"}
    ok(not reached, f"{who}: none of {len(got)} ways leads there", reached)
    ok(not missed, f"{who}: and each would, without the wall", missed)


def reach(who, s, bad, good, host, folder):
    token = "t" + os.urandom(6).hex()
    inner = names(("/tmp", "/home/user", "/usr/local/bin", "/dev/shm", "/run"), token)
    told = json.loads(start(s, good, TARGET, json.dumps(inner)))
    inner.update(told)
    outer = names((folder, "/dev/shm"), "h" + token[1:])
    outer.update(host.start(TARGET, json.dumps(outer)))
    try:
        for user in ("root", "user"):
            judge(f"{who}: {user} to another computer", run(s, bad, PROBE, json.dumps(inner), user=user), run(s, good, PROBE, json.dumps(inner), user="root"), ())
            # of the host's things, those in its own namespaces; the host may have no /dev/mqueue
            judge(f"{who}: {user} to the host", run(s, bad, PROBE, json.dumps(outer), user=user), host.run(PROBE, json.dumps(outer)), ("/dev/mqueue",))
        got = run(s, bad, KILLER, str(outer["pid"]), str(s.pid_of("bureaud")), user="root")
        alive = s.exec(good, "sh", "-c", f"kill -0 {inner['pid']} && echo alive", user="root")[0]
        ok(got.strip() == "9" and alive == b"alive\n" and host.p.poll() is None, f"{who}: who ends all processes ends its own", (got, alive, host.p.poll()))
        ok(s.exec(bad, "echo", "on")[0] == b"on\n", f"{who}: and its computer goes on")
    finally:
        host.p.kill()
        host.p.wait()
        clean = "import ctypes, json, sys\n" + COMMON + "w = json.loads(sys.argv[1])\nlibc.shmctl(libc.shmget(w['key'], 0, 0), 0, None)\nlibc.msgctl(libc.msgget(w['key'], 0), 0, None)\n" \
            "libc.syscall(NR['mq_open'] + 1, w['queue'].encode())\n[os.path.exists(p) and os.unlink(p) for p in w['files'] + w['unix']]"
        host.run(clean, json.dumps(outer))
    s.exec(good, "pkill", "-9", "python3", user="root")


def use_up(who, s, bad, good, host, root, limited):
    """What one takes, others still have: as root all of them, as a plain user (who owns all its computers) that user's own programs."""
    for what, most, some in (("inotify", 5000, 20), ("timers", 300000, 20), ("queues", 5000, 2), ("files", 4000000, 20), ("processes", 100000, 3), ("sockets", 2000, 20)):
        got = (start(s, bad, TAKER, what, str(most), "600") or "").split()[-2:]
        neighbour, own = run(s, good, TAKER, what, str(some), "0").split(), None
        if what in ("inotify", "timers", "queues"):
            own = host.run(TAKER, what, str(some), "0").split()
        fine = own is None or own[-1] == "enough"
        if root or own is None:
            fine = fine and neighbour[-1] == "enough"
        ok(len(got) == 2 and got[1] in ("EMFILE", "EAGAIN", "ENOSPC", "ENOMEM", *(["enough"] if what == "sockets" and not limited else [])) and fine,
           f"{who}: {what}: one takes {got[0] if got else '?'}, and what others need is still there", (got, neighbour, own))
        s.kill(bad)
        bad = s.create(memory=128 << 20, disk=64 << 20, pids=100, timeout_ms=0)["id"]


def one(who, prefix, uid):
    s = bt.Server("--pool", "0")
    s.prefix = [*prefix, "env", "HOME=/nonexistent"] if prefix else []
    folder = tempfile.mkdtemp(prefix="bureau-shared-")
    for d in (s.state, folder):
        os.chown(d, uid, uid)
        os.chmod(d, 0o755)
    host = Side(prefix)
    try:
        s.start()
        bad, good = s.create(memory=128 << 20, disk=64 << 20, pids=100, timeout_ms=0)["id"], s.create(timeout_ms=0)["id"]
        reach(who, s, bad, good, host, folder)
        use_up(who, s, bad, good, host, uid == 0, "memory" not in s.call("GET", f"/v1/sandboxes/{bad}").get("unenforced", []))
        ok(s.exec(good, "echo", "on")[0] == b"on\n", f"{who}: the honest one goes on")
        ok(s.stop() == 0 and not s.leftovers(), f"{who}: nothing is left", s.leftovers())
    finally:
        s.remove()
        shutil.rmtree(folder)


for m in lab.modes():
    one(m.name, m.prefix, m.uid)
bt.done()
