"""E2B's wire by hand, on a real sandbox: what SDKs rely on without a test of theirs that shows it."""
import base64, datetime, gzip, http.client, json, os, struct, sys, time, traceback, urllib.parse

url = urllib.parse.urlsplit(os.environ["BUREAU_URL"])
key = os.environ["BUREAU_API_KEY"]
n = bad = 0


def test(text):
    def run(fn):
        global n, bad
        n += 1
        try:
            fn()
            print(f"ok {n} - {text}", flush=True)
        except BaseException:
            bad += 1
            print(f"not ok {n} - {text}", flush=True)
            print("".join("# " + l for l in traceback.format_exc().splitlines(True)), flush=True)
    return run


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def call(method, path, body=None, headers={}, host=None):
    """status, fields, body"""
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    try:
        c.putrequest(method, path, skip_host=bool(host), skip_accept_encoding=True)
        if host:
            c.putheader("Host", host)
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        if data is not None:
            c.putheader("Content-Length", str(len(data)))
        for k, v in headers.items():
            c.putheader(k, v)
        c.endheaders(data)
        r = c.getresponse()
        return r.status, r.headers, r.read()
    finally:
        c.close()


def api(method, path, body=None, status=200, **more):
    s, h, b = call(method, path, body, {"X-API-KEY": key, **more})
    assert s == status, (method, path, s, b)
    if s >= 400:
        same(json.loads(b)["code"], s)
    return json.loads(b) if b else None


