#!/usr/bin/env python3
"""bureau sandbox, status, stop, api-key: through the front program, on a real server where there can be one, else on a stand-in."""
import json, os, pathlib, pty, re, select, shutil, signal, subprocess, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bureau_test import BUILD, TOP, Server, done, equal, ok, wait_for

WORK = pathlib.Path(tempfile.mkdtemp(prefix="bureau-cli-"))
REAL = subprocess.run([BUILD / "bureau", "doctor"], capture_output=True).returncode == 0 and (BUILD / "bureau-serve").exists()


class StandIn:
	def __init__(self):
		self.state = tempfile.mkdtemp(prefix="standin-", dir=WORK)
		self.proc = subprocess.Popen([sys.executable, TOP / "tests/e2e/standin.py", self.state])
		wait_for(lambda: os.path.exists(self.state + "/server.json"), 20)

	def remove(self):
		self.proc.terminate()
		self.proc.wait()


def skip(what, why):
	ok(True, f"{what} # SKIP {why}")


def env(s, **more):
	return {**os.environ, "BUREAU_STATE": s.state, "BUREAU_URL": "", "BUREAU_API_KEY": "", **more}


def cli(s, *args, input=None, text=True, **more):
	return subprocess.run([BUILD / "bureau", *map(str, args)], env=env(s, **more), input=input, stdin=None if input is not None else subprocess.DEVNULL,
		capture_output=True, text=text, timeout=60)


def create(s, *args):
	r = cli(s, "sandbox", "create", "--template", "host", "--net", "none", *args)
	ok(re.fullmatch(r"i[a-z0-9]{20}\n", r.stdout) and r.returncode == 0, "create prints the id alone", r.stdout + r.stderr)
	return r.stdout.strip()


def basics(s):
	id = create(s, "--env", "X=a b", "-m", "team=blue", "--timeout", "10m")
	r = cli(s, "sandbox", "list")
	ok(id in r.stdout and "team=blue" in r.stdout and r.stdout.startswith("ID "), "list shows it", r.stdout)
	r = cli(s, "sandbox", "list", "--json", "--metadata", "team=blue")
	equal([b["id"] for b in json.loads(r.stdout)], [id], "list --json with a mark")
	equal(json.loads(cli(s, "sandbox", "list", "--json", "--metadata", "team=red").stdout), [], "list with another mark")
	equal(json.loads(cli(s, "sandbox", "show", id, "--json").stdout)["state"], "running", "show --json")
	equal(json.loads(cli(s, "status", "--json").stdout)["sandboxes"]["running"], 1, "status --json")
	ok("http://" in cli(s, "status").stdout, "status")
	ok(cli(s, "sandbox", "metrics", id).stdout.count("\n") > 5, "metrics")
	equal(cli(s, "sandbox", "timeout", id, "1h").returncode, 0, "timeout")
	r = cli(s, "api-key")
	ok(r.stdout.startswith("e2b_") and r.returncode == 0, "api-key")
	return id


def notice(s):
	r = cli(s, "sandbox", "create", "--net", "none")
	ok(r.returncode == 0 and "'base'" in r.stderr and "host" in r.stderr and "template build base" in r.stderr, "base stands for host until it's built, and that is told", r.stderr)
	equal(cli(s, "sandbox", "kill", r.stdout.strip()).returncode, 0, "kill")


