// An MCP server over standard input and output that misbehaves as its first argument says.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const [mode = 'good'] = process.argv.slice(2);
let written = 0;
const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const answer = (id, result) => say({ id, result });

if (mode === 'crash') {
  process.stderr.write('no database\n');
  process.exit(3);
}
if (mode === 'stubborn') {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => {});
  setInterval(() => {}, 1000);
}
const CHILD = 'setInterval(() => {}, 1000); for (const s of ["SIGTERM", "SIGHUP"]) process.on(s, () => {});';
const helpers =
  mode === 'stubborn'
    ? [false, true].map((detached) => spawn(process.execPath, ['-e', CHILD], { detached, stdio: 'inherit' }).pid)
    : [];
if (mode === 'noisy') {
  // Pipes are written at once, in this thread: in turns, so that it can answer as well.
  const flood = () => {
    process.stderr.write('x'.repeat(10_000), () => setImmediate(flood));
    written += 10_000;
  };
  flood();
}

const TOOLS = {
  environment: () => process.env,
  helpers: () => [process.pid, ...helpers],
  die: () => process.kill(process.pid, 'SIGKILL'),
  long: () => process.stdout.write('y'.repeat(2_000_000)),
  written: () => written,
  silent: () => undefined,
  print: () => {
    process.stdout.write('Listening!\n[]\n{"jsonrpc":"2.0","id":"nobody","result":{}}\n');
    return 'printed';
  },
};

let waits = null;
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === 'initialize') {
    answer(id, {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 'odd', version: '1' },
    });
  } else if (method === 'tools/call' && params.name === 'ask') {
    waits = id;
    say({ method: 'notifications/progress', params: { progressToken: params._meta?.progressToken, progress: 1 } });
    say({ id: 'q', method: 'elicitation/create', params: { message: 'Which?' } });
  } else if (method === 'tools/call' && params.name === 'flood') {
    const flood = () => {
      while (
        process.stdout.write('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"zzzzzzzzzzzz"}}\n')
      );
      process.stdout.once('drain', flood);
    };
    flood();
  } else if (method === 'tools/call' && params.name === 'announce') {
    answer(id, {});
    say({ method: 'notifications/tools/list_changed' });
  } else if (method === 'tools/call') {
    const said = TOOLS[params.name]?.();
    if (said !== undefined && said !== true && said !== false) answer(id, { said });
  } else if (id === 'q' && waits !== null) {
    answer(waits, { said: result });
  }
});
