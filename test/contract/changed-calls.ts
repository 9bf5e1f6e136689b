import { describe, expect, it } from 'vitest';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { ApprovalChange } from '../../src/effects/approval-store.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  type AdmitOverrides,
  ANY,
  approvalBy,
  budgetOf,
  dispatched,
  permit,
  rateOf,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

/** What a store promises of calls that approvers change: what was voted on is what runs, once, and both stay on record. */
export function describeChangedCalls(open: OpenStore, capabilities: Capabilities): void {
  describe('calls that approvers change', () => {
    const at = useStore(open, capabilities);
    const asking = (quorum = 1, amount = 60) =>
      permit(
        [budgetOf(100, amount)],
        [approvalBy({ quorum, editable: { amount: { kind: 'range', min: 1, max: 50 } } })],
      );
    const CHANGED = 'sealed.changed';

    async function pending(quorum = 1) {
      const admission = await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict: asking(quorum) }));
      if (admission.kind !== 'pending') throw new Error(`expected pending, was ${JSON.stringify(admission)}`);
      return admission;
    }
    const changing = (approval: ApprovalRecord, digest = 'changed'): { readonly change: ApprovalChange } => ({
      change: {
        digest,
        requirements: approval.requirements.map((one) => ({ ...one, summary: `now ${digest}` })),
        askedAt: approval.createdAt,
        requester: approval.requester,
        costs: [],
        params: ['amount'],
        sealed: CHANGED,
      },
    });
    const send = (approvalId: string, overrides: AdmitOverrides = {}) =>
      at.store.admit(
        admitRequest({
          idempotencyKey: 'k',
          verdict: permit([budgetOf(100, 20)]),
          dispatches: approvalId,
          approvalDigest: 'changed',
          sealed: CHANGED,
          ...overrides,
        }),
      );
    const held = async () => (await at.store.budgets(WORKSPACE)).map((row) => row.held);

    it('are from then on what is voted on: earlier votes are void, and one for what was asked counts for nothing', async () => {
      const { approval } = await pending(2);
      await at.store.vote(voteRequest(approval, { user: 'omar' }));
      const changed = await at.store.vote(voteRequest(approval, { user: 'maria', ...changing(approval) }));
      expect(changed).toMatchObject({
        kind: 'counted',
        approval: {
          status: 'pending',
          digest: 'changed',
          requirements: [{ summary: 'now changed' }],
          changed: { by: 'maria', params: ['amount'], askedDigest: approval.digest, sealed: CHANGED },
        },
      });
      const now = await at.store.approval(WORKSPACE, approval.id);
      expect(now?.votes.map(({ user }) => user)).toEqual(['maria']);
      expect(await at.store.vote(voteRequest(approval, { user: 'omar' }))).toMatchObject({ kind: 'question_changed' });
      expect(await at.store.approval(WORKSPACE, approval.id)).toEqual(now);
      if (now === null) throw new Error('it waits');
      expect(await at.store.vote(voteRequest(now, { user: 'omar' }))).toMatchObject({
        approval: { status: 'granted' },
      });
    });

    it('may be changed again: what the agent asked stays the same', async () => {
      const { approval } = await pending(2);
      await at.store.vote(voteRequest(approval, { user: 'maria', ...changing(approval) }));
      const now = await at.store.approval(WORKSPACE, approval.id);
      if (now === null) throw new Error('it waits');
      expect(await at.store.vote(voteRequest(now, { user: 'omar', ...changing(now, 'again') }))).toMatchObject({
        kind: 'counted',
        approval: { digest: 'again', changed: { by: 'omar', askedDigest: approval.digest } },
      });
    });

    it('run with the params that were voted on, hold what they take, and keep what was asked as it was asked', async () => {
      const { approval, effect } = await pending();
      await at.store.vote(voteRequest(approval, changing(approval)));
      const admission = await send(approval.id);
      expect(admission).toMatchObject({
        kind: 'dispatch',
        approval: { status: 'used', changed: { sealed: null } },
        effect: { sealed: CHANGED, fingerprint: effect.fingerprint },
      });
      const there = await at.store.effect(WORKSPACE, effect.id);
      expect(there?.trace.changed).toEqual({ approvalId: approval.id, params: ['amount'] });
      // No rule asks about the call as it ran.
      const found = await at.store.effects(WORKSPACE, { ...ANY, approver: 'maria' });
      expect(found.items.map(({ id }) => id)).toEqual([effect.id]);
      expect(await held()).toEqual([20]);
    });

    it('are held to the rates of rules that what was asked did not match, and not again to those that it was counted in', async () => {
      const rate = (rule: string) => ({ ...rateOf(1, 3_600_000), rule, id: rule });
      const [counted, other] = [rate('payments/refunds'), rate('payments/small')];
      const asked = await at.store.admit(
        admitRequest({ idempotencyKey: 'k', verdict: permit([counted], [approvalBy()]) }),
      );
      if (asked.kind !== 'pending') throw new Error(asked.kind);
      await dispatched(at.store, { verdict: permit([other]) });
      await at.store.vote(voteRequest(asked.approval, changing(asked.approval)));
      expect(await send(asked.approval.id, { verdict: permit([counted, other]) })).toMatchObject({
        kind: 'refused',
        reason: { code: 'rate_limited', rule: 'payments/small' },
      });
      expect(await send(asked.approval.id, { verdict: permit([counted]) })).toMatchObject({ kind: 'dispatch' });
    });

    it('are held to the rate of the bucket that the change moves them to', async () => {
      const rate = (bucket: string) => ({ ...rateOf(1, 3_600_000), bucket });
      const asked = await at.store.admit(
        admitRequest({ idempotencyKey: 'k', verdict: permit([rate('["EUR"]')], [approvalBy()]) }),
      );
      if (asked.kind !== 'pending') throw new Error(asked.kind);
      await dispatched(at.store, { verdict: permit([rate('["CHF"]')]) });
      await at.store.vote(voteRequest(asked.approval, changing(asked.approval)));
      expect(await send(asked.approval.id, { verdict: permit([rate('["CHF"]')]) })).toMatchObject({
        kind: 'refused',
        reason: { code: 'rate_limited' },
      });
      // A bucket that has room counts it, and so is full for the next.
      expect(await send(asked.approval.id, { verdict: permit([rate('["USD"]')]) })).toMatchObject({ kind: 'dispatch' });
      const next = admitRequest({ idempotencyKey: 'k2', verdict: permit([rate('["USD"]')]) });
      expect(await at.store.admit(next)).toMatchObject({ kind: 'refused', reason: { code: 'rate_limited' } });
    });

    it('are joined by who asks as before, and never sent as they were asked', async () => {
      const { approval, effect } = await pending(2);
      const again = () => at.store.admit(admitRequest({ idempotencyKey: 'k', verdict: asking(2) }));
      await at.store.vote(voteRequest(approval, { user: 'maria', ...changing(approval) }));
      expect(await again()).toMatchObject({ kind: 'pending', created: false, approval: { digest: 'changed' } });
      const now = await at.store.approval(WORKSPACE, approval.id);
      if (now === null) throw new Error('it waits');
      await at.store.vote(voteRequest(now, { user: 'omar' }));
      // Granted: neither the same call, nor one that policy no longer asks about, takes the place of what was approved.
      expect(await again()).toMatchObject({ kind: 'pending', approval: { status: 'granted' } });
      const unasked = admitRequest({ idempotencyKey: 'k', verdict: permit(), approvalDigest: '' });
      expect(await at.store.admit(unasked)).toMatchObject({ kind: 'pending', approval: { status: 'granted' } });
      expect(await send(approval.id)).toMatchObject({ kind: 'dispatch', effect: { id: effect.id } });
    });

    it('end where policy or the tool is no longer what it was, and nobody is asked what the agent never asked', async () => {
      const { approval, effect } = await pending();
      await at.store.vote(voteRequest(approval, changing(approval)));
      expect(await send(approval.id, { approvalDigest: 'of another policy' })).toMatchObject({
        kind: 'refused',
        reason: { code: 'approval_expired' },
      });
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({
        status: 'expired',
        stopped: { reason: { code: 'approval_expired' } },
        changed: { sealed: null },
      });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'denied' } });
      expect((await held()).filter((amount) => amount > 0)).toEqual([]);
      expect(await send(approval.id)).toMatchObject({ kind: 'refused' });
    });

    it('are not repeated while their outcome is unknown, and asked anew as the agent asks after they failed', async () => {
      const { approval, effect } = await pending();
      await at.store.vote(voteRequest(approval, changing(approval)));
      const admission = await send(approval.id, { times: { idempotentForMs: 3_600_000 } });
      if (admission.kind !== 'dispatch') throw new Error(admission.kind);
      await at.store.settle(settleRequest(admission.effect, { kind: 'unknown' }));
      const repeat = admitRequest({ idempotencyKey: 'k', verdict: permit(), times: { idempotentForMs: 3_600_000 } });
      expect(await at.store.admit(repeat)).toMatchObject({ kind: 'existing', safeToRetry: false });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({
        life: { state: 'unknown' },
        sealed: CHANGED,
      });
    });

    it('that failed are asked anew as the agent asks them', async () => {
      const { approval } = await pending();
      await at.store.vote(voteRequest(approval, changing(approval)));
      const admission = await send(approval.id);
      if (admission.kind !== 'dispatch') throw new Error(admission.kind);
      await at.store.settle(settleRequest(admission.effect, { kind: 'failed', result: null }));
      const asked = admitRequest({ idempotencyKey: 'k', verdict: asking() });
      const again = await at.store.admit(asked);
      expect(again).toMatchObject({ kind: 'pending', created: true, effect: { sealed: asked.sealed } });
      const { trace } = (await at.store.effect(WORKSPACE, admission.effect.id)) ?? {};
      expect(trace).toBeDefined();
      expect(trace?.changed).toBeUndefined();
    });

    it('keep nothing of the change but its names once they are rejected or over', async () => {
      const { approval } = await pending(2);
      await at.store.vote(voteRequest(approval, { user: 'maria', ...changing(approval) }));
      const now = await at.store.approval(WORKSPACE, approval.id);
      if (now === null) throw new Error('it waits');
      await at.store.vote(voteRequest(now, { user: 'omar', verdict: 'reject', comment: 'no' }));
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({
        status: 'rejected',
        changed: { params: ['amount'], sealed: null },
      });
    });

    it('stand in the ledger with what was changed, instead of which question, and whether that was the last vote', async () => {
      const { approval, effect } = await pending(2);
      await at.store.vote(voteRequest(approval, { user: 'maria', ...changing(approval) }));
      const now = await at.store.approval(WORKSPACE, approval.id);
      if (now === null) throw new Error('it waits');
      await at.store.vote(voteRequest(now, { user: 'omar' }));
      const votes = (await at.store.effectLedger(WORKSPACE, effect.id)).filter(
        ({ kind }) => kind === 'approval.granted',
      );
      const said = { approval_id: approval.id, digest: 'changed' };
      expect(votes.map(({ data }) => data)).toEqual([
        {
          ...said,
          user: 'maria',
          key_id: voteRequest(approval).keyId,
          complete: false,
          changed: ['amount'],
          instead_of: approval.digest,
        },
        { ...said, user: 'omar', key_id: voteRequest(approval).keyId, complete: true },
      ]);
    });

    it('a rejection without a reason counts for nothing where one of the rules that ask wants one, an approval does', async () => {
      const verdict = permit([], [approvalBy(), approvalBy({ rule: 'payments/b', requireReason: true })]);
      const admission = await at.store.admit(admitRequest({ idempotencyKey: 'r', verdict }));
      if (admission.kind !== 'pending') throw new Error(admission.kind);
      const { approval } = admission;
      for (const comment of [null, '', '  \n'])
        expect(await at.store.vote(voteRequest(approval, { verdict: 'reject', comment }))).toMatchObject({
          kind: 'reason_required',
        });
      expect(await at.store.approval(WORKSPACE, approval.id)).toEqual(approval);
      expect(await at.store.vote(voteRequest(approval, { user: 'omar' }))).toMatchObject({ kind: 'counted' });
      expect(await at.store.vote(voteRequest(approval, { verdict: 'reject', comment: 'too much' }))).toMatchObject({
        kind: 'counted',
        approval: { status: 'rejected' },
      });
    });
  });
}
