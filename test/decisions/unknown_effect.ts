import { describe, expect, it } from 'vitest';
import { refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('unknown_effect', () => {
  it.each([
    ['the answer was lost', 'mode:drop_after'],
    ['the upstream answered 500 after the effect', 'mode:error_after'],
    ['no answer came in time', 'mode:never'],
  ])('504 when %s; a repeat is 409 and sends nothing; the hold stays', async (_name, reason) => {
    const call = refund({ reason });
    const answer = await world.run(call);
    expect(answer.status).toBe(504);
    expect(answer.body).toMatchObject({
      decision: 'unknown_effect',
      did_it_happen: 'maybe',
      safe_to_retry: false,
      next: 'resolve',
    });
    const before = await world.upstream.counts();
    const repeat = await world.run(call);
    expect(repeat.status).toBe(409);
    expect(repeat.body).toMatchObject({
      decision: 'unknown_effect',
      safe_to_retry: false,
      effect_id: answer.body.effect_id,
    });
    expect((await world.upstream.counts()).requests).toBe(before.requests);
    expect((await world.get(`/effects/${answer.body.effect_id}`)).body.effect.state).toBe('unknown');
    expect(await world.kinds(answer.body.effect_id)).toEqual([
      'effect.admitted',
      'budget.held',
      'execution.started',
      'execution.lost',
    ]);
  });

  it('a person settles it: too early at first, then once; the opposite is refused', async () => {
    const { body } = await world.run(refund({ reason: 'mode:drop_after' }));
    const path = `/effects/${body.effect_id}/resolve`;
    expect((await world.post(path, { outcome: 'not_happened' }, world.keys.bot)).status).toBe(403);
    const early = await world.post(path, { outcome: 'not_happened' });
    expect(early.status).toBe(409);
    expect(early.body.code).toBe('too_early');
    expect(Number(early.headers.get('retry-after'))).toBeGreaterThan(0);
    const resolved = await world.post(path, { outcome: 'happened', comment: 'seen in the books' });
    expect(resolved.status).toBe(200);
    expect((await world.post(path, { outcome: 'happened' })).status).toBe(200);
    expect((await world.post(path, { outcome: 'not_happened' })).body.code).toBe('already_resolved');
    expect((await world.get(`/effects/${body.effect_id}/receipt`)).status).toBe(200);
    expect(await world.kinds(body.effect_id)).toEqual([
      'effect.admitted',
      'budget.held',
      'execution.started',
      'execution.lost',
      'effect.resolved',
      'receipt.issued',
      'budget.posted',
    ]);
  });

  it('a tool that the upstream deduplicates runs again under the same upstream key', async () => {
    const call = {
      tool: 'payments.charge',
      params: { amount: 5, reason: 'mode:drop_after' },
      idempotency_key: 'charge-1',
    };
    const first = await world.run(call);
    expect(first.body).toMatchObject({ decision: 'unknown_effect', safe_to_retry: true, next: 'retry' });
    const second = await world.run(call);
    expect(second.body).toMatchObject({ effect_id: first.body.effect_id, attempt: 2 });
    const { requests } = await world.upstream.ledger();
    const keys = requests.filter((request) => request.path === '/v1/charges').map((request) => request.key);
    expect(keys).toEqual([`${first.body.effect_id}.1`, `${first.body.effect_id}.1`]);
  });
});
