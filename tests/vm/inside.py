#!/usr/bin/env python3
"""What is checked on a machine with another kernel and pure cgroup v2 (tools/vm-run boots it, the .t files relay this).

Groups are as systemd lays them out: root's shell in a system service; a user's login session that isn't the user's to
divide; a user's service with its tree delegated."""
import os, re, signal, subprocess, sys, threading, time

B = "/bureau/"
CG = "/sys/fs/cgroup"
BARE, GRANTED = 1001, 1002                  # a plain user without and with subordinate ids
SERVICE = "/system.slice/test.service"
SLOW = 60
KERNEL = tuple(int(n) for n in os.uname().release.split(".")[:2])
count = bad = 0


def ok(good, text, why=""):
    global count, bad
    count += 1
    bad += not good
    print(f"{'' if good else 'not '}ok {count} - {text}", flush=True)
    if not good and why:
        print("".join(f"#   {line}\n" for line in str(why).splitlines()[-25:]), end="", flush=True)
    return good


def put(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(str(text))


def get(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class Who:
    """A user and the control group that the user's programs start in."""

    def __init__(self, name, uid, group, delegated):
        self.name, self.uid, self.group, self.delegated = name, uid, group, delegated
        self.home = f"/home/{['bare', 'granted'][uid - BARE]}" if uid else "/root"

    def make_group(self):
        os.makedirs(CG + self.group, exist_ok=True)
        if self.delegated:
            for f in ("", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"):
                os.chown(CG + self.group + f, self.uid, self.uid)

    def enter(self):
        # once a group of ours has limits, no program can be in the group itself: the kernel's rule
        try:
            put(CG + self.group + "/cgroup.procs", os.getpid())
        except OSError:
            put(CG + self.group + "/bureau.rest/cgroup.procs", os.getpid())
        if self.uid:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)

    def start(self, *argv, **variables):
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": self.home, "USER": self.name.split()[0].rstrip(","), "LC_ALL": "C.UTF-8", **variables}
        self.make_group()
        return subprocess.Popen([B + argv[0], *argv[1:]], preexec_fn=self.enter, env=env, cwd="/", stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")

    def call(self, *argv, **variables):
        p = self.start(*argv, **variables)
        try:
            out, err = p.communicate(timeout=SLOW)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            return Result("hung", out, err)
        return Result(p.returncode, out, err)

    def run(self, *argv):
        return self.call("bureau", "run", *argv)


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\n{self.out}{self.err}"


ROOT = Who("root", 0, SERVICE, False)
USERS = [
    Who("bare, not delegated", BARE, f"/user.slice/user-{BARE}.slice/session-1.scope", False),
    Who("granted, not delegated", GRANTED, f"/user.slice/user-{GRANTED}.slice/session-2.scope", False),
    Who("bare, delegated", BARE, f"/user.slice/user-{BARE}.slice/a.service", True),
    Who("granted, delegated", GRANTED, f"/user.slice/user-{GRANTED}.slice/b.service", True),
]


def lay_out():
    for path in ("", "/system.slice", "/user.slice", f"/user.slice/user-{BARE}.slice", f"/user.slice/user-{GRANTED}.slice"):
        os.makedirs(CG + path, exist_ok=True)
        put(f"{CG}{path}/cgroup.subtree_control", "+memory +cpu +pids")


def ours():
    """Every control group of ours that holds a computer, or anything that lives in one of ours."""
    left = []
    for folder, folders, _ in os.walk(CG):
        if os.path.basename(folder).startswith("bureau."):
            left += [f"{folder}/{f}" for f in folders]
    return left


def wait_for(fn, limit=20):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        r = fn()
        if r:
            return r
        time.sleep(0.05)
    return fn()


def health(r):
    return {m.group(2): m.group(1) for m in re.finditer(r"^(?:\x1b\[\d+m)?(\w+) *(?:\x1b\[0m)?  (\S.*?)  ", r.out, re.M)}


# ---- before any module is loaded ----

def without_modules():
    loaded = {line.split()[0] for line in get("/proc/modules").splitlines()}
    if loaded & {"overlay", "nf_tables"}:
        ok(False, "a fresh machine has no overlay and no nf_tables loaded", loaded)
    put("/proc/sys/kernel/modprobe", "/nowhere")
    h = ROOT.call("bureau", "doctor")
    seen = health(h)
    ok(h.code == 0 and seen.get("network") == "less" and seen.get("overlay") == "less" and h.out.count("modprobe") == 2,
       "without modules doctor says that redirect and overlay are missing, and that sandboxes can run", h)
    for who in (ROOT, USERS[0]):
        r = who.run("--", "sh", "-c", "test -x /usr/bin/env && echo fine")
        ok(r.code == 0 and r.out == "fine\n", f"{who.name}: without overlay a program runs", r)
        r = who.run("--net", "all", "--", "true")
        ok(r.code == 125 and "nf_tables" in r.err, f"{who.name}: --net all fails with the modules' names", r)
    put("/proc/sys/kernel/modprobe", B + "modprobe")


def switched_off():
    """Debian's and the kernel's own switch against user namespaces of plain users."""
    for name, off, on in (("kernel/unprivileged_userns_clone", "0", "1"), ("user/max_user_namespaces", "0", get("/proc/sys/user/max_user_namespaces"))):
        if not os.path.exists("/proc/sys/" + name):
            continue
        word = name.replace("/", ".")
        put("/proc/sys/" + name, off)
        h = USERS[0].call("bureau", "doctor")
        ok(h.code == 1 and health(h).get("namespaces") == "BAD" and word in h.out, f"{word}={off}: doctor says that it must be changed", h)
        r = USERS[0].run("--", "true")
        ok(r.code == 125 and word in r.err, f"{word}={off}: a run fails and names it", r)
        put("/proc/sys/" + name, on)


# ---- bureau run ----

def check_basics(who):
    r = who.run("--", "sh", "-c", "id -un; echo $HOME; exit 7")
    ok(r.code == 7 and r.out == ("root" if who.uid == BARE else "user") + "\n/home/user\n", f"{who.name}: output and exit code come through", r)
    r = who.run("--", "sh", "-c", "kill -TERM $$")
    ok(r.code == 143, f"{who.name}: 128 + signal", r)
    r = who.run("--", "/no/such")
    ok(r.code == 127, f"{who.name}: 127 for no such program", r)
    r = who.run("--timeout", "2s", "--", "sleep", "50")
    ok(r.code == 124, f"{who.name}: 124 after its timeout", r)
    full = who.uid != BARE      # else one id inside: user and root are the same
    r = who.run("-u", "root", "--", "sh", "-c",
                "id -u; echo x >/usr/bin/new && cat /usr/bin/new && mkdir -p /usr/local/lib/p && echo y >/usr/local/lib/p/f && cat /usr/local/lib/p/f")
    ok(r.out == "0\nx\ny\n", f"{who.name}: root inside writes to /usr", r)
    r = who.run("-u", "root", "--", "sh", "-c", "rm -r /usr/lib/a-folder && mkdir /usr/lib/a-folder && ls -A /usr/lib/a-folder && echo again")
    if who.uid:
        ok("Permission denied" in r.err, f"{who.name}: the host's files can't be removed inside", r)
    elif KERNEL >= (6, 6):
        ok(r.out == "again\n", f"{who.name}: a folder of the host's is removed and made again, empty", r)
    else:
        ok(r.code != 0 and "Input/output error" in r.err, f"{who.name}: a removed folder of the host's can't be made again, as doctor says", r)
    r = who.run("--", "sh", "-c", "id -u; sudo id -u; touch ~/mine && stat -c %U ~/mine")
    ok(r.out == ("1000\n0\nuser\n" if full else "0\n0\nroot\n"), f"{who.name}: user and sudo", r)
    r = who.run("--", "sh", "-c", "grep -c . /proc/self/cgroup; cat /proc/self/cgroup; ls /sys/fs/cgroup | wc -l; echo +memory >/sys/fs/cgroup/cgroup.subtree_control")
    ok(r.code != 0 and "0::/\n" in r.out and "bureau" not in r.out, f"{who.name}: its control group can't be seen or changed inside", r)


def check_submount(who):
    """Something is mounted below /usr (WSL and GPU containers do that): what it covers may not be uncovered for a plain user."""
    os.makedirs("/usr/lib/covered", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "t", "/usr/lib/covered"], check=True)
    put("/usr/lib/covered/f", "there")
    h = who.call("bureau", "doctor")
    ok(h.code == 0 and health(h).get("overlay") == "less" and "/usr/lib/covered" in h.out, f"{who.name}: doctor sees a mount below /usr", h)
    r = who.run("-u", "root", "--", "sh", "-c", "cat /usr/lib/covered/f; echo; echo x >/usr/bin/new && cat /usr/bin/new; echo z >/usr/local/new && cat /usr/local/new; sudo id -u")
    ok(r.code == 0 and r.out == "there\nx\nz\n0\n", f"{who.name}: with a mount below /usr the rest of it can be written", r)
    r = who.run("--", "sh", "-c", "echo x >/usr/lib/new")
    ok(r.code != 0 and "Read-only" in r.err, f"{who.name}: and what holds the mount can't", r)
    subprocess.run(["umount", "/usr/lib/covered"], check=True)


def check_mount(who):
    folder = f"/srv/share-{who.uid}-{int(who.delegated)}"
    os.mkdir(folder)
    os.chown(folder, who.uid, who.uid)
    put(folder + "/in", "hello")
    r = who.run("--mount", folder + ":/work", "--workdir", "/work", "--", "sh", "-c", "cat in && echo made >out && stat -c %U out")
    st = os.stat(folder + "/out") if os.path.exists(folder + "/out") else None
    want = who.uid or 0
    ok(r.code == 0 and r.out.startswith("hello") and st and st.st_uid == want, f"{who.name}: a mounted folder is read and written as its owner", f"{r} {st}")
    if not who.uid and KERNEL < (6, 3):
        put("/tmp/on-tmpfs", "seen")
        r = who.run("--mount", "/tmp/on-tmpfs:/f", "--", "sh", "-c", "cat /f && stat -c %U /f && echo x >/f")
        ok(r.code != 0 and r.out == "seennobody\n", f"{who.name}: what is on tmpfs belongs to nobody inside, as doctor says", r)
    r = who.run("--mount", folder + ":/work:ro", "--", "sh", "-c", "cat /work/in; echo x >/work/no")
    ok(r.code != 0 and "Read-only" in r.err and not os.path.exists(folder + "/no"), f"{who.name}: a read-only mount can't be written", r)


SMALL = "/tmp/small/templates/small/current/rootfs"


def make_template():
    """A shell and cat, no users, on tmpfs: before Linux 6.3 a file system that can't be idmapped."""
    os.makedirs(SMALL + "/usr/bin")
    for name in ("bin", "lib", "lib64"):
        os.symlink("usr/" + name, f"{SMALL}/{name}")
    for path in ("/usr/bin/sh", "/usr/bin/cat", "/usr/bin/id", "/lib64/ld-linux-x86-64.so.2"):
        subprocess.run(["sh", "-c", 'for f in "$1" $(ldd "$1" | grep -o "/lib[^ ]*"); do d="$2/usr/${f#/}"; d="$2/usr/$(echo "${f#/}" | sed "s,^usr/,,")"; '
                        'mkdir -p "${d%/*}"; cp -L "$f" "$d"; done', "sh", path, SMALL], check=True, stderr=subprocess.DEVNULL)


def check_template(who):
    r = who.run("-t", "small", "--state", "/tmp/small", "--", "sh", "-c", "id -u; echo kept >/tmp/f && cat /tmp/f")
    ok(r.code == 0 and r.out == "0\nkept\n", f"{who.name}: a template on tmpfs", r)


EAT = "b=[]\nfor i in range(120): b.append(bytearray(b'x')*(1<<20))"
FORK = """import os, signal
made = []
try:
    while len(made) < 400:
        p = os.fork()
        if p == 0:
            signal.pause()
        made.append(p)
except OSError as e:
    print(len(made), e.errno)
for p in made:
    os.kill(p, signal.SIGKILL)"""


def check_limits(who, limited):
    r = who.run("--memory", "48M", "--", "python3", "-c", EAT)
    if limited:
        ok(r.code == 137 and "memory limit of 48.0 MiB" in r.err, f"{who.name}: over its memory limit: 137 and why", r)
    else:
        ok(r.code == 0 and "--memory can't be enforced" in r.err, f"{who.name}: says that memory can't be limited", r)
    r = who.run("--memory", "48M", "--", "sh", "-c", f"python3 -c \"$1\"; echo child $?; exit 3", "sh", EAT)
    if limited:
        ok(r.code == 3 and "child 137" in r.out, f"{who.name}: a child over the limit ends alone", r)
    r = who.run("--pids", "24", "--", "python3", "-c", FORK)
    n = r.out.split()[:1]
    ok(n and n[0].isdigit() and 10 <= int(n[0]) <= 24, f"{who.name}: no more processes than --pids", r)
    # work done beside one without a limit, not time: to this kernel, what the host takes from its machine counts as used
    t = "import time\ne=time.monotonic()+3\nn=0\nwhile time.monotonic()<e: n+=1\nprint(n)"
    free = []
    other = threading.Thread(target=lambda: free.append(who.run("--", "python3", "-c", t)))
    other.start()
    r = who.run("--cpus", "0.25", "--", "python3", "-c", t)
    other.join()
    if limited:
        ok(r.code == 0 and free[0].code == 0 and int(r.out) * 2 < int(free[0].out), f"{who.name}: a quarter of a processor", f"{r}\nwithout a limit: {free[0]}")
    else:
        ok(r.code == 0 and "--cpus can't be enforced" in r.err, f"{who.name}: says that cpu can't be limited", r)
    r = who.run("--disk", "4M", "--", "sh", "-c", "head -c 8000000 /dev/zero >/tmp/x; a=$?; head -c 8000000 /dev/zero >~/y; exit $((a * 2 + $?))")
    ok(r.code == 3 and r.err.count("No space left") == 2, f"{who.name}: no more on disk than --disk", r)


def check_net(who):
    get_url = "import socket;s=socket.create_connection(('%s',8000),20);s.sendall(b'hi\\n');print(s.recv(100).decode())"
    r = who.run("--net", "all", "--allow", "10.9.9.0/24", "--", "python3", "-c", get_url % "10.9.9.1")
    ok(r.code == 0 and "from the door's side" in r.out, f"{who.name}: --net all reaches a server by its address", r)
    r = who.run("--net", "all", "--allow", "10.9.9.0/24", "--resolver", "10.9.9.1", "--", "python3", "-c", get_url % "srv.example.com")
    ok(r.code == 0 and "from the door's side" in r.out, f"{who.name}: and by its name", r)
    r = who.run("--net", "all", "--", "python3", "-c", get_url % "10.9.9.1")
    ok(r.code != 0 and "10.9.9.1" in r.err and "refused" in r.err, f"{who.name}: a private address is refused unless allowed", r)
    r = who.run("--", "python3", "-c", get_url % "10.9.9.1")
    ok(r.code != 0 and "unreachable" in r.err, f"{who.name}: without --net nothing is reached", r)


NET = r"""
import socket, struct, threading
def dns():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("10.9.9.1", 53))
    while True:
        q, peer = s.recvfrom(512)
        at = q.index(b"\0", 12) + 1
        a = q[at:at + 2] == b"\0\1"
        s.sendto(q[:2] + struct.pack(">HHHHH", 0x8180, 1, int(a), 0, 0) + q[12:at + 4] +
                 (b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + bytes([10, 9, 9, 1]) if a else b""), peer)
threading.Thread(target=dns, daemon=True).start()
listening = socket.create_server(("10.9.9.1", 8000))
while True:
    c, _ = listening.accept()
    if c.recv(100):
        c.sendall(b"from the door's side")
    c.close()
"""


def net_server():
    subprocess.run(["ip", "addr", "add", "10.9.9.1/24", "dev", "lo"], check=True)
    p = subprocess.Popen([sys.executable, "-c", NET])
    probe = "import socket; socket.create_connection(('10.9.9.1',8000),1)"
    wait_for(lambda: subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL, check=False).returncode == 0)
    return p


# ---- the server ----

def pids_of(name, uid):
    found = []
    for d in os.listdir("/proc"):
        try:
            if d.isdigit() and os.stat(f"/proc/{d}").st_uid in (uid, 0) and name in get(f"/proc/{d}/cmdline").split("\0")[0]:
                found.append(int(d))
        except OSError:
            pass
    return found


def check_clock(who, cli):
    """This machine's clock is ours to set: no sandbox ends or lives on for it."""
    box = cli("sandbox", "create", "--timeout", "1h").out.strip()

    def left():
        r = cli("sandbox", "show", box, "--json")
        m = re.search(r'"ends_at": ?(\d+)', r.out) if re.search(r'"state": ?"running"', r.out) else None
        return int(m.group(1)) / 1000 - time.time() if m else None

    ok(left() and 3400 < left() <= 3600, f"{who.name}: an hour is left", left())
    for days in (1, -3, 2):
        time.clock_settime(time.CLOCK_REALTIME, time.time() + days * 86400)
        ok(wait_for(lambda: left() and 3000 < left() <= 3600, 5), f"{who.name}: the clock is set by {days} days: an hour is left", left())
    e = cli("sandbox", "exec", box, "--", "echo", "there")
    ok(e.out == "there\n", f"{who.name}: and it's there", e)
    short = cli("sandbox", "create", "--timeout", "4s").out.strip()
    time.clock_settime(time.CLOCK_REALTIME, time.time() - 3600)
    ok(short and wait_for(lambda: cli("sandbox", "exec", short, "--", "true").code == 125, 30), f"{who.name}: four seconds are over on a clock that went back", short)
    time.clock_settime(time.CLOCK_REALTIME, time.time() + 3600)
    cli("sandbox", "kill", box)


def check_server(who, limited):
    state = f"/tmp/state-{who.uid}-{int(who.delegated)}"
    serve = who.start("bureau", "serve", "--state", state, "--listen", "127.0.0.1:0", "--pool", "1")
    if not ok(wait_for(lambda: os.path.exists(state + "/server.json") or serve.poll() is not None) and serve.poll() is None, f"{who.name}: bureau serve starts",
              serve.stderr.read() if serve.poll() is not None else "no server.json"):
        serve.kill()
        return

    def cli(*argv):
        return who.call("bureau", *argv, BUREAU_STATE=state)

    c = cli("sandbox", "create", "--memory", "64M", "--cpus", "1", "--pids", "30")
    box = c.out.strip()
    ok(c.code == 0 and box, f"{who.name}: sandbox create", c)
    e = cli("sandbox", "exec", box, "--", "sh", "-c", "echo $((6*7)); exit 5")
    ok(e.code == 5 and e.out == "42\n", f"{who.name}: sandbox exec", e)
    m = cli("sandbox", "metrics", box)
    ok(m.code == 0, f"{who.name}: sandbox metrics", m)
    if limited:
        e = cli("sandbox", "exec", box, "--", "python3", "-c", EAT)
        ok(e.code == 137, f"{who.name}: a program over its computer's memory ends alone", e)
        e = cli("sandbox", "exec", box, "--", "python3", "-c", FORK)
        ok(e.out.split()[:1] and int(e.out.split()[0]) < 30, f"{who.name}: and no more processes than asked for", e)
    cli("sandbox", "exec", box, "--", "sh", "-c", "echo kept >/tmp/f")
    old = pids_of("bureau-keeper", who.uid)
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    ok(old and wait_for(lambda: [p for p in pids_of("bureau-keeper", who.uid) if p not in old]), f"{who.name}: a killed keeper is started again", old)
    e = cli("sandbox", "exec", box, "--", "cat", "/tmp/f")
    ok(e.code == 0 and e.out == "kept\n", f"{who.name}: its computers are still there", e)
    c = cli("sandbox", "create")
    ok(c.code == 0, f"{who.name}: and new ones are made", c)
    if not who.uid:
        check_clock(who, cli)
    k = cli("sandbox", "kill", box, c.out.strip() or box)
    ok(k.code == 0, f"{who.name}: sandbox kill, one of them adopted", k)
    serve.send_signal(signal.SIGTERM)
    try:
        out, err = serve.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        serve.kill()
        out, err = serve.communicate()
    ok(serve.returncode == 0, f"{who.name}: the server ends well", err)
    ok(wait_for(lambda: not pids_of("bureau-", who.uid)), f"{who.name}: no process of it is left", pids_of("bureau-", who.uid))


def main():
    started = time.monotonic()
    only = re.search(r"bureau\.only=(\S+)", get("/proc/cmdline"))
    parts = only.group(1).split(",") if only else ["modules", "run", "limits", "net", "server"]
    lay_out()
    os.makedirs("/usr/lib/a-folder", exist_ok=True)
    put("/usr/lib/a-folder/f", "old")
    put("/proc/sys/kernel/modprobe", B + "modprobe")
    print(f"# Linux {os.uname().release}; {get('/proc/uptime').split()[0]} s to boot", flush=True)

    def lap(text):
        left = wait_for(lambda: None if ours() else "none") and ours()
        if left:
            ok(False, f"{text}: no control group is left", left)
        print(f"# {time.monotonic() - started:.0f} s: {text}", flush=True)

    if "modules" in parts:
        without_modules()
        switched_off()
        lap("without modules")
    net = net_server()
    make_template()
    for who in [ROOT] + USERS:
        limited = not who.uid or who.delegated
        h = who.call("bureau", "doctor")
        seen = health(h)
        ok(h.code == 0 and seen.get("limits") == ("ok" if limited else "less"), f"{who.name}: doctor tells the truth about limits", h)
        ok(all(seen.get(k) == "ok" for k in ("namespaces", "proc", "network", "seccomp")) and seen.get("overlay") == ("ok" if KERNEL >= (6, 6) else "note") and
           seen.get("idmapped mounts") == ("ok" if not who.uid and KERNEL >= (6, 3) else "note") and seen.get("user ids") == ("less" if who.uid == BARE else "ok"), f"{who.name}: and about the rest", h)
        if "run" in parts:
            check_basics(who)
            check_mount(who)
            check_template(who)
            if who.uid == GRANTED and not who.delegated:
                check_submount(who)
            lap(f"{who.name}: run")
        if "limits" in parts:
            check_limits(who, limited)
            lap(f"{who.name}: limits")
        if "net" in parts and who.uid in (0, GRANTED):
            check_net(who)
            lap(f"{who.name}: network")
        if "server" in parts and (not who.uid or who.delegated == (who.uid == GRANTED)):
            check_server(who, limited)
            lap(f"{who.name}: server")
    net.kill()
    ok(not ours(), "no control group of ours is left anywhere", ours())
    print(f"1..{count}\n# {time.monotonic() - started:.0f} s", flush=True)
    return bad != 0


sys.exit(main())
