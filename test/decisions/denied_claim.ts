import { describe, expect, it } from 'vitest';
import { freshKey, refund } from '../system/world.ts';
import { world } from './shared-world.ts';

/** A refund that is sent only where the payment's status is what the agent takes it for. */
function refundWhere(key: string, status: string, onMismatch: string, conditions = {}): Record<string, unknown> {
  const check = { intent: 'refund', required_fields: ['status'], assumed_state: { status } };
  return { ...refund({}, key), state_check: { ...check, conditions, on_mismatch: onMismatch } };
}

describe('denied_claim', () => {
  it('409 on a target that another agent holds, until it is released', async () => {
    const key = freshKey();
    const call = refund({}, key);
    const claim = await world.post('/claims', { target: `payment:pay_${key}`, ttl_s: 60 }, world.keys.otherBot);
    expect(claim.status).toBe(201);
    const before = await world.upstream.counts();
    const answer = await world.run(call);
    expect(answer.status).toBe(409);
    expect(answer.body).toMatchObject({
      decision: 'denied_claim',
      did_it_happen: 'no',
      reason: { code: 'claim_held' },
    });
    expect((await world.upstream.counts()).requests).toBe(before.requests);
    expect((await world.get(`/effects/${answer.body.effect_id}`)).body.effect.state).toBe('denied');
    expect(await world.kinds(answer.body.effect_id)).toEqual(['effect.denied']);
    const released = await fetch(`${world.gateway.url}/v1/workspaces/demo/claims/${claim.body.id}`, {
      method: 'DELETE',
      headers: { 'x-api-key': world.keys.otherBot },
    });
    expect(released.status).toBeLessThan(300);
    expect((await world.run(call)).body.decision).toBe('committed');
  });

  it.each(['replan', 'block'])(
    '409 when the live state has drifted: mismatches, and next from on_mismatch: %s',
    async (onMismatch) => {
      const key = freshKey();
      await world.upstream.state(`/v1/payments/pay_${key}`, { status: 'refunded' });
      const before = await world.upstream.counts();
      const answer = await world.run(refundWhere(key, 'paid', onMismatch));
      expect(answer.status).toBe(409);
      expect(answer.body).toMatchObject({
        decision: 'denied_claim',
        next: onMismatch,
        reason: { code: 'state_drift' },
        mismatches: [{ field: 'status', assumed: 'paid', current: 'refunded' }],
      });
      expect((await world.upstream.counts()).effects).toBe(before.effects);
      expect(await world.kinds(answer.body.effect_id)).toEqual([
        'effect.admitted',
        'budget.held',
        'state.drifted',
        'effect.denied',
        'budget.voided',
      ]);
      const { effect } = (await world.get(`/effects/${answer.body.effect_id}`)).body;
      expect(effect).toMatchObject({ state: 'denied', next: onMismatch });
      expect(effect.reason).toEqual(answer.body.reason);
      const fine = await world.run(refundWhere(key, 'refunded', 'block', { status: { $in: ['refunded'] } }));
      expect(fine.body.decision).toBe('committed');
    },
  );
});