def execs(s, id):
	r = cli(s, "sandbox", "exec", id, "--", "sh", "-c", 'echo "$X"; echo err >&2; exit 7')
	equal((r.stdout, r.stderr, r.returncode), ("a b\n", "err\n", 7), "exec: stdout, stderr, exit code, a variable")
	equal(cli(s, "sandbox", "exec", id, "sh", "-c", "kill -9 $$").returncode, 137, "a signal is 128 + its number")
	r = cli(s, "sandbox", "exec", "--timeout", "1s", id, "--", "sleep", "60")
	ok(r.returncode == 124 and "too long" in r.stderr, "--timeout: 124", r.stderr)
	r = cli(s, "sandbox", "exec", "-e", "Y=1", "-w", "/tmp", id, "--", "sh", "-c", 'echo "$Y"')
	equal(r.stdout, "1\n", "exec --env --cwd")
	r = cli(s, "sandbox", "exec", "--json", id, "--", "sh", "-c", r'printf "a\377b"; echo err >&2; exit 7')
	got = json.loads(r.stdout)
	equal((got["stdout"], got["stderr"], got["exit_code"], got["how"], r.returncode, r.stderr), ("a\ufffdb", "err\n", 7, "exited", 7, ""), "exec --json")
	equal(cli(s, "sandbox", "exec", "--json", "-t", id, "--", "true").returncode, 2, "and not with a terminal")
	data = os.urandom(3 << 20)
	r = cli(s, "sandbox", "exec", "-i", id, "--", "cat", input=data, text=False)
	ok(r.stdout == data, "3 MiB through stdin and back", f"{len(r.stdout)} bytes, {r.stderr[:200]}")
	with open(WORK / "in", "wb") as f:
		f.write(data)
	with open(WORK / "in") as f:
		r = subprocess.run([BUILD / "bureau", "sandbox", "exec", "-i", id, "--", "wc", "-c"], env=env(s), stdin=f, capture_output=True, text=True)
	equal(r.stdout.strip(), str(3 << 20), "stdin from a file")
	r = cli(s, "sandbox", "exec", id, "--", "cat", input="not passed on")
	equal(r.stdout, "", "without -i nothing is passed on")
	r = cli(s, "sandbox", "exec", id, "--", "nosuchprogram")
	ok(r.returncode == 127 and "nosuchprogram" in r.stderr and "sandbox list" not in r.stderr, "no such program: 127", r.stderr)
	if REAL:
		r = cli(s, "sandbox", "exec", id, "--", "/etc/passwd")
		ok(r.returncode == 126 and "/etc/passwd" in r.stderr and "user" not in r.stderr, "one that can't be run: 126", r.stderr)
		equal(cli(s, "sandbox", "exec", "-w", "/nowhere", id, "--", "true").returncode, 125, "no such folder to start in: 125")
		r = cli(s, "sandbox", "exec", id, "--", "echo", "a" * 100000)
		ok(r.returncode == 125 and "65536" in r.stderr and "stdin" in r.stderr and "NUL" not in r.stderr, "too long an argument: the limit is named", r.stderr)
		r = cli(s, "sandbox", "exec", id, "--", "echo", *["a" * 60000] * 4)
		ok(r.returncode == 125 and "65536 bytes together" in r.stderr and "stdin" in r.stderr, "too long together", r.stderr)
	equal(cli(s, "sandbox", "exec", "i" + "0" * 20, "--", "true").returncode, 125, "no such sandbox: 125")
	p = subprocess.Popen([BUILD / "bureau", "sandbox", "exec", id, "--", "sh", "-c", "echo up; exec sleep 60"], env=env(s), stdout=subprocess.PIPE, text=True)
	p.stdout.readline()
	p.send_signal(signal.SIGINT)
	equal(p.wait(20), 130, "Ctrl-C reaches the program")


def terminal(s, id):
	if not REAL:
		return skip("a terminal", "the stand-in has none that is true to size")
	pid, fd = pty.fork()
	if pid == 0:
		os.execve(BUILD / "bureau", ["bureau", "sandbox", "exec", "-it", id, "--", "sh", "-c", "stty size; tty; read x; echo got $x; exit 3"], env(s, TERM="xterm"))
	out = b""
	sent = False
	end = time.monotonic() + 30
	while time.monotonic() < end:
		if not select.select([fd], [], [], 0.2)[0]:
			continue
		try:
			part = os.read(fd, 65536)
		except OSError:
			break
		if not part:
			break
		out += part
		if b"/dev/" in out and not sent:
			sent = True
			os.write(fd, b"hello\r")
	_, st = os.waitpid(pid, 0)
	equal(os.waitstatus_to_exitcode(st), 3, "a terminal: exit code")
	ok(b"/dev/pts" in out and b"got hello" in out, "it's a terminal, and typed text reaches it", out)


