#!/usr/bin/env python3
"""Any of our processes can be killed -9 at any moment, under load: computers go on, are found again, and nothing is left behind."""
import base64, itertools, os, pathlib, random, signal, sys, threading, time
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bureau_test import *

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "4"))
random.seed(7)
s = Server("--pool", "2").start()


class Load(threading.Thread):
    """Creates, runs, kills, for as long as it is told to; a server that is away for a moment is asked again."""
    def __init__(self):
        super().__init__(daemon=True)
        self.stop, self.rounds, self.wrong = False, 0, []

    def run(self):
        while not self.stop:
            try:
                id = s.patient("POST", "/v1/sandboxes", {"net": "none", "timeout_ms": 120000})["id"]
            except Error as e:
                if e.status not in (503, 409):
                    self.wrong.append(str(e))
                continue
            except OSError:
                continue         # asked, and not answered: it may be there; its timeout ends it
            try:
                out, _, end = s.exec(id, "echo", "x")
                if end and out != b"x\n":
                    self.wrong.append(f"echo gave {out!r} {end}")
            except (Error, OSError, http.client.HTTPException, json.JSONDecodeError):
                pass
            while True:
                try:
                    s.patient("DELETE", f"/v1/sandboxes/{id}")
                    break
                except Error as e:
                    if e.status != 404:      # 404: the first try had ended it
                        self.wrong.append(str(e))
                    break
                except (OSError, http.client.HTTPException):
                    continue
            self.rounds += 1


def start_old(net):
    """A computer with a program in it that counts."""
    id = s.create(net=net, timeout_ms=0)["id"]
    script = "i=0; while :; do i=$((i+1)); echo $i; echo $i >/tmp/count; sleep 0.05; done"
    for ev in s.stream(f"/v1/sandboxes/{id}/exec", {"cmd": "sh", "args": ["-c", script], "tag": "old"}):
        if "start" in ev:
            return id, ev["start"]["pid"]


def count(id):
    """Its counter now, by a new program; patient."""
    def one():
        try:
            return int(s.exec(id, "cat", "/tmp/count")[0] or 0)
        except (Error, OSError, http.client.HTTPException, json.JSONDecodeError, ValueError):
            return 0
    return wait_for(one, 20)


def attach(id, lines=5):
    """Lines of the old program's output by a new attachment."""
    def one():
        got = b""
        try:
            for ev in s.stream(f"/v1/sandboxes/{id}/processes/connect", {"tag": "old", "live": True}):
                got += base64.b64decode(ev.get("stdout", ""))
                if got.count(b"\n") >= lines or "error" in ev:
                    break
        except (Error, OSError, http.client.HTTPException, json.JSONDecodeError):
            pass
        return got.split() if got.count(b"\n") >= lines else None
    return wait_for(one, 20)


def kill(*names):
    for n in names:
        pid = s.pid_of(n)
        if pid:
            os.kill(pid, signal.SIGKILL)
    return lambda: all(s.pid_of(n) for n in names)


def still_fine(what, olds):
    for id, pid in olds:
        a = count(id)
        b = wait_for(lambda: (lambda v: v if v > a else 0)(count(id)), 10)
        ok(a and b, f"{what}: the old program counts on", f"{a} then {b}\n{s.log_text()[-1500:]}")
        nums = attach(id) or []
        ok(len(nums) >= 5 and all(int(y) == int(x) + 1 for x, y in zip(nums, nums[1:])), f"{what}: attaching to it works", nums)


def stop_in_the_midst():
    """Creates in flight, kill -9 of bureaud, keeper or both, and a stop before the next ones know of each other."""
    def create():
        try:
            s.create()
        except (Error, OSError, http.client.HTTPException):
            pass
    bad = []
    for victims in (["bureaud"], ["bureaud", "bureau-keeper"], ["bureau-keeper"]) * 4:
        s.start()
        threads = [threading.Thread(target=create) for _ in range(8)]
        for t in threads:
            t.start()
        wait_for(lambda: os.listdir(os.path.join(s.state, "keeper")), 5, 0.001)
        for pid in [s.pid_of(v) for v in victims]:
            os.kill(pid, signal.SIGKILL)
        code = s.stop()
        for t in threads:
            t.join()
        if code or not wait_for(lambda: not s.leftovers(), 5):
            bad.append((victims, code, s.leftovers()))
            break
    ok(not bad, "a stop right after kill -9 in the midst of creates leaves nothing", bad)


