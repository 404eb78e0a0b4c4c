"""What every version of the Python SDK must be able to do. By hand, for versions that the tests don't install:
    python3 -m venv v && v/bin/pip install e2b==2.15.0 && tests/e2e/with-server [--tls] v/bin/python tests/e2e/e2b/smoke.py"""
import inspect
import time
from importlib.metadata import version

from e2b import Sandbox

opts = {"timeout": 60, "envs": {"A": "b"}, "metadata": {"m": "1"}}
s = Sandbox.create(**opts) if hasattr(Sandbox, "create") else Sandbox(**opts)
try:
    assert s.commands.run("echo $A").stdout == "b\n"
    flag = {"stdin": True} if "stdin" in inspect.signature(s.commands.run).parameters else {}
    c = s.commands.run("cat", background=True, **flag)
    s.commands.send_stdin(c.pid, "hi\n")
    assert c.kill()
    s.files.write("d/f.txt", "text")
    assert s.files.read("d/f.txt") == "text"
    assert [e.name for e in s.files.list("d")] == ["f.txt"]
    h = s.files.watch_dir("d")
    s.files.write("d/g", "1")
    got, end = [], time.monotonic() + 10
    while not got and time.monotonic() < end:
        got += h.get_new_events()
    assert got
    h.stop()
    assert s.is_running()
    s.set_timeout(100)
    assert Sandbox.connect(s.sandbox_id).commands.run("cat d/f.txt").stdout == "text"
    listed = Sandbox.list()
    listed = listed if isinstance(listed, list) else listed.next_items()
    assert any(x.sandbox_id.startswith(s.sandbox_id) for x in listed)
finally:
    s.kill()
assert not s.is_running()
print("ok: e2b", version("e2b"))
