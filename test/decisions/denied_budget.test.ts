import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refund, startWorld, type World } from '../system/world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.close());

describe('denied_budget', () => {
  it('402 beyond the budget, with the figures; nothing is held by the refusal', async () => {
    expect((await world.run(refund({ amount: 50_000 }))).status).toBe(200);
    expect((await world.run(refund({ amount: 40_000 }))).status).toBe(200);
    const before = await world.upstream.counts();
    const answer = await world.run(refund({ amount: 20_000 }));
    expect(answer.status).toBe(402);
    expect(answer.body).toMatchObject({
      decision: 'denied_budget',
      did_it_happen: 'no',
      reason: { code: 'budget_exceeded' },
    });
    expect(answer.body.budgets).toEqual([
      expect.objectContaining({ budget: 'world/agent-day', limit: 100_000, spent: 90_000, held: 0, remaining: 10_000 }),
    ]);
    expect((await world.upstream.counts()).requests).toBe(before.requests);
    expect(await world.kinds(answer.body.effect_id)).toEqual(['effect.denied']);
    expect((await world.get(`/effects/${answer.body.effect_id}`)).body.effect.state).toBe('denied');
    expect((await world.run(refund({ amount: 10_000 }))).status).toBe(200);
  });

  it('402 for an amount that would raise the budget', async () => {
    const { budgets } = (await world.get('/budgets')).body;
    for (const amount of [-1, -5, -9_007_199_254_740_991]) {
      const answer = await world.run(refund({ amount }));
      expect(answer.status).toBe(402);
      expect(answer.body).toMatchObject({ decision: 'denied_budget', reason: { code: 'amount_invalid' } });
      expect(await world.kinds(answer.body.effect_id)).toEqual(['effect.denied']);
    }
    expect((await world.get('/budgets')).body.budgets).toEqual(budgets);
  });
});
