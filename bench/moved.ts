import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { EffectStore } from '../src/effects/store.ts';
import type { Obligation } from '../src/effects/model/verdict.ts';
import { openEmbeddedStore } from '../src/gateway/embedded-store.ts';
import { openRedisStore } from '../src/gateway/redis-store.ts';
import { admitRequest, budgetOf, claimRequest, committed, permit, settleRequest } from '../test/contract/requests.ts';
import { KEY_SEALS } from '../test/identity/key-seals.ts';
import { redisOptions } from '../test/redis/contract.ts';
import { startRedis } from '../test/redis/servers.ts';
import type { BenchResult } from './result.ts';

const GATEWAYS = 3;
const AGENTS = 256;
const MEASURE_MS = 3_000;
/** Calls under way at a time where traffic is ordinary. */
const ORDINARY = 64;
/** Of a hundred ordinary calls so many claim one of the targets that all share. */
const CLAIMING = 5;
const SHARED_TARGETS = 1_000;
const TEAMS = 16;
const ROUNDS = 5;

/**
 * How often gateways are in each other's way: the part of changes to which the store answers `moved`, so that the step
 * is run again; and how long the last of 256 agents waits that want one claim at once.
 */
export async function run(): Promise<BenchResult[]> {
  return [
    ...(await onRedis(async (stores) => [
      await part('ordinary traffic, 1 % repeated elsewhere', stores, '< 1', ORDINARY, ordinaryCall('once', 1)),
      await part('the same, 10 % repeated elsewhere', stores, null, ORDINARY, ordinaryCall('again', 10)),
      await part('256 agents on one budget tree', stores, '< 5', AGENTS, treeCall(1_000_000_000)),
      await part('256 calls of one agent, each with a claim', stores, '< 1', AGENTS, claimingCall),
      await part('256 agents on a budget tree that is used up', stores, null, AGENTS, treeCall(100)),
      await oneClaim(`${GATEWAYS} gateways on Redis`, stores),
    ])),
    ...(await onEmbedded(async (store) => [
      await part('256 calls of one agent, each with a claim, embedded', [store], '< 1', AGENTS, claimingCall),
      await oneClaim('the embedded store', [store]),
    ])),
  ];
}

type Call = (store: EffectStore, caller: number, n: number) => Promise<void>;

async function admitAndSettle(store: EffectStore, request: Parameters<typeof admitRequest>[0]): Promise<void> {
  const admission = await store.admit(admitRequest(request));
  if (admission.kind === 'dispatch') await store.settle(settleRequest(admission.effect, committed()));
}

const agentOf = (caller: number) => ({ actor: { agentId: `bot-${caller}` } });

/**
 * Calls of agents with budgets of their own and one that all share.
 * @param repeated of a hundred calls so many have a key that was used before, mostly through another gateway: there the
 *   key is taken for free first, so each is `moved` once
 */
function ordinaryCall(name: string, repeated: number): Call {
  const keys: string[] = [];
  return async (store, caller, n) => {
    const fresh = `${name}-${caller}-${n}`;
    const chance = (caller * 31 + n * 17) % 100;
    const obligations: Obligation[] = [
      budgetOf(Number.MAX_SAFE_INTEGER, 1, { budget: 'payments/agent', bucket: `["bot-${caller}"]` }),
      budgetOf(Number.MAX_SAFE_INTEGER, 1, { budget: 'payments/all', bucket: '[]', sharing: 'shared' }),
    ];
    const target = `customer:${(caller * 7919 + n * 104_729) % SHARED_TARGETS}`;
    if (chance < CLAIMING) obligations.push({ kind: 'claim', rule: 'crm/one', target, hold: 'call' });
    const known = chance >= 100 - repeated ? keys[Math.floor(keys.length / 2)] : undefined;
    await admitAndSettle(store, {
      idempotencyKey: known ?? fresh,
      verdict: permit(obligations),
      ...agentOf(caller),
    });
    keys.push(fresh);
  };
}

