#!/usr/bin/env python3
"""A stand-in for the server, for tests of its clients alone: the REST format of docs/API.md over plain folders and processes of
this machine. No isolation whatever. It can misbehave on request: POST /test/fault {"create_429": 2, "drop_exec": 1, ...}.

usage: standin.py STATE_DIR   (writes server.json and api-key there, serves until killed)"""
import base64, json, os, shutil, signal, socket, subprocess, sys, tempfile, threading, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

STATE = sys.argv[1]
KEY = "e2b_" + "0123456789" * 4
LOCK = threading.RLock()
BOXES, FAULT, SEEN = {}, {}, {"create": 0, "exec": 0, "peak": 0, "hung": 0}


def fault(name):
	with LOCK:
		n = FAULT.get(name, 0)
		if n > 0:
			FAULT[name] = n - 1
		return n > 0


class Proc:
	def __init__(self, box, a):
		self.tag, self.events, self.cond = a.get("tag"), [], threading.Condition()
		env = {"PATH": os.environ["PATH"], "HOME": box.home, "USER": "user", **box.envs, **(a.get("envs") or {})}
		argv = [a["cmd"], *(a.get("args") or [])]
		if "pty" in a:
			import pty
			master, slave = pty.openpty()
			self.p = subprocess.Popen(argv, cwd=box.real(a.get("cwd") or ""), env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
			os.close(slave)
			self.stdin = os.fdopen(os.dup(master), "wb", 0)
			streams = [(os.fdopen(master, "rb", 0), "pty")]
		else:
			self.p = subprocess.Popen(argv, cwd=box.real(a.get("cwd") or ""), env=env, stdin=subprocess.PIPE if a.get("stdin") else subprocess.DEVNULL,
				stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
			self.stdin, streams = self.p.stdin, [(self.p.stdout, "stdout"), (self.p.stderr, "stderr")]
		self.pid, self.fed = self.p.pid, 0
		self.timed_out = False
		self.add({"start": {"pid": self.pid}})
		if a.get("timeout_ms"):
			t = threading.Timer(a["timeout_ms"] / 1000, self.expire)
			t.daemon = True
			t.start()
		threads = [threading.Thread(target=self.pump, args=s, daemon=True) for s in streams]
		for t in threads:
			t.start()
		threading.Thread(target=self.wait, args=(threads,), daemon=True).start()

	def expire(self):
		self.timed_out = self.p.poll() is None
		self.kill()

	def kill(self):
		try:
			os.killpg(self.pid, signal.SIGKILL)
		except OSError:
			pass

	def add(self, ev):
		with self.cond:
			self.events.append(ev)
			self.cond.notify_all()

	def pump(self, f, name):
		while True:
			try:
				d = os.read(f.fileno(), 32768)
			except OSError:
				d = b""
			if not d:
				return
			self.add({name: base64.b64encode(d).decode()})

	def wait(self, threads):
		code = self.p.wait()
		for t in threads:
			t.join(5)
		how = "timeout" if self.timed_out else "signaled" if code < 0 else "exited"
		self.add({"end": {"how": how, "code": abs(code), "oom": False}})


class Box:
	def __init__(self, a):
		self.id = "i" + uuid.uuid4().hex[:20]
		self.root = tempfile.mkdtemp(prefix="standin-")
		self.home = os.path.join(self.root, "home/user")
		os.makedirs(self.home)
		os.makedirs(self.root + "/tmp")
		self.meta, self.envs, self.procs = a.get("metadata") or {}, a.get("envs") or {}, []
		self.template, self.started, self.state = a.get("template", "base"), int(time.time() * 1000), "running"

	def real(self, path):
		path = path or ""
		if path.startswith("/"):
			return self.root + os.path.normpath(path)
		return os.path.join(self.home, os.path.normpath(path) if path else "")

	def show(self):
		return {"id": self.id, "template": self.template, "state": self.state, "started_at": self.started, "ends_at": None, "metadata": self.meta,
			"net": "none", "limits": {}, "unenforced": [], "secure": True, **({"why": "killed", "why_text": "killed by a test"} if self.state == "ended" else {})}

	def entry(self, real):
		st = os.lstat(real)
		path = real[len(self.root):]
		kind = "symlink" if os.path.islink(real) else "dir" if os.path.isdir(real) else "file" if os.path.isfile(real) else "other"
		return {"path": path, "name": os.path.basename(path), "type": kind, "mode": st.st_mode & 0o7777, "size": st.st_size,
			"modified_at": int(st.st_mtime * 1000), "owner": "user", "group": "user", "uid": 1000, "gid": 1000, "metadata": {}}

	def kill(self):
		self.state = "ended"
		for p in self.procs:
			p.kill()
		shutil.rmtree(self.root, ignore_errors=True)


class Fail(Exception):
	def __init__(self, status, message, code="x"):
		self.status, self.message, self.code = status, message, code


class Handler(BaseHTTPRequestHandler):
	protocol_version = "HTTP/1.1"

	def log_message(self, *a):
		pass

	def answer(self, status, body=b"", kind="application/json", headers=()):
		self.send_response(status)
		if body is not None and status != 204:
			self.send_header("Content-Type", kind)
			self.send_header("Content-Length", str(len(body)))
		for k, v in headers:
			self.send_header(k, v)
		self.end_headers()
		if status != 204:
			self.wfile.write(body)

	def json(self, v, status=200):
		self.answer(status, json.dumps(v).encode())

	def drop(self):
		self.close_connection = True
		self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
		self.connection.close()

	def args(self):
		q = {}
		for k, v in parse_qsl(urlsplit(self.path).query, keep_blank_values=True):
			if k.startswith("metadata."):
				q.setdefault("metadata", {})[k[9:]] = v
			else:
				q[k] = v
		if self.headers.get("Content-Type") == "application/json":
			q.update(json.loads(self.body or b"{}"))
		return q

	def go(self):
		self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
		path = urlsplit(self.path).path
		try:
			if path == "/test/fault":
				with LOCK:
					FAULT.update(json.loads(self.body))
				return self.json(SEEN)
			if path == "/health":
				return self.answer(204)
			if self.headers.get("Authorization") != "Bearer " + KEY:
				raise Fail(401, "the key is wrong")
			self.route(self.command, [unquote(p) for p in path.strip("/").split("/")][1:], self.args())
		except Fail as e:
			self.answer(e.status, json.dumps({"error": {"code": e.code, "message": e.message, "hint": ""}}).encode(), headers=[("Retry-After", "0")] if e.status in (429, 503) else [])
		except FileNotFoundError as e:
			self.answer(404, json.dumps({"error": {"code": "not_found", "message": "no such file: %s" % e.filename, "hint": ""}}).encode())
		except (BrokenPipeError, ConnectionResetError):
			self.close_connection = True

	do_GET = do_POST = do_DELETE = go

	def route(self, method, parts, a):
		if parts == ["status"]:
			return self.json({"version": "stand-in", "uptime_ms": 1, "sandboxes": {"running": len(BOXES), "creating": 0, "pooled": 0}, "unenforced": [], "keeper": "ok", "door": "ok", "features": []})
		if parts == ["sandboxes"] and method == "POST":
			return self.create(a)
		if parts == ["sandboxes"]:
			if fault("hang_list"):
				SEEN["hung"] += 1
				time.sleep(60)
			want = a.get("metadata") or {}
			with LOCK:
				live = [b.show() for b in BOXES.values() if b.state == "running" and all(b.meta.get(k) == v for k, v in want.items())]
			return self.json({"sandboxes": live, "next": None, "total_running": len(live)})
		if parts[0] != "sandboxes" or parts[1] not in BOXES:
			raise Fail(404, "there is no sandbox '%s'" % parts[-1])
		box, rest = BOXES[parts[1]], "/".join(parts[2:])
		if not rest and method == "GET":
			return self.json(box.show())
		if not rest or box.state == "ended":
			if box.state == "ended":
				raise Fail(404, "sandbox '%s' has ended" % box.id)
			box.kill()
			return self.answer(204)
		getattr(self, "on_" + (method + "_" + rest).replace("/", "_").replace("-", "_"), self.unknown)(box, a)

	def unknown(self, box, a):
		raise Fail(404, "no such route: " + self.path)

	def create(self, a):
		if fault("create_429"):
			raise Fail(429, "no computer is free")
		if fault("create_503"):
			raise Fail(503, "starting up")
		box = Box(a)
		with LOCK:
			BOXES[box.id] = box
			SEEN["create"] += 1
			SEEN["peak"] = max(SEEN["peak"], sum(b.state == "running" for b in BOXES.values()))
		if fault("create_drop"):
			return self.drop()
		self.json(box.show(), 201 if fault("create_201") else 200)

	def stream(self, proc, skip=0):
		self.send_response(200)
		self.send_header("Content-Type", "application/x-ndjson")
		self.send_header("Transfer-Encoding", "chunked")
		self.end_headers()
		i = 0
		while True:
			with proc.cond:
				while i >= len(proc.events):
					proc.cond.wait(1)
				ev = proc.events[i]
			i += 1
			kind = next(iter(ev))
			if kind in ("stdout", "stderr", "pty") and skip:
				data = base64.b64decode(ev[kind])
				skip, data = max(0, skip - len(data)), data[skip:]
				if not data:
					continue
				ev = {kind: base64.b64encode(data).decode()}
			if "start" not in ev and fault("drop_exec"):
				return self.drop()
			line = json.dumps(ev).encode() + b"\n"
			self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
			self.wfile.flush()
			if "end" in ev:
				self.wfile.write(b"0\r\n\r\n")
				return

	def on_POST_exec(self, box, a):
		if fault("kill_box"):
			box.kill()
			raise Fail(404, "sandbox '%s' has ended" % box.id)
		with LOCK:
			SEEN["exec"] += 1
		try:
			proc = Proc(box, a)
		except FileNotFoundError:
			raise Fail(404, "start '%s': no such program" % a["cmd"], "no_program")
		box.procs.append(proc)
		if fault("drop_start"):
			return self.drop()
		self.stream(proc)

	def proc(self, box, a):
		for p in box.procs:
			if p.tag == a.get("tag") or str(p.pid) == str(a.get("pid")):
				return p
		raise Fail(404, "no such program")

	def on_POST_processes_connect(self, box, a):
		self.stream(self.proc(box, a), int(a.get("from") or 0))

	def on_POST_processes_input(self, box, a):
		p = self.proc(box, a)
		new = self.body[max(0, p.fed - int(a["at"])):] if "at" in a else self.body
		p.fed += len(new)
		p.stdin.write(new)
		p.stdin.flush()
		if fault("drop_input"):
			return self.drop()
		self.answer(204)

	def on_POST_processes_close_stdin(self, box, a):
		self.proc(box, a).stdin.close()
		self.answer(204)

	def on_POST_processes_resize(self, box, a):
		self.answer(204)

	def on_POST_processes_signal(self, box, a):
		os.killpg(self.proc(box, a).pid, int(a["signal"]))
		self.answer(204)

	def on_GET_processes(self, box, a):
		self.json({"processes": []})

	def on_GET_ports(self, box, a):
		self.json({"ports": [8080]})

	def on_GET_metrics(self, box, a):
		self.json({"time": 1, "cpus": 2, "cpu_pct": 1.5, "mem_used": 1048576, "mem_total": 1 << 30, "mem_cache": 0, "disk_used": 0, "disk_total": 1, "processes": 1, "oom_kills": 0})

	def on_POST_timeout(self, box, a):
		self.json(box.show())

	def on_GET_files(self, box, a):
		real = box.real(a["path"])
		if os.path.isdir(real):
			raise Fail(400, "is a folder")
		self.answer(200, open(real, "rb").read(), "application/octet-stream")

	def on_POST_files(self, box, a):
		real = box.real(a["path"])
		os.makedirs(os.path.dirname(real), exist_ok=True)
		with open(real, "wb") as f:
			f.write(self.body)
		os.chmod(real, int(a.get("mode", 0o644)))
		self.json({"entry": box.entry(real)})

	def on_GET_files_stat(self, box, a):
		self.json({"entry": box.entry(box.real(a["path"]))})

	def on_GET_files_list(self, box, a):
		out = []
		for d, dirs, files in os.walk(box.real(a["path"])):
			out += [box.entry(os.path.join(d, n)) for n in dirs + files]
		if fault("evil_list"):
			out.append({**out[0], "path": box.real(a["path"])[len(box.root):] + "/../../../../tmp/evil", "type": "file"})
		self.json({"entries": out})

	def on_POST_files_mkdir(self, box, a):
		os.makedirs(box.real(a["path"]), exist_ok=True)
		self.json({"entry": box.entry(box.real(a["path"]))})


class Server(ThreadingHTTPServer):
	daemon_threads = True
	request_queue_size = 128
	allow_reuse_address = True

	def handle_error(self, request, client_address):
		pass            # a client that was killed is what the tests are about


def main():
	os.makedirs(STATE, exist_ok=True)
	port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
	srv = Server(("127.0.0.1", port), Handler)
	with open(os.open(STATE + "/api-key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
		f.write(KEY + "\n")
	with open(STATE + "/server.json.new", "w") as f:
		json.dump({"url": "http://127.0.0.1:%d" % srv.server_address[1], "pid": os.getpid(), "version": "stand-in"}, f)
	os.rename(STATE + "/server.json.new", STATE + "/server.json")

	def stop(*_):
		for b in list(BOXES.values()):
			b.kill()
		os._exit(0)
	signal.signal(signal.SIGTERM, stop)
	srv.serve_forever()


main()
