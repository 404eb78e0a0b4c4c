"""E2B's wire, spoken by hand: large, slow, many and wrong. The daemon's memory and descriptors are looked at from outside."""
import base64, hashlib, http.client, json, os, re, socket, struct, sys, time, traceback
from urllib.parse import urlsplit

SANITIZED = os.path.exists(os.path.join(os.environ.get("BUREAU_BUILD", "build"), "sanitize-probe"))
url = urlsplit(os.environ["BUREAU_URL"])
key = os.environ["BUREAU_API_KEY"]
n = bad = 0


class Skip(Exception):
    pass


def test(text):
    def run(fn):
        global n, bad
        n += 1
        try:
            fn()
            print(f"ok {n} - {text}", flush=True)
        except Skip as e:
            print(f"ok {n} - {text} # SKIP {e}", flush=True)
        except BaseException:
            bad += 1
            print(f"not ok {n} - {text}", flush=True)
            print("".join("# " + l for l in traceback.format_exc().splitlines(True)), flush=True)
    return run


def until(what, fn, seconds=20):
    end = time.monotonic() + seconds
    while not fn():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def daemon():
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{p}/stat").read()
        except OSError:
            continue
        if stat[stat.rindex(")") + 2:].split()[1] == os.environ["BUREAU_SERVER_PID"] and "(bureaud)" in stat:
            return int(p)


def memory():
    if SANITIZED:       # freed memory is kept for a while, so its amount says nothing
        return 0
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{daemon()}/status").read())[1]) * 1024


def descriptors():
    try:
        return len(os.listdir(f"/proc/{daemon()}/fd"))
    except PermissionError:
        raise Skip("only root may look at the daemon's descriptors") from None


def call(method, path, body=None, headers={}, timeout=60):
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    try:
        c.request(method, path, body, headers)
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def create():
    s, b = call("POST", "/v2/sandboxes", json.dumps({"templateID": "base", "timeout": 600}), {"X-API-KEY": key})
    assert s == 201, (s, b)
    return json.loads(b)


