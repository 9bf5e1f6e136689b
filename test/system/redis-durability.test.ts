import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openRedisStore, type RedisStore, type RedisStoreOptions } from '../../src/gateway/redis-store.ts';
import {
  admitRequest,
  budgetOf,
  committed,
  dispatched,
  keyRecord,
  pauseRequest,
  permit,
  settleRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { RedisStoreSettings } from '../../src/config/configuration.ts';
import { openForCommand } from '../../src/gateway/redis-for-commands.ts';
import { RETENTION } from '../contract/fixture.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { redisOptions } from '../redis/contract.ts';
import { keepingRoute } from '../redis/keeping-route.ts';
import { type RedisServer, startRedis, startReplicated, until } from '../redis/servers.ts';
import { shortest } from '../shortest.ts';

let folder = '';
const closers: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-redis-durability-'));
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
  rmSync(folder, { recursive: true });
});

async function server(settings: readonly string[] = []): Promise<RedisServer> {
  const started = await startRedis(settings);
  closers.push(() => started.stop());
  return started;
}

async function open(of: RedisServer, more: Partial<RedisStoreOptions> = {}): Promise<RedisStore> {
  const store = await openRedisStore(
    redisOptions(of, { journalFolder: join(folder, more.gatewayId ?? 'gw-1'), ...more }),
  );
  closers.push(() => store.close());
  return store;
}

/** Milliseconds that a step takes to be refused. */
async function refusedAfter(store: RedisStore): Promise<number> {
  const began = performance.now();
  await expect(store.admit(admitRequest())).rejects.toMatchObject({ name: 'StoreUnavailable' });
  return performance.now() - began;
}

describe('start-up', () => {
  it.each([
    [['--maxmemory-policy', 'allkeys-lru'], 'noeviction'],
    [['--appendonly', 'no'], 'appendonly yes'],
    [['--appendfsync', 'everysec'], 'appendfsync'],
  ])('refuses a server started with %s', async (settings, word) => {
    const of = await server(settings);
    await expect(open(of)).rejects.toThrow(word);
  });

  it('refuses durability replica without a replica, and local unless weakness is allowed', async () => {
    const of = await server(['--appendfsync', 'everysec']);
    await expect(open(of, { durability: 'replica' })).rejects.toThrow('needs a replica');
    await expect(open(of, { durability: 'local' })).rejects.toThrow('allow_weak_durability');
    const weak = await open(of, { durability: 'local', allowWeakDurability: true });
    expect(weak.health()).toMatchObject({ ready: true, durability: 'local' });
  });

  it('rejects where nobody listens', async () => {
    const of = await server();
    await of.kill();
    await expect(open(of)).rejects.toThrow();
  });
});

describe('a governed call', () => {
  it('is two round trips: one to admit, one to settle', async () => {
    const of = await server();
    const store = await open(of);
    const { effect } = await dispatched(store);
    await store.settle(settleRequest(effect, committed()));
    const callsOfTwenty = async (): Promise<number> => {
      const before = await scriptCalls(of);
      for (let n = 0; n < 20; n += 1) {
        const admission = await dispatched(store);
        await store.settle(settleRequest(admission.effect, committed()));
      }
      return (await scriptCalls(of)) - before;
    };
    // What a gateway writes by itself once in a while (the time on record) may come between.
    expect(await shortest(41, callsOfTwenty)).toBe(40);
  });
});

async function saved(of: RedisServer, how: 'ok' | 'err'): Promise<void> {
  await of.client.bgsave();
  await until(async () => {
    const info = await of.client.info('persistence');
    return info.includes('rdb_bgsave_in_progress:0') && info.includes(`rdb_last_bgsave_status:${how}`);
  });
}

async function scriptCalls(of: RedisServer): Promise<number> {
  const stats = await of.client.info('commandstats');
  return [...stats.matchAll(/cmdstat_(?:evalsha|eval):calls=(\d+)/g)].reduce(
    (sum, [, calls]) => sum + Number(calls),
    0,
  );
}

