// Within a gateway, some seconds after its start: holds some memory, makes garbage that outlives a young generation, and
// writes by how much the heap was larger than what it held (`GROWS_FILE`).
import { writeFileSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

const { GROWS_FILE = '' } = process.env;
const ALIVE = 400_000;
const ROUNDS = 60;
const make = (count) => Array.from({ length: count }, (_, at) => ({ at, text: `${at}`, more: [at] }));

async function grow() {
  const held = make(ALIVE);
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  const alive = process.memoryUsage().heapUsed;
  let most = 0;
  const recent = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    recent.push(make(20_000));
    if (recent.length > 10) recent.shift();
    most = Math.max(most, process.memoryUsage().heapTotal);
    await turn();
  }
  writeFileSync(GROWS_FILE, JSON.stringify({ held: held.length, ratio: most / alive }));
}

if (isMainThread && process.argv.includes('start')) setTimeout(grow, 3_000).unref();
