import { describe, expect, it } from 'vitest';
import type { AllowanceDraft } from '../../src/effects/model/allowance.ts';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { ApprovalRequirement } from '../../src/effects/model/verdict.ts';
import type { VoteRequest } from '../../src/effects/approval-store.ts';
import { type Capabilities, DAY, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  type AdmitOverrides,
  approvalBy,
  budgetOf,
  committed,
  FAILED,
  newId,
  permit,
  PERSON,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

const HOUR = 3_600_000;

/** What a store promises of calls that are allowed ahead: no more than were allowed, nobody's own, and nothing but the question is answered. */
export function describeAllowances(open: OpenStore, capabilities: Capabilities): void {
  describe('calls that are allowed ahead', () => {
    const at = useStore(open, capabilities);
    const asking = (more: Partial<ApprovalRequirement> = {}, ...others: readonly ApprovalRequirement[]) =>
      permit([budgetOf(1_000, 60)], [approvalBy({ allowAlike: { times: 5, forMs: HOUR }, ...more }), ...others]);
    const ALIKE = { alike: { likeness: 'refunds', registeredBy: null } };

    const ask = (overrides: AdmitOverrides = {}) =>
      at.store.admit(admitRequest({ verdict: asking(), ...ALIKE, ...overrides }));
    async function pending(overrides: AdmitOverrides = {}): Promise<ApprovalRecord> {
      const admission = await ask(overrides);
      if (admission.kind !== 'pending') throw new Error(`expected pending, was ${JSON.stringify(admission)}`);
      return admission.approval;
    }
    const draft = (approval: ApprovalRecord, more: Partial<AllowanceDraft> = {}): AllowanceDraft => ({
      id: newId('alw'),
      workspace: WORKSPACE,
      likeness: 'refunds',
      approvalId: approval.id,
      effectId: approval.effectId,
      agentId: 'support-bot',
      tool: approval.tool,
      target: approval.target,
      rules: ['payments/large'],
      varies: {},
      by: { user: 'maria', keyId: 'key_acct00000001' },
      times: 3,
      until: at.store.now() + HOUR,
      ...more,
    });
    const giving = (approval: ApprovalRecord, more: Partial<AllowanceDraft> = {}, vote: Partial<VoteRequest> = {}) =>
      at.store.vote(voteRequest(approval, { alike: draft(approval, more), ...vote }));
    /** Approves a call and allows the next ones. @returns the id of the allowance */
    async function given(more: Partial<AllowanceDraft> = {}): Promise<string> {
      const approval = await pending({ alike: undefined });
      const id = newId('alw');
      expect(await giving(approval, { id, ...more })).toMatchObject({
        kind: 'counted',
        approval: { status: 'granted' },
      });
      return id;
    }
    const revoke = (id: string) => at.store.revokeAllowance({ workspace: WORKSPACE, id, by: 'omar', actor: PERSON });
    const used = async (id: string) => (await at.store.allowance(WORKSPACE, id))?.used;

    it('are let in without asking, so often and not once more, and the record says by whose word', async () => {
      const id = await given();
      const first = await ask();
      expect(first).toMatchObject({
        kind: 'dispatch',
        approval: null,
        allowance: { id, used: 1, by: { user: 'maria' } },
        effect: { life: { state: 'executing' }, trace: { allowance: { id, by: 'maria', use: 1 } } },
      });
      if (first.kind !== 'dispatch') throw new Error(first.kind);
      const there = await at.store.effect(WORKSPACE, first.effect.id);
      expect(there?.trace.allowance).toEqual({ id, approvalId: first.allowance?.approvalId, by: 'maria', use: 1 });
      expect(there?.stages.find(({ stage }) => stage === 'approval')).toMatchObject({ status: 'passed', detail: id });
      const told = await at.store.effectLedger(WORKSPACE, first.effect.id);
      expect(told.map(({ kind }) => kind)).toEqual(['effect.admitted', 'budget.held', 'allowance.used']);
      expect(told[2]?.data).toMatchObject({ allowance_id: id, given_by: 'maria', used: 1 });
      expect(first.ledger.seq).toBe(told[0]?.seq);
      expect((await at.store.budgets(WORKSPACE)).map(({ held }) => held)).toEqual([120]);
      expect([(await ask()).kind, (await ask()).kind, (await ask()).kind]).toEqual(['dispatch', 'dispatch', 'pending']);
      expect(await used(id)).toBe(3);
    });

    it('are no more than were allowed, however many come at once', async () => {
      const id = await given();
      const admissions = await Promise.all(Array.from({ length: 12 }, () => ask()));
      expect(admissions.filter(({ kind }) => kind === 'dispatch')).toHaveLength(3);
      expect(admissions.filter(({ kind }) => kind === 'pending')).toHaveLength(9);
      expect(await used(id)).toBe(3);
    });

    it('are counted once where the same call comes again', async () => {
      const id = await given();
      const again = { idempotencyKey: 'again', fingerprint: 'fp:again' };
      const admissions = await Promise.all(Array.from({ length: 5 }, () => ask(again)));
      expect(admissions.filter(({ kind }) => kind === 'dispatch')).toHaveLength(1);
      const [one] = admissions.filter((admission) => admission.kind === 'dispatch');
      if (one?.kind !== 'dispatch') throw new Error('one runs');
      await at.store.settle(settleRequest(one.effect, committed()));
      expect(await ask(again)).toMatchObject({ kind: 'existing', effect: { id: one.effect.id } });
      expect(await used(id)).toBe(1);
    });

    it('have to be alike, and of others than whoever allowed them', async () => {
      const id = await given();
      const others: readonly AdmitOverrides[] = [
        { alike: { likeness: 'others', registeredBy: null } },
        { alike: undefined },
        { alike: { likeness: 'refunds', registeredBy: 'maria' } },
        { actor: { user: 'maria' } },
        { actor: { agentOwner: 'maria' } },
        { actor: { keyMadeBy: 'maria' } },
        { actor: { keyId: 'key_acct00000001' } },
      ];
      for (const other of others) expect([other, (await ask(other)).kind]).toEqual([other, 'pending']);
      expect(await used(id)).toBe(0);
      expect(await ask()).toMatchObject({ kind: 'dispatch' });
    });

    it('are refused by all that refuses calls, and then none is used up', async () => {
      const id = await given();
      const paused = { pausedBy: { id: 'pau_1', reason: 'incident', until: null } };
      expect(await ask(paused)).toMatchObject({ kind: 'refused', decision: 'denied_paused' });
      const reason = { code: 'rule_denied', message: 'Not now.', rule: 'payments/freeze' } as const;
      const denied = { kind: 'deny', decision: 'denied_policy', reason, trace: permit().trace } as const;
      expect(await ask({ verdict: denied })).toMatchObject({ kind: 'refused', reason });
      const dear = permit([budgetOf(1_000, 2_000)], asking().approvals);
      expect(await ask({ verdict: dear })).toMatchObject({ kind: 'refused', decision: 'denied_budget' });
      const claim = { kind: 'claim', rule: 'r', target: 'payment:42', hold: 'existing' } as const;
      expect(await ask({ verdict: permit([claim], asking().approvals) })).toMatchObject({ decision: 'denied_claim' });
      expect(await used(id)).toBe(0);
    });

    it('hold what they take, also of budgets that others share', async () => {
      await given();
      const shared = budgetOf(100, 60, { budget: 'payments/all', bucket: '[]', sharing: 'shared' });
      expect(await ask({ verdict: permit([shared], asking().approvals) })).toMatchObject({ kind: 'dispatch' });
      const held = (await at.store.budgets(WORKSPACE)).find(({ budget }) => budget === 'payments/all');
      expect(held).toMatchObject({ held: 60 });
    });

    it('are refused where the very same call was rejected', async () => {
      const rejected = await pending({ fingerprint: 'fp:rejected' });
      await at.store.vote(voteRequest(rejected, { verdict: 'reject' }));
      const id = await given();
      expect(await ask({ fingerprint: 'fp:rejected' })).toMatchObject({ reason: { code: 'approval_rejected' } });
      expect(await used(id)).toBe(0);
    });

    it('do not take the place of a call that waits: people decide on that', async () => {
      const waiting = { idempotencyKey: 'waits', fingerprint: 'fp:waits' };
      await pending(waiting);
      const id = await given();
      expect(await ask(waiting)).toMatchObject({ kind: 'pending', created: false });
      expect(await used(id)).toBe(0);
    });

    it('are counted for each attempt, and an unknown outcome is not repeated by them', async () => {
      const id = await given();
      const one = { idempotencyKey: 'k', fingerprint: 'fp:k', times: { idempotentForMs: HOUR } };
      for (const outcome of [FAILED, { kind: 'unknown' } as const]) {
        const admission = await ask(one);
        if (admission.kind !== 'dispatch') throw new Error(admission.kind);
        await at.store.settle(settleRequest(admission.effect, outcome));
      }
      expect(await used(id)).toBe(2);
      expect(await ask(one)).toMatchObject({ kind: 'existing', safeToRetry: false });
      expect(await used(id)).toBe(2);
    });

    it('are only foretold by a preview', async () => {
      const id = await given();
      expect(await at.store.preview(admitRequest({ verdict: asking(), ...ALIKE }))).toMatchObject({ kind: 'dispatch' });
      expect(await used(id)).toBe(0);
    });

    it('are allowed by the vote that grants, in one step: a vote that may not allow them decides nothing', async () => {
      const two = approvalBy({ rule: 'payments/b', allowAlike: { times: 2, forMs: HOUR } });
      const never = approvalBy({ rule: 'payments/c' });
      const refused: readonly (readonly [string, ApprovalRecord, Partial<AllowanceDraft>, Partial<VoteRequest>])[] = [
        ['no rule lets them', await pending({ verdict: asking({}, never) }), {}, { requirements: [0, 1] }],
        ['several have to agree', await pending({ verdict: asking({ quorum: 2 }) }), {}, {}],
        ['others decide, too', await pending({ verdict: asking({}, two) }), { times: 1 }, { requirements: [0] }],
        ['too many', await pending(), { times: 6 }, {}],
        ['too many for one of the rules', await pending({ verdict: asking({}, two) }), {}, { requirements: [0, 1] }],
        ['none', await pending(), { times: 0 }, {}],
        ['a part of one', await pending(), { times: 1.5 }, {}],
        ['their time is over', await pending(), { until: at.store.now() - 1 }, {}],
      ];
      for (const [why, approval, more, vote] of refused) {
        expect([why, (await giving(approval, more, vote)).kind]).toEqual([why, 'alike_refused']);
        expect(await at.store.approval(WORKSPACE, approval.id)).toEqual(approval);
      }
      expect((await at.store.allowances(WORKSPACE, { agentId: null, limit: 10, cursor: null })).items).toEqual([]);
      // Who may decide nothing allows nothing.
      for (const vote of [{ user: 'olga' }, { requirements: [] }, { keyId: 'key_agent0000001' }, { digest: 'other' }]) {
        const approval = await pending();
        expect((await giving(approval, {}, vote)).kind).not.toBe('counted');
      }
      expect((await at.store.allowances(WORKSPACE, { agentId: null, limit: 10, cursor: null })).items).toEqual([]);
      const approval = await pending({ verdict: asking({}, two) });
      expect(await giving(approval, { times: 2 }, { requirements: [0, 1] })).toMatchObject({ kind: 'counted' });
      expect((await at.store.effectLedger(WORKSPACE, approval.effectId)).map(({ kind }) => kind)).toEqual([
        'approval.requested',
        'budget.held',
        'approval.granted',
        'allowance.given',
      ]);
    });

    it('are not allowed with a change of the call, and not after one', async () => {
      const approval = await pending();
      const change = {
        digest: 'changed',
        requirements: approval.requirements,
        askedAt: approval.createdAt,
        requester: approval.requester,
        costs: [],
        params: ['amount'],
        sealed: 'sealed.changed',
      };
      expect(await giving(approval, {}, { change })).toMatchObject({ kind: 'alike_refused' });
      const other = approvalBy({ rule: 'payments/b', allowAlike: { times: 5, forMs: HOUR } });
      const both = await pending({ verdict: asking({}, other) });
      await at.store.vote(
        voteRequest(both, { change: { ...change, requirements: [...both.requirements], requester: both.requester } }),
      );
      const now = await at.store.approval(WORKSPACE, both.id);
      if (now === null) throw new Error('it waits');
      expect(await giving(now, {}, { user: 'omar', requirements: [0, 1] })).toMatchObject({ kind: 'alike_refused' });
    });

    it('end when somebody says so, and what ran stays as it is', async () => {
      const id = await given();
      const admission = await ask();
      expect(await revoke(id)).toMatchObject({ kind: 'revoked', allowance: { used: 1, ended: { why: 'revoked' } } });
      expect(await ask()).toMatchObject({ kind: 'pending' });
      expect(await revoke(id)).toMatchObject({ kind: 'over' });
      expect(await revoke('alw_none')).toEqual({ kind: 'absent' });
      expect(await used(id)).toBe(1);
      if (admission.kind !== 'dispatch') throw new Error(admission.kind);
      expect(await at.store.settle(settleRequest(admission.effect, committed()))).toEqual({ kind: 'settled' });
    });

    it('end when somebody says so while they come: what was answered as let in is counted, and nothing after', async () => {
      const id = await given({ times: 5 });
      const calls = Array.from({ length: 4 }, () => ask());
      const revoking = revoke(id);
      const admissions = await Promise.all(calls);
      await revoking;
      const letIn = admissions.filter(({ kind }) => kind === 'dispatch').length;
      expect(await used(id)).toBe(letIn);
      expect(await ask()).toMatchObject({ kind: 'pending' });
    });

    it('are those that were allowed last: what was left of before does not add up', async () => {
      const first = await pending();
      const second = await pending({ idempotencyKey: 'second' });
      const [one, other] = [newId('alw'), newId('alw')];
      await giving(first, { id: one, times: 5 });
      expect(await ask()).toMatchObject({ kind: 'dispatch', allowance: { id: one } });
      await giving(second, { id: other, times: 1, by: { user: 'omar', keyId: 'key_acct00000002' } }, { user: 'omar' });
      expect(await at.store.allowance(WORKSPACE, one)).toMatchObject({ ended: { why: 'replaced', by: 'omar' } });
      expect(await revoke(one)).toMatchObject({ kind: 'over' });
      expect(await ask()).toMatchObject({ kind: 'dispatch', allowance: { id: other } });
      expect(await ask()).toMatchObject({ kind: 'pending' });
    });

    it('that were over before are not said to be replaced', async () => {
      const first = await pending();
      const second = await pending({ idempotencyKey: 'second' });
      const [one, other] = [newId('alw'), newId('alw')];
      await giving(first, { id: one, times: 1 });
      expect(await ask()).toMatchObject({ kind: 'dispatch', allowance: { id: one } });
      await giving(second, { id: other, times: 1 });
      expect((await at.store.allowance(WORKSPACE, one))?.ended).toBeUndefined();
      const told = await at.store.effectLedger(WORKSPACE, second.effectId);
      const given = told.find(({ kind }) => kind === 'allowance.given');
      expect([given?.data['allowance_id'], given?.data['instead_of']]).toEqual([other, undefined]);
    });

    it('are listed, newest first, those of one agent or all, and are there after a restart', async () => {
      const [one, other] = [await given({ times: 1 }), await given({ agentId: 'other-bot', likeness: 'others' })];
      await at.reopen();
      const page = (agentId: string | null, limit = 10, cursor: string | null = null) =>
        at.store.allowances(WORKSPACE, { agentId, limit, cursor });
      expect((await page(null)).items.map(({ id }) => id).toSorted()).toEqual([one, other].toSorted());
      expect((await page('other-bot')).items.map(({ id }) => id)).toEqual([other]);
      const first = await page(null, 1);
      const next = await page(null, 1, first.next);
      expect([...first.items, ...next.items]).toHaveLength(2);
      expect((await ask()).kind).toBe('dispatch');
      expect((await ask()).kind).toBe('pending');
    });

    at.timed('end with their time, which is at most what the policy says, to the ms', async () => {
      const short = await given({ times: 5, until: at.now() + 10_000 });
      expect(await ask()).toMatchObject({ kind: 'dispatch', allowance: { expiresAt: at.now() + 10_000 } });
      at.advance(9_999);
      expect(await ask()).toMatchObject({ kind: 'dispatch' });
      at.advance(1);
      expect(await ask()).toMatchObject({ kind: 'pending' });
      expect(await revoke(short)).toMatchObject({ kind: 'over' });
      const long = await given({ until: at.now() + 100 * HOUR });
      expect(await at.store.allowance(WORKSPACE, long)).toMatchObject({ expiresAt: at.now() + HOUR });
    });

    at.timed('let a call in whose question has expired, once, with the money that this question held', async () => {
      const verdict = permit([budgetOf(100, 60)], asking({ expiresMs: 60_000 }).approvals);
      const waited = { verdict, idempotencyKey: 'waited', fingerprint: 'fp:waited' };
      await pending(waited);
      const approval = await pending({ alike: undefined, verdict: permit([], asking().approvals) });
      const id = newId('alw');
      expect(await giving(approval, { id })).toMatchObject({ kind: 'counted' });
      at.advance(60_000);
      const admissions = await Promise.all(Array.from({ length: 5 }, () => ask(waited)));
      expect(admissions.map(({ kind }) => kind).toSorted()).toEqual(['dispatch', ...Array(4).fill('existing')]);
      expect(await used(id)).toBe(1);
      expect((await at.store.budgets(WORKSPACE)).map(({ held }) => held)).toEqual([60]);
      expect(await ask({ verdict })).toMatchObject({ kind: 'refused', decision: 'denied_budget' });
    });

    at.timed('are forgotten a day after their time, and nothing of them stays', async () => {
      const id = await given();
      at.advance(HOUR + DAY - 1);
      await at.store.sweep(100);
      expect(await at.store.allowance(WORKSPACE, id)).toMatchObject({ id });
      at.advance(2);
      await at.store.sweep(100);
      expect(await at.store.allowance(WORKSPACE, id)).toBeNull();
      expect((await at.store.allowances(WORKSPACE, { agentId: null, limit: 10, cursor: null })).items).toEqual([]);
      const next = await given();
      expect(await ask()).toMatchObject({ kind: 'dispatch', allowance: { id: next } });
      // What was allowed since for calls alike stays when this one is forgotten.
      at.advance(HOUR + DAY - 1);
      const later = await given();
      at.advance(2);
      await at.store.sweep(100);
      expect(await at.store.allowance(WORKSPACE, next)).toBeNull();
      expect(await ask()).toMatchObject({ kind: 'dispatch', allowance: { id: later } });
    });
  });
}
