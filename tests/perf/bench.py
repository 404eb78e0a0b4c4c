#!/usr/bin/env python3
"""bench -- Bureau beside its peers, in one run on one machine: medians and ratios, as a table and as JSON.

    make bench                     everything (about 10 minutes)
    tests/perf/bench.py run exec   only these parts: run first exec e2b burst rate idle cycles files
    BENCH_QUICK=1 make bench       a tenth of the repetitions
    BENCH_DOC=docs/PERFORMANCE.md  also writes that page

Nothing here judges: budgets are printed beside what was measured. Needs a built tree (build/), hyperfine, bwrap, nginx, node, curl.
"""
import json, os, pathlib, platform, re, shutil, signal, statistics, subprocess, sys, tempfile, time, urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", TOP / "build"))
QUICK = bool(os.environ.get("BENCH_QUICK"))
N = 20 if QUICK else 200
rows = []


def row(what, value, unit, peer=None, peer_value=None, ratio=None, budget=""):
    rows.append(dict(what=what, value=round(value, 3), unit=unit, peer=peer,
                     peer_value=None if peer_value is None else round(peer_value, 3),
                     ratio=None if ratio is None else round(ratio, 3), budget=budget))
    shown = f"{what:58} {value:10.3f} {unit:6}"
    if peer:
        shown += f"  {peer} {peer_value:.3f}, ratio {ratio:.2f}"
    print(shown + (f"   (budget {budget})" if budget else ""), flush=True)


def median(v):
    return statistics.median(v)


def client(*args, **kw):
    out = subprocess.run([str(BUILD / "perfclient"), *map(str, args)], stdout=subprocess.PIPE, text=True, check=True, **kw).stdout
    return json.loads(out)


