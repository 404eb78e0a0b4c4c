#!/usr/bin/env python3
# timeout: 300
"""A stop without a keeper that can be started ends soon, with a clear word and a code of its own; the next start has the computers."""
import os, pathlib, shutil, signal, sys, tempfile, time
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bureau_test import *

PROGRAMS = ("bureau-serve", "bureaud", "bureau-keeper", "bureau-guest", "bureau-door")


def broken(what, text):
    """The keeper's program is replaced by text (None: it is gone), the keeper killed, and the server stopped."""
    s, build = Server("--pool", "0"), tempfile.mkdtemp(prefix="bureau-test-")
    keeper, kept = os.path.join(build, "bureau-keeper"), os.path.join(build, "kept")
    try:
        os.chmod(build, 0o755)
        for p in PROGRAMS:
            shutil.copy2(os.path.join(BUILD, p), build)
        s.build = build
        s.start()
        id = s.create()["id"]
        pid = s.pid_of("bureau-keeper")
        os.rename(keeper, kept)
        if text:
            open(keeper, "w").write(text)
            os.chmod(keeper, 0o755)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "bureau-keeper was ended by signal 9" in s.log_text())
        at = time.monotonic()
        code = s.stop(seconds=100)
        took = time.monotonic() - at
        ok(code == 1 and took < 10, f"{what}: the stop ends soon, with 1", (code, took, s.log_text()[-2000:]))
        ok("bureau-keeper can't be started: no computer can be ended" in s.log_text(), f"{what}: and says why", s.log_text()[-2000:])
        ok(len(s.log_text().splitlines()) < 40, f"{what}: in few words", s.log_text()[-2000:])
        os.rename(kept, keeper)
        s.start()
        ok(wait_for(lambda: s.patient("GET", f"/v1/sandboxes/{id}")["state"] == "running") and s.exec(id, "echo", "x")[0] == b"x\n",
           f"{what}: the next start has the computer")
        ok(s.stop() == 0 and not s.leftovers(), f"{what}: and its stop ends all", s.leftovers())
    finally:
        s.remove()
        shutil.rmtree(build, ignore_errors=True)


broken("no program", None)
broken("a program that fails", "#!/bin/sh\nexit 1\n")
done()
