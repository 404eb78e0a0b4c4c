#!/usr/bin/env python3
"""bureau template, end to end: a small recipe is built, killed half-way, built again without downloading anything twice, run
in, listed and removed. Needs mmdebstrap and a Debian mirror. timeout: 900"""
import glob, json, os, re, shutil, signal, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import host_net

BUILD = os.path.abspath(os.environ.get("BUREAU_BUILD") or os.path.join(HERE, "../../build"))
BUREAU = os.path.join(BUILD, "bureau")
SANITIZED = os.path.exists(os.path.join(BUILD, "sanitize-probe"))
n = bad = 0


def ok(good, text, more=""):
    global n, bad
    n += 1
    bad += not good
    print(f"{'' if good else 'not '}ok {n} - {text}", flush=True)
    if not good and more != "":
        print("# " + str(more).replace("\n", "\n# "), flush=True)
    return good


def bureau(*args, timeout=400):
    p = subprocess.run([BUREAU, *args], capture_output=True, text=True, timeout=timeout)
    return p.returncode, p.stdout, p.stderr


def words(tmp):
    c, o, e = bureau("template")
    ok(c == 2 and "Examples" in o, "no word: help, and 2")
    c, o, e = bureau("template", "biuld", "base")
    ok(c == 2 and "build" in e, "an unknown word: the nearest one is named", e)
    ok(bureau("template", "build")[0] == 2 and bureau("template", "list", "x")[0] == 2, "a name too few, a name too many")
    ok(bureau("template", "show", "../x")[0] == 2, "a name that is none")
    c, o, e = bureau("template", "list")
    ok(c == 0 and "host" in o, "host is always there")
    ok([t["name"] for t in json.loads(bureau("template", "list", "--json")[1])] == ["host"], "as JSON too")
    c, o, e = bureau("template", "show", "nosuch")
    ok(c == 1 and "template build ./nosuch.recipe" in e, "one that isn't there: how to make it", e)
    ok("template build base makes" in bureau("template", "show", "base", "--state", tmp)[2], "the shipped one is made by its name")
    ok(bureau("template", "ls")[0] == 0 and "remove template 'nosuch'" in bureau("template", "rm", "nosuch")[2], "ls and rm are list and remove")
    c, o, e = bureau("template", "build", "nosuch")
    ok(c == 1 and "no recipe" in e, "no such recipe", e)
    ok(bureau("template", "remove", "host")[0] == 1, "host can't be removed")
    for text, says in (("suite x\npackages aa bb\npackges cc\n", "bad.recipe:3"), ("suite x\n", "packages"), ("suite x\npackages a;b\n", "a;b"), ("suite\n", "bad.recipe:1")):
        with open(os.path.join(tmp, "bad.recipe"), "w") as f:
            f.write(text)
        c, o, e = bureau("template", "build", os.path.join(tmp, "bad.recipe"))
        ok(c == 1 and says in e, f"a bad recipe is refused, and where: {says}", e)
    here = subprocess.run([BUREAU, "template", "build", "bad.recipe"], cwd=tmp, capture_output=True, text=True)
    ok(here.returncode == 1 and "bad.recipe:1" in here.stderr, "FILE.recipe without a slash is a file too, as the usage has it", here.stderr)
    c, o, e = bureau("run", "-t", "base", "--", "true")
    ok(c == 0 and "'base' isn't built" in e and "bureau template build base" in e, "run: base means host until it's built, and that is told", e)
    ok(bureau("run", "-q", "-t", "base", "--", "true")[0::2] == (0, ""), "or not told")
    c, o, e = bureau("run", "-t", "nosuch", "--", "true")
    ok(c == 125 and "template build ./nosuch.recipe" in e, "run: how to make it", e)


