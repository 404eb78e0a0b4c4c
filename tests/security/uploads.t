#!/usr/bin/env python3
"""What is uploaded into a sandbox is memory of that sandbox: it counts towards its limit, what was promised and never came is given back, and
what doesn't fit harms neither the server nor the sandbox."""
import glob, os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import bureau_test as bt
from bureau_test import ok, skip, wait_for

MIB = 1 << 20


def used(s, id):
    """MiB that the sandbox's control group holds."""
    for name in ("memory.usage_in_bytes", "memory.current"):
        for f in glob.glob(f"/sys/fs/cgroup/**/{id}/{name}", recursive=True):
            return int(open(f).read()) / MIB
    return None


def post(s, id, name, size, sent=None, chunked=False):
    """The answer's status; None when we went away in the middle."""
    c = s.conn()
    c.putrequest("POST", f"/v1/sandboxes/{id}/files?path={name}")
    c.putheader("X-API-KEY", s.key)
    c.putheader("Transfer-Encoding" if chunked else "Content-Length", "chunked" if chunked else str(size))
    c.endheaders()
    left = size if sent is None else sent
    block = b"x" * MIB
    try:
        while left:
            n = min(left, len(block))
            c.send(b"%x\r\n%b\r\n" % (n, block[:n]) if chunked else block[:n])
            left -= n
        if sent is not None:
            c.close()
            return None
        if chunked:
            c.send(b"0\r\n\r\n")
    except OSError:
        pass                     # refused before the end: its answer is there
    r = c.getresponse()
    r.read()
    return r.status


def e2b(s, id, parts):
    """multipart/form-data, as the SDKs send it."""
    body = b"".join(b'--B\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\n%b\r\n' % (n.encode(), b"y" * size) for n, size in parts) + b"--B--\r\n"
    token = s.call("GET", f"/v1/sandboxes/{id}")["access_token"]
    c = s.conn()
    c.request("POST", "/files", body, {"Host": f"49983-{id}.example", "E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "49983", "X-Access-Token": token,
                                       "Content-Type": "multipart/form-data; boundary=B"})
    r = c.getresponse()
    return r.status, r.read()


def disk(s, id):
    return s.call("GET", f"/v1/sandboxes/{id}/metrics")["disk_used"] / MIB


def counted(s):
    id = s.create(memory=400 * MIB, disk=200 * MIB)["id"]
    if used(s, id) is None:
        return skip("no control group for memory here")
    before = used(s, id)
    ok(post(s, id, "/tmp/a", 80 * MIB) == 200 and used(s, id) - before > 78, "80 MiB are the sandbox's memory", (before, used(s, id)))
    ok(s.exec(id, "sh", "-c", "wc -c </tmp/a; rm /tmp/a")[0] == b"%d\n" % (80 * MIB), "and are all there")
    ok(wait_for(lambda: used(s, id) - before < 8), "a file that is removed gives it back", (before, used(s, id)))
    post(s, id, "/tmp/b", 120 * MIB, sent=3 * MIB)
    ok(wait_for(lambda: used(s, id) - before < 20 and disk(s, id) < 20), "what was promised and never came is given back", (before, used(s, id), disk(s, id)))
    ok(s.exec(id, "sh", "-c", "wc -c </tmp/b")[0].strip().isdigit(), "what came is there")
    status, text = e2b(s, id, [(f"/tmp/m{i}", 30 * MIB) for i in range(3)] + [("/tmp/small", 5)])
    ok(status == 200 and used(s, id) - before > 80, "parts of one body, too", (status, text[:300], before, used(s, id)))
    ok(wait_for(lambda: 88 < disk(s, id) < 100), "each as large as it is", disk(s, id))
    ok(s.exec(id, "sh", "-c", "cat /tmp/m0 /tmp/m1 /tmp/m2 /tmp/small | wc -c; rm /tmp/m*")[0] == b"%d\n" % (90 * MIB + 5), "and whole")
    ok(post(s, id, "/tmp/c", 20 * MIB, chunked=True) == 200 and s.exec(id, "sh", "-c", "wc -c </tmp/c")[0] == b"%d\n" % (20 * MIB), "a body without a length comes too")
    s.kill(id)


def too_much(s):
    id = s.create(memory=64 * MIB, disk=400 * MIB)["id"]
    if "memory" in s.call("GET", f"/v1/sandboxes/{id}").get("unenforced", []):
        return skip("no limit of memory here")
    s.exec(id, "sh", "-c", "sleep 300 >/dev/null 2>&1 &")
    status = post(s, id, "/tmp/big", 200 * MIB)
    ok(status == 507, "more than the limit of memory: 507", status)
    ok(s.exec(id, "sh", "-c", "rm -f /tmp/big; echo alive")[0] == b"alive\n", "the sandbox lives")
    ok(post(s, id, "/tmp/ok", 10 * MIB) == 200, "and takes what fits")
    s.kill(id)
    id = s.create(memory=400 * MIB, disk=50 * MIB)["id"]
    ok(post(s, id, "/tmp/big", 100 * MIB) == 507, "more than the disk: 507, as ever")
    ok(wait_for(lambda: disk(s, id) <= 50) and post(s, id, "/tmp/big", 10 * MIB) == 200, "and again with less")
    s.kill(id)


if os.geteuid() != 0:
    print("1..0 # SKIP needs root, for control groups")
    sys.exit(0)
s = bt.Server("--pool", "0").start()
try:
    counted(s)
    too_much(s)
    s.stop()
    ok(not s.leftovers(), "nothing is left", s.leftovers())
finally:
    s.remove()
bt.done()
