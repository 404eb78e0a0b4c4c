"""The official Python SDK, unmodified: sync and async."""
import asyncio, os, sys, time, traceback
from e2b import (AsyncSandbox, AuthenticationException, CommandExitException, InvalidArgumentException, NotFoundException, Sandbox,
                 SandboxException, SandboxQuery, SandboxState, TimeoutException)

plain = "E2B_SANDBOX_URL" in os.environ
n = bad = 0


def test(text):
    """Runs the function at once; with a name for TAP."""
    def run(fn):
        global n, bad
        n += 1
        try:
            r = fn()
            if asyncio.iscoroutine(r):
                asyncio.run(r)
            print(f"ok {n} - {text}", flush=True)
        except BaseException:
            bad += 1
            print(f"not ok {n} - {text}", flush=True)
            print("".join("# " + l for l in traceback.format_exc().splitlines(True)), flush=True)
    return run


def raises(kind, fn, *args, **kw):
    try:
        fn(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"no {kind}")


def until(what, fn, seconds=10):
    end = time.monotonic() + seconds
    while True:
        v = fn()
        if v:
            return v
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


sbx = Sandbox.create(timeout=300, metadata={"suite": "python"}, envs={"GLOBAL": "g"})
# without a range of ids (a plain user, no newuidmap) there is one id, and it is called root
user = "root" if sbx.commands.run("cat /proc/self/uid_map").stdout.split()[2:] == ["1"] else "user"


@test("run: output, exit code, environment, directory, user")
def _():
    r = sbx.commands.run("echo $GLOBAL $LOCAL; pwd; id -un; echo err >&2", envs={"LOCAL": "l"}, cwd="/tmp")
    assert (r.exit_code, r.stdout, r.stderr) == (0, f"g l\n/tmp\n{user}\n", "err\n"), r
    assert sbx.commands.run("id -un", user="root").stdout == "root\n"
    e = raises(CommandExitException, sbx.commands.run, "echo no; exit 7")
    assert e.exit_code == 7 and e.stdout == "no\n"
    raises(InvalidArgumentException, sbx.commands.run, "true", cwd="/nope")
    raises(AuthenticationException, sbx.commands.run, "true", user="nobody-here")


@test("run: the timeout kills")
def _():
    raises(TimeoutException, sbx.commands.run, "exec sleep 60", timeout=1)


@test("background: stdin, list, kill, connect")
def _():
    c = sbx.commands.run("cat", background=True, stdin=True)
    assert c.pid in [p.pid for p in sbx.commands.list()]
    sbx.commands.send_stdin(c.pid, "hello\n")
    sbx.commands.close_stdin(c.pid)
    assert c.wait().stdout == "hello\n"
    c = sbx.commands.run("sleep 0.3; echo late; exit 4", background=True)
    c.disconnect()
    e = raises(CommandExitException, sbx.commands.connect(c.pid).wait)
    assert (e.exit_code, e.stdout) == (4, "late\n")
    c = sbx.commands.run("sleep 100", background=True)
    assert c.kill() is True
    raises(CommandExitException, c.wait)
    assert sbx.commands.kill(99999) is False


@test("pty")
def _():
    t = sbx.pty.create(size=__import__("e2b").PtySize(cols=81, rows=25))
    sbx.pty.send_stdin(t.pid, b"stty size; exit 3\n")
    out = b""
    try:
        for stdout, stderr, pty in t:
            out += pty or b""
    except CommandExitException:
        pass
    assert b"25 81" in out, out


@test("files: write, read, list, info, move, remove, bytes, stream")
def _():
    w = sbx.files.write("a/b.txt", "content")
    assert (w.name, w.path) == ("b.txt", "/home/user/a/b.txt")
    assert sbx.files.read("a/b.txt") == "content"
    assert bytes(sbx.files.read("a/b.txt", format="bytes")) == b"content"
    assert sbx.files.exists("a/b.txt") and not sbx.files.exists("a/c.txt")
    i = sbx.files.get_info("a/b.txt")
    assert (i.size, i.permissions, i.owner) == (7, "-rw-r--r--", user), i
    assert [e.name for e in sbx.files.list("a")] == ["b.txt"]
    assert sbx.files.rename("a/b.txt", "a/c.txt").path == "/home/user/a/c.txt"
    sbx.files.remove("a")
    assert not sbx.files.exists("a")
    assert sbx.files.make_dir("d") is True and sbx.files.make_dir("d") is False
    sbx.files.write("e.txt", "")
    assert sbx.files.read("e.txt") == ""
    assert len(sbx.files.write_files([{"path": f"many/{k}", "data": str(k)} for k in range(20)])) == 20
    big = bytes(range(256)) * 65536
    sbx.files.write("big.bin", big)
    assert b"".join(sbx.files.read("big.bin", format="stream")) == big
    sbx.files.write("g.bin", big, gzip=True)
    assert bytes(sbx.files.read("g.bin", format="bytes")) == big
    assert sbx.files.read("/proc/self/status").startswith("Name:")
    sbx.files.write("m", "x", metadata={"k": "v"})
    assert sbx.files.get_info("m").metadata == {"k": "v"}


