#!/usr/bin/env python3
"""PID 1 of a computer in the hands of somebody hostile, below a real server: hostileguest.c stands in bureau-guest's place and says what it
likes. The server stays up and quick for the neighbours, each request to the bad computer ends with clear words within its limit, the
computer can be killed, and nothing is left. As root and as a plain user, both servers at once. timeout: 600"""
import concurrent.futures, http.client, json, os, re, shutil, signal, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../e2e"))
import bureau_test as bt
import lab
from bureau_test import ok, skip, wait_for

PROGRAMS = ["bureau", "bureau-cli", "bureaud", "bureau-serve", "bureau-keeper", "bureau-door"]
HOSTILE = bt.BUILD / "src/guest/hostileguest"
SANITIZED = (bt.BUILD / "sanitize-probe").exists()
ANSWER = 60                      # seconds that the server waits for an answer (src/machine/guest.c)
LIMIT = ANSWER + 25              # in which a request to a bad computer must be over, on a busy machine
QUICK = 15 if SANITIZED else 5   # seconds for one exec of a neighbour's, at worst
PEAK = 400 << 20                 # bytes that bureaud may have at once: two lists as dear as they may be, among all the rest
GROWTH = 48 << 20                # bytes that it may have grown by when the same is done to it again
START, ATTACH, LIST, STAT, DIR, READ, WRITE, WATCH, DIAL, PORTS, METRICS, ENVS = 4, 5, 12, 13, 14, 18, 19, 20, 21, 22, 23, 24
lock = threading.Lock()

# what -> method, path, body
WHAT = {
    STAT: ("GET", "files/stat?path=f", None),
    READ: ("GET", "files?path=f", None),
    WRITE: ("POST", "files?path=f", b"x" * 100000),
    DIR: ("GET", "files/list?path=f", None),
    "mkdir": ("POST", "files/mkdir", {"path": "d"}),
    "move": ("POST", "files/move", {"from": "a", "to": "b"}),
    "remove": ("DELETE", "files?path=f", None),
    WATCH: ("POST", "files/watch", {"path": "d"}),
    START: ("POST", "exec", {"cmd": "true", "timeout_ms": 1000}),
    ATTACH: ("POST", "processes/connect", {"pid": 7}),
    LIST: ("GET", "processes?ended=true", None),
    "input": ("POST", "processes/input?pid=7", b"hello"),
    "signal": ("POST", "processes/signal", {"pid": 7, "signal": 9}),
    "resize": ("POST", "processes/resize", {"pid": 7, "cols": 9, "rows": 9}),
    PORTS: ("GET", "ports", None),
    DIAL: ("GET", "ports/80/proxy/", None),
    METRICS: ("GET", "metrics", None),
    ENVS: ("GET", "envs", None),
}
EVERY = [w for w in WHAT if w not in (DIR, "move", "remove")]   # those may take minutes: tests/unit/machine_guest.c
FDS = ["none", "dir", "path", "writeonly", "readonly", "zero", "tty", "mem", "mounts", "append", "direct", "pipe", "fullpipe", "stream", "dgram", "seqpacket",
       "own", "listen", "tcp", "udp", "epoll", "event", "pidfd", "sparse"]
BREAKS = [START, READ, WRITE, DIR, LIST, STAT, DIAL, PORTS, METRICS, ENVS, WATCH]
# act -> (requests, the computer's end): "broke" the protocol, "lives", None where either will do, or "hangs": the requests may go on until
# it's killed, and must be over then. Of a list of lists each is for a computer of its own.
ACTS = {
    "silent": (EVERY, "lives"), "deaf": (EVERY, "lives"), "error": (EVERY, "lives"), "half": ([START, LIST], "lives"), "half ": ([WATCH, ATTACH], "hangs"),
    "garbage": ([[START], [STAT]], "broke"), "giant": ([[STAT], [READ], [START]], "broke"), "short": ([[t] for t in BREAKS], "broke"),
    "trailing": ([[t] for t in BREAKS], "broke"), "lengths": ([[t] for t in BREAKS], "broke"), "bomb": ([[DIR]], "broke"),
    "twice": ([[START], [STAT], [DIR]], "broke"), "stranger": ([[STAT], [START]], "broke"), "events": ([[START], [STAT], [WATCH], [DIR]], "broke"),
    "exit": ([[START]], "broke"), "fds": ([[START], [STAT], [READ], [DIAL]], "broke"), "manyfds": ([[STAT], [READ], [DIAL]], "broke"),
    "flood": ([[START], [WATCH], [DIR], [LIST]], None), "gaps": ([[START]], None), "empty": ([STAT, START], None), "close": ([STAT, START], None),
}
READABLE, WRITABLE = {"readonly", "mem", "mounts", "append", "direct", "sparse"}, {"writeonly", "mem", "append", "direct", "sparse"}
for k in FDS:
    ACTS["file-" + k] = ([READ], None if k in READABLE else "broke")
    ACTS["file-" + k + " "] = ([WRITE], None if k in WRITABLE else "broke")
    ACTS["file-" + k + "  "] = ([DIAL], "hangs" if k == "tcp" else "broke")
    ACTS["pipe-" + k] = ([READ], "hangs" if k in ("pipe", "fullpipe") else "broke")


