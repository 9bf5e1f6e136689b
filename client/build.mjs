/**
 * `node build.mjs [FOLDER]`: builds the client as ES modules and as CommonJS; the package.json written at the end tells Node what the second is.
 * The third run drops the comments from the ES modules and leaves them in their declarations.
 */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc');

const dist = resolve(process.argv[2] ?? join(here, 'dist'));
const runs = [
  ['esm', 'tsconfig.json'],
  ['cjs', 'tsconfig.cjs.json', '--removeComments'],
  ['esm', 'tsconfig.json', '--removeComments', '--declaration', 'false'],
];
for (const [form, project, ...options] of runs) {
  const { status } = spawnSync(
    process.execPath,
    [tsc, '-p', join(here, project), '--outDir', join(dist, form), ...options],
    {
      stdio: 'inherit',
    },
  );
  if (status !== 0) process.exit(status ?? 1);
}
writeFileSync(join(dist, 'cjs', 'package.json'), '{ "type": "commonjs" }\n');
