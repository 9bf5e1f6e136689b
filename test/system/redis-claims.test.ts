import { rmSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { type EffectStore, type StoreCommits, StoreUnavailable } from '../../src/effects/store.ts';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import { openRedisStore } from '../../src/gateway/redis-store.ts';
import { admitRequest, claimRequest, committed, permit, settleRequest, WORKSPACE } from '../contract/requests.ts';
import { journalFolder, redisOptions } from '../redis/contract.ts';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';

const AT_ONCE = 256;
const GATEWAYS = 3;

let redis: RedisServer;
let folder = '';
let stores: readonly EffectStore[] = [];
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.stop());
beforeEach(async () => {
  await redis.client.flushall();
  folder = journalFolder();
  stores = await Promise.all(
    Array.from({ length: GATEWAYS }, (_, n) =>
      openRedisStore(redisOptions(redis, { gatewayId: `gw-${n}`, journalFolder: `${folder}/${n}` })),
    ),
  );
  // Each has been in the workspace, so that nothing but the claims is new to it.
  for (const store of stores) await store.pauses(WORKSPACE);
});
afterEach(async () => {
  for (const store of stores) await store.close();
  rmSync(folder, { recursive: true });
});

const storeOf = (n: number): EffectStore => {
  const store = stores[n % GATEWAYS];
  if (store === undefined) throw new Error('no store');
  return store;
};

function answered(): StoreCommits {
  const all = stores.map((store) => store.commits());
  const sum = (of: keyof StoreCommits): number => all.reduce((total, each) => total + each[of], 0);
  return { done: sum('done'), moved: sum('moved'), givenUp: sum('givenUp') };
}

/** What came of it; a step that the store had no room for is `unavailable`. */
async function kindOf(work: Promise<{ readonly kind: string }>): Promise<string> {
  try {
    return (await work).kind;
  } catch (error) {
    if (error instanceof StoreUnavailable) return 'unavailable';
    throw error;
  }
}

function tally(kinds: readonly string[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const kind of kinds) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

const atOnce = (work: (n: number) => Promise<string>): Promise<readonly string[]> =>
  Promise.all(Array.from({ length: AT_ONCE }, (_, n) => work(n)));

describe('256 at once on three gateways', () => {
  it('calls of one agent that claim a target each: none is turned away, and none is in the way of another', async () => {
    const kinds = await atOnce(async (n) => {
      const target = `customer:${n}`;
      const verdict = permit([{ kind: 'claim', rule: 'crm/one', target, hold: 'call' }]);
      const store = storeOf(n);
      let effect: EffectRecord | null = null;
      const admitted = await kindOf(
        store.admit(admitRequest({ verdict, action: { target } })).then((admission) => {
          if (admission.kind === 'dispatch') ({ effect } = admission);
          return admission;
        }),
      );
      return effect === null ? admitted : kindOf(store.settle(settleRequest(effect, committed())));
    });
    expect(tally(kinds)).toEqual({ settled: AT_ONCE });
    expect(answered()).toMatchObject({ moved: 0, givenUp: 0 });
    expect(await checkWorkspace(storeOf(0), WORKSPACE)).toEqual([]);
  });

  it('claims that one agent asks for: as many as it may have, and the others are told so', async () => {
    const ask = (n: number) => kindOf(storeOf(n).takeClaim(claimRequest(`customer:${n}`, { ttlMs: 3_600_000 })));
    expect(tally(await atOnce(ask))).toEqual({ made: 20, too_many: AT_ONCE - 20 });
    expect(answered().givenUp).toBe(0);
    expect(await checkWorkspace(storeOf(0), WORKSPACE)).toEqual([]);
  });

  it('claims that one key asks for, each for another agent: as many as it may have', async () => {
    const ask = (n: number) => kindOf(storeOf(n).takeClaim(claimRequest(`customer:${n}`, { agentId: `bot-${n}` })));
    expect(tally(await atOnce(ask))).toEqual({ made: 100, too_many: AT_ONCE - 100 });
    expect(answered().givenUp).toBe(0);
    expect(await checkWorkspace(storeOf(0), WORKSPACE)).toEqual([]);
  });

  it('agents that ask for one claim: one has it, and the others are told who', async () => {
    const begun = performance.now();
    const ask = (n: number) => kindOf(storeOf(n).takeClaim(claimRequest('customer:7', { agentId: `bot-${n}` })));
    expect(tally(await atOnce(ask))).toEqual({ made: 1, held: AT_ONCE - 1 });
    // 2 s on a machine of its own.
    expect(performance.now() - begun).toBeLessThan(20_000);
    expect(await checkWorkspace(storeOf(0), WORKSPACE)).toEqual([]);
  });

  it('claims for which what is over makes room: nobody is refused for it', async () => {
    for (let n = 0; n < 20; n += 1) await storeOf(n).takeClaim(claimRequest(`customer:${n}`, { ttlMs: 1 }));
    for (const store of stores) await until(async () => (await store.claims(WORKSPACE)).length === 0);
    const ask = (n: number) => kindOf(storeOf(n).takeClaim(claimRequest(`account:${n}`, { ttlMs: 3_600_000 })));
    expect(tally(await atOnce(ask))).toEqual({ made: 20, too_many: AT_ONCE - 20 });
    expect(await checkWorkspace(storeOf(0), WORKSPACE)).toEqual([]);
  });
});
