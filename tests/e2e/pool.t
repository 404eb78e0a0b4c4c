#!/usr/bin/env python3
"""The pool: filled again behind whoever took from it, for each template and network that is asked for, and never in anybody's way."""
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bureau_test import *

s = Server("--pool", "3", "--max", "8").start()


def pooled():
    return s.call("GET", "/v1/status")["sandboxes"]["pooled"]


def guests():
    s.pid_of("bureaud")
    return len([p for p, parent, comm, _ in s.scan() if comm == "bureau-guest" and parent == s.pid_of("bureau-keeper")])


try:
    ok(wait_for(lambda: pooled() == 3), "it is full at the start, with nobody's asking", s.log_text()[-1000:])
    ids = [s.create(net="none")["id"]]
    ok(wait_for(lambda: pooled() >= 3), "and again behind who took one", pooled())
    ok(wait_for(lambda: guests() == 1 + pooled()), "which are computers indeed", (guests(), pooled()))
    while len(ids) < 8:
        ids.append(s.create(net="none")["id"])
    ok(len(set(ids)) == 8 and all(s.exec(i, "echo", "x")[0] == b"x\n" for i in ids), "as many as there may be: those in the pool make room")
    ok(wait_for(lambda: pooled() == 0 and guests() == 8), "no more than that are there", (pooled(), guests()))
    try:
        s.create(net="none")
        ok(False, "one more is refused")
    except Error as e:
        ok(e.status == 503 and "8 computers at most" in e.message and "--max" in e.body["error"]["hint"], "one more is refused, with a reason and what to do", e)
    for i in ids[2:]:
        s.kill(i)
    id = s.create(net="none")["id"]
    ok(wait_for(lambda: 1 <= pooled() <= 5), "with room there is a pool again", pooled())
    ok(s.exec(id, "sh", "-c", "find ~ /tmp -mindepth 1; echo end")[0] == b"end\n", "a computer of it is new")
    s.stop()
    ok(not s.leftovers(), "nothing is left", s.leftovers())
finally:
    s.remove()
done()
