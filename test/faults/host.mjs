// The vitest of one copy of the repository, for all faults that are planted there: what it has read stays read, which is
// most of the time that a run of one test takes. Each run has a process of its own, which imports everything anew.
import { relative } from 'node:path';
import { createVitest } from 'vitest/node';

let tests = [];
let errors = [];
/** The file that had a fault in the run before, and has none any more. */
let mended = null;
const reporter = {
  onTestCaseResult: (test) => tests.push(test.result().state),
  // The first red test ends the run, and what it came to may be lost then.
  onTestModuleCollected: () => vitest.onCancel(() => tests.push('failed')),
  onTestRunEnd: (modules, others) => {
    errors = [...modules.flatMap((module) => module.errors()), ...others].map(({ message }) => message.split('\n')[0]);
  },
};
const vitest = await createVitest('test', { watch: false, bail: 1, reporters: [reporter] });
const specifications = await vitest.globTestSpecifications();

// What it has started ends with it.
process.once('disconnect', () => process.kill(0 - process.pid, 'SIGKILL'));
process.on('message', ({ changed, test, pattern }) => void run(changed, test, pattern));
process.send('ready');

async function run(changed, test, pattern) {
  tests = [];
  errors = [];
  for (const file of [mended ?? changed, changed]) vitest.invalidateFile(file);
  mended = changed;
  const own = specifications.filter(({ moduleId }) => relative(process.cwd(), moduleId) === test);
  const options = { testNamePattern: new RegExp(pattern) };
  await vitest.runTestSpecifications(
    own.map(({ project, moduleId }) => project.createSpecification(moduleId, options)),
  );
  process.send({ tests, errors });
}