function treeCall(limit: number): Call {
  const level = (budget: string, bucket: string, most: number): Obligation =>
    budgetOf(most, 1, { budget: `tree-${limit}/${budget}`, bucket, sharing: 'shared' });
  return (store, caller) =>
    admitAndSettle(store, {
      verdict: permit([
        level('agent', `["bot-${caller}"]`, limit),
        level('team', `["team-${caller % TEAMS}"]`, limit),
        level('department', `["department-${caller % 2}"]`, limit),
        level('all', '[]', limit),
      ]),
      ...agentOf(caller),
    });
}

const claimingCall: Call = (store, caller, n) => {
  const target = `own:${caller}:${n}`;
  const verdict = permit([{ kind: 'claim', rule: 'crm/one', target, hold: 'call' }]);
  return admitAndSettle(store, { verdict, action: { target } });
};

/** The part of changes that moved, of so many callers that each call again and again, each on one gateway. */
async function part(
  name: string,
  stores: readonly EffectStore[],
  target: string | null,
  callers: number,
  call: Call,
): Promise<BenchResult> {
  const before = total(stores);
  const end = performance.now() + MEASURE_MS;
  const caller = async (index: number): Promise<void> => {
    const store = stores[index % stores.length];
    for (let n = 0; store !== undefined && performance.now() < end; n += 1) await call(store, index, n);
  };
  await Promise.all(Array.from({ length: callers }, (_, index) => caller(index)));
  const after = total(stores);
  const moved = after.moved - before.moved;
  const all = moved + after.done - before.done;
  return {
    name: `moved: ${name}`,
    value: Number(((100 * moved) / all).toFixed(2)),
    unit: `% of ${all} changes (${after.givenUp - before.givenUp} given up)`,
    peer: null,
    ratio: null,
    target,
  };
}

function total(stores: readonly EffectStore[]): {
  readonly done: number;
  readonly moved: number;
  readonly givenUp: number;
} {
  const sum = { done: 0, moved: 0, givenUp: 0 };
  for (const store of stores) {
    const { done, moved, givenUp } = store.commits();
    sum.done += done;
    sum.moved += moved;
    sum.givenUp += givenUp;
  }
  return sum;
}

/** How long the last one waits, in the worst of some rounds: half of the agents ask for the claim, half send a call. */
async function oneClaim(where: string, stores: readonly EffectStore[]): Promise<BenchResult> {
  let longest = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const target = `wanted:${where}:${round}`;
    const verdict = permit([{ kind: 'claim', rule: 'crm/one', target, hold: 'call' }]);
    await Promise.all(
      Array.from({ length: AGENTS }, async (_, n) => {
        const store = stores[n % stores.length];
        const begun = performance.now();
        if (n % 2 === 0) await store?.takeClaim(claimRequest(target, { agentId: `bot-${n}`, keyId: `key_${n}` }));
        else await store?.admit(admitRequest({ verdict, action: { target }, ...agentOf(n) }));
        longest = Math.max(longest, performance.now() - begun);
      }),
    );
  }
  return {
    name: `a claim that ${AGENTS} agents want at once, ${where}: the last answer`,
    value: Math.round(longest),
    unit: 'ms',
    peer: null,
    ratio: null,
    target: '<= 2000',
  };
}

async function onRedis<T>(work: (stores: readonly EffectStore[]) => Promise<T>): Promise<T> {
  const redis = await startRedis();
  const folder = mkdtempSync(join(tmpdir(), 'svc-bench-moved-'));
  const stores: EffectStore[] = [];
  try {
    for (let n = 0; n < GATEWAYS; n += 1)
      stores.push(
        await openRedisStore(redisOptions(redis, { gatewayId: `gw-${n}`, journalFolder: join(folder, `${n}`) })),
      );
    return await work(stores);
  } finally {
    for (const store of stores) await store.close();
    await redis.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function onEmbedded<T>(work: (store: EffectStore) => Promise<T>): Promise<T> {
  const path = mkdtempSync(join(tmpdir(), 'svc-bench-moved-'));
  const retention = { keysMs: null, effectsMs: 30 * 86_400_000, denialsMs: 7 * 86_400_000 };
  const store = await openEmbeddedStore({ path, lockWaitMs: 0, retention, keySeals: KEY_SEALS, worker: 'auto' });
  try {
    return await work(store);
  } finally {
    await store.close();
    rmSync(path, { recursive: true, force: true });
  }
}
