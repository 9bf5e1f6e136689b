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
    const restarted = await world.gateway.restart();
    world = { ...world, gateway: restarted };
    const third = await fetch(`${restarted.url}/v1/workspaces/demo/effects`, {
      method: 'POST',
      headers: { 'x-api-key': world.keys.bot, 'content-type': 'application/json' },
      body: JSON.stringify(call),
    });
    expect(third.status).toBe(409);
    expect(((await third.json()) as { receipt: unknown }).receipt).toEqual(first.body.receipt);
    expect((await world.upstream.counts()).effects).toBe(before.effects);
  });
});
