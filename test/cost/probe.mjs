// Loaded by `--import` before the gateway and before each of its threads: counts what they do, from outside. It knows
// nothing of the gateway but where its files are. Commands come over a Unix socket, `<op> <what>` on a line; the answer
// is a line of JSON for each thread. Nothing is wrapped that the gateway could tell from the original.
import { createHook } from 'node:async_hooks';
import crypto from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Session } from 'node:inspector';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import timers from 'node:timers';
import { fileURLToPath } from 'node:url';
import v8 from 'node:v8';
import { BroadcastChannel, isMainThread, MessagePort, threadId } from 'node:worker_threads';

delete process.env.NODE_OPTIONS;

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

const counts = {};
let isCounting = false;
/** Where promises are made, by the first own frame below; `null`: not wanted, as it costs much. */
let places = null;

function count(name, by = 1) {
  if (isCounting) counts[name] = (counts[name] ?? 0) + by;
}

/** Posts a message of the probe's own, which is not counted. */
function send(channel, message) {
  const was = isCounting;
  isCounting = false;
  channel.postMessage(message);
  isCounting = was;
}

/** Replaces a function by one that counts its calls. */
function wrap(holder, name, kind) {
  const original = holder[name];
  if (typeof original !== 'function') return;
  const counted = function (...args) {
    count(kind);
    return Reflect.apply(original, this, args);
  };
  Object.defineProperties(counted, Object.getOwnPropertyDescriptors(original));
  holder[name] = counted;
}

const CRYPTO = {
  hashes: ['createHash', 'createHmac', 'hash', 'hkdfSync', 'scryptSync', 'pbkdf2Sync'],
  ciphers: ['createCipheriv', 'createDecipheriv', 'publicEncrypt', 'privateDecrypt'],
  signatures: ['sign', 'verify', 'createSign', 'createVerify'],
  randoms: ['randomBytes', 'randomFillSync', 'randomFill', 'randomUUID', 'randomInt'],
};
for (const [kind, names] of Object.entries(CRYPTO)) for (const name of names) wrap(crypto, name, kind);
const SUBTLE = { digest: 'hashes', sign: 'signatures', verify: 'signatures', encrypt: 'ciphers', decrypt: 'ciphers' };
for (const [name, kind] of Object.entries(SUBTLE)) wrap(Object.getPrototypeOf(crypto.webcrypto.subtle), name, kind);
syncBuiltinESMExports();

const SODIUM = [
  [
    /^crypto_(aead|secretbox|box|secretstream|stream).*(encrypt|decrypt|easy|open|seal|detached|push|pull|xor)/,
    'ciphers',
  ],
  [/^crypto_sign(_open|_detached|_verify_detached)?$/, 'signatures'],
  [/^crypto_(generichash|hash|auth|onetimeauth|shorthash|kdf|pwhash)[a-z0-9_]*$/, 'hashes'],
  [/^randombytes_(buf|random|uniform)/, 'randoms'],
];
try {
  const sodium = createRequire(import.meta.url)('sodium-native');
  for (const name of Object.keys(sodium)) {
    const kind = SODIUM.find(([pattern]) => pattern.test(name))?.[1];
    if (kind !== undefined) wrap(sodium, name, kind);
  }
} catch {
  // It is optional.
}

for (const name of ['parse', 'stringify']) wrap(JSON, name, 'jsonTexts');
// A `Worker` posts by its port.
wrap(MessagePort.prototype, 'postMessage', 'messages');
// Threads that share memory wake each other without a message.
wrap(Atomics, 'notify', 'messages');

/** Intervals that came due while a write was counted: what is done by the clock is no part of it, and done afterwards. */
const due = new Map();
let isHeld = false;

const { setInterval: setOriginal } = timers;
globalThis.setInterval = timers.setInterval = (callback, ...others) => {
  const tick = (...args) => {
    if (isHeld) due.set(tick, args);
    else callback(...args);
  };
  return setOriginal(tick, ...others);
};
syncBuiltinESMExports();

function letGo() {
  isHeld = false;
  for (const [tick, args] of due) tick(...args);
  due.clear();
}

const promises = createHook({
  init(_id, type) {
    if (type !== 'PROMISE') return;
    count('promises');
    if (places !== null) {
      const place = ownFrame();
      places.set(place, (places.get(place) ?? 0) + 1);
    }
  },
});

function ownFrame() {
  const before = Error.stackTraceLimit;
  Error.stackTraceLimit = 40;
  const { stack = '' } = new Error('here');
  Error.stackTraceLimit = before;
  const line = stack.split('\n').find((frame) => isOwn(/(file:[^)]+)/.exec(frame)?.[1] ?? ''));
  if (line === undefined) return 'outside of own code';
  const [, url = '', at = ''] = /(file:.*?):(\d+):\d+\)?$/.exec(line) ?? [];
  return `${fileOf(url)}:${at}`;
}

