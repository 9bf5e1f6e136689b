import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const text = readFileSync(join(import.meta.dirname, '..', '..', 'Dockerfile'), 'utf8');
const DIGEST = `@sha256:${'0123456789abcdef'.repeat(4)}`;

test('every base of the image is an argument without a default', () => {
  const bases = [...text.matchAll(/^FROM (\S+)/gm)].map(([, base]) => base);
  expect(new Set(bases)).toEqual(new Set(['${NODE_IMAGE}', '${RUN_IMAGE}']));
  expect(text).not.toMatch(/^ARG \w+_IMAGE=/m);
});

/** The check as the build runs it. */
function build(image: string, run: string, unpinned = 'refuse'): number | null {
  const check = /^RUN (for image in .*)$/m.exec(text)?.[1] ?? 'exit 99';
  return spawnSync('sh', ['-c', check], {
    env: { ...process.env, NODE_IMAGE: image, RUN_IMAGE: run, UNPINNED: unpinned },
  }).status;
}

test.each([
  ['both named by digest', `node:24${DIGEST}`, `run${DIGEST}`, 0],
  ['a tag alone', 'node:24', `run${DIGEST}`, 1],
  ['no name', `node${DIGEST}`, '', 1],
  ['a digest that is cut', `node${DIGEST.slice(0, -1)}`, `run${DIGEST}`, 1],
  ['something after the digest', `node${DIGEST}`, `run${DIGEST}-x`, 1],
])('the build takes bases by digest only: %s', (_what, image, run, status) => {
  expect(build(image, run)).toBe(status);
  expect(build(image, run, 'allow')).toBe(0);
});
