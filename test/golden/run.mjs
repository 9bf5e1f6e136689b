// `npm run test:golden [-- --record | --text N | --calls N | --calls FROM-TO | --store embedded|redis | --node 24]`: makes the
// golden calls on both stores and compares each with the recording in this folder (README.md). Exit 1 when one differs.
import { spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { node24 } from '../node-24.mjs';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const words = process.argv.slice(2);
const place = words.indexOf('--node');
const [, version] = place < 0 ? [] : words.splice(place, 2);
if (version !== undefined && version !== '24') throw new Error(`--node is 24, not ${version}`);
const node = version === undefined ? process.execPath : node24();

run('npm', ['run', '--silent', 'build']);
run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.bench.json']);
run(node, ['.bench/test/golden/main.js', ...words]);

function run(command, args) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) process.exit(status ?? 1);
}
