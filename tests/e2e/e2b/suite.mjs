// The official JS SDK, unmodified, against a server of ours: what users do with E2B, and what they see when it goes wrong.
// Runs in plain mode (E2B_API_URL and E2B_SANDBOX_URL) or below a domain with TLS (E2B_DOMAIN).
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { Sandbox, CommandExitError, TimeoutError, NotFoundError, InvalidArgumentError, AuthenticationError, SandboxError } from 'e2b'

const plain = !!process.env.E2B_SANDBOX_URL
let sbx
let user = 'user'   // without a range of ids (a plain user, no newuidmap) there is one id, and it is called root

// Waits for a condition with a deadline: no sleep stands for an event.
async function until(what, fn, ms = 10000) {
  const end = Date.now() + ms
  for (;;) {
    const v = await fn()
    if (v) return v
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await new Promise(r => setTimeout(r, 20))
  }
}

before(async () => {
  sbx = await Sandbox.create({ timeoutMs: 300_000, metadata: { suite: 'js' }, envs: { GLOBAL: 'g' } })
  if (/^\s*0\s+\d+\s+1\s*$/.test((await sbx.commands.run('cat /proc/self/uid_map')).stdout)) user = 'root'
})
after(async () => { await sbx?.kill() })

test('create gives a running sandbox', async () => {
  assert.match(sbx.sandboxId, /^i[a-z0-9]{20}$/)
  assert.equal(await sbx.isRunning(), true)
})

test('run: output, exit code, stderr', async () => {
  const r = await sbx.commands.run('echo out; echo err >&2')
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'out\n', 'err\n'])
})

test('run: a failing command throws with its exit code', async () => {
  await assert.rejects(sbx.commands.run('echo no; exit 7'), e => e instanceof CommandExitError && e.exitCode === 7 && e.stdout === 'no\n')
})

test('run: environment, directory, user', async () => {
  const r = await sbx.commands.run('echo $GLOBAL $LOCAL; pwd; id -un; echo $HOME', { envs: { LOCAL: 'l' }, cwd: '/tmp' })
  assert.equal(r.stdout, `g l\n/tmp\n${user}\n/home/user\n`)
  assert.equal((await sbx.commands.run('echo $E2B_SANDBOX $E2B_SANDBOX_ID')).stdout, `true ${sbx.sandboxId}\n`)
  const root = await sbx.commands.run('id -un; echo $HOME', { user: 'root' })
  assert.equal(root.stdout, 'root\n/root\n')
})

test('run: a cwd that is not there', async () => {
  await assert.rejects(sbx.commands.run('true', { cwd: '/nope' }), InvalidArgumentError)
})

test('run: an unknown user', async () => {
  await assert.rejects(sbx.commands.run('true', { user: 'nobody-here' }), AuthenticationError)
})

test('run: callbacks get output as it comes', async () => {
  const got = []
  await sbx.commands.run('for i in 1 2 3; do echo $i; sleep 0.05; done', { onStdout: d => got.push(d) })
  assert.equal(got.join(''), '1\n2\n3\n')
  assert.ok(got.length >= 2, 'in more than one piece')
})

test('run: bytes that are split inside a character', async () => {
  const r = await sbx.commands.run(`python3 - <<'P'
import sys, time
for b in "äöü€😀".encode():
    sys.stdout.buffer.write(bytes([b])); sys.stdout.flush()
P`)
  assert.equal(r.stdout, 'äöü€😀')
})

test('run: 32 MiB of output arrive whole', async () => {
  const h = createHash('sha256')
  let n = 0
  await sbx.commands.run("head -c 33554432 /dev/zero | tr '\\0' x", { onStdout: d => { n += d.length; h.update(d) }, timeoutMs: 120_000 })
  assert.equal(n, 33554432)
  assert.equal(h.digest('hex'), createHash('sha256').update('x'.repeat(33554432)).digest('hex'))
})

test('run: the timeout kills the command', async () => {
  const t = Date.now()
  await assert.rejects(sbx.commands.run('echo $$ > /tmp/slow; exec sleep 60', { timeoutMs: 1000 }), TimeoutError)
  assert.ok(Date.now() - t < 10000)
  await until('the program is dead', async () =>
    (await sbx.commands.run('kill -0 $(cat /tmp/slow) 2>/dev/null && echo alive || echo dead')).stdout === 'dead\n')
})

