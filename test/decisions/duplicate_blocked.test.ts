import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refund, startWorld, type World } from '../system/world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.close());

describe('duplicate_blocked', () => {
  it('409 with the byte-identical receipt; nothing runs again, also after a restart and under a policy that would refuse now', async () => {
    const call = refund();
    const first = await world.run(call);
    expect(first.status).toBe(200);
    const before = await world.upstream.counts();
    const again = await world.run(call);
    expect(again.status).toBe(409);
    expect(again.headers.get('x-should-retry')).toBe('false');
    expect(again.body).toMatchObject({
      decision: 'duplicate_blocked',
      did_it_happen: 'yes',
      effect_id: first.body.effect_id,
    });
    expect(again.body.receipt).toEqual(first.body.receipt);
    expect(again.body.result).toEqual(first.body.result);
    expect(await world.kinds(first.body.effect_id)).toContain('effect.duplicate_blocked');

    await world.gateway.stop();
    // From now on policy refuses what it permitted then.
    const policy = join(world.gateway.policyFolder, 'world.yaml');
    const text = await readFile(policy, 'utf8');
    await writeFile(
      policy,
      `${text}  - { id: stopped, effect: deny, match: { tools: [payments.refund] }, reason: "No more refunds" }\n`,
    );
    const restarted = await world.gateway.restart();
    world = { ...world, gateway: restarted };
    const fresh = await world.run(refund());
    expect(fresh.body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'world/stopped' } });
    const third = await world.run(call);
    expect(third.status).toBe(409);
    expect(third.body).toMatchObject({ decision: 'duplicate_blocked', did_it_happen: 'yes' });
    expect(third.body.receipt).toEqual(first.body.receipt);
    // Who may not make the call any more gets the proof that it happened, and not what the upstream answered.
    expect(third.body).not.toHaveProperty('result');
    expect((await world.get(`/effects/${first.body.effect_id}`)).body.effect).toMatchObject({
      state: 'committed',
      attempt: 1,
    });
    expect((await world.upstream.counts()).effects).toBe(before.effects);
  });
});
