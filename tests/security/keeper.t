#!/usr/bin/env python3
"""The keeper's promises: limits hold, computers don't see each other, nothing is left behind, and it can be killed at any moment.
As real root and as a plain user."""
import fcntl, json, os, re, resource, shutil, signal, socket, subprocess, tempfile, time, traceback
import lab
from lab import BUILD, CTL, KEEPER, done, needs, ok, skip

TINY = os.path.join(BUILD, "src/keeper/tinyguest")
servers = []        # those started since the last part: none outlives its part


def until(f, seconds=5):
    end = time.monotonic() + seconds
    while True:
        v = f()
        if v or time.monotonic() > end:
            return v
        time.sleep(0.01)


def groups(name):
    return [os.path.join(d, x) for d, dirs, _ in os.walk("/sys/fs/cgroup") for x in dirs if re.fullmatch(name, x)]


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Mode:
    def __init__(self, name, prefix, uid):
        self.name, self.prefix, self.uid, self.root = name, prefix, uid, uid == 0

    def run(self, options, command, user="root", timeout=60):
        r = subprocess.run(self.prefix + [CTL, "run", KEEPER] + options + ["--"] + command, capture_output=True, text=True, timeout=timeout,
                           env=dict(os.environ, GUEST_USER=user, SHOW_UNENFORCED="1"), stdin=subprocess.DEVNULL)
        m = re.search(r"^unenforced (\d+)$", r.stderr, re.M)
        r.unenforced = int(m.group(1)) if m else 0
        return r