describe('a store that cannot be reached', () => {
  it('refuses at once after the first answer that does not come, and recovers by itself', async () => {
    const of = await server();
    const store = await open(of);
    const first = await shortest(1600, async () => {
      of.signal('SIGCONT');
      await until(async () => (await store.admit(admitRequest())).kind === 'dispatch');
      await until(() => store.health().ready);
      of.signal('SIGSTOP');
      return refusedAfter(store);
    });
    expect(first).toBeLessThan(1600);
    await until(() => !store.health().ready);
    expect(await shortest(100, () => refusedAfter(store))).toBeLessThan(100);
    of.signal('SIGCONT');
    await until(async () => (await store.admit(admitRequest())).kind === 'dispatch');
    await until(() => store.health().ready);
  });

  it('admitted what it never answered: that ends as not dispatched, and its key and budget are free', async () => {
    const of = await server();
    const store = await open(of);
    await dispatched(store);
    of.signal('SIGSTOP');
    const requests = Array.from({ length: 5 }, () => admitRequest({ verdict: permit([budgetOf(1000, 10)]) }));
    const answers = await Promise.allSettled(requests.map((request) => store.admit(request)));
    expect(answers.map(({ status }) => status)).toEqual(requests.map(() => 'rejected'));
    of.signal('SIGCONT');
    for (const { effectId } of requests) {
      await until(async () => (await store.effect(WORKSPACE, effectId))?.life.state === 'failed');
    }
    expect((await store.budgets(WORKSPACE)).filter(({ held }) => held > 0)).toEqual([]);
    for (const request of requests) {
      expect(await store.admit({ ...request, nonce: `${request.nonce}.again` })).toMatchObject({ kind: 'dispatch' });
    }
  });

  it('is restarted: nothing is lost, and it goes on in the next epoch', async () => {
    const of = await server();
    const store = await open(of);
    const { effect } = await dispatched(store, { idempotencyKey: 'k' });
    await of.restart();
    await until(async () => (await store.admit(admitRequest())).kind === 'dispatch');
    expect(await store.admit(admitRequest({ idempotencyKey: 'k' }))).toMatchObject({
      kind: 'existing',
      effect: { id: effect.id },
    });
    expect(await store.settle(settleRequest(effect, committed()))).toMatchObject({ kind: 'settled' });
    expect((await dispatched(store)).ledger.epoch).toBeGreaterThan(1);
  });

  it.each([
    {
      of: 'its memory (OOM)',
      settings: [],
      fill: (of: RedisServer) => of.client.config('SET', 'maxmemory', '1'),
      empty: (of: RedisServer) => of.client.config('SET', 'maxmemory', '0'),
    },
    {
      of: 'the disk of its snapshots (MISCONF)',
      settings: ['--save', '3600 1000000', '--dbfilename', 'dump'],
      async fill(of: RedisServer) {
        // A snapshot takes no place where a folder is.
        mkdirSync(join(of.folder, 'dump'));
        await saved(of, 'err');
      },
      async empty(of: RedisServer) {
        rmSync(join(of.folder, 'dump'), { recursive: true });
        await saved(of, 'ok');
      },
    },
  ])('is full, $of: refuses, says so, and recovers when there is room', async ({ settings, fill, empty }) => {
    const of = await server(settings);
    const store = await open(of);
    const { effect } = await dispatched(store);
    await fill(of);
    await refusedAfter(store);
    // Reads that it still answers do not make it ready: calls would be taken that nothing can be recorded of.
    expect(await store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'executing' } });
    expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_full' } });
    await empty(of);
    expect(await store.settle(settleRequest(effect, committed()))).toMatchObject({ kind: 'settled' });
    await until(() => store.health().ready);
  });

  it('has become read-only: refuses', async () => {
    const { primary, replicas, stop } = await startReplicated(1);
    closers.push(stop);
    const store = await open(primary);
    await dispatched(store);
    await primary.client.call('REPLICAOF', '127.0.0.1', replicas[0]?.port ?? 0);
    await refusedAfter(store);
    await until(() => !store.health().ready);
  });
});