test('background: stdin, list, closeStdin', async () => {
  const c = await sbx.commands.run('cat', { background: true, stdin: true })
  const p = (await sbx.commands.list()).find(p => p.pid === c.pid)
  assert.equal(p.cmd, '/bin/bash')
  await sbx.commands.sendStdin(c.pid, 'hello\n')
  await until('it came back', () => c.stdout === 'hello\n')
  await sbx.commands.closeStdin(c.pid)
  assert.equal((await c.wait()).exitCode, 0)
})

test('background: 4 MiB through stdin', async () => {
  const c = await sbx.commands.run('wc -c', { background: true, stdin: true })
  await sbx.commands.sendStdin(c.pid, 'y'.repeat(4 << 20))
  await sbx.commands.closeStdin(c.pid)
  assert.equal((await c.wait()).stdout.trim(), String(4 << 20))
})

test('background: kill, and kill of nobody', async () => {
  const c = await sbx.commands.run('sleep 100', { background: true })
  assert.equal(await c.kill(), true)
  await assert.rejects(c.wait(), e => e instanceof CommandExitError && e.exitCode === -1 && /signal: killed/.test(e.error))
  assert.equal(await sbx.commands.kill(99999), false)
})

test('background: a client that leaves kills nothing; connect finds it again', async () => {
  const c = await sbx.commands.run('sleep 0.5; echo late; exit 4', { background: true })
  await c.disconnect()
  const again = await sbx.commands.connect(c.pid)
  await assert.rejects(again.wait(), e => e.exitCode === 4 && e.stdout === 'late\n')
})

test('background: connect to a program that has ended tells its end and output', async () => {
  const c = await sbx.commands.run('echo bye; exit 5', { background: true })
  await assert.rejects(c.wait(), e => e.exitCode === 5)
  const again = await sbx.commands.connect(c.pid)
  await assert.rejects(again.wait(), e => e.exitCode === 5 && e.stdout === 'bye\n')
  await assert.rejects(sbx.commands.connect(99999), NotFoundError)
})

test('a detached program outlives its command', async () => {
  await sbx.commands.run('setsid sleep 30 >/dev/null 2>&1 & echo $! > /tmp/d')
  assert.equal((await sbx.commands.run('kill -0 $(cat /tmp/d) && echo yes; kill $(cat /tmp/d)')).stdout, 'yes\n')
})

test('pty: a terminal with a size that can change', async () => {
  let out = ''
  const t = await sbx.pty.create({ cols: 81, rows: 25, onData: d => { out += Buffer.from(d).toString() }, timeoutMs: 60_000 })
  const say = s => sbx.pty.sendInput(t.pid, new TextEncoder().encode(s))
  await say('stty size; echo $TERM\n')
  await until('its size', () => /25 81/.test(out) && /xterm-256color/.test(out))
  await sbx.pty.resize(t.pid, { cols: 100, rows: 30 })
  await say('stty size\n')
  await until('its new size', () => /30 100/.test(out))
  await say('exit 3\n')
  await assert.rejects(t.wait(), e => e.exitCode === 3)
})

test('pty: kill', async () => {
  const t = await sbx.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert.equal(await sbx.pty.kill(t.pid), true)
  await assert.rejects(t.wait())
})

test('files: write, read, exists, info', async () => {
  const w = await sbx.files.write('a/b/c.txt', 'content')
  assert.deepEqual([w.name, w.type, w.path], ['c.txt', 'file', '/home/user/a/b/c.txt'])
  assert.equal(await sbx.files.read('a/b/c.txt'), 'content')
  assert.equal(await sbx.files.read('~/a/b/c.txt'), 'content')
  assert.equal(await sbx.files.exists('a/b/c.txt'), true)
  assert.equal(await sbx.files.exists('a/b/nope'), false)
  const i = await sbx.files.getInfo('a/b/c.txt')
  assert.deepEqual([i.type, i.size, i.mode, i.permissions, i.owner], ['file', 7, 0o644, '-rw-r--r--', user])
  assert.ok(Math.abs(i.modifiedTime - Date.now()) < 60000)
})