def settle(seconds=20):
    """Until nothing but the computers that should live is there."""
    want = {o[0] for o in olds}
    def calm():
        try:
            live = {x["id"] for x in s.call("GET", "/v1/sandboxes")["sandboxes"]}
            for id in live - want:           # made, and the answer was lost: nobody will end it but its timeout
                try:
                    s.kill(id)
                except Error:
                    pass
            return live == want
        except (Error, OSError, http.client.HTTPException):
            return False
    return wait_for(calm, seconds)


try:
    has_net = "net" in s.call("GET", "/v1/status")["features"]
    olds = [start_old("none"), start_old("all" if has_net else "none")]
    still_fine("before", olds)
    loads = [Load() for _ in range(3)]
    for t in loads:
        t.start()
    for n, names in enumerate(itertools.islice(itertools.cycle([("bureaud",), ("bureau-keeper",), ("bureaud", "bureau-keeper"), ("bureau-door",)]), ROUNDS)):
        time.sleep(random.uniform(0.1, 0.4))     # somewhere in the middle of the load
        again = kill(*names)
        ok(wait_for(again, 10), f"round {n + 1}: {' and '.join(names)} killed and started again", s.log_text()[-1500:])
        still_fine(f"round {n + 1}", olds)
    for n in range(ROUNDS * 2):
        time.sleep(random.uniform(0, 0.3))
        kill(random.choice(["bureaud", "bureau-keeper"]))
    ok(wait_for(lambda: s.pid_of("bureaud") and s.pid_of("bureau-keeper"), 20), "after a row of kills both are there again")
    still_fine("after a row of kills", olds)
    for t in loads:
        t.stop = True
    for t in loads:
        t.join(60)
    ok(not any(t.wrong for t in loads), "no client of the load was told something wrong", "\n".join(sum((t.wrong for t in loads), [])))
    ok(sum(t.rounds for t in loads) > 0, f"the load went on: {sum(t.rounds for t in loads)} rounds")
    ok(settle(), "only the old computers are listed")
    st = wait_for(lambda: (lambda v: v if v["sandboxes"]["pooled"] >= 2 else None)(s.call("GET", "/v1/status")), 10)
    ok(st and st["sandboxes"]["running"] == 2, "and counted", st)

    # descriptors: as many after many lives as before
    def lives(n):
        for _ in range(n):
            id = s.create(net="all" if has_net else "none")["id"]
            s.exec(id, "true")
            s.kill(id)
        full = 4 if has_net else 2               # both kinds' pools
        wait_for(lambda: s.call("GET", "/v1/status")["sandboxes"]["pooled"] == full, 10)
        return {n: fd_count(s.pid_of(n)) for n in ("bureaud", "bureau-keeper", "bureau-door")}
    a = lives(8)
    b = lives(20)
    if not all(b[k] <= a[k] + 2 for k in a):
        a = lives(20)            # the keeper's stock of network namespaces may still have been growing
        b = lives(20)
    ok(all(b[k] <= a[k] + 2 for k in a), "lives and deaths leave no descriptor behind", f"{a} then {b}")

    # the supervisor itself
    s.proc.kill()
    s.proc.wait()
    s.start()
    still_fine("the supervisor was killed and another one started", olds)
    s.stop(signal.SIGTERM)
    ok(not s.processes(), "a plain stop ends every computer", s.processes())
    s.start()
    for id, _ in olds:
        equal(s.call("GET", f"/v1/sandboxes/{id}")["why"], "shutdown", "its tombstone says why")

    # going on without a server
    s.stop()
    s.start("--keep-computers")
    olds = [start_old("none")]
    s.stop()
    ok(s.processes(), "with --keep-computers they go on")
    s.start("--keep-computers")
    still_fine("found again at the next start", olds)
    s.kill(olds[0][0])
    s.stop()
    s.start()
    id = s.create()["id"]
    dead = None
    for n in range(5):           # the next one waits for its turn; the stop comes first
        dead = wait_for(lambda: (lambda p: p if p != dead else None)(s.pid_of("bureau-keeper")), 20)
        os.kill(dead, signal.SIGKILL)
    ok(wait_for(lambda: not s.pid_of("bureau-keeper"), 5), "no keeper for a moment")
    equal(s.stop(), 0, "a server whose keeper has just died stops")
    left = wait_for(lambda: not s.leftovers(), 5) or s.leftovers()
    ok(left is True, "and leaves nothing", left)
    s.start()
    equal(s.call("GET", f"/v1/sandboxes/{id}")["why"], "shutdown", "its tombstone says why")
    s.stop()
    stop_in_the_midst()
    left = wait_for(lambda: not s.leftovers(), 5) or s.leftovers()
    ok(left is True, "nothing is left on this host", left)
finally:
    s.remove()
done()
