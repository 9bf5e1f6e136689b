import { expect, it } from 'vitest';
import { BROKEN } from './harness.ts';
import { SHARE, tortureInShort } from './in-short.ts';

const OPS = 400 * SHARE;
const KILLS = 10 * SHARE;

it(`${OPS} keyed calls to two gateways on Redis, 40 % faulty answers, ${KILLS} kills; both killed, frozen and without room, clocks that jump: nothing twice, nothing false, nothing stuck`, {
  timeout: 300_000,
}, async () => {
  const report = await tortureInShort({ stand: 'redis', ops: OPS, kills: KILLS });
  expect(report.kills).toBeGreaterThanOrEqual(KILLS);
  expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
  expect(report.committed).toBeGreaterThan(OPS / 8);
  expect(report.unknown).toBeGreaterThan(OPS / 80);
});