test('files: replacing shortens; empty is empty', async () => {
  await sbx.files.write('s.txt', 'a longer text')
  await sbx.files.write('s.txt', 'short')
  assert.equal(await sbx.files.read('s.txt'), 'short')
  await sbx.files.write('e.txt', '')
  assert.equal(await sbx.files.read('e.txt'), '')
  assert.equal((await sbx.files.read('e.txt', { format: 'bytes' })).length, 0)
})

test('files: names with everything in them', async () => {
  for (const name of ['with space', 'ünïcödé€', 'a"b', "a'b", 'a%20b', 'a+b&c=d', 'new\nline']) {
    await sbx.files.write(`odd/${name}`, name)
    assert.equal(await sbx.files.read(`odd/${name}`), name)
  }
  assert.equal((await sbx.files.list('odd')).length, 7)
})

test('files: many at once, as root, by absolute path', async () => {
  const many = [...Array(50).keys()].map(i => ({ path: `many/f${i}`, data: `n${i}` }))
  assert.equal((await sbx.files.write(many)).length, 50)
  assert.equal(await sbx.files.read('many/f49'), 'n49')
  await sbx.files.write('/etc/of-root', 'x', { user: 'root' })
  assert.equal((await sbx.commands.run('stat -c %U /etc/of-root')).stdout, 'root\n')
})

test('files: octet-stream, gzip, metadata', async () => {
  const data = 'z'.repeat(200000)
  await sbx.files.write('o.bin', data, { useOctetStream: true })
  assert.equal(await sbx.files.read('o.bin'), data)
  await sbx.files.write('g.bin', data, { gzip: true })
  assert.equal(await sbx.files.read('g.bin', { gzip: true }), data)
  await sbx.files.write('m.bin', 'x', { metadata: { author: 'me' } })
  assert.deepEqual((await sbx.files.getInfo('m.bin')).metadata, { author: 'me' })
  await sbx.files.write('m.bin', 'x')
  assert.equal((await sbx.files.getInfo('m.bin')).metadata, undefined)
})

test('files: 64 MiB up and down by stream', async () => {
  const chunk = new Uint8Array(1 << 20).fill(7)
  let n = 64
  const body = new ReadableStream({ pull(c) { if (n-- > 0) c.enqueue(chunk); else c.close() } })
  await sbx.files.write('big.bin', body)
  assert.equal((await sbx.files.getInfo('big.bin')).size, 64 << 20)
  let got = 0
  for await (const c of await sbx.files.read('big.bin', { format: 'stream' })) got += c.length
  assert.equal(got, 64 << 20)
  await sbx.files.remove('big.bin')
})

test('files: what has no size', async () => {
  assert.match(await sbx.files.read('/proc/self/status'), /^Name:/)
  assert.match(await sbx.files.read('/proc/meminfo'), /MemTotal/)
})

test('files: list, depth, makeDir, rename, remove', async () => {
  assert.equal(await sbx.files.makeDir('t/u/v'), true)
  assert.equal(await sbx.files.makeDir('t/u/v'), false)
  await sbx.files.write('t/u/f.txt', '1')
  assert.deepEqual((await sbx.files.list('t')).map(e => [e.name, e.type]), [['u', 'dir']])
  assert.deepEqual((await sbx.files.list('t', { depth: 2 })).map(e => e.path).sort(),
    ['/home/user/t/u', '/home/user/t/u/f.txt', '/home/user/t/u/v'])
  const moved = await sbx.files.rename('t/u/f.txt', 't/w/g.txt')
  assert.equal(moved.path, '/home/user/t/w/g.txt')
  await sbx.files.remove('t')
  assert.equal(await sbx.files.exists('t'), false)
  await sbx.files.remove('t')
})

test('files: a link is shown with its target', async () => {
  await sbx.commands.run('mkdir -p l/dir && echo x > l/file && ln -sf file l/link && ln -sf dir l/dlink && ln -sf nowhere l/broken')
  const by = Object.fromEntries((await sbx.files.list('l')).map(e => [e.name, e]))
  assert.deepEqual([by.link.type, by.link.symlinkTarget, by.link.permissions], ['file', '/home/user/l/file', 'Lrwxrwxrwx'])
  assert.deepEqual([by.dlink.type, by.dlink.symlinkTarget], ['dir', '/home/user/l/dir'])
  assert.equal(by.broken.type, 'symlink')
})

