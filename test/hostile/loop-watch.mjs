// Loaded into a gateway before it starts: measures for how long its event loop is held, in CPU time of its main thread,
// so that other work of a busy machine does not count. Asked over a socket for what it saw since it was last asked.
import { openSync, readdirSync, readFileSync, readSync } from 'node:fs';
import { createServer } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

/** Between two looks the loop has gone round at least once, ms. */
const EVERY_MS = 2;

if (isMainThread && process.env.SVC_TEST_LOOP !== undefined && process.argv.includes('start')) watch();

function watch() {
  const cpu = mainThreadCpu();
  let before = cpu();
  let held = 0;
  const look = () => {
    const now = cpu();
    held = Math.max(held, now - before);
    before = now;
  };
  setInterval(look, EVERY_MS).unref();
  createServer((request, response) => {
    look();
    if (request.url === '/settled') collectGarbage();
    const { rss, heapUsed, external } = process.memoryUsage();
    const open = readdirSync('/proc/self/fd').length;
    response.end(JSON.stringify({ held, rss, used: heapUsed + external, open }));
    held = 0;
    before = cpu();
  })
    .listen(process.env.SVC_TEST_LOOP)
    .unref();
}

/** What is garbage is no growth: it would be collected by and by. */
function collectGarbage() {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
}

/** CPU time of the main thread so far, ms; of the whole process where the system does not tell threads apart. */
function mainThreadCpu() {
  const path = `/proc/self/task/${process.pid}/schedstat`;
  try {
    if (Number(readFileSync(path, 'utf8').split(' ')[0]) > 0) {
      const file = openSync(path);
      const bytes = Buffer.alloc(64);
      return () => Number.parseInt(bytes.toString('latin1', 0, readSync(file, bytes, 0, 64, 0)), 10) / 1e6;
    }
  } catch {}
  return () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  };
}
