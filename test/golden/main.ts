import { fork } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { describe, spread } from './differences.ts';
import { type CallRecord, textOf } from './record.ts';
import { compare, DECISIONS, type Difference, readRecording, writeRecording } from './recording.ts';
import { CALLS_OF_SEGMENT } from './segment.ts';
import { ALL_SEGMENTS, recordOn, type StoreName, STORES } from './stand.ts';

/** The recording: commands run at the root of the repository. */
const FOLDER = join('test', 'golden');

const { values } = parseArgs({
  options: {
    record: { type: 'boolean', default: false },
    text: { type: 'string' },
    store: { type: 'string' },
    calls: { type: 'string' },
    worker: { type: 'string' },
  },
});

// What was started goes with the process, also when somebody has seen enough.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));

if (values.worker !== undefined) await work(storeOf(values.worker));
else if (values.text !== undefined) await show(Number(values.text));
else if (values.record) await record();
else await compareAll();

function storeOf(word: string): StoreName {
  const store = STORES.find((one) => one === word);
  if (store === undefined) throw new Error(`--store is ${STORES.join(' or ')}, not ${word}`);
  return store;
}

/** Those of `--calls N` or `--calls FROM-TO`, in whole segments; all, where nothing is said. */
function segments(): readonly number[] {
  const [from = 0, to = null] = values.calls?.includes('-')
    ? values.calls.split('-').map(Number)
    : [0, Number(values.calls ?? 1e9)];
  return ALL_SEGMENTS.filter(
    (one) => (one + 1) * CALLS_OF_SEGMENT > from && (to === null || one * CALLS_OF_SEGMENT < to),
  );
}

/** A process for each store, so that the two take half the time. */
async function work(store: StoreName): Promise<void> {
  await recordOn(store, segments(), (one) => void process.send?.(one));
  process.disconnect();
}

function recordsOf(store: StoreName): Promise<readonly CallRecord[]> {
  const words = ['--worker', store, ...(values.calls === undefined ? [] : ['--calls', values.calls])];
  const child = fork(fileURLToPath(import.meta.url), words);
  const records: CallRecord[] = [];
  child.on('message', (message) => records.push(message as CallRecord));
  return new Promise((resolve, reject) => {
    child.once('exit', (code) =>
      code === 0 ? resolve(records) : reject(new Error(`the calls on ${store} ended with ${code}`)),
    );
  });
}

/** Prints what a call is now. */
async function show(number: number): Promise<void> {
  const store = storeOf(values.store ?? 'embedded');
  const segment = Math.floor(number / CALLS_OF_SEGMENT);
  await recordOn(store, [segment], (one) => {
    if (one.number === number) console.log(spread(textOf(one)));
  });
}

/** Records anew. The stores have to agree: there is one recording for both. */
async function record(): Promise<void> {
  const [first = [], ...others] = await Promise.all(STORES.map(recordsOf));
  const missing = DECISIONS.filter((decision) => !first.some(({ outcome }) => outcome.endsWith(` ${decision}`)));
  if (missing.length > 0) throw new Error(`no call has the decision ${missing.join(', ')}`);
  writeRecording(FOLDER, first);
  const recording = readRecording(FOLDER);
  console.log(`recorded ${recording.lines.size} calls, ${recording.texts.size} of them in full`);
  for (const [index, records] of others.entries())
    report(differencesOf(records), STORES[index + 1] ?? '', records.length);
}

async function compareAll(): Promise<void> {
  const began = performance.now();
  const stores = values.store === undefined ? STORES : [storeOf(values.store)];
  await Promise.all(
    stores.map(async (store) => {
      const records = await recordsOf(store);
      report(differencesOf(records), store, records.length);
    }),
  );
  console.log(`${Math.round((performance.now() - began) / 1000)} s`);
}

function differencesOf(records: readonly CallRecord[]): readonly Difference[] {
  const recording = readRecording(FOLDER);
  return records.flatMap((one) => compare(recording, one) ?? []);
}

function report(differences: readonly Difference[], store: string, count: number): void {
  if (differences.length > 0) {
    console.log(describe(differences, readRecording(FOLDER), store));
    process.exitCode = 1;
  }
  const expected = segments().length * CALLS_OF_SEGMENT;
  if (count !== expected) process.exitCode = 1;
  console.log(`${store}: ${count} of ${expected} calls made, ${differences.length} differ`);
}
