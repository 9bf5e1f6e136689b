// Loaded into a gateway before it starts: measures for how long its event loop is held, in CPU time of its main thread,
// so that other work of a busy machine does not count. Asked over a socket for what it saw since it was last asked.
import { openSync, readdirSync, readFileSync, readSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { BroadcastChannel, isMainThread } from 'node:worker_threads';

/** Between two looks the loop has gone round at least once, ms. */
const EVERY_MS = 2;
/** In this time every thread that is there has said what it holds, ms. */
const THREADS_MS = 500;

if (!isMainThread) sayWhatIsHeld();
else if (process.env.SVC_TEST_LOOP !== undefined && process.argv.includes('start')) watch();

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
  const answer = async (request, response) => {
    look();
    const settled = request.url === '/settled';
    const threads = settled ? await heldByThreads() : [];
    if (settled) collectGarbage();
    const open = readdirSync('/proc/self/fd').length;
    const used = usedHere() + threads.reduce((sum, bytes) => sum + bytes, 0);
    response.end(JSON.stringify({ held, rss: process.memoryUsage.rss(), used, threads, open }));
    held = 0;
    before = cpu();
  };
  createServer((request, response) => void answer(request, response))
    .listen(process.env.SVC_TEST_LOOP)
    .unref();
}

/** Bytes that each other thread holds once its garbage is collected. */
async function heldByThreads() {
  const channel = new BroadcastChannel('svc-test-held');
  const threads = [];
  channel.onmessage = ({ data }) => typeof data === 'number' && threads.push(data);
  channel.postMessage('ask');
  await sleep(THREADS_MS);
  channel.close();
  return threads;
}

function sayWhatIsHeld() {
  const channel = new BroadcastChannel('svc-test-held');
  channel.onmessage = ({ data }) => {
    if (data !== 'ask') return;
    collectGarbage();
    channel.postMessage(usedHere());
  };
  channel.unref();
}

function usedHere() {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
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
