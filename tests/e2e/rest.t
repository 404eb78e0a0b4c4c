#!/usr/bin/env python3
"""The REST API: who may ask, arguments, a sandbox's life, programs, files, ports, errors."""
import http.server, os, pathlib, socket, subprocess, sys, threading, time
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bureau_test import *

s = Server("--pool", "2").start()


def fails(status, code, method, path, args=None, says="", **kw):
    try:
        got = s.call(method, path, args, **kw)
        return ok(False, f"{method} {path} is refused with {status}", got)
    except Error as e:
        hint = e.body["error"].get("hint")
        return ok(e.status == status and e.code == code and says in e.message and hint, f"{method} {path}: {status} {code}, and a next step", f"{e}")


def test_who():
    equal(s.raw("GET", "/health", key="").status, 204, "health needs no key")
    fails(401, "unauthorized", "GET", "/v1/status", key="")
    fails(401, "unauthorized", "GET", "/v1/status", key="e2b_" + "0" * 40)
    ok(s.call("GET", "/v1/status", key="", headers={"Authorization": "Bearer " + s.key})["version"], "a bearer key")
    fails(403, "forbidden", "GET", "/v1/status", headers={"Origin": "https://evil.example"})
    fails(403, "forbidden", "GET", "/v1/status", headers={"Sec-Fetch-Site": "cross-site"})
    ok(s.call("GET", "/v1/status", headers={"Origin": f"http://{s.host}:{s.port}"}), "our own pages may ask")
    box, other = s.create(), s.create()
    t = {"key": "", "headers": {"X-Access-Token": box["access_token"]}}
    ok(s.call("GET", f"/v1/sandboxes/{box['id']}", **t)["id"] == box["id"], "a sandbox's token shows that sandbox")
    fails(403, "forbidden", "GET", f"/v1/sandboxes/{other['id']}", **t)
    fails(403, "forbidden", "DELETE", f"/v1/sandboxes/{box['id']}", **t)
    fails(403, "forbidden", "POST", "/v1/sandboxes", {}, **t)
    fails(403, "forbidden", "GET", "/v1/sandboxes", **t)
    listed = s.call("GET", "/v1/sandboxes")["sandboxes"]
    ok(len(listed) == 2 and not any("access_token" in b for b in listed), "no token is in a list", listed)
    equal(s.call("GET", f"/v1/sandboxes/{box['id']}")["access_token"], box["access_token"], "who asks for one sandbox gets it")
    s.kill(box["id"]), s.kill(other["id"])
    fails(401, "unauthorized", "GET", f"/v1/sandboxes/{box['id']}", **t)


def test_arguments():
    fails(404, "not_found", "GET", "/v1/nothing")
    fails(404, "not_found", "GET", "/v1/nothing/%ff%fe?x=y")
    fails(404, "not_found", "GET", "/v1/nothing", says="GET /v1/nothing:")
    fails(405, "method_not_allowed", "PUT", "/v1/sandboxes", {}, says="PUT /v1/sandboxes:")
    fails(400, "invalid_argument", "POST", "/v1/sandboxes", [], says="sandbox.create: the body")
    fails(413, "too_large", "POST", "/v1/sandboxes", {"envs": {"A": "x" * (5 << 20)}}, says="POST /v1/sandboxes: the body is larger")
    fails(400, "invalid_argument", "POST", "/v1/sandboxes", {"colour": "red"}, says="sandbox.create: there is no argument 'colour'")
    fails(400, "invalid_argument", "POST", "/v1/sandboxes", {"net": "some"}, says="none, all")
    fails(400, "invalid_argument", "POST", "/v1/sandboxes", {"memory": 1}, says="memory")
    fails(400, "invalid_argument", "POST", "/v1/sandboxes", {"memory": 1 << 50}, says="this host")
    fails(404, "not_found", "POST", "/v1/sandboxes", {"template": "nowhere"}, says="nowhere")
    fails(400, "invalid_argument", "POST", "/v1/sandboxes", {"template": "../../etc"})
    fails(400, "invalid_argument", "GET", "/v1/sandboxes?limit=0", says="limit")
    fails(400, "invalid_argument", "GET", "/v1/sandboxes?limit=5&limit=6", says="twice")
    r = s.raw("POST", "/v1/sandboxes", "{\"net\":\"none\",\"net\":\"all\"}")
    equal(r.status, 400, "a member given twice is refused")
    fails(404, "not_found", "GET", "/v1/sandboxes/iaaaaaaaaaaaaaaaaaaaa")
    fails(404, "not_found", "GET", "/v1/sandboxes/..%2f..%2fetc")
    ok(any(t["name"] == "host" and t["built"] for t in s.call("GET", "/v1/templates")["templates"]), "templates")


