import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { metaKey } from '../../src/stores/redis/names.ts';
import { openRedisStore, type RedisStore } from '../../src/gateway/redis-store.ts';
import {
  admitRequest,
  budgetOf,
  committed,
  dispatched,
  permit,
  settleRequest,
  WORKSPACE,
} from '../contract/requests.ts';
import { redisOptions } from '../redis/contract.ts';
import { until } from '../redis/servers.ts';
import { type ShiftedServer, startShifted } from '../redis/shifted-server.ts';

const DAY = 86_400_000;
const DAILY = permit([budgetOf(100, 100)]);

let server: ShiftedServer;
let folder = '';
const opened: RedisStore[] = [];
beforeAll(async () => {
  server = await startShifted();
});
afterAll(() => server.stop());
beforeEach(async () => {
  server.setAhead(0);
  await server.client.flushall();
  folder = mkdtempSync(join(tmpdir(), 'svc-redis-clock-'));
});
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
  rmSync(folder, { recursive: true });
});

async function open(gatewayId = 'gw-1'): Promise<RedisStore> {
  const retention = { keysMs: 30 * DAY, effectsMs: 10 * DAY, denialsMs: 10 * DAY };
  const store = await openRedisStore(
    redisOptions(server, { journalFolder: join(folder, gatewayId), gatewayId, retention }),
  );
  opened.push(store);
  return store;
}

async function close(store: RedisStore): Promise<void> {
  opened.splice(opened.indexOf(store), 1);
  await store.close();
}

/** Spends what the day has, and leaves. */
async function spendAndClose(): Promise<string> {
  const store = await open();
  const { effect } = await dispatched(store, { idempotencyKey: 'spent', verdict: DAILY });
  await store.settle(settleRequest(effect, committed('the.receipt')));
  await close(store);
  return effect.id;
}

async function expectDisbelieved(store: RedisStore): Promise<void> {
  await until(() => store.health().problem?.code === 'clock_ahead');
  expect(store.health()).toMatchObject({
    ready: false,
    problem: { message: expect.stringMatching(/Redis server.*400 days after.*7 days.*svc store accept-time/) },
  });
  await expect(store.admit(admitRequest({ verdict: DAILY }))).rejects.toBeInstanceOf(StoreUnavailable);
  await expect(store.admit(admitRequest({ workspace: 'fresh', verdict: DAILY }))).rejects.toBeInstanceOf(
    StoreUnavailable,
  );
  await expect(store.sweep(100)).rejects.toBeInstanceOf(StoreUnavailable);
}

/** The day's budget is spent, its key is known, and time is this machine's. */
async function expectUntouched(store: RedisStore, effectId: string): Promise<void> {
  await until(() => store.health().ready);
  await store.sweep(100);
  expect(await store.receipt(WORKSPACE, effectId)).toMatchObject({ jws: 'the.receipt' });
  expect(await store.admit(admitRequest({ idempotencyKey: 'spent', verdict: DAILY }))).toMatchObject({
    kind: 'existing',
  });
  expect(await store.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ decision: 'denied_budget' });
  expect(Math.abs(store.now() - Date.now())).toBeLessThan(60_000);
}

