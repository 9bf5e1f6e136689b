import { describe, expect, it } from 'vitest';
import { refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('committed', () => {
  it('200 with a signed receipt; the call reached the upstream once; the store says committed', async () => {
    const before = await world.upstream.counts();
    const answer = await world.run(refund());
    expect(answer.status).toBe(200);
    expect(answer.headers.get('svc-decision')).toBe('committed');
    expect(answer.body).toMatchObject({
      decision: 'committed',
      did_it_happen: 'yes',
      attempt: 1,
      agent_id: 'bot',
      tool: 'payments.refund',
      reason: { code: 'committed' },
    });
    expect(answer.body.result.received).toEqual({ amount: 1000, currency: 'EUR' });
    expect(answer.body.receipt.jws).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/);
    expect(answer.body.budgets).toEqual([
      expect.objectContaining({ budget: 'world/agent-day', held: 0, spent: 1000, remaining: 99_000 }),
    ]);
    expect((await world.upstream.counts()).effects).toBe(before.effects + 1);

    const { body } = await world.get(`/effects/${answer.body.effect_id}`);
    expect(body.effect).toMatchObject({
      state: 'committed',
      decision: 'committed',
      receipt_id: answer.body.receipt.id,
    });
    expect(await world.kinds(answer.body.effect_id)).toEqual([
      'effect.admitted',
      'budget.held',
      'execution.started',
      'execution.succeeded',
      'receipt.issued',
      'budget.posted',
    ]);
    const receipt = await world.get(`/effects/${answer.body.effect_id}/receipt`);
    expect(receipt.body).toEqual(answer.body.receipt);
    const run = await world.get(`/effects/${answer.body.effect_id}/run`);
    expect(run.body.stages.map((stage: { stage: string }) => stage.stage)).toEqual([
      'authenticate',
      'permission',
      'identity',
      'validate',
      'policy',
      'admission',
      'execute',
      'receipt',
      'settle',
    ]);
  });
});
