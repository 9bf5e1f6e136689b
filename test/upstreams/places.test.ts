import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, it, vi } from 'vitest';
import { createPlaces } from '../../src/upstreams/upstreams.ts';
import { createUpstreams } from '../../src/upstreams/upstreams.ts';

afterEach(() => vi.useRealTimers());

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

it('agents that wait take turns, and callers of one agent come in their order', async () => {
  const places = createPlaces(1, 60_000);
  const got: string[] = [];
  const wait = (agent: string, name: string) =>
    Promise.resolve(places.take(agent)).then((place) => {
      got.push(name);
      return place;
    });
  const first = await places.take('a');
  const waiting = [wait('a', 'a1'), wait('a', 'a2'), wait('b', 'b1'), wait('c', 'c1')];
  first?.();
  for (const index of [0, 2, 3, 1]) (await waiting[index])?.();
  expect(got).toEqual(['a1', 'b1', 'c1', 'a2']);
  // Nobody waits any more.
  expect(await places.take('d')).not.toBeNull();
});

it('whoever waits for too long gets none, and leaves its turn to the next', async () => {
  vi.useFakeTimers();
  const places = createPlaces(1, 100);
  const held = await places.take('a');
  const early = places.take('b');
  await vi.advanceTimersByTimeAsync(50);
  const late = places.take('b');
  await vi.advanceTimersByTimeAsync(49);
  let isOver = false;
  void Promise.resolve(early).then(() => (isOver = true));
  await vi.advanceTimersByTimeAsync(0);
  expect(isOver).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(await early).toBeNull();
  // One that has given up altogether does not stand in its own way.
  const given = places.take('c');
  await vi.advanceTimersByTimeAsync(49);
  held?.();
  const place = await late;
  expect(place).not.toBeNull();
  await vi.advanceTimersByTimeAsync(100);
  expect([await given, vi.getTimerCount()]).toEqual([null, 0]);
  place?.();
  const again = places.take('c');
  await vi.advanceTimersByTimeAsync(100);
  expect(await again).not.toBeNull();
});

it('whoever was served takes nobody out of the line when the time that it had is over', async () => {
  vi.useFakeTimers();
  const places = createPlaces(1, 100);
  const held = await places.take('a');
  const first = places.take('b');
  await vi.advanceTimersByTimeAsync(50);
  const others = [places.take('b'), places.take('b')];
  held?.();
  const served = await first;
  await vi.advanceTimersByTimeAsync(50);
  served?.();
  // One after the other, and none of them waits.
  for (const other of others) {
    await vi.advanceTimersByTimeAsync(0);
    const place = await Promise.race([other, Promise.resolve('waits')]);
    expect(place).toBeTypeOf('function');
    if (typeof place === 'function') place();
  }
});

it('an agent that has its share waits, while another still gets a place', async () => {
  const places = createPlaces(4, 60_000);
  const held = [await places.take('a'), await places.take('a'), await places.take('a')];
  const fourth = Promise.resolve(places.take('a'));
  expect(await places.take('b')).not.toBeNull();
  held[0]?.();
  // It has two still, and one is free: that is for who has none.
  expect(await Promise.race([fourth, Promise.resolve('waits')])).toBe('waits');
  held[1]?.();
  expect(await fourth).not.toBeNull();
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

it('there are as many places as the configuration says now; for a tunnel nobody waits', async () => {
  const upstreams = createUpstreams([{ ...UP, connections: 1 }], LIMITS);
  const isFree = async (kind: 'calls' | 'reads' | 'tunnels', agent: string): Promise<unknown> => {
    const place = await Promise.race([upstreams.place(kind, 'up', agent), delay(50, 'waits')]);
    return typeof place === 'function' ? 'free' : place;
  };
  expect([await isFree('calls', 'a'), await isFree('calls', 'b')]).toEqual(['free', 'waits']);
  expect([await isFree('tunnels', 'a'), await isFree('tunnels', 'b')]).toEqual(['free', null]);
  // Reads are waited for as calls are, and take nothing from them.
  expect([await isFree('reads', 'a'), await isFree('reads', 'b')]).toEqual(['free', 'waits']);
  upstreams.update([{ ...UP, connections: 2 }], LIMITS);
  expect(await isFree('calls', 'c')).toBe('free');
  // Of one that is not declared any more, what comes next says so.
  expect(await upstreams.place('calls', 'gone', 'a')).toBeTypeOf('function');
  await upstreams.close();
});

it('connections of before are used on only where they lead to the same place, as many, and as far', async () => {
  const upstreams = createUpstreams([UP], LIMITS);
  const first = upstreams.stream('up');
  upstreams.update([{ ...UP }], LIMITS);
  expect(upstreams.stream('up')).toBe(first);
  const seen = [first];
  for (const change of [
    { url: 'http://127.0.0.1:10' },
    { connections: 3 },
    { network: 'public' },
    { timeoutMs: 2_000 },
  ] as const) {
    upstreams.update([{ ...UP, ...change }], LIMITS);
    expect(seen, JSON.stringify(change)).not.toContain(upstreams.stream('up'));
    seen.push(upstreams.stream('up'));
    upstreams.update([UP], LIMITS);
    seen.push(upstreams.stream('up'));
  }
  await upstreams.close();
});
