#!/usr/bin/env python3
"""The README's tour really runs: every block marked `sh tour` is executed, command by command, in one shell."""
import os, pathlib, re, shutil, subprocess, sys, tempfile

top = pathlib.Path(__file__).resolve().parents[2]
if os.path.realpath(os.environ.get("BUREAU_BUILD") or top / "build") != os.path.realpath(top / "build"):
    print("1..0 # SKIP the tour is of build/, and another folder is tested")
    sys.exit(0)
blocks = re.findall(r"^```sh tour\n(.*?)^```", (top / "README.md").read_text(), re.S | re.M)
commands = [line for b in blocks for line in b.splitlines() if line.strip() and not line.startswith("#")]
state = tempfile.mkdtemp(prefix="bureau-readme-")
os.chmod(state, 0o755)
# A state folder of the test's own and a free port; the tour itself is not changed.
env = dict(os.environ, BUREAU_STATE=state, BUREAU_LISTEN="127.0.0.1:0", HOME=state)
for name in ("BUREAU_URL", "BUREAU_API_KEY"):
    env.pop(name, None)
shell = subprocess.Popen(["bash"], cwd=top, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
bad = 0
try:
    for n, c in enumerate(commands, 1):
        out = []
        shell.stdin.write(f"{c}\necho __tour__ $?\n")
        shell.stdin.flush()
        while True:
            line = shell.stdout.readline()
            if not line:
                code = "the shell ended"
                break
            if line.startswith("__tour__ ") or "__tour__ " in line:
                before, _, code = line.rpartition("__tour__ ")
                out.append(before)
                code = code.strip()
                break
            out.append(line)
        good = code == "0"
        bad += not good
        print(f"{'ok' if good else 'not ok'} {n} - {c.split('  #')[0].strip()}", flush=True)
        if not good:
            print(f"# exit {code}\n" + "".join("# " + l for l in "".join(out).splitlines(True)), flush=True)
    print(f"1..{len(commands)}" if commands else "1..1\nnot ok 1 - the README has no tour")
finally:
    shell.stdin.close()
    shell.wait(60)
    if (pathlib.Path(state) / "server.json").exists():
        subprocess.run([str(top / "build/bureau"), "stop"], env=env)
    shutil.rmtree(state, ignore_errors=True)
sys.exit(bad != 0)
