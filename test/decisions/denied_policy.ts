import { describe, expect, it } from 'vitest';
import { refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('denied_policy', () => {
  it('403 by a rule, with its id and reason; recorded, and the key stays free', async () => {
    const before = await world.upstream.counts();
    const call = refund({ currency: 'JPY' });
    const answer = await world.run(call);
    expect(answer.status).toBe(403);
    expect(answer.body).toMatchObject({
      decision: 'denied_policy',
      did_it_happen: 'no',
      reason: { code: 'rule_denied', rule: 'world/currency' },
    });
    expect(answer.body.reason.message).toContain('Only EUR and USD');
    expect((await world.upstream.counts()).requests).toBe(before.requests);
    const { body } = await world.get(`/effects/${answer.body.effect_id}`);
    expect(body.effect).toMatchObject({ state: 'denied', decision: 'denied_policy' });
    expect(await world.kinds(answer.body.effect_id)).toEqual(['effect.denied']);
    expect(
      (await world.run({ ...call, params: { ...(call['params'] as object), currency: 'EUR' } })).body.decision,
    ).toBe('committed');
  });

  it('403 where no rule allows, and for a tool that is not declared', async () => {
    const call = { tool: 'notes.secret', params: { text: 'x' }, idempotency_key: 'secret-1' };
    const before = await world.upstream.counts();
    for (const [tool, code] of [
      ['notes.secret', 'no_rule_allows'],
      ['notes.burn', 'tool_not_declared'],
    ]) {
      const answer = await world.run({ ...call, tool });
      expect(answer.status).toBe(403);
      expect(answer.body).toMatchObject({ decision: 'denied_policy', did_it_happen: 'no', reason: { code } });
      expect((await world.get(`/effects/${answer.body.effect_id}`)).body.effect.state).toBe('denied');
      expect(await world.kinds(answer.body.effect_id)).toEqual(['effect.denied']);
    }
    expect(await world.upstream.counts()).toEqual(before);
  });

  it('a rejection binds the key, and the action under another key', async () => {
    const call = refund({ amount: 60_000 });
    const { body } = await world.run(call);
    expect(
      (await world.post(`/approvals/${body.approval.id}/reject`, { comment: 'no' }, world.keys.approver)).status,
    ).toBe(200);
    for (const again of [call, { ...call, idempotency_key: 'another' }]) {
      const answer = await world.run(again);
      expect(answer.status).toBe(403);
      expect(answer.body).toMatchObject({
        decision: 'denied_policy',
        did_it_happen: 'no',
        reason: { code: 'approval_rejected' },
      });
    }
    expect(await world.kinds(body.effect_id)).toEqual([
      'approval.requested',
      'budget.held',
      'approval.rejected',
      'budget.voided',
      'effect.denied',
    ]);
  });
});
