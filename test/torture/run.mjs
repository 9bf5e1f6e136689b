// `npm run torture [-- --store embedded|redis|redis-failover | --library node-idempotency|powertools] [--ops N --kills N --seed N --json [FILE]]`:
// the fault harness in long form (docs/operating/torture.md). Exit 1 when an invariant is broken.
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
run('npm', ['run', '--silent', 'build']);
run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.bench.json']);
mkdirSync(join(root, '.bench', 'test', 'upstream'), { recursive: true });
copyFileSync(
  join(root, 'test', 'upstream', 'ledger-upstream.mjs'),
  join(root, '.bench', 'test', 'upstream', 'ledger-upstream.mjs'),
);
run(process.execPath, ['.bench/test/torture/main.js', ...process.argv.slice(2)]);

function run(command, args) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) process.exit(status ?? 1);
}