function isOwn(url) {
  if (!url.startsWith('file:')) return false;
  const path = fileURLToPath(url.replace(/(:\d+)+$/, ''));
  return path.startsWith(`${root}/`) && !path.includes('/node_modules/') && !path.startsWith(`${root}/test/`);
}

function fileOf(url) {
  return fileURLToPath(url).slice(root.length + 1);
}

const session = new Session();
session.connect();

function post(method, parameters) {
  let answer;
  session.post(method, parameters, (error, result) => {
    if (error) throw new Error(error.message);
    answer = result;
  });
  return answer;
}

const lines = new Map();

/** Line of a function, from 1. */
function lineAt(url, offset) {
  if (!lines.has(url)) lines.set(url, readFileSync(fileURLToPath(url), 'utf8'));
  return lines.get(url).slice(0, offset).split('\n').length;
}

function takeCalls() {
  const own = [];
  let outside = 0;
  for (const { url, functions } of post('Profiler.takePreciseCoverage').result) {
    for (const { functionName, ranges } of functions) {
      const [{ startOffset, count: calls }] = ranges;
      if (calls === 0 || url === import.meta.url) continue;
      if (!isOwn(url)) outside += calls;
      else own.push([fileOf(url), lineAt(url, startOffset), functionName, calls]);
    }
  }
  return { own, outside };
}

let collections = null;
let usedAtStart = 0;
const usedNow = () => v8.getHeapStatistics().used_heap_size;

/** What was allocated, and what the collector copied within the young generation or promoted to the old one, bytes. */
function heapSince(end, { statistics }) {
  let allocated = 0;
  let moved = 0;
  let used = usedAtStart;
  const sizeOf = (of, isNew) =>
    of.heapSpaceStatistics
      .filter(({ spaceName }) => spaceName.startsWith('new_') === isNew)
      .reduce((sum, { spaceUsedSize }) => sum + spaceUsedSize, 0);
  for (const { gcType, beforeGC, afterGC } of statistics) {
    allocated += beforeGC.heapStatistics.usedHeapSize - used;
    used = afterGC.heapStatistics.usedHeapSize;
    if (gcType === 'Scavenge')
      moved += sizeOf(afterGC, true) + Math.max(0, sizeOf(afterGC, false) - sizeOf(beforeGC, false));
  }
  return { allocated: allocated + end - used, moved, collections: statistics.length };
}

const OPS = {
  'start calls': () => post('Profiler.startPreciseCoverage', { callCount: true, detailed: false }),
  'reset calls'() {
    isHeld = true;
    takeCalls();
  },
  'take calls'() {
    const calls = takeCalls();
    letGo();
    return calls;
  },
  'stop calls': () => post('Profiler.stopPreciseCoverage'),
  'start counts': () => begin(null),
  'start places': () => begin(new Map()),
  'take counts'() {
    isCounting = false;
    promises.disable();
    letGo();
    return { ...counts, ...(places === null ? {} : { places: [...places] }) };
  },
  'start heap'() {
    collections = new v8.GCProfiler();
    usedAtStart = usedNow();
    collections.start();
  },
  'take heap': () => heapSince(usedNow(), collections.stop()),
};
post('Profiler.enable');

function begin(ofPromises) {
  for (const name of Object.keys(counts)) delete counts[name];
  places = ofPromises;
  promises.enable();
  isHeld = true;
  isCounting = true;
}

// Threads hear of a command, and answer, over a channel that keeps nobody alive.
const commands = new BroadcastChannel('svc-cost-commands');
const answers = new BroadcastChannel('svc-cost-answers');
commands.unref();
answers.unref();

if (isMainThread) listen();
else {
  commands.onmessage = ({ data: { id, op } }) => send(answers, { id, thread: threadId, result: OPS[op]() ?? null });
  send(answers, { id: 0, thread: threadId, result: null });
}

function listen() {
  const threads = new Set();
  let id = 0;
  let waiting = null;
  answers.onmessage = ({ data: { id: of, thread, result } }) => {
    if (of === 0) threads.add(thread);
    else if (of === id) waiting?.(thread, result);
  };
  createServer((socket) => {
    socket.unref();
    socket.setEncoding('utf8').on('data', (text) => {
      id += 1;
      const op = text.trim();
      const main = OPS[op]() ?? null;
      const others = [];
      const end = () => {
        const was = isCounting;
        isCounting = false;
        socket.write(`${JSON.stringify({ main, others })}\n`);
        isCounting = was;
      };
      const silent = new Set(threads);
      // A thread that has ended meanwhile does not answer.
      const late = setTimeout(() => {
        for (const thread of silent) threads.delete(thread);
        end();
      }, 5_000);
      waiting = (thread, result) => {
        silent.delete(thread);
        others.push(result);
        if (silent.size > 0) return;
        clearTimeout(late);
        end();
      };
      send(commands, { id, op });
      if (threads.size === 0) {
        clearTimeout(late);
        end();
      }
    });
  })
    .listen(process.env.SVC_COST_SOCKET)
    .unref();
}
