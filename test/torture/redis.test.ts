import { expect, it } from 'vitest';
import { BROKEN } from './harness.ts';
import { tortureInShort } from './in-short.ts';

it('two gateways on Redis, 40 % faulty answers; both killed, frozen and without room, clocks that jump: nothing twice, nothing false, nothing stuck', {
  timeout: 300_000,
}, async () => {
  const report = await tortureInShort({ stand: 'redis', ops: 400, kills: 10 });
  expect(report.kills).toBeGreaterThanOrEqual(10);
  expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
  expect(report.committed).toBeGreaterThan(50);
  expect(report.unknown).toBeGreaterThan(5);
});
