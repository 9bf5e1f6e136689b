import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type CountedRoute, countedRoute } from '../redis/counted-route.ts';
import { startRedis, startReplicated } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { type Answer, send } from './gateway.ts';
import { freshKey, refund } from './world.ts';

/** A refund through the proxied route of the upstream's API. */
function proxied(fleet: Fleet): Promise<Answer> {
  const body = { amount: 1, currency: 'EUR' };
  const headers = { 'idempotency-key': freshKey() };
  const path = `/payments/v1/payments/pay_${headers['idempotency-key']}/refunds`;
  return send(fleet.gateways[0]!.url, fleet.keys.bot, 'POST', path, body, headers);
}

type Call = (fleet: Fleet) => Promise<void>;

const DOORS: readonly (readonly [string, Call])[] = [
  ['the effects API', async (fleet) => expect((await fleet.run(0, refund({ amount: 1 }))).status).toBe(200)],
  ['a proxied route', async (fleet) => expect((await proxied(fleet)).status).toBe(201)],
];

const CALLS = 240;
const AT_ONCE = 8;

/** What a gateway asks of Redis by itself while it lives: at most so many of a kind a second (five `HKEYS` a look). */
const BY_ITSELF = 15;

/** What sweeps ask for. How often a call waits shows that it is none of its own. */
const OF_SWEEPS = 'EVALSHA list';

interface Cost {
  readonly counts: Readonly<Record<string, number>>;
  /** What the gateway may have asked for by itself meanwhile, of a kind. */
  readonly allowed: number;
}

/** Commands that calls cost, by name; those of the gateway's own rounds are left out. */
async function costOf(route: CountedRoute, call: () => Promise<void>): Promise<Cost> {
  const began = performance.now();
  route.taken();
  for (let n = 0; n < CALLS; n += AT_ONCE) await Promise.all(Array.from({ length: AT_ONCE }, call));
  const counts: Record<string, number> = {};
  for (const { name } of route.taken()) if (name !== OF_SWEEPS) counts[name] = (counts[name] ?? 0) + 1;
  const allowed = 5 + (BY_ITSELF * (performance.now() - began)) / 1000;
  // Else a command more for each call could hide among them.
  expect(allowed).toBeLessThan(CALLS);
  return { counts: Object.fromEntries(Object.entries(counts).filter(([, count]) => count > allowed)), allowed };
}

/**
 * How often a call waits for Redis: by the quickest of some, so that what the machine adds is not counted, nor a round of
 * the gateway's own that it came upon.
 * @param atMost more than this is measured again
 */
async function waitsOf(route: CountedRoute, atMost: number, call: () => Promise<void>): Promise<number> {
  const delayMs = 100;
  route.delay(delayMs);
  try {
    const measure = async (): Promise<number> => {
      const began = performance.now();
      await call();
      return performance.now() - began;
    };
    let waits = Number.POSITIVE_INFINITY;
    for (let n = 0; n < 30 && waits > atMost; n += 1) waits = Math.min(waits, Math.floor((await measure()) / delayMs));
    return waits;
  } finally {
    route.delay(0);
  }
}

describe('a governed write through a gateway on one Redis', () => {
  let fleet: Fleet;
  let route: CountedRoute;
  const closers: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    const redis = await startRedis();
    closers.push(() => redis.stop());
    route = await countedRoute(redis.port);
    closers.push(() => route.stop());
    fleet = await startFleet({ gateways: 1, store: `url: "${route.url}"` });
    closers.push(() => fleet.close());
    for (const [, call] of DOORS) await call(fleet);
  });
  afterAll(async () => {
    for (const close of closers.reverse()) await close();
  });

  it.each(DOORS)('by %s: at most two commands, one to admit and one to settle', async (_, call) => {
    const { counts, allowed } = await costOf(route, () => call(fleet));
    expect(Object.keys(counts)).toEqual(['EVALSHA commit']);
    // What is asked for at once goes there together.
    expect(counts['EVALSHA commit']).toBeLessThanOrEqual(2 * CALLS + allowed);
  });

  it.each(DOORS)('by %s: waits for Redis twice', async (_, call) => {
    expect(await waitsOf(route, 2, () => call(fleet))).toBe(2);
  });
});

describe('a governed write with durability replica', () => {
  let fleet: Fleet;
  let route: CountedRoute;
  const closers: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    const { primary, stop } = await startReplicated(1, ['--appendfsync', 'everysec']);
    closers.push(stop);
    route = await countedRoute(primary.port);
    closers.push(() => route.stop());
    fleet = await startFleet({ gateways: 1, store: `url: "${route.url}", durability: replica` });
    closers.push(() => fleet.close());
    for (const [, call] of DOORS) await call(fleet);
  });
  afterAll(async () => {
    for (const close of closers.reverse()) await close();
  });

  it.each(DOORS)('by %s: at most two commands, and a mark and WAIT for a group of them', async (_, call) => {
    const { counts, allowed } = await costOf(route, () => call(fleet));
    expect(['EVALSHA commit', 'EVALSHA note', 'WAIT']).toEqual(expect.arrayContaining(Object.keys(counts)));
    for (const count of Object.values(counts)) expect(count).toBeLessThanOrEqual(2 * CALLS + allowed);
  });

  it.each(DOORS)('by %s: waits for Redis four times, twice of them for what confirms', async (_, call) => {
    expect(await waitsOf(route, 4, () => call(fleet))).toBe(4);
  });
});