sbx = create()
me = {"E2b-Sandbox-Id": sbx["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": sbx["envdAccessToken"]}


def envelope(o, flags=0):
    b = o if isinstance(o, bytes) else json.dumps(o).encode()
    return struct.pack(">BI", flags, len(b)) + b


def start(cmd, headers={}, stdin=False):
    """A raw connection on which the stream comes, and what was read of it so far: the start."""
    body = envelope({"process": {"cmd": "/bin/bash", "args": ["-c", cmd]}, "stdin": stdin})
    s = socket.create_connection((url.hostname, url.port), 30)
    lines = [f"POST /process.Process/Start HTTP/1.1", f"Host: {url.netloc}", "Content-Type: application/connect+json", f"Content-Length: {len(body)}"]
    lines += [f"{k}: {v}" for k, v in {**me, **headers}.items()]
    s.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    got = b""
    while b'"pid":' not in got:
        d = s.recv(4096)
        assert d, got
        got += d
    return s, got


def run(cmd):
    s, got = start(cmd)
    while b"\r\n0\r\n\r\n" not in got:
        d = s.recv(65536)
        if not d:
            break
        got += d
    s.close()
    return b"".join(base64.b64decode(m) for m in re.findall(rb'"stdout":"([^"]*)"', got)).decode()


@test("512 MiB up and down in constant memory")
def _():
    size, before = 512 << 20, memory()
    piece = os.urandom(1 << 20)
    h = hashlib.sha256()
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
    c.putrequest("POST", "/files?path=big")
    for k, v in {**me, "Content-Type": "application/octet-stream", "Content-Length": str(size)}.items():
        c.putheader(k, v)
    c.endheaders()
    most = 0
    for _ in range(512):
        c.send(piece)
        h.update(piece)
        most = max(most, memory())
    assert c.getresponse().status == 200
    c.close()
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
    c.request("GET", "/files?path=big", headers=me)
    r, g, got = c.getresponse(), hashlib.sha256(), 0
    while True:
        d = r.read(1 << 20)
        if not d:
            break
        got += len(d)
        g.update(d)
        most = max(most, memory())
    c.close()
    assert got == size and g.digest() == h.digest()
    assert most - before < 16 << 20, f"{most - before} bytes more"


@test("ranges and conditions of a download")
def _():
    call("POST", "/files?path=r", b"0123456789", {**me, "Content-Type": "application/octet-stream"})
    assert call("GET", "/files?path=r", None, {**me, "Range": "bytes=2-4"}) == (206, b"234")
    assert call("GET", "/files?path=r", None, {**me, "Range": "bytes=-3"}) == (206, b"789")
    assert call("GET", "/files?path=r", None, {**me, "Range": "bytes=20-"})[0] == 416
    assert call("HEAD", "/files?path=r", None, me) == (200, b"")


@test("multipart of 64 MiB, chunked, in constant memory")
def _():
    before, most = memory(), 0
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=120)

    def body():
        nonlocal most
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="m/big"\r\n\r\n'
        for _ in range(64):
            yield b"m" * (1 << 20)
            most = max(most, memory())
        yield b"\r\n--x--\r\n"

    c.request("POST", "/files", body(), {**me, "Content-Type": "multipart/form-data; boundary=x", "Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert c.getresponse().status == 200
    c.close()
    assert run("stat -c %s m/big").strip() == str(64 << 20)
    assert most - before < 16 << 20, f"{most - before} bytes more"


@test("a client that reads nothing holds its program back, and nobody's memory fills")
def _():
    before = memory()
    s, got = start("while :; do printf '%65536s' x; echo >> /tmp/count; done")
    last = 0

    def count():        # lines are added whole; a file written anew would be empty for a moment
        return int(run("cat /tmp/count 2>/dev/null | wc -l"))

    def still():
        nonlocal last
        now = count()
        same, last = now == last > 0, now
        time.sleep(0.3)
        return same

    until("the program stands still", still)
    assert memory() - before < 16 << 20
    end = time.monotonic() + 20
    taken = 0
    while taken < 32 << 20 and time.monotonic() < end:        # reading on lets it go on
        taken += len(s.recv(1 << 20))
    assert count() > last
    s.close()


@test("1000 quiet streams; the next command is quick")
def _():
    streams = [start("exec sleep 1000")[0] for _ in range(1000)]
    t = time.monotonic()
    assert run("echo quick") == "quick\n"
    assert time.monotonic() - t < 2, time.monotonic() - t
    fds = descriptors()
    assert fds > 1000
    for s in streams:
        s.close()
    until("their descriptors are closed", lambda: descriptors() < fds - 990)
    run("pkill sleep")


@test("Connect-Timeout-Ms kills, client gone or not")
def _():
    start("echo $$ > /tmp/p; exec sleep 100", {"Connect-Timeout-Ms": "700"})[0].close()
    until("the program is dead", lambda: run("kill -0 $(cat /tmp/p) 2>/dev/null && echo alive") == "")


@test("keepalive on a quiet stream")
def _():
    s, got = start("exec sleep 100", {"Keepalive-Ping-Interval": "1"})
    s.settimeout(5)
    while b'{"event":{"keepalive":{}}}' not in got:
        got += s.recv(4096)
    s.close()


@test("a killed sandbox cuts its streams with a reset, not with an end")
def _():
    global me
    other = create()
    mine, me = me, {"E2b-Sandbox-Id": other["sandboxID"], "E2b-Sandbox-Port": "49983", "X-Access-Token": other["envdAccessToken"]}
    try:
        s, got = start("exec sleep 100")
        assert call("DELETE", f"/sandboxes/{other['sandboxID']}", None, {"X-API-KEY": key})[0] == 204
        s.settimeout(5)
        try:
            rest = s.recv(4096)
        except ConnectionResetError:
            rest = b""
        assert rest == b"", rest
        status, b = call("GET", "/health", None, me)
        assert status == 502 and json.loads(b) == {"sandboxId": other["sandboxID"], "message": "The sandbox was not found", "code": 502}
        status, b = call("GET", f"/sandboxes/{other['sandboxID']}", None, {"X-API-KEY": key})
        assert status == 404 and b"it ended at" in b, b
    finally:
        me = mine


@test("what isn't right is answered, and the daemon stays")
def _():
    pid = daemon()
    J, S = {**me, "Content-Type": "application/json"}, {**me, "Content-Type": "application/connect+json"}
    cases = [
        ("POST", "/process.Process/List", b"{", J, 400), ("POST", "/process.Process/List", b"[]", J, 400),
        ("POST", "/process.Process/List", b'{"a":1,"a":2}', J, 400), ("POST", "/process.Process/List", b"\xff\xfe", J, 400),
        ("POST", "/process.Process/List", b"{}", {**me, "Content-Type": "application/proto"}, 415),
        ("GET", "/process.Process/List", None, J, 405), ("POST", "/process.Process/Nope", b"{}", J, 501),
        ("POST", "/process.Process/Start", b"", S, 400), ("POST", "/process.Process/Start", b"\0\xff\xff\xff\xff", S, 400),
        ("POST", "/process.Process/Start", b"\x01\0\0\0\x02{}", S, 400), ("POST", "/process.Process/Start", envelope({}), S, 200),
        ("POST", "/process.Process/Start", envelope({"process": {"cmd": "x", "args": "y"}}), S, 200),
        ("POST", "/process.Process/SendInput", b'{"process":{"pid":1}}', J, 400),
        ("POST", "/process.Process/SendInput", b'{"process":{"pid":-1},"input":{"stdin":""}}', J, 400),
        ("POST", "/process.Process/SendSignal", b'{"process":{"pid":1},"signal":"SIGNAL_SIGSEGV"}', J, 501),
        ("POST", "/filesystem.Filesystem/Stat", b'{"path":"' + b"x" * 9000 + b'"}', J, 400),
        ("POST", "/filesystem.Filesystem/ListDir", b'{"path":"/","depth":-5}', J, 200),
        ("POST", "/filesystem.Filesystem/Remove", b'{"path":"/"}', J, 400),
        ("POST", "/filesystem.Filesystem/GetWatcherEvents", b'{"watcherId":"../../x"}', J, 404),
        ("GET", "/files?path=%00", None, me, 400), ("GET", "/files", None, me, 400),
        ("POST", "/files?path=x", b"x", {**me, "Content-Type": "text/plain"}, 415),
        ("POST", "/files?path=x", b"notgzip", {**me, "Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}, 400),
        ("POST", "/files", b"--x\r\n", {**me, "Content-Type": "multipart/form-data"}, 400),
        ("POST", "/files?path=x", b"x", {**me, "Content-Type": "application/octet-stream", "X-Metadata-a": "\x80"}, 400),
        ("POST", "/init", b"{}", J, 404), ("GET", "/metrics", None, {**me, "X-Access-Token": "x"}, 401),
        ("GET", "/", None, {**me, "E2b-Sandbox-Port": "1"}, 502), ("GET", "/", None, {**me, "E2b-Sandbox-Port": "99999"}, 400),
        ("GET", "/", None, {**me, "E2b-Sandbox-Id": "../x"}, 400),
        ("POST", "/v2/sandboxes", b"{}", {}, 401), ("POST", "/v2/sandboxes", b"{}", {"X-API-KEY": key}, 400),
        ("POST", "/v2/sandboxes", b'{"templateID":"nope"}', {"X-API-KEY": key}, 404),
        ("POST", "/v2/sandboxes", b"x" * (2 << 20), {"X-API-KEY": key}, 413),
        ("GET", "/v2/sandboxes?limit=0", None, {"X-API-KEY": key}, 400), ("GET", "/v2/sandboxes?nextToken=zz", None, {"X-API-KEY": key}, 400),
        ("DELETE", "/sandboxes/x", None, {"X-API-KEY": key}, 404), ("GET", "/volumes", None, {"X-API-KEY": key}, 501),
        ("DELETE", "/sandboxes/" + sbx["sandboxID"], None, {"Authorization": "Bearer " + sbx["envdAccessToken"]}, 401),
    ]
    wrong = []
    for method, path, body, headers, want in cases:
        status, b = call(method, path, body, headers)
        if status != want:
            wrong.append((method, path, (body or b"")[:60], status, want, b[:200]))
        elif status >= 400 and path in ("/sandboxes", "/v2/sandboxes") and json.loads(b)["code"] != status:
            wrong.append((method, path, "code", b[:200]))
        elif b[:1] == b"{" and status >= 400 and isinstance(json.loads(b).get("code"), int):
            assert json.loads(b)["code"] == status, b
    assert not wrong, "\n".join(map(str, wrong))
    assert daemon() == pid


@test("clients that leave in the middle cost no descriptor")
def _():
    before = descriptors()
    for i in range(30):
        for head, part in ((f"POST /files?path=half HTTP/1.1\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000000\r\n", b"x" * 5000),
                           (f"POST /files HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000000\r\n",
                            b'--x\r\nContent-Disposition: form-data; name="file"; filename="half"\r\n\r\nabc'),
                           ("POST /process.Process/List HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n", b"{"),
                           ("POST /process.Process/StreamInput HTTP/1.1\r\nContent-Type: application/connect+json\r\nContent-Length: 1000\r\n", b"\0\0\0"),
                           ("GET /files?path=big HTTP/1.1\r\n", b"")):
            s = socket.create_connection((url.hostname, url.port), 10)
            s.sendall(head.encode() + "".join(f"{k}: {v}\r\n" for k, v in me.items()).encode() + f"Host: {url.netloc}\r\n\r\n".encode() + part)
            if i % 2:
                s.settimeout(0.02)
                try:
                    s.recv(100)
                except OSError:
                    pass
            s.close()
    until("descriptors are as before", lambda: descriptors() <= before + 2)
    assert run("echo fine") == "fine\n"


@test("the end")
def _():
    assert call("DELETE", f"/sandboxes/{sbx['sandboxID']}", None, {"X-API-KEY": key})[0] == 204


print(f"1..{n}")
sys.exit(bad != 0)