describe('durability replica', () => {
  const replica = { durability: 'replica' } as const;

  it('acknowledges what a replica has', async () => {
    const { primary, replicas, stop } = await startReplicated(1, ['--appendfsync', 'everysec']);
    closers.push(stop);
    const store = await open(primary, replica);
    for (let n = 0; n < 10; n += 1) {
      const { effect } = await dispatched(store);
      // The very moment it is acknowledged, the replica has it.
      const there = await replicas[0]?.client.exists(`svc:{${WORKSPACE}}:r:effect:${effect.id}`);
      expect(there).toBe(1);
    }
  });

  it('lets no call leave while a replica is frozen, and says that nothing was sent', async () => {
    const { primary, replicas, stop } = await startReplicated(1, ['--appendfsync', 'everysec']);
    closers.push(stop);
    const store = await open(primary, replica);
    await dispatched(store);
    const [frozen] = replicas;
    frozen?.signal('SIGSTOP');
    const requests = Array.from({ length: 5 }, () => admitRequest());
    const answers = await Promise.allSettled(requests.map((request) => store.admit(request)));
    expect(answers.map(({ status }) => status)).toEqual(requests.map(() => 'rejected'));
    // Not only for the moment: as long as nothing can be confirmed.
    for (let n = 0; n < 10; n += 1) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(store.health()).toMatchObject({ ready: false, problem: { message: expect.stringContaining('replicas') } });
    }
    frozen?.signal('SIGCONT');
    await until(() => store.health().ready);
    await until(async () => (await store.admit(admitRequest())).kind === 'dispatch');
    // The same call again is an attempt of its own at once.
    const [again] = requests;
    expect(await store.admit({ ...again!, nonce: 'again', effectId: 'eff_again' })).toMatchObject({
      kind: 'dispatch',
      effect: { attempt: 2 },
    });
    for (const { effectId } of requests.slice(1)) {
      let effect: EffectRecord | null = null;
      await until(async () => {
        effect = await store.effect(WORKSPACE, effectId);
        return effect?.life.state !== 'executing';
      });
      expect(effect).toMatchObject({ life: { state: 'failed', evidence: { code: 'not_dispatched' } } });
    }
  });

  it('counts a replica that is gone, for it may still be elected', async () => {
    const { primary, replicas, stop } = await startReplicated(2, ['--appendfsync', 'everysec']);
    closers.push(stop);
    const store = await open(primary, replica);
    await dispatched(store);
    const [gone] = replicas;
    await gone?.kill();
    await refusedAfter(store);
    const before = await waits(primary);
    // Not only in the round after which they are counted again.
    await until(async () => store.health().ready || (await waits(primary)) > before + 2);
    expect(store.health()).toMatchObject({
      ready: false,
      problem: { message: expect.stringContaining('1 of 2 replicas') },
    });
    await gone?.start();
    await until(() => store.health().ready);
  });

  it('is not ready either where what is read shows it before something is written', async () => {
    const { primary, replicas, stop } = await startReplicated(1, ['--appendfsync', 'everysec']);
    closers.push(stop);
    const store = await open(primary, replica);
    await dispatched(store);
    await replicas[0]?.kill();
    const released = store.releaseClaim(WORKSPACE, 'clm_unknown', { type: 'user', id: 'olga' });
    await expect(released).rejects.toMatchObject({ name: 'StoreUnavailable' });
    expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_unavailable' } });
  });

  it('stops a pause and a revocation from being answered before a replica has them', async () => {
    const { primary, replicas, stop } = await startReplicated(1, ['--appendfsync', 'everysec']);
    closers.push(stop);
    const store = await open(primary, replica);
    await dispatched(store);
    replicas[0]?.signal('SIGSTOP');
    const pause = store.setPause(pauseRequest({ id: 'pau_1', reason: 'stop' }));
    await expect(pause).rejects.toMatchObject({ name: 'StoreUnavailable' });
    replicas[0]?.signal('SIGCONT');
  });
});

/** How often a primary was asked to wait for its replicas. */
async function waits(of: RedisServer): Promise<number> {
  return Number(/cmdstat_wait:calls=(\d+)/.exec(await of.client.info('commandstats'))?.[1] ?? 0);
}

