import { rmSync } from 'node:fs';
import { afterEach, expect, it, vi } from 'vitest';
import { beginningOf, countFrom, createStoreClock } from '../../src/stores/embedded/clock.ts';
import { openEmbeddedRows } from '../../src/stores/embedded/open.ts';
import { createStoreTime } from '../../src/stores/redis/store-time.ts';
import { storeFolder } from '../contract/embedded-store.ts';

/** What the machine says, ms. While it sleeps, the process's own count stands still, and its uptime goes on. */
const machine = vi.hoisted(() => ({ wall: 0, process: 0, up: 0 }));
vi.mock('node:os', async (original) => ({ ...(await original<object>()), uptime: () => machine.up / 1000 }));

const START = 1_750_000_000_000;
const HOUR = 3_600_000;

afterEach(() => void vi.restoreAllMocks());

function clockOf() {
  Object.assign(machine, { wall: START, process: 5_000, up: 90_000 });
  vi.spyOn(Date, 'now').mockImplementation(() => machine.wall);
  vi.spyOn(performance, 'now').mockImplementation(() => machine.process);
  return createStoreClock(START, 7 * 24 * HOUR);
}

function pass(ms: number, what: readonly (keyof typeof machine)[]): void {
  for (const name of what) machine[name] += ms;
}

it('time that the machine slept is there at once', () => {
  const clock = clockOf();
  pass(HOUR, ['wall', 'up']);
  expect(clock.now()).toBe(START + HOUR);
  pass(1_000, ['wall', 'up', 'process']);
  expect(clock.now()).toBe(START + HOUR + 1_000);
  // Once: a clock that somebody sets afterwards is no sleep.
  pass(HOUR, ['wall']);
  pass(1_000, ['wall', 'up', 'process']);
  expect(clock.now()).toBe(START + HOUR + 2_050);
});

it('a clock that is set forward or back is come nearer to by a twentieth of the time that passes', () => {
  const clock = clockOf();
  pass(HOUR, ['wall']);
  pass(1_000, ['wall', 'up', 'process']);
  expect(clock.now()).toBe(START + 1_050);
  pass(-2 * HOUR, ['wall']);
  pass(1_000, ['wall', 'up', 'process']);
  expect(clock.now()).toBe(START + 2_000);
});

it('a clock that is further ahead than is believed is not come nearer to, until it is set right', () => {
  const clock = clockOf();
  pass(8 * 24 * HOUR, ['wall']);
  for (let seconds = 1; seconds <= 3; seconds += 1) {
    pass(1_000, ['wall', 'up', 'process']);
    expect(clock.now()).toBe(START + seconds * 1_000);
    expect(clock.ahead()).toBeGreaterThan(7 * 24 * HOUR);
  }
  pass(-8 * 24 * HOUR, ['wall']);
  pass(1_000, ['wall', 'up', 'process']);
  expect([clock.now(), clock.ahead()]).toEqual([START + 4_000, 0]);
});

it.each([
  ['as the clock says, after the machine was off', null, 2 * HOUR, START + 2 * HOUR],
  ['as the machine counted while it stayed up, whatever the clock says', START + HOUR, 2 * HOUR, START + HOUR],
  ['as on record, where the clock is behind', null, -HOUR, START],
  ['as on record, where it counted less', START - HOUR, 2 * HOUR, START],
  ['up to the bound', null, 3 * HOUR, START + 3 * HOUR],
  ['not beyond the bound', null, 3 * HOUR + 1, null],
  ['not beyond the bound, from what it counted on', START + HOUR, 4 * HOUR + 1, null],
  ['up to the bound, from what it counted on', START + HOUR, 4 * HOUR, START + HOUR],
])('a start takes it to be as late %s', (_, counted, wall, time) => {
  clockOf();
  pass(wall, ['wall']);
  expect(beginningOf(START, counted, 3 * HOUR)).toMatchObject(
    time === null ? { kind: 'ahead' } : { kind: 'believed', time },
  );
});

