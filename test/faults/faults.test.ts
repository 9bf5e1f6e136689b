import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
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

test('a fault is stale when its text is gone, stands twice, or nothing is changed', () => {
  const fault = { name: 'f', file: 'a.ts', text: 'x', instead: 'y', why: 'w', test: 'a.test.ts' };
  const of = (source: string | null) => staleness(fault, (file) => (file === 'a.ts' ? source : ''));
  expect(of('let x;')).toBeNull();
  expect(of('let y;')).toContain('no more');
  expect(of('x x')).toContain('2 times');
  expect(of(null)).toContain('there is no a.ts');
  expect(staleness({ ...fault, instead: 'x' }, () => 'x')).toContain('changes nothing');
});
