import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type RedisServer, startRedis, startReplicated, until } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import type { Answer } from './gateway.ts';
import { refund } from './world.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function fleetOn(store: string, more: { readonly entry?: string } = {}): Promise<Fleet> {
  const fleet = await startFleet({ gateways: 1, store, ...more });
  closers.push(() => fleet.close());
  return fleet;
}

async function server(): Promise<RedisServer> {
  const redis = await startRedis();
  closers.push(() => redis.stop());
  return redis;
}

const ready = (fleet: Fleet): Promise<Answer> => fleet.ask(0, 'GET', '/readyz');

/** A declared read through the proxy: no effect, let in by what the gateway has heard of keys and pauses. */
const read = (fleet: Fleet): Promise<Answer> =>
  fleet.ask(0, 'GET', '/payments/v1/payments/p1', undefined, fleet.keys.bot);

/** The gateway refuses, says when to come again, names what is missing, and sends nothing. */
async function expectNothingLeaves(fleet: Fleet): Promise<void> {
  const before = await fleet.upstream.counts();
  const answer = await fleet.run(0, refund());
  expect(answer.status).toBe(503);
  expect(answer.headers.get('retry-after')).toMatch(/^\d+$/);
  expect(answer.body.code).toMatch(/^(store_unavailable|not_ready)$/);
  await until(async () => (await ready(fleet)).status === 503);
  const { body } = await ready(fleet);
  expect(body.parts.map(({ part }: { part: string }) => part)).toContain('store');
  expect(JSON.stringify(body.parts)).not.toMatch(/127\.0\.0\.1|localhost/);
  expect(await fleet.upstream.counts()).toEqual(before);
}

/** Without a restart. */
async function expectRecovery(fleet: Fleet): Promise<void> {
  await until(async () => (await ready(fleet)).status === 200);
  await until(async () => (await fleet.run(0, refund())).body.decision === 'committed');
}

describe('a Redis that is not there', () => {
  let redis: RedisServer;
  let fleet: Fleet;
  beforeAll(async () => {
    redis = await startRedis();
    fleet = await startFleet({ gateways: 1, store: `url: "${redis.url}", max_freeze: 1s` });
  });
  afterAll(async () => {
    await fleet.close();
    await redis.stop();
  });

  it('killed: 503, nothing sent; it comes back by itself, and what was committed still is', async () => {
    const call = refund();
    expect((await fleet.run(0, call)).body.decision).toBe('committed');
    await redis.kill();
    await expectNothingLeaves(fleet);
    await redis.start();
    await expectRecovery(fleet);
    expect((await fleet.run(0, call)).body.decision).toBe('duplicate_blocked');
  });

  it('frozen: 503, nothing sent', async () => {
    await fleet.run(0, refund());
    redis.signal('SIGSTOP');
    await expectNothingLeaves(fleet);
    redis.signal('SIGCONT');
    await expectRecovery(fleet);
  });

  it('read-only: 503, nothing sent', async () => {
    const other = await server();
    await fleet.run(0, refund());
    // A replica of a primary that cannot be reached keeps its data and takes no writes.
    await other.kill();
    await redis.client.call('REPLICAOF', '127.0.0.1', String(other.port));
    await expectNothingLeaves(fleet);
    await redis.client.call('REPLICAOF', 'NO', 'ONE');
    await expectRecovery(fleet);
  });

  it('down when a gateway starts: it listens, answers 503, and takes up work by itself', async () => {
    const call = refund();
    expect((await fleet.run(0, call)).body.decision).toBe('committed');
    await redis.kill();
    fleet.gateways[0]!.kill('SIGKILL');
    await fleet.restart(0);
    await expectNothingLeaves(fleet);
    await redis.start();
    await expectRecovery(fleet);
    expect((await fleet.run(0, call)).body.decision).toBe('duplicate_blocked');
  });
});

describe('a Redis that is not the one that was left', () => {
  it('emptied: not ready, nothing runs anew, also after a restart; no first key is made', async () => {
    const redis = await server();
    const fleet = await fleetOn(`url: "${redis.url}", max_freeze: 1s`);
    const call = refund();
    expect((await fleet.run(0, call)).body.decision).toBe('committed');
    await redis.client.flushall();
    const before = await fleet.upstream.counts();
    for (const start of ['running', 'restarted']) {
      if (start === 'restarted') {
        fleet.gateways[0]!.kill('SIGKILL');
        await fleet.restart(0);
      }
      await until(async () => {
        const answer = await fleet.run(0, call);
        return answer.status === 503 || answer.status === 401;
      });
      await until(async () => JSON.stringify((await ready(fleet)).body.parts ?? []).includes('store_rolled_back'));
    }
    expect(await fleet.upstream.counts()).toEqual(before);
    expect(await redis.client.dbsize()).toBe(0);
  });
});

describe('durability: replica', () => {
  it('a frozen replica: no call leaves; it goes on when the replica does', async () => {
    const { primary, replicas, stop } = await startReplicated(1);
    closers.push(stop);
    const fleet = await fleetOn(`url: "${primary.url}", durability: replica, max_freeze: 1s`);
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
    expect((await ready(fleet)).body.store.durability).toBe('replica');
    expect((await read(fleet)).status).toBe(200);
    const before = await fleet.upstream.counts();
    replicas[0]!.signal('SIGSTOP');
    const calls = Array.from({ length: 5 }, () => refund());
    const answers = await Promise.all(calls.map((call) => fleet.run(0, call)));
    for (const answer of answers) {
      expect(answer.status).toBe(503);
      expect(answer.headers.get('retry-after')).toMatch(/^\d+$/);
    }
    // Keys can be read, but nobody knows whether what is heard of pauses is still so: reads do not pass either.
    await until(async () => (await ready(fleet)).status === 503);
    const refused = await read(fleet);
    expect([refused.status, refused.body.code]).toEqual([503, 'not_ready']);
    // Nor later, for as long as nothing can be confirmed; `/readyz` says why.
    await expectNothingLeaves(fleet);
    expect(JSON.stringify((await ready(fleet)).body.parts)).toContain('replicas');
    expect(await fleet.upstream.counts()).toEqual(before);
    replicas[0]!.signal('SIGCONT');
    // What Redis had admitted ended as not dispatched: each call runs, and once.
    for (const call of calls) {
      let id = '';
      await until(async () => {
        const { body } = await fleet.run(0, call);
        id = body.effect_id;
        return ['committed', 'duplicate_blocked'].includes(body.decision);
      });
      const { ledger } = (await fleet.ask(0, 'GET', `/v1/workspaces/demo/effects/${id}`)).body;
      const ends = ledger.flatMap(({ kind, data }: { kind: string; data: { code: string } }) =>
        kind === 'execution.failed' ? [data.code] : [],
      );
      expect(ends.every((code: string) => code === 'not_dispatched')).toBe(true);
    }
    expect((await fleet.upstream.counts()).effects).toBe(before.effects + calls.length);
    await expectRecovery(fleet);
  });
});
