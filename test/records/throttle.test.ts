import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import type { LedgerDraft } from '../../src/effects/model/ledger.ts';
import { createThrottle } from '../../src/records/throttle.ts';

const NOW = 1_750_000_000_000;
const event = (n: number): LedgerDraft => ({
  kind: 'effect.denied',
  effectId: `eff_${n}`,
  actor: { type: 'gateway', id: 'g' },
  data: { n },
});
const storm = (times: number, admits: (n: number) => boolean): readonly boolean[] =>
  Array.from({ length: times }, (_, n) => admits(n));

test('ten of a word are written in a second, and the others are told of once, in a later one', () => {
  const throttle = createThrottle();
  const admitted = storm(13, (n) => throttle.admits('word', 'demo', [event(n), event(100 + n)], NOW));
  expect(admitted).toEqual([...Array(10).fill(true), false, false, false]);
  expect(throttle.admits('another', 'demo', [], NOW)).toBe(true);
  expect(throttle.pending()).toBe(true);
  expect(throttle.due(NOW + 999)).toEqual([]);
  expect(throttle.pending()).toBe(true);
  const told = { workspace: 'demo', event: { ...event(112), data: { n: 112, repeated: 3 } } };
  expect(throttle.due(NOW + 1_000)).toEqual([told]);
  expect(throttle.pending()).toBe(false);
  expect(throttle.due(NOW + 2_000)).toEqual([]);
  expect(throttle.admits('word', 'demo', [event(0)], NOW + 1_000)).toBe(true);
});

test('what is counted again in the next second is told of beside what was counted before', () => {
  const throttle = createThrottle();
  storm(11, (n) => throttle.admits('word', 'demo', [event(n)], NOW));
  storm(12, (n) => throttle.admits('word', 'demo', [event(n)], NOW + 1_000));
  const repeated = throttle.due(NOW + 2_000).map((due) => due.event.data['repeated']);
  expect(repeated).toEqual([1, 2]);
});

test('what writes no event is held back, and nothing is told of it', () => {
  const throttle = createThrottle();
  expect(storm(11, () => throttle.admits('word', 'demo', [], NOW)).at(-1)).toBe(false);
  expect(throttle.due(NOW + 1_000)).toEqual([]);
  expect(throttle.pending()).toBe(false);
});

test('many words make room by the words of earlier seconds, never by those of this one', () => {
  const throttle = createThrottle();
  storm(11, (n) => throttle.admits('word', 'demo', [event(n)], NOW));
  for (let n = 0; n < 10_001; n += 1) throttle.admits(`other ${n}`, 'demo', [], NOW);
  expect(throttle.admits('word', 'demo', [event(11)], NOW)).toBe(false);
  for (let n = 0; n < 10_001; n += 1) throttle.admits(`later ${n}`, 'demo', [], NOW + 1_000);
  expect(throttle.due(NOW + 1_000).map((due) => due.event.data['repeated'])).toEqual([2]);
});

test('words of earlier seconds take no room, however many there were', () => {
  setFlagsFromString('--expose-gc');
  const used = (): number => {
    runInNewContext('gc')();
    return process.memoryUsage().heapUsed;
  };
  const throttle = createThrottle();
  const before = used();
  for (let second = 0; second < 30; second += 1)
    for (let n = 0; n < 10_001; n += 1) throttle.admits(`${second} ${n}`, 'demo', [], NOW + second * 1_000);
  // Those of one second take about 2 MB.
  expect(used() - before).toBeLessThan(12_000_000);
  expect(throttle.pending()).toBe(false);
});
