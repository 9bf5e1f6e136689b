// `npm run test:faults [-- NAME…]`: plants each fault of the list in a copy of the repository and runs the test that has to
// go red. Prints caught or not caught, and exits with 1 where fewer than 90 % are caught, or where a test is red without
// its fault, also where only the tests of its pattern are run. Two at a time; each has a bound.
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { transformWithOxc } from 'vite';
import { plantedFaults, staleness } from './list.mjs';

const ROOT = dirname(dirname(import.meta.dirname));
const GOAL = 0.9;
const WORKERS = Math.min(2, availableParallelism());
/** For one fault, ms: the shortest test that shows it takes seconds, on a busy machine a minute. */
const BOUND_MS = 300_000;

const names = process.argv.slice(2);
const faults = plantedFaults().filter(({ name }) => names.length === 0 || names.includes(name));
const unknown = names.filter((name) => !faults.some((fault) => fault.name === name));
const stale = faults.map((fault) => staleness(fault, textOf)).filter((fault) => fault !== null);
for (const line of [...unknown.map((name) => `there is no fault ${name}`), ...stale]) console.error(line);
if (unknown.length + stale.length > 0 || faults.length === 0) process.exit(1);
/** Tests in these folders start real processes from what was built. */
const isBuilt = faults.some(({ test }) =>
  /^test\/(cost|decisions|golden|parity|torture|hostile|sdks|system|browser)\//.test(test),
);
// By the launcher, which then knows that it is fresh.
if (isBuilt && spawnSync(process.execPath, ['bin/svc.mjs', '--version'], { cwd: ROOT, stdio: 'inherit' }).status !== 0)
  process.exit(1);

const folder = mkdtempSync(join(tmpdir(), 'svc-faults-'));
const copies = Array.from({ length: WORKERS }, (_, at) => copyOf(join(folder, String(at))));
const results = [];
/** Whether the tests of a pattern are green by themselves, by file and pattern. */
const alone = new Map();
try {
  const sound = await withoutFaults(copies[0]);
  const left = [...faults];
  await Promise.all(
    copies.map(async (copy) => {
      for (let fault = left.shift(); fault !== undefined; fault = left.shift()) {
        const begun = performance.now();
        const planted = sound(fault) ?? (await plant(copy, fault));
        const result = planted === 'caught' && !(await isGreenAlone(copy, fault)) ? 'red alone without it' : planted;
        results.push({ name: fault.name, result });
        const seconds = ((performance.now() - begun) / 1000).toFixed(1);
        console.log(`${result.padEnd(26)} ${seconds.padStart(6)} s  ${fault.name} (${fault.file}; ${fault.test})`);
      }
    }),
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
  for (const built of isBuilt ? ['dist', 'client/dist'] : [])
    cpSync(join(ROOT, built), join(to, built), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(to, 'node_modules'));
  return to;
}

/** Runs all tests that faults name, as they are. @returns what is wrong with the test of a fault; `null` if nothing */
async function withoutFaults(copy) {
  const { tests } = await run(copy, [...new Set(faults.map(({ test }) => test))], undefined, BOUND_MS * 10);
  return ({ test, pattern }) => {
    const own = tests.filter(({ file, name }) => file === test && matches(name, pattern));
    if (own.length === 0) return 'no such test';
    return own.some(({ status }) => status === 'failed') ? 'red without the fault' : null;
  };
}

/** Tests that lean on others before them in the file are red by themselves, whatever is planted: that shows nothing. */
async function isGreenAlone(copy, { test, pattern }) {
  if (pattern === undefined) return true;
  const name = JSON.stringify([test, pattern]);
  if (!alone.has(name)) {
    const { tests } = await run(copy, [test], pattern, BOUND_MS);
    alone.set(name, !tests.some(({ name: of, status }) => matches(of, pattern) && status === 'failed'));
  }
  return alone.get(name);
}

async function plant(copy, { file, text, instead, test, pattern }) {
  const source = join(copy, file);
  const before = readFileSync(source, 'utf8');
  const built = join(copy, 'dist', file.replace(/\.ts$/, '.js'));
  const builtBefore = existsSync(built) ? readFileSync(built, 'utf8') : null;
  writeFileSync(
    source,
    before.replace(text, () => instead),
  );
  try {
    if (builtBefore !== null) {
      writeFileSync(built, await builtFrom(source));
    }
    // The first red test is enough.
    const { tests, end } = await run(copy, [test], pattern, BOUND_MS, ['--bail=1']);
    if (end === 'bound') return 'took too long';
    const own = tests.filter(({ name }) => matches(name, pattern));
    if (own.some(({ status }) => status === 'failed')) return 'caught';
    return own.some(({ status }) => status === 'passed') ? 'not caught' : 'its tests did not run';
  } catch (error) {
    return `cannot be planted: ${error instanceof Error ? error.message.split('\n')[0] : String(error)}`;
  } finally {
    writeFileSync(source, before);
    if (builtBefore !== null) writeFileSync(built, builtBefore);
  }
}

/** What is built of a file; what is no program is copied. */
async function builtFrom(source) {
  const text = readFileSync(source, 'utf8');
  if (!source.endsWith('.ts')) return text;
  const { code } = await transformWithOxc(text, source, { sourcemap: false });
  return code.replaceAll(/(from\s*|import\(|import\s*)(["'])(\.[^"']*)\.ts\2/g, '$1$2$3.js$2');
}

function matches(name, pattern) {
  return pattern === undefined || new RegExp(pattern).test(name);
}

/** Runs test files in a copy, in a process group of their own, which is ended at the bound. */
function run(copy, files, pattern, bound, more = []) {
  const report = join(copy, 'node-report.json');
  rmSync(report, { force: true });
  const words = [
    'node_modules/vitest/vitest.mjs',
    'run',
    '--reporter=json',
    `--outputFile=${report}`,
    ...files,
    ...more,
  ];
  if (pattern !== undefined) words.push(`--testNamePattern=${pattern}`);
  return new Promise((resolve) => {
    const child = spawn(process.execPath, words, { cwd: copy, stdio: 'ignore', detached: true, env: process.env });
    let end = 'end';
    const timer = setTimeout(() => {
      end = 'bound';
      if (child.pid !== undefined) process.kill(0 - child.pid, 'SIGKILL');
    }, bound);
    child.once('close', () => {
      clearTimeout(timer);
      const { testResults = [] } = existsSync(report) ? JSON.parse(readFileSync(report, 'utf8')) : {};
      const tests = testResults.flatMap(({ name: file, assertionResults }) =>
        assertionResults.map(({ fullName: name, status }) => ({ file: file.slice(copy.length + 1), name, status })),
      );
      resolve({ tests, end });
    });
  });
}
