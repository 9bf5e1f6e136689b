import { describe, expect, it } from 'vitest';
import { freshKey } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('denied_reservation', () => {
  const deploy = (service: string) => ({ tool: 'deploy.start', params: { service }, idempotency_key: freshKey() });

  it('423 while another agent has the pool reserved, until it is released', async () => {
    const reserved = await world.post(
      '/reservations',
      { pool: 'deploy-slot', units: 1, ttl_s: 60 },
      world.keys.otherBot,
    );
    expect(reserved.status).toBe(201);
    const before = await world.upstream.counts();
    const answer = await world.run(deploy('api'));
    expect(answer.status).toBe(423);
    expect(answer.body).toMatchObject({
      decision: 'denied_reservation',
      did_it_happen: 'no',
      reason: { code: 'pool_exhausted' },
    });
    expect((await world.upstream.counts()).requests).toBe(before.requests);
    expect((await world.get(`/effects/${answer.body.effect_id}`)).body.effect.state).toBe('denied');
    expect(await world.kinds(answer.body.effect_id)).toEqual(['effect.denied']);
    expect((await world.run(deploy('api'), world.keys.otherBot)).status).toBe(200);
    await fetch(`${world.gateway.url}/v1/workspaces/demo/reservations/${reserved.body.id}`, {
      method: 'DELETE',
      headers: { 'x-api-key': world.keys.otherBot },
    });
    expect((await world.run(deploy('api'))).status).toBe(200);
  });

  it('a pool of one is a lock: of two deployments at once, one runs', async () => {
    const before = (await world.upstream.counts()).effects;
    const both = [
      world.run(deploy('mode:held'), world.keys.bot),
      world.run(deploy('mode:held-2'), world.keys.otherBot),
    ];
    // The one that runs is answered when the other has been.
    expect((await Promise.race(both)).status).toBe(423);
    await expect
      .poll(async () => (await world.upstream.counts()).effects, { interval: 10, timeout: 30_000 })
      .toBe(before + 1);
    await world.upstream.release();
    expect((await Promise.all(both)).map((answer) => answer.status).toSorted((a, b) => a - b)).toEqual([200, 423]);
  });
});
