#!/usr/bin/env python3
"""A computer's network namespace is nobody's inside, made in advance or not: root there can change nothing of it, by netlink, ioctl, sysctl, option,
/sys or setns, and no two computers have the same one."""
import json, os, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import bureau_test as bt
from bureau_test import ok, wait_for

INSIDE = r'''
import ctypes, errno, fcntl, json, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
out = {}

def attempt(name, f, *a):
    try:
        f(*a)
        out[name] = "done"
    except OSError as e:
        out[name] = "!" + errno.errorcode.get(e.errno, str(e.errno))

def netlink(kind, flags, body):
    s = socket.socket(16, 3, 0)
    s.settimeout(5)
    s.bind((0, 0))
    s.send(struct.pack("=IHHII", 16 + len(body), kind, 5 | flags, 1, 0) + body)
    answer = s.recv(65536)
    code = -struct.unpack("=i", answer[16:20])[0]
    if code:
        raise OSError(code, "refused")

def attr(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)

def link(index=1, flags=0, change=0):
    return struct.pack("=BxHiII", 0, 0, index, flags, change)

one = struct.pack("=I", 1)
attempt("lo down", netlink, 16, 0, link(change=1))
attempt("lo's mtu", netlink, 16, 0, link() + attr(4, struct.pack("=I", 1500)))
attempt("lo elsewhere", netlink, 16, 0, link() + attr(19, one))
for kind in (b"dummy", b"veth", b"bridge", b"tun", b"ipvlan", b"macvlan", b"vxlan", b"ifb", b"gre", b"sit", b"wireguard", b"vrf", b"netkit", b"xfrm"):
    attempt("new " + kind.decode(), netlink, 16, 0x600, link(0) + attr(3, b"x0\0") + attr(18, attr(1, kind + b"\0")))
attempt("new address", netlink, 20, 0x400, struct.pack("=BBBBI", 2, 24, 0, 0, 1) + attr(2, bytes([10, 9, 9, 9])))
attempt("no address", netlink, 21, 0, struct.pack("=BBBBI", 2, 8, 0, 0, 1) + attr(2, bytes([127, 0, 0, 1])))
attempt("new route", netlink, 24, 0x400, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + attr(4, one))
attempt("no route", netlink, 25, 0, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 0, 0, 0, 0))
attempt("new rule", netlink, 32, 0x400, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 100, 0, 0, 1, 0))
attempt("new neighbour", netlink, 28, 0x400, struct.pack("=BxHiHBB", 2, 0, 1, 0x80, 0, 0) + attr(1, bytes([10, 1, 1, 1])))
attempt("new qdisc", netlink, 36, 0x400, struct.pack("=BxHiIII", 0, 0, 1, 0x10000, 0xffffffff, 0) + attr(1, b"pfifo\0"))
attempt("new namespace id", netlink, 88, 0, struct.pack("=Bxxx", 0) + attr(1, struct.pack("=i", 7)) + attr(2, one))
for family in range(1, 32):
    attempt(f"netlink family {family}", socket.socket, 16, 3, family)
for a in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 3), (17, 2, 3), (17, 10, 3), (2, 2, 1), (10, 2, 58)):
    attempt("socket %d %d %d" % a, socket.socket, *a)
s, s6 = socket.socket(2, 2), socket.socket(10, 2)
for name, number in dict(SIFFLAGS=0x8914, SIFADDR=0x8916, SIFMTU=0x8922, SIFNAME=0x8923, SIFMAP=0x8971, ADDRT=0x890b, DELRT=0x890c, SARP=0x8955, BRADDBR=0x89a0,
                         GSKNS=0x894c).items():
    attempt("ioctl " + name, fcntl.ioctl, s, number, b"lo\0" + bytes(61))
for name, a in dict(mark=(1, 36, 1), rcvbufforce=(1, 33, 1 << 24), sndbufforce=(1, 32, 1 << 24), priority=(1, 12, 7), transparent=(0, 19, 1),
                    iptables=(0, 64, bytes(96)), arptables=(0, 96, bytes(96)), ipsec=(0, 16, bytes(64))).items():
    attempt("option " + name, s.setsockopt, *a)
attempt("option ip6tables", s6.setsockopt, 41, 64, bytes(96))

def setns(path):
    if libc.setns(os.open(path, os.O_RDONLY), 0) < 0:
        raise OSError(ctypes.get_errno(), "setns")

for path in ("/proc/self/ns/net", "/proc/1/ns/net"):
    attempt("setns " + path, setns, path)
attempt("owner", fcntl.ioctl, os.open("/proc/self/ns/net", os.O_RDONLY), 0xb701)
seen, writable = 0, []
for top in ("/proc/sys/net", "/sys", "/proc/self/net"):
    for folder, _, files in os.walk(top):
        for f in files:
            seen += 1
            try:
                # root may open some of /proc/net where the namespace is its own; nothing takes a word
                fd = os.open(os.path.join(folder, f), os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(fd, b"0\n")
                    writable.append(os.path.join(folder, f))
                finally:
                    os.close(fd)
            except OSError:
                pass
print(json.dumps([os.readlink("/proc/self/ns/net"), out, seen, writable]))
'''


def judge(s, net, user, what):
    id = s.create(net=net)["id"]
    text, err, _ = s.exec(id, "python3", "-c", INSIDE, user=user)
    s.kill(id)
    ns, tried, seen, writable = json.loads(text)
    # no namespace of the stock has an owner that is for the inside to see; its own has, and that is its own user namespace
    wrong = {k: v for k, v in tried.items() if v not in ("!EPERM", "!EACCES", "!EPROTONOSUPPORT", "!EAFNOSUPPORT", "!ESOCKTNOSUPPORT") and k != "owner"}
    ok(len(tried) > 80 and not wrong, f"{what}: {len(tried)} acts are refused", (wrong, err))
    ok(seen > 300 and not writable, f"{what}: none of {seen} files can be written", writable)
    return ns, tried["owner"] == "!EPERM"


s = bt.Server("--pool", "0").start()
try:
    keeper = s.pid_of("bureau-keeper")
    stocked = lambda: sum(os.readlink(f"/proc/{keeper}/fd/{f}").startswith("net:") for f in os.listdir(f"/proc/{keeper}/fd"))
    fresh, later = [], []
    for net in ("none", "all"):
        fresh.append(judge(s, net, "root", f"network {net}, its own"))
    full = os.geteuid() == 0 and wait_for(lambda: stocked() == 2 + 8)
    ok(full or os.geteuid() != 0, "root's keeper has some in stock")
    for net in ("none", "all"):
        for user in ("root", "user"):
            later.append(judge(s, net, user, f"network {net}, {'of the stock' if full else 'its own'}, {user}"))
            wait_for(lambda: not full or stocked() == 2 + 8)
    ok(not any(x[1] for x in fresh) and all(x[1] for x in later) == full, "those of the stock belong to nothing inside", (fresh, later))
    ids, seen = [], [os.readlink("/proc/self/ns/net")]
    for k in range(40):
        ids.append(s.create(net=("none", "all")[k % 2])["id"])
        seen.append(s.exec(ids[-1], "readlink", "/proc/self/ns/net")[0].decode().strip())
        time.sleep(0.03 * (k % 3 == 0))          # some find a stock, some don't: both are right
    ok(len(set(seen)) == 41, "40 computers have 40 networks, none the host's", seen)
    s.stop()
    ok(not s.leftovers(), "nothing is left", s.leftovers())
finally:
    s.remove()
bt.done()