test('files: failures', async () => {
  await assert.rejects(sbx.files.read('nope'), NotFoundError)
  await assert.rejects(sbx.files.read('/home/user'), InvalidArgumentError)
  await assert.rejects(sbx.files.list('nope'), NotFoundError)
  await assert.rejects(sbx.files.list('/etc/passwd'), InvalidArgumentError)
  await assert.rejects(sbx.files.rename('nope', 'nope2'), NotFoundError)
  await assert.rejects(sbx.files.getInfo('nope'), NotFoundError)
  await assert.rejects(sbx.files.write('/home/user', 'x'), InvalidArgumentError)
})

test('watch: events of a folder, also of folders made later', async () => {
  await sbx.files.makeDir('w')
  const got = []
  const h = await sbx.files.watchDir('w', e => got.push(`${e.type} ${e.name}`), { recursive: true, includeEntry: true })
  await sbx.files.write('w/x.txt', '1')
  await until('write of x', () => got.includes('write x.txt') && got.includes('create x.txt'))
  await sbx.files.makeDir('w/n')
  await until('create of n', () => got.includes('create n'))
  await sbx.files.write('w/n/y.txt', '1')
  await until('write below n', () => got.some(e => e === 'write n/y.txt'))
  await sbx.files.remove('w/x.txt')
  await until('removal', () => got.includes('remove x.txt'))
  await h.stop()
})

test('watch: a folder that is not there, a file', async () => {
  await assert.rejects(sbx.files.watchDir('nope', () => {}), NotFoundError)
  await sbx.files.write('wf', '')
  await assert.rejects(sbx.files.watchDir('wf', () => {}), SandboxError)
})

test('signed links need no token', async () => {
  await sbx.files.write('link.txt', 'linked')
  const url = await sbx.downloadUrl('link.txt', { useSignatureExpiration: 60 })
  assert.equal(await (await fetch(url)).text(), 'linked')
  assert.equal((await fetch(url.replace('link.txt', 'other.txt'))).status, plain ? 400 : 401)
  const old = await sbx.downloadUrl('link.txt', { useSignatureExpiration: -10 })
  const r = await fetch(old)
  assert.equal(r.status, 401)
  assert.match(await r.text(), /expired/)
  const form = new FormData()
  form.append('file', new Blob(['up']), 'up.txt')
  const up = await fetch(await sbx.uploadUrl('up.txt'), { method: 'POST', body: form })
  assert.equal(up.status, 200)
  assert.equal(await sbx.files.read('up.txt'), 'up')
  const plainField = new FormData()
  plainField.append('file', 'no file name')
  const field = await fetch(await sbx.uploadUrl('field.txt', { user: 'root', useSignatureExpiration: 60 }), { method: 'POST', body: plainField })
  assert.deepEqual(await field.json(), [{ name: 'field.txt', path: '/root/field.txt', type: 'file' }])
  if (!plain) assert.equal((await fetch(`https://49983-${sbx.sandboxId}.${process.env.E2B_DOMAIN}/files?path=link.txt`)).status, 401)
})

test('info, metadata, metrics', async () => {
  const i = await sbx.getInfo()
  assert.equal(i.sandboxId, sbx.sandboxId)
  assert.deepEqual(i.metadata, { suite: 'js' })
  assert.equal(i.state, 'running')
  assert.ok(i.cpuCount >= 1 && i.memoryMB > 0)
  assert.ok(Math.abs(i.endAt - i.startedAt - 300_000) < 5000)
  const m = await sbx.getMetrics()
  assert.ok(m.length >= 1 && m[0].memTotal > 0 && m[0].diskTotal > 0)
})

