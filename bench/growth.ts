import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RedisServer } from '../test/redis/servers.ts';
import { type CpuShares, median, medianShares, perCall, sumOf } from './cpu.ts';
import { count, load, newWrite } from './load.ts';
import type { BenchOptions, BenchResult } from './result.ts';
import { type Gateway, openStage, type Stage } from './stage.ts';

const FEW = 1_000;
const WARM_UP = 4_000;
const ROUNDS = 7;
const CALLS = 1_000;
const CONNECTIONS = 64;

/** How many are stored between two words on how far it is. */
const STRETCH = 100_000;

/**
 * CPU of a governed write when the store holds many effects, against 1,000. Both gateways are started on what is stored
 * and warmed up with the same number of calls, then called in turns: what the compiler of JavaScript still does falls on
 * both. Their warm-up and the measured calls are stored on top: up to 11,000 more on either side.
 */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const onDisk = await grown('embedded', options.effects);
  // The other store may take as long again.
  for (const { name, value, unit, ratio } of onDisk)
    console.error(`  ${name}: ${value} ${unit}${ratio === null ? '' : `, ratio ${ratio.toFixed(2)}`}`);
  return [...onDisk, ...(await grown('Redis', options.effects))];
}

async function grown(store: 'embedded' | 'Redis', many: number): Promise<BenchResult[]> {
  const stage = await openStage();
  const disk = mkdtempSync(join(tmpdir(), 'svc-bench-growth-'));
  try {
    const small = await gatewayOn(stage, store, 'small', null);
    const redis = store === 'Redis' ? await stage.redis(['--dir', disk]) : null;
    const large = await gatewayOn(stage, store, 'large', redis);
    await fill(small, FEW);
    const before = await sizeOf(large, redis);
    await fill(large, many);
    const bytes = (await sizeOf(large, redis)) - before;
    const gateways = [large, small];
    for (const gateway of gateways) {
      await gateway.restart();
      await writes(gateway, WARM_UP);
    }
    const shares = gateways.map((): CpuShares[] => []);
    const times = gateways.map((): number[] => []);
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [index, gateway] of gateways.entries()) {
        const used = await gateway.cpu();
        times[index]?.push(await writes(gateway, CALLS));
        shares[index]?.push(perCall(used, await gateway.cpu(), CALLS));
      }
    }
    const [ofMany = {}, ofFew = {}] = shares.map(medianShares);
    const ratios = shares[0]?.map((share, round) => sumOf(share) / sumOf(shares[1]?.[round] ?? {})) ?? [];
    const [slow = 0, fast = 0] = times.map(median);
    const counted = many.toLocaleString('en');
    return [
      {
        name: `CPU of a write after ${counted} effects, ${store}`,
        value: Math.round(sumOf(ofMany)),
        unit: 'µs',
        peer: `after 1,000: ${Math.round(sumOf(ofFew))} µs; ${CALLS} writes in ${Math.round(slow)} and ${Math.round(fast)} ms`,
        ratio: median(ratios),
        target: '<= 1.1',
        cpu: { many: ofMany, few: ofFew },
      },
      {
        name: `${store === 'Redis' ? 'memory' : 'disk'} of an effect, ${store}`,
        value: Math.round(bytes / many),
        unit: 'bytes',
        peer: null,
        ratio: null,
        target: store === 'Redis' ? '<= 4000' : null,
      },
    ];
  } finally {
    await stage.stop();
    rmSync(disk, { recursive: true, force: true });
  }
}

async function gatewayOn(
  stage: Stage,
  store: 'embedded' | 'Redis',
  name: string,
  redis: RedisServer | null,
): Promise<Gateway> {
  if (store === 'embedded') return stage.gateway({ name });
  return stage.gateway({ name, redis: redis ?? (await stage.redis()) });
}

async function fill(gateway: Gateway, effects: number): Promise<void> {
  for (let stored = 0; stored < effects; stored += STRETCH) {
    const ms = await writes(gateway, Math.min(STRETCH, effects - stored));
    if (effects > STRETCH)
      console.error(`  stored ${stored + STRETCH} of ${effects}, the last in ${Math.round(ms)} ms`);
  }
}

/** @returns how long they took, ms */
async function writes({ url, key }: Gateway, calls: number): Promise<number> {
  const next = count(calls, () => newWrite(key));
  return (await load({ url, connections: CONNECTIONS, next, expected: [201] })).ms;
}

/** Bytes of the store: in Redis' memory, or in the files of the embedded store. */
async function sizeOf({ folder }: Gateway, redis: RedisServer | null): Promise<number> {
  if (redis !== null) return Number(/^used_memory:(\d+)/m.exec(await redis.client.info('memory'))?.[1] ?? 0);
  const data = join(folder, 'data');
  const files = readdirSync(data).filter((file) => file.startsWith('store.db'));
  return files.reduce((sum, file) => sum + statSync(join(data, file)).size, 0);
}
