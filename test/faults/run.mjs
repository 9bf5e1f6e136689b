// `npm run test:faults [-- NAME… | --since COMMIT]`: plants each fault of the list in a copy of the repository and runs the
// test that has to go red. Prints caught or not caught, and exits with 1 where fewer than 90 % are caught, or where the
// tests of a pattern are red by themselves, without the fault. Two at a time; each has a bound.
import { fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { transformWithOxc } from 'vite';
import { plantedFaults, staleness } from './list.mjs';

const ROOT = dirname(dirname(import.meta.dirname));
const GOAL = 0.9;
const WORKERS = Math.min(2, availableParallelism());
/** For one run, ms: the shortest test that shows a fault takes seconds, on a busy machine a minute. */
const BOUND_MS = 300_000;
/** Tests in these folders start real processes from what was built. */
const BUILT = /^test\/(cost|decisions|golden|parity|torture|hostile|sdks|system|browser)\//;

const words = process.argv.slice(2);
const changed = words[0] === '--since' ? changedSince(words[1]) : null;
const names = changed === null ? words : [];
const faults = plantedFaults().filter(({ name, file, test }) =>
  changed === null ? names.length === 0 || names.includes(name) : changed.has(file) || changed.has(test),
);
const unknown = names.filter((name) => !faults.some((fault) => fault.name === name));
const stale = faults.map((fault) => staleness(fault, textOf)).filter((fault) => fault !== null);
for (const line of [...unknown.map((name) => `there is no fault ${name}`), ...stale]) console.error(line);
if (unknown.length + stale.length > 0) process.exit(1);
const isBuilt = faults.some(({ test }) => BUILT.test(test));
// By the launcher, which then knows that it is fresh.
if (isBuilt && spawnSync(process.execPath, ['bin/svc.mjs', '--version'], { cwd: ROOT, stdio: 'inherit' }).status !== 0)
  process.exit(1);

const folder = mkdtempSync(join(tmpdir(), 'svc-faults-'));
/** What was built, which takes the place of what was built with a fault. */
const sound = join(folder, 'dist');
const results = [];
/** Whether the tests of a pattern are green by themselves, by file and pattern. */
const alone = new Map();
try {
  if (isBuilt) cpSync(join(ROOT, 'dist'), sound, { recursive: true });
  const left = [...faults];
  await Promise.all(
    Array.from({ length: Math.min(WORKERS, faults.length) }, (_, at) => work(copyOf(join(folder, String(at))), left)),
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
const caught = results.filter(({ result }) => result === 'caught').length;
const broken = results.filter(({ result }) => result !== 'caught' && result !== 'not caught');
for (const { name, result } of results) if (result !== 'caught') console.error(`${result}: ${name}`);
console.log(`${caught} of ${results.length} caught`);
process.exit(caught >= results.length * GOAL && broken.length === 0 ? 0 : 1);

function textOf(file) {
  const path = join(ROOT, file);
  return existsSync(path) ? readFileSync(path, 'utf8') : null;
}

function changedSince(commit) {
  const { status, stdout } = spawnSync('git', ['diff', '--name-only', commit], { cwd: ROOT, encoding: 'utf8' });
  if (status !== 0) process.exit(1);
  return new Set(stdout.split('\n'));
}

/** What is in the repository and what was built of it, with the packages of this one. */
function copyOf(to) {
  const { stdout } = spawnSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  mkdirSync(to);
  for (const file of stdout.split('\0'))
    if (file !== '' && existsSync(join(ROOT, file))) cpSync(join(ROOT, file), join(to, file));
  if (isBuilt) cpSync(sound, join(to, 'dist'), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(to, 'node_modules'));
  return to;
}

/** Takes one fault after the other, until none is left. */
async function work(copy, left) {
  const host = hostOf(copy);
  for (let fault = left.shift(); fault !== undefined; fault = left.shift()) {
    const begun = performance.now();
    const result = await outcomeOf(copy, host, fault).catch((error) => error.message.split('\n')[0]);
    results.push({ name: fault.name, result });
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    console.log(`${result.padEnd(26)} ${seconds.padStart(6)} s  ${fault.name} (${fault.file}; ${fault.test})`);
  }
  await host.end();
}

async function outcomeOf(copy, host, fault) {
  const result = await planted(copy, host, fault);
  if (isRed(result)) return (await isGreenAlone(host, fault)) ? 'caught' : 'red without the fault';
  const { tests, errors } = result;
  return tests.includes('passed') ? 'not caught' : ['its tests did not run', ...errors].join(': ');
}

/** What fails when all tests are over, such as a look at the log of the gateway that they had, is no test's own. */
function isRed({ tests, errors }) {
  return tests.includes('failed') || (tests.includes('passed') && errors.length > 0);
}

/** Tests that lean on others before them in the file are red by themselves, whatever is planted: that shows nothing. */
async function isGreenAlone(host, { file, test, pattern }) {
  const name = JSON.stringify([test, pattern]);
  if (!alone.has(name)) alone.set(name, !isRed(await host.run(file, test, pattern)));
  return alone.get(name);
}

/** @returns what a fault's tests come to with the fault, up to the first red one */
async function planted(copy, host, { file, text, instead, test, pattern = '' }) {
  const source = join(copy, file);
  const before = readFileSync(source, 'utf8');
  const { atime, mtime } = statSync(source);
  writeFileSync(
    source,
    before.replace(text, () => instead),
  );
  try {
    if (BUILT.test(test)) await build(copy, file);
    return await host.run(file, test, pattern);
  } finally {
    writeFileSync(source, before);
    // As old as it was: nothing is built because of it.
    utimesSync(source, atime, mtime);
    if (BUILT.test(test)) {
      rmSync(join(copy, 'dist'), { recursive: true });
      cpSync(sound, join(copy, 'dist'), { recursive: true });
    }
  }
}

/** What the launcher would build of a changed file, without the compiler: it has nothing to say about a fault. */
async function build(copy, file) {
  if (file.startsWith('client/')) throw new Error('what is built has the client of the packages, not of the copy');
  if (!file.startsWith('console/')) {
    writeFileSync(join(copy, 'dist', file.replace(/\.ts$/, '.js')), await builtFrom(join(copy, file)));
    step(copy, 'src/bundle.mjs');
  }
  // Only what is older than its sources.
  step(copy, 'console/build.mjs');
}

/** A step of the build. What is built is newer than its sources then. */
function step(copy, program) {
  const { status, stderr } = spawnSync(process.execPath, [program], { cwd: copy, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${program}: ${stderr}`);
  writeFileSync(join(copy, 'dist', '.built'), '');
}

/** What is built of a file; what is no program is copied. */
async function builtFrom(source) {
  const text = readFileSync(source, 'utf8');
  if (!source.endsWith('.ts')) return text;
  const { code } = await transformWithOxc(text, source, { sourcemap: false });
  return code.replaceAll(/(from\s*|import\(|import\s*)(["'])(\.[^"']*)\.ts\2/g, '$1$2$3.js$2');
}

/** Runs tests in a copy, in a process group of their own, which is ended at the bound. */
function hostOf(copy) {
  let child = null;
  let closed = null;

  async function start() {
    const program = join(copy, 'test/faults/host.mjs');
    child = fork(program, { cwd: copy, stdio: ['ignore', 'ignore', 'inherit', 'ipc'], detached: true });
    closed = once(child, 'close');
    await Promise.race([once(child, 'message'), closed]);
  }

  async function end() {
    if (child === null) return;
    try {
      process.kill(0 - child.pid, 'SIGKILL');
    } catch {
      // It has ended already, and nothing that it started is left.
    }
    await closed;
    child = null;
  }

  /** @param file that has changed since the last run */
  async function run(file, test, pattern) {
    if (child === null) await start();
    const over = new AbortController();
    const bound = wait(BOUND_MS, ['took too long'], { signal: over.signal });
    const answered = once(child, 'message');
    child.send({ changed: join(copy, file), test, pattern });
    const [answer] = await Promise.race([answered, closed.then(() => ['its vitest ended']), bound]);
    over.abort();
    if (typeof answer !== 'string') return answer;
    await end();
    throw new Error(answer);
  }
  return { run, end };
}
