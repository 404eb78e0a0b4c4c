#!/usr/bin/env python3
"""bureau job: the engine against a stand-in server that misbehaves on request, then the shipped examples on a real server."""
import json, os, pathlib, pty, re, shutil, signal, subprocess, sys, tempfile, time, types, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bureau_test import BUILD, TOP, Server, done, equal, ok, wait_for

SECRETARY = BUILD / "bureau-secretary"
WORK = pathlib.Path(tempfile.mkdtemp(prefix="bureau-job-"))
STARTED = []


class StandIn:
	def __init__(self):
		self.state = tempfile.mkdtemp(prefix="standin-state-", dir=WORK)
		self.start()

	def start(self, port=0):
		path = self.state + "/server.json"
		if os.path.exists(path):
			os.unlink(path)
		self.p = subprocess.Popen([sys.executable, TOP / "tests/e2e/standin.py", self.state, str(port)])
		STARTED.append(self.p)
		wait_for(lambda: os.path.exists(path), 20)
		self.url = json.load(open(path))["url"]

	def fault(self, **f):
		r = urllib.request.Request(self.url + "/test/fault", json.dumps(f).encode(), method="POST")
		return json.load(urllib.request.urlopen(r))

	def stop(self):
		self.p.terminate()
		self.p.wait()

	def key(self):
		return open(self.state + "/api-key").read().strip()

	def live(self):
		r = urllib.request.Request(self.url + "/v1/sandboxes", headers={"Authorization": "Bearer " + self.key()})
		return json.load(urllib.request.urlopen(r))["sandboxes"]


def env_of(server):
	return {**os.environ, "BUREAU_STATE": server.state, "BUREAU_URL": "", "BUREAU_API_KEY": ""}


def job(server, *args, **kw):
	return subprocess.run([SECRETARY, "job", *map(str, args)], env=env_of(server), capture_output=True, text=True, timeout=kw.pop("timeout", 120), cwd=WORK, **kw)