describe('gateways that start where the server’s clock is 400 days ahead', () => {
  it('are not ready, forget nothing, and go on when it is set right', async () => {
    const effectId = await spendAndClose();
    server.setAhead(400 * DAY);
    const store = await open();
    await expectDisbelieved(store);
    const beside = await open('gw-2');
    await expectDisbelieved(beside);
    server.setAhead(0);
    await expectUntouched(store, effectId);
    await expectUntouched(beside, effectId);
  });

  it('are not ready after a start of the server either', async () => {
    const effectId = await spendAndClose();
    await server.restart(() => server.setAhead(400 * DAY));
    const store = await open();
    await expectDisbelieved(store);
    await server.restart(() => server.setAhead(0));
    await expectUntouched(store, effectId);
  });

  it('go on when an operator accepts the time, which stands in the ledger', async () => {
    await spendAndClose();
    server.setAhead(400 * DAY);
    const store = await open();
    await expectDisbelieved(store);
    const accepted = await (await open('command:accept')).acceptTime();
    const { before = 0, time = 0 } = accepted ?? {};
    expect(Math.round((time - before) / DAY)).toBe(400);
    await until(() => store.health().ready);
    expect(await store.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ kind: 'dispatch' });
    expect(store.now()).toBeGreaterThanOrEqual(time);
    expect(await store.ledger(INSTALLATION, 0, 100)).toContainEqual(
      expect.objectContaining({
        kind: 'store.time_accepted',
        data: { before: new Date(before).toISOString(), accepted: new Date(time).toISOString() },
      }),
    );
    expect(await store.acceptTime()).toBeNull();
  });

  it('believe some days', async () => {
    await spendAndClose();
    server.setAhead(3 * DAY);
    const store = await open();
    expect(store.health()).toMatchObject({ ready: true });
    expect(await store.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ kind: 'dispatch' });
  });
});

describe('a server’s clock that jumps 400 days while a gateway runs', () => {
  it('is not believed: nothing is admitted, what is under way is settled, and time goes on as it was counted', async () => {
    const store = await open();
    const { effect } = await dispatched(store, { idempotencyKey: 'spent', verdict: DAILY });
    server.setAhead(400 * DAY);
    await expectDisbelieved(store);
    expect(await store.settle(settleRequest(effect, committed('the.receipt')))).toMatchObject({ kind: 'settled' });
    expect(Math.abs(store.now() - Date.now())).toBeLessThan(60_000);
    server.setAhead(0);
    await expectUntouched(store, effect.id);
  });

  it('is not believed by a step of before the next look either', async () => {
    const store = await open();
    await dispatched(store, { verdict: DAILY });
    server.setAhead(400 * DAY);
    // Decided at the time as it was counted: the day's budget is not another's.
    expect(await store.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ decision: 'denied_budget' });
    await expect(store.admit(admitRequest({ verdict: DAILY }))).rejects.toThrow(/400 days after/);
    expect(store.health()).toMatchObject({ problem: { code: 'clock_ahead' } });
  });

  it('is taken up when an operator accepts it', async () => {
    const store = await open();
    const { effect } = await dispatched(store, { verdict: DAILY });
    await store.settle(settleRequest(effect, committed()));
    server.setAhead(400 * DAY);
    await expectDisbelieved(store);
    const accepted = await (await open('command:accept')).acceptTime();
    await until(() => store.health().ready);
    expect(await store.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ kind: 'dispatch' });
    expect(store.now()).toBeGreaterThanOrEqual(accepted?.time ?? Infinity);
  });
});

describe('a server’s clock that is set while a gateway runs', () => {
  it('back: time goes on from where it stood, and comes nearer to the clock', async () => {
    const store = await open();
    const before = await dispatched(store);
    server.setAhead(-DAY / 24);
    const { createdAt } = (await dispatched(store)).effect;
    expect(createdAt).toBeGreaterThanOrEqual(before.effect.createdAt);
    const beyondClock = async (): Promise<number> => Number(await server.client.hget(metaKey(WORKSPACE), 'skew'));
    const begun = await beyondClock();
    await until(async () => (await dispatched(store)).effect.createdAt > createdAt + 200);
    expect(await beyondClock()).toBeLessThan(begun);
    expect(Math.abs(store.now() - Date.now())).toBeLessThan(60_000);
  });

  it('forward: time goes on from where it stood, and no window is skipped', async () => {
    const store = await open();
    await dispatched(store, { verdict: DAILY });
    server.setAhead(DAY);
    expect(await store.admit(admitRequest({ verdict: DAILY }))).toMatchObject({ decision: 'denied_budget' });
    expect(Math.abs(store.now() - Date.now())).toBeLessThan(60_000);
  });
});

it('the time on record is kept by a gateway that has nothing to do', async () => {
  const store = await open();
  await server.client.hset(metaKey(''), 'clock', store.now() - DAY);
  await until(async () => Number(await server.client.hget(metaKey(''), 'clock')) > store.now() - 60_000);
});
