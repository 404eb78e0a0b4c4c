// What every version of the SDK must be able to do. argv: the package's name (an npm alias). Prints TAP lines' texts: one "ok TEXT" each.
const name = process.argv[2]
const { Sandbox } = await import(name)

function check(good, text) {
  if (!good) throw new Error(text)
  console.log(`done: ${text}`)
}

const old = name === 'e2b-1.13'
const s = await Sandbox.create('base', { timeoutMs: 60_000, metadata: { smoke: name }, envs: { A: 'b' } })
try {
  check((await s.commands.run('echo $A')).stdout === 'b\n', 'create and run')
  const c = await s.commands.run('cat', old ? { background: true } : { background: true, stdin: true })
  await s.commands.sendStdin(c.pid, 'hi\n')
  for (let i = 0; c.stdout !== 'hi\n' && i < 500; i++) await new Promise(r => setTimeout(r, 10))
  check(c.stdout === 'hi\n', 'stdin')
  check(await c.kill(), 'kill a program')
  await c.wait().catch(() => {})
  await s.files.write('d/f.txt', 'text')
  check(await s.files.read('d/f.txt') === 'text', 'write and read')
  check((await s.files.list('d')).map(e => e.name).join() === 'f.txt', 'list')
  check(await s.files.exists('d/f.txt') && !(await s.files.exists('d/g.txt')), 'exists')
  let seen = false
  const w = await s.files.watchDir('d', () => { seen = true })
  await s.files.write('d/h.txt', '')
  for (let i = 0; !seen && i < 500; i++) await new Promise(r => setTimeout(r, 10))
  check(seen, 'watch')
  await w.stop()
  check(await s.isRunning(), 'isRunning')
  await s.setTimeout(120_000)
  const again = await Sandbox.connect(s.sandboxId)
  check((await again.commands.run('cat d/f.txt')).stdout === 'text', 'connect')
  const listed = old ? await Sandbox.list({ query: { metadata: { smoke: name } } }) : await Sandbox.list({ query: { metadata: { smoke: name } } }).nextItems()
  const items = Array.isArray(listed) ? listed : await listed.nextItems()
  check(items.some(i => i.sandboxId.startsWith(s.sandboxId)), 'list sandboxes')
  let failed = 0
  await s.commands.run('exit 3').catch(e => { failed = e.exitCode })
  check(failed === 3, 'exit codes')
} finally {
  check((await s.kill()) !== false, 'kill')   // old ones return nothing
}
check(!(await s.isRunning()), 'gone')
