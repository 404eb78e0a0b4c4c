#!/usr/bin/env python3
"""What each of our processes has given up by the time it serves, read from outside; who may read which file of a server; where its key is
not; and what the small programs are linked with. As root and as a plain user."""
import json, os, re, shutil, signal, stat, subprocess, sys, tempfile, time
from lab import BUILD, done, modes, ok, skip

# What root inside a computer may have, and what the keeper may: src/isolate/caps.c says why.
COMPUTER = {"chown": 0, "dac_override": 1, "fowner": 3, "fsetid": 4, "kill": 5, "setgid": 6, "setuid": 7, "net_bind_service": 10, "sys_chroot": 18,
            "audit_write": 29, "setfcap": 31}
KEEPER = {"chown": 0, "dac_override": 1, "fowner": 3, "kill": 5, "setgid": 6, "setuid": 7, "net_admin": 12, "sys_ptrace": 19, "sys_admin": 21,
          "sys_resource": 24, "setfcap": 31}


def mask(caps):
    return sum(1 << c for c in caps.values())


def children(pid):
    return [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def status(pid):
    lines = dict(l.split(":\t", 1) for l in open(f"/proc/{pid}/status").read().splitlines() if ":\t" in l)
    return {k: lines[k].split()[0] if lines[k].split() else "" for k in ("Name", "Uid", "NoNewPrivs", "Seccomp", "CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")}


def link_sets():
    """The programs that touch the kernel hold no name resolution, no TLS, no SQL, no JSON, no compression, no shell."""
    banned = re.compile(r"(getaddrinfo|gethostby\w+|res_\w+|system|popen|dlopen|execlp|execvp\w*|SSL_\w+|EVP_\w+|sqlite3_\w+|json_(?!pair$)\w+|curl_\w+|inflate\w*|deflate\w*|http_\w+)")
    for p in ("bureau-keeper", "bureau-guest", "bureau-door"):
        r = subprocess.run(["nm", "--defined-only", os.path.join(BUILD, p)], capture_output=True, text=True)
        names = {l.split()[-1] for l in r.stdout.splitlines() if len(l.split()) == 3 and l.split()[1] in "TtWw"}
        if len(names) < 100:
            skip(f"{p} has no symbols: {r.stderr.strip()[:80]}")
            continue
        found = sorted(x for x in names if banned.fullmatch(x))
        if os.path.exists(os.path.join(BUILD, "sanitize-probe")):
            skip(f"{p}: a sanitized one is linked with all that the sanitizers want")
            continue
        r = subprocess.run(["readelf", "-lW", os.path.join(BUILD, p)], capture_output=True)
        ok(r.returncode == 0 and b"LOAD" in r.stdout and b"INTERP" not in r.stdout, f"{p}: is static: what isn't linked in can't come later", r.stdout)
        ok(not found, f"{p}: nothing is linked in that it must not have", found)


class Server:
    def __init__(self, prefix, uid):
        self.state = tempfile.mkdtemp(prefix="bureau-processes-")
        os.chmod(self.state, 0o755)
        os.chown(self.state, uid, uid)
        self.prefix, self.env = prefix, {"PATH": os.environ["PATH"], "HOME": self.state, "BUREAU_STATE": self.state}
        self.read, write = os.pipe()
        os.set_inheritable(write, True)          # as a script's pipe would be
        self.cli("serve", "--detach", "--listen", "127.0.0.1:0", "--pool", "1", pass_fds=(write,))
        os.close(write)
        self.pid = json.load(open(self.state + "/server.json"))["pid"]
        self.key = open(self.state + "/api-key").read().strip()

    def cli(self, *args, **kw):
        return subprocess.run(self.prefix + [os.path.join(BUILD, "bureau"), *args], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              text=True, timeout=60, check=True, **kw).stdout

    def pids(self):
        out = {"bureau-serve": self.pid}
        for p in children(self.pid):
            out.setdefault(status(p)["Name"], p)
        out["bureau-guest"] = children(out["bureau-keeper"])[0]
        return out


def confined(who, s, uid, ranges):
    pids = s.pids()
    for name in ("bureau-serve", "bureaud", "bureau-keeper", "bureau-door", "bureau-guest"):
        if not ok_there(who, name, pids):
            continue
        st = status(pids[name])
        ok(st["NoNewPrivs"] == "1" and st["Seccomp"] == "2", f"{who}: {name}: no new privileges, and a filter", st)
        eff = int(st["CapEff"], 16) | int(st["CapPrm"], 16)
        may = {"bureaud": 0, "bureau-door": 0, "bureau-guest": mask(COMPUTER), "bureau-keeper": mask(KEEPER)}.get(name, 0 if uid else mask(KEEPER))
        ok(not eff & ~may and not int(st["CapAmb"], 16) and not int(st["CapInh"], 16), f"{who}: {name}: no other capability", st)
        if name in ("bureau-keeper", "bureau-serve") and (not uid or name == "bureau-keeper" and ranges):
            ok(not int(st["CapBnd"], 16) & ~mask(KEEPER), f"{who}: {name}: nor could it get one", st)
        if name != "bureau-guest":               # inside, PID 1's memory: computer.t
            ok(os.stat(f"/proc/{pids[name]}/mem").st_uid == 0, f"{who}: {name}: its memory is nobody else's", os.stat(f"/proc/{pids[name]}/mem").st_uid)
    if uid == 0:
        uids = [status(pids[p])["Uid"] for p in ("bureaud", "bureau-door", "bureau-guest")]
        ok("0" not in uids and len(set(uids)) == 3, f"{who}: bureaud, door and guests are three users, none of them root", uids)
    elif ranges:
        ok(status(pids["bureau-guest"])["Uid"] not in ("0", str(uid)), f"{who}: computers have ids of the granted range", status(pids["bureau-guest"]))


def ok_there(who, name, pids):
    if name in pids:
        return True
    ok(False, f"{who}: {name} runs", pids)
    return False


def inside(who, s, ranges):
    id = json.loads(s.cli("sandbox", "create", "--template", "host", "--json"))["id"]
    got = s.cli("sandbox", "exec", id, "--", "sh", "-c", "id -u; sudo id -u")
    ok(got.split() == (["1000", "0"] if ranges else ["0", "0"]), f"{who}: a sandbox of the server has the ids it should", got)
    s.cli("sandbox", "kill", id)


FORKS = "import os, time\nkids = []\ntry:\n while len(kids) < 120:\n  p = os.fork()\n  if p == 0: time.sleep(60); os._exit(0)\n  kids.append(p)\nexcept OSError: pass\nfor p in kids: os.kill(p, 9)\nprint(len(kids))"
BUSY = "import time\nt = time.monotonic()\nwhile time.process_time() < 0.4: pass\nprint(time.monotonic() - t)"


def limits(who, s):
    """Each limit either holds, or create, status, the command line and doctor say that it can't be had."""
    p = subprocess.run([*s.prefix, os.path.join(BUILD, "bureau"), "sandbox", "create", "--template", "host", "--net", "none", "--memory", "64M", "--cpus", "0.2", "--pids", "40", "--disk", "8M",
                        "--json"], env=s.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    box = json.loads(p.stdout)
    lack, id = box["unenforced"], box["id"]
    ok(set(json.loads(s.cli("status", "--json"))["unenforced"]) == set(lack), f"{who}: a sandbox and the server say the same of what can't be limited", lack)
    checks = subprocess.run([*s.prefix, os.path.join(BUILD, "bureau"), "doctor", "--json"], env=s.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    said = next(c for c in json.loads(checks.stdout)["checks"] if c["name"] == "limits")
    ok(all(l in said["detail"] for l in lack) and (said["health"] != "ok" and said["fix"] if lack else said["health"] == "ok"), f"{who}: so does doctor", (lack, said))
    told = subprocess.run([*s.prefix, os.path.join(BUILD, "bureau"), "run", "--memory", "64M", "--cpus", "0.2", "--", "true"], env=s.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)
    ok(told.returncode == 0 and [o for o in ("memory", "cpu") if f"--{o}" in told.stderr] == [l for l in ("memory", "cpu") if l in lack], f"{who}: and bureau run", told.stderr)
    py = lambda text: subprocess.run([*s.prefix, os.path.join(BUILD, "bureau"), "sandbox", "exec", id, "--", "python3", "-c", text], env=s.env, stdin=subprocess.DEVNULL,
                                     capture_output=True, text=True, timeout=60)
    r = py(FORKS)
    ok("pids" in lack or r.stdout.strip().isdigit() and int(r.stdout) < 40, f"{who}: pids: forks fail at the limit, or it is said", (lack, r))
    r = py("x = bytearray(200 << 20)")
    ok(r.returncode == 0 if "memory" in lack else r.returncode == 137 and "memory" in r.stderr, f"{who}: memory: its end says why, or it is said", (lack, r))
    r = py(BUSY)
    ok("cpu" in lack or float(r.stdout) > 1.2, f"{who}: cpu: it takes its time, or it is said", (lack, r))
    r = py("open('/tmp/x', 'wb').write(bytes(20 << 20))")
    ok("disk" not in lack and "No space left" in r.stderr, f"{who}: disk: it is full, and says so", (lack, r))
    s.cli("sandbox", "kill", id)


def another_keeper(who, s, ranges):
    """newuidmap can't run any more: the next keeper has the ids all the same, with no computer to have them from."""
    old = s.pids()["bureau-keeper"]
    for g in children(old):                      # the pool's: whose ids it could join
        os.kill(g, signal.SIGKILL)
    os.kill(old, signal.SIGKILL)
    end = time.monotonic() + 30
    while time.monotonic() < end and old in children(s.pid):
        time.sleep(0.02)
    inside(who + ", another keeper", s, ranges)


def files(who, s):
    wrong = []
    for d, dirs, names in os.walk(s.state):
        for f in names + dirs:
            st = os.lstat(os.path.join(d, f))
            if stat.S_ISDIR(st.st_mode):
                continue
            if st.st_mode & 0o077:
                wrong.append((os.path.join(d, f), oct(st.st_mode)))
    ok(not wrong, f"{who}: no file or socket of the state folder is open to others", wrong)
    closed = [os.stat(os.path.join(s.state, d)).st_mode & 0o7777 for d in ("store", "keeper", "run")]
    ok(closed == [0o700, 0o700, 0o711], f"{who}: and its folders can't be listed", [oct(m) for m in closed])


def secret(who, s):
    seen = [f for f in ("server.log", "audit/audit.log", "server.json") if s.key in open(os.path.join(s.state, f), errors="replace").read()]
    ok(not seen and re.fullmatch(r"e2b_[0-9a-f]{40}", s.key), f"{who}: the key is in no log", seen)
    seen = [(p, f) for p in s.pids().values() for f in ("cmdline", "environ") if s.key.encode() in open(f"/proc/{p}/{f}", "rb").read()]
    ok(not seen, f"{who}: nor in a command line or an environment", seen)


def lets_go(who, s):
    os.set_blocking(s.read, False)
    try:
        left = os.read(s.read, 1)
    except BlockingIOError:
        left = "held"
    os.close(s.read)
    ok(left == b"", f"{who}: a detached server holds no descriptor of whoever started it", left)


def found(who, prefix, uid):
    """Without BUREAU_STATE a plain user's server and its clients meet in XDG_STATE_HOME, else in the home folder; or by URL and key."""
    home = tempfile.mkdtemp(prefix="bureau-processes-")
    os.chown(home, uid, uid)
    path = {"PATH": os.environ["PATH"]}
    run = lambda env, *a: subprocess.run([*prefix, os.path.join(BUILD, "bureau"), *a], env={**path, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    try:
        for env, folder in (({"HOME": "/nonexistent", "XDG_STATE_HOME": home + "/x"}, "x/bureau"), ({"HOME": home}, ".local/state/bureau")):
            started = run(env, "serve", "--detach", "--listen", "127.0.0.1:0", "--pool", "0")
            key = os.path.join(home, folder, "api-key")
            try:
                there = os.path.exists(key) and oct(os.stat(key).st_mode & 0o777) == "0o600"
                ok(there and run(env, "api-key").stdout.strip() == open(key).read().strip() and run(env, "sandbox", "list", "--json").stdout.strip() == "[]",
                   f"{who}: server and clients meet in {folder}", started)
                url, value = json.load(open(os.path.join(home, folder, "server.json")))["url"], open(key).read().strip()
                away = {"HOME": "/nonexistent", "XDG_STATE_HOME": home + "/none", "BUREAU_API_KEY": value}
                got = [run({**away, "BUREAU_URL": url}, "status", "--json"), run(away, "status", "--json", "--server", url), run(away, "sandbox", "list", "--server", url)]
                ok(not any(g.returncode for g in got) and run({**away, "BUREAU_API_KEY": "e2b_0"}, "status", "--server", url).returncode == 4, f"{who}: or by URL and key", got)
            finally:
                stopped = run(env, "stop")
            ok(stopped.returncode == 0, f"{who}: and stop finds it", stopped)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def one(who, prefix, uid, ranges):
    s = Server(prefix, uid)
    try:
        lets_go(who, s)
        inside(who, s, ranges)
        limits(who, s)
        confined(who, s, uid, ranges)
        files(who, s)
        secret(who, s)
        another_keeper(who, s, ranges)
    finally:
        s.cli("stop")
        shutil.rmtree(s.state)


if os.geteuid() != 0:
    print("1..0 # SKIP needs root, to look into processes that nobody else may look into")
    sys.exit(0)
link_sets()
for m in modes():
    one(m.name, m.prefix, m.uid, m.ids)
    if m.uid:
        found(m.name, m.prefix, m.uid)
done()
