import { expect, it } from 'vitest';
import { createPlaces } from '../../src/upstreams/upstreams.ts';
import { createUpstreams } from '../../src/upstreams/upstreams.ts';

it('a place that is given back twice is free once', async () => {
  const places = createPlaces(2, 0);
  const first = await places.take('a');
  const second = await places.take('b');
  first?.();
  first?.();
  expect(await places.take('c')).not.toBeNull();
  expect(await places.take('d')).toBeNull();
  second?.();
  expect(await places.take('d')).not.toBeNull();
});

it.each([2, 3, 4, 5, 8, 13, 100])(
  'of %i places one agent gets no more than three quarters, and never the last',
  async (total) => {
    const places = createPlaces(total, 0);
    const takeAll = async (agent: string): Promise<number> => {
      let count = 0;
      while ((await places.take(agent)) !== null) count += 1;
      return count;
    };
    const first = await takeAll('a');
    expect(first).toBeGreaterThan(0);
    expect(first).toBeLessThanOrEqual((total * 3) / 4);
    const second = await takeAll('b');
    expect(second).toBeGreaterThan(0);
    expect(second).toBeLessThanOrEqual(Math.max(1, ((total - first) * 3) / 4));
  },
);

const UP = {
  id: 'up',
  url: 'http://127.0.0.1:9',
  timeoutMs: 1_000,
  connections: 2,
  network: 'any',
  credentials: null,
} as const;
const LIMITS = { responseBytes: 1_000, responseKeptBytes: 1_000 };

it('what runs keeps its place when the configuration is taken on anew', async () => {
  const upstreams = createUpstreams([UP], LIMITS);
  const take = (agent: string) => upstreams.place('tunnels', 'up', agent);
  const held = [await take('a'), await take('b')];
  upstreams.update([{ ...UP, timeoutMs: 2_000 }], LIMITS);
  expect(await take('c')).toBeNull();
  held[0]?.();
  expect(await take('c')).not.toBeNull();
  await upstreams.close();
});
