import { expect, it } from 'vitest';
import { connectionsOf, openFilesLimit } from '../../src/gateway/listening.ts';

it.each([
  // Each connection may need one to an upstream, and 64 files are the gateway's own.
  [1_000, null, 1_000],
  [1_000, 1_000_000, 1_000],
  [1_000, 1_024, 480],
  [1_000, 1_023, 479],
  [100, 264, 100],
  [100, 262, 99],
  [100, 10, 1],
])('of %i connections a process that may open %s files holds %i', (set, files, held) => {
  expect(connectionsOf(set, files)).toBe(held);
});

it('the system says how many files the process may open, where it is Linux', () => {
  const files = openFilesLimit();
  if (process.platform === 'linux') expect(files).toBeGreaterThan(64);
  else expect(files).toBeNull();
});