def builds(tmp, state):
    recipe = os.path.join(tmp, "tiny.recipe")
    with open(recipe, "w") as f:
        f.write("about  a small one\nsuite  bookworm\npackages hello ca-certificates python3-minimal\nrun echo \"it's here\" > /etc/made; id -u >> /etc/made; grep -c 127.0.0.1 /etc/resolv.conf >> /etc/made || true; rm $(mktemp); chmod 4755 /usr/bin/hello\n")
    extra = host_net.apt_options()
    temporary = lambda: sorted(glob.glob("/tmp/*mmdebstrap*"))
    before = temporary()
    p = subprocess.Popen([BUREAU, "template", "build", recipe, *extra], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen = ""
    for line in p.stdout:
        seen += line
        if "[ 35%]" in line:
            break
    if "[ 30%]" not in seen:
        ok(False, "a build gets as far as unpacking", seen + p.stdout.read())
        return
    ok("[  3%] fetching the list of packages" in seen, "steps are shown as lines where there is no terminal")
    c, o, e = bureau("template", "build", recipe, *extra)
    ok(c == 1 and "already" in e, "two builds of one name at once are refused", e)
    p.kill()
    p.wait()
    ok(not [d for d in os.listdir(f"{state}/templates/tiny") if not d.startswith(".") and d != "build.log"], "killed half-way: nothing that could be taken for a template")
    c, o, e = bureau("run", "-t", "tiny", "--", "true")
    ok(c == 125, "and it can't be started from", e)
    left = lambda: subprocess.run(["pgrep", "-f", f"{state}/templates/tiny/.partial"], capture_output=True, text=True).stdout
    deadline = time.monotonic() + 10
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    ok(not left() and state not in open("/proc/self/mountinfo").read(), "no process and no mount of it is left", left())
    ok(temporary() == before, "nor a folder in /tmp", temporary())
    c, o, e = bureau("template", "build", recipe, *extra)
    if not ok(c == 0 and "is ready" in o and "[100%] done" in o, "the next run goes on and finishes", o + e):
        return
    log = open(f"{state}/templates/tiny/build.log").read()
    ok(re.search(r"\d+ packages of an unfinished build are used again", o) or len(os.listdir(f"{state}/templates/.cache/bookworm")) > 50, "with the packages that were there already", o)
    ok(sorted(os.listdir(f"{state}/templates/tiny/current/")) == ["info.json", "rootfs"], "a template is its files and what is known of them")
    first = re.search(r"Need to get (\S+ \S+)", log)
    ok(first and first.group(1).startswith("0 B"), "the base system isn't downloaded again", first and first.group(0))
    ok(not os.path.exists(f"{state}/templates/tiny/.partial"), "the unfinished one is gone")
    ident = os.readlink(f"{state}/templates/tiny/current")
    c, o, e = bureau("template", "build", recipe, *extra)
    ok(c == 0 and "already" in o, "once more: it's there", o)
    c, o, e = bureau("template", "build", recipe, "--force", *extra)
    log = open(f"{state}/templates/tiny/build.log").read()
    needs = re.findall(r"Need to get (\S+ \S+)", log)
    ok(c == 0 and needs and all(x.startswith("0 B") for x in needs), "forced: everything again, and nothing downloaded", (needs, e))
    ok(os.readlink(f"{state}/templates/tiny/current") == ident, "the same packages are the same template")
    inside(state)
    info = json.loads(bureau("template", "show", "tiny", "--json")[1])
    ok(info["id"] == ident and info["packages"] > 50 and info["suite"] == "bookworm", "show --json", info)
    ok([t["name"] for t in json.loads(bureau("template", "list", "--json")[1])] == ["host", "tiny"], "list --json")
    with open(recipe, "a") as f:
        f.write("packages no-such-package-at-all\n")
    c, o, e = bureau("template", "build", recipe, *extra)
    ok(c == 1 and "no-such-package-at-all" in e and "failed while" in e and "build.log" in e, "a build that fails: the step, its last lines, the log", e)
    ok(os.readlink(f"{state}/templates/tiny/current") == ident and (SANITIZED or bureau("run", "-t", "tiny", "--", "hello")[1].startswith("Hello")), "and the old one is still the current one")
    ok(bureau("template", "remove", "tiny")[0] == 0 and not [d for d in os.listdir(f"{state}/templates") if d != ".cache"], "removed", os.listdir(f"{state}/templates"))
    ok(bureau("template", "remove", "tiny")[0] == 1, "once")


def inside(state):
    global n
    if SANITIZED:
        n += 1
        print(f"ok {n} - what runs in it # SKIP a sanitized guest needs libraries that the template doesn't have")
        return
    c, o, e = bureau("run", "-t", "tiny", "--", "sh", "-c", "hello; cat /etc/made; id -un; echo $HOME; cat /etc/resolv.conf")
    ok(o.split("\n")[:5] == ["Hello, world!", "it's here", "0", "0", "user"] and "127.0.0.1" in o, "a program of the template runs in it", (o, e))
    c, o, e = bureau("run", "-t", "tiny", "-u", "root", "--", "sh", "-c", "find / -xdev -perm /6000 -type f; echo changed >/usr/bin/hello && cat /usr/bin/hello; stat -c %u /etc/passwd")
    ok(o == "changed\n0\n", "no setuid program in it; root inside may change it", (o, e))
    ok(bureau("run", "-t", "tiny", "--", "hello")[1].startswith("Hello"), "and the next one starts clean")
    c, o, e = bureau("run", "-t", "tiny", "--", "sudo", "id", "-u")
    ok(o == "0\n", "sudo works", (o, e))


if not shutil.which("mmdebstrap"):
    print("1..0 # SKIP mmdebstrap isn't installed")
    sys.exit(0)
with tempfile.TemporaryDirectory(prefix="bureau-template-", ignore_cleanup_errors=True) as tmp:
    os.chmod(tmp, 0o755)
    state = os.path.join(tmp, "state")
    os.environ["BUREAU_STATE"] = state
    words(tmp)
    if not host_net.mirror():
        n += 1
        print(f"ok {n} - builds # SKIP no Debian mirror can be reached")
    else:
        try:
            builds(tmp, state)
        finally:        # files of other ids, when it isn't root
            bureau("template", "remove", "tiny")
print(f"1..{n}")
sys.exit(bad != 0)
