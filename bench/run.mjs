// `npm run bench [-- --only NAME --json FILE --node MAJOR --effects N]`, see README.md: builds, then runs each benchmark on the Node that runs this and on
// Node 24, side by side with its peer. Prints medians and ratios; times nothing that a test depends on.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { node24 } from '../test/node-24.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    json: { type: 'string' },
    node: { type: 'string' },
    effects: { type: 'string' },
  },
});
const folder = mkdtempSync(join(tmpdir(), 'svc-bench-'));

build('npm', ['run', '--silent', 'build']);
build(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.bench.json']);
cpSync(join(root, 'src/stores/redis/scripts'), join(root, '.bench/src/stores/redis/scripts'), { recursive: true });

const wanted = values.node === undefined ? ['20', '24'] : [values.node];
const nodes = [process.execPath, ...(process.versions.node.startsWith('24.') ? [] : [node24()])].filter((node) => {
  const { stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' });
  return values.node === undefined || wanted.some((version) => stdout.startsWith(`v${version}.`));
});
const passedOn = ['only', 'effects'].flatMap((name) => (values[name] === undefined ? [] : [`--${name}`, values[name]]));
const all = [];
for (const node of nodes) {
  const file = join(folder, 'results.json');
  const result = spawnSync(node, ['--expose-gc', '.bench/bench/main.js', '--json', file, ...passedOn], {
    cwd: root,
    stdio: 'inherit',
  });
  if (result.status !== 0) process.exit(result.status ?? 1);
  all.push(...JSON.parse(readFileSync(file, 'utf8')));
}
rmSync(folder, { recursive: true, force: true });
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(all, null, 2)}\n`);

function build(command, args) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: ['ignore', 2, 2] });
  if (status !== 0) process.exit(status ?? 1);
}
