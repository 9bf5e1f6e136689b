import { describe, expect, it } from 'vitest';
import { DAY, type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  budgetOf,
  committed,
  dispatched,
  FAILED,
  permit,
  rateOf,
  resolveRequest,
  settleRequest,
  UNKNOWN,
  WORKSPACE,
} from './requests.ts';

const LARGEST = Number.MAX_SAFE_INTEGER;
const HOUR = 3_600_000;

export function describeBudgets(open: OpenStore, capabilities: Capabilities): void {
  describe('budgets', () => {
    const at = useStore(open, capabilities);
    const spend = (limit: number, amount: number | null, more: Parameters<typeof budgetOf>[2] = {}) => ({
      verdict: permit([budgetOf(limit, amount, more)]),
    });

    it('holds on admission what the call may cost', async () => {
      const admission = await dispatched(at.store, spend(100, 60));
      expect(admission.budgets).toMatchObject([{ limit: 100, spent: 0, held: 60 }]);
      expect(admission.effect).toMatchObject({ holdState: 'held', holds: [{ amount: 60 }] });
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([
        { budget: 'payments/daily', unit: 'EUR-cent', limit: 100, spent: 0, held: 60, resetsAt: null },
      ]);
    });

    it('lets the limit be reached exactly, and not passed by one', async () => {
      await dispatched(at.store, spend(100, 99));
      expect(await at.store.admit(admitRequest(spend(100, 2)))).toMatchObject({
        kind: 'refused',
        decision: 'denied_budget',
        reason: { code: 'budget_exceeded' },
        budgets: [{ limit: 100, spent: 0, held: 99 }],
      });
      await dispatched(at.store, spend(100, 1));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 100 }]);
    });

    it('holds all of a hierarchy or nothing', async () => {
      const verdict = permit([
        budgetOf(100, 10, { budget: 'payments/agent' }),
        budgetOf(5, 10, { budget: 'payments/workspace' }),
      ]);
      expect(await at.store.admit(admitRequest({ verdict }))).toMatchObject({ decision: 'denied_budget' });
      expect((await at.store.budgets(WORKSPACE)).filter(({ held }) => held > 0)).toEqual([]);
    });

    it('posts what was held when the call is committed', async () => {
      const { effect } = await dispatched(at.store, spend(100, 60));
      await at.store.settle(settleRequest(effect, committed()));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 60, held: 0 }]);
    });

    it('gives back what was held when the call failed', async () => {
      const { effect } = await dispatched(at.store, spend(100, 60));
      await at.store.settle(settleRequest(effect, FAILED));
      expect((await at.store.budgets(WORKSPACE)).filter(({ spent, held }) => spent + held > 0)).toEqual([]);
      await dispatched(at.store, spend(100, 100));
    });

    it('keeps the hold of an unknown effect until it is resolved', async () => {
      const { effect } = await dispatched(at.store, spend(100, 60));
      await at.store.settle(settleRequest(effect, UNKNOWN));
      expect(await at.store.admit(admitRequest(spend(100, 60)))).toMatchObject({ decision: 'denied_budget' });
      await at.store.resolve(resolveRequest(effect, 'not_happened', { force: true }));
      await dispatched(at.store, spend(100, 60));
    });

    it('posts the hold of an unknown effect that turns out to have happened', async () => {
      const { effect } = await dispatched(at.store, spend(100, 60));
      await at.store.settle(settleRequest(effect, UNKNOWN));
      await at.store.resolve(resolveRequest(effect, 'happened'));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 60, held: 0 }]);
    });

    it('posts a hold that was given back when it turns out late that the call happened', async () => {
      const { effect } = await dispatched(at.store, spend(100, 60));
      await at.store.settle(settleRequest(effect, FAILED));
      await at.store.settle(settleRequest(effect, committed()));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 60, held: 0 }]);
      // Nobody had room set aside for it any more.
      const events = await at.store.effectLedger(WORKSPACE, effect.id);
      expect(events.filter(({ kind }) => kind.startsWith('budget.')).map(({ kind, data }) => [kind, data])).toEqual([
        ['budget.held', { holds: [expect.objectContaining({ amount: 60 })] }],
        ['budget.voided', { holds: [expect.objectContaining({ amount: 60 })] }],
        ['budget.overdraft', { holds: [expect.objectContaining({ amount: 60 })] }],
      ]);
    });

    it('posts what the answer says was spent, shows what goes beyond a hold, and which answer said nothing', async () => {
      const tokens = { unit: 'token', budget: 'model/tokens' };
      const verdict = permit([
        budgetOf(100, 60),
        budgetOf(1_000, 50, tokens),
        budgetOf(9, 9, { unit: 'call', budget: 'b' }),
      ]);
      const { effect } = await dispatched(at.store, { verdict });
      const outcome = committed();
      if (outcome.kind !== 'committed') throw new Error(outcome.kind);
      await at.store.settle(settleRequest(effect, { ...outcome, amounts: { 'EUR-cent': 10, token: 70, call: null } }));
      const rows = new Map(
        (await at.store.budgets(WORKSPACE)).map(({ budget, spent, held }) => [budget, [spent, held]]),
      );
      expect(Object.fromEntries(rows)).toEqual({ 'payments/daily': [10, 0], 'model/tokens': [70, 0], b: [9, 0] });
      const events = await at.store.effectLedger(WORKSPACE, effect.id);
      const data = (kind: string) => events.filter((one) => one.kind === kind).map((one) => one.data);
      expect(data('budget.posted')).toMatchObject([
        {
          holds: [
            { unit: 'EUR-cent', amount: 60, posted: 10 },
            { unit: 'token', amount: 50 },
            { unit: 'call', amount: 9 },
          ],
        },
      ]);
      expect(data('budget.posted')).toHaveProperty('0.actual_missing', ['call']);
      for (const place of [1, 2]) expect(data('budget.posted')).not.toHaveProperty(`0.holds.${place}.posted`);
      expect(data('budget.overdraft')).toMatchObject([{ holds: [{ unit: 'token', amount: 20 }] }]);
      expect(data('budget.overdraft')).toHaveProperty('0.holds.length', 1);
    });

    it('says nothing of overdrafts or absent figures where a call costs what it holds', async () => {
      const { effect } = await dispatched(at.store, spend(100, 60));
      await at.store.settle(settleRequest(effect, committed()));
      const events = await at.store.effectLedger(WORKSPACE, effect.id);
      expect(events.map(({ kind }) => kind)).not.toContain('budget.overdraft');
      expect(events.find(({ kind }) => kind === 'budget.posted')?.data).toEqual({
        holds: [expect.not.objectContaining({ posted: expect.anything() })],
      });
    });

    it('settles once: a second settlement posts nothing more', async () => {
      const { effect } = await dispatched(at.store, spend(100, 60));
      const request = settleRequest(effect, committed());
      await Promise.all([at.store.settle(request), at.store.settle(request), at.store.settle(request)]);
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 60, held: 0 }]);
    });

    it('lets exactly as many of 256 concurrent calls through as the budget allows', async () => {
      const answers = await Promise.all(Array.from({ length: 256 }, () => at.store.admit(admitRequest(spend(100, 1)))));
      expect(answers.filter(({ kind }) => kind === 'dispatch')).toHaveLength(100);
      expect(answers.filter(({ kind }) => kind === 'refused')).toHaveLength(156);
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 0, held: 100 }]);
    });

    it.each([
      { why: 'is not one', amount: null, code: 'amount_invalid' },
      { why: 'is beyond the limit by itself', amount: 101, code: 'budget_exceeded' },
    ])('refuses an amount that $why, with the true figures, and does not say when to come back', async (given) => {
      const window = { kind: 'calendar', start: at.store.now() - DAY, end: at.store.now() + DAY } as const;
      const of = (amount: number | null) => spend(100, amount, { window });
      const { effect } = await dispatched(at.store, of(30));
      await at.store.settle(settleRequest(effect, committed()));
      await dispatched(at.store, of(15));
      const refused = await at.store.admit(admitRequest(of(given.amount)));
      expect(refused).toMatchObject({
        decision: 'denied_budget',
        reason: { code: given.code },
        budgets: [{ limit: 100, spent: 30, held: 15 }],
        retryAfterMs: null,
      });
      expect(await at.store.admit(admitRequest(of(60)))).toMatchObject({
        reason: { message: 'The call needs 60 EUR-cent; 55 of 100 are left in budget payments/daily.' },
        retryAfterMs: expect.toSatisfy((ms: number) => ms > 0 && ms <= DAY),
      });
    });

    it('tells no figure of a budget that others use as well, but to people', async () => {
      await dispatched(at.store, spend(100, 45, { sharing: 'shared' }));
      const refused = await at.store.admit(admitRequest(spend(100, 60, { sharing: 'shared' })));
      expect(refused).toMatchObject({
        decision: 'denied_budget',
        reason: { code: 'budget_exceeded', message: 'Budget payments/daily does not have 60 EUR-cent left.' },
        budgets: [{ limit: 100, held: 45 }],
      });
    });

    it('names the param that should have been the amount', async () => {
      expect(await at.store.admit(admitRequest(spend(100, null, { amountFrom: 'params.amount' })))).toMatchObject({
        reason: {
          code: 'amount_invalid',
          message: expect.stringMatching(/^params\.amount is absent or not a whole number/),
        },
      });
    });

    it('takes an amount of nothing', async () => {
      const { effect } = await dispatched(at.store, spend(0, 0));
      expect(await at.store.settle(settleRequest(effect, committed()))).toMatchObject({ kind: 'settled' });
    });

    it.each([2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 53 - 1])('counts %d exactly', async (amount) => {
      const { effect } = await dispatched(at.store, spend(LARGEST, amount - 1));
      await at.store.settle(settleRequest(effect, committed()));
      await dispatched(at.store, spend(LARGEST, LARGEST - amount));
      await at.reopen();
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([
        { limit: LARGEST, spent: amount - 1, held: LARGEST - amount },
      ]);
      expect(await at.store.admit(admitRequest(spend(LARGEST, 2)))).toMatchObject({ decision: 'denied_budget' });
      await dispatched(at.store, spend(LARGEST, 1));
    });

    it('keeps buckets, budgets and workspaces apart', async () => {
      await dispatched(at.store, spend(10, 10, { bucket: '["a"]' }));
      await dispatched(at.store, spend(10, 10, { bucket: '["A"]' }));
      await dispatched(at.store, spend(10, 10, { bucket: '["a"]', budget: 'payments/other' }));
      await dispatched(at.store, { ...spend(10, 10, { bucket: '["a"]' }), workspace: 'other' });
      expect(await at.store.budgets(WORKSPACE)).toHaveLength(3);
      expect(await at.store.budgets('other')).toHaveLength(1);
    });

    it('uses the limit in force at the call, whatever it was before', async () => {
      await dispatched(at.store, spend(100, 60));
      expect(await at.store.admit(admitRequest(spend(50, 1)))).toMatchObject({ decision: 'denied_budget' });
      await dispatched(at.store, spend(200, 100));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ limit: 200, held: 160 }]);
    });

    at.timed('begins anew with the next calendar window, and posts into the window of the hold', async () => {
      const first = { kind: 'calendar', start: at.now(), end: at.now() + HOUR } as const;
      const next = { kind: 'calendar', start: first.end, end: first.end + HOUR } as const;
      const held = await dispatched(at.store, spend(100, 100, { window: first }));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ resetsAt: first.end, held: 100 }]);
      at.advance(HOUR);
      await dispatched(at.store, spend(100, 70, { window: next }));
      await at.store.settle(settleRequest(held.effect, committed()));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ resetsAt: next.end, spent: 0, held: 70 }]);
    });

    at.timed('forgets what was spent once a rolling window has passed since the settlement', async () => {
      const window = { kind: 'rolling', ms: DAY } as const;
      const { effect } = await dispatched(at.store, spend(100, 100, { window }));
      at.advance(5_000);
      await at.store.settle(settleRequest(effect, committed()));
      at.advance(DAY - 1);
      expect(await at.store.admit(admitRequest(spend(100, 1, { window })))).toMatchObject({
        decision: 'denied_budget',
      });
      at.advance(DAY / 1_000 + 1);
      await dispatched(at.store, spend(100, 100, { window }));
    });

    at.timed('ages a rolling window part by part', async () => {
      const window = { kind: 'rolling', ms: HOUR } as const;
      for (let quarter = 0; quarter < 4; quarter += 1) {
        const { effect } = await dispatched(at.store, spend(100, 25, { window }));
        await at.store.settle(settleRequest(effect, committed()));
        at.advance(HOUR / 4);
      }
      at.advance(HOUR / 1_000);
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 75 }]);
      at.advance(HOUR / 4);
      await at.reopen();
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 50 }]);
      await dispatched(at.store, spend(100, 50, { window }));
      expect(await at.store.admit(admitRequest(spend(100, 1, { window })))).toMatchObject({
        decision: 'denied_budget',
      });
    });

    at.timed('takes off what has aged out once, however often the row is looked at', async () => {
      const window = { kind: 'rolling', ms: HOUR } as const;
      const spent = async (amount: number): Promise<void> => {
        const { effect } = await dispatched(at.store, spend(100, amount, { window }));
        await at.store.settle(settleRequest(effect, committed()));
      };
      await spent(60);
      at.advance(HOUR / 2);
      await spent(40);
      at.advance(HOUR / 2 + HOUR / 1_000);
      await spent(60);
      for (let look = 0; look < 3; look += 1) {
        at.advance(HOUR / 100);
        expect(await at.store.admit(admitRequest(spend(100, 1, { window })))).toMatchObject({
          decision: 'denied_budget',
        });
      }
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 100, held: 0 }]);
    });

    at.timed('never lets an open hold age out of a rolling window', async () => {
      const window = { kind: 'rolling', ms: HOUR } as const;
      const { effect } = await dispatched(at.store, spend(100, 100, { window }));
      await at.store.settle(settleRequest(effect, UNKNOWN));
      at.advance(10 * DAY);
      await at.store.sweep(100);
      expect(await at.store.admit(admitRequest(spend(100, 1, { window })))).toMatchObject({
        decision: 'denied_budget',
      });
    });

    at.timed('never lets an open hold go with what was spent before it and has aged out', async () => {
      const window = { kind: 'rolling', ms: HOUR } as const;
      const before = await dispatched(at.store, spend(100, 1, { window }));
      await at.store.settle(settleRequest(before.effect, committed()));
      const { effect } = await dispatched(at.store, spend(100, 99, { window }));
      await at.store.settle(settleRequest(effect, UNKNOWN));
      at.advance(10 * DAY);
      await at.store.sweep(100);
      await at.store.sweep(100);
      expect(await at.store.admit(admitRequest(spend(100, 2, { window })))).toMatchObject({
        decision: 'denied_budget',
      });
      await dispatched(at.store, spend(100, 1, { window }));
    });

    at.timed('counts attempts against a rate, gives none back, and forgets them after the window', async () => {
      const verdict = permit([rateOf(3, 60_000)]);
      for (let call = 0; call < 3; call += 1) {
        const { effect } = await dispatched(at.store, { verdict });
        await at.store.settle(settleRequest(effect, FAILED));
      }
      expect(await at.store.admit(admitRequest({ verdict }))).toMatchObject({
        decision: 'denied_budget',
        reason: { code: 'rate_limited', message: expect.stringContaining('3 calls in 60 s'), rule: 'payments/rate' },
        retryAfterMs: 60_000,
      });
      // Who would wait for an hour is told to look again in a minute, and who waits a second is not told to wait longer.
      for (const [windowMs, retryAfterMs] of [
        [1_000, 1_000],
        [3_600_000, 60_000],
      ] as const)
        expect(await at.store.admit(admitRequest({ verdict: permit([rateOf(0, windowMs)]) }))).toMatchObject({
          retryAfterMs,
        });
      at.advance(60_060);
      await dispatched(at.store, { verdict });
    });

    it('counts the attempt after a failed one against a rate, too', async () => {
      const again = { idempotencyKey: 'k', verdict: permit([rateOf(2, HOUR)]) };
      for (let times = 0; times < 2; times += 1) {
        const { effect } = await dispatched(at.store, again);
        await at.store.settle(settleRequest(effect, FAILED));
      }
      expect(await at.store.admit(admitRequest(again))).toMatchObject({
        decision: 'denied_budget',
        reason: { code: 'rate_limited' },
      });
    });

    it('limits the rate of concurrent calls exactly', async () => {
      const verdict = permit([rateOf(10, 3_600_000)]);
      const answers = await Promise.all(Array.from({ length: 40 }, () => at.store.admit(admitRequest({ verdict }))));
      expect(answers.filter(({ kind }) => kind === 'dispatch')).toHaveLength(10);
    });

    it('does not let a used budget change its unit or window unless it is to begin anew', async () => {
      const daily = { budget: 'payments/daily', unit: 'EUR-cent', window: 'rolling 86400000', reset: false };
      await at.store.activatePolicy('v1', [daily]);
      const seen = { policy: 'v1', pauses: 0 };
      const { effect } = await dispatched(at.store, { ...spend(100, 60), seen });
      await at.store.settle(settleRequest(effect, committed()));
      const calls = { ...daily, unit: 'calls' };
      expect(await at.store.activatePolicy('v2', [calls])).toMatchObject({
        kind: 'budget_redefined',
        budgets: [{ budget: 'payments/daily' }],
      });
      expect(await at.store.admit(admitRequest({ seen }))).toMatchObject({ kind: 'dispatch' });
      expect(await at.store.activatePolicy('v2', [{ ...calls, reset: true }])).toEqual({
        kind: 'active',
        version: 'v2',
      });
      expect((await at.store.budgets(WORKSPACE)).filter(({ spent, held }) => spent + held > 0)).toEqual([]);
    });

    it('begins a budget anew without what was spent, and keeps what is held', async () => {
      const daily = { budget: 'payments/daily', unit: 'EUR-cent', window: 'rolling 86400000', reset: false };
      await at.store.activatePolicy('v1', [daily]);
      const seen = { policy: 'v1', pauses: 0 };
      const spent = await dispatched(at.store, { ...spend(100, 60), seen });
      await at.store.settle(settleRequest(spent.effect, committed()));
      const held = await dispatched(at.store, { ...spend(100, 30), seen });
      await at.store.activatePolicy('v2', [{ ...daily, unit: 'calls', reset: true }]);
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 0, held: 30 }]);
      await at.reopen();
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 0, held: 30 }]);
      await at.store.settle(settleRequest(held.effect, committed()));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 30, held: 0 }]);
    });

    at.timed('takes nothing off what is spent after a budget began anew for what was spent before', async () => {
      const hourly = { budget: 'payments/daily', unit: 'EUR-cent', window: 'rolling 3600000', reset: false };
      const window = { kind: 'rolling', ms: HOUR } as const;
      await at.store.activatePolicy('v1', [hourly]);
      const seen = { policy: 'v1', pauses: 0 };
      const pay = async (amount: number, policy: string) => {
        const { effect } = await dispatched(at.store, {
          ...spend(100, amount, { window }),
          seen: { ...seen, policy },
        });
        return () => at.store.settle(settleRequest(effect, committed()));
      };
      await (await pay(60, 'v1'))();
      const open = await pay(10, 'v1');
      await at.store.activatePolicy('v2', [{ ...hourly, unit: 'calls', reset: true }]);
      at.advance(HOUR / 2);
      await (await pay(40, 'v2'))();
      await open();
      at.advance(HOUR / 2 + HOUR / 1_000);
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 50, held: 0 }]);
    });

    at.timed(
      'shows a window up to its end, and from then on neither what was spent in it nor what is held',
      async () => {
        const window = { kind: 'calendar', start: at.now(), end: at.now() + HOUR } as const;
        const { effect } = await dispatched(at.store, spend(100, 40, { window }));
        await at.store.settle(settleRequest(effect, committed()));
        const open = await dispatched(at.store, spend(100, 10, { window }));
        at.advance(HOUR - 1);
        expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ spent: 40, held: 10, resetsAt: window.end }]);
        at.advance(1);
        expect(await at.store.budgets(WORKSPACE)).toEqual([]);
        await at.store.settle(settleRequest(open.effect, committed()));
        expect(await at.store.budgets(WORKSPACE)).toEqual([]);
      },
    );

    it('has at most 10,000 rows: a value that has none is refused, those that have one go on', async () => {
      const rows = (from: number, count: number) => ({
        verdict: permit(Array.from({ length: count }, (_, n) => budgetOf(9, 1, { bucket: `["c${from + n}"]` }))),
      });
      for (let made = 0; made < 9_750; made += 250) await dispatched(at.store, rows(made, 250));
      await dispatched(at.store, rows(9_750, 249));
      await dispatched(at.store, rows(9_999, 1));
      expect(await at.store.admit(admitRequest(rows(10_000, 1)))).toMatchObject({
        kind: 'refused',
        decision: 'denied_budget',
        reason: {
          code: 'too_many_rows',
          message: expect.stringContaining('payments/daily has 10000 rows'),
        },
      });
      await dispatched(at.store, rows(0, 1));
      await dispatched(at.store, { verdict: permit([budgetOf(9, 1, { budget: 'payments/other', bucket: '["c"]' })]) });
    });

    it('lets an unused budget change as it likes', async () => {
      const daily = { budget: 'payments/daily', unit: 'EUR-cent', window: 'day UTC', reset: false };
      await at.store.activatePolicy('v1', [daily]);
      expect(await at.store.activatePolicy('v2', [{ ...daily, window: 'month UTC' }])).toMatchObject({
        kind: 'active',
      });
    });

    it('has the same figures after a restart', async () => {
      const first = await dispatched(at.store, spend(100, 10));
      await at.store.settle(settleRequest(first.effect, committed()));
      await dispatched(at.store, spend(100, 20));
      const before = await at.store.budgets(WORKSPACE);
      await at.reopen();
      expect(await at.store.budgets(WORKSPACE)).toEqual(before);
      expect(before).toMatchObject([{ spent: 10, held: 20 }]);
    });
  });
}
