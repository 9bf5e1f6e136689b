import { median } from './cpu.ts';
import { count, load, newWrite } from './load.ts';
import type { BenchResult } from './result.ts';
import { type Measured, openStage } from './stage.ts';

const ROUNDS = 15;
const CALLS = 200;
const WARM_UP = 3_000;
const ON_DISK = 'the embedded store, both syncs';
const LEAST = 'what cannot be left out, and nothing else';

/**
 * What governing adds to a call when there is one caller, who waits for each answer: the median time of a write, less
 * that through the ungoverned proxy. The embedded store syncs the admission and the settlement before it goes on.
 */
export async function run(): Promise<BenchResult[]> {
  const stage = await openStage();
  try {
    const proxy = await stage.proxy();
    const embedded = await stage.gateway({ name: 'embedded' });
    const redis = await stage.gateway({ name: 'redis', redis: await stage.redis() });
    const servers = [proxy, embedded, redis, await stage.floor()];
    for (const server of servers) await timeOf(server, WARM_UP);
    const medians = servers.map((): number[] => []);
    // In turns, so that whatever else the machine does falls on all.
    for (let round = 0; round < ROUNDS; round += 1)
      for (const [index, server] of servers.entries()) medians[index]?.push(await timeOf(server, CALLS));
    const [ofProxy = 0, ...others] = medians.map(median);
    return [ON_DISK, 'Redis, durability local', LEAST].map((what, index) => {
      const whole = others[index] ?? Number.NaN;
      return {
        name: `one caller: p50 added to the ungoverned proxy by ${what}`,
        value: Number((whole - ofProxy).toFixed(2)),
        unit: 'ms',
        peer: `a write ${whole.toFixed(2)} ms, through @fastify/http-proxy ${ofProxy.toFixed(2)} ms`,
        ratio: null,
        target: what === LEAST ? null : '<= 1',
      };
    });
  } finally {
    await stage.stop();
  }
}

/** The median of so many calls, one after the other, ms. */
async function timeOf({ url, key }: Measured, calls: number): Promise<number> {
  const next = count(calls, () => newWrite(key));
  return median((await load({ url, connections: 1, next, expected: [201] })).times);
}
