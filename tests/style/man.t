#!/usr/bin/env python3
"""The manual pages render without a complaint, and know every option of every --help and every key of a job file."""
import json, os, pathlib, re, shutil, subprocess, sys

top = pathlib.Path(__file__).resolve().parents[2]
bureau = pathlib.Path(os.environ.get("BUREAU_BUILD", top / "build")) / "bureau"
bad = n = 0


def test(good, name, why=""):
	global n, bad
	n += 1
	bad += not good
	print(f"{'ok' if good else 'not ok'} {n} - {name}" + (f"\n# {why}" if why and not good else ""))


def page(name):
	"""As groff source reads without its escapes"""
	return (top / "docs/man" / name).read_text().replace("\\-", "-").replace("\\(dq", '"')


def keys(o):
	if isinstance(o, dict):
		for k, v in o.items():
			if k == "properties":
				yield from v
			yield from keys(v)
	elif isinstance(o, list):
		for v in o:
			yield from keys(v)


for name in ("bureau.1", "bureau-job.5"):
	if shutil.which("groff"):
		r = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", top / "docs/man" / name], capture_output=True, text=True)
		test(r.returncode == 0 and not r.stderr, f"{name} renders", r.stderr.replace("\n", "; "))
	else:
		test(True, f"{name} renders # SKIP there is no groff")

text = page("bureau.1")
words = ["run", "template", "doctor", "serve", "status", "stop", "api-key", "job"]
words += ["sandbox " + w for w in ("create", "list", "show", "exec", "cp", "kill", "timeout", "metrics", "ports", "watch")]
for w in words:
	r = subprocess.run([bureau, *w.split(), "--help"], capture_output=True, text=True)
	options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", r.stdout)) - {"--help"}
	missing = sorted(o for o in options if o not in text)
	test(r.returncode == 0 and w in text and not missing, f"bureau.1 has bureau {w} and its options", " ".join(missing) + r.stderr)

names = set(keys(json.loads((top / "schema/job.json").read_text())))
for where, text in (("bureau-job.5", page("bureau-job.5")), ("docs/JOBS.md", (top / "docs/JOBS.md").read_text())):
	missing = sorted(k for k in names if not re.search(rf"\b{k}\b", text))
	test(len(names) > 40 and not missing, f"{where} has every key of a job file", " ".join(missing))
print(f"1..{n}")
sys.exit(bad != 0)