def start(server, *args):
	p = subprocess.Popen([SECRETARY, "job", *map(str, args)], env=env_of(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=WORK)
	STARTED.append(p)
	return p


def file(name, text):
	path = WORK / name
	path.parent.mkdir(parents=True, exist_ok=True)
	path.write_text(text)
	return path


def doc(r):
	try:
		return json.loads(r.stdout)
	except ValueError:
		return {"state": "no JSON: " + r.stdout + r.stderr, "tasks": [], "job": {"id": ""}, "report": ""}


def states(d):
	return {t["id"]: t["state"] for t in d["tasks"]}


def journal(server, id):
	try:
		with open(server.state + "/jobs/" + id + "/journal") as f:
			return [json.loads(x) for x in f if x.endswith("\n")]
	except FileNotFoundError:      # a job's folder comes before its journal
		return []


def is_done(s, code, d, what):
	"""The job is done; else whatever tells why it isn't: each task's error, the journal's lines with a reason, the server's log."""
	why = [f"exit code {code}, state {str(d['state'])[-500:]}"]
	if d["state"] != "done" and d["job"]["id"]:
		why += [f"{t['id']}: {t['state']}, attempt {t['attempts']}: {t['error']}" for t in d["tasks"] if t["state"] not in ("done", "blocked")][:8]
		why += [json.dumps(x) for x in journal(s, d["job"]["id"]) if x.get("why")][:8]
		why += s.log_text().splitlines()[-12:] if hasattr(s, "log_text") else []
	ok((code, d["state"]) == (0, "done"), what, "\n".join(why))


def results(s, d):
	"""Each task's result, from the report; {} where there is none."""
	path = s.state + "/jobs/" + d["job"]["id"] + "/report.json"
	return {t["id"]: t.get("result") or {} for t in json.load(open(path))["tasks"]} if d["job"]["id"] and os.path.exists(path) else {}


HEAD = 'name = "t"\n[computer]\ntemplate = "host"\n[limits]\ncomputers = 4\nretries = 2\n'


def mistakes(s):
	for text, want in [
			(HEAD + '[[task]]\nid="a"\nneeds=["b"]\n[[task.step]]\nrun=["true"]\n[[task]]\nid="b"\nneeds=["a"]\n[[task.step]]\nrun=["true"]', "a needs b needs a"),
			(HEAD + '[[task]]\nid="a"\nnix=1\n[[task.step]]\nrun=["true"]', "bad.toml:9: 'nix' is not known here"),
			(HEAD + '[[task]]\nid="a"\n[[task.step]]\nshell="echo {{job.id}}"', "no {{}} in shell"),
			(HEAD + '[[task]]\nid="a"\n[[task.step]]\nrun=["sh","-c","{{job.id}}"]', "program's text"),
			(HEAD + '[[task]]\nid="a"\n[[task.step]]\nrun=["echo","{{row.x}}"]', "has no rows"),
			(HEAD + '[[task]]\nid="a"\n[[task.step]]\nput="../../etc/passwd"\nto="x"', None),
			(HEAD + '[inputs.x]\ncsv="/etc/passwd"\n[[task]]\nid="a"\neach="x"\n[[task.step]]\nrun=["true"]', "outside the job file's folder"),
			(HEAD + '[inputs.x]\nsplit={host_file="/etc/shadow",parts=1}\n[[task]]\nid="a"\neach="x"\n[[task.step]]\nrun=["true"]', "not everybody may read it"),
			(HEAD + '[inputs.x]\nrows=[{a="1"},{b="2"}]\n[[task]]\nid="a"\neach="x"\n[[task.step]]\nrun=["echo","{{row.b}}","{{row.c}}"]', "bad.toml:13: {{row.c}}: no row of input 'x' has 'c'"),
			(HEAD + '[inputs.x]\ncsv="gone.csv"\n[[task]]\nid="a"\neach="x"\n[[task.step]]\nrun=["true"]', "open 'gone.csv' beside the job file"),
			("name = 1", "bad.toml:1: 'name' must be a string"), ("a = = 1", "bad.toml:1:")]:
		r = job(s, "run", file("bad.toml", text))
		if want:
			ok(want in r.stderr and r.returncode != 0, f"a mistake is told: {want}", r.stderr + str(r.returncode))
		else:
			ok(r.returncode == 1 and "outside the job file's folder" in r.stdout, "a file outside the job's folder isn't put", r.stdout + r.stderr)
	r = job(s, "check", file("bad.toml", HEAD + '[[task]]\nid="a"\n[[task.step]]\nput="gone"\nto="x"'))
	ok(r.returncode == 2 and "bad.toml:9: put: open 'gone'" in r.stderr, "job check misses a file that a step puts", r.stderr)
	r = job(s, "check", file("bad.toml", HEAD + '[inputs.x]\nsplit={host_file="/etc/shadow",parts=1}\n[[task]]\nid="a"\neach="x"\n[[task.step]]\nrun=["true"]'))
	ok(r.returncode == 2 and "not everybody may read it" in r.stderr, "a file that the job may not take is the job file's mistake", r.stderr)
	for args, want in ((("check", "x.toml", "--json"), "--json isn't for 'job check'"), (("run", "x.toml", "--time", "3m"), "--time isn't for"), (("show",), "'job show' needs ID"), (("run", "/"), "directory")):
		r = job(s, *args)
		ok(r.returncode == 2 and want in r.stderr, f"job {' '.join(args)}: {want}", r.stderr + str(r.returncode))
	r = job(s, "check", TOP / "examples/jobs/rows200.toml")
	ok(r.returncode == 0 and "201 tasks" in r.stdout, "job check counts the tasks", r.stdout + r.stderr)
	left = [j for j in os.listdir(s.state + "/jobs") if not os.path.exists(s.state + "/jobs/" + j + "/meta.json")]
	equal(left, [], "a job that couldn't begin leaves no folder")


EVERYTHING = HEAD + r'''
[inputs.w]
csv = "w.csv"
[[task]]
id = "one"
each = "w"
env = { FROM_TASK = "{{row.word}}" }
[[task.step]]
run = ["printf", "%s", "{{row.word}}"]
expect = { stdout_equals = "{{row.word}}" }
capture = { word = "stdout" }
[[task.step]]
shell = 'printf %s "$W" > out/w.txt || { mkdir out; printf %s "$W" > out/w.txt; }; test "$W" = "$FROM_TASK"; cat'
env = { W = "{{row.word}}" }
input = "fed {{open}}"
expect = { stdout_contains = "fed {{open}}", exit = [0, 3] }
[[task.step]]
get = "out/w.txt"
to = "deep/w.txt"
show = true
capture = { file = "text" }
[[task.step]]
get = "nix"
optional = true
[[task.check]]
exists = "out/w.txt"
[[task]]
id = "merge"
needs = ["one"]
[[task.step]]
write = "all.json"
content = "{{tasks.one.results}}"
[[task.step]]
put_files = "one"
to = "parts"
[[task.step]]
put = "merge.py"
to = "m.py"
[[task.step]]
run = ["python3", "m.py"]
capture = { n = "json" }
[[task.step]]
run = ["printf", "oops\n"]
expect = { stdout_matches = "^o+ps$" }
'''
WORDS = ["plain", "two words", "$(touch /tmp/pwned-by-row)", "'; exit 9; '", 'quote " and , comma', "naïve 数", "{{job.id}}", "<script>alert(1)</script>"]


def everything(s):
	import csv, io
	out = io.StringIO()
	w = csv.writer(out)
	w.writerow(["word"])
	w.writerows([x] for x in WORDS)
	file("w.csv", out.getvalue())
	file("merge.py", "import json,glob\nd=json.load(open('all.json'))\nassert [r['result']['word'] for r in d]==[r['row']['word'] for r in d]\n"
		"assert sorted(open(p).read() for p in glob.glob('parts/*/deep/w.txt'))==sorted(r['row']['word'] for r in d)\nprint(len(d))\n")
	r = job(s, "run", file("every.toml", EVERYTHING), "--json")
	d = doc(r)
	is_done(s, r.returncode, d, "every kind of step, values of every sort")
	equal(results(s, d).get("merge"), {"n": len(WORDS)}, "all rows reached the merge")
	ok(not os.path.exists("/tmp/pwned-by-row"), "no value was run by a shell")
	page = open(d["report"]).read()
	ok("<script" not in page and "&lt;script&gt;" in page, "the page escapes what came from computers")
	ok("default-src 'none'" in page and not re.search(r'(src|href)="(https?:)?//', page), "the page loads nothing")
	asked = json.load(open(d["report"][:-4] + "json"))["asked"]
	equal([(t["id"], t["needs"], t.get("each"), len(t["steps"]), len(t["checks"])) for t in asked], [("one", [], "w", 4, 1), ("merge", ["one"], None, 5, 0)], "the report says what was asked")
	equal(asked[0]["steps"][0], {"kind": "run", "what": "printf %s {{row.word}}"}, "step for step, as the job file has it")
	equal(s.live(), [], "no computer is left")
	r = job(s, "list", "--json")
	ok(any(j["id"] == d["job"]["id"] and j["state"] == "done" for j in json.loads(r.stdout)), "it's in the list")
	r = job(s, "show", d["job"]["id"])
	ok(r.returncode == 0 and "done" in r.stdout, "it can be shown")
	equal(job(s, "show", "nix-1").returncode, 3, "no such job: exit code 3")


FAILING = HEAD + '''
[[task]]
id = "bad"
retries = 1
[[task.step]]
run = ["sh", "-c", "echo noise; echo why >&2; exit 7"]
[[task]]
id = "after"
needs = ["bad"]
[[task.step]]
run = ["true"]
[[task]]
id = "anyway"
needs = ["bad"]
accept_failed = true
[[task.step]]
run = ["true"]
[[task]]
id = "slow"
timeout = "1s"
retries = 0
[[task.step]]
run = ["sleep", "60"]
[[task]]
id = "good"
[[task.step]]
run = ["true"]
'''


def failing(s):
	r = job(s, "run", file("fail.toml", FAILING), "--json")
	d = doc(r)
	equal((r.returncode, d["state"]), (1, "failed"), "a job with a failed task: exit code 1")
	equal(states(d), {"bad": "failed", "after": "blocked", "anyway": "done", "slow": "failed", "good": "done"}, "who fails, who is blocked, who goes on")
	by = {t["id"]: t for t in d["tasks"]}
	ok("exit code 7" in (by["bad"]["error"] or "") and by["bad"]["attempts"] == 2, "why, and after how many tries", by["bad"])
	ok("bad" in (by["after"]["error"] or ""), "a blocked task names what it waited for", by["after"])
	ok("time" in (by["slow"]["error"] or "") or "too long" in (by["slow"]["error"] or ""), "too slow is told", by["slow"])
	page = open(d["report"]).read()
	ok("<h3>after</h3><div> <span class=\"soft\">after bad</span></div><ol><li>run <code>true</code></ol>" in page, "the report says what was asked of a task that never began", page[:3000])
	ok("why" in page and "Attempt 2" in page, "the report shows both attempts and their output")
	r = job(s, "run", file("fast.toml", FAILING.replace("retries = 2", "retries = 0\nkeep_going = false").replace("retries = 1", "")), "--json")
	ok("stopped" in states(doc(r)).values(), "keep_going = false stops the rest", states(doc(r)))
	equal(s.live(), [], "no computer is left")


LOUD = HEAD.replace("retries = 2", "retries = 1") + '''
[[task]]
id = "loud"
[[task.step]]
shell = "for i in 1 2 3 4 5 6 7; do printf 'line %s\\\\033[31m\\\\302\\\\23331m\\\\n' $i >&2; done; echo out; exit 3"
[[task]]
id = "quiet"
[[task.step]]
shell = "echo only this; exit 4"
[[task]]
id = "good"
[[task.step]]
shell = "echo fine >&2"
'''


def last_words(s):
	"""What a failed task printed last is where one looks first."""
	r = job(s, "run", file("words.toml", LOUD))
	ok("    | line 7?[31m?31m\n" in r.stdout and "| line 3?" in r.stdout and "| line 2?" not in r.stdout, "run: the last lines of stderr below the failure", r.stdout)
	ok("| only this" in r.stdout and "fine" not in r.stdout and "| out" not in r.stdout, "stdout when stderr is empty; nothing of done tasks", r.stdout)
	equal(r.stderr.count("| line 7"), 2, "the lines of progress have them for each attempt")
	ok(not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f]", r.stdout + r.stderr), "no control character reaches the terminal")
	id = newest(s)["id"]
	r = job(s, "show", id)
	ok(r.stdout.count("| line 7") == 1 and "| only this" in r.stdout, "show", r.stdout)
	by = {t["id"]: t for t in doc(job(s, "show", id, "--json"))["tasks"]}
	ok(by["loud"]["tail"].startswith("line 3") and by["quiet"]["tail"] == "only this\n" and "tail" not in by["good"], "show --json", by)


MANY = HEAD.replace("retries = 2", "retries = 1") + '''
[inputs.n]
rows = [%s]
[[task]]
id = "row"
each = "n"
[[task.step]]
shell = "sleep 0.3"
[[task]]
id = "bad"
[[task.step]]
shell = "exit 1"
[[task]]
id = "after"
needs = ["bad"]
[[task.step]]
run = ["true"]
''' % ", ".join("{n=%d}" % n for n in range(7))


def at_once():
	"""How many computers at once, by the file and by the option; what the one document is; the terminal's picture."""
	path = file("many.toml", MANY)
	for more, most in (((), 4), (("--computers", "2"), 2)):
		s = StandIn()
		r = job(s, "run", path, "--json", *more)
		equal(s.fault()["peak"], most, f"{most} computers at once, never more")
		s.stop()
	d = doc(r)
	equal(sorted(d), sorted(["job", "state", "tasks", "report", "began", "ended", "ran_ms", "runs"]), "--json: one document")
	bad = [t for t in d["tasks"] if not {"id", "state", "computer", "attempts", "started", "ended", "error"} <= set(t)]
	ok(len(d["tasks"]) == 9 and not bad and os.path.exists(d["report"]), "with all there is to say of each task, also of those that didn't begin", bad)
	tries = [t["log"] for t in json.load(open(d["report"][:-4] + "json"))["tasks"] if t["id"] == "bad"][0]
	ok(len(tries) == 2 and len({a["computer"] for a in tries}) == 2, "a task is tried again on another computer", tries)
	s = StandIn()
	ours, theirs = pty.openpty()
	p = subprocess.Popen([SECRETARY, "job", "run", path], env={**env_of(s), "TERM": "xterm"}, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=WORK)
	STARTED.append(p)
	os.close(theirs)
	seen = b""
	while True:
		try:
			seen += os.read(ours, 65536)
		except OSError:      # its other side is closed
			break
	p.communicate(timeout=60)
	os.close(ours)
	ok(re.search(rb"t: 0 of 9 done, [1-4] running, ", seen) and re.search(rb"\x1b\[\d+A.*t: [1-8] of 9 done", seen, re.S) and re.search(rb"row\.\d +working +\S+ +step 1/1", seen),
		"on a terminal a small table is drawn again and again", seen[-1500:])
	ok(seen.rfind(b"A\x1b[J") > seen.rfind(b" running, "), "and taken away at the end", seen[-200:])
	s.stop()


TIMES = HEAD.replace("computers = 4", 'computers = 1\njob_time = "4s"') + '''
[[task]]
id = "a"
[[task.step]]
shell = "sleep 1"
[[task]]
id = "b"
needs = ["a"]
[[task.step]]
shell = "sleep 6"
'''


def all_runs(s):
	"""Began, took and job_time are of the whole job, not of its last run."""
	p = start(s, "run", file("times.toml", TIMES), "--quiet")
	wait_for(lambda: newest(s)["id"].startswith("t-") and any(x.get("task") == "b" and x.get("to") == "working" for x in journal(s, newest(s)["id"])), 20, 0.05)
	id = newest(s)["id"]
	p.kill()
	p.wait()
	first = journal(s, id)
	began, ran = first[0]["t"], first[-1]["t"] - first[0]["t"]
	d = doc(job(s, "show", id, "--json"))
	equal((d["began"], d["ran_ms"], d["runs"]), (began, ran, 1), "a killed run lasted to its last line")
	r = job(s, "resume", id, "--json")
	d = doc(r)
	equal((r.returncode, d["state"], states(d)["b"], d["began"], d["runs"]), (1, "stopped", "stopped", began, 2), "job_time counts both runs: it's stopped")
	ok(3900 <= d["ran_ms"] < 9000 and d["ran_ms"] <= d["ended"] - began, "after what it gives", d)
	r = job(s, "resume", id)
	ok(r.returncode == 1 and "job_time" in r.stdout and "--time TIME" in r.stdout, "resumed once more: at once, and it says how to go on", r.stdout + r.stderr)
	r = job(s, "resume", id, "--time", "60s", "--json")
	d = doc(r)
	equal((r.returncode, d["state"], d["began"], d["runs"]), (0, "done", began, 4), "--time gives it more")
	page = open(d["report"]).read()
	ok("in 4 runs" in page and d["ran_ms"] >= 9900, "the report counts all of it", d)
	equal(doc(job(s, "show", id, "--json"))["runs"], 4, "and so does show")


def words(s):
	for verb, says in (("run", "FILE.toml"), ("resume", "--failed"), ("show", "ID"), ("list", "newest first"), ("check", "Nothing is started"), ("cancel", "ID")):
		r = job(s, verb, "--help")
		ok(r.returncode == 0 and r.stdout.startswith("usage: bureau job " + verb) and says in r.stdout and r.stdout.count("bureau job check") <= 2,
			f"job {verb} --help is its own", r.stdout)
	r = job(s, "rum", "x")
	ok(r.returncode == 2 and "did you mean 'bureau job run'" in r.stderr, "a near word is guessed", r.stderr)
	equal(job(s, "ls").stdout, job(s, "list").stdout, "ls is list")


ROWS = HEAD.replace("computers = 4", "computers = 6") + '''
[inputs.n]
jsonl = "n.jsonl"
[[task]]
id = "row"
each = "n"
[[task.step]]
shell = 'echo $((N * N))'
env = { N = "{{row.n}}" }
capture = { sq = "stdout" }
[[task.step]]
run = ["cat"]
input = "fed {{row.n}}"
expect = { stdout_equals = "fed {{row.n}}" }
[[task]]
id = "sum"
needs = ["row"]
[[task.step]]
write = "all.json"
content = "{{tasks.row.results}}"
[[task.step]]
run = ["python3", "-c", "import json; print(sum(int(r['result']['sq']) for r in json.load(open('all.json'))))"]
expect = { stdout_equals = "%d" }
''' % sum(n * n for n in range(30))


def weather(s):
	"""Faults of the server that must cost nothing but time."""
	file("n.jsonl", "".join(json.dumps({"n": n}) + "\n" for n in range(30)))
	path = file("rows.toml", ROWS)
	for name, fault in [("429 and 503 at create", {"create_429": 12, "create_503": 4}), ("a create whose answer is lost", {"create_drop": 4}),
			("a stream that breaks", {"drop_exec": 8}), ("a start whose answer is lost", {"drop_start": 5}), ("computers that die", {"kill_box": 3}),
			("201 for 200", {"create_201": 3}), ("input whose answer is lost", {"drop_input": 5})]:
		before = s.fault(**fault)
		r = job(s, "run", path, "--json")
		after = s.fault(**{k: 0 for k in fault})
		d = doc(r)
		is_done(s, r.returncode, d, "goes on through: " + name)
		if "exec" in name or "stream" in name or "start" in name:
			equal(after["exec"] - before["exec"], 61, "no program was started twice: " + name)
		equal(s.live(), [], "no computer is left after: " + name)
	ok(s.fault()["peak"] <= 6 + 4, "never more computers than allowed (and some whose create was lost)", s.fault())
	p = start(s, "run", path, "--json")
	wait_for(lambda: s.fault()["create"] > before["create"] + 60, 20)
	port = int(s.url.rsplit(":", 1)[1])
	s.stop()
	s.start(port)
	out, err = p.communicate(timeout=90)
	ok('"state": "done"' in out, "the server restarts without its computers in the middle: the job is done all the same", out[-300:] + err[-300:])


SLOW = HEAD + '''
[inputs.n]
rows = [%s]
[[task]]
id = "row"
each = "n"
[[task.step]]
shell = 'sleep 0.3; echo $N'
env = { N = "{{row.n}}" }
expect = { stdout_equals = "{{row.n}}" }
capture = { n = "stdout" }
[[task]]
id = "sum"
needs = ["row"]
[[task.step]]
run = ["printf", "%%s", "{{tasks.row.results}}"]
expect = { stdout_contains = '"n":"47"' }
''' % ", ".join("{n=%d}" % n for n in range(48))


def newest(s):
	return json.loads(job(s, "list", "--json").stdout)[0]


def crashes(s):
	path = file("slow.toml", SLOW)
	p = start(s, "run", path)
	wait_for(lambda: newest(s)["state"] == "running" and sum(x.get("to") == "done" for x in journal(s, newest(s)["id"])) >= 5, 20, 0.05)
	id = newest(s)["id"]
	r = job(s, "resume", id)
	ok(r.returncode == 1 and "another secretary" in r.stderr, "two secretaries never run one job", r.stderr)
	kills = 0
	while kills < 4:
		p.kill()
		p.wait()
		kills += 1
		p = start(s, "resume", id) if kills % 2 else start(s, "resume")
		n = sum(x.get("to") == "done" for x in journal(s, id))
		wait_for(lambda: sum(x.get("to") == "done" for x in journal(s, id)) >= n + 3 or p.poll() is not None, 20, 0.05)
	equal(newest(s)["state"], "running", "after four kill -9 it runs again")
	with open(s.state + "/jobs/" + id + "/journal", "rb") as f:
		whole = f.read()
	p.kill()
	p.wait()
	equal(newest(s)["state"], "interrupted", "a killed job is shown as interrupted")
	ok(len(s.live()) > 0, "the dead secretary left computers")
	with open(s.state + "/jobs/" + id + "/journal", "ab") as f:
		f.write(b'{"t":1,"task":"row.01","to":"do')
	r = job(s, "resume", id, "--json")
	d = doc(r)
	is_done(s, r.returncode, d, "resume after kill -9 with a torn journal: done")
	ends = [x["task"] for x in journal(s, id) if x.get("to") == "done"]
	equal(sorted(ends), sorted(set(ends)), "no task was done twice")
	starts = {}
	for x in journal(s, id):
		if x.get("to") == "done":
			starts[x["task"]] = True
		ok(False, "a done task was started again") if x.get("to") == "starting" and starts.get(x["task"]) else None
	equal(s.live(), [], "what dead secretaries left is gone")
	ok(whole, "journal was readable")


def cancel(s):
	path = file("long.toml", SLOW.replace("sleep 0.3", "sleep 30"))
	p = start(s, "run", path, "--json")
	wait_for(lambda: len(s.live()) >= 4, 20, 0.05)
	id = newest(s)["id"]
	r = job(s, "cancel", id, "--json")
	out, _ = p.communicate(timeout=30)
	ok(r.returncode == 0 and doc(r)["state"] == "stopped" and json.loads(out)["state"] == "stopped" and p.returncode == 1, "cancel from another process", r.stderr + out[-200:])
	equal(s.live(), [], "its computers are ended")
	ok(f"job {id}: stopped" in job(s, "show", id).stdout, "show calls it stopped, as list does")
	p = start(s, "run", path, "--json")
	wait_for(lambda: len(s.live()) >= 4, 20, 0.05)
	p.send_signal(signal.SIGINT)
	out, _ = p.communicate(timeout=30)
	equal(json.loads(out)["state"], "stopped", "Ctrl-C stops cleanly")
	equal(s.live(), [], "its computers are ended too")
	id = newest(s)["id"]
	file_text = (pathlib.Path(s.state) / "jobs" / id / "job.toml")
	file_text.write_text(SLOW)          # the copy is what runs: a quick version, to see it end
	r = job(s, "resume", id, "--json")
	equal(doc(r)["state"], "done", "a stopped job goes on with resume")
	r = job(s, "cancel", id)
	equal((r.returncode, r.stdout), (0, f"job {id} is over already: done\n"), "cancel of a job that is over says so")
	equal(doc(job(s, "cancel", id, "--json"))["state"], "done", "as JSON too")
	job(s, "run", file("fails.toml", HEAD + '[[task]]\nid="a"\n[[task.step]]\nrun=["false"]\n'))
	equal((job(s, "cancel", newest(s)["id"]).returncode, newest(s)["state"]), (0, "failed"), "a failed one stays failed")
	p = start(s, "run", path)
	wait_for(lambda: len(s.live()) >= 4, 20, 0.05)
	p.kill()
	p.wait()
	id = newest(s)["id"]
	s.fault(hang_list=1)
	p = start(s, "resume", id)
	wait_for(lambda: s.fault()["hung"] == 1, 20, 0.05)
	p.send_signal(signal.SIGINT)
	said = p.stderr.readline()
	p.send_signal(signal.SIGINT)
	_, err = p.communicate(timeout=20)
	ok(p.returncode == 1 and "stopping" in said and "left at once" in err, "Ctrl-C twice while it looks for what an earlier run left", said + err)
	equal(job(s, "cancel", id).returncode, 0, "cancel of a job that nobody runs")
	equal((newest(s)["state"], s.live()), ("stopped", []), "it's stopped, and what it left is ended")


def unreachable(s):
	path = file("one.toml", HEAD + '[[task]]\nid="a"\n[[task.step]]\nrun=["true"]\n')
	r = job(s, "run", path, "--state", str(WORK / "empty"))
	ok(r.returncode == 5 and "bureau serve" in r.stderr, "no server: exit code 5 and what to do", r.stderr)
	r = subprocess.run([SECRETARY, "job", "run", path], env={**env_of(s), "BUREAU_API_KEY": "wrong"}, capture_output=True, text=True)
	equal(r.returncode, 4, "a wrong key: exit code 4")


CRASH = HEAD.replace("computers = 4", "computers = 6").replace("retries = 2", "retries = 0") + '''
[inputs.n]
rows = [%s]
[[task]]
id = "row"
each = "n"
[[task.step]]
shell = 'i=0; while [ $i -lt 30 ]; do echo $N $i; i=$((i+1)); sleep 0.1; done'
env = { N = "{{row.n}}" }
capture = { all = "stdout" }
[[task]]
id = "sum"
needs = ["row"]
[[task.step]]
write = "a.json"
content = "{{tasks.row.results}}"
[[task.step]]
run = ["cat", "a.json"]
capture = { rows = "json" }
''' % ", ".join("{n=%d}" % n for n in range(18))


def server_dies(s):
	"""kill -9 of the daemon and of the keeper while programs run: no attempt is lost, no byte of output."""
	p = start(s, "run", file("crash.toml", CRASH), "--json")
	wait_for(lambda: newest(s)["state"] == "running" and sum(x.get("to") == "working" for x in journal(s, newest(s)["id"])) >= 6, 30, 0.05)
	for who in (["bureaud"], ["bureau-keeper"], ["bureaud", "bureau-keeper"]):
		for pid in [wait_for(lambda: s.pid_of(w), 20) for w in who]:
			os.kill(pid, signal.SIGKILL)
		n = sum(x.get("to") == "done" for x in journal(s, newest(s)["id"]))
		wait_for(lambda: sum(x.get("to") == "done" for x in journal(s, newest(s)["id"])) > n or p.poll() is not None, 30, 0.05)
	out, err = p.communicate(timeout=120)
	d = doc(types.SimpleNamespace(stdout=out, stderr=err))
	is_done(s, p.returncode, d, "kill -9 of the server's parts in the middle: done, without one retry")
	rows = results(s, d).get("sum", {}).get("rows", [])
	bad = [(r["row"], r["result"]["all"][-200:]) for r in rows if r["result"]["all"].split("\n") != ["%d %d" % (r["row"]["n"], i) for i in range(30)]]
	equal((len(rows), bad), (18, []), "no byte of output was lost or doubled")


def examples():
	probe = subprocess.run([BUILD / "bureau", "doctor"], capture_output=True, text=True)
	if probe.returncode != 0 or not (BUILD / "bureau-serve").exists():
		ok(True, "the shipped examples # SKIP bureau doctor says that this machine can't run sandboxes")
		return
	s = Server("--pool", "0").start()
	try:
		if os.path.exists("/var/lib/dpkg/status"):
			r = job(s, "run", TOP / "examples/jobs/census.toml", "--json")
			d = doc(r)
			is_done(s, r.returncode, d, "census: three computers and a merge")
			equal(len({t["computer"] for t in d["tasks"]}), 4, "each task had a computer of its own")
			want = sum(1 for x in open("/var/lib/dpkg/status").read().split("\n\n") if re.search(r"^Status:.* installed$", x, re.M))
			equal(results(s, d).get("merge", {}).get("census", {}).get("packages"), want, "as many packages as dpkg has")
			page = open(d["report"]).read() if d["report"] else ""
			ok("data:image/svg+xml" in page and "<th>section" in page, "the report shows the chart and the tables")
		else:
			ok(True, "census # SKIP no dpkg on this machine")
		r = job(s, "run", TOP / "examples/jobs/rows200.toml", "--json", timeout=300)
		d = doc(r)
		is_done(s, r.returncode, d, "200 rows on 20 computers")
		equal(len(d["tasks"]), 201, "that many tasks")
		p = start(s, "run", TOP / "examples/jobs/rows200.toml", "--json")
		wait_for(lambda: newest(s)["state"] == "running" and sum(x.get("to") == "done" for x in journal(s, newest(s)["id"])) >= 40, 60, 0.05)
		p.kill()
		p.wait()
		id = newest(s)["id"]
		before = {x["task"] for x in journal(s, id) if x.get("to") == "done"}
		r = job(s, "resume", id, "--json", timeout=300)
		is_done(s, r.returncode, doc(r), "killed after 40 rows, resumed, done")
		again = {x["task"] for x in journal(s, id)[:] if x.get("to") == "starting" and x["attempt"] > 1} & before
		equal(again, set(), "no finished row was repeated")
		server_dies(s)
		equal(s.patient("GET", "/v1/sandboxes")["sandboxes"], [], "no computer is left")
	finally:
		s.remove()


def main():
	s = StandIn()
	try:
		for part in (mistakes, words, everything, failing, last_words, all_runs, weather, crashes, cancel, unreachable):
			part(s)
		at_once()
		examples()
	finally:
		for p in STARTED:
			if p.poll() is None:
				p.terminate()
				try:
					p.wait(10)
				except subprocess.TimeoutExpired:
					p.kill()
		shutil.rmtree(WORK, ignore_errors=True)
	done()


main()
