import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import { type Said, svc, svcBeside } from './command-line.ts';
import { type Fleet, startFleet } from './fleet.ts';
import type { Answer } from './gateway.ts';
import { refund, startWorld } from './world.ts';

const entry = join(process.cwd(), 'test', 'system', 'failpoint-gateway.mjs');

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function server(): Promise<RedisServer> {
  const redis = await startRedis();
  closers.push(() => redis.stop());
  return redis;
}

async function fleetOn(redis: RedisServer, gateways: number, more: { readonly entry?: string } = {}): Promise<Fleet> {
  const fleet = await startFleet({ gateways, store: `url: "${redis.url}", max_freeze: 1s`, ...more });
  closers.push(() => fleet.close());
  return fleet;
}

/** A call under way, and its decision once there is one. */
function settling(answer: Promise<Answer>) {
  let decision: unknown = null;
  void answer.then(({ body }) => (decision = body.decision));
  return { answer, decision: () => decision };
}

const inFleet = (fleet: Fleet, ...words: readonly string[]): Promise<Said> => svcBeside(fleet, 0, ...words);

describe('a gateway that is frozen between admission and dispatch', () => {
  it.each([
    ['sends nothing', true],
    ['and cannot ask the store then: sends nothing, and does not say that it did not happen', false],
  ])('wakes after a truthful not_happened and a second attempt on the other %s', async (_, canAsk) => {
    const redis = await server();
    const fleet = await fleetOn(redis, 2, { entry });
    const call = refund({ reason: 'failpoint:freeze_before_send' });
    const effects = async (): Promise<number> =>
      (await fleet.upstream.ledger()).effects.filter(({ path }) => path.includes(String(call['idempotency_key'])))
        .length;
    const frozen = fleet.run(0, call);
    // Who asks first is the one that is frozen.
    await until(async () => (await redis.client.exists(`svc:{demo}:r:key:${String(call['idempotency_key'])}`)) === 1);
    // The other declares it lost when the lease is over, and not before anything can still be under way.
    let id = '';
    await until(async () => {
      const { status, body } = await fleet.run(1, call);
      id = String(body.effect_id ?? id);
      return status === 409 && body.decision === 'unknown_effect';
    });
    expect(await effects()).toBe(0);
    await until(
      async () =>
        (await fleet.ask(1, 'POST', `/v1/workspaces/demo/effects/${id}/resolve`, { outcome: 'not_happened' }))
          .status === 200,
    );
    // The second attempt is stopped at the same point, goes on, and happens.
    let second = settling(fleet.run(1, call));
    await until(async () => {
      fleet.gateways[1]!.kill('SIGCONT');
      // Frozen for longer than it may wait before it sends, it sends nothing and says so: it may be asked again.
      if (second.decision() === 'failed') second = settling(fleet.run(1, call));
      return (await effects()) === 1;
    });
    expect((await second.answer).body.decision).toBe('committed');
    if (!canAsk) redis.signal('SIGSTOP');
    fleet.gateways[0]!.kill('SIGCONT');
    const woken = await frozen;
    // The key's action happened, through the other gateway: `failed` would be a false answer. Connections may have
    // ended while it was frozen; then it does not know.
    const truthful = canAsk ? ['duplicate_blocked', 'unknown_effect'] : ['unknown_effect'];
    expect(truthful).toContain(woken.body.decision);
    redis.signal('SIGCONT');
    await until(async () => (await fleet.run(0, call)).body.decision === 'duplicate_blocked');
    expect(await effects()).toBe(1);
  });
});

describe('svc on a store on Redis', () => {
  it('keys create: good on every gateway at once', async () => {
    const fleet = await fleetOn(await server(), 2);
    const made = await inFleet(
      fleet,
      'keys',
      'create',
      '--kind',
      'agent',
      '--agent',
      'bot',
      '--workspace',
      'demo',
      '--json',
    );
    expect(made.err).toBe('');
    const { key } = JSON.parse(made.out) as { readonly key: string };
    for (const gateway of [0, 1]) expect((await fleet.run(gateway, refund(), key)).body.decision).toBe('committed');
  });

  it('a store of another format: a gateway does not start on it and says what to do; so does migrate --check', async () => {
    const redis = await server();
    const fleet = await fleetOn(redis, 1);
    expect(await inFleet(fleet, 'migrate', '--check')).toMatchObject({
      code: 0,
      out: expect.stringContaining('opens the store on this Redis'),
    });
    await fleet.gateways[0]!.stop();
    await redis.client.hdel('svc:{_}:w', 'rows');
    await redis.client.hset('svc:{_}:w', 'install', 'older');
    const before = await redis.client.hgetall('svc:{_}:w');
    const said = await inFleet(fleet, 'migrate', '--check');
    expect([said.code, said.out]).toEqual([
      1,
      expect.stringMatching(/another format\.\n.*\nTo begin anew: .*store\.journal/),
    ]);
    await expect(fleet.restart(0)).rejects.toThrow(
      /another version of svc-gateway.* Redis of its own.* svc migrate --check/,
    );
    expect(await redis.client.hgetall('svc:{_}:w')).toEqual(before);
  });

  it('fsck: the store is as its ledger says; a figure that was changed is found', async () => {
    const redis = await server();
    const fleet = await fleetOn(redis, 1);
    await fleet.run(0, refund({ amount: 1234 }));
    await fleet.run(0, refund({ amount: 700 }));
    await fleet.run(0, refund({ currency: 'XXX' }));
    expect(await inFleet(fleet, 'fsck')).toMatchObject({ code: 0, out: expect.stringContaining('as its ledger says') });
    let changed = 0;
    for (const key of await redis.client.keys('svc:{demo}:f:*')) {
      const figure = (await redis.client.get(key)) ?? '';
      if (!figure.startsWith('1934 ')) continue;
      await redis.client.set(key, figure.replace('1934', '1'));
      changed += 1;
    }
    expect(changed).toBeGreaterThan(0);
    const found = await inFleet(fleet, 'fsck', '--json');
    expect(found.code).toBe(1);
    expect(JSON.parse(found.out).differences).toContainEqual(
      expect.objectContaining({ workspace: 'demo', what: 'spent', ledger: '1934', store: '1' }),
    );
  });

  it('fsck of the embedded store, after a life of every state', async () => {
    const world = await startWorld();
    closers.push(() => world.close());
    await world.run(refund());
    await world.run(refund({ amount: 60_000 }));
    await world.run(refund({ currency: 'XXX' }));
    await world.run({ tool: 'payments.charge', params: { amount: 1 }, idempotency_key: 'charge-1' });
    await world.gateway.stop();
    const said = await svc(world.gateway.folder, {}, 'fsck');
    expect(said).toMatchObject({ code: 0, out: expect.stringContaining('as its ledger says') });
  });

  it('store commands are refused on the embedded store', async () => {
    const world = await startWorld();
    closers.push(() => world.close());
    const said = await svc(world.gateway.folder, {}, 'store', 'recover', '--lost', 'gw-1');
    expect([said.code, said.err]).toEqual([2, expect.stringContaining('is for a store on Redis')]);
  });
});
