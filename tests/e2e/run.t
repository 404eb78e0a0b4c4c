#!/usr/bin/env python3
"""bureau run, end to end: descriptors, exit codes, limits, mounts, terminals, signals, the network, and that nothing is left
behind however it ends. As root also once more as a plain user (BUREAU_RUN_AS, set by itself)."""
import json, os, pty, re, select, shutil, signal, socket, subprocess, sys, tempfile, termios, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUREAU_BUILD") or os.path.join(HERE, "../../build"))
BUREAU = os.path.join(BUILD, "bureau")
n = bad = 0
TEST_USER = "bureau-test"
ROOT = os.geteuid() == 0


def ok(good, text, more=""):
    global n, bad
    n += 1
    bad += not good
    print(f"{'' if good else 'not '}ok {n} - {text}", flush=True)
    if not good and more != "":
        print("# " + str(more).replace("\n", "\n# "), flush=True)
    return good


def skip(text, why):
    global n
    n += 1
    print(f"ok {n} - {text} # SKIP {why}", flush=True)


def run(*args, stdin=b"", timeout=60, env=None):
    p = subprocess.run([BUREAU, "run", *args], input=stdin, capture_output=True, timeout=timeout, env=env)
    return p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")


def until(what, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        got = what()
        if got:
            return got
        time.sleep(0.02)
    return what()


def processes(mark):
    """Pids of programs whose command line holds mark."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if mark.encode() in f.read() and int(pid) != os.getpid():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def children(pid):
    out = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                    out.append(int(p))
        except OSError:
            pass
    return out


def health(name):
    checks = json.loads(subprocess.run([BUREAU, "doctor", "--json"], capture_output=True, text=True).stdout)["checks"]
    return next(c["health"] for c in checks if c["name"] == name)


def basics(tmp):
    c, o, e = run("--", "echo", "hello")
    ok((c, o, e) == (0, "hello\n", ""), "output passes through", (c, o, e))
    c, o, e = run("--", "sh", "-c", "cat; echo err >&2; exit 7", stdin=b"in\n")
    ok((c, o, e) == (7, "in\n", "err\n"), "input, error output and the exit code too", (c, o, e))
    big = os.urandom(3_000_000)
    p = subprocess.run([BUREAU, "run", "--", "cat"], input=big, capture_output=True)
    ok(p.stdout == big, "three megabytes, byte for byte")
    c, o, e = run("--", "sh", "-c", "kill -9 $$")
    ok(c == 137 and "memory" not in e, "128 + the signal", (c, e))
    ok(run("--", "sh", "-c", "kill -TERM $$")[0] == 143, "of whatever kind")
    c, o, e = run("--", "no-such-program")
    ok(c == 127 and "no-such-program" in e, "127: no such program", (c, e))
    c, o, e = run("--", "/etc/passwd")
    ok(c == 126 and "/etc/passwd" in e, "126: can't be run", (c, e))
    c, o, e = run("--workdir", "/nowhere", "--", "true")
    ok(c == 125 and "/nowhere" in e, "125: no such workdir", (c, e))
    ok(run("--workdir", "/tmp", "--", "pwd")[1] == "/tmp\n" and run("--", "pwd")[1] == "/home/user\n", "workdir, and the home folder without it")
    ok(run("--env", "A=b c", "-e", "HOME=/tmp", "--", "sh", "-c", "echo $A $HOME")[1] == "b c /tmp\n", "variables")
    ok(run("-e", "PASSED", "--", "sh", "-c", "echo $PASSED", env={**os.environ, "PASSED": "on"})[1] == "on\n", "passed on by name")
    o = run("--", "env", env={**os.environ, "SECRET_THING": "x"})[1]
    ok("SECRET_THING" not in o, "and nothing else of ours", o)
    ok(run("--", "id", "-un")[1] == ("user\n" if health("user ids") == "ok" else "root\n") and run("--user", "root", "--", "id", "-u")[1] == "0\n", "as user, or as root inside")
    ok(run("--user", "nobody-here", "--", "true")[0] in (125, 126), "an unknown user is refused")
    ok(run("--name", "box1", "--", "hostname")[1] == "box1\n", "its name")
    c, o, e = run("--", "sh", "-c", "ls -a / /home /root 2>/dev/null; cat /etc/shadow; ls /proc | grep -c '^[0-9]'")
    ok("work" not in o.split() and tmp.strip("/").split("/")[0] in ("tmp",) and "No such file" in e, "nothing of this machine's files but /usr", (o, e))
    ok(int(o.split()[-1]) < 8, "nor of its processes", o)
    c, o, e = run("--", "sh", "-c", "ls -l /proc/self/fd | wc -l")
    ok(int(o) <= 6, "no descriptor but 0, 1 and 2", o)
    p = subprocess.run([BUREAU, "run", "--", "true"], stdin=os.open("/", os.O_RDONLY), capture_output=True, text=True)
    ok(p.returncode == 125 and "folder" in p.stderr, "a folder as stdin is refused: it would be a way out", p.stderr)
    p = subprocess.run(["sh", "-c", f"exec {BUREAU} run -- sh -c 'cat; echo done >&2' <&- >&-"], capture_output=True, text=True)
    ok(p.returncode == 0 and p.stderr == "done\n", "closed stdin and stdout are /dev/null", p.stderr)


def usage():
    c, o, e = run("--memry", "1G", "--", "true")
    ok(c == 2 and "--memory" in e, "an unknown option: the nearest one is named", e)
    for option in ("-it", "--tty", "--rm"):
        c, o, e = run(option, "--", "true")
        ok(c == 2 and "leave it out" in e, f"{option}, which other tools want, isn't needed", e)
    ok(run()[0] == 2, "nothing to run")
    ok(run("--help")[0] == 0 and "Examples" in run("--help")[1], "help has examples")
    ok(run("--mount", "x", "--", "true")[0] == 2 and run("--mount", "/nope-nope:/x", "--", "true")[0] == 2, "bad mounts")
    ok(run("--memory", "lots", "--", "true")[0] == 2 and run("--timeout", "x", "--", "true")[0] == 2 and run("--cpus", "0", "--", "true")[0] == 2, "bad limits")
    c, o, e = run("-t", "nosuch", "--state", "/tmp", "--", "true")
    ok(c == 125 and "template build ./nosuch.recipe" in e, "a template that isn't there: how to make it", e)
    p = subprocess.run([BUREAU, "rnu"], capture_output=True, text=True)
    ok(p.returncode == 2 and "bureau run" in p.stderr, "an unknown word: the nearest one is named", p.stderr)
    p = subprocess.run([BUREAU, "--help"], capture_output=True, text=True)
    ok(p.returncode == 0 and "doctor" in p.stdout and "Examples" in p.stdout, "help")
    ok(subprocess.run([BUREAU], capture_output=True).returncode == 2, "no word at all: help, and 2")
    ok(re.match(r"bureau \d+\.\d+", subprocess.run([BUREAU, "--version"], capture_output=True, text=True).stdout), "version")
    p = subprocess.run([BUREAU, "doctor", "--json"], capture_output=True, text=True)
    d = json.loads(p.stdout)
    ok(d["ready"] is (p.returncode == 0) and {"name", "health", "required", "detail", "fix"} <= set(d["checks"][0]), "doctor --json")
    ok(p.returncode == 0, "doctor: sandboxes can run here", p.stdout)


def limits():
    t = time.monotonic()
    c, o, e = run("--timeout", "400ms", "--", "sh", "-c", "sleep 30 & sleep 30")
    ok(c == 124 and "timeout" in e and time.monotonic() - t < 5, "a timeout: 124, and a line", (c, e))
    c, o, e = run("--memory", "48M", "--", "python3", "-c", "x = bytearray(300 << 20)")
    if "can't be enforced" in e:
        skip("memory", "no control group for it here")
    else:
        ok(c == 137 and "memory limit of 48.0 MiB" in e, "memory: 137, and a line", (c, e))
    c, o, e = run("--disk", "8M", "--", "sh", "-c", "head -c 20000000 /dev/zero >/tmp/x; echo $?; ls -l /tmp/x | awk '{print $5}'")
    ok("No space left" in e and int(o.split()[1]) <= 8 << 20, "disk: no space left", (o, e))
    size = "import os; s = os.statvfs('/tmp'); print(s.f_frsize * s.f_blocks, s.f_files)"
    memory = int(re.search(r"MemTotal:\s+(\d+)", open("/proc/meminfo").read()).group(1)) << 10
    c, o, e = run("--", "python3", "-c", size)
    ok(abs(int(o.split()[0]) - min(memory // 4, 2 << 30)) < 64 << 20 and int(o.split()[1]) <= 500000 and not e, "disk: a quarter of the memory, 2 GiB at most, when nobody says", (o, e, memory))
    c, o, e = run("--memory", "64M", "--", "python3", "-c", size)
    ok(int(o.split()[0]) == 32 << 20, "disk: half of --memory", (o, e))
    c, o, e = run("--disk", "0", "--", "python3", "-c", size)
    ok(int(o.split()[0]) >= memory // 2 - (64 << 20) and not e, "disk: 0 is the kernel's own", (o, e))
    c, o, e = run("--disk", "1K", "--", "true")
    ok(c == 2 and "too little" in e, "disk: too little is refused", (c, e))
    c, o, e = run("--pids", "20", "--", "sh", "-c", "for i in $(seq 60); do sleep 5 & done; wait", timeout=60)
    ok(c != 0 or "fork" in e or "Resource" in e or "can't be enforced" in e, "pids: forks fail", (c, e[:300]))
    c, o, e = run("--cpus", "0.5", "--", "true")
    ok(c == 0, "cpus", (c, e))


def mounts(tmp):
    src = os.path.join(tmp, "src")
    os.mkdir(src)
    os.chmod(src, 0o755)
    with open(os.path.join(src, "file"), "w") as f:
        f.write("mine\n")
    c, o, e = run("--mount", f"{src}:/data", "--", "sh", "-c", "cat /data/file; echo new >/data/new; stat -c %U /data/file")
    ok(o.split()[:1] == ["mine"] and os.path.exists(os.path.join(src, "new")), "a folder is seen and written", (c, o, e))
    if os.path.exists(os.path.join(src, "new")):
        ok(os.stat(os.path.join(src, "new")).st_uid == os.geteuid(), "what is written there is the caller's", os.stat(os.path.join(src, "new")))
    c, o, e = run("--mount", f"{src}:/data:ro", "--", "sh", "-c", "cat /data/file; echo x >/data/x || echo refused")
    ok("refused" in o and not os.path.exists(os.path.join(src, "x")), "read-only is", (o, e))
    p = subprocess.run([BUREAU, "run", "--mount", ".:/w", "--workdir", "/w", "--", "ls"], capture_output=True, text=True, cwd=src)
    ok("file" in p.stdout, "a relative source, and workdir in it", p.stderr)
    c, o, e = run("--mount", f"{src}/file:/etc/one", "--", "cat", "/etc/one")
    ok(o == "mine\n", "a single file", e)


class Tty:
    """bureau run with a terminal on both sides."""

    def __init__(self, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(BUREAU, [BUREAU, "run", *args])
        self.out = bytearray()

    def expect(self, text, seconds=15):
        deadline, text, seen = time.monotonic() + seconds, text.encode(), 0
        while text not in self.out[seen:]:
            seen = max(0, len(self.out) - len(text))       # what was looked at isn't looked at again: megabytes may come
            if time.monotonic() > deadline or not self.read(0.1):
                return False
        return True

    def read(self, seconds):
        """What is there, or comes in time; False: its end."""
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                return False
            self.out += got
            return bool(got)
        return True

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self, seconds=15):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.expect("\0never", 0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while select.select([self.fd], [], [], 0)[0] and self.read(0):       # its last words
                    pass
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        return None


def terminals():
    t = Tty("--", "bash", "--norc", "-i")
    t.type("tty; echo $TERM; stty size; PS1='> '\n")
    ok(t.expect("/dev/pts/0") and t.expect("xterm-256color"), "a terminal of its own, and TERM", t.out)
    raw = termios.tcgetattr(t.fd)[3] & termios.ICANON == 0
    ok(raw, "ours is raw meanwhile")
    termios.tcsetwinsize(t.fd, (33, 101))
    os.kill(t.pid, signal.SIGWINCH)
    t.type("sleep 0.2; stty size\n")
    ok(t.expect("33 101"), "its size follows ours", t.out[-300:])
    t.type("sleep 100\n")
    t.expect("sleep 100")
    time.sleep(0.3)
    t.type("\x03")
    t.type("echo after-$((1+1))\n")
    ok(t.expect("after-2"), "Ctrl-C reaches the program, not us", t.out[-300:])
    t.type("sleep 100\n")
    time.sleep(0.3)
    t.type("\x1a")
    ok(t.expect("Stopped"), "Ctrl-Z and job control work", t.out[-300:])
    t.type("kill %1; exit 9\n")
    t.type("exit 9\n")
    ok(t.wait() == 9, "its exit code")
    t = Tty("--", "sh", "-c", "stty -echo raw; echo ready; sleep 100")
    t.expect("ready")
    os.kill(t.pid, signal.SIGTERM)
    code = t.wait()
    cooked = termios.tcgetattr(t.fd)[3] & termios.ICANON
    ok(code == 143 and cooked, "SIGTERM ends it, and the terminal is as it was", (code, cooked))
    t = Tty("--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end-of-it")
    seen = t.expect("end-of-it", 30)
    code = t.wait()
    ok(seen and t.out.count(b"x") == 3000000 and code == 0, "three megabytes through the terminal", (seen, t.out.count(b"x"), code))


def signals():
    signal.signal(signal.SIGINT, signal.default_int_handler)      # a background job's is ignored, and what it starts would ignore it too
    mark = f"bureau-mark-{os.getpid()}"
    for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        # not a shell: dash loses an interrupt that comes while it starts a program
        p = subprocess.Popen([BUREAU, "run", "--", "python3", "-c", "import time; print('up', flush=True); time.sleep(60)", mark], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        p.stdout.readline()
        p.send_signal(sig)
        ok(p.wait(15) == code, f"{sig.name} is passed on", p.returncode)
    r = subprocess.run(["sh", "-c", "trap '' HUP INT PIPE USR1 CHLD 34; exec \"$0\" run -- grep -E '^Sig(Blk|Ign)' /proc/self/status", BUREAU], capture_output=True, text=True)
    ok([int(x.split()[1], 16) for x in r.stdout.splitlines()] == [0, 0], "a program ignores and blocks none, whatever who called it ignored", r)
    p = subprocess.Popen([BUREAU, "run", "--", "sh", "-c", f"trap 'echo got; exit 3' USR1; echo up; while :; do sleep 0.1 || echo cut; done; : {mark}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.readline()
    p.send_signal(signal.SIGUSR1)
    said = p.communicate(timeout=15)
    ok((said, p.returncode) == ((b"got\n", b""), 3), "a program can handle it, and what it runs doesn't get it", (said, p.returncode))
    p = subprocess.Popen([BUREAU, "run", "--", "sh", "-c", f"trap '' TERM; echo up; sleep 60; sleep 60; sleep 60; sleep 60; sleep 60; : {mark}"], stdout=subprocess.PIPE)
    p.stdout.readline()
    for _ in range(6):
        p.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    ok(p.wait(15) == 143, "one that doesn't want to ends with the fourth")
    ok(until(lambda: not processes(mark)), "nothing of them is left", processes(mark))


def deaths():
    mark = f"bureau-death-{os.getpid()}"
    for who in ("bureau", "bureau-keeper", "bureau-guest"):
        p = subprocess.Popen([BUREAU, "run", "--", "sh", "-c", f"(sleep 300 & sleep 300; : {mark}) & echo up; sleep 300; : {mark}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.readline()
        keeper = [k for k in children(p.pid) if "keeper" in open(f"/proc/{k}/comm").read()]
        guest = [g for k in keeper for g in children(k)]
        victim = {"bureau": [p.pid], "bureau-keeper": keeper, "bureau-guest": guest}[who]
        ok(len(victim) == 1, f"{who} is running", victim)
        for v in victim:
            os.kill(v, 9)
        code = p.wait(15)
        ok(code == -9 if who == "bureau" else code in (125, 137), f"kill -9 of {who}: {code}", p.stderr.read())
        left = lambda: processes(mark) + [k for k in keeper + guest if os.path.exists(f"/proc/{k}") and "Z" not in open(f"/proc/{k}/stat").read().rsplit(")", 1)[1].split()[0]]
        ok(until(lambda: not left()), "and nothing is left", left())


def background(tmp):
    t = time.monotonic()
    c, o, e = run("--", "sh", "-c", "sleep 300 >/dev/null 2>&1 </dev/null & echo started")
    ok((c, o) == (0, "started\n") and time.monotonic() - t < 5, "the program's end is the end of what it left running", (c, o, e))
    before = set(os.listdir("/sys/fs/cgroup"))
    mounts_before = open("/proc/self/mountinfo").read()
    for _ in range(5):
        run("--memory", "64M", "--", "true")
    left = [d for d in set(os.listdir("/sys/fs/cgroup")) - before if "bureau" in d]
    ok(open("/proc/self/mountinfo").read() == mounts_before, "no mount is left on the host")
    ps = [subprocess.Popen([BUREAU, "run", "--", "sh", "-c", f"echo {i} >/tmp/me; sleep 0.2; cat /tmp/me"], stdout=subprocess.PIPE, text=True) for i in range(12)]
    ok([p.communicate()[0] for p in ps] == [f"{i}\n" for i in range(12)], "twelve at once, each with its own files")


def door_of(p):
    """The living door of this `bureau run`."""
    for k in children(p.pid):
        try:
            stat = open(f"/proc/{k}/stat").read()
        except OSError:
            continue
        if "(bureau-door)" in stat and stat.rsplit(")", 1)[1].split()[0] != "Z":
            return k


def door_dies():
    """It is started again and works; but not for ever. The program goes on in any case."""
    lines = []
    ask = "import socket, sys\nfor l in sys.stdin:\n s = socket.socket(); s.settimeout(20)\n try: s.connect(('10.1.2.3', int(l))); s.recv(1)\n except OSError: pass\n print('tried', flush=True)"
    p = subprocess.Popen([BUREAU, "run", "--net", "all", "--", "python3", "-c", ask], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t = threading.Thread(target=lambda: [lines.append(l.decode()) for l in p.stderr], daemon=True)
    t.start()

    def tried(port):
        p.stdin.write(f"{port}\n".encode())
        p.stdin.flush()
        p.stdout.readline()
        return until(lambda: any(f"refused: tcp 10.1.2.3:{port}" in l for l in lines), 0.3)

    def said(text, times=1):
        return until(lambda: sum(text in l for l in lines) >= times, 20)

    ok(tried(1000), "the door decides", lines)
    os.kill(door_of(p), signal.SIGKILL)
    ok(said("another one is started"), "a door that dies is told", lines)
    port = iter(range(1001, 2000))
    ok(until(lambda: tried(next(port)), 20), "and another one decides", lines)
    for i in range(2, 7):
        k = until(lambda: door_of(p))
        os.kill(k, signal.SIGKILL)
        ok(said("another one is started", i) if i < 6 else said("no network from here on"), f"death {i}: " + ("another one" if i < 6 else "enough"), lines)
    ok(door_of(p) is None and not tried(2000), "then there is none", lines)
    p.stdin.close()
    ok(p.wait(20) == 0 and len(lines) < 60, "and the program has ended by itself", (p.returncode, lines))
    t.join()


def network(tmp):
    c, o, e = run("--", "python3", "-c", "import socket; s = socket.socket(); s.settimeout(5)\ntry: s.connect(('1.1.1.1', 80)); print('out')\nexcept OSError as x: print('no')")
    ok(o == "no\n", "no network unless asked for", (o, e))
    srv = socket.create_server(("127.0.0.1", 0))
    port = srv.getsockname()[1]

    def serve():
        while True:
            s, _ = srv.accept()
            s.recv(1000)
            s.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nhi\n")
            s.close()

    threading.Thread(target=serve, daemon=True).start()
    get = f"import urllib.request as u\ntry: print(u.urlopen('http://%s:{port}/', timeout=20).read())\nexcept Exception as x: print('failed', x)"
    if health("network") != "ok":
        return skip("the door", "no nftables redirect on this host")
    for option, value in (("--allow", "nix"), ("--allow", "10.0.0.1/8"), ("--resolver", "dns.example")):
        c, o, e = run("--net", "all", option, value, "--", "echo", "ran")
        ok(c == 2 and o == "" and e.count("\n") == 2 and f"{option} '{value}': not an address" in e, f"{option} {value}: said before anything starts", (c, o, e))
    c, o, e = run("--net", "all", "--allow", "127.0.0.2/32", "--", "python3", "-c", get % "127.0.0.2")
    ok("failed" in o, "the computer's loopback is its own", (o, e))
    host = socket.gethostname()
    c, o, e = run("--net", "all", "--", "python3", "-c", get % "10.1.2.3")
    ok("failed" in o and "refused: tcp 10.1.2.3" in e and "private" in e, "a private address is refused, and told", (o, e))
    c, o, e = run("--net", "all", "-q", "--", "python3", "-c", get % "169.254.169.254")
    ok("failed" in o and "refused" not in e, "quietly too", (o, e))
    if os.path.exists("/etc/hosts") and re.search(r"^127\.0\.0\.1\s.*\b(?!localhost)([a-z][a-z0-9-]+)", open("/etc/hosts").read(), re.M):
        name = [w for l in open("/etc/hosts") if l.startswith("127.") for w in l.split("#")[0].split()[1:] if w != "localhost" and "." not in w]
    else:
        name = []
    if name:
        c, o, e = run("--net", "all", "--allow", "127.0.0.0/8", "--", "python3", "-c", get % name[0])
        ok("hi" in o, "a name, an allowed address: through the door", (o, e))
        c, o, e = run("--net", "all", "--", "python3", "-c", get % name[0])
        ok("failed" in o and "loopback" in e, "and not without the rule", (o, e))
    else:
        skip("a name through the door", "no name for 127.0.0.1 but localhost in /etc/hosts")
    door_dies()
    p = subprocess.Popen([BUREAU, "run", "--net", "all", "--", "sh", "-c", "echo up; sleep 60"], stdout=subprocess.PIPE)
    p.stdout.readline()
    door = [k for k in children(p.pid) if "door" in open(f"/proc/{k}/comm").read()]
    p.kill()
    p.wait()
    ok(len(door) == 1 and until(lambda: not os.path.exists(f"/proc/{door[0]}") or open(f"/proc/{door[0]}/stat").read().rsplit(")", 1)[1].split()[0] == "Z"), "the door ends with us", door)


def plain_python():
    """A python3 that the plain user can run too: ours may be a virtual environment's in somebody's home."""
    names = [sys.executable] + [os.path.join(d, "python3") for d in os.environ.get("PATH", "").split(":") + ["/usr/bin"] if d.startswith("/")]
    for p in dict.fromkeys(names):
        if os.path.exists(p) and subprocess.run(["su", TEST_USER, "-s", "/bin/sh", "-c", f"cd /tmp; {p} -c pass"], capture_output=True).returncode == 0:
            return p


def as_plain_user():
    """The whole file once more, as a user without any rights."""
    if not ROOT or os.environ.get("BUREAU_RUN_AS"):
        return
    try:
        import pwd
        pwd.getpwnam(TEST_USER)
    except KeyError:
        made = subprocess.run(["useradd", "-m", TEST_USER], capture_output=True)
        if made.returncode:
            return skip("all of it as a plain user", f"there is no user {TEST_USER} and none can be made")
    python = plain_python()
    if not python:
        return skip("all of it as a plain user", f"no python3 that {TEST_USER} can run")
    with tempfile.TemporaryDirectory(prefix="bureau-bin-") as bin_dir:
        os.chmod(bin_dir, 0o755)        # the checkout may be where others can't look
        for name in ("bureau", "bureau-keeper", "bureau-guest", "bureau-door"):
            shutil.copy(os.path.join(BUILD, name), bin_dir)
        shutil.copy(os.path.abspath(__file__), os.path.join(bin_dir, "run.t"))
        p = subprocess.run(["su", TEST_USER, "-s", "/bin/sh", "-c", f"cd /tmp; BUREAU_RUN_AS=1 BUREAU_BUILD={bin_dir} {python} {bin_dir}/run.t"],
                           capture_output=True, text=True, timeout=250)
    for line in p.stdout.splitlines():
        m = re.match(r"(not )?ok \d+ - (.*)", line)
        if m:
            if "# SKIP" in m.group(2):
                skip("plain user: " + m.group(2).split(" # SKIP ")[0], m.group(2).split(" # SKIP ")[1])
            else:
                ok(not m.group(1), "plain user: " + m.group(2))
        elif line.startswith("#"):
            print(line)
    ok(p.stdout.rstrip().splitlines()[-1:] and p.stdout.rstrip().splitlines()[-1].startswith("1.."), "plain user: the test ran to its end", p.stderr[-2000:])


with tempfile.TemporaryDirectory(prefix="bureau-run-") as tmp:
    os.chmod(tmp, 0o755)
    for part in (lambda: basics(tmp), usage, limits, lambda: mounts(tmp), terminals, signals, deaths, lambda: background(tmp), lambda: network(tmp), as_plain_user):
        try:
            part()
        except Exception as x:      # a part that breaks is one failure; the others still run
            import traceback
            ok(False, f"a part of the test broke: {x!r}", traceback.format_exc())
print(f"1..{n}")
sys.exit(bad != 0)
