#!/usr/bin/env python3
"""Template base, whole: built from the mirror that this machine's apt uses, killed half-way and built on; then what a model's code asks
for is in it, and apt and pip install more. Needs mmdebstrap and a Debian mirror. timeout: 600"""
import glob, json, os, re, shutil, subprocess, sys, tempfile, time, urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bureau_test as bt
import host_net
from bureau_test import ok, skip, wait_for

BUREAU = bt.BUILD / "bureau"
HOST_CERTS = "/etc/ssl/certs/ca-certificates.crt"      # a host that has one more, for its own mirrors, has it in there


def bureau(*args, timeout=300):
    p = subprocess.run([BUREAU, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, check=False)
    return p.returncode, p.stdout, p.stderr


def run(*argv):
    return bureau("run", "-t", "base", *argv)


def needs(folder):
    with open(os.path.join(folder, "base/build.log"), encoding="utf-8", errors="replace") as f:
        return re.findall(r"Need to get (\S+ \S+)", f.read())


def kill_half_way(templates, options):
    """kill -9 once what git needs is unpacked: by then every package has been downloaded, and some are still to come."""
    log = os.path.join(os.path.dirname(templates), "first-build")
    os.makedirs(os.path.dirname(log))
    with open(log, "wb") as out:
        p = subprocess.Popen([BUREAU, "template", "build", "base", *options], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    reached = wait_for(lambda: p.poll() is not None or glob.glob(f"{templates}/base/.partial/**/var/lib/dpkg/info/git.list", recursive=True), 240)
    alive = p.poll() is None
    p.kill()
    p.wait()
    with open(log, encoding="utf-8") as f:
        return ok(alive and reached, "a build of base gets as far as unpacking git, and is killed there", f.read())


def build(templates, options):
    if not kill_half_way(templates, options):
        return False
    code, out, err = run("--", "sh", "-c", "echo in; ls /var/lib/dpkg/info 2>/dev/null; true")
    ok((code, out) == (0, "in\n") and "'base' isn't built" in err, "until it's built its name means host, not the half of it that is there", out + err)
    began = time.monotonic()
    code, out, err = bureau("template", "build", "base", *options)
    got = needs(templates)
    if not ok(code == 0 and "is ready" in out, f"the next build finishes ({time.monotonic() - began:.0f} s)", out + err):
        return False
    again = re.search(r"(\d+) packages of an unfinished build are used again", out)
    ok(len(got) >= 2 and all(g.startswith("0 B") for g in got) and again and int(again[1]) > 100, f"nothing is downloaded twice: {again and again[0]}", (got, out))
    began = time.monotonic()
    code, out, err = bureau("template", "build", "base", *options)
    took = time.monotonic() - began
    ok(code == 0 and "already" in out and took < 3, f"once more: it's there, at once ({took:.2f} s)", out + err)
    info = json.loads(bureau("template", "show", "base", "--json")[1])
    ok(info["suite"] == "bookworm" and info["packages"] > 150, "and is what it says", info)
    return True


def what_is_in_it():
    for name, script, want in (
        ("bash", "echo ${BASH_VERSINFO[0]} $((6 * 7))", r"5 42"),
        ("python3", "python3 -c 'import ssl, sqlite3, venv, sys; print(sys.version_info[0])'", r"3"),
        ("python", "python -c 'print(6 * 7)'", r"42"),
        ("pip", "pip --version", r"pip \d.*python 3.*"),
        ("git", "git init -q a && cd a && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m hello && git log --format=%s", r"hello"),
        ("curl", "curl --version | head -n 1", r"curl \d.*"),
        ("node", "node -e 'console.log(6 * 7, process.version)'", r"42 v\d.*"),
        ("jq and sqlite3", "echo '{\"a\":1}' | jq -c .a; sqlite3 :memory: 'select 2'", r"1\n2"),
        ("user `user`", "id -un; id -u; echo ~; test -w ~ && touch ~/f && stat -c %U ~/f", r"user\n1000\n/home/user\nuser"),
        ("sudo", "sudo id -un; sudo sh -c 'echo x >/etc/made && stat -c %u /etc/made'", r"root\n0"),
        ("no set-id program", "sudo find / -xdev -perm /6000 -type f | wc -l", r"0"),
    ):
        code, out, err = run("--", "bash", "-c", script)
        ok(code == 0 and re.fullmatch(want, out.strip()), f"in it: {name}", f"exit code {code}\n{out}{err}")
    code, out, err = run("--", "sh", "-c", "ls ~/f /etc/made 2>&1")
    ok(code != 0 and out.count("No such file") == 2, "the next one starts clean", out + err)


def what_can_be_added(mirror):
    net = ["--net", "all", *host_net.allow([urllib.parse.urlsplit(mirror).hostname])]
    code, out, err = run(*net, "--", "bash", "-c", "hello; sudo apt-get -q update && sudo apt-get -q -y install hello && hello")
    ok(code == 0 and out.endswith("Hello, world!\n"), "apt installs a package in it", out[-1500:] + err[-1500:])
    index = host_net.pip_index()
    if not index:
        skip("pip installs a package in it: its index can't be reached from here")
        return
    net = ["--net", "all", *host_net.allow(host_net.pip_hosts(index, "six")), "-v", f"{HOST_CERTS}:/run/host.crt:ro", "-e", "PIP_CERT=/run/host.crt",
           "-e", f"PIP_INDEX_URL={index}", "-e", "PIP_DISABLE_PIP_VERSION_CHECK=1"]
    code, out, err = run(*net, "--", "bash", "-c", "pip install -q six && python -c 'import six; print(six.PY3, six.__file__.startswith(\"/home/user\"))'")
    ok(code == 0 and out.startswith("True"), "pip installs a package in it", out + err)


def main():
    if os.path.exists(bt.BUILD / "sanitize-probe"):
        print("1..0 # SKIP a sanitized guest needs libraries that base doesn't have")
        return 0
    if not shutil.which("mmdebstrap"):
        print("1..0 # SKIP mmdebstrap isn't installed")
        return 0
    mirror = host_net.mirror()
    if not mirror:
        print("1..0 # SKIP no Debian mirror can be reached")
        return 0
    with tempfile.TemporaryDirectory(prefix="bureau-base-", ignore_cleanup_errors=True) as tmp:
        os.chmod(tmp, 0o755)
        os.environ["BUREAU_STATE"] = os.path.join(tmp, "state")
        templates = os.path.join(tmp, "state/templates")
        try:
            if build(templates, ["--mirror", mirror, *host_net.apt_options()]):
                what_is_in_it()
                what_can_be_added(mirror)
        finally:
            code, out, err = bureau("template", "remove", "base")
        ok(code == 0 and os.listdir(templates) == [".cache"], "removed", os.listdir(templates))
    bt.done()


sys.exit(main())