it('a machine that was restored from an earlier snapshot has counted nothing since', () => {
  const seen = clockOf().seen();
  pass(1_000, ['wall', 'up', 'process']);
  expect(countFrom(seen)).toBe(START + 1_000);
  machine.up = 30_000;
  expect(countFrom(seen)).toBeNull();
  expect(countFrom(null)).toBeNull();
});

it('a clock of the caller that is behind the store goes on from the store’s time', async () => {
  const path = storeFolder();
  const openAt = (time: number) => openEmbeddedRows({ path, lockWaitMs: 0, worker: 'never', clock: () => time });
  await (await openAt(START)).close();
  const store = await openAt(START - HOUR);
  expect(store.now()).toBeGreaterThan(START);
  await store.close();
  rmSync(path, { recursive: true });
});

const WEEK = 7 * 24 * HOUR;

function timeOfRedis() {
  clockOf();
  const time = createStoreTime(undefined, WEEK);
  expect([time.estimate(), time.argument()]).toEqual([null, `?/${WEEK}`]);
  time.observe(START);
  return time;
}

it('the time of a Redis server goes on as this machine counts it, its sleep included, and never back', () => {
  const time = timeOfRedis();
  pass(1_000, ['wall', 'process', 'up']);
  expect([time.now(), time.argument()]).toEqual([START + 1_000, `~${START + 1_000}/${WEEK}`]);
  pass(HOUR, ['wall', 'up']);
  expect(time.now()).toBe(START + 1_000 + HOUR);
  time.observe(START);
  expect([time.estimate(), time.now()]).toEqual([START, START + 1_000 + HOUR]);
});

it('a recorded time is gone on from where it is later by more than five seconds, and renewed after ten', () => {
  const time = timeOfRedis();
  expect(time.isStale('w', START + 5_000, START + 5_000)).toBe(false);
  expect(time.estimate()).toBe(START);
  expect(time.isStale('w', START + 5_001, START + 5_001)).toBe(false);
  expect(time.estimate()).toBe(START + 5_001);
  expect(time.isStale('w', START + 1, START + 10_001)).toBe(false);
  expect(time.isStale('w', START, START + 10_001)).toBe(true);
  expect(time.isStale('w', 0, START + 10_001)).toBe(false);
});

it('a server whose clock is more than a week ahead is not believed, until it is set right', () => {
  const time = timeOfRedis();
  time.isStale('w', START, START + WEEK);
  expect(time.problem()).toBeNull();
  expect(time.isStale('w', START, START + WEEK + 1)).toBe(false);
  expect(time.problem()).toContain('The clock of the Redis server says');
  time.observe(START + WEEK + 1);
  expect(time.estimate()).toBe(START);
  time.isStale('other', START, START);
  expect(time.problem()).not.toBeNull();
  time.isStale('w', START, START);
  expect(time.problem()).toBeNull();
});

it('a server that is not believed from the start has the known time, and what is told of it does not change', () => {
  clockOf();
  const time = createStoreTime(undefined, WEEK);
  time.disbelieve('w', START, START + 2 * WEEK);
  expect([time.now(), time.argument()]).toEqual([START, `?${START}/${WEEK}`]);
  const problem = time.problem();
  time.disbelieve('w', START + 1_000, START + 2 * WEEK + 1_000);
  expect([time.problem(), time.now()]).toEqual([problem, START + 1_000]);
});

it('sleep is noticed at once where the wall clock shows it, else with the next look at the uptime', () => {
  const time = timeOfRedis();
  expect(time.now()).toBe(START);
  pass(50, ['process', 'wall', 'up']);
  pass(HOUR, ['wall', 'up']);
  expect(time.now()).toBe(START + 50 + HOUR);
  // A wall clock that does not show it: somebody has set it back meanwhile.
  pass(HOUR, ['up']);
  pass(99, ['process', 'wall', 'up']);
  expect(time.now()).toBe(START + 149 + HOUR);
  pass(1, ['process', 'wall', 'up']);
  expect(time.now()).toBe(START + 150 + 2 * HOUR);
  // What is less than the clocks' resolution is none.
  pass(400, ['up']);
  pass(100, ['process', 'wall', 'up']);
  expect(time.now()).toBe(START + 250 + 2 * HOUR);
});