test('timeouts: set, and an end that comes', async () => {
  const s = await Sandbox.create({ timeoutMs: 60_000 })
  await s.setTimeout(120_000)
  const i = await s.getInfo()
  assert.ok(Math.abs(i.endAt - Date.now() - 120_000) < 5000)
  await s.setTimeout(1000)
  await until('its end', async () => !(await s.isRunning()))
  await assert.rejects(s.getInfo(), /ended|not found|doesn't exist/)
  assert.equal(await s.kill(), false)
  await assert.rejects(s.commands.run('true'))
})

test('timeout 0: never ends by itself', async () => {
  const s = await Sandbox.create({ timeoutMs: 0 })
  assert.ok((await s.getInfo()).endAt - Date.now() > 86400_000 * 365)
  assert.equal(await s.kill(), true)
})

test('connect: the same sandbox, extended and never shortened', async () => {
  const c = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 1000 })
  assert.equal(c.sandboxId, sbx.sandboxId)
  assert.equal((await c.commands.run('echo $GLOBAL')).stdout, 'g\n')
  assert.ok((await c.getInfo()).endAt - Date.now() > 100_000)
  await assert.rejects(Sandbox.connect('i00000000000000000000'), NotFoundError)
})

test('list: filters and pages', async () => {
  const tag = `t${Date.now()} with&odd=+chars`
  const made = await Promise.all([1, 2, 3].map(n => Sandbox.create({ metadata: { tag, n: String(n) }, timeoutMs: 60_000 })))
  const pages = Sandbox.list({ query: { metadata: { tag } }, limit: 2 })
  const seen = []
  while (pages.hasNext) seen.push(await pages.nextItems())
  assert.deepEqual(seen.map(p => p.length), [2, 1])
  assert.deepEqual(seen.flat().map(s => s.sandboxId).sort(), made.map(s => s.sandboxId).sort())
  const one = await Sandbox.list({ query: { metadata: { tag, n: '2' }, state: ['running'] } }).nextItems()
  assert.deepEqual(one.map(s => s.sandboxId), [made[1].sandboxId])
  assert.equal((await Sandbox.list({ query: { metadata: { tag }, state: ['paused'] } }).nextItems()).length, 0)
  await Promise.all(made.map(s => s.kill()))
  assert.equal((await Sandbox.list({ query: { metadata: { tag } } }).nextItems()).length, 0)
})

test('kill: running streams end with a clear error, isRunning is false', async () => {
  const s = await Sandbox.create({ timeoutMs: 60_000 })
  const c = await s.commands.run('sleep 100', { background: true })
  const w = assert.rejects(c.wait(), TimeoutError)
  assert.equal(await s.kill(), true)
  await w
  assert.equal(await s.isRunning(), false)
  assert.equal(await s.kill(), false)
  assert.equal(await Sandbox.kill('i00000000000000000000'), false)
})

test('a wrong key', async () => {
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
})

test('one sandbox cannot use the token of another', async () => {
  const s = await Sandbox.create({ timeoutMs: 60_000 })
  const url = plain ? process.env.E2B_SANDBOX_URL : `https://49983-${s.sandboxId}.${process.env.E2B_DOMAIN}`
  const r = await fetch(`${url}/metrics`, { headers: {
    'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': sbx.envdAccessToken ?? 'x' } })
  assert.equal(r.status, 401)
  await s.kill()
})

test('what is not supported says so', async () => {
  await assert.rejects(sbx.pause(), /501.*not supported/)
  await assert.rejects(sbx.createSnapshot(), /501.*not supported/)
  await assert.rejects(Sandbox.create({ lifecycle: { onTimeout: 'pause' } }), /autoPause/)
  await assert.rejects(Sandbox.create({ network: { allowPublicTraffic: false } }), /allowPublicTraffic/)
  await assert.rejects(Sandbox.create({ volumeMounts: { '/mnt': 'v' } }), /volumeMounts/)
})

test('no internet', async () => {
  const s = await Sandbox.create({ allowInternetAccess: false, timeoutMs: 60_000 })
  const r = await s.commands.run('python3 -c "import socket; socket.create_connection((\'1.1.1.1\', 80), 5)" 2>&1 || echo refused')
  assert.match(r.stdout, /refused/)
  await s.kill()
})