/** So many a gateway has under way at once; the others wait for their place. */
const AT_ONCE = 500;

describe('ten thousand with one key, as many at once as a gateway has under way', () => {
  it('are one call, and a handful of writes', async () => {
    const store = await open(await server());
    const wave = () =>
      Promise.all(Array.from({ length: AT_ONCE }, () => store.admit(admitRequest({ idempotencyKey: 'storm' }))));
    const answers = await wave();
    const sent = answers.filter(({ kind }) => kind === 'dispatch');
    expect(sent).toHaveLength(1);
    const [first] = sent;
    if (first?.kind !== 'dispatch') throw new Error('one is sent');
    await store.settle(settleRequest(first.effect, committed()));
    const written = (await store.ledger(WORKSPACE, 0, 10_000)).length;
    const began = performance.now();
    for (let waves = 1; waves < 10_000 / AT_ONCE; waves += 1)
      expect((await wave()).every(({ kind }) => kind === 'existing')).toBe(true);
    // Ten a second are written one by one, and then a count; on a busy machine it takes some seconds.
    const seconds = (performance.now() - began) / 1000;
    expect((await store.ledger(WORKSPACE, 0, 10_000)).length - written).toBeLessThan(30 + 15 * seconds);
  });
});

describe('a clock of the server that was set', () => {
  it('forward: time goes on from what the gateway saw, so that no lease ends early; then it comes right', async () => {
    const of = await server();
    const store = await open(of);
    const { effect } = await dispatched(store);
    const meta = `svc:{${WORKSPACE}}:w`;
    // The same as a clock set forward: the server's time plus what is on record is an hour ahead.
    await of.client.hset(meta, 'skew', 3_600_000);
    const { effect: next } = await dispatched(store);
    expect(next.createdAt - effect.createdAt).toBeLessThan(10_000);
    expect(await store.sweep(100)).toMatchObject({ lost: 0 });
    expect(Math.abs(Number(await of.client.hget(meta, 'skew')))).toBeLessThan(10_000);
  });

  it('is not what a step was on its way for: that does nothing, and the time is not set back for all', async () => {
    const of = await server();
    const route = await keepingRoute(of.port);
    closers.push(() => route.stop());
    const store = await open(of, { url: route.url, gatewayId: 'gw-1' });
    const beside = await open(of, { gatewayId: 'gw-2' });
    await dispatched(store);
    await dispatched(beside);
    route.keep();
    await expect(store.admit(admitRequest({ idempotencyKey: 'kept' }))).rejects.toThrow(StoreUnavailable);
    await delay(6000);
    route.release();
    await until(() => store.health().ready);
    const { effect } = await dispatched(beside, { idempotencyKey: 'kept' });
    expect(Math.abs(effect.createdAt - Date.now())).toBeLessThan(2000);
    expect(await of.client.hget(`svc:{${WORKSPACE}}:w`, 'skew')).toBeNull();
  });

  it('back: time goes on', async () => {
    const of = await server();
    const store = await open(of);
    const { effect } = await dispatched(store);
    await of.client.hset(`svc:{${WORKSPACE}}:w`, 'skew', -3_600_000);
    const { effect: next } = await dispatched(store);
    expect(next.createdAt).toBeGreaterThanOrEqual(effect.createdAt);
    const later = await dispatched(store);
    expect(later.effect.createdAt).toBeGreaterThanOrEqual(next.createdAt);
  });
});

