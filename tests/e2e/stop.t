#!/usr/bin/env python3
# timeout: 300
"""A stop without a keeper that can be started ends soon, with a clear word and a code of its own; the next start has the computers."""
import os, pathlib, shutil, signal, socket, sys, tempfile, time
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


SILENT = "import socket\ns = socket.create_server(('127.0.0.1', 8123))\nk = []\nwhile True: k.append(s.accept())\n"


def connected(*args):
    """Clients in the middle of something at a port: a plain tunnel, and a request that isn't answered."""
    s, clients = Server("--pool", "0", *args).start(), []
    what = "clients at a port" + (", computers go on" if args else "")
    try:
        id = s.create()["id"]
        out = s.stream(f"/v1/sandboxes/{id}/exec", {"cmd": "python3", "args": ["-c", SILENT]})
        next(out)
        wait_for(lambda: 8123 in s.call("GET", f"/v1/sandboxes/{id}/ports")["ports"])
        for head in (f"POST /v1/sandboxes/{id}/ports/dial?port=8123 HTTP/1.1\r\nContent-Length: 0\r\nConnection: upgrade\r\nUpgrade: tcp",
                     f"GET /v1/sandboxes/{id}/ports/8123/proxy/ HTTP/1.1"):
            clients.append(socket.create_connection((s.host, s.port)))
            clients[-1].sendall(f"{head}\r\nHost: x\r\nX-API-KEY: {s.key}\r\n\r\n".encode())
        ok(clients[0].recv(12) == b"HTTP/1.1 101" and s.call("GET", f"/v1/sandboxes/{id}")["state"] == "running", f"{what}: are there")
        code = s.stop()
        ok(code == 0 and "Assertion" not in s.log_text(), f"{what}: the stop is a clean one", (code, s.log_text()[-1000:]))
        if args:
            s.args = ("--pool", "0")
            s.start()
            ok(s.exec(id, "echo", "x")[0] == b"x\n" and s.stop() == 0, f"{what}: they did")
        ok(not s.leftovers(), f"{what}: and nothing is left", s.leftovers())
    finally:
        for c in clients:
            c.close()
        s.remove()


connected()
connected("--keep-computers")
broken("no program", None)
broken("a program that fails", "#!/bin/sh\nexit 1\n")
done()
