import { expect, it } from 'vitest';
import { createPlaces } from '../../src/upstreams/places.ts';
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
