// `npm run torture [-- --store embedded|redis|redis-failover | --library node-idempotency|powertools] [--ops N --kills N --seed N --json [FILE]]`:
// the fault harness in long form; `npm run torture -- --power [ROUNDS]`: cuts of the power, on each SQLite driver (docs/operating/torture.md). Exit 1 when an invariant is broken.
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { node24 } from '../node-24.mjs';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const power = process.argv.indexOf('--power');
if (power >= 0) cutPower(process.argv[power + 1] ?? '5');

run('npm', ['run', '--silent', 'build']);
run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.bench.json']);
mkdirSync(join(root, '.bench', 'test', 'upstream'), { recursive: true });
copyFileSync(
  join(root, 'test', 'upstream', 'ledger-upstream.mjs'),
  join(root, '.bench', 'test', 'upstream', 'ledger-upstream.mjs'),
);
run(process.execPath, ['.bench/test/torture/main.js', ...process.argv.slice(2)]);

/** Each round is two recordings, one of them with a failed sync, and 40 cuts in each. */
function cutPower(rounds) {
  if (!/^[1-9]\d*$/.test(rounds)) throw new Error(`--power takes a number of rounds, not ${rounds}`);
  for (const node of new Set([process.execPath, node24()])) {
    const words = [
      'node_modules/vitest/vitest.mjs',
      'run',
      'test/torture/power.test.ts',
      'test/torture/power-mutants.test.ts',
      '--disable-console-intercept',
    ];
    const env = { ...process.env, SVC_POWER_ROUNDS: rounds, PATH: `${dirname(node)}:${process.env.PATH}` };
    const { status } = spawnSync(node, words, { cwd: root, env, stdio: ['ignore', 'inherit', 'inherit'] });
    if (status !== 0) process.exit(status ?? 1);
  }
  process.exit(0);
}

function run(command, args) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) process.exit(status ?? 1);
}