@test("files: failures")
def _():
    raises(NotFoundException, sbx.files.read, "nope")
    raises(InvalidArgumentException, sbx.files.read, "/home/user")
    raises(NotFoundException, sbx.files.list, "nope")
    raises(NotFoundException, sbx.files.rename, "nope", "nope2")


@test("watch, by polling")
def _():
    sbx.files.make_dir("w")
    h = sbx.files.watch_dir("w", recursive=True)
    sbx.files.write("w/x.txt", "1")
    got = []
    until("create and write", lambda: (got.extend((e.type.value, e.name) for e in h.get_new_events())
                                      or {("create", "x.txt"), ("write", "x.txt")} <= set(got)))
    sbx.files.make_dir("w/n")
    until("the new folder", lambda: (got.extend((e.type.value, e.name) for e in h.get_new_events()) or ("create", "n") in got))
    sbx.files.write("w/n/y.txt", "1")
    until("below it", lambda: (got.extend((e.type.value, e.name) for e in h.get_new_events()) or ("write", "n/y.txt") in got))
    h.stop()
    raises(NotFoundException, sbx.files.watch_dir, "nope")


@test("info, timeout, metrics, connect, list")
def _():
    i = sbx.get_info()
    assert i.sandbox_id == sbx.sandbox_id and i.metadata == {"suite": "python"}
    sbx.set_timeout(600)
    assert (sbx.get_info().end_at - i.started_at).total_seconds() > 500
    assert sbx.get_metrics()[0].mem_total > 0
    assert Sandbox.connect(sbx.sandbox_id).commands.run("echo $GLOBAL").stdout == "g\n"
    pages = Sandbox.list(query=SandboxQuery(metadata={"suite": "python"}, state=[SandboxState.RUNNING]))
    assert [s.sandbox_id for s in pages.next_items()] == [sbx.sandbox_id]
    assert sbx.is_running()


@test("signed links")
def _():
    import urllib.request
    sbx.files.write("link.txt", "linked")
    url = sbx.download_url("link.txt", use_signature_expiration=60)
    assert urllib.request.urlopen(url).read() == b"linked"


@test("kill: streams end, the sandbox is gone")
def _():
    s = Sandbox.create(timeout=60)
    c = s.commands.run("sleep 100", background=True)
    assert s.kill() is True
    raises(Exception, c.wait)
    assert s.is_running() is False and s.kill() is False
    raises(NotFoundException, Sandbox.connect, s.sandbox_id)
    raises(SandboxException, s.commands.run, "true")


@test("what is not supported says so")
def _():
    assert "501" in str(raises(SandboxException, sbx.pause))
    assert "autoPause" in str(raises(SandboxException, Sandbox.create, lifecycle={"on_timeout": "pause"}))


@test("a wrong key")
def _():
    raises(AuthenticationException, Sandbox.create, api_key="e2b_" + "0" * 40)


@test("async: run, stdin, files, watch, kill")
async def _():
    s = await AsyncSandbox.create(timeout=60)
    got = []
    r = await s.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=got.append)
    assert r.stdout == "1\n2\n3\n" and "".join(got) == r.stdout
    c = await s.commands.run("cat", background=True, stdin=True)
    await s.commands.send_stdin(c.pid, "x" * (1 << 20) + "\n")
    await s.commands.close_stdin(c.pid)
    assert len((await c.wait()).stdout) == (1 << 20) + 1
    await s.files.write("w/a", "1")
    assert await s.files.read("w/a") == "1"
    seen = asyncio.Event()
    h = await s.files.watch_dir("w", on_event=lambda e: seen.set())
    await s.files.write("w/b", "1")
    await asyncio.wait_for(seen.wait(), 10)
    await h.stop()
    c = await s.commands.run("sleep 100", background=True)
    waiting = asyncio.ensure_future(c.wait())
    assert await s.kill() is True
    try:
        await asyncio.wait_for(waiting, 20)
        raise AssertionError("wait returned")
    except SandboxException:
        pass
    assert await s.is_running() is False


@test("async: ten sandboxes at once")
async def _():
    all = await asyncio.gather(*[AsyncSandbox.create(timeout=60) for _ in range(10)])
    outs = await asyncio.gather(*[s.commands.run(f"echo {i}") for i, s in enumerate(all)])
    assert [o.stdout for o in outs] == [f"{i}\n" for i in range(10)]
    await asyncio.gather(*[s.kill() for s in all])


@test("the end")
def _():
    assert sbx.kill() is True


print(f"1..{n}")
sys.exit(bad != 0)
