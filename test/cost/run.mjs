// `npm run test:cost [-- --list | --lower] [-t 'embedded door proxy']`: builds, and counts what a governed write costs.
// `--list` prints the functions that it calls and where it makes promises; `--lower` writes lower ceilings.
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const words = process.argv.slice(2);
const asked = ['list', 'lower'].find((name) => words.includes(`--${name}`)) ?? '';
const others = words.filter((word) => word !== `--${asked}`);
run([join(root, 'bin', 'svc.mjs'), '--version']);
run([join(root, 'node_modules/vitest/vitest.mjs'), 'run', 'test/cost', '--disable-console-intercept', ...others]);

function run(args) {
  const options = { cwd: root, env: { ...process.env, SVC_COST: asked }, stdio: ['ignore', 'inherit', 'inherit'] };
  const { status } = spawnSync(process.execPath, args, options);
  if (status !== 0) process.exit(status ?? 1);
}