def copies(s, id):
	if REAL:
		r = cli(s, "sandbox", "cp", f"{id}:no-such-file", str(WORK / "none"))
		ok(r.returncode == 3 and "ls -la" in r.stderr, "a file that isn't there: how to look", r.stderr)
	tree = WORK / "tree"
	(tree / "a/b").mkdir(parents=True)
	(tree / "a/b/f").write_text("deep")
	(tree / "x.sh").write_text("#!/bin/sh\necho ran\n")
	os.chmod(tree / "x.sh", 0o755)
	(tree / "naïve 数").write_text("name")
	(tree / "big").write_bytes(os.urandom(5 << 20))
	os.symlink("x.sh", tree / "link")
	r = cli(s, "sandbox", "cp", tree, id + ":")
	ok(r.returncode == 0 and "1 links" in r.stderr, "a folder in; links are left out, and told", r.stderr)
	equal(cli(s, "sandbox", "exec", id, "--", "tree/x.sh").stdout, "ran\n", "permissions come along")
	r = cli(s, "sandbox", "cp", id + ":tree", WORK / "back")
	ok(r.returncode == 0, "a folder out", r.stderr)
	for name in ("a/b/f", "x.sh", "naïve 数", "big"):
		ok((WORK / "back" / name).read_bytes() == (tree / name).read_bytes(), "the same: " + name)
	r = cli(s, "sandbox", "cp", "--json", "-", id + ":n/o.txt", input="from stdin")
	equal(json.loads(r.stdout), {"from": "-", "to": id + ":n/o.txt", "left_out": 0}, "stdin in, cp --json")
	equal(cli(s, "sandbox", "cp", id + ":n/o.txt", "-").stdout, "from stdin", "stdout out")
	cli(s, "sandbox", "cp", tree / "x.sh", id + ":n")
	equal(cli(s, "sandbox", "exec", id, "--", "n/x.sh").stdout, "ran\n", "into a folder that is there")
	equal(cli(s, "sandbox", "cp", id + ":nix", WORK).returncode, 3, "no such file: exit code 3")
	equal(cli(s, "sandbox", "cp", "a", "b").returncode, 2, "two local paths: exit code 2")
	targets(s, id)
	if not REAL:
		return
	breaks(s)
	cli(s, "sandbox", "exec", id, "--", "sh", "-c", "mkdir evil; ln -s /etc evil/out; echo x > evil/f")
	os.makedirs(WORK / "safe")
	os.symlink("/tmp", WORK / "safe/f")
	r = cli(s, "sandbox", "cp", id + ":evil", WORK / "safe2")
	equal(sorted(os.listdir(WORK / "safe2")), ["f"], "a link in the sandbox doesn't come out")
	cli(s, "sandbox", "exec", id, "--", "sh", "-c", "mkdir -p evil2/f; echo x > evil2/f/planted")
	r = cli(s, "sandbox", "cp", id + ":evil2/", WORK / "safe/")
	ok(not os.path.exists("/tmp/planted"), "nothing is written through a link that lies in the way", r.stderr)


def targets(s, id):
	"""What a copied file may take the place of, and how."""
	d = WORK / "targets"
	d.mkdir()
	(d / "old").write_text("old")
	os.chmod(d / "old", 0o640)
	os.symlink("old", d / "link")
	os.symlink("nowhere", d / "dangling")
	os.mkfifo(d / "pipe")
	r = cli(s, "sandbox", "cp", id + ":n/o.txt", d / "link")
	ok(r.returncode == 0 and os.path.islink(d / "link") and (d / "old").read_text() == "from stdin" and os.stat(d / "old").st_mode & 0o777 == 0o640,
		"through a link: the file behind it is replaced, its mode stays", r.stderr)
	ok(cli(s, "sandbox", "cp", id + ":n/o.txt", d / "dangling").returncode != 0 and not os.path.exists(d / "nowhere"), "not through a link to nowhere")
	p = subprocess.Popen(["cat", d / "pipe"], stdout=subprocess.PIPE, text=True)
	r = cli(s, "sandbox", "cp", id + ":n/o.txt", d / "pipe")
	equal((r.returncode, p.communicate(timeout=20)[0]), (0, "from stdin"), "into a pipe")
	ok(pathlib.Path(d / "pipe").is_fifo(), "which stays one")
	equal(cli(s, "sandbox", "cp", id + ":n/o.txt", "/dev/stdout").stdout, "from stdin", "into /dev/stdout")
	with open(d / "old", "w") as f:
		subprocess.run([BUILD / "bureau", "sandbox", "cp", id + ":n/o.txt", "/dev/stdout"], env=env(s), stdout=f)
	equal((d / "old").read_text(), "from stdin", "also when that is a file")
	ok(cli(s, "sandbox", "cp", id + ":n/o.txt", d / "none/x").returncode != 0, "a folder that isn't there")
	equal(sorted(os.listdir(d)), ["dangling", "link", "old", "pipe"], "nothing is left beside them")