def test_no_requests():
    """What is no request at all is answered in the same shape."""
    for what, head, status, code in (("a line that is none", "NONSENSE", 400, "invalid_argument"), ("no Host", "GET /v1/status HTTP/1.1", 400, "invalid_argument"),
                                     ("another HTTP", "GET /v1/status HTTP/2.0\r\nHost: x", 505, "not_implemented"),
                                     ("a head without end", "GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + "y" * 100000, 431, "too_large"),
                                     ("a bad escape", "GET /v1/%zz HTTP/1.1\r\nHost: x", 400, "invalid_argument")):
        c = socket.create_connection((s.host, s.port), 20)
        try:
            c.sendall(f"{head}\r\n\r\n".encode())
        except OSError:
            pass                 # it was refused before its end
        r = http.client.HTTPResponse(c)
        r.begin()
        e = json.loads(r.read())["error"]
        ok(r.status == status and e["code"] == code and e["message"].startswith("read the request: ") and e["hint"], f"{what}: {status} {code}", (r.status, e))
        c.close()


def test_life():
    box = s.create(metadata={"k": "v", "n": "1"}, envs={"HELLO": "w ö rld"}, timeout_ms=60000, memory=256 << 20)
    id = box["id"]
    equal(box["state"], "running", "created")
    equal(box["limits"]["memory"], 256 << 20, "with the memory asked for")
    ok(59000 < box["ends_at"] - box["started_at"] <= 60000, "and the time asked for")
    equal(s.call("GET", f"/v1/sandboxes/{id}/envs")["envs"], {"HELLO": "w ö rld"}, "envs")
    equal(s.exec(id, "sh", "-c", "printf %s \"$HELLO\"")[0].decode(), "w ö rld", "programs get them")
    equal([b["id"] for b in s.call("GET", "/v1/sandboxes?metadata.k=v")["sandboxes"]], [id], "found by metadata")
    equal(s.call("GET", "/v1/sandboxes?metadata.k=w")["sandboxes"], [], "not by other metadata")
    for name, value in (("k" * 100000, "x"), ("a", "x" * 65536)):
        try:
            s.create(metadata={name: value})
            ok(False, "metadata beyond 64 KiB is refused")
        except Error as e:
            equal((e.status, e.code), (413, "too_large"), "metadata beyond 64 KiB is refused, whichever side is long")
    got = s.call("POST", f"/v1/sandboxes/{id}/timeout", {"timeout_ms": 5000, "extend_only": True})
    equal(got["ends_at"], box["ends_at"], "extend_only never shortens")
    equal(s.call("POST", f"/v1/sandboxes/{id}/timeout", {"timeout_ms": 0})["ends_at"], None, "0: it never ends by itself")
    m = s.call("GET", f"/v1/sandboxes/{id}/metrics")
    ok(m["cpus"] >= 1 and m["mem_total"] > 0, "metrics", m)
    s.call("POST", f"/v1/sandboxes/{id}/timeout", {"timeout_ms": 300})
    t = time.monotonic()
    ok(wait_for(lambda: s.call("GET", f"/v1/sandboxes/{id}")["state"] == "ended", 5), "its time ends")
    ok(time.monotonic() - t < 1.5, "on time")
    tomb = s.call("GET", f"/v1/sandboxes/{id}")
    equal((tomb["why"], "access_token" in tomb, tomb["metadata"]), ("timeout", False, {"k": "v", "n": "1"}), "its tombstone")
    fails(404, "not_found", "POST", f"/v1/sandboxes/{id}/exec", {"cmd": "true"}, says="timeout")
    fails(404, "not_found", "DELETE", f"/v1/sandboxes/{id}", says="timeout")
    ok(id in [b["id"] for b in s.call("GET", "/v1/sandboxes?state=ended")["sandboxes"]], "listed as ended")
    early = s.create(wait=False)
    ok(wait_for(lambda: s.call("GET", f"/v1/sandboxes/{early['id']}")["state"] == "running", 5), "wait=false: it comes later")
    s.kill(early["id"])
    equal(s.call("GET", f"/v1/sandboxes/{early['id']}")["why"], "killed", "killed")
    ids = [s.create()["id"] for _ in range(5)]
    page, seen = s.call("GET", "/v1/sandboxes?limit=2"), []
    while True:
        seen += [b["id"] for b in page["sandboxes"]]
        if "next" not in page:
            break
        page = s.call("GET", f"/v1/sandboxes?limit=2&cursor={page['next']}")
    equal(sorted(seen), sorted(ids), "pages")
    equal([b["id"] for b in s.call("GET", "/v1/sandboxes?order=asc")["sandboxes"]], list(reversed(seen)), "oldest first")
    for i in ids:
        s.kill(i)


def test_programs(id):
    out, err, end = s.exec(id, "sh", "-c", "echo out; echo err >&2; exit 7")
    equal((out, err, end), (b"out\n", b"err\n", {"how": "exited", "code": 7, "oom": False}), "output and exit")
    fails(404, "no_program", "POST", f"/v1/sandboxes/{id}/exec", {"cmd": "no-such-program"})
    fails(404, "not_found", "POST", f"/v1/sandboxes/{id}/exec", {"cmd": "true", "cwd": "/nowhere"})
    equal(s.exec(id, "id", "-un", user="root")[0], b"root\n", "as root")
    fails(403, "forbidden", "POST", f"/v1/sandboxes/{id}/exec", {"cmd": "true", "user": "nobody-here"})
    fails(400, "not_executable", "POST", f"/v1/sandboxes/{id}/exec", {"cmd": "/etc"})
    equal(s.exec(id, "sleep", "9", timeout_ms=100)[2]["how"], "timeout", "a program's time")
    data = s.exec(id, "head", "-c", "5000000", "/dev/zero")[0]
    ok(len(data) == 5000000 and not any(data), "5 MB of output")
    ev = list(s.stream(f"/v1/sandboxes/{id}/exec?text=true", {"cmd": "printf", "args": ["ä%.0s", *["x"] * 3000]}))
    equal("".join(e.get("stdout", "") for e in ev), "ä" * 3000, "as text")
    st = s.stream(f"/v1/sandboxes/{id}/exec", {"cmd": "cat", "stdin": True, "tag": "cat"})
    pid = next(st)["start"]["pid"]
    equal(s.raw("POST", f"/v1/sandboxes/{id}/processes/input?tag=cat", b"x" * 3000000).status, 204, "3 MB of input")
    s.call("POST", f"/v1/sandboxes/{id}/processes/close-stdin", {"pid": pid})
    got = sum(len(base64.b64decode(e.get("stdout", ""))) for e in st)
    equal(got, 3000000, "come back")
    st = s.stream(f"/v1/sandboxes/{id}/exec", {"cmd": "sh", "args": ["-c", "stty size; cat"], "pty": {"cols": 91, "rows": 31}})
    pid = next(st)["start"]["pid"]
    equal(base64.b64decode(next(st)["pty"]), b"31 91\r\n", "a terminal has its size")
    s.call("POST", f"/v1/sandboxes/{id}/processes/resize", {"pid": pid, "cols": 100, "rows": 40})
    s.call("POST", f"/v1/sandboxes/{id}/processes/signal", {"pid": pid, "signal": 9, "group": True})
    equal([e for e in st][-1]["end"], {"how": "signaled", "code": 9, "oom": False}, "killed")
    fails(404, "not_found", "POST", f"/v1/sandboxes/{id}/processes/signal", {"pid": 99999, "signal": 15})
    fails(400, "invalid_argument", "POST", f"/v1/sandboxes/{id}/processes/signal", {"signal": 15}, says="one of them")
    late = list(s.stream(f"/v1/sandboxes/{id}/processes/connect", {"tag": "cat"}))
    ok("start" in late[0] and "end" in late[-1], "an ended program can be attached to", late[:1] + late[-1:])
    ok(any(p["tag"] == "cat" and p["ended"] for p in s.call("GET", f"/v1/sandboxes/{id}/processes?ended=true")["processes"] if "tag" in p), "and listed")
    c = s.conn()
    s.raw("POST", f"/v1/sandboxes/{id}/exec", '{"cmd":"sleep","args":["600"],"tag":"alone"}', conn=c).readline()
    c.close()
    time.sleep(0.1)
    ok([p for p in s.call("GET", f"/v1/sandboxes/{id}/processes")["processes"] if p.get("tag") == "alone"], "a client that goes away kills nothing")


def test_files(id):
    f = f"/v1/sandboxes/{id}/files"
    data = os.urandom(4 << 20)
    equal(s.raw("POST", f + "?path=deep/er/blob", data).status, 200, "a file is written, parents are made")
    ok(s.raw("GET", f + "?path=deep/er/blob").read() == data, "and read")
    r = s.raw("GET", f + "?path=deep/er/blob", headers={"Range": "bytes=5-9"})
    equal((r.status, r.read()), (206, data[5:10]), "a range of it")
    equal(s.raw("POST", f + "?path=empty", b"").status, 200, "an empty file")
    equal(s.raw("GET", f + "?path=empty").read(), b"", "reads empty")
    ok(b"MemTotal" in s.raw("GET", f + "?path=/proc/meminfo").read(), "a file without a size")
    r = s.call("POST", f + "/mkdir", {"path": "dir/a"})
    equal((r["entry"]["type"], r["entry"]["path"]), ("dir", "/home/user/dir/a"), "a folder")
    fails(409, "already_exists", "POST", f + "/mkdir", {"path": "dir/a"})
    s.raw("POST", f + "?path=dir/b&metadata.colour=red", b"b").read()
    equal(s.call("GET", f + "/stat?path=dir/b")["entry"]["metadata"], {"colour": "red"}, "metadata is kept")
    equal(sorted(e["name"] for e in s.call("GET", f + "/list?path=dir")["entries"]), ["a", "b"], "listed")
    equal(s.call("POST", f + "/move", {"from": "dir/b", "to": "x/y/z"})["entry"]["path"], "/home/user/x/y/z", "moved")
    fails(404, "not_found", "GET", f + "/stat?path=dir/b")
    s.call("DELETE", f + "?path=x"), s.call("DELETE", f + "?path=x")
    fails(404, "not_found", "GET", f + "/list?path=x")
    fails(400, "is_a_folder", "GET", f + "?path=dir")
    fails(403, "forbidden", "GET", f + "?path=/proc/kmsg")
    for bad in ("%00", "%zz", "%"):
        fails(400, "invalid_argument", "GET", f + "/list?path=dir&depth=" + bad, says="can't be decoded")
    st = s.stream(f + "/watch", {"path": "dir", "recursive": True})
    ok("start" in next(st), "a watch starts")
    s.raw("POST", f + "?path=dir/a/new", b"1").read()
    ev = next(st)
    equal((ev["watch"]["type"], ev["watch"]["name"]), ("create", "a/new"), "and sees a file below")


def test_ports(id):
    script = ("import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n"
              " def do_POST(self):\n  b=self.rfile.read(int(self.headers['content-length'])); t=(self.path+' '+self.headers['host']+' '+str(self.headers.get('x-api-key'))+self.headers.get('authorization','')).encode()+b' '+b\n"
              "  self.send_response(200); self.send_header('content-length',str(len(t))); self.end_headers(); self.wfile.write(t)\n"
              "http.server.HTTPServer(('127.0.0.1',8123),H).serve_forever()")
    st = s.stream(f"/v1/sandboxes/{id}/exec", {"cmd": "python3", "args": ["-c", script]})
    next(st)
    ok(wait_for(lambda: 8123 in s.call("GET", f"/v1/sandboxes/{id}/ports")["ports"], 10), "a port is listed")
    r = s.raw("POST", f"/v1/sandboxes/{id}/ports/8123/proxy/a/b?c=d", b"body")
    equal((r.status, r.read()), (200, b"/a/b?c=d localhost:8123 None body"), "and reached, without our key")
    for headers, got in (({"X-API-KEY": s.key, "Authorization": "Bearer theirs"}, b"Bearer theirs"),
                         ({"X-API-KEY": s.key, "Authorization": "Bearer " + s.key}, b""),
                         ({"X-Access-Token": "of-one-that-has-ended", "Authorization": "Bearer " + s.key}, b"")):
        r = s.raw("POST", f"/v1/sandboxes/{id}/ports/8123/proxy/", b"x", key="", headers=headers)
        equal((r.status, r.read()), (200, b"/ localhost:8123 None" + got + b" x"), "an Authorization of its own passes, never a key of ours")
    fails(502, "refused", "GET", f"/v1/sandboxes/{id}/ports/8124/proxy/")
    fails(403, "forbidden", "GET", f"/v1/sandboxes/{id}/ports/8123/proxy/", headers={"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"})
    c = socket.create_connection((s.host, s.port))
    c.sendall((f"POST /v1/sandboxes/{id}/ports/dial?port=8123 HTTP/1.1\r\nHost: x\r\nX-API-KEY: {s.key}\r\nContent-Length: 0\r\n"
               "Connection: upgrade\r\nUpgrade: tcp\r\n\r\n").encode())
    ok(c.recv(100).startswith(b"HTTP/1.1 101"), "a plain tunnel opens")
    c.sendall(b"POST /t HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
    got = b""
    while True:
        more = c.recv(4096)
        got += more
        if not more:
            break
    ok(got.endswith(b"/t h None hi"), "and carries bytes", got)


def slow_clients(id):
    """A client that doesn't read its download, one whose download is a pipe, one that says nothing to its port, and one that doesn't go on
    with its upload."""
    def begin(head, more=b""):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect((s.host, s.port))
        c.sendall(f"{head} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {s.key}\r\n".encode() + more)
        return c
    f = f"/v1/sandboxes/{id}/files?path="
    cs = [begin(f"GET {f}/tmp/big", b"\r\n"), begin(f"GET {f}/dev/zero", b"\r\n"),
          begin(f"POST /v1/sandboxes/{id}/ports/dial?port=8123", b"Content-Length: 0\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n"),
          begin(f"POST {f}/tmp/up", b"Content-Length: 100000000\r\n\r\n" + b"x" * 70000)]
    wait_for(lambda: s.exec(id, "stat", "-c", "%s", "/tmp/up")[0] == b"70000\n", 5)
    for c in cs[:3]:
        c.recv(1, socket.MSG_PEEK)
    return cs


def is_cut(c):
    """A reset, behind whatever was still under way."""
    c.setblocking(False)
    try:
        while c.recv(1 << 16):
            pass
        return False
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_hostile(id):
    """What runs in a computer can't hurt the server."""
    if "memory" in box["unenforced"]:
        skip("memory can't be limited here")
    else:
        end = s.exec(id, "python3", "-c", "x=bytearray(900<<20)")[2]
        equal(end, {"how": "signaled", "code": 9, "oom": True}, "too much memory: said so")
    equal(s.exec(id, "echo", "alive")[0], b"alive\n", "the computer lives on")


try:
    test_who()
    test_arguments()
    test_no_requests()
    test_life()
    box = s.create(memory=512 << 20, timeout_ms=0)
    for t in (test_programs, test_files, test_ports, test_hostile):
        t(box["id"])
    st = s.stream(f"/v1/sandboxes/{box['id']}/exec", {"cmd": "sleep", "args": ["600"]})
    next(st)
    s.exec(box["id"], "dd", "if=/dev/zero", "of=/tmp/big", "bs=1M", "count=64")
    slow = slow_clients(box["id"])
    s.kill(box["id"])
    ok(all(wait_for(lambda: is_cut(c), 5) for c in slow), "downloads, uploads and tunnels of a killed computer are cut: nothing keeps its files")
    last = list(st)[-1]
    ok(last.get("error", {}).get("code") == "not_found", "a stream of a killed computer says that it has ended", last)
    def in_audit():      # written at the end of the turn that answered
        lines = [json.loads(x) for x in open(os.path.join(s.state, "audit/audit.log"))]
        return any(x["op"] == "sandbox.kill" and x.get("id") == box["id"] and x["outcome"] == "ok" for x in lines)
    ok(wait_for(in_audit, 5), "the audit has it")
    ok(s.key not in open(os.path.join(s.state, "audit/audit.log")).read() + s.log_text(), "the key is in no log")
    for name, mode in (("api-key", 0o600), ("server.json", 0o600), ("audit/audit.log", 0o600), ("store", 0o700)):
        equal(os.stat(os.path.join(s.state, name)).st_mode & 0o777, mode, f"{name} is {mode:o}")
    second = subprocess.run([BUILD / "bureau-serve", "--state", s.state, "--listen", "127.0.0.1:0"], capture_output=True, timeout=20)
    ok(second.returncode == 3 and b"already" in second.stderr, "one server a state folder", second)
    equal(s.stop(), 0, "it stops")
    left = wait_for(lambda: not s.leftovers(), 5) or s.leftovers()
    ok(left is True, "and leaves nothing", left)
    os.rename(os.path.join(s.state, "api-key"), os.path.join(s.state, "kept"))
    os.mkfifo(os.path.join(s.state, "api-key"))
    bad = subprocess.run([BUILD / "bureau-serve", "--state", s.state, "--listen", "127.0.0.1:0"], capture_output=True, timeout=20)
    ok(bad.returncode == 1 and b"isn't a regular file" in bad.stderr, "a key file that is none is refused", bad)
    os.rename(os.path.join(s.state, "kept"), os.path.join(s.state, "api-key"))
    os.chmod(s.state, 0o777)
    bad = subprocess.run([BUILD / "bureau-serve", "--state", s.state, "--listen", "127.0.0.1:0"], capture_output=True, timeout=20)
    ok(bad.returncode == 1 and b"anybody may write" in bad.stderr, "a state folder that anybody may write to is refused", bad)
    os.chmod(s.state, 0o755)
    bad = subprocess.run([BUILD / "bureau-serve", "--state", s.state, "--no-key", "--listen", "0.0.0.0:0"], capture_output=True, timeout=20)
    ok(bad.returncode == 1 and b"loopback only" in bad.stderr, "no key off loopback is refused", bad)
    os.rename(os.path.join(s.state, "audit/audit.log"), os.path.join(s.state, "audit.log"))      # as an older server left it
    free = Server("--no-key", state=s.state).start()
    ok(in_audit() and not os.path.exists(os.path.join(s.state, "audit.log")), "an older audit.log is taken along")
    ok(free.call("GET", "/v1/status", key="")["version"], "--no-key: whoever is on this machine")
    r = free.raw("GET", "/v1/status", key="", headers={"Host": "evil.example"})
    equal(r.status, 403, "but not under another site's name (DNS rebinding)")
    free.stop()
finally:
    s.stop()
    s.remove()
done()
