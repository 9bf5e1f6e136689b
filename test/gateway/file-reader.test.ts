import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { FileReader, FilesNotRead } from '../../src/gateway/file-reader.ts';
import type { ReadRequest } from '../../src/gateway/read-files.ts';

const KNOWN = {
  files: [],
  content: '',
  configurationDigest: '',
  filesVersion: null,
  entitiesDigest: '',
  checked: new Map(),
};
const REQUEST: ReadRequest = { configFile: 'gateway.yaml', environment: {}, known: KNOWN, shared: null };
const ANSWERS =
  "import { parentPort } from 'node:worker_threads';\nparentPort.on('message', () => parentPort.postMessage({ kind: 'unchanged', stamp: 's' }));";
const SAYS_NOTHING = 'setInterval(() => undefined, 1_000_000);';

let folder = '';
/** All that were begun. */
let threads: Worker[] = [];
const noted = (thread: Worker): void => void threads.push(thread);
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-file-reader-'));
  process.on('worker', noted);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
  process.off('worker', noted);
  threads = [];
  rmSync(folder, { recursive: true });
});

function program(text: string): URL {
  const file = join(folder, 'thread.mjs');
  writeFileSync(file, text);
  return pathToFileURL(file);
}

/** Node tells of a thread in the turn after it was begun. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

test('files that are not read within two minutes are given up', async () => {
  const reader = new FileReader({ entry: program(SAYS_NOTHING) });
  let isOver = false;
  const refused = expect(reader.read(REQUEST).finally(() => (isOver = true))).rejects.toThrow(
    new FilesNotRead('The files were not read and checked within 120 s'),
  );
  await vi.advanceTimersByTimeAsync(119_999);
  expect(isOver).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  await refused;
  expect(threads).toHaveLength(1);
});

test('a thread ends with its answer, and has little memory for what soon is garbage', async () => {
  const reader = new FileReader({ entry: program(ANSWERS) });
  // None waits where nobody said so.
  expect(vi.getTimerCount()).toBe(0);
  const read = reader.read(REQUEST);
  await turn();
  const [thread] = threads;
  if (thread === undefined) throw new Error('none was begun');
  const ended = once(thread, 'exit');
  expect(thread.resourceLimits?.maxYoungGenerationSizeMb).toBe(6);
  expect(await read).toEqual({ kind: 'unchanged', stamp: 's' });
  await ended;
  expect(vi.getTimerCount()).toBe(0);
}, 20_000);

test('a thread that waits is begun two seconds after the files before; one that dies while it waits is not asked', async () => {
  const reader = new FileReader({ entry: program('process.exit(3);'), spare: true });
  vi.advanceTimersByTime(1_999);
  await turn();
  expect(threads).toHaveLength(0);
  vi.advanceTimersByTime(1);
  await turn();
  const [waiting] = threads;
  if (waiting === undefined) throw new Error('none was begun');
  await once(waiting, 'exit');
  program(ANSWERS);
  expect(await reader.read(REQUEST)).toEqual({ kind: 'unchanged', stamp: 's' });
  expect(threads).toHaveLength(2);
  await reader.close();
}, 20_000);

test.each([
  ['before a thread waits', 0, 0],
  ['while one waits', 2_000, 1],
])('a reader that is closed %s ends all threads, and begins none any more', async (_when, ms, begun) => {
  const reader = new FileReader({ entry: program(SAYS_NOTHING), spare: true });
  vi.advanceTimersByTime(ms);
  await turn();
  expect(threads).toHaveLength(begun);
  let ended = 0;
  for (const thread of threads) thread.once('exit', () => (ended += 1));
  await reader.close();
  expect(ended).toBe(begun);
  expect(vi.getTimerCount()).toBe(0);
});

test('a reader that is closed while it reads begins no thread after that', async () => {
  const reader = new FileReader({ entry: program(SAYS_NOTHING), spare: true });
  const refused = expect(reader.read(REQUEST)).rejects.toThrow(FilesNotRead);
  await reader.close();
  await refused;
  expect(vi.getTimerCount()).toBe(0);
});

test('a system that has no thread to give is said in words, and stops nothing', async () => {
  // Such a program is refused before a thread is begun.
  const reader = new FileReader({ entry: new URL('http://127.0.0.1/'), spare: true });
  vi.advanceTimersByTime(2_000);
  await expect(reader.read(REQUEST)).rejects.toThrow(new FilesNotRead('The system has no thread for the files now'));
  await reader.close();
});
