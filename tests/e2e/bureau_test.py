"""What the e2e tests in Python share: TAP, a server of their own, the REST API, and counts of what a test may not leave behind."""
import base64, glob, http.client, json, os, pathlib, shutil, signal, subprocess, sys, tempfile, time, urllib.parse

TOP = pathlib.Path(os.environ.get("BUREAU_TOP") or pathlib.Path(__file__).resolve().parents[2])
BUILD = pathlib.Path(os.environ.get("BUREAU_BUILD") or TOP / "build")
_n = _bad = 0


def ok(cond, what, note=""):
    global _n, _bad
    _n += 1
    print(f"{'ok' if cond else 'not ok'} {_n} - {what}", flush=True)
    if not cond:
        _bad += 1
        for line in str(note).splitlines()[:20]:
            print("# " + line, flush=True)
    return bool(cond)


def skip(why):
    global _n
    _n += 1
    print(f"ok {_n} # SKIP {why}", flush=True)


def equal(got, want, what):
    return ok(got == want, what, f"got {got!r}\nwant {want!r}")


def done():
    print(f"1..{_n}", flush=True)
    sys.exit(1 if _bad else 0)


def wait_for(fn, seconds=10, every=0.02):
    """Polls until fn() is true; its last value."""
    end = time.monotonic() + seconds
    while True:
        v = fn()
        if v or time.monotonic() > end:
            return v
        time.sleep(every)


class Error(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status} {body}")
        self.status, self.body = status, body
        self.code = body.get("error", {}).get("code") if isinstance(body, dict) else None
        self.message = body.get("error", {}).get("message", "") if isinstance(body, dict) else ""


class Server:
    def __init__(self, *args, state=None):
        self.state = state or tempfile.mkdtemp(prefix="bureau-test-")
        self.args, self.proc, self.guests = args, None, set()
        self.prefix, self.build = [], BUILD              # a command before it (setpriv…); where its programs are

    def start(self, *more):
        self.log = open(os.path.join(self.state, "log"), "ab")
        path = os.path.join(self.state, "server.json")
        if os.path.exists(path):
            os.unlink(path)
        self.proc = subprocess.Popen([*self.prefix, os.path.join(self.build, "bureau-serve"), "--state", self.state, "--listen", "127.0.0.1:0", *self.args, *more],
                                     stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if not wait_for(lambda: os.path.exists(path) or self.proc.poll() is not None, 20) or self.proc.poll() is not None:
            self.stop()
            print("Bail out! the server didn't start: " + self.log_text()[-2000:].replace("\n", " | "), flush=True)
            sys.exit(1)
        self.info = json.load(open(path))
        u = urllib.parse.urlsplit(self.info["url"])
        self.host, self.port = u.hostname, u.port
        self.key = open(os.path.join(self.state, "api-key")).read().strip()
        return self

    def log_text(self):
        return open(os.path.join(self.state, "log"), errors="replace").read()

    def stop(self, sig=signal.SIGTERM, seconds=40):
        if self.proc and self.proc.poll() is None:
            self.pid_of("bureaud")           # notes the guests
            self.proc.send_signal(sig)
            try:
                self.proc.wait(seconds)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        return self.proc.returncode if self.proc else None

    def remove(self):
        self.stop()
        if "KEEP" in os.environ:
            return
        shutil.rmtree(self.state, ignore_errors=True)

    def scan(self):
        """(pid, parent, name, start time) of everything."""
        for d in glob.glob("/proc/[0-9]*"):
            try:
                stat = open(d + "/stat").read()
            except OSError:
                continue
            rest = stat[stat.rindex(")") + 2:].split()
            if rest[0] == "Z":       # over; whoever inherited it hasn't noticed yet
                continue
            yield int(d[6:]), int(rest[1]), stat[stat.index("(") + 1:stat.rindex(")")], rest[19]

    def pid_of(self, name):
        """A program of this server: a child of the supervisor."""
        every = list(self.scan())
        keepers = {p for p, parent, comm, _ in every if parent == self.proc.pid and comm == "bureau-keeper"}
        self.guests |= {(p, t) for p, parent, comm, t in every if parent in keepers and comm == "bureau-guest"}
        return next((p for p, parent, comm, _ in every if parent == self.proc.pid and comm == name[:15]), None)

    def conn(self, timeout=60):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def raw(self, method, path, body=None, key=None, headers=None, conn=None, timeout=60):
        c = conn or self.conn(timeout)
        h = {"X-API-KEY": key or self.key} if key != "" else {}
        h.update(headers or {})
        c.request(method, path, body=body, headers=h)
        return c.getresponse()

    def call(self, method, path, args=None, **kw):
        r = self.raw(method, path, json.dumps(args) if args is not None else None, **kw)
        data = r.read()
        body = json.loads(data) if data and r.headers.get("Content-Type", "").startswith("application/json") else data or None
        if r.status >= 400:
            raise Error(r.status, body)
        return body

    def patient(self, method, path, args=None, seconds=20, **kw):
        """As call, but a server that says "come again" or is being replaced is asked again."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.call(method, path, args, **kw)
            except (Error, OSError, http.client.HTTPException) as e:
                if (isinstance(e, Error) and e.status != 503) or time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def create(self, **args):
        args.setdefault("net", "none")
        return self.call("POST", "/v1/sandboxes", args)

    def kill(self, id):
        self.call("DELETE", f"/v1/sandboxes/{id}")

    def stream(self, path, args):
        """Yields each line's object."""
        r = self.raw("POST", path, json.dumps(args))
        if r.status != 200:
            raise Error(r.status, json.loads(r.read()))
        for line in r:
            if line.strip():
                yield json.loads(line)

    def exec(self, id, *argv, **args):
        out, err, end = b"", b"", None
        for ev in self.stream(f"/v1/sandboxes/{id}/exec", {"cmd": argv[0], "args": list(argv[1:]), **args}):
            out += base64.b64decode(ev.get("stdout") or ev.get("pty") or "")
            err += base64.b64decode(ev.get("stderr") or "")
            end = ev.get("end", end)
            if "error" in ev:
                raise Error(200, ev)
        return out, err, end

    def tag(self):
        """What the keeper calls this state folder in names of control groups."""
        st = os.stat(self.state)
        return f"{st.st_ino ^ (st.st_dev << 40 & (1 << 64) - 1):x}"

    def groups(self):
        return [d for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/*") for d in glob.glob(f"{root}/bureau*{self.tag()}*/*/")]

    def processes(self):
        """Every process in a control group of this server's computers, and every guest that was seen below its keeper."""
        found = [f"guest {p}" for p, _, _, t in self.scan() if (p, t) in self.guests]
        for d in glob.glob("/proc/[0-9]*"):
            try:
                if self.tag() in open(d + "/cgroup").read() and not os.readlink(d + "/exe").endswith(("bureau-keeper", "bureaud", "bureau-serve")):
                    found.append(d)
            except OSError:
                pass
        return found

    def leftovers(self):
        """What of this server's computers is still on this host."""
        out = [f"group {g}" for g in self.groups() + [d for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/*") for d in glob.glob(f"{root}/bureau*{self.tag()}")]] + [f"process {p}" for p in self.processes()]
        out += [f"mount {line.split()[4]}" for line in open("/proc/self/mountinfo") if self.state in line]
        for folder, keep in (("run", {"keeper.sock"}), ("keeper", set())):
            out += [f"file {folder}/{f}" for f in set(os.listdir(os.path.join(self.state, folder))) - keep]
        return out


def fd_count(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return -1
