import { describe, expect, it } from 'vitest';
import { refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('failed', () => {
  it.each([
    ['the upstream refused (422)', 'mode:refuse', 422, 'upstream_refused', 'false'],
    ['the upstream said that nothing was done (503, declared)', 'mode:unavailable', 503, 'upstream_busy', 'true'],
  ])('502 when %s; holds are void; the same key runs again', async (_name, reason, status, code, shouldRetry) => {
    const before = await world.upstream.counts();
    const call = refund({ reason });
    const answer = await world.run(call);
    expect(answer.status).toBe(502);
    expect(answer.body).toMatchObject({
      decision: 'failed',
      did_it_happen: 'no',
      upstream_status: status,
      reason: { code },
    });
    expect(answer.headers.get('x-should-retry')).toBe(shouldRetry);
    expect(answer.body.receipt).toBeUndefined();
    expect(await world.upstream.counts()).toEqual({ requests: before.requests + 1, effects: before.effects });
    expect((await world.get(`/effects/${answer.body.effect_id}`)).body.effect.state).toBe('failed');
    expect(await world.kinds(answer.body.effect_id)).toEqual([
      'effect.admitted',
      'budget.held',
      'execution.started',
      'execution.failed',
      'budget.voided',
    ]);
    expect((await world.get(`/effects/${answer.body.effect_id}/receipt`)).body.code).toBe('receipt_not_issued');
    const again = await world.run(call);
    expect(again.body).toMatchObject({ decision: 'failed', attempt: 2, effect_id: answer.body.effect_id });
  });
});