describe('what another gateway does', () => {
  it('is known within a second: pauses and keys, and calls under an older view are stale', async () => {
    const of = await server();
    const one = await open(of, { gatewayId: 'gw-1' });
    const two = await open(of, { gatewayId: 'gw-2' });
    await dispatched(one);
    await dispatched(two);
    const heard: string[] = [];
    two.onPausesChanged((workspace) => heard.push(workspace));
    two.onKeysChanged((handles) => heard.push(...(handles ?? ['all'])));
    const set = async (time: number): Promise<number> => {
      const { version } = await two.pauses(WORKSPACE);
      heard.length = 0;
      await one.setPause(pauseRequest({ id: `pau_${time}`, reason: 'stop' }));
      const began = performance.now();
      expect(await two.admit(admitRequest({ seen: { policy: '', pauses: version } }))).toMatchObject({ kind: 'stale' });
      await until(() => heard.includes(WORKSPACE));
      return performance.now() - began;
    };
    expect(await shortest(1000, set)).toBeLessThan(1000);
    await one.endKey('key_none', { kind: 'revoked' }, { type: 'user', id: 'maria' });
    expect((await two.pauses(WORKSPACE)).pauses[0]).toMatchObject({ id: 'pau_0' });
  });

  it('is known also where no message told it', async () => {
    const of = await server();
    const store = await open(of);
    await dispatched(store);
    const heard: string[] = [];
    store.onPausesChanged((workspace) => heard.push(workspace));
    store.onKeysChanged((handles) => heard.push(handles === null ? 'all keys' : 'one key'));
    const hear = async (): Promise<number> => {
      heard.length = 0;
      // Versions grow, and nobody is told: a subscriber that was away.
      await of.client.hincrby(`svc:{${WORKSPACE}}:v`, 'pauses', 1);
      await of.client.hincrby('svc:{_}:v', 'api_key', 1);
      const began = performance.now();
      await until(() => heard.includes(WORKSPACE) && heard.includes('all keys'));
      return performance.now() - began;
    };
    expect(await shortest(1000, hear)).toBeLessThan(1000);
  });

  it('meets the same limits: a budget is never overspent by two gateways', async () => {
    const of = await server();
    const one = await open(of, { gatewayId: 'gw-1' });
    const two = await open(of, { gatewayId: 'gw-2' });
    const budget = {
      kind: 'budget',
      rule: 'r/r',
      budget: 'r/all',
      unit: 'calls',
      bucket: '[]',
      sharing: 'shared',
      window: { kind: 'rolling', ms: 86_400_000 },
      limit: 100,
      amount: 1,
    } as const;
    const answers = await Promise.all(
      Array.from({ length: 256 }, (_, n) =>
        (n % 2 === 0 ? one : two).admit(admitRequest({ verdict: permit([budget]) })),
      ),
    );
    expect(answers.filter((answer) => answer.kind === 'dispatch')).toHaveLength(100);
  });
});

function ofCommands(url: string, journal: string): RedisStoreSettings {
  return {
    kind: 'redis',
    mode: 'standalone',
    url,
    nodes: [],
    durability: 'local',
    allowWeakDurability: true,
    journal: join(folder, journal),
    maxFreezeMs: 0,
    maxClockJumpMs: 86_400_000,
  };
}

it('a command beside a journal makes no key in a store that was emptied', async () => {
  const of = await server();
  const store = await open(of);
  await dispatched(store);
  await of.client.flushall();
  const command = openForCommand(ofCommands(of.url, 'gw-1'), RETENTION, KEY_SEALS).then(async (opened) => {
    closers.push(() => opened.close());
    await opened.putKey(keyRecord(), { type: 'user', id: 'maria' });
  });
  await expect(command).rejects.toThrow('not the one that was left');
  expect(await of.client.exists('svc:{_}:w')).toBe(0);
});

it('a key that a command revokes is revoked once a replica knows it, where there is one', async () => {
  const replicated = await startReplicated(1, ['--appendfsync', 'everysec']);
  closers.push(() => replicated.stop());
  const { url } = replicated.primary;
  const settings = ofCommands(url, 'journal');
  await open(replicated.primary, { durability: 'local', allowWeakDurability: true });
  const command = await openForCommand(settings, RETENTION, KEY_SEALS, true);
  closers.push(() => command.close());
  const key = keyRecord();
  const by = { type: 'user', id: 'maria' } as const;
  await command.putKey(key, by);
  replicated.replicas[0]?.signal('SIGSTOP');
  const revoked = command.endKey(key.id, { kind: 'revoked' }, by);
  await expect(revoked).rejects.toMatchObject({ name: 'StoreUnavailable' });
  replicated.replicas[0]?.signal('SIGCONT');
});
