// What a Node program sees: Sandbox.create + commands.run('true'), then kill. Prints {"us":[…]}.
import { Sandbox } from 'e2b'
const n = Number(process.argv[2] ?? 50)
const us = []
for (let i = -5; i < n; i++) {
  const t = process.hrtime.bigint()
  const sbx = await Sandbox.create('base', { allowInternetAccess: process.argv[3] === 'net' })
  await sbx.commands.run('true')
  if (i >= 0) us.push(Number(process.hrtime.bigint() - t) / 1000)
  await sbx.kill()
}
us.sort((a, b) => a - b)
console.log(JSON.stringify({ us }))
