import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { expect, test } from 'vitest';
import { FAULTS } from '../planted-faults.ts';
import { plantedFaults, staleness } from './list.mjs';

const ROOT = join(import.meta.dirname, '..', '..');

function read(file: string): string | null {
  const path = join(ROOT, file);
  return existsSync(path) ? readFileSync(path, 'utf8') : null;
}

test('each planted fault still has its place in the product, and its test', () => {
  const faults = plantedFaults();
  expect(faults.length).toBeGreaterThan(100);
  expect(faults.map((fault) => staleness(fault, read)).filter((stale) => stale !== null)).toEqual([]);
});

test('so have those that tests plant themselves', () => {
  const gone = Object.entries(FAULTS).filter(([, { file, line }]) => !(read(file) ?? '').includes(line));
  expect(gone.map(([name]) => name)).toEqual([]);
});

test('no fault uses a name that is not there: it would be red for another reason', () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-names-'));
  try {
    writeFileSync(
      join(folder, 'names.json'),
      JSON.stringify({ env: { node: true, browser: true }, rules: { 'no-undef': 2 } }),
    );
    const plant = (name: string, text: string) => writeFileSync(join(folder, name), text);
    for (const { name, file, text, instead } of plantedFaults())
      if (/\.tsx?$/.test(file))
        plant(
          `${name}${extname(file)}`,
          (read(file) ?? '').replace(text, () => instead),
        );
    plant('as-it-has-to-be-seen.ts', 'notThere();');
    const words = ['-c', join(folder, 'names.json'), '-A', 'all', '-D', 'no-undef', '-f', 'unix', folder];
    const { stdout } = spawnSync(join(ROOT, 'node_modules/.bin/oxlint'), words, { encoding: 'utf8' });
    expect(stdout.split('\n').filter((line) => line.includes(folder))).toEqual([
      expect.stringContaining("as-it-has-to-be-seen.ts:1:1: 'notThere' is not defined"),
    ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a fault is stale when its text is gone, stands twice, or nothing is changed', () => {
  const fault = { name: 'f', file: 'a.ts', text: 'x', instead: 'y', why: 'w', test: 'a.test.ts' };
  const of = (source: string | null) => staleness(fault, (file) => (file === 'a.ts' ? source : ''));
  expect(of('let x;')).toBeNull();
  expect(of('let y;')).toContain('no more');
  expect(of('x x')).toContain('2 times');
  expect(of(null)).toContain('there is no a.ts');
  expect(staleness({ ...fault, instead: 'x' }, () => 'x')).toContain('changes nothing');
});