def say(good, text, more=""):
    with lock:
        return ok(good, text, more)


class Bad:
    """One bad computer and what is asked of it."""

    def __init__(self, s, act, requests, end):
        self.s, self.act, self.requests, self.end = s, act.strip(), requests, end
        self.faults, self.answers, self.threads = [], {}, []
        self.id = s.create(envs={"HOSTILE": self.act}, timeout_ms=0)["id"]

    def ask(self):
        self.threads = [threading.Thread(target=self.one, args=(w,)) for w in self.requests]
        for t in self.threads:
            t.start()

    def one(self, what):
        method, path, body = WHAT[what]
        began = time.monotonic()
        try:
            r = self.s.raw(method, f"/v1/sandboxes/{self.id}/{path}", json.dumps(body) if isinstance(body, dict) else body, timeout=LIMIT)
            status, text = r.status, b""
            while len(text) < 1 << 20:            # what never ends is left by its reader
                piece = r.read1(65536)
                if not piece:
                    break
                text += piece
            else:
                self.answers[what] = (status, "endless")
                r.close()
                return
        except (ConnectionError, http.client.HTTPException, ValueError) as e:   # cut in the middle: the head was sent already
            self.answers[what] = ("cut", repr(e))
            if isinstance(e, http.client.RemoteDisconnected):
                self.faults.append(f"{what}: no answer at all")
            return
        except OSError as e:
            self.faults.append(f"{what}: {e!r} after {time.monotonic() - began:.0f} s")
            return
        self.answers[what] = (status, text[-300:].decode("utf-8", "replace"))
        if status >= 400 and not re.search(rb'"message":\s*"[^"]{8,}|^the file can.t be read', text):
            self.faults.append(f"{what}: {status} without words: {text[:200]}")

    def finish(self):
        for t in self.threads:
            t.join(0 if self.end == "hangs" else LIMIT + 10)
        row = self.s.call("GET", f"/v1/sandboxes/{self.id}")
        state, why = row["state"], json.dumps(row)
        if self.end == "broke" and (state not in ("ended", "failed", "deleted", "stopped") or "protocol" not in why):
            self.faults.append(f"it should have been ended: {why[:400]}")
        if self.end == "lives" and state != "running":
            self.faults.append(f"it should live: {why[:400]}")
        if self.end == "hangs" and not all(t.is_alive() for t in self.threads):
            self.faults.append(f"it should still be there: {self.answers}")
        began = time.monotonic()
        try:
            self.s.kill(self.id)
        except bt.Error as e:
            if e.status != 404:
                self.faults.append(f"kill: {e}")
        if time.monotonic() - began > 2 * QUICK:
            self.faults.append(f"kill: took {time.monotonic() - began:.1f} s")
        for t in self.threads:
            t.join(10)
            if t.is_alive():
                self.faults.append("a request goes on although its computer is gone")


class Neighbour(threading.Thread):
    """An honest computer of the same server, and how long its programs take."""

    def __init__(self, s):
        super().__init__()
        self.s, self.stop, self.took, self.bad = s, threading.Event(), [], []
        self.id = s.create(timeout_ms=0)["id"]

    def run(self):
        while not self.stop.wait(0.05):
            began = time.monotonic()
            try:
                out, _, end = self.s.exec(self.id, "echo", "hello")
                if out != b"hello\n" or end["code"]:
                    self.bad.append((out, end))
            except Exception as e:                # noqa: whatever it is, the neighbour was hurt
                self.bad.append(repr(e))
            self.took.append(time.monotonic() - began)

    def worst(self):
        return max(self.took, default=0)