class Server:
    """One `bureau serve` on a state folder of its own, port 0."""

    def __init__(self, *flags):
        self.state = tempfile.mkdtemp(prefix="bureau-bench-")
        os.chmod(self.state, 0o755)
        self.log = open(self.state + ".log", "w")
        self.proc = subprocess.Popen([str(BUILD / "bureau"), "serve", "--state", self.state, "--listen", "127.0.0.1:0", *flags],
                                     stdout=self.log, stderr=self.log, start_new_session=True)
        end = time.monotonic() + 20
        info = pathlib.Path(self.state) / "server.json"
        while True:
            try:
                self.url = json.loads(info.read_text())["url"]
                self.key = (pathlib.Path(self.state) / "api-key").read_text().strip()
                self.call("GET", "/v1/status")
                break
            except Exception:
                if time.monotonic() > end or self.proc.poll() is not None:
                    raise SystemExit("server did not start: " + open(self.state + ".log").read()[-2000:])
                time.sleep(0.05)
        time.sleep(0.5)

    def call(self, method, path, body=None):
        req = urllib.request.Request(self.url + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                     headers={"X-API-KEY": self.key, "Content-Type": "application/json"})
        with urllib.request.urlopen(req, timeout=60) as r:
            data = r.read()
            return json.loads(data) if data else None

    def pids(self):
        """name → pid of the server's long-lived processes."""
        found = {}
        for p in descendants(self.proc.pid):
            name = comm(p)
            if name in ("bureaud", "bureau-keeper", "bureau-door"):
                found[name] = p
        return found

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        self.proc.wait(30)
        shutil.rmtree(self.state, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()


def comm(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def descendants(root):
    kids = {}
    for d in pathlib.Path("/proc").iterdir():
        if d.name.isdigit():
            try:
                ppid = int((d / "stat").read_text().rsplit(")", 1)[1].split()[1])
                kids.setdefault(ppid, []).append(int(d.name))
            except (OSError, IndexError):
                pass
    out, todo = [], [root]
    while todo:
        for k in kids.get(todo.pop(), []):
            out.append(k)
            todo.append(k)
    return out


def smaps(pid, field="Pss"):
    try:
        for line in open(f"/proc/{pid}/smaps_rollup"):
            if line.startswith(field + ":"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def guests():
    return [int(d.name) for d in pathlib.Path("/proc").iterdir() if d.name.isdigit() and comm(d.name) == "bureau-guest"]


def counts(server):
    """What a leak would show in."""
    cgroups = 0
    for line in open("/proc/self/mountinfo"):
        f = line.split()
        if " - cgroup" in line:
            cgroups += sum(1 for _ in pathlib.Path(f[4]).rglob("cgroup.procs"))
    out = dict(processes=len([1 for d in os.listdir("/proc") if d.isdigit()]), mounts=sum(1 for _ in open("/proc/self/mountinfo")),
               cgroups=cgroups, state_files=sum(len(f) + len(d) for _, d, f in os.walk(server.state)))
    for name, pid in server.pids().items():
        out[name + "_fds"] = len(os.listdir(f"/proc/{pid}/fd"))
        out[name + "_rss_kib"] = smaps(pid, "Rss")
    return out


def hyper(pairs, runs):
    """Medians in ms, the commands in turn over several rounds so that drift hits all alike."""
    times = {name: [] for name, _ in pairs}
    rounds = 2 if QUICK else 6
    for _ in range(rounds):
        for name, cmd in pairs:
            with tempfile.NamedTemporaryFile(suffix=".json") as f:
                subprocess.run(["hyperfine", "-N", "--warmup", "3", "--runs", str(max(5, runs // rounds)), "--export-json", f.name, cmd],
                               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                times[name] += [t * 1000 for t in json.load(open(f.name))["results"][0]["times"]]
    return {k: median(v) for k, v in times.items()}


def part_run():
    m = hyper([("bureau", f"{BUILD}/bureau run --net none -- /bin/true"),
               ("bwrap", "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp /bin/true"),
               ("floor", "/bin/true")], N)
    row("bureau run --net none -- /bin/true", m["bureau"], "ms", "bwrap --unshare-all", m["bwrap"], m["bureau"] / m["bwrap"], "<= 1.0 x bwrap")
    row("  fork+exec of /bin/true", m["floor"], "ms")


def part_first():
    for flags, how, budget in ((("--pool", "0"), "cold", 3), (("--pool", "8"), "from the pool", 1.5)):
        with Server(*flags) as s:
            c = client("first", s.url, s.key, N)
            first, floor = median(c["first"]), median(c["floor"])
            row(f"create to first output over HTTP, {how}", first / 1000, "ms", "fork+exec", floor / 1000, first / floor, f"<= {budget} x floor")
            row("  of which create", median(c["create"]) / 1000, "ms")


def part_exec():
    with Server() as s:
        c = client("exec", s.url, s.key, N)
        us, floor = median(c["us"]), median(c["floor"])
        row("exec of true in a running sandbox over HTTP", us / 1000, "ms", "fork+exec", floor / 1000, us / floor, "<= 1.5 x floor")


def part_e2b():
    with Server() as s:
        path = os.pathsep.join([*map(str, (TOP / "tests/e2e/node_modules").glob("node-linux-*/bin")), os.environ["PATH"]])    # tools/deps' own
        env = dict(os.environ, PATH=path, E2B_API_KEY=s.key, E2B_API_URL=s.url, E2B_SANDBOX_URL=s.url)
        script = TOP / "tests/e2e/.bench.mjs"
        script.write_text((TOP / "tests/perf/e2b_create.mjs").read_text())
        try:
            for kind, what in (("none", "E2B SDK create + commands.run('true'), no network"), ("net", "E2B SDK create + commands.run('true'), default network")):
                out = subprocess.run(["node", str(script), str(N // 2), kind], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
                us = json.loads(out)["us"]
                row(what, median(us) / 1000, "ms", budget="<= 15 ms")
                row("  p99", us[int(len(us) * 0.99)] / 1000, "ms")
        finally:
            script.unlink()


def part_burst():
    with Server() as s:
        single = median(client("first", s.url, s.key, 20)["create"])
        p99 = []
        for _ in range(3 if QUICK else 10):
            p99 += client("burst", s.url, s.key, 20)["us"]
            time.sleep(0.5)
        p99.sort()
        v = p99[int(len(p99) * 0.99)]
        row("20 creates at once, p99", v / 1000, "ms", "single median", single / 1000, v / single, "<= 10 x single")


def part_rate():
    with Server() as s:
        c = client("rate", s.url, s.key, 3 if QUICK else 10, 8)
        row("sandboxes created, used and killed a second", c["per_second"], "/s", budget=">= 250 on 2 cores")


def idle_round(n):
    """(KiB of ours for each, median of the first creates, and of the last) in microseconds"""
    with Server() as s:
        before = {k: smaps(p) for k, p in s.pids().items()}
        have = set(guests())
        p = subprocess.Popen([str(BUILD / "perfclient"), "idle", s.url, s.key, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        us = json.loads(p.stdout.readline())["us"]
        new = [g for g in guests() if g not in have]
        pss = sum(smaps(g) for g in new)
        grown = sum(smaps(pid) - before.get(k, 0) for k, pid in s.pids().items())
        k = max(10, n // 20)
        p.stdin.write("\n")
        p.stdin.close()
        p.wait()
        return (pss + grown) / n, median(us[:k]), median(us[-k:])


def part_idle():
    """The two ends of a round are seconds apart, in which a shared machine changes more than a create does: so the middle one of some rounds."""
    n = 200 if QUICK else 2000
    rounds = sorted((idle_round(n) for _ in range(1 if QUICK else 5)), key=lambda r: r[2] / r[1])
    kib, first, last = rounds[len(rounds) // 2]
    row(f"{n} idle sandboxes: our memory each (guest + daemons' growth)", kib, "KiB", budget="<= 400 KiB")
    row(f"{n} idle sandboxes: create at the end", last / 1000, "ms", "at the start", first / 1000, last / first, "<= 1.5 x")


def part_cycles():
    n = 1000 if QUICK else 20000
    with Server() as s:
        client("cycles", s.url, s.key, 300, 4)
        time.sleep(2)
        before = counts(s)
        c = client("cycles", s.url, s.key, n, 4)
        time.sleep(3)
        after = counts(s)
        row(f"{n} create/kill cycles", c["per_second"], "/s")
        for k in sorted(after):
            row(f"  {k}: before {before.get(k, 0)}, after", after[k], "", budget="no growth")


NGINX = """daemon off; master_process off; worker_processes 1; pid {d}/pid; error_log {d}/err;
events {{ }} http {{ access_log off; sendfile on; client_body_temp_path {d}/tmp; server {{ listen 127.0.0.1:{port}; root {d}/www;
client_max_body_size 0; location / {{ dav_methods PUT; }} }} }}"""


def timed_curl(*args):
    out = subprocess.run(["curl", "-sS", "-f", "-o", "/dev/null", "-w", "%{time_total}", *args], stdout=subprocess.PIPE, text=True, check=True).stdout
    return float(out)


def part_files():
    mib = 128 if QUICK else 1024
    d = tempfile.mkdtemp(prefix="bureau-bench-nginx-")
    os.chmod(d, 0o755)
    for sub in ("www", "tmp"):
        os.mkdir(f"{d}/{sub}")
        os.chmod(f"{d}/{sub}", 0o777)
    big = f"{d}/big.bin"
    subprocess.run(["dd", "if=/dev/urandom", f"of={big}", "bs=1M", f"count={mib}", "status=none"], check=True)
    import socket
    with socket.socket() as k:
        k.bind(("127.0.0.1", 0))
        port = k.getsockname()[1]
    open(f"{d}/conf", "w").write(NGINX.format(d=d, port=port))
    ng = subprocess.Popen(["nginx", "-p", d, "-c", f"{d}/conf"], stderr=subprocess.DEVNULL)
    try:
        with Server() as s:
            end = time.monotonic() + 5
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)
            sid = s.call("POST", "/sandboxes", {"templateID": "base", "timeout": 3600, "secure": False})["sandboxID"]
            hdr = ["-H", f"E2b-Sandbox-Id: {sid}", "-H", "E2b-Sandbox-Port: 49983"]
            up, nup, down, ndown = [], [], [], []
            rss = {k: 0 for k in s.pids()}
            base = {k: smaps(p, "Rss") for k, p in s.pids().items()}
            for _ in range(3):
                nup.append(timed_curl("-T", big, f"http://127.0.0.1:{port}/up.bin"))
                up.append(timed_curl("-X", "POST", *hdr, "-H", "Content-Type: application/octet-stream", "-H", "Expect:", "-T", big, f"{s.url}/files?path=/home/user/up.bin"))
                for k, p in s.pids().items():
                    rss[k] = max(rss[k], smaps(p, "Rss"))
                ndown.append(timed_curl(f"http://127.0.0.1:{port}/up.bin"))
                down.append(timed_curl(*hdr, f"{s.url}/files?path=/home/user/up.bin"))
                for k, p in s.pids().items():
                    rss[k] = max(rss[k], smaps(p, "Rss"))
            row(f"upload of {mib} MiB by POST /files", mib / median(up), "MiB/s", "nginx PUT", mib / median(nup), median(nup) / median(up), ">= 0.5 x nginx")
            row(f"download of {mib} MiB by GET /files", mib / median(down), "MiB/s", "nginx GET", mib / median(ndown), median(ndown) / median(down), ">= 0.5 x nginx")
            for k in rss:
                row(f"  {k}: memory {base[k]} KiB before, at most", rss[k], "KiB", budget="constant")
    finally:
        ng.terminate()
        ng.wait()
        shutil.rmtree(d, ignore_errors=True)


DOC = """# Performance

Written by `BENCH_DOC=docs/PERFORMANCE.md make bench`, all in one run on one machine: {machine}.
Medians unless it says otherwise. Peers run in the same minutes on the same cores; absolute times mean little elsewhere, ratios more.
Each row's budget is the design's; nothing is hidden when it is missed.

| what | measured | beside | ratio | budget |
|---|---:|---|---:|---|
{table}

How each is measured: `tests/perf/bench.py` (one function a part), with `tests/perf/perfclient.c` as the client over loopback (blocking sockets, keep-alive),
`hyperfine -N` in alternating rounds for whole programs, the official npm package for the SDK rows, and `curl` for files.
What a sandbox stores is in its tmpfs and nginx's file on the disk's page cache, so the upload row compares servers only roughly. bureaud's memory grows until
sqlite's cache is full (about 10 MB after some 20,000 lives of sandboxes; the same after 30,000), then stays.
"Cold": no computer is ready, but empty network namespaces are (`docs/decisions/0010-network-stock.md`).
"fork+exec" is fork, exec of the same program outside, until its exit or its first byte: measured in turn with the row's own samples, after the same rest.
"""


def write_doc(path, machine):
    def cell(r):
        peer = f"{r['peer']} {r['peer_value']:g} {r['unit']}" if r["peer"] else ""
        ratio = f"{r['ratio']:.2f}" if r["ratio"] is not None else ""
        return f"| {r['what'].strip()} | {r['value']:g} {r['unit']} | {peer} | {ratio} | {r['budget']} |"
    pathlib.Path(path).write_text(DOC.format(machine=machine, table="\n".join(cell(r) for r in rows)))


def main():
    parts = sys.argv[1:] or ["run", "first", "exec", "e2b", "burst", "rate", "idle", "cycles", "files"]
    cpu = re.search(r"model name\s*:\s*(.*)", open("/proc/cpuinfo").read())
    machine = f"{os.cpu_count()} x {cpu.group(1) if cpu else '?'}, Linux {platform.release()}, {time.strftime('%Y-%m-%d')}"
    print(f"# {machine}, load {os.getloadavg()[0]:.1f}", flush=True)
    failed = []
    for p in parts:
        try:
            globals()["part_" + p]()
        except Exception as e:  # one part's failure must not hide the others' figures
            failed.append(p)
            print(f"# part {p} failed: {e}", flush=True)
    out = BUILD / "bench.json"
    out.write_text(json.dumps(dict(machine=platform.release(), cpus=os.cpu_count(), rows=rows, failed=failed), indent=1))
    print(f"# JSON: {out}")
    if os.environ.get("BENCH_DOC"):
        write_doc(os.environ["BENCH_DOC"], machine)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
