import { describe, expect, it } from 'vitest';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import { limitName, type Obligation } from '../../src/effects/model/verdict.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  type AdmitOverrides,
  approvalBy,
  budgetOf,
  committed,
  dispatched,
  FAILED,
  permit,
  rateOf,
  settleRequest,
  UNKNOWN,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

const LARGEST = Number.MAX_SAFE_INTEGER;
const BUDGET = 'budget:payments/daily';
const RATE = 'rate:payments/rate';

/** Limits that ask people where a call would go beyond them. */
export function describeBeyondLimits(open: OpenStore, capabilities: Capabilities): void {
  describe('limits that ask', () => {
    const at = useStore(open, capabilities);
    const budget = (limit: number, amount: number | null, more: Parameters<typeof budgetOf>[2] = {}): Obligation =>
      budgetOf(limit, amount, { beyond: 'ask', ...more });
    const rate = (limit: number, windowMs = 60_000): Obligation => {
      const of = rateOf(limit, windowMs);
      return of.kind === 'rate_limit' ? { ...of, beyond: 'ask' } : of;
    };

    /** The verdict of a gateway that knows which limits the call would go beyond. */
    const asking = (obligations: readonly Obligation[], ...exceeded: readonly string[]) =>
      permit(
        obligations.map(
          (one): Obligation =>
            'beyond' in one && one.beyond !== undefined && exceeded.includes(limitName(one))
              ? { ...one, beyond: 'asked' }
              : one,
        ),
        exceeded.map((beyond) => approvalBy({ beyond })),
      );
    const send = (obligations: readonly Obligation[], exceeded: readonly string[], more: AdmitOverrides = {}) =>
      at.store.admit(
        admitRequest({
          idempotencyKey: 'k',
          verdict: asking(obligations, ...exceeded),
          approvalDigest: `digest of ${exceeded.join()}`,
          ...more,
        }),
      );
    async function waiting(obligations: readonly Obligation[], ...exceeded: readonly string[]) {
      const admission = await send(obligations, exceeded);
      if (admission.kind !== 'pending') throw new Error(`expected pending, was ${JSON.stringify(admission)}`);
      return admission;
    }
    const approve = async (approval: ApprovalRecord) => {
      const voted = await at.store.vote(voteRequest(approval));
      expect(voted).toMatchObject({ kind: 'counted', approval: { status: 'granted' } });
    };
    const rows = async () =>
      (await at.store.budgets(WORKSPACE)).map(({ spent, held, limit }) => ({ spent, held, limit }));
    const events = async (effectId: string) =>
      (await at.store.effectLedger(WORKSPACE, effectId)).map(({ kind, data }) => ({ kind, data }));

    it('run a call that is within them as any other, up to the last unit', async () => {
      const { effect } = await dispatched(at.store, { verdict: permit([budget(100, 100), rate(1)]) });
      expect(effect.trace).not.toHaveProperty('beyond');
      expect(await rows()).toEqual([{ spent: 0, held: 100, limit: 100 }]);
    });

    it('name just those that a call would go beyond, and write nothing', async () => {
      await dispatched(at.store, { verdict: permit([budget(100, 99), rate(2)]) });
      const { seq } = (await at.store.ledger(WORKSPACE, 0, 100)).at(-1) ?? { seq: 0 };
      const both = [budget(100, 2), rate(1)];
      expect(await send(both, [])).toEqual({ kind: 'exceeds', limits: [BUDGET, RATE] });
      expect(await send([budget(100, 2), rate(2)], [])).toEqual({ kind: 'exceeds', limits: [BUDGET] });
      expect(await send([budget(100, 1), rate(1)], [])).toEqual({ kind: 'exceeds', limits: [RATE] });
      // Of two, one is asked about: the other one would be passed unseen.
      expect(await send(both, [RATE])).toEqual({ kind: 'exceeds', limits: [BUDGET, RATE] });
      expect((await at.store.ledger(WORKSPACE, 0, 100)).at(-1)?.seq).toBe(seq);
      expect(await rows()).toEqual([{ spent: 0, held: 99, limit: 100 }]);
    });

    it('ask nobody about what is within them, whatever a gateway believes', async () => {
      expect(await send([budget(100, 60)], [BUDGET])).toEqual({ kind: 'exceeds', limits: [] });
      expect(await send([rate(1)], [RATE])).toEqual({ kind: 'exceeds', limits: [] });
    });

    it('ask nobody about a call that another limit refuses', async () => {
      const hard = budgetOf(10, 20, { budget: 'payments/hard' });
      expect(await send([budget(100, 200), hard], [])).toMatchObject({
        kind: 'refused',
        reason: { code: 'budget_exceeded' },
        budgets: [{ budget: 'payments/hard' }],
      });
      expect(
        await send([budget(100, -1), budget(100, 1, { budget: 'payments/other', amount: null })], []),
      ).toMatchObject({
        kind: 'refused',
        reason: { code: 'amount_invalid' },
      });
    });

    it('hold nothing while people are asked, and then the call alone goes beyond, on record', async () => {
      const first = await dispatched(at.store, { verdict: permit([budget(100, 90)]) });
      const obligations = [budget(100, 30)];
      const { approval, effect } = await waiting(obligations, BUDGET);
      expect(await rows()).toEqual([{ spent: 0, held: 90, limit: 100 }]);
      expect(await events(effect.id)).toMatchObject([{ kind: 'approval.requested', data: { beyond: [BUDGET] } }]);
      await approve(approval);
      const sent = await send(obligations, [BUDGET], { dispatches: approval.id });
      if (sent.kind !== 'dispatch') throw new Error(JSON.stringify(sent));
      expect(sent.effect).toMatchObject({
        holds: [{ amount: 30 }],
        trace: { beyond: [{ limit: BUDGET, by: 20 }] },
      });
      expect(await rows()).toEqual([{ spent: 0, held: 120, limit: 100 }]);
      expect((await events(effect.id)).slice(-2)).toMatchObject([
        { kind: 'effect.admitted', data: { approval_id: approval.id, beyond: [{ limit: BUDGET, by: 20 }] } },
        { kind: 'budget.held', data: { holds: [{ amount: 30 }] } },
      ]);
      // The limit is what it was for all others.
      expect(await send([budget(100, 1)], [], { idempotencyKey: 'other' })).toMatchObject({ kind: 'exceeds' });
      const plain = permit([budgetOf(100, 1)]);
      expect(await at.store.admit(admitRequest({ verdict: plain }))).toMatchObject({ kind: 'refused' });
      await at.store.settle(settleRequest(sent.effect, committed()));
      await at.store.settle(settleRequest(first.effect, FAILED));
      expect(await rows()).toEqual([{ spent: 30, held: 0, limit: 100 }]);
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ trace: { beyond: [{ by: 20 }] } });
    });

    it('let a call that is larger than the whole limit take the first row of a budget', async () => {
      const obligations = [budget(100, 250)];
      const { approval } = await waiting(obligations, BUDGET);
      await approve(approval);
      const sent = await send(obligations, [BUDGET], { dispatches: approval.id });
      expect(sent).toMatchObject({ kind: 'dispatch', effect: { trace: { beyond: [{ by: 150 }] } } });
      expect(await rows()).toEqual([{ spent: 0, held: 250, limit: 100 }]);
    });

    it('never let figures grow beyond what can be counted', async () => {
      await dispatched(at.store, { verdict: permit([budget(LARGEST, LARGEST - 10)]) });
      const obligations = [budget(100, 11)];
      expect(await send(obligations, [BUDGET])).toMatchObject({ kind: 'refused', reason: { code: 'budget_exceeded' } });
      expect(await rows()).toMatchObject([{ held: LARGEST - 10 }]);
    });

    it('keep one question, however often the call is sent', async () => {
      await dispatched(at.store, { verdict: permit([budget(100, 90)]) });
      const obligations = [budget(100, 30)];
      const { approval } = await waiting(obligations, BUDGET);
      expect(await send(obligations, [])).toEqual({ kind: 'exceeds', limits: [BUDGET] });
      expect(await send(obligations, [BUDGET])).toMatchObject({
        kind: 'pending',
        created: false,
        approval: { id: approval.id },
      });
    });

    it('run a call that waits once it is within them, and the question is over', async () => {
      const first = await dispatched(at.store, { verdict: permit([budget(100, 90)]) });
      const obligations = [budget(100, 30)];
      const { approval } = await waiting(obligations, BUDGET);
      await at.store.settle(settleRequest(first.effect, FAILED));
      expect(await send(obligations, [BUDGET])).toEqual({ kind: 'exceeds', limits: [] });
      const sent = await send(obligations, []);
      expect(sent).toMatchObject({ kind: 'dispatch', approval: null });
      if (sent.kind === 'dispatch') expect(sent.effect.trace).not.toHaveProperty('beyond');
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({ status: 'expired' });
      expect(await rows()).toEqual([{ spent: 0, held: 30, limit: 100 }]);
    });

    it('take what was approved also where it is within them by now: nothing is above', async () => {
      const first = await dispatched(at.store, { verdict: permit([budget(100, 90)]) });
      const obligations = [budget(100, 30)];
      const { approval } = await waiting(obligations, BUDGET);
      await approve(approval);
      await at.store.settle(settleRequest(first.effect, FAILED));
      const sent = await send(obligations, [BUDGET], { dispatches: approval.id });
      if (sent.kind !== 'dispatch') throw new Error(JSON.stringify(sent));
      expect(sent.effect.trace).not.toHaveProperty('beyond');
      expect(await rows()).toEqual([{ spent: 0, held: 30, limit: 100 }]);
    });

    it('ask anew where another limit is exceeded since: the approval was not of that', async () => {
      await dispatched(at.store, { verdict: permit([budget(100, 90)]) });
      // Shared, so that nothing is held of it while people are asked.
      const team = { budget: 'payments/team', sharing: 'shared' } as const;
      const obligations = [budget(100, 30), budget(50, 30, team)];
      const { approval } = await waiting(obligations, BUDGET);
      await approve(approval);
      await dispatched(at.store, { verdict: permit([budgetOf(50, 40, team)]) });
      const granted = { dispatches: approval.id };
      const limits = [BUDGET, 'budget:payments/team'];
      expect(await send(obligations, [BUDGET], granted)).toEqual({ kind: 'exceeds', limits });
      expect(await send(obligations, limits, granted)).toMatchObject({
        kind: 'pending',
        created: true,
        approval: { status: 'pending', votes: [], requirements: [{ beyond: BUDGET }, { beyond: limits[1] }] },
      });
      expect(await rows()).toMatchObject([{ held: 90 }, { held: 40 }]);
    });

    it('count an attempt that was within a rate when it was asked no second time', async () => {
      await dispatched(at.store, { verdict: permit([budget(100, 90)]) });
      const obligations = [budget(100, 30), rate(1)];
      const { approval } = await waiting(obligations, BUDGET);
      await approve(approval);
      const sent = await send(obligations, [BUDGET], { dispatches: approval.id });
      expect(sent).toMatchObject({ kind: 'dispatch', effect: { trace: { beyond: [{ limit: BUDGET }] } } });
      expect(await send([rate(2)], [], { idempotencyKey: 'b', fingerprint: 'fb' })).toMatchObject({ kind: 'dispatch' });
    });

    it('count an attempt beyond a rate once, when it is made', async () => {
      await dispatched(at.store, { verdict: permit([rate(1)]) });
      const obligations = [rate(1)];
      const { approval } = await waiting(obligations, RATE);
      // Had it been counted when it was asked, there would be two.
      expect(await send([rate(2)], [], { idempotencyKey: 'b', fingerprint: 'fb' })).toMatchObject({ kind: 'dispatch' });
      await approve(approval);
      expect(await send(obligations, [RATE], { dispatches: approval.id })).toMatchObject({
        kind: 'dispatch',
        effect: { trace: { beyond: [{ limit: RATE, by: 1 }] } },
      });
      expect(await send([rate(3)], [], { idempotencyKey: 'c', fingerprint: 'fc' })).toMatchObject({ kind: 'exceeds' });
      expect(await send([rate(4)], [], { idempotencyKey: 'd', fingerprint: 'fd' })).toMatchObject({ kind: 'dispatch' });
    });

    it('let none of the calls at once through unseen', async () => {
      const calls = Array.from({ length: 8 }, (_, index) =>
        send([budget(100, 60)], [], { idempotencyKey: `at-once-${index}`, fingerprint: `f${index}` }),
      );
      const kinds = (await Promise.all(calls)).map(({ kind }) => kind);
      expect(kinds.filter((kind) => kind === 'dispatch')).toHaveLength(1);
      expect(kinds.filter((kind) => kind === 'exceeds')).toHaveLength(7);
      expect(await rows()).toEqual([{ spent: 0, held: 60, limit: 100 }]);
    });

    it('make one dispatch of an approval: an unknown outcome is not repeated, a failed call is asked about again', async () => {
      const obligations = [budget(100, 250)];
      const times = { idempotentForMs: 60_000 };
      const { approval } = await waiting(obligations, BUDGET);
      await approve(approval);
      const sent = await send(obligations, [BUDGET], { dispatches: approval.id, times });
      if (sent.kind !== 'dispatch') throw new Error(JSON.stringify(sent));
      await at.store.settle(settleRequest(sent.effect, UNKNOWN));
      expect(await send(obligations, [], { times })).toMatchObject({ kind: 'existing', safeToRetry: false });
      const failing = await at.store.admit(
        admitRequest({ idempotencyKey: 'f', fingerprint: 'ff', verdict: asking([budget(100, 7)], BUDGET) }),
      );
      if (failing.kind !== 'pending') throw new Error(JSON.stringify(failing));
      await approve(failing.approval);
      const key = { idempotencyKey: 'f', fingerprint: 'ff', approvalDigest: failing.approval.digest };
      const once = await send([budget(100, 7)], [BUDGET], { ...key, dispatches: failing.approval.id });
      if (once.kind !== 'dispatch') throw new Error(JSON.stringify(once));
      await at.store.settle(settleRequest(once.effect, FAILED));
      expect(await send([budget(100, 7)], [], key)).toEqual({ kind: 'exceeds', limits: [BUDGET] });
      expect(await send([budget(100, 7)], [BUDGET], key)).toMatchObject({ kind: 'pending', created: true });
    });

    it('say what they would do where policy only observes', async () => {
      await dispatched(at.store, { verdict: permit([budget(100, 90), rate(1)]) });
      const observing = { ...permit([budget(100, 30)]), mode: 'observe' } as const;
      expect(await at.store.admit(admitRequest({ verdict: observing }))).toMatchObject({
        kind: 'dispatch',
        observed: { would: 'pending_approval' },
      });
    });
  });
}
