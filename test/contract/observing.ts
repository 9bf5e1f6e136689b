import { describe, expect, it } from 'vitest';
import type { Obligation, Permit } from '../../src/effects/model/verdict.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  type AdmitOverrides,
  approvalBy,
  budgetOf,
  dispatched,
  permit,
  rateOf,
  settleRequest,
  UNKNOWN,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

const CLAIM: Obligation = { kind: 'claim', rule: 'crm/claim', target: 'customer:7', hold: 'existing' };
const UNITS: Obligation = { kind: 'reserve', rule: 'gpu/units', pool: 'gpu', units: 5, capacity: 4 };

/** What a store promises where policy only observes: it says what it would have refused, and refuses nothing by it. */
export function describeObserving(open: OpenStore, capabilities: Capabilities): void {
  describe('where policy only observes', () => {
    const at = useStore(open, capabilities);
    const observing = (...of: Parameters<typeof permit>): Permit => ({ ...permit(...of), mode: 'observe' });
    const sent = (verdict: Permit, more: AdmitOverrides = {}) => dispatched(at.store, { verdict, ...more });

    it.each([
      ['a claim that is not there', [CLAIM], { would: 'denied_claim', rule: 'crm/claim' }],
      ['units that a pool does not have', [UNITS], { would: 'denied_reservation', rule: 'gpu/units' }],
      ['a rate', [rateOf(0, 60_000)], { would: 'denied_budget', rule: 'payments/rate' }],
      ['a budget', [budgetOf(10, 11)], { would: 'denied_budget', rule: 'payments/refunds' }],
      ['the first of several', [budgetOf(10, 11), CLAIM], { would: 'denied_claim', rule: 'crm/claim' }],
    ] as const)('a call runs, and says what would have refused it: %s', async (_, obligations, observed) => {
      const { effect, observed: told } = await sent(observing(obligations));
      expect(told).toEqual(observed);
      expect(effect).toMatchObject({ trace: { observed }, holds: [], claims: [], uses: [] });
      const [admitted] = await at.store.effectLedger(WORKSPACE, effect.id);
      expect(admitted).toMatchObject({ kind: 'effect.admitted', data: { observed } });
      expect((await at.store.budgets(WORKSPACE)).filter(({ held }) => held > 0)).toEqual([]);
    });

    it('what a call does fit is held, and nothing is observed', async () => {
      const { effect, observed } = await sent(observing([budgetOf(10, 10)]));
      expect([observed, effect.trace.observed, effect.holdState]).toEqual([null, null, 'held']);
      const [admitted] = await at.store.effectLedger(WORKSPACE, effect.id);
      expect(admitted?.data).not.toHaveProperty('observed');
    });

    it('nobody is asked, and the call says by which rule somebody would have been', async () => {
      const asked = observing([], [approvalBy({ rule: 'payments/large' })]);
      const { effect, approval, observed } = await sent(asked);
      expect(approval).toBeNull();
      expect(observed).toEqual({ would: 'pending_approval', rule: 'payments/large' });
      expect(effect.trace.observed).toEqual(observed);
      const refused = observing([budgetOf(10, 11)], [approvalBy()]);
      expect((await sent(refused)).observed).toMatchObject({ would: 'denied_budget' });
    });

    it('a call whose outcome is unknown is repeated, also where somebody would have been asked', async () => {
      const again = { idempotencyKey: 'k', times: { idempotentForMs: 60_000 } };
      const asked = observing([], [approvalBy()]);
      const { effect } = await sent(asked, again);
      await at.store.settle(settleRequest(effect, UNKNOWN));
      expect((await sent(asked, again)).effect).toMatchObject({ id: effect.id, attempt: 2 });
    });

    it('a call that somebody rejected before runs under another key: nobody is asked', async () => {
      const fingerprint = 'fp:the same';
      const asked = { verdict: permit([], [approvalBy()]), fingerprint };
      const waits = await at.store.admit(admitRequest(asked));
      if (waits.kind !== 'pending') throw new Error('it waits');
      await at.store.vote(voteRequest(waits.approval, { verdict: 'reject' }));
      expect(await at.store.admit(admitRequest(asked))).toMatchObject({ reason: { code: 'approval_rejected' } });
      expect((await sent(observing([], [approvalBy()]), { fingerprint })).observed).toMatchObject({
        would: 'pending_approval',
      });
    });

    it('a pause refuses all the same', async () => {
      const pausedBy = { id: 'pau_1', reason: 'incident', until: null };
      expect(await at.store.admit(admitRequest({ verdict: observing(), pausedBy }))).toMatchObject({
        decision: 'denied_paused',
        reason: { code: 'paused', message: 'Paused: incident (pau_1).' },
        retryAfterMs: null,
      });
    });
  });
}