const SERVER = `
import http.server, hashlib, base64
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade"):
            k = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(k.encode()).digest()).decode()); self.end_headers()
            h = self.rfile.read(2); n = h[1] & 127; m = self.rfile.read(4); p = bytes(b ^ m[i % 4] for i, b in enumerate(self.rfile.read(n)))
            self.wfile.write(bytes([0x81, len(p)]) + p.upper()); self.wfile.flush(); self.close_connection = True; return
        b = (self.path + "|" + str(self.headers.get("X-Access-Token")) + "|" + str(self.headers.get("X-API-KEY"))).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(b))); self.end_headers(); self.wfile.write(b)
http.server.ThreadingHTTPServer(("127.0.0.1", 8123), H).serve_forever()
`

test('ports: getHost reaches a program, WebSocket too, no key leaks', async () => {
  await sbx.files.write('srv.py', SERVER)
  const c = await sbx.commands.run('exec python3 srv.py', { background: true, timeoutMs: 0 })
  const host = sbx.getHost(8123)
  if (plain) assert.equal(host, `8123-${sbx.sandboxId}.localhost:${new URL(process.env.E2B_API_URL).port}`)
  const fields = { 'X-Access-Token': 'secret', 'X-API-KEY': 'secret' }
  const ask = plain
    ? (path = '/', more = {}) => fetch(process.env.E2B_SANDBOX_URL + path, { headers: { ...fields, ...more, 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '8123' } })
    : (path = '/') => fetch(`https://${host}${path}`, { headers: fields })
  await until('it listens', async () => (await ask()).status === 200)
  assert.equal(await (await ask('/some/path?q=1')).text(), '/some/path?q=1|None|None')
  if (plain) assert.equal(await byHost(host, '/by-host'), '/by-host|None|None')
  if (!plain) {
    const ws = new (await import('node:https')).Agent({ keepAlive: false })
    const echoed = await websocket(`https://${host}/`, {}, ws)
    assert.equal(echoed, 'HELLO')
  } else {
    const echoed = await websocket(process.env.E2B_SANDBOX_URL, { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '8123' })
    assert.equal(echoed, 'HELLO')
  }
  await c.kill()
  const closed = await ask()
  assert.equal(closed.status, 502)
  const page = await ask('/', { 'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64)' })
  if (plain) assert.doesNotMatch(await page.text(), /<title>/)    // fetch says "cors": a page's script wants JSON
  assert.deepEqual(await closed.json(), { sandboxId: sbx.sandboxId, message: 'The sandbox is running but port is not open', port: 8123, code: 502 })
})

// As a browser does it, which takes *.localhost to this machine.
function byHost(host, path) {
  const u = new URL(process.env.E2B_API_URL)
  return new Promise((resolve, reject) => {
    request({ host: u.hostname, port: u.port, path, headers: { Host: host } }, async r => {
      let text = ''
      for await (const c of r) text += c
      resolve(text)
    }).on('error', reject).end()
  })
}

// One masked text frame there, one text frame back.
async function websocket(url, headers, agent) {
  const ask = url.startsWith('https:') ? (await import('node:https')).request : request
  return new Promise((resolve, reject) => {
    const r = ask(url, { agent, headers: { ...headers, Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': Buffer.alloc(16, 1).toString('base64') } })
    r.on('upgrade', (res, socket, head) => {
      const mask = Buffer.from([1, 2, 3, 4]), text = Buffer.from('hello')
      socket.write(Buffer.concat([Buffer.from([0x81, 0x80 | text.length]), mask, text.map((b, i) => b ^ mask[i % 4])]))
      let got = head
      socket.on('data', d => { got = Buffer.concat([got, d]) })
      socket.on('end', () => { socket.destroy(); resolve(got.subarray(2).toString()) })
    })
    r.on('response', res => reject(new Error(`status ${res.statusCode}`)))
    r.on('error', reject)
    r.end()
  })
}

test('twenty sandboxes at once', async () => {
  const all = await Promise.all([...Array(20).keys()].map(() => Sandbox.create({ timeoutMs: 60_000 })))
  const outs = await Promise.all(all.map((s, i) => s.commands.run(`echo ${i}; hostname`)))
  outs.forEach((r, i) => assert.equal(r.stdout.split('\n')[0], String(i)))
  await Promise.all(all.map(s => s.kill()))
})
