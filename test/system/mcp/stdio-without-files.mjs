// A process that owns children over standard input and output, from the build, and has no descriptors left: its keeper is
// killed then, and a session is begun. Says what became of both, then and once there are descriptors again.
import { closeSync, openSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
const at = (name) => import(new URL(`../../../dist/src/upstreams/mcp/${name}.js`, import.meta.url));
const { Keeper } = await at('stdio/keeper');
const { StdioServer } = await at('through');
const [file] = process.argv.slice(2);
const keeper = new Keeper();
const limits = { lineBytes: 1_000_000, graceMs: 1_000 };
const command = { command: process.execPath, args: [file], env: {}, cwd: null };
const server = new StdioServer({ command, most: 9, idleMs: 60_000, limits }, keeper, () => performance.now());

/** The status of the answer; `null`: the request was not begun. */
function begin() {
  const message = { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} };
  return new Promise((resolve) => {
    let answered = null;
    const handler = {
      onResponseStart: (_controller, status) => {
        answered = status;
      },
      onResponseEnd: () => resolve(answered),
      onResponseError: () => resolve(null),
    };
    server.dispatch({ method: 'POST', path: '/', headers: {}, body: Buffer.from(JSON.stringify(message)) }, handler);
  });
}

async function until(condition) {
  while (!(await condition())) await delay(20);
}

/** With the keeper there, or without it. */
async function withoutFiles(act) {
  const held = [];
  try {
    for (;;) held.push(openSync('/dev/null'));
  } catch {}
  try {
    return await act();
  } finally {
    for (const one of held) closeSync(one);
  }
}

const first = await begin();
const besideKeeper = await withoutFiles(begin);
const withoutKeeper = await withoutFiles(async () => {
  process.kill(keeper.pid, 'SIGKILL');
  await until(() => keeper.pid === null);
  await delay(100);
  return begin();
});
await until(() => keeper.pid !== null);
let after = await begin();
await until(async () => after === 200 || (after = await begin()) === 200);
process.stdout.write(`${JSON.stringify({ first, besideKeeper, withoutKeeper, after })}\n`);
await server.destroy();
keeper.close();
