import { describe, expect, it } from 'vitest';
import { refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('pending_approval', () => {
  it('202, nothing is sent; an approver’s vote runs it from the stored request; its duplicates then get the receipt', async () => {
    const call = refund({ amount: 60_000 });
    const before = await world.upstream.counts();
    const answer = await world.run(call);
    expect(answer.status).toBe(202);
    expect(answer.body).toMatchObject({
      decision: 'pending_approval',
      did_it_happen: 'no',
      next: 'wait',
      approval: { status: 'pending', quorum: 1, approvals: 0 },
    });
    expect((await world.upstream.counts()).requests).toBe(before.requests);
    expect((await world.run(call)).body).toMatchObject({
      decision: 'pending_approval',
      effect_id: answer.body.effect_id,
    });
    expect(await world.kinds(answer.body.effect_id)).toEqual(['approval.requested', 'budget.held']);

    const approval = `/approvals/${answer.body.approval.id}`;
    expect((await world.post(`${approval}/approve`, {}, world.keys.bot)).status).toBe(403);
    expect((await world.post(`${approval}/approve`, {}, world.keys.account)).body.code).toBe('not_an_approver');
    const decided = await world.post(`${approval}/approve`, { comment: 'fine' }, world.keys.approver);
    expect(decided.status).toBe(200);

    const { body } = await world.get(`/effects/${answer.body.effect_id}`);
    expect(body.effect).toMatchObject({ state: 'committed', attempt: 1 });
    expect((await world.upstream.counts()).effects).toBe(before.effects + 1);
    expect((await world.run(call)).body).toMatchObject({
      decision: 'duplicate_blocked',
      receipt: { id: body.effect.receipt_id },
    });
    expect(await world.kinds(answer.body.effect_id)).toEqual([
      'approval.requested',
      'budget.held',
      'approval.granted',
      'effect.admitted',
      'budget.held',
      'execution.started',
      'execution.succeeded',
      'receipt.issued',
      'budget.posted',
      'effect.duplicate_blocked',
    ]);
  });
});