def at(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def left(id):
    return at(api("GET", f"/sandboxes/{id}")["endAt"]) - time.time()


def near(a, b):
    assert abs(a - b) < 5, (a, b)


sbx = api("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600, "envVars": {"G": "g"}}, 201)
id = sbx["sandboxID"]
me = {"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "49983", "X-Access-Token": sbx["envdAccessToken"]}


def basic(user):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode()}


def rpc(name, body, status=200, **more):
    s, h, b = call("POST", "/" + name, body, {**me, "Content-Type": "application/json", "Connect-Protocol-Version": "1", **more})
    assert s == status, (name, s, b)
    return json.loads(b)


def envelope(o):
    b = json.dumps(o).encode()
    return struct.pack(">BI", 0, len(b)) + b


def stream(name, body, **more):
    """All messages of a stream that ends."""
    s, h, b = call("POST", "/" + name, body if isinstance(body, bytes) else envelope(body), {**me, "Content-Type": "application/connect+json", **more})
    same((s, h["Content-Type"]), (200, "application/connect+json"))
    out = []
    while b:
        flags, size = struct.unpack(">BI", b[:5])
        out.append((flags, json.loads(b[5:5 + size])))
        b = b[5 + size:]
    same(out[-1][0], 2)
    return [m for f, m in out[:-1]], out[-1][1]


def run(cmd, more={}, **headers):
    """stdout, the end event"""
    got, last = stream("process.Process/Start", {"process": {"cmd": "/bin/bash", "args": ["-c", cmd], **more}, "stdin": False}, **headers)
    if not got:
        return None, last["error"]
    events = [m["event"] for m in got]
    assert "start" in events[0], events[0]
    return b"".join(base64.b64decode(e["data"].get("stdout", "")) for e in events if "data" in e).decode(), events[-1]["end"]


class Quiet:
    """A program whose stream is left open."""
    def __init__(self, **process):
        self.c = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        self.c.request("POST", "/process.Process/Start", envelope(process), {**me, "Content-Type": "application/connect+json"})
        self.r = self.c.getresponse()
        self.pid = self.message()["event"]["start"]["pid"]

    def message(self):
        flags, size = struct.unpack(">BI", self.r.read(5))
        return json.loads(self.r.read(size))

    def until_end(self):
        out = b""
        while True:
            e = self.message()["event"]
            if "end" in e:
                self.c.close()
                return out, e["end"]
            for v in e.get("data", {}).values():
                out += base64.b64decode(v)


@test("create: the new route and the old one, their timeouts and tokens")
def _():
    same([k for k in ("sandboxID", "templateID", "clientID", "envdVersion", "envdAccessToken") if not sbx.get(k)], [])
    for path, body, token, seconds in (("/v2/sandboxes", {}, True, 300), ("/sandboxes", {}, False, 15), ("/sandboxes", {"secure": True}, True, 15),
                                       ("/sandboxes", {"secure": False, "timeout": 100}, False, 100)):
        b = api("POST", path, {"templateID": "base", **body}, 201)
        same("envdAccessToken" in b, token)
        near(left(b["sandboxID"]), seconds)
        s, _, text = call("GET", "/envs", None, {"E2b-Sandbox-Id": b["sandboxID"], "E2b-Sandbox-Port": "49983"})
        same(s, 401 if token else 200)
        assert not token or json.loads(text)["code"] == 401
        assert api("DELETE", f"/sandboxes/{b['sandboxID']}", None, 204) is None
        api("DELETE", f"/sandboxes/{b['sandboxID']}", None, 404)


@test("connect, old and new: extends, never shortens; timeout may; refreshes extends")
def _():
    for path in ("/sandboxes/%s/connect", "/v2/sandboxes/%s/connect"):
        api("POST", f"/sandboxes/{id}/timeout", {"timeout": 100}, 204)
        near(left(id), 100)
        same(api("POST", path % id, {"timeout": 50})["envdAccessToken"], sbx["envdAccessToken"])
        near(left(id), 100)
        api("POST", path % id, {"timeout": 700})
        near(left(id), 700)
        api("POST", path % "i00000000000000000000", {"timeout": 1}, 404)
    api("POST", f"/sandboxes/{id}/timeout", {"timeout": 100}, 204)
    api("POST", f"/v2/sandboxes/{id}/connect", {})
    near(left(id), 300)
    api("POST", f"/sandboxes/{id}/refreshes", {"duration": 60}, 204)
    near(left(id), 300)
    api("POST", f"/sandboxes/{id}/refreshes", {"duration": 900}, 204)
    near(left(id), 900)
    api("POST", f"/sandboxes/{id}/refreshes", {"duration": 3601}, 400)
    api("POST", f"/sandboxes/{id}/refreshes", None, 204)
    api("POST", f"/sandboxes/{id}/resume", {}, 409)
    for what in ("timeout", "refreshes"):
        api("POST", f"/sandboxes/i00000000000000000000/{what}", {"timeout": 1} if what == "timeout" else {}, 404)
    api("POST", f"/sandboxes/{id}/timeout", {}, 400)
    api("POST", f"/sandboxes/{id}-client/timeout", {"timeout": 900}, 204)     # as old ids were
    same(api("GET", f"/sandboxes/{id}-client")["sandboxID"], id)


@test("list: order, pages, filters, headers")
def _():
    made = []
    for i in range(4):
        made.append(api("POST", "/sandboxes", {"templateID": "base" if i else "host", "timeout": 60, "metadata": {"l": "1", "i": f"{i} &="}}, 201)["sandboxID"])
        began = time.time()
        while time.time() < began + 0.005:      # each starts in a millisecond of its own
            time.sleep(0.001)
    q = lambda **f: "/v2/sandboxes?" + urllib.parse.urlencode({"metadata": urllib.parse.urlencode({"l": "1"}), **f})
    ids = lambda path: [b["sandboxID"] for b in api("GET", path)]
    same(ids(q()), made[::-1])
    same(ids(q(order="asc")), made)
    same(ids(q(metadata=urllib.parse.urlencode({"l": "1", "i": "2 &="}))), [made[2]])
    same(ids(q(template="host")), [made[0]])
    same(ids(q(state="running,paused")), made[::-1])
    same(ids(q(state="paused")), [])
    started = api("GET", f"/sandboxes/{made[1]}")["startedAt"]
    same(made[0] in ids(q(startedAfter=started)), False)
    same(made[3] in ids(q(startedAfter=started)), True)
    seen, token = [], ""
    while True:
        s, h, b = call("GET", q(limit=3, **({"nextToken": token} if token else {})), None, {"X-API-KEY": key})
        seen.append([x["sandboxID"] for x in json.loads(b)])
        same(h["X-Total-Running"], "5")
        token = h["X-Next-Token"]
        if not token:
            break
    same([len(p) for p in seen], [3, 1])
    same(sum(seen, []), made[::-1])
    same(sorted(ids("/sandboxes?metadata=" + urllib.parse.quote("l=1"))), sorted(made))
    same(ids(q() + "&x=y"), made[::-1])
    same(set(api("GET", "/sandboxes/metrics?sandbox_ids=" + ",".join(made[:2]))["sandboxes"]), set(made[:2]))
    one = next(b for b in api("GET", q()))
    same([k for k in ("templateID", "sandboxID", "clientID", "startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB", "metadata", "state", "envdVersion") if k not in one], [])
    for i in made:
        api("DELETE", f"/sandboxes/{i}", None, 204)


@test("keys: X-API-KEY, Bearer; none and a wrong one")
def _():
    same(call("GET", "/v2/sandboxes", None, {"Authorization": "Bearer " + key})[0], 200)
    for h in ({}, {"X-API-KEY": "e2b_" + "0" * 40}, {"X-API-KEY": sbx["envdAccessToken"]}, {"X-Access-Token": sbx["envdAccessToken"]}):
        s, _, b = call("GET", "/v2/sandboxes", None, h)
        same((s, json.loads(b)["code"]), (401, 401))


@test("which sandbox: by fields, by host, fields before host; half an address; 502s")
def _():
    health = lambda h={}, host=None: call("GET", "/health", None, h, host)
    same(health(me)[0], 204)
    same(health({}, f"49983-{id}.example.test")[0], 204)
    same(health(me, "49983-i00000000000000000000.example.test")[0], 204)
    same(call("GET", "/envs", None, {"X-Access-Token": me["X-Access-Token"]}, f"49983-{id}.localhost")[0], 200)
    for half in ({"E2b-Sandbox-Id": id}, {"E2b-Sandbox-Port": "49983"}):
        s, _, b = health(half)
        assert s == 400 and b"missing" in b, (s, b)
    gone = {**me, "E2b-Sandbox-Id": "i00000000000000000000"}
    for path in ("/health", "/files?path=x", "/envs"):
        s, _, b = call("GET", path, None, gone)
        same((s, json.loads(b)), (502, {"sandboxId": gone["E2b-Sandbox-Id"], "message": "The sandbox was not found", "code": 502}))
    s, _, b = call("POST", "/process.Process/List", {}, {**gone, "Content-Type": "application/json"})
    same(s, 502)
    s, h, b = call("GET", "/", None, {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Accept": "text/html"}, "3000-i00000000000000000000.localhost")
    assert s == 502 and h["Content-Type"].startswith("text/html"), (s, h["Content-Type"])
    s, h, b = call("GET", "/", None, {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Accept": "application/json"}, "3000-i00000000000000000000.localhost")
    same((s, json.loads(b)["code"]), (502, 502))
    s, _, b = call("GET", "/", None, {**me, "E2b-Sandbox-Port": "3000"})
    same((s, json.loads(b)), (502, {"sandboxId": id, "message": "The sandbox is running but port is not open", "port": 3000, "code": 502}))


@test("tokens: every envd request but /health; inner routes are nobody's")
def _():
    none = {k: v for k, v in me.items() if k != "X-Access-Token"}
    same(call("GET", "/health", None, none)[0], 204)
    for h in (none, {**none, "X-Access-Token": "0" * 64}):
        for method, path in (("GET", "/envs"), ("GET", "/metrics"), ("GET", "/files?path=x"), ("POST", "/files?path=x")):
            s, _, b = call(method, path, b"" if method == "POST" else None, h)
            same((s, json.loads(b)["code"]), (401, 401))
        s, _, b = call("POST", "/filesystem.Filesystem/Stat", {"path": "/"}, {**h, "Content-Type": "application/json"})
        same((s, json.loads(b)["code"]), (401, "unauthenticated"))
    for path in ("/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"):
        same(call("POST", path, {}, me)[0], 404)


@test("who: user by name, root, nobody; what the environment holds")
def _():
    ids = run("id -u; echo ~")[0].split()
    assert ids[1] == "/home/user", ids
    same(run("id -u; echo $HOME $USER $LOGNAME $G $H", {"envs": {"G": "over", "H": "h"}}, **basic("root"))[0], "0\n/root root root over h\n")
    same(run("id -u", **basic("user"))[0].split()[0], ids[0])
    same(run("id -u", **basic("nobody-here"))[1]["code"], "unauthenticated")
    same(call("GET", "/files?path=x&username=nobody-here", None, me)[0], 401)
    same(call("POST", "/files?path=of-root&username=root", b"x", {**me, "Content-Type": "application/octet-stream"})[0], 200)
    same(run("stat -c %u /root/of-root", **basic("root"))[0], "0\n")
    same(json.loads(call("GET", "/envs", None, me)[2]).get("G"), "g")


@test("programs: ends as E2B tells them")
def _():
    same(run("exit 0")[1]["status"], "exit status 0")
    e = run("exit 3")[1]
    same((e["exitCode"], e["exited"], e["status"], e["error"]), (3, True, "exit status 3", "exit status 3"))
    e = run("kill -9 $$")[1]
    same((e["exitCode"], e.get("exited", False), e["status"], e["error"]), (-1, False, "signal: killed", "signal: killed"))
    e = run("true", {"cwd": "/nope"})[1]
    same((e["code"], "'/nope' does not exist" in e["message"]), ("invalid_argument", True))
    same(run("pwd", {"cwd": "~"})[0], "/home/user\n")
    same(run("mkdir -p sub; pwd", {"cwd": ""})[0], "/home/user\n")
    same(run("pwd", {"cwd": "sub"})[0], "/home/user/sub\n")
    same(run("cat; echo end")[0], "end\n")


@test("programs: input, signals, closing, size, by pid and by tag")
def _():
    p = Quiet(process={"cmd": "cat"}, tag="mine")
    same([(x["pid"], x.get("tag"), x["config"]["cmd"]) for x in rpc("process.Process/List", {})["processes"]], [(p.pid, "mine", "cat")])
    rpc("process.Process/SendInput", {"process": {"tag": "mine"}, "input": {"stdin": base64.b64encode(b"a").decode()}})
    same(rpc("process.Process/SendInput", {"process": {"pid": p.pid}, "input": {"pty": "YQ=="}}, 500)["code"], "internal")
    body = b"".join(map(envelope, [{"start": {"process": {"pid": p.pid}}}, {"data": {"input": {"stdin": base64.b64encode(b"b").decode()}}}, {"keepalive": {}},
                                   {"data": {"input": {"stdin": base64.b64encode(b"c").decode()}}}]))
    same(call("POST", "/process.Process/StreamInput", body, {**me, "Content-Type": "application/connect+json"})[0], 200)
    for _ in range(2):
        rpc("process.Process/CloseStdin", {"process": {"pid": p.pid}})
    same(p.until_end()[0], b"abc")
    t = Quiet(process={"cmd": "/bin/bash", "args": ["--norc", "-i"], "envs": {"PS1": ""}}, pty={"size": {"cols": 70, "rows": 20}})
    rpc("process.Process/Update", {"process": {"pid": t.pid}, "pty": {"size": {"cols": 90, "rows": 30}}})
    same(rpc("process.Process/CloseStdin", {"process": {"pid": t.pid}}, 400)["code"], "invalid_argument")     # a terminal's isn't closed
    rpc("process.Process/SendInput", {"process": {"pid": t.pid}, "input": {"pty": base64.b64encode(b"stty size; exit 5\n").decode()}})
    out, end = t.until_end()
    assert b"30 90" in out and end["exitCode"] == 5, (out, end)
    for signal, name in (("SIGNAL_SIGTERM", "terminated"), (9, "killed")):
        p = Quiet(process={"cmd": "sleep", "args": ["100"]})
        rpc("process.Process/SendSignal", {"process": {"pid": p.pid}, "signal": signal})
        same(p.until_end()[1]["status"], "signal: " + name)
    for method, more in (("SendSignal", {"signal": "SIGNAL_SIGKILL"}), ("SendInput", {"input": {"stdin": "YQ=="}}), ("Update", {"pty": {"size": {"cols": 1, "rows": 1}}}), ("CloseStdin", {})):
        e = rpc("process.Process/" + method, {"process": {"pid": 99999}, **more}, 404)
        same((e["code"], e["message"]), ("not_found", "process with pid 99999 not found"))


@test("files: bodies of every kind, what is said of each")
def _():
    octet = {**me, "Content-Type": "application/octet-stream"}
    s, _, b = call("POST", "/files?path=d/e/f.txt", b"text", octet)
    same((s, json.loads(b)), (200, [{"name": "f.txt", "path": "/home/user/d/e/f.txt", "type": "file"}]))
    s, h, b = call("GET", "/files?path=~/d/e/f.txt", None, me)
    same((s, b), (200, b"text"))
    assert h["Content-Disposition"].startswith("inline") and "f.txt" in h["Content-Disposition"], h["Content-Disposition"]
    s, h, b = call("GET", "/files?path=d/e/f.txt", None, {**me, "Accept-Encoding": "gzip"})
    same(gzip.decompress(b) if h["Content-Encoding"] == "gzip" else b, b"text")
    same(call("POST", "/files?path=z", gzip.compress(b"zipped"), {**octet, "Content-Encoding": "gzip"})[0], 200)
    same(call("GET", "/files?path=z", None, me)[2], b"zipped")
    form = b'--B\r\nContent-Disposition: form-data; name="file"; filename="m/a.txt"\r\n\r\nA\r\n--B\r\nContent-Disposition: form-data; name="file"; filename="/tmp/m b.txt"\r\n\r\nB\r\n--B--\r\n'
    multi = {**me, "Content-Type": "multipart/form-data; boundary=B"}
    same([x["path"] for x in json.loads(call("POST", "/files", form, multi)[2])], ["/home/user/m/a.txt", "/tmp/m b.txt"])
    same(call("POST", "/files?path=gz", gzip.compress(form.split(b"--B\r\n")[0] + b"--B\r\n" + form.split(b"--B\r\n")[1] + b"--B--\r\n"), {**multi, "Content-Encoding": "gzip"})[0], 200)
    same(call("GET", "/files?path=gz", None, me)[2], b"A")
    same(call("POST", "/files?path=empty", b"", octet)[0], 200)
    s, h, b = call("GET", "/files?path=empty", None, me)
    same((s, h["Content-Length"], b), (200, "0", b""))
    assert b"Name:" in call("GET", "/files?path=/proc/self/status", None, me)[2]
    for path, status, says in (("nope", 404, "does not exist"), ("/home/user", 400, "is a directory")):
        s, _, b = call("GET", "/files?path=" + path, None, me)
        same((s, json.loads(b)["code"]), (status, status))
        assert says in json.loads(b)["message"], b
    same(call("POST", "/files?path=meta", b"x", {**octet, "X-Metadata-Author": "me"})[0], 200)
    same(rpc("filesystem.Filesystem/Stat", {"path": "meta"})["entry"]["metadata"], {"author": "me"})
    for name, size, status in (("k" * 240, 10, 200), ("k" * 250, 10, 400), ("k", 5000, 400)):
        same(call("POST", "/files?path=meta", b"x", {**octet, "X-Metadata-" + name: "v" * size})[0], status)
    same(call("POST", "/files?path=/dev/full/x", b"x", octet)[0], 400)


@test("folders: stat, list by depth, make, move, remove, their failures")
def _():
    fs = lambda method, body, status=200: rpc("filesystem.Filesystem/" + method, body, status)
    e = fs("MakeDir", {"path": "t/a/b"})["entry"]
    same((e["name"], e["type"], e["path"], e["permissions"]), ("b", "FILE_TYPE_DIRECTORY", "/home/user/t/a/b", "drwxr-xr-x"))
    same(fs("MakeDir", {"path": "t/a/b"}, 409)["code"], "already_exists")
    call("POST", "/files?path=t/f", b"1234567", {**me, "Content-Type": "application/octet-stream"})
    same(fs("MakeDir", {"path": "t/f"}, 400)["code"], "invalid_argument")
    e = fs("Stat", {"path": "t/f"})["entry"]
    same((e["size"], e["mode"], e["permissions"], e["type"]), ("7", 0o644, "-rw-r--r--", "FILE_TYPE_FILE"))
    assert abs(at(e["modifiedTime"]) - time.time()) < 60
    same(sorted(x["path"] for x in fs("ListDir", {"path": "t"})["entries"]), ["/home/user/t/a", "/home/user/t/f"])
    same(len(fs("ListDir", {"path": "t", "depth": 2})["entries"]), 3)
    same(fs("ListDir", {"path": "t/f"}, 400)["code"], "invalid_argument")
    same(fs("Move", {"source": "t/f", "destination": "n/e/w"})["entry"]["path"], "/home/user/n/e/w")
    for method, body in (("Stat", {"path": "nope"}), ("ListDir", {"path": "nope"}), ("Move", {"source": "nope", "destination": "x"})):
        same(fs(method, body, 404)["code"], "not_found")
    for _ in range(2):
        same(fs("Remove", {"path": "t"}), {})


@test("watchers that are asked: made, drained, removed")
def _():
    fs = lambda method, body, status=200: rpc("filesystem.Filesystem/" + method, body, status)
    fs("MakeDir", {"path": "w"})
    w = fs("CreateWatcher", {"path": "w", "recursive": True, "include_entry": True})["watcherId"]
    call("POST", "/files?path=w/deep/x", b"1", {**me, "Content-Type": "application/octet-stream"})
    got, end = [], time.monotonic() + 20
    while not any(e["name"] == "deep/x" for e in got) and time.monotonic() < end:
        got += fs("GetWatcherEvents", {"watcherId": w}).get("events", [])
        time.sleep(0.02)
    kinds = {(e["name"], e["type"]) for e in got}
    assert ("deep", "EVENT_TYPE_CREATE") in kinds and any(k[0] == "deep/x" for k in kinds), kinds
    assert any(e.get("entry", {}).get("path") == "/home/user/w/deep" for e in got), got
    same(fs("RemoveWatcher", {"watcherId": w}), {})
    for method in ("GetWatcherEvents", "RemoveWatcher"):
        same(fs(method, {"watcherId": w}, 404)["code"], "not_found")
    same(fs("CreateWatcher", {"path": "nope"}, 404)["code"], "not_found")
    call("POST", "/files?path=wf", b"1", {**me, "Content-Type": "application/octet-stream"})
    same(fs("CreateWatcher", {"path": "wf"}, 400)["code"], "invalid_argument")
    same(stream("filesystem.Filesystem/WatchDir", {"path": "nope"})[1]["error"]["code"], "not_found")


@test("metrics of envd and of the control plane")
def _():
    m = json.loads(call("GET", "/metrics", None, me)[2])
    same([k for k in ("ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "disk_used", "disk_total") if k not in m], [])
    m = api("GET", f"/sandboxes/{id}/metrics")[0]
    same([k for k in ("timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal") if k not in m], [])
    api("GET", "/sandboxes/i00000000000000000000/metrics", None, 404)


@test("timeouts are exact; what ended by one says so")
def _():
    b = api("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 1}, 201)
    end = at(api("GET", f"/sandboxes/{b['sandboxID']}")["endAt"])
    seen = None
    while time.time() < end + 10:
        now = time.time()
        if call("GET", f"/sandboxes/{b['sandboxID']}", None, {"X-API-KEY": key})[0] == 404:
            seen = time.time()
            break
        last = now
        time.sleep(0.01)
    assert seen and seen > end - 0.1 and last < end + 5, (end, last, seen)
    s, _, text = call("GET", f"/sandboxes/{b['sandboxID']}", None, {"X-API-KEY": key})
    assert b"its time was over" in text, text


api("DELETE", f"/sandboxes/{id}", None, 204)
print(f"1..{n}")
sys.exit(bad != 0)
