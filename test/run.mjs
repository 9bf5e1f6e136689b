// `npm test`: builds, then runs every test on the Node that runs this, but for what `selection.json` leaves to another
// command, which is named; with CI=true once more on Node 24, what can differ there. `--form`: the tests of form only, for
// `npm run verify`. `--deep`: what takes long, and properties on more inputs. Closes with the files that took longest and
// `N passed, N failed`. Exit code 0 only when nothing failed and something ran.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { node24 } from './node-24.mjs';
import { deeper, filesOf, leftOutInWords } from './selection.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = mkdtempSync(join(tmpdir(), 'svc-test-'));
const words = process.argv.slice(2);
const isForm = words.includes('--form');
const isDeep = words.includes('--deep');
const [form, deep] = ['form', 'deep', 'once'].map((group) => filesOf(root, group));
const chosen = isForm ? form : isDeep ? [...deep, ...deeper(root)] : [];
const only = [...words.filter((word) => word !== '--form' && word !== '--deep'), ...chosen];
/** Of the files that took longest, how many are named. */
const SLOWEST = 25;

run(process.execPath, ['node_modules/typescript/bin/tsc', '--version'], 'TypeScript is missing: run `npm ci` first');
// By the launcher, which then knows that it is fresh: else the first gateway builds once more, below those that run.
if (!isForm) run(process.execPath, ['bin/svc.mjs', '--version'], 'the build failed');

const nodes = [process.execPath];
if (process.env.CI && !isForm && !isDeep && Number(process.versions.node.split('.')[0]) < 24) nodes.push(node24());

let passed = 0;
let failed = 0;
const failures = [];
for (const node of nodes) {
  const report = join(folder, `report-${nodes.indexOf(node)}.json`);
  const version = spawnSync(node, ['--version'], { encoding: 'utf8' }).stdout.trim();
  console.log(`\n# tests on Node ${version}`);
  const part = isForm || isDeep ? 'named' : node === nodes[0] ? 'first' : 'second';
  for (const line of leftOutInWords(part)) console.log(`left out: ${line}`);
  if (part !== 'named') console.log(`on fewer inputs than npm run test:deep: ${deeper(root).join(' ')}`);
  const result = spawnSync(
    node,
    [
      'node_modules/vitest/vitest.mjs',
      'run',
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${report}`,
      ...only,
    ],
    {
      cwd: root,
      stdio: 'inherit',
      // Processes that tests start run on the same Node. They are hundreds, and load the same modules: a Node that can (22
      // and later) keeps them compiled.
      env: {
        ...process.env,
        NODE_COMPILE_CACHE: join(folder, 'compiled'),
        PATH: `${dirname(node)}:${process.env.PATH}`,
        SVC_TEST_RUN: part,
        SVC_TEST_DEEP: isDeep ? '1' : '0',
      },
    },
  );
  const counts = readReport(report);
  if (!isForm) for (const line of counts.slowest) console.log(line);
  passed += counts.passed;
  failed += counts.failed;
  failures.push(...counts.failures.map((failure) => `failed on Node ${version}: ${failure}`));
  // Nothing is skipped silently; on CI, which has all that tests need, nothing may be skipped at all.
  for (const name of counts.skipped) console.error(`skipped: ${name}`);
  if (process.env.CI) failed += counts.skipped.length;
  // A crash of the runner or an unhandled error is a failure even when no assertion failed.
  if (result.status !== 0 && counts.failed === 0) {
    failed += 1;
    failures.push(`failed on Node ${version}: the runner ended with ${result.status ?? result.signal}, no test failed`);
  }
}
rmSync(folder, { recursive: true, force: true });
// Named once more where they are seen: of a long output, often only the end is kept.
for (const failure of failures) console.error(failure);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);

function readReport(path) {
  try {
    const { numPassedTests, numFailedTests, testResults } = JSON.parse(readFileSync(path, 'utf8'));
    const skipped = testResults.flatMap(({ assertionResults }) =>
      assertionResults
        .filter(({ status }) => status !== 'passed' && status !== 'failed')
        .map(({ fullName }) => fullName),
    );
    const failures = testResults.flatMap(({ name, message, assertionResults }) => {
      const file = relative(root, name);
      const faults = assertionResults.filter(({ status }) => status === 'failed');
      if (faults.length === 0) return message ? [`${file}: ${inShort(message)}`] : [];
      return faults.map(
        ({ fullName, failureMessages }) => `${file}: ${fullName}\n  ${inShort(failureMessages.join('\n'))}`,
      );
    });
    return { passed: numPassedTests, failed: numFailedTests, skipped, failures, slowest: slowestOf(testResults) };
  } catch (error) {
    return { passed: 0, failed: 1, skipped: [], failures: [`no report was written: ${String(error)}`], slowest: [] };
  }
}

/** Where the time goes: a suite grows slow by one file at a time. */
function slowestOf(results) {
  const files = results
    .map(({ name, startTime, endTime }) => ({ file: relative(root, name), seconds: (endTime - startTime) / 1000 }))
    .sort((one, other) => other.seconds - one.seconds);
  const all = files.reduce((sum, { seconds }) => sum + seconds, 0);
  const line = ({ file, seconds }) => `${seconds.toFixed(1).padStart(7)} s  ${file}`;
  return [
    ...files.slice(0, SLOWEST).map(line),
    line({ file: `all ${files.length} files, one after the other`, seconds: all }),
  ];
}

function inShort(message) {
  const lines = message.split('\n').filter((line) => !line.includes('node_modules'));
  return lines.slice(0, 12).join('\n  ');
}

function run(command, args, complaint) {
  const result = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (result.status === 0) return;
  console.error(complaint);
  console.log('0 passed, 1 failed');
  process.exit(1);
}
