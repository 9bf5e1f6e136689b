import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { eventOf } from '../../src/records/view.ts';
import { unstored } from '../../src/stores/redis/rows/names.ts';
import { type RedisServer, routeTo, startRedis, startReplicated, until } from '../redis/servers.ts';
import { svcBeside } from './command-line.ts';
import { type Fleet, startFleet } from './fleet.ts';
import type { Answer } from './gateway.ts';
import { refund } from './world.ts';

const entry = join(process.cwd(), 'test', 'system', 'failpoint-gateway.mjs');

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function fleetOf(store: string): Promise<Fleet> {
  const fleet = await startFleet({ gateways: 2, store: `${store}, max_freeze: 1s`, entry });
  closers.push(() => fleet.close());
  return fleet;
}

async function server(): Promise<RedisServer> {
  const redis = await startRedis();
  closers.push(() => redis.stop());
  return redis;
}

/** The name under which a gateway is registered. */
async function nameOf(fleet: Fleet, gateway: number): Promise<string> {
  return (await readFile(join(fleet.gateways[gateway]!.dataFolder, 'journal', 'gateway-id'), 'utf8')).trim();
}

/** `store` of a gateway that is not ready. */
async function storeProblem(fleet: Fleet, gateway: number): Promise<{ code?: string; message?: string }> {
  const { status, body } = await fleet.ask(gateway, 'GET', '/readyz');
  if (status === 200) return {};
  return body.parts.find(({ part }: { part: string }) => part === 'store') ?? {};
}

async function isReady(fleet: Fleet, gateway: number): Promise<boolean> {
  return (await fleet.ask(gateway, 'GET', '/readyz')).status === 200;
}

/** Dies when its call has left: nobody knows what became of it. */
async function dieAfterSending(fleet: Fleet, gateway: number): Promise<Record<string, unknown>> {
  const call = refund({ reason: 'failpoint:die_after_send' });
  await expect(fleet.run(gateway, call)).rejects.toThrow();
  return call;
}

async function expectRefused(answer: Promise<Answer>): Promise<void> {
  const { status, headers } = await answer;
  expect(status).toBe(503);
  expect(headers.get('retry-after')).toMatch(/^\d+$/);
}

/** What operators decided, by the ledger of a workspace. */
async function operatorEvents(redis: RedisServer, workspace: string): Promise<readonly unknown[]> {
  const entries = await redis.client.xrange(`svc:{${workspace}}:l`, '-', '+');
  return entries
    .flatMap(([, [, , ...words]]) => words.filter((_, index) => index % 2 === 1))
    .map((text) => eventOf(null, unstored(text)))
    .filter(({ kind }) => kind.startsWith('store.') || kind.startsWith('gateway.'))
    .map(({ kind, actor, data }) => ({ kind, actor: actor.id, data }));
}

describe('a gateway and the primary that are killed together with the tail of the log', () => {
  /** Gateway 1 alone knows of two calls; gateway 0 goes on with a primary that never heard of them. */
  async function lostTail() {
    const { primary, replicas, stop } = await startReplicated(1);
    closers.push(stop);
    const route = await routeTo(primary);
    closers.push(() => route.stop());
    const fleet = await fleetOf(`url: "${route.url}", durability: fsync`);
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
    const [replica] = replicas;
    await replica!.client.call('REPLICAOF', 'NO', 'ONE');
    const done = refund();
    const receipt = (await fleet.run(1, done)).body.receipt;
    expect(receipt).toBeDefined();
    const unknown = await dieAfterSending(fleet, 1);
    await primary.kill();
    route.point(replica!);
    const before = await fleet.upstream.counts();
    const missed = await nameOf(fleet, 1);
    await until(async () => (await storeProblem(fleet, 0)).message?.includes(missed) ?? false);
    for (const call of [done, unknown, refund()]) await expectRefused(fleet.run(0, call));
    expect(await fleet.upstream.counts()).toEqual(before);
    return { fleet, redis: replica!, done, receipt, unknown, before, missed };
  }

  it('writes wait, /readyz names the gateway that is missed, and nothing runs twice after it returns', async () => {
    const { fleet, done, receipt, unknown, before } = await lostTail();
    await fleet.restart(1);
    await until(() => isReady(fleet, 0));
    const again = await fleet.run(0, done);
    expect([again.status, again.body.decision]).toEqual([409, 'duplicate_blocked']);
    expect(again.body.receipt).toEqual(receipt);
    await until(async () => (await fleet.run(0, unknown)).body.decision === 'unknown_effect');
    expect(await fleet.upstream.counts()).toEqual(before);
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
    expect((await svcBeside(fleet, 0, 'fsck')).out).toContain('as its ledger says');
  });

  it('svc store recover --lost: writes come back, and it stands in the ledger', async () => {
    const { fleet, redis, missed } = await lostTail();
    const slip = await svcBeside(fleet, 0, 'store', 'recover', '--lost', 'gw-nobody');
    expect([slip.code, slip.err]).toEqual([2, expect.stringContaining('no gateway gw-nobody is registered')]);
    expect(await isReady(fleet, 0)).toBe(false);
    const said = await svcBeside(fleet, 0, 'store', 'recover', '--lost', missed);
    expect(said).toMatchObject({ code: 0, out: expect.stringContaining(missed), err: '' });
    await until(() => isReady(fleet, 0));
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
    // The installation's ledger, and that of each workspace.
    for (const workspace of ['_', 'demo'])
      expect(await operatorEvents(redis, workspace)).toEqual([
        { kind: 'gateway.declared_lost', actor: 'command-line', data: { gateway: missed } },
      ]);
    // It comes back all the same, without what was given up.
    await fleet.restart(1);
    await until(() => isReady(fleet, 1));
    expect((await fleet.run(1, refund())).body.decision).toBe('committed');
    expect((await svcBeside(fleet, 0, 'fsck')).out).toContain('as its ledger says');
  });
});

