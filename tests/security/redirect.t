#!/usr/bin/env python3
"""A computer's network is its door: every TCP connection ends there with its destination kept, DNS too, the rest is refused at once. In every mode."""
import json, os, subprocess
from lab import CTL, KEEPER, done, modes, needs, ok

INSIDE = r"""
import errno, json, os, socket, subprocess, time
o = {}
def attempt(name, f, *a):
    t = time.monotonic()
    try: o[name] = f(*a)
    except OSError as e: o[name] = "!" + errno.errorcode.get(e.errno, str(e))
    if time.monotonic() - t > 2: o[name] = f"slow: {o[name]}"
def tcp(family, addr, port):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect((addr, port))
        return s.recv(100).decode()
def udp(family, addr, port):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((addr, port))
        s.send(b"x")
        return s.recv(100).decode()
def own(family, addr):
    with socket.socket(family) as l, socket.socket(family) as c:
        l.bind((addr, 0)); l.listen()
        c.connect(l.getsockname())
        a = l.accept()[0]
        a.send(b"own")
        return c.recv(9).decode()
v4, v6 = socket.AF_INET, socket.AF_INET6
attempt("tcp4", tcp, v4, "93.184.216.34", 443)
attempt("tcp6", tcp, v6, "2606:4700::1111", 8443)
attempt("metadata", tcp, v4, "169.254.169.254", 80)
attempt("private", tcp, v4, "10.0.0.1", 22)
attempt("mapped", tcp, v6, "::ffff:1.2.3.4", 80)
attempt("own4", own, v4, "127.0.0.1")
attempt("own6", own, v6, "::1")
attempt("dns", udp, v4, "8.8.8.8", 53)
attempt("dns here", udp, v4, "127.0.0.1", 53)
attempt("quic", udp, v4, "93.184.216.34", 443)
attempt("quic6", udp, v6, "2606:4700::1111", 443)
attempt("ntp", udp, v4, "10.0.0.1", 123)
attempt("door's port", lambda: socket.create_server(("127.0.0.1", 1)).close())
for name, cmd in (("lo down", "ip link set lo down"), ("route", "ip route add 1.0.0.0/8 dev lo"), ("rules", "nft flush ruleset")):
    attempt(name, lambda c=cmd: subprocess.run(c.split(), capture_output=True).returncode)
attempt("still there", tcp, v4, "93.184.216.34", 443)
print(json.dumps(o))
"""

def judge(who, o):
    ok(o["tcp4"] == "door 93.184.216.34 443\n" and o["metadata"] == "door 169.254.169.254 80\n" and o["private"] == "door 10.0.0.1 22\n",
       f"{who}: TCP ends at the door, which learns where to", o)
    if os.path.exists("/proc/sys/net/ipv6"):
        ok(o["tcp6"] == "door 2606:4700::1111 8443\n", f"{who}: IPv6 too", o)
    ok(o["mapped"] == "door 1.2.3.4 80\n", f"{who}: and IPv4 in IPv6's clothes", o)
    ok(o["own4"] == "own" and o["own6"] == "own", f"{who}: its own servers are its own", o)
    ok(o["dns"] == "dns" and o["dns here"] == "dns", f"{who}: every DNS question is the door's", o)
    ok(all(o[k] in ("!EPERM", "!ECONNREFUSED", "!EACCES") for k in ("quic", "quic6", "ntp")), f"{who}: other UDP is refused at once", o)
    ok(o["door's port"] == "!EADDRINUSE", f"{who}: the door's port is taken", o)
    ok(all(o[k] not in (0, None) for k in ("lo down", "route", "rules")) and o["still there"] == o["tcp4"], f"{who}: root inside can't change it", o)


needs(CTL, "keeperctl")
for m in modes():
    for user in ("root", "user"):
        r = subprocess.run(m.prefix + [CTL, "run", KEEPER, "--net", "--door", "--", "/usr/bin/python3", "-c", INSIDE], capture_output=True, text=True, timeout=60,
                           env=dict(os.environ, GUEST_USER=user), stdin=subprocess.DEVNULL)
        try:
            judge(f"{m.name}, as {user}", json.loads(r.stdout))
        except ValueError:
            ok(False, f"{m.name}, as {user}: ran", r.stdout + r.stderr)
done()
