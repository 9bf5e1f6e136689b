import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { describe, expect, it } from 'vitest';
import type { ApprovalRequirement } from '../../src/effects/model/verdict.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  type AdmitOverrides,
  approvalBy,
  budgetOf,
  dispatched,
  permit,
  rateOf,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

const GATEWAY = { type: 'gateway', id: 'approvals' } as const;

export function describeGranted(open: OpenStore, capabilities: Capabilities): void {
  describe('granted requests', () => {
    const at = useStore(open, capabilities);
    const asking = (requirement: Partial<ApprovalRequirement> = {}) =>
      permit([budgetOf(100, 60)], [approvalBy(requirement)]);

    /** A call that waits with its money held, and is granted. */
    async function granted(overrides: AdmitOverrides = {}) {
      const request = admitRequest({ idempotencyKey: 'k', verdict: asking(), ...overrides });
      const admission = await at.store.admit(request);
      if (admission.kind !== 'pending') throw new Error(`expected pending, was ${JSON.stringify(admission)}`);
      await at.store.vote(voteRequest(admission.approval));
      return admission;
    }
    /** The gateway sends what was granted, as it does by itself. */
    const send = (approvalId: string, overrides: AdmitOverrides = {}) =>
      at.store.admit(admitRequest({ idempotencyKey: 'k', verdict: asking(), dispatches: approvalId, ...overrides }));
    const PAUSED = { pausedBy: { id: 'pau_1', reason: 'incident', until: null } };
    const events = async (effectId: string) =>
      (await at.store.effectLedger(WORKSPACE, effectId)).map(({ kind, data }) => [kind, data['code']]);

    it('is sent by the gateway once', async () => {
      const { approval, effect } = await granted();
      // People were asked, so nothing is observed of what asking them would have been.
      expect(await send(approval.id)).toMatchObject({
        kind: 'dispatch',
        approval: { status: 'used', stopped: null },
        observed: null,
      });
      expect(await send(approval.id)).toMatchObject({ kind: 'existing', effect: { id: effect.id } });
    });

    it('says once what stops it, and waits; another reason is said as well', async () => {
      const { approval, effect } = await granted();
      const before = (await events(effect.id)).length;
      for (let tries = 0; tries < 4; tries += 1)
        expect(await send(approval.id, PAUSED)).toMatchObject({
          kind: 'refused',
          decision: 'denied_paused',
          reason: { code: 'paused', message: 'Paused: incident (pau_1).' },
        });
      const others = { kind: 'deny', decision: 'denied_policy', trace: permit().trace } as const;
      const reason = { code: 'rule_denied', message: 'Not now.', rule: 'payments/freeze' } as const;
      for (let tries = 0; tries < 2; tries += 1)
        expect(await send(approval.id, { verdict: { ...others, reason } })).toMatchObject({ reason });
      expect((await events(effect.id)).slice(before)).toEqual([
        ['effect.denied', 'paused'],
        ['effect.denied', 'rule_denied'],
      ]);
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({
        status: 'granted',
        stopped: { decision: 'denied_policy', reason },
      });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'pending_approval' } });
      expect(await send(approval.id)).toMatchObject({ kind: 'dispatch', approval: { stopped: null } });
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({ status: 'used', stopped: null });
    });

    it('says it again where another rule stops it for a reason of the same kind', async () => {
      const { approval, effect } = await granted();
      const before = (await events(effect.id)).length;
      const denied = { kind: 'deny', decision: 'denied_policy', trace: permit().trace } as const;
      for (const rule of ['payments/freeze', 'payments/freeze', 'payments/night']) {
        const reason = { code: 'rule_denied', message: 'Not now.', rule } as const;
        expect(await send(approval.id, { verdict: { ...denied, reason } })).toMatchObject({ reason });
      }
      const told = (await at.store.effectLedger(WORKSPACE, effect.id)).slice(before);
      expect(told.map(({ data }) => data['rule'])).toEqual(['payments/freeze', 'payments/night']);
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({
        stopped: { reason: { rule: 'payments/night' } },
      });
    });

    it('is not sent under another key, nor before it is granted, nor for another request', async () => {
      const waiting = await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict: asking() }));
      if (waiting.kind !== 'pending') throw new Error('it waits');
      expect(await send(waiting.approval.id)).toMatchObject({ kind: 'pending', created: false });
      await at.store.vote(voteRequest(waiting.approval));
      expect(await send(waiting.approval.id, { idempotencyKey: 'other' })).toMatchObject({ kind: 'refused' });
      expect(await send('apr_none')).toMatchObject({ kind: 'refused' });
      expect(await at.store.effect(WORKSPACE, waiting.effect.id)).toMatchObject({
        life: { state: 'pending_approval' },
      });
    });

    it('asks anew where the question is another by now, and is not sent', async () => {
      const { approval } = await granted({ approvalDigest: 'before' });
      const again = await send(approval.id, { approvalDigest: 'after' });
      expect(again).toMatchObject({ kind: 'pending', created: true, approval: { status: 'pending', votes: [] } });
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({ status: 'expired' });
      // The present question is the answer, whichever is asked about.
      expect(await send(approval.id, { approvalDigest: 'after' })).toMatchObject({
        kind: 'pending',
        created: false,
        approval: again.kind === 'pending' ? { id: again.approval.id } : {},
      });
    });

    it('is not sent for the approval of another call', async () => {
      const { approval } = await granted();
      const other = await at.store.admit(
        admitRequest({ idempotencyKey: 'other', verdict: permit([], [approvalBy()]) }),
      );
      if (other.kind !== 'pending') throw new Error(other.kind);
      await at.store.vote(voteRequest(other.approval));
      expect(await send(approval.id, { idempotencyKey: 'other' })).toMatchObject({
        kind: 'refused',
        decision: 'denied_policy',
        reason: { code: 'approval_expired' },
      });
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({ status: 'granted' });
    });

    it('ends where the call cannot be made any more: the money is given back, the key is free, the ledger says why', async () => {
      const { approval, effect } = await granted();
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 60 }]);
      const why = {
        workspace: WORKSPACE,
        approvalId: approval.id,
        decision: 'denied_permission',
        reason: { code: 'key_ended', message: 'The key was revoked.' },
        actor: GATEWAY,
      } as const;
      expect(await at.store.giveUp(why)).toMatchObject({
        kind: 'given_up',
        approval: { status: 'expired', stopped: { reason: { code: 'key_ended' } } },
        effect: { life: { state: 'denied', decision: 'denied_permission', reason: why.reason }, holdState: 'voided' },
      });
      expect((await at.store.budgets(WORKSPACE)).filter(({ held }) => held > 0)).toEqual([]);
      expect((await events(effect.id)).slice(-2)).toEqual([
        ['approval.expired', 'key_ended'],
        ['budget.voided', undefined],
      ]);
      expect(await at.store.grantedApprovals(10)).toEqual([]);
      expect(await at.store.giveUp(why)).toMatchObject({ kind: 'already_decided' });
      expect(await at.store.giveUp({ ...why, approvalId: 'apr_none' })).toEqual({ kind: 'absent' });
      expect(await send(approval.id)).toMatchObject({ kind: 'refused' });
      await dispatched(at.store, { idempotencyKey: 'k', verdict: permit([budgetOf(100, 100)]) });
    });

    it('cannot be given up before it is granted', async () => {
      const waiting = await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict: asking() }));
      if (waiting.kind !== 'pending') throw new Error('it waits');
      const given = await at.store.giveUp({
        workspace: WORKSPACE,
        approvalId: waiting.approval.id,
        decision: 'denied_permission',
        reason: { code: 'key_ended', message: 'The key was revoked.' },
        actor: GATEWAY,
      });
      expect(given).toMatchObject({ kind: 'already_decided', approval: { status: 'pending' } });
    });

    it.each([
      ['another bucket', { bucket: '["other"]' }],
      ['another budget', { budget: 'payments/other' }],
    ])('counts what it holds against no limit but that of the row it holds it on: %s', async (_, more) => {
      const { approval } = await granted();
      await dispatched(at.store, { verdict: permit([budgetOf(100, 60, more)]) });
      const elsewhere = permit([budgetOf(100, 60, more)], [approvalBy()]);
      expect(await send(approval.id, { verdict: elsewhere })).toMatchObject({
        kind: 'refused',
        reason: { code: 'budget_exceeded' },
      });
    });

    at.timed('counts what it holds on a day that is over against nothing of the next', async () => {
      const today = { kind: 'calendar', start: at.now() - 1_000, end: at.now() + 1_000 } as const;
      const tomorrow = { kind: 'calendar', start: today.end, end: today.end + 1_000 } as const;
      const on = (window: typeof today) => permit([budgetOf(100, 60, { window })], [approvalBy()]);
      const { approval } = await granted({ verdict: on(today) });
      at.advance(1_000);
      await dispatched(at.store, { verdict: permit([budgetOf(100, 60, { window: tomorrow })]) });
      expect(await send(approval.id, { verdict: on(tomorrow) })).toMatchObject({
        kind: 'refused',
        reason: { code: 'budget_exceeded' },
      });
    });

    at.timed('expires like any other when nothing lets it be sent', async () => {
      const { approval, effect } = await granted({ verdict: asking({ expiresMs: 1_000 }) });
      await send(approval.id, PAUSED);
      at.advance(1_000);
      expect(await at.store.sweep(100)).toMatchObject({ approvalsExpired: 1 });
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({ status: 'expired' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({
        life: { state: 'denied', reason: { code: 'approval_expired', message: expect.stringContaining('approved') } },
        holdState: 'voided',
      });
      expect(await at.store.grantedApprovals(10)).toEqual([]);
    });

    at.timed('is not sent after its time, also when nobody has swept', async () => {
      const { approval, effect } = await granted({ verdict: asking({ expiresMs: 1_000 }) });
      at.advance(1_000);
      const late = await send(approval.id, { effectId: effect.id });
      expect(late).toMatchObject({ kind: 'refused', reason: { code: 'approval_expired' } });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'denied' } });
      expect((await at.store.budgets(WORKSPACE)).filter(({ held }) => held > 0)).toEqual([]);
    });

    it('needs every group that is asked, not any', async () => {
      const verdict = permit([], [approvalBy({ rule: 'payments/a' }), approvalBy({ rule: 'payments/b', quorum: 2 })]);
      const waiting = await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict }));
      if (waiting.kind !== 'pending') throw new Error('it waits');
      const vote = (user: string, requirements: readonly number[]) =>
        at.store.vote(voteRequest(waiting.approval, { user, requirements }));
      expect(await vote('maria', [0])).toMatchObject({ approval: { status: 'pending' } });
      expect(await vote('omar', [1])).toMatchObject({ approval: { status: 'pending' } });
      expect(await vote('ada', [1])).toMatchObject({ approval: { status: 'granted' } });
    });

    it('holds the agent’s own budgets while it waits, and those it shares only where the rule says so', async () => {
      const shared = budgetOf(100, 60, { budget: 'payments/all', bucket: '[]', sharing: 'shared' });
      const held = async () =>
        Object.fromEntries((await at.store.budgets(WORKSPACE)).map(({ budget, held: units }) => [budget, units]));
      await at.store.admit(
        admitRequest({ verdict: permit([budgetOf(100, 10), shared], [approvalBy({ hold: 'own' })]) }),
      );
      expect(await held()).toEqual({ 'payments/daily': 10 });
      await at.store.admit(
        admitRequest({ verdict: permit([budgetOf(100, 10), shared], [approvalBy({ hold: 'all' })]) }),
      );
      expect(await held()).toEqual({ 'payments/daily': 20, 'payments/all': 60 });
    });

    it('holds shared budgets where one of the rules that ask says so', async () => {
      const shared = budgetOf(100, 60, { budget: 'payments/all', bucket: '[]', sharing: 'shared' });
      const both = [approvalBy({ hold: 'own' }), approvalBy({ rule: 'payments/b', hold: 'all' })];
      await at.store.admit(admitRequest({ verdict: permit([shared], both) }));
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ budget: 'payments/all', held: 60 }]);
    });

    it('does not count what it holds, nor its place in a rate, against itself', async () => {
      const verdict = permit([budgetOf(100, 100), rateOf(1, 3_600_000)], [approvalBy()]);
      const { approval } = await granted({ verdict });
      expect(await send(approval.id, { verdict })).toMatchObject({ kind: 'dispatch' });
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 100, spent: 0 }]);
    });

    it('is refused by the budget that has no room, not by one in which its own hold is', async () => {
      const other = budgetOf(10, 10, { budget: 'payments/other' });
      const { approval } = await granted({ verdict: permit([budgetOf(100, 100)], [approvalBy()]) });
      await dispatched(at.store, { verdict: permit([other]) });
      const verdict = permit([budgetOf(100, 100), other], [approvalBy()]);
      expect(await send(approval.id, { verdict })).toMatchObject({
        kind: 'refused',
        reason: { code: 'budget_exceeded', message: expect.stringContaining('payments/other') },
      });
    });

    at.timed('waits for the shortest of the times that are asked for', async () => {
      const verdict = permit(
        [],
        [approvalBy({ expiresMs: 5_000 }), approvalBy({ rule: 'payments/b', expiresMs: 1_000 })],
      );
      const waiting = await at.store.admit(admitRequest({ verdict }));
      expect(waiting).toMatchObject({ approval: { expiresAt: at.now() + 1_000 } });
      at.advance(1_000);
      expect(await at.store.sweep(100)).toMatchObject({ approvalsExpired: 1 });
    });

    at.timed('refuses what was rejected for a whole day', async () => {
      const waiting = await at.store.admit(admitRequest({ fingerprint: 'refund of 42', verdict: asking() }));
      if (waiting.kind !== 'pending') throw new Error('it waits');
      await at.store.vote(voteRequest(waiting.approval, { verdict: 'reject' }));
      at.advance(24 * 3_600_000 - 1);
      expect(await at.store.admit(admitRequest({ fingerprint: 'refund of 42', verdict: asking() }))).toMatchObject({
        reason: { code: 'approval_rejected' },
      });
      at.advance(1);
      expect(await at.store.admit(admitRequest({ fingerprint: 'refund of 42', verdict: asking() }))).toMatchObject({
        kind: 'pending',
      });
    });

    at.timed('knows since when there is a user: those of the first time were there before', async () => {
      expect(await at.store.userSince('maria')).toBeNull();
      await at.store.seeUsers(new Map([]), GATEWAY);
      const first = at.now();
      at.advance(1_000);
      await at.store.seeUsers(
        new Map([
          ['maria', []],
          ['omar', []],
        ]),
        GATEWAY,
      );
      at.advance(1_000);
      await at.store.seeUsers(
        new Map([
          ['maria', []],
          ['ada', []],
        ]),
        GATEWAY,
      );
      await at.reopen();
      await at.store.seeUsers(
        new Map([
          ['maria', []],
          ['omar', []],
          ['ada', []],
        ]),
        GATEWAY,
      );
      expect(await at.store.userSince('maria')).toBe(first + 1_000);
      expect(await at.store.userSince('omar')).toBe(first + 1_000);
      expect(await at.store.userSince('ada')).toBe(first + 2_000);
      expect(await at.store.userSince('nobody')).toBeNull();
      // Each came, went, and came again once; nothing was said twice.
      const events = await at.store.ledger(INSTALLATION, 0, 50);
      expect(events.map(({ kind, data, actor }) => [kind, data['user'], actor])).toEqual([
        ['user.added', 'maria', GATEWAY],
        ['user.added', 'omar', GATEWAY],
        ['user.removed', 'omar', GATEWAY],
        ['user.added', 'ada', GATEWAY],
        ['user.added', 'omar', GATEWAY],
      ]);
    });

    it('tells which roles were given to users and taken from them', async () => {
      const told = async () => {
        const events = await at.store.ledger(INSTALLATION, 0, 50);
        return events.flatMap(({ kind, data }) => (kind === 'user.roles_changed' ? [data] : []));
      };
      await at.store.seeUsers(
        new Map([
          ['maria', ['lead', 'auditor']],
          ['omar', []],
        ]),
        GATEWAY,
      );
      await at.store.seeUsers(
        new Map([
          ['omar', []],
          ['maria', ['auditor', 'lead']],
        ]),
        GATEWAY,
      );
      expect(await told()).toEqual([]);
      await at.store.seeUsers(
        new Map([
          ['omar', ['lead']],
          ['maria', ['auditor', 'admin']],
        ]),
        GATEWAY,
      );
      await at.store.seeUsers(
        new Map([
          ['omar', []],
          ['maria', ['auditor', 'admin']],
        ]),
        GATEWAY,
      );
      expect(await told()).toEqual([
        { user: 'maria', given: ['admin'], taken: ['lead'] },
        { user: 'omar', given: ['lead'], taken: [] },
        { user: 'omar', given: [], taken: ['lead'] },
      ]);
    });

    it('takes the users of the first configuration for older than every request', async () => {
      await at.store.seeUsers(
        new Map([
          ['maria', []],
          ['\u0000 ключ', []],
        ]),
        GATEWAY,
      );
      expect(await at.store.userSince('maria')).toBe(0);
      expect(await at.store.userSince('\u0000 ключ')).toBe(0);
    });
  });
}