def fifo_writer(s, id):
	"""A program that has the fifo `p` open for good (who opens it to read before anybody writes is at its end at once)."""
	w = subprocess.Popen([BUILD / "bureau", "sandbox", "exec", id, "--", "sh", "-c", "exec 3<>p; echo open >&2; head -c 100000 /dev/zero >&3; echo sent >&2; sleep 100"],
		env=env(s), stderr=subprocess.PIPE, text=True)
	equal(w.stderr.readline(), "open\n", "a program holds a fifo")
	return w


def breaks(s):
	"""A copy that breaks in the middle leaves the target as it was."""
	d = WORK / "breaks"
	d.mkdir()
	(d / "old").write_text("old")
	for name, there in (("old", ["old"]), ("new", ["old"])):
		id = cli(s, "sandbox", "create", "--template", "host", "--net", "none").stdout.strip()
		cli(s, "sandbox", "exec", id, "--", "sh", "-c", "mkfifo p")
		w = fifo_writer(s, id)
		p = subprocess.Popen([BUILD / "bureau", "sandbox", "cp", id + ":p", d / name], env=env(s), stderr=subprocess.PIPE, text=True)
		w.stderr.readline()                 # "sent", more than a pipe holds: cp is reading
		cli(s, "sandbox", "kill", id)
		err = p.communicate(timeout=60)[1]
		w.wait(60)
		ok(p.returncode not in (0, None) and err, f"a copy to '{name}' breaks", err)
		ok(sorted(os.listdir(d)) == there and (d / "old").read_text() == "old", "and leaves all as it was", os.listdir(d))
	id = cli(s, "sandbox", "create", "--template", "host", "--net", "none").stdout.strip()
	cli(s, "sandbox", "exec", id, "--", "sh", "-c", "mkfifo p")
	w = fifo_writer(s, id)
	p = subprocess.Popen([BUILD / "bureau", "sandbox", "cp", id + ":p", d / "new"], env=env(s), stderr=subprocess.PIPE)
	w.stderr.readline()
	p.kill()
	p.wait()
	ok(sorted(os.listdir(d)) == ["old"], "nor does one that is killed leave anything", os.listdir(d))
	cli(s, "sandbox", "kill", id)
	w.wait(60)


def watching(s, id):
	if not REAL:
		return skip("watch", "not with the stand-in")
	p = subprocess.Popen([BUILD / "bureau", "sandbox", "watch", "-r", id, "."], env=env(s), stdout=subprocess.PIPE, text=True)
	seen = []
	def look():
		cli(s, "sandbox", "exec", id, "--", "sh", "-c", "mkdir -p w; echo > w/file$$")
		if select.select([p.stdout], [], [], 0.3)[0]:
			seen.append(p.stdout.readline())
		return any("w" in x for x in seen)
	ok(wait_for(look, 20), "watch prints changes", seen)
	p.terminate()
	p.wait()


