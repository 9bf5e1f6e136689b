import { once } from 'node:events';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { EFFECTS, effectRows } from '../src/records/effect-rows.ts';
import { firstOf } from '../src/records/lists.ts';
import { createStepRunner } from '../src/records/runner.ts';
import { openEmbeddedRows } from '../src/stores/embedded/open.ts';
import type { OpenRows } from '../src/stores/open-rows.ts';
import { openRedisRows } from '../src/stores/redis/rows/open.ts';
import type { RedisServer } from '../test/redis/servers.ts';
import { type CpuShares, median, medianShares, perCall } from './cpu.ts';
import type { ListerData } from './lister-load.ts';
import { count, during, load, newWrite } from './load.ts';
import type { BenchOptions, BenchResult } from './result.ts';
import { type Gateway, openStage } from './stage.ts';

/** At most; `--effects` may say fewer. */
const MOST_EFFECTS = 200_000;
const LISTERS = 8;
const ROUNDS = 3;
const ROUND_MS = 2_000;
const WARM_UP = 1_000;

/** How many effects one change stores. */
const AT_ONCE = 500;

/** What callers keep of their calls while eight readers list 200,000 effects as fast as they can. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const effects = Math.min(options.effects, MOST_EFFECTS);
  const stage = await openStage();
  try {
    const results: BenchResult[] = [];
    for (const redis of [null, await stage.redis()]) {
      const name = redis === null ? 'embedded' : 'redis';
      const gateway = await stage.gateway(redis === null ? { name } : { name, redis });
      await writes(
        gateway,
        64,
        count(1, () => newWrite(gateway.key)),
      );
      const begun = performance.now();
      await gateway.restart(() => fill(gateway, redis, effects));
      console.error(`  stored ${effects} in ${Math.round(performance.now() - begun)} ms`);
      await writes(
        gateway,
        64,
        count(WARM_UP, () => newWrite(gateway.key)),
      );
      for (const callers of [1, 16]) {
        const result = await besideListers(gateway, callers, effects);
        console.error(`  ${result.name}: ${result.ratio?.toFixed(2)}`);
        results.push(result);
      }
      await gateway.stop();
    }
    return results;
  } finally {
    await stage.stop();
  }
}

async function besideListers(gateway: Gateway, callers: number, effects: number): Promise<BenchResult> {
  const alone: number[] = [];
  const beside: number[] = [];
  const lists: number[] = [];
  const shares: { alone: CpuShares[]; beside: CpuShares[] } = { alone: [], beside: [] };
  const round = async (found: number[], used: CpuShares[]): Promise<void> => {
    const before = await gateway.cpu();
    const calls = await writes(
      gateway,
      callers,
      during(ROUND_MS, () => newWrite(gateway.key)),
    );
    used.push(perCall(before, await gateway.cpu(), calls));
    found.push(calls);
  };
  for (let index = 0; index < ROUNDS; index += 1) {
    await round(alone, shares.alone);
    const listing = list(gateway);
    await round(beside, shares.beside);
    lists.push(await listing);
  }
  const ratios = beside.map((calls, index) => calls / (alone[index] ?? Number.NaN));
  return {
    name: `calls of ${callers} at a time beside ${LISTERS} listers of ${effects.toLocaleString('en')} effects, ${gateway.name}`,
    value: median(beside),
    unit: `calls in ${ROUND_MS / 1000} s`,
    peer: `without listers ${median(alone)}; ${median(lists)} lists`,
    ratio: median(ratios),
    target: '>= 0.8',
    cpu: { 'without listers': medianShares(shares.alone), 'with listers': medianShares(shares.beside) },
  };
}

async function writes({ url }: Gateway, connections: number, next: () => string | null): Promise<number> {
  return (await load({ url, connections, next, expected: [201] })).calls;
}

/** @returns how many lists were answered */
async function list({ url, key }: Gateway): Promise<number> {
  const workerData: ListerData = { url, key, listers: LISTERS, ms: ROUND_MS };
  const worker = new Worker(new URL('./lister-load.js', import.meta.url), { workerData });
  const [calls]: unknown[] = await once(worker, 'message');
  return Number(calls);
}

/** Stores copies of the one effect that is there, each a millisecond older. */
async function fill({ folder }: Gateway, redis: RedisServer | null, effects: number): Promise<void> {
  const store = await openRows(folder, redis);
  try {
    const asked = { workspace: 'bench', list: EFFECTS, kind: effectRows.kind };
    const [entry] = await firstOf(store, asked, 1);
    const stored = entry === undefined ? null : effectRows.of(entry.row);
    if (stored?.kind !== 'effect') throw new Error('there is no effect to copy');
    const { effect } = stored;
    const runner = createStepRunner(store);
    for (let first = 0; first < effects; first += AT_ONCE) {
      await runner.run('bench', (draft) => {
        for (let n = first; n < first + AT_ONCE; n += 1) {
          const id = `eff_${String(n).padStart(26, '0')}`;
          const copy = { ...effect, id, idempotencyKey: `copy-${n}`, createdAt: effect.createdAt - n };
          effectRows.put(draft, id, { kind: 'effect', effect: copy });
        }
      });
    }
    await runner.close();
  } finally {
    await store.close();
  }
}

function openRows(folder: string, redis: RedisServer | null): Promise<OpenRows> {
  if (redis === null) return openEmbeddedRows({ path: join(folder, 'data'), lockWaitMs: 5_000, worker: 'never' });
  return openRedisRows({
    mode: 'standalone',
    url: redis.url,
    nodes: [],
    durability: 'local',
    allowWeakDurability: true,
    journalFolder: join(folder, 'filler'),
    gatewayId: 'filler',
    operatorEvent: (kind) => kind,
  });
}
