import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { freshKey, refund, startWorld, type World } from '../system/world.ts';
import { stateOf } from './victim.ts';

let world: World;
afterEach(() => world.close());

const entry = join(process.cwd(), 'test', 'system', 'failpoint-gateway.mjs');

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

describe('a gateway that stops between admission and dispatch', () => {
  it('sends nothing when it wakes after dispatch_by: failed, not_dispatched', async () => {
    world = await startWorld({ entry });
    const before = await world.upstream.counts();
    const call = refund({ reason: 'failpoint:freeze_before_send' }, freshKey());
    const answering = world.run(call);
    await until(() => stateOf(world.gateway.pid) === 'T');
    // The freeze is the event that is waited for: dispatch_by (2 s) has to pass while the process does not run.
    await pause(2200);
    world.gateway.kill('SIGCONT');
    const answer = await answering;
    expect(answer.status).toBe(502);
    expect(answer.body).toMatchObject({ decision: 'failed', did_it_happen: 'no', reason: { code: 'not_dispatched' } });
    expect(await world.upstream.counts()).toEqual(before);
    const { body } = await world.get(`/effects/${answer.body.effect_id}`);
    expect(body.effect.state).toBe('failed');
    expect(await world.kinds(answer.body.effect_id)).toEqual([
      'effect.admitted',
      'budget.held',
      'execution.failed',
      'budget.voided',
    ]);
  });

  it('killed before or after the call left: unknown, and never sent again by itself', async () => {
    world = await startWorld({ entry });
    for (const point of ['die_before_send', 'die_after_send']) {
      const call = refund({ reason: `failpoint:${point}` }, freshKey());
      await expect(world.run(call)).rejects.toThrow();
      const gateway = await world.gateway.restart();
      world = { ...world, gateway };
      const happened = (await world.upstream.ledger()).effects.filter((effect) =>
        effect.path.includes(String(call['idempotency_key'])),
      ).length;
      expect(happened).toBe(point === 'die_after_send' ? 1 : 0);
      const answer = await fetch(`${gateway.url}/v1/workspaces/demo/effects`, {
        method: 'POST',
        headers: { 'x-api-key': world.keys.bot, 'content-type': 'application/json' },
        body: JSON.stringify(call),
      });
      expect(answer.status).toBe(409);
      expect(await answer.json()).toMatchObject({ decision: 'unknown_effect', safe_to_retry: false });
      expect(
        (await world.upstream.ledger()).effects.filter((effect) =>
          effect.path.includes(String(call['idempotency_key'])),
        ),
      ).toHaveLength(happened);
    }
  });

  it('a fault of its own in the middle of an attempt is unknown, not an error', async () => {
    world = await startWorld({ entry });
    const answer = await world.run(refund({ reason: 'failpoint:throw_after_send' }));
    expect(answer.status).toBe(504);
    expect(answer.body.decision).toBe('unknown_effect');
  });
});