def mistakes(s):
	for args, code, want in [(["sandbox", "nix"], 2, "not known"), (["sandbox", "list", "--nix"], 2, "not known here"), (["sandbox", "create", "--memory"], 2, "needs a value"),
			(["sandbox", "create", "--memory", "12Q"], 2, ""), (["sandbox", "show", "i" + "0" * 20], 3, ""), (["sandbox", "show", "../../x"], 3, "not a sandbox's id"),
			(["sandbox", "show", "i123"], 3, "'bureau sandbox list'"), (["sandbox", "exec", "i123", "true"], 125, "'bureau sandbox list'"),
			(["serve", "--pool", "x"], 2, "--pool: 'x' is not a number"), (["serve", "--pool"], 2, "needs a value"), (["serve", "--nix", "x"], 2, "'--nix' is not known"),
			(["serve", "--allow", "nix"], 2, "--allow 'nix': not an address range"), (["serve", "--resolver", "dns.example"], 2, "--resolver 'dns.example': not an address"),
			(["sandbox", "create", "--memory", "0"], 2, "--memory: more than 0"), (["sandbox", "create", "--pids", "0"], 2, "--pids: a whole number above 0"),
			(["help", "--help"], 0, ""), (["doctor", "nix"], 2, "--help"),
			(["sandbox", "kill"], 2, "--all"), (["sandbox", "exec"], 2, "needs ID")]:
		r = cli(s, *args)
		ok(r.returncode == code and want in r.stderr, f"{' '.join(args)}: exit code {code}", f"{r.returncode} {r.stderr}")
	for word in ("create", "list", "show", "exec", "cp", "kill", "timeout", "metrics", "ports", "watch"):
		r = cli(s, "sandbox", word, "--help")
		ok(r.returncode == 0 and r.stdout.startswith("usage: bureau sandbox " + word), f"sandbox {word} --help", r.stderr)
	r = cli(s, "sandbox", "exec", "--help")
	ok(r.stdout.startswith("usage: bureau sandbox exec ID [options] -- CMD"), "usage says where options stand", r.stdout)
	lines = [l for l in cli(s, "sandbox", "--help").stdout.splitlines() if re.match("  [a-z]", l)]
	ok(len(lines) == 10 and all(l[34] == " " and l[35] != " " for l in lines), "the list of words stands in columns", lines)
	for typed, meant in (("ps", "sandbox list"), ("exec", "sandbox exec"), ("create", "sandbox create"), ("jobs", "job list"), ("sevre", "serve"),
			("sandbox ps", "sandbox list"), ("sandbox lst", "sandbox list"), ("sandbox delete", "sandbox kill"), ("template biuld", "build")):
		r = cli(s, *typed.split())
		ok(r.returncode == 2 and "did you mean '" in r.stderr and meant + "'" in r.stderr, f"bureau {typed}: did you mean", r.stderr)
	for typed, meant in (("sandbox create --memroy 1G", "--memory"), ("sandbox list --jsn", "--json"), ("status --jason", "--json"), ("job list --jsn", "--json")):
		r = cli(s, *typed.split())
		ok(r.returncode == 2 and f"did you mean {meant}?" in r.stderr, f"bureau {typed}: did you mean {meant}", r.stderr)
	lines = [l for l in cli(s, "sandbox", "--help").stdout.splitlines() if l.startswith("  ")]
	equal({l[34] == " " and l[35] != " " for l in lines}, {True}, "sandbox --help has straight columns")
	ok(cli(s, "status", "--help").stdout.startswith("usage: bureau status [options]\n"), "usage names options")
	for word, says in (("build", "--mirror"), ("list", "--json"), ("show", "--json"), ("remove", "--state")):
		r = cli(s, "template", word, "--help")
		ok(r.returncode == 0 and r.stdout.startswith("usage: bureau template " + word) and says in r.stdout and ("--suite" in r.stdout) == (word == "build"),
			f"template {word} --help is its own", r.stdout)
	ok(cli(s, "help", "template", "show").stdout.startswith("usage: bureau template show"), "help WORD WORD")
	r = subprocess.run(["make", "-C", TOP, "stop", f"BUILD={BUILD}"], env=env(s, BUREAU_STATE=str(WORK / "none")), capture_output=True, text=True)
	ok(r.returncode == 0 and "no server runs" in r.stderr, "make stop without a server says so and is done", r.stdout + r.stderr)
	equal(cli(s, "status", BUREAU_API_KEY="wrong").returncode, 4, "a wrong key: exit code 4")
	r = cli(s, "status", BUREAU_STATE=str(WORK / "none"))
	ok(r.returncode == 5 and "bureau serve" in r.stderr, "no server: exit code 5, and what to do", r.stderr)


def main():
	s = Server("--pool", "0").start() if REAL else StandIn()
	try:
		id = basics(s)
		if REAL:
			notice(s)
		execs(s, id)
		terminal(s, id)
		copies(s, id)
		watching(s, id)
		mistakes(s)
		r = cli(s, "sandbox", "kill", "--json", id, "i" + "0" * 20)
		got = json.loads(r.stdout)
		equal((got["ended"], [f["id"] for f in got["failed"]], r.returncode), ([id], ["i" + "0" * 20], 3), "kill --json: which ended, which couldn't")
		create(s)
		create(s)
		r = cli(s, "sandbox", "kill", "--all")
		equal((r.stdout, r.returncode), ("2 ended\n", 0), "kill --all")
		if REAL:
			r = cli(s, "stop")
			equal((r.stdout, r.returncode), ("stopped\n", 0), "stop")
			equal(cli(s, "stop").returncode, 5, "stop when none runs: exit code 5")
		else:
			skip("stop", "not with the stand-in")
	finally:
		s.remove()
		shutil.rmtree(WORK, ignore_errors=True)
	done()


main()