def memory(pid, what):
    return int(re.search(rf"{what}:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) << 10


def plan(s):
    for act, (requests, end) in ACTS.items():
        for group in requests if isinstance(requests[0], list) else [requests]:
            yield Bad(s, act, group, end)


def links(who, s):
    """What it does to the link when the server comes back: it isn't there, it says nothing, it lets go each time, it lies."""
    boxes = {act: s.create(envs={"HOSTILE": act}, timeout_ms=0)["id"] for act in ("gone", "mute", "flap", "liar")}
    old = s.pid_of("bureaud")
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: s.pid_of("bureaud") not in (None, old), 20)
    n = Neighbour(s)
    n.start()
    began, left = time.monotonic(), dict(boxes)
    while left and time.monotonic() - began < LIMIT:
        for act, box in list(left.items()):
            row = s.patient("GET", f"/v1/sandboxes/{box}")
            if row["state"] not in ("running", "creating"):
                left.pop(act)
        time.sleep(0.2)
    n.stop.set()
    n.join()
    say(not left, f"{who}: a guest that can't be had again after a restart of the server is given up", left)
    say(not n.bad and n.worst() < QUICK, f"{who}: the neighbour's programs run on meanwhile", (n.bad[:3], n.worst()))
    s.kill(n.id)
    for box in left.values():
        s.kill(box)


def stillborn(who, s):
    began = time.monotonic()
    try:
        s.create(envs={"HOSTILE": "stillborn"})
        say(False, f"{who}: a computer whose guest never answers isn't made")
    except bt.Error as e:
        say(e.status == 504 and e.message and time.monotonic() - began < LIMIT, f"{who}: a computer whose guest never answers isn't made", e)


def rounds(who, s):
    daemon = s.pid_of("bureaud")
    n = Neighbour(s)
    for method, path, body in (WHAT[WRITE], WHAT[READ]):         # what is made once and stays
        s.raw(method, f"/v1/sandboxes/{n.id}/{path}", body).read()
    n.start()
    wait_for(lambda: len(n.took) > 5)
    quiet, fds, rss = n.worst(), bt.fd_count(daemon), memory(daemon, "VmRSS")
    still = threading.Thread(target=stillborn, args=(who, s))
    still.start()
    bad = []
    for b in plan(s):
        bad.append(b)
        b.ask()
    for b in bad:
        b.finish()
    faults = [f"{b.act}: {f}" for b in bad for f in b.faults]
    for b in bad if "SHOW" in os.environ else []:
        print(f"# {who}: {b.act}: {b.answers}", flush=True)
    still.join()
    n.stop.set()
    n.join()
    say(len(bad) > 80 and not faults, f"{who}: {sum(len(b.requests) for b in bad)} requests to {len(bad)} bad computers: each ends with clear words, and so does its computer", "\n".join(faults))
    say(s.pid_of("bureaud") == daemon, f"{who}: the server is the same process as before", s.log_text()[-1500:])
    say(not n.bad and len(n.took) > 50 and n.worst() < QUICK, f"{who}: the neighbour's {len(n.took)} programs ran all the while, the slowest in {n.worst():.2f} s", (n.bad[:3], quiet))
    s.kill(n.id)
    first = memory(daemon, "VmRSS")
    for _ in range(2):                            # what the dearest acts cost again must not add up
        more = [Bad(s, "flood", [t], None) for t in (START, WATCH, DIR, LIST)]
        for b in more:
            b.ask()
        for b in more:
            b.finish()
    say(wait_for(lambda: bt.fd_count(daemon) <= fds + 4, 10), f"{who}: no descriptor is left in it", ("before and after:", fds, bt.fd_count(daemon)))
    grown, peak = memory(daemon, "VmRSS") - first, memory(daemon, "VmHWM")
    print(f"# {who}: bureaud had {rss >> 20} MiB, {peak >> 20} at most, and {grown >> 20} more after the second time; slowest exec before: {quiet:.2f} s", flush=True)
    if SANITIZED:
        with lock:
            skip(f"{who}: its memory is bounded: a sanitizer keeps freed memory")
    else:
        say(grown < GROWTH and peak < PEAK, f"{who}: its memory is bounded", (grown, peak))


def one(who, prefix, uid, build):
    s = bt.Server("--pool", "0", "--max", "400")
    s.prefix, s.build = prefix, build
    os.chown(s.state, uid, uid)
    os.chmod(s.state, 0o755)
    try:
        s.start()
        rounds(who, s)
        links(who, s)
        say(wait_for(lambda: not s.processes(), 10), f"{who}: no process of theirs is left", s.processes())
        say(s.stop() == 0 and not s.leftovers(), f"{who}: the server ends, and nothing is left", s.leftovers())
    finally:
        s.remove()


def main():
    build = tempfile.mkdtemp(prefix="bureau-hostile-")
    os.chmod(build, 0o755)
    for p in PROGRAMS:
        shutil.copy2(bt.BUILD / p, build)
    shutil.copy2(HOSTILE, os.path.join(build, "bureau-guest"))
    users = [("root" if os.geteuid() == 0 else "plain user", [], os.geteuid())]
    many = lab.many_ids() if os.geteuid() == 0 else None
    if many:
        users.append(("plain user", [*many.prefix, "env", "HOME=/nonexistent"], many.uid))
    elif os.geteuid() == 0:
        skip(f"no user {lab.TEST_USER} with a range in /etc/subuid (useradd -m {lab.TEST_USER})")
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for done in [pool.submit(one, *u, build) for u in users]:
                done.result()            # a fault of the test itself ends it here, without a plan
    finally:
        shutil.rmtree(build)
    bt.done()


main()
