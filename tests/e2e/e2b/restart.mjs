// kill -9 of bureaud under the official SDK: what was acknowledged is there, programs go on, nothing hangs.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { Sandbox } from 'e2b'

let sbx

function daemon() {
  for (const p of readdirSync('/proc').filter(n => /^\d+$/.test(n))) {
    try {
      const stat = readFileSync(`/proc/${p}/stat`, 'utf8')
      const parent = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]
      if (parent === process.env.BUREAU_SERVER_PID && stat.includes('(bureaud)')) return Number(p)
    } catch { /* it ended meanwhile */ }
  }
}

async function until(what, fn, ms = 20000) {
  const end = Date.now() + ms
  for (;;) {
    const v = await Promise.resolve().then(fn).catch(() => false)
    if (v) return v
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await new Promise(r => setTimeout(r, 50))
  }
}

async function crash() {
  const pid = daemon()
  process.kill(pid, 'SIGKILL')
  await until('another daemon answers', async () => daemon() && daemon() !== pid && (await sbx.isRunning()))
}

before(async () => { sbx = await Sandbox.create({ timeoutMs: 300_000, metadata: { k: 'v' }, envs: { E: 'e' } }) })
after(async () => { await sbx?.kill() })

test('the sandbox is as it was', async () => {
  await sbx.files.write('f.txt', 'kept')
  await crash()
  assert.equal(await sbx.files.read('f.txt'), 'kept')
  assert.equal((await sbx.commands.run('echo $E')).stdout, 'e\n')
  assert.deepEqual((await sbx.getInfo()).metadata, { k: 'v' })
})

test('a program goes on, its stream breaks, connect finds its output and end', async () => {
  const c = await sbx.commands.run('echo before; until [ -e go ]; do sleep 0.05; done; echo after; exit 6', { background: true, timeoutMs: 0 })
  const broke = assert.rejects(c.wait())
  await crash()
  await broke
  assert.ok((await sbx.commands.list()).some(p => p.pid === c.pid))
  const again = await sbx.commands.connect(c.pid)
  await sbx.files.write('go', '')
  await assert.rejects(again.wait(), e => e.exitCode === 6 && e.stdout.endsWith('after\n'))
})

test('a program that ended meanwhile is told in full', async () => {
  const c = await sbx.commands.run('echo one; until [ -e done ]; do sleep 0.05; done; echo two; exit 7', { background: true, timeoutMs: 0 })
  c.wait().catch(() => {})
  await crash()
  await sbx.files.write('done', '')
  await until('it ended', async () => !(await sbx.commands.list()).some(p => p.pid === c.pid))
  await assert.rejects((await sbx.commands.connect(c.pid)).wait(), e => e.exitCode === 7 && e.stdout === 'one\ntwo\n')
})

test('kill and create work as before', async () => {
  await crash()
  const other = await Sandbox.create({ timeoutMs: 60_000 })
  assert.equal((await other.commands.run('echo new')).stdout, 'new\n')
  assert.equal(await other.kill(), true)
})