class Server:
    """A keeper that serves, and one connection to it."""

    def __init__(self, mode, state, guest=None):
        self.mode, self.state, self.guest = mode, state, guest
        self.start()

    def start(self):
        path = os.path.join(self.state, "sock")
        if os.path.exists(path):
            os.unlink(path)
        more = ["--guest", self.guest] if self.guest else []
        self.p = subprocess.Popen(self.mode.prefix + [CTL, "serve", KEEPER, path, "--state", self.state] + more, stderr=subprocess.PIPE, text=True)
        servers.append(self.p)
        until(lambda: os.path.exists(path), 20)
        self.c = self.connect()

    def connect(self):
        return subprocess.Popen(self.mode.prefix + [CTL, "ask", os.path.join(self.state, "sock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)

    def ask(self, line, c=None):
        c = c or self.c
        c.stdin.write(line + "\n")
        c.stdin.flush()
        return c.stdout.readline().strip()

    def items(self, ending=False):
        """Those that are up, or those that are not (pid 0)."""
        out = [self.ask("list")]
        while out[-1].startswith("item"):
            out.append(self.c.stdout.readline().strip())
        return sorted(l.split()[1] for l in out[:-1] if (l.split()[3] == "0") == ending)

    def stop(self, how=signal.SIGTERM):
        self.c.stdin.close()
        self.c.stdout.close()
        self.p.send_signal(how)
        self.c.wait(10)
        self.p.wait(10)
        self.log = self.p.stderr.read()
        self.p.stderr.close()


def limits(m):
    who = m.name
    code = "import sys\ntry:\n for i in range(400): bytearray(1)\n x = bytearray(300 << 20)\n print('had it')\nexcept MemoryError: print('refused')"
    r = m.run(["--limits", f"{64 << 20},0,0,0,0,0"], ["sh", "-c", f"python3 -c \"{code}\"; echo after $?"])
    if r.unenforced & 1:
        ok(not m.root or "had it" in r.stdout, f"{who}: a memory limit that can't be had is said", r.stdout + r.stderr)
    else:
        ok("after 137" in r.stdout, f"{who}: too much memory ends the program, not the computer", r.stdout + r.stderr)
    bomb = "import os,time\nn=0\ntry:\n while True:\n  if os.fork() == 0: time.sleep(60); os._exit(0)\n  n+=1\nexcept OSError as e: print(n, e.errno)"
    r = m.run(["--limits", "0,0,64,0,0,0"], ["python3", "-c", bomb])
    ok(not r.unenforced & 4 and re.match(r"(\d+) 11", r.stdout) and int(r.stdout.split()[0]) <= 64, f"{who}: a fork bomb stops at the limit", r.stdout + r.stderr)
    r = m.run(["--limits", f"0,0,0,{8 << 20},0,0"], ["sh", "-c", "dd if=/dev/zero of=/tmp/x bs=64k count=400 2>&1; dd if=/dev/zero of=/dev/shm/x bs=64k count=1 2>&1; rm /tmp/x; echo fine > /tmp/y; cat /tmp/y"])
    ok(r.stdout.count("No space left") == 2 and "fine" in r.stdout, f"{who}: a full disk is ENOSPC, /dev/shm counted, and can be emptied", r.stdout)
    r = m.run(["--limits", f"0,0,0,0,400,0"], ["python3", "-c", "import os\nn=0\ntry:\n while True:\n  open(f'/tmp/{n}','w').close(); n+=1\nexcept OSError as e: print(n, e.errno)"])
    ok(re.match(r"\d+ 28", r.stdout) and int(r.stdout.split()[0]) < 400, f"{who}: so are too many files", r.stdout + r.stderr)
    r = m.run(["--limits", "0,0,0,0,0,32"], ["sh", "-c", "ulimit -n; ulimit -Hn"])
    ok(r.stdout.split()[-1:] == ["32"], f"{who}: open files", r.stdout + r.stderr)
    ok(not groups("testcomputer1"), f"{who}: no control group stays", groups("testcomputer1"))


def mounts(m):
    who = m.name
    d = tempfile.mkdtemp(prefix="bureau-mount-")
    try:
        os.chown(d, m.uid, m.uid)
        open(os.path.join(d, "f"), "w").write("theirs")
        os.chmod(d, 0o755)
        r = m.run(["--mount", d, "rw:/home/user/work", "--mount", d, "ro:/srv/ro"],
                  ["sh", "-c", "cat /srv/ro/f; echo mine > /home/user/work/g; echo x > /srv/ro/h; ls /srv/ro"], "user")
        owner = os.stat(os.path.join(d, "g")).st_uid if os.path.exists(os.path.join(d, "g")) else None
        ok(owner == m.uid and not os.path.exists(os.path.join(d, "h")), f"{who}: a mounted folder's owner is `user` inside; ro is read-only", (owner, r.stdout, r.stderr))
        r = m.run(["--mount", d, "rw:/etc/../../../escape"], ["ls", "/"])
        ok(not os.path.exists("/escape") and r.returncode in (0, 122), f"{who}: a destination can't leave the computer", r.stdout + r.stderr)
        r = m.run(["--mount", "/nonexistent", "ro:/x"], ["true"])
        ok(r.returncode == 122 and "/nonexistent" in r.stderr, f"{who}: a missing source is named", r.stderr)
    finally:
        shutil.rmtree(d)


def dies_with_its_asker(m):
    who = m.name
    for victim in ("the keeper", "the asker"):
        p = subprocess.Popen(m.prefix + [CTL, "run", KEEPER, "--", "sleep", "300"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        child = lambda pid: next(iter(open(f"/proc/{pid}/task/{pid}/children").read().split()), None)
        keeper = until(lambda: child(p.pid))
        # a plain user's keeper has short-lived children before: the computer is the one that stays
        first = until(lambda: (c := child(keeper)) and open(f"/proc/{c}/comm").read().strip() == "bureau-guest" and c)
        os.kill(int(keeper) if victim == "the keeper" else p.pid, signal.SIGKILL)
        p.wait(10)
        ok(first and until(lambda: not alive(first) and not alive(keeper)), f"{who}: kill -9 of {victim} ends all", (keeper, first))


def service(m, state):
    who = m.name
    s = Server(m, state, TINY)
    ok(s.ask("hello").startswith("ok hello 1 "), f"{who}: hello")
    a = s.ask("create aaaaaaaa1 1 host 1").split()
    b = s.ask("create aaaaaaaa2 2 host 0").split()
    pa, pb = a[2], b[2]
    ok(a[:2] == ["ok", "created"] and a[-1] in ("3", "4") and b[-1] == "0", f"{who}: created, with door sockets and without", (a, b))
    ok([s.ask(l) for l in ("create aaaaaaaa2 3", "create aaaaaaaa3 2", "create aaaaaaaa3 3 nosuch", "create aaaaaaaa3 0", "create BAD 3",
                           "create aaaaaaaa3 3 ../../etc", "create aaaaaaaa3 3 host 7")] ==
       ["error 17", "error 17", "error 2", "error 22", "error 22", "error 22", "error 22"], f"{who}: what makes no sense is refused")
    ok(s.ask("create aaaaaaaa3 3 host 0 0 /etc ro:/x") == "error 1", f"{who}: no host folder through a server")
    ok(s.items() == ["aaaaaaaa1", "aaaaaaaa2"] and sorted(os.listdir(os.path.join(state, "keeper"))) == ["aaaaaaaa1", "aaaaaaaa2"], f"{who}: nothing is left of refused ones")
    if m.root:
        maps = [open(f"/proc/{p}/uid_map").read().split()[1] for p in (pa, pb)]
        ok(maps == [str(0x10000 * (0x100 + k)) for k in (1, 2)], f"{who}: each has ids of its own", maps)
    ns = lambda p: [os.readlink(f"/proc/{p}/ns/{x}") for x in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")]
    ok(not m.root or not set(ns(pa)) & (set(ns(pb)) | set(ns("self"))), f"{who}: no namespace is shared")
    s2 = s.connect()
    ok(s.ask("bad", s2) == "ok sent" and s.ask("list", s2) == "" and s.items() == ["aaaaaaaa1", "aaaaaaaa2"], f"{who}: nonsense ends its peer, nothing else")
    s2.stdin.close(), s2.stdout.close(), s2.wait(10)
    ok(s.ask("doors aaaaaaaa1") == "error 16", f"{who}: doors aren't given twice while open")
    frozen = s.ask("freeze aaaaaaaa1 1")
    ok(frozen == "ok" or not m.root, f"{who}: freeze", frozen)
    s.stop(signal.SIGKILL)
    ok(alive(pa) and alive(pb), f"{who}: computers outlive kill -9 of their keeper")
    os.kill(int(pb), signal.SIGKILL) if m.uid == os.geteuid() else subprocess.run(["kill", "-9", pb])
    until(lambda: not alive(pb))
    open(os.path.join(state, "keeper", "zzzzzzzz9"), "w").write("bureau-keeper 1\nboot x\npid 1\nstart 1\nslot 9\nnet 0\ntemplate host\n")
    open(os.path.join(state, "keeper", "zzzzzzzz8"), "wb").write(b"\0garbage" * 100)
    open(os.path.join(state, "run", "zzzzzzzz7"), "w").close()
    s.start()
    until(lambda: not s.items(ending=True))
    ok(s.items() == ["aaaaaaaa1"] and os.listdir(os.path.join(state, "keeper")) == ["aaaaaaaa1"] and os.listdir(os.path.join(state, "run")) == ["aaaaaaaa1"],
       f"{who}: the next adopts the living and sweeps the dead and the nonsense", (os.listdir(os.path.join(state, "keeper")), os.listdir(os.path.join(state, "run"))))
    ok(until(lambda: not groups("aaaaaaaa2")), f"{who}: with its groups", groups("aaaaaaaa2"))
    ok(s.ask("doors aaaaaaaa1").startswith("ok doors"), f"{who}: an adopted computer's doors open again")
    ok(s.ask(f"limits aaaaaaaa1 0,0,0,{16 << 20},1000,64").startswith("ok"), f"{who}: and its limits change")
    ok(s.ask("kill aaaaaaaa1") == "ok" and not alive(pa) and not groups("aaaaaaaa1") and s.items() == [] and not os.listdir(os.path.join(state, "run")),
       f"{who}: a frozen one is killed, and gone when the answer comes", groups("aaaaaaaa1"))
    ok(s.ask("kill aaaaaaaa1") == "error 2", f"{who}: twice is ENOENT")
    ok(s.ask("create aaaaaaaa5 5").startswith("ok") and s.ask("exec false") == "ok exit 1" and s.ask("exited") == "ok exited aaaaaaaa5 0 0 0",
       f"{who}: an end by itself is told")
    s.stop()
    ok(not groups("aaaaaaaa.|zzzzzzzz."), f"{who}: no groups stay")


def pid_of(s):
    """The keeper's own: what started it may still be there."""
    if open(f"/proc/{s.p.pid}/comm").read() == "bureau-keeper\n":
        return s.p.pid
    return int(open(f"/proc/{s.p.pid}/task/{s.p.pid}/children").read().split()[0])


def starved(m, state):
    """A start that fails at any step, for want of a descriptor, leaves nothing: no child, group, name or descriptor, and the keeper where it was."""
    if not m.root:               # another user's limits may not be ours to set
        return
    s = Server(m, state, TINY)
    first = s.ask("create aaaaaaaa1 1 host 1")
    keeper = pid_of(s)
    names = lambda: sorted(os.readlink(f"/proc/{keeper}/fd/{f}").split("[")[0] for f in os.listdir(f"/proc/{keeper}/fd"))
    where = lambda: os.readlink(f"/proc/{keeper}/ns/net")
    children = lambda: open(f"/proc/{keeper}/task/{keeper}/children").read().split()
    until(lambda: names().count("net:") == 6, 1)         # its stock, where it has one
    held, home, had, most = names(), where(), children(), resource.prlimit(keeper, resource.RLIMIT_NOFILE)
    wrong, answers = [], []
    for n in range(len(held), len(held) + 60):
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, (n, most[1]))
        answers.append(s.ask("create aaaaaaaa2 2 host 1"))
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, most)
        if answers[-1].startswith("ok"):
            wrong += [] if s.ask("kill aaaaaaaa2") == "ok" else [(n, "not killed")]
            break
        left = groups("aaaaaaaa2") + [d for d in ("run", "keeper") if os.path.exists(os.path.join(state, d, "aaaaaaaa2"))]
        if left or not until(lambda: where() == home) or not until(lambda: children() == had) or not until(lambda: [x for x in names() if x != "net:"] == [x for x in held if x != "net:"]):
            wrong.append((n, left, where(), children(), names()))
    ok(first.startswith("ok") and answers[-1].startswith("ok") and len(answers) > 8 and set(answers[:-1]) == {"error 24"} and not wrong,
       f"{m.name}: a start that fails for want of a descriptor leaves nothing ({len(answers) - 1} steps)", (answers, wrong[:3], held))
    s.ask("kill aaaaaaaa1")
    s.stop()


def all_at_once(m, state):
    """Signals of one kind don't queue: what ends while the keeper looks away comes as one, adopted computers beside its own children."""
    s = Server(m, state, TINY)
    for k in range(6):
        s.ask(f"create eeeeeee{k:02} {k + 1} host 1")
    s.stop(signal.SIGKILL)
    s = Server(m, state, TINY)
    made = [s.ask(f"create eeeeeee{k:02} {k + 1} host 1") for k in range(6, 12)]
    adopted = s.items()
    keeper = pid_of(s)
    firsts = [int(re.search(r"^pid (\d+)$", open(os.path.join(state, "keeper", i)).read(), re.M).group(1)) for i in s.items()]
    os.kill(keeper, signal.SIGSTOP)
    for p in firsts:
        os.kill(p, signal.SIGKILL)
    until(lambda: not any(alive(p) for p in firsts))
    os.kill(keeper, signal.SIGCONT)
    ok(len(adopted) == 12 and all(x.startswith("ok") for x in made) and until(lambda: s.items() == [] and s.items(ending=True) == []) and not groups("eeeeeee.*") and
       not os.listdir(os.path.join(state, "keeper")) + os.listdir(os.path.join(state, "run")),
       f"{m.name}: twelve that end at one moment are all told of, and nothing is left", (made, adopted, s.items(), groups("eeeeeee.*")))
    s.stop()


def cpu_of(pid):
    at = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(at[11]) + int(at[12])) / os.sysconf("SC_CLK_TCK")


def no_room(m, state):
    """A peer for whom there is no descriptor waits, and the keeper with it: it doesn't turn in circles meanwhile."""
    if not m.root:
        return
    s = Server(m, state, TINY)
    s.ask("list")
    keeper = pid_of(s)
    most = resource.prlimit(keeper, resource.RLIMIT_NOFILE)
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, (3, most[1]))
    c = s.connect()
    before = cpu_of(keeper)
    time.sleep(1)
    used = cpu_of(keeper) - before
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, most)
    ok(used < 0.3 and s.ask("list", c).startswith("ok"), f"{m.name}: a peer without a descriptor for it costs nothing, and is served later", used)
    c.stdin.close()
    c.stdout.close()
    c.wait(10)
    s.stop()


def wrong_peer(m, state):
    if not m.root:
        return
    s = Server(m, state, TINY)
    os.chmod(os.path.join(state, "sock"), 0o666)
    r = subprocess.run(["setpriv", "--reuid=61234", "--regid=61234", "--clear-groups", CTL, "ask", os.path.join(state, "sock")], input="list\n",
                       capture_output=True, text=True, timeout=20)
    ok("ok" not in r.stdout and s.items() == [], f"{m.name}: a peer of another user is refused", r.stdout + r.stderr)
    s.stop()


def template_escape(m, state):
    t = os.path.join(state, "templates", "evil")
    os.makedirs(t)
    os.symlink("/", os.path.join(t, "current"))
    os.makedirs(os.path.join(state, "templates", "evil2"))
    os.symlink("../../../../../../../", os.path.join(state, "templates", "evil2", "current"))
    s = Server(m, state, TINY)
    ok(s.ask("create aaaaaaaa6 6 evil") == "error 2" and s.ask("create aaaaaaaa6 6 evil2") == "error 2", f"{m.name}: a template's link can't lead out of its folder")
    s.stop()


def owner(ns):
    """The user namespace that a namespace belongs to, as an inode; None when that isn't for us to see (it's above ours)."""
    with open(ns) as f:
        try:
            up = fcntl.ioctl(f, 0xb701)       # NS_GET_USERNS
        except PermissionError:
            return None
    with os.fdopen(up) as f:
        return os.fstat(f.fileno()).st_ino


def networks(m, state):
    """Network namespaces made in advance: each is used once, belongs to no computer's user namespace, and its doors work like others'."""
    if not m.root:
        return
    s = Server(m, state, TINY)
    first = s.ask("create aaaaaaaa1 1 host 1").split()[2]
    kids = open(f"/proc/{s.p.pid}/task/{s.p.pid}/children").read().split()
    keeper = next(p for p in [str(s.p.pid), *kids] if open(f"/proc/{p}/comm").read() == "bureau-keeper\n")
    ns = lambda p, kind="net": os.stat(f"/proc/{p}/ns/{kind}").st_ino
    held = lambda: sum(os.readlink(f"/proc/{keeper}/fd/{f}").startswith("net:") for f in os.listdir(f"/proc/{keeper}/fd"))
    ok(owner(f"/proc/{first}/ns/net") == ns(first, "user"), f"{m.name}: with none in stock a computer makes its own network")
    ok(until(lambda: held() == 2 + 4), f"{m.name}: then some are kept, beside the keeper's own and that of /sys", held())
    ok(ns(keeper) == ns("self"), f"{m.name}: the keeper is in its own")
    more = [s.ask(f"create aaaaaaaa{k} {k} host 1").split() for k in range(2, 8)]
    pids = [first] + [x[2] for x in more]
    ok(len({ns(p) for p in pids} | {ns("self")}) == 8 and all(x[-1] == more[0][-1] for x in more), f"{m.name}: no two computers share one, and each has its doors", more)
    stocked = [p for p in pids if owner(f"/proc/{p}/ns/net") == ns("self", "user")]
    ok(2 <= len(stocked) <= 6 and ns(keeper) == ns("self"), f"{m.name}: those of the stock are nobody's inside", len(stocked))
    low = [open(f"/proc/{p}/net/tcp").read().count(" 0100007F:0001 ") + open(f"/proc/{p}/net/tcp").read().count(" 0100007F:0035 ") for p in pids]
    ok(low == [2] * 7, f"{m.name}: the door listens in all of them", low)
    s.stop(signal.SIGKILL)
    s.start()
    ok(until(lambda: len(s.items()) == 7) and all(s.ask(f"doors aaaaaaaa{k}").startswith("ok doors") for k in range(1, 8)), f"{m.name}: and is opened again by the next keeper")
    ok(all(s.ask(f"kill aaaaaaaa{k}") == "ok" for k in range(1, 8)), f"{m.name}: killed")
    s.stop()


def cut(m, state, id, slot, delay, stocked=False):
    """A start, and kill -9 of the keeper so many seconds later."""
    s = Server(m, state, TINY)
    if stocked:
        s.ask("create ddddddd00 99 host 1")
        s.ask("kill ddddddd00")
        time.sleep(0.05)      # the stock fills, or doesn't: both are right
    s.c.stdin.write(f"create {id} {slot} host 1\n")
    s.c.stdin.flush()
    time.sleep(delay)
    s.stop(signal.SIGKILL)


def killed_while_starting(m, state):
    """kill -9 of the keeper at many moments of a start: the next one finds a whole computer or nothing."""
    left, told = 0, []
    for k in range(12):
        cut(m, state, f"ccccccc{k:02}", k + 1, 0.0004 * k, k % 2)
        # what the daemon does, as fast as it can: it clears away what there may be, and asks again for the same id in the same slot
        s = Server(m, state, TINY)
        told.append((s.ask(f"kill ccccccc{k:02}"), s.ask(f"create ccccccc{k:02} {k + 1} host 1")[:10], s.ask(f"kill ccccccc{k:02}")))
        s.stop()
    ok(all(a in ("ok", "error 2") and (b, c) == ("ok created", "ok") for a, b, c in told), f"{m.name}: a start that a kill -9 cut is made again at once", told)
    for k in range(12):
        cut(m, state, f"bbbbbbb{k:02}", k + 1, 0.0003 * k, k % 2)
    s = Server(m, state, TINY)
    for i in s.items():
        left += s.ask(f"kill {i}") != "ok"
    until(lambda: not s.items(ending=True))
    names = os.listdir(os.path.join(state, "keeper")) + os.listdir(os.path.join(state, "run"))
    ok(left == 0 and not names and until(lambda: not groups("bbbbbbb.*")), f"{m.name}: kill -9 in the midst of starts leaves nothing", (left, names, groups("bbbbbbb.*")))
    s.stop()


needs(CTL, "keeperctl")
for m in (Mode(x.name, x.prefix, x.uid) for x in lab.modes()):
    limits(m)
    mounts(m)
    dies_with_its_asker(m)
    for f in (service, networks, starved, all_at_once, no_room, wrong_peer, template_escape, killed_while_starting):
        state = tempfile.mkdtemp(prefix="bureau-keeper-")
        os.chown(state, m.uid, m.uid)
        try:
            f(m, state)
        except Exception as x:      # one failure; the rest still runs
            ok(False, f"{m.name}: {f.__name__} broke: {x!r}", traceback.format_exc())
        finally:
            for p in servers:
                if p.poll() is None:
                    p.kill()
                    p.wait()
            servers.clear()
            shutil.rmtree(state, ignore_errors=True)
done()
