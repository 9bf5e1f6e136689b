import { expect, it } from 'vitest';
import { BROKEN, torture } from './harness.ts';

it('two gateways on Redis, 40 % faulty answers; both killed, frozen and without room, clocks that jump: nothing twice, nothing false, nothing stuck', {
  timeout: 300_000,
}, async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const settings = { stand: 'redis', ops: 400, kills: 10, seed, concurrency: 16 } as const;
  const report = await torture({ ...settings, tell: (line) => console.log(line) });
  console.log(JSON.stringify({ stand: settings.stand, ...report }));
  expect(report.kills).toBeGreaterThanOrEqual(10);
  expect(BROKEN.filter((what) => report[what] !== 0)).toEqual([]);
  expect(report.committed).toBeGreaterThan(50);
  expect(report.unknown).toBeGreaterThan(5);
});
