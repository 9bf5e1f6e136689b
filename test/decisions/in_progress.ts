import { describe, expect, it } from 'vitest';
import { refund } from '../system/world.ts';
import { world } from './shared-world.ts';

describe('in_progress', () => {
  it('409 with Retry-After while the first call runs; one call upstream', async () => {
    const call = refund({ reason: 'mode:held' });
    const before = await world.upstream.counts();
    const first = world.run(call);
    await expect
      .poll(async () => (await world.upstream.counts()).requests, { interval: 10, timeout: 30_000 })
      .toBe(before.requests + 1);
    const second = await world.run(call);
    expect(second.status).toBe(409);
    expect(second.body).toMatchObject({ decision: 'in_progress', did_it_happen: 'maybe', next: 'wait' });
    expect(second.headers.get('retry-after')).toBe('1');
    expect(second.headers.get('x-should-retry')).toBe('true');
    expect((await world.get(`/effects/${second.body.effect_id}`)).body.effect.state).toBe('executing');
    expect(await world.kinds(second.body.effect_id)).toEqual(['effect.admitted', 'budget.held']);
    await world.upstream.release();
    expect((await first).body).toMatchObject({ decision: 'committed', effect_id: second.body.effect_id });
    expect((await world.upstream.counts()).effects).toBe(before.effects + 1);
  });
});
