/**
 * Builds the client as ES modules and as CommonJS; the package.json written at the end tells Node what the second is.
 * The third run drops the comments from the ES modules and leaves them in their declarations.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc');

const runs = [
  ['tsconfig.json'],
  ['tsconfig.cjs.json', '--removeComments'],
  ['tsconfig.json', '--removeComments', '--declaration', 'false'],
];
for (const [project, ...options] of runs) {
  const { status } = spawnSync(process.execPath, [tsc, '-p', join(here, project), ...options], { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
mkdirSync(join(here, 'dist', 'cjs'), { recursive: true });
writeFileSync(join(here, 'dist', 'cjs', 'package.json'), '{ "type": "commonjs" }\n');