describe('a store that is not the one that was left', () => {
  /** Not ready on both, whatever is asked; then an operator accepts the loss in the place of gateway 0. */
  async function acceptLoss(
    fleet: Fleet,
    calls: readonly Record<string, unknown>[],
    broken: readonly number[],
  ): Promise<void> {
    const before = await fleet.upstream.counts();
    for (const gateway of broken) {
      await until(async () => (await storeProblem(fleet, gateway)).code === 'store_rolled_back');
    }
    for (const gateway of [0, 1]) {
      for (const call of calls) {
        // Where the keys are gone as well, nobody is known any more.
        expect([401, 503]).toContain((await fleet.run(gateway, call)).status);
      }
    }
    const refused = await svcBeside(fleet, 1, 'store', 'accept-loss');
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('Another gateway uses the journal')]);
    await fleet.gateways[0]!.stop();
    const accepted = await svcBeside(fleet, 0, 'store', 'accept-loss');
    expect([accepted.code, accepted.err]).toEqual([0, '']);
    await fleet.restart(0);
    // The other hands in by itself.
    for (const gateway of [0, 1]) await until(() => isReady(fleet, gateway));
    expect(await fleet.upstream.counts()).toEqual(before);
  }

  it('emptied under two gateways: not ready, nothing runs anew; what either has dispatched stays so after accept-loss', async () => {
    const redis = await server();
    const fleet = await fleetOf(`url: "${redis.url}"`);
    const calls = [refund(), refund()];
    for (const [gateway, call] of calls.entries())
      expect((await fleet.run(gateway, call)).body.decision).toBe('committed');
    const unknown = await dieAfterSending(fleet, 1);
    await fleet.restart(1);
    const { epoch } = (await fleet.ask(1, 'GET', '/readyz')).body.store;
    await redis.client.flushall();
    await acceptLoss(fleet, [...calls, unknown], [0, 1]);
    const before = await fleet.upstream.counts();
    for (const gateway of [0, 1]) {
      for (const call of calls) expect((await fleet.run(gateway, call)).body.decision).toBe('duplicate_blocked');
      await until(async () => (await fleet.run(gateway, unknown)).body.decision === 'unknown_effect');
    }
    expect(await fleet.upstream.counts()).toEqual(before);
    for (const gateway of [0, 1]) expect((await fleet.run(gateway, refund())).body.decision).toBe('committed');
    expect((await fleet.ask(0, 'GET', '/readyz')).body.store.epoch).toBeGreaterThan(epoch);
    for (const workspace of ['_', 'demo'])
      expect(await operatorEvents(redis, workspace)).toEqual([
        { kind: 'store.loss_accepted', actor: 'command-line', data: { gateway: await nameOf(fleet, 0) } },
      ]);
    expect((await svcBeside(fleet, 0, 'fsck')).out).toContain('as its ledger says');
  });

  it('an older snapshot: not ready, nothing runs anew; what either has dispatched stays so after accept-loss', async () => {
    const redis = await server();
    const copy = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
    closers.push(async () => rmSync(copy, { recursive: true }));
    const fleet = await fleetOf(`url: "${redis.url}"`);
    const early = refund();
    expect((await fleet.run(0, early)).body.decision).toBe('committed');
    cpSync(redis.folder, copy, { recursive: true });
    const [mine, others, last] = [refund(), refund(), refund()];
    expect((await fleet.run(0, mine)).body.decision).toBe('committed');
    expect((await fleet.run(1, others)).body.decision).toBe('committed');
    const unknown = await dieAfterSending(fleet, 1);
    await fleet.restart(1);
    // More than a fail-over can lose.
    await new Promise((resolve) => setTimeout(resolve, 10_100));
    // On a busy machine its time to be sent may run out (`not_dispatched`): an agent asks again.
    await until(async () => (await fleet.run(1, last)).body.decision === 'committed');
    await redis.restart(() => {
      rmSync(redis.folder, { recursive: true });
      cpSync(copy, redis.folder, { recursive: true });
    });
    const calls = [early, mine, others, last];
    await acceptLoss(fleet, [...calls, unknown], [1]);
    const before = await fleet.upstream.counts();
    for (const gateway of [0, 1]) {
      for (const call of calls) expect((await fleet.run(gateway, call)).body.decision).toBe('duplicate_blocked');
      await until(async () => (await fleet.run(gateway, unknown)).body.decision === 'unknown_effect');
    }
    expect(await fleet.upstream.counts()).toEqual(before);
    expect((await fleet.run(1, refund())).body.decision).toBe('committed');
    expect((await svcBeside(fleet, 0, 'fsck')).out).toContain('as its ledger says');
  });
});
