#!/usr/bin/env python3
"""Older versions of the JS SDK, each in the ways it knows to find a server: by URL, and below a domain with TLS. timeout: 600"""
import json, os, pathlib, shutil, subprocess, sys

here = pathlib.Path(__file__).resolve().parent
modules = here.parent / "node_modules"
names = ["e2b-1.13", "e2b-2.10", "e2b-2.20", "e2b-2.30", "e2b-2.45", "e2b-2.50", "e2b"]
modes = {"by URL": ([], names[1:]), "by domain": (["--tls"], names)}   # 1.13 knows no URLs

if len(sys.argv) > 1:                    # inside with-server
    for name in sys.argv[1:]:
        r = subprocess.run(["timeout", "90", "node", "smoke.mjs", name], cwd=here, capture_output=True, text=True)
        print(json.dumps([name, r.returncode, r.stdout + r.stderr]), flush=True)
    sys.exit(0)

if not shutil.which("node"):
    print("1..0 # SKIP no node on this machine")
    sys.exit(0)
missing = [n for n in names if not (modules / n).is_dir()]
if missing:
    print(f"1..0 # SKIP not installed: {' '.join(missing)} (tools/deps test)")
    sys.exit(0)

n = bad = 0
for mode, (flags, which) in modes.items():
    p = subprocess.run([here.parent / "with-server", *flags, __file__, *which], stdout=subprocess.PIPE, text=True)
    left = list(which)
    for line in p.stdout.splitlines():
        if not line.startswith("["):
            print(line if not line.startswith("1..0") else f"ok {n + 1} - {mode} # SKIP{line.partition('SKIP')[2]}")
            if line.startswith("1..0"):
                n, left = n + 1, []
            continue
        name, code, out = json.loads(line)
        version = json.loads((modules / name / "package.json").read_text())["version"]
        n += 1
        bad += code != 0
        left.remove(name)
        print(f"{'ok' if code == 0 else 'not ok'} {n} - e2b {version} {mode}", flush=True)
        if code:
            print("".join(f"# {l}\n" for l in out.splitlines()), end="")
    if p.returncode or left:
        n, bad = n + 1, bad + 1
        print(f"not ok {n} - {mode}: exit {p.returncode}, not run: {left}")
print(f"1..{n}")
sys.exit(bad != 0)
