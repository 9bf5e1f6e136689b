import type { EffectStore } from '../../src/effects/store.ts';
import { describe, expect, it } from 'vitest';
import { type ApprovalRecord, rejectionReason } from '../../src/effects/model/approval.ts';
import type { Page } from '../../src/effects/model/page.ts';
import type { ApprovalRequirement } from '../../src/effects/model/verdict.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  type AdmitOverrides,
  approvalBy,
  budgetOf,
  committed,
  dispatched,
  newId,
  permit,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from './requests.ts';

export function describeApprovals(open: OpenStore, capabilities: Capabilities): void {
  describe('approvals', () => {
    const at = useStore(open, capabilities);
    const asking = (requirement: Partial<ApprovalRequirement> = {}) => permit([], [approvalBy(requirement)]);

    const ALL = { status: null, agentId: null, limit: 50, cursor: null } as const;
    const list = async (status: ApprovalRecord['status'] | null) =>
      (await at.store.approvals(WORKSPACE, { ...ALL, status })).items;

    async function pending(overrides: AdmitOverrides = {}) {
      const admission = await at.store.admit(admitRequest({ verdict: asking(), ...overrides }));
      if (admission.kind !== 'pending') throw new Error(`expected pending, was ${JSON.stringify(admission)}`);
      return admission;
    }

    it('records a request for approval together with the effect that waits', async () => {
      const { effect, approval, created } = await pending({ idempotencyKey: 'k' });
      expect(created).toBe(true);
      expect(effect.life).toEqual({ state: 'pending_approval', approvalId: approval.id });
      expect(await at.store.approval(WORKSPACE, approval.id)).toEqual(approval);
      expect(await at.store.effect(WORKSPACE, effect.id)).toEqual(effect);
      expect(await list('pending')).toEqual([approval]);
      expect(await at.store.approvals('other', ALL)).toEqual({ items: [], next: null });
    });

    it('asks once, however often the call is sent', async () => {
      const first = await pending({ idempotencyKey: 'k' });
      const again = await pending({ idempotencyKey: 'k' });
      expect(again).toMatchObject({ created: false, approval: { id: first.approval.id } });
      expect(await list(null)).toHaveLength(1);
    });

    it('runs the call once its approval is granted, and uses the approval up', async () => {
      const { approval } = await pending({ idempotencyKey: 'k' });
      expect(await at.store.vote(voteRequest(approval))).toMatchObject({
        kind: 'counted',
        approval: { status: 'granted' },
      });
      expect(await at.store.grantedApprovals(10)).toMatchObject([{ id: approval.id }]);
      const admission = await dispatched(at.store, { idempotencyKey: 'k', verdict: asking() });
      expect(admission.approval).toMatchObject({ id: approval.id, status: 'used' });
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({ status: 'used' });
      expect(await at.store.grantedApprovals(10)).toEqual([]);
    });

    it('needs as many different people as the quorum says', async () => {
      const verdict = asking({ quorum: 2 });
      const { approval } = await pending({ verdict });
      await at.store.vote(voteRequest(approval, { user: 'maria' }));
      expect(await at.store.vote(voteRequest(approval, { user: 'maria', keyId: 'key_other' }))).toMatchObject({
        kind: 'voted_already',
        approval: { status: 'pending' },
      });
      expect(await at.store.vote(voteRequest(approval, { user: 'omar' }))).toMatchObject({
        approval: { status: 'granted' },
      });
      // The ledger says which vote was the last that it took.
      const granted = (await at.store.effectLedger(WORKSPACE, approval.effectId)).filter(
        ({ kind }) => kind === 'approval.granted',
      );
      expect(granted.map(({ data }) => [data['user'], data['complete']])).toEqual([
        ['maria', false],
        ['omar', true],
      ]);
    });

    it('sends nothing after one of two votes, however often the call is sent', async () => {
      const verdict = asking({ quorum: 2 });
      const { approval } = await pending({ idempotencyKey: 'k', verdict });
      await at.store.vote(voteRequest(approval, { user: 'maria' }));
      for (const dispatches of [null, approval.id])
        expect(await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict, dispatches }))).toMatchObject({
          kind: 'pending',
          created: false,
          approval: { id: approval.id, status: 'pending' },
        });
      await at.store.vote(voteRequest(approval, { user: 'omar' }));
      await dispatched(at.store, { idempotencyKey: 'k', verdict });
    });

    it('counts concurrent votes of different people once each', async () => {
      const { approval } = await pending({ verdict: asking({ quorum: 5 }) });
      const users = ['a', 'b', 'c', 'd', 'e', 'a', 'b'];
      await Promise.all(users.map((user) => at.store.vote(voteRequest(approval, { user }))));
      const decided = await at.store.approval(WORKSPACE, approval.id);
      expect(decided?.status).toBe('granted');
      expect(decided?.votes.map(({ user }) => user).sort()).toEqual(['a', 'b', 'c', 'd', 'e']);
    });

    it('binds a rejection to the key and to the action', async () => {
      const { approval, effect } = await pending({ idempotencyKey: 'k', fingerprint: 'refund of 42' });
      await at.store.vote(voteRequest(approval, { verdict: 'reject', comment: 'no' }));
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'rejected' } });
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({
        status: 'rejected',
        votes: [{ user: 'maria', verdict: 'reject', comment: 'no' }],
      });
      for (const idempotencyKey of ['k', 'another key']) {
        const again = await at.store.admit(
          admitRequest({ idempotencyKey, fingerprint: 'refund of 42', verdict: asking() }),
        );
        expect(again).toMatchObject({
          kind: 'refused',
          decision: 'denied_policy',
          reason: { code: 'approval_rejected' },
        });
        const said = rejectionReason(await at.store.approval(WORKSPACE, approval.id)).message;
        expect(said).toMatch(/The approver's reason: "no"$/);
        expect(again).toHaveProperty('reason.message', said);
      }
    });

    at.timed('lets the action be asked for again under a new key after the cool-down', async () => {
      const { approval } = await pending({ fingerprint: 'refund of 42' });
      // It counts from the rejection, not from the request.
      at.advance(500);
      await at.store.vote(voteRequest(approval, { verdict: 'reject' }));
      at.advance(24 * 3_600_000 - 1);
      const early = admitRequest({ fingerprint: 'refund of 42', idempotencyKey: 'early', verdict: asking() });
      expect(await at.store.admit(early)).toMatchObject({ reason: { code: 'approval_rejected' } });
      at.advance(1);
      expect(await pending({ fingerprint: 'refund of 42', idempotencyKey: 'new' })).toMatchObject({ created: true });
    });

    at.timed('takes votes up to the end of the request, and none from then on', async () => {
      const requests = [await pending({ verdict: asking({ expiresMs: 1_000 }) })];
      requests.push(await pending({ verdict: asking({ expiresMs: 1_000 }) }));
      const [first, second] = requests.map(({ approval }) => approval);
      if (first === undefined || second === undefined) throw new Error('both wait');
      at.advance(999);
      expect(await at.store.vote(voteRequest(first))).toMatchObject({ kind: 'counted' });
      at.advance(1);
      for (const verdict of ['approve', 'reject'] as const)
        expect(await at.store.vote(voteRequest(second, { verdict }))).toMatchObject({
          kind: 'already_decided',
          approval: { status: 'expired', votes: [] },
        });
    });

    const TO = { afterMs: 1_000, to: { roles: [], users: ['omar'] } };
    const kinds = async (effectId: string) =>
      (await at.store.effectLedger(WORKSPACE, effectId)).map(({ kind, actor, data }) => ({ kind, actor, data }));

    at.timed('asks others as well after its time, once, and says so in the ledger', async () => {
      const verdict = asking({ escalate: TO, expiresMs: 5_000 });
      const { approval, effect } = await pending({ verdict });
      at.advance(999);
      expect(await at.store.sweep(100)).toMatchObject({ approvalsExpired: 0 });
      expect(await at.store.approval(WORKSPACE, approval.id)).toEqual(approval);
      at.advance(1);
      for (let sweeps = 0; sweeps < 3; sweeps += 1)
        expect(await at.store.sweep(100)).toMatchObject({ approvalsExpired: 0 });
      expect(await kinds(effect.id)).toMatchObject([
        { kind: 'approval.requested' },
        {
          kind: 'approval.escalated',
          actor: { type: 'gateway' },
          data: { approval_id: approval.id, rules: ['payments/large'], roles: [], users: ['omar'] },
        },
      ]);
      at.advance(4_000);
      expect(await at.store.sweep(100)).toMatchObject({ approvalsExpired: 1 });
      expect((await kinds(effect.id)).at(-1)).toMatchObject({ kind: 'approval.expired' });
    });

    at.timed(
      'takes votes of those others from its time on and not before, and the ledger says first that they may',
      async () => {
        const verdict = asking({ escalate: TO, expiresMs: 5_000 });
        const [early, asked] = [await pending({ verdict }), await pending({ verdict })];
        const omar = { user: 'omar', keyId: 'key_omar', escalated: [0] } as const;
        at.advance(999);
        for (const vote of ['approve', 'reject'] as const)
          expect(await at.store.vote(voteRequest(early.approval, { ...omar, verdict: vote }))).toMatchObject({
            kind: 'not_an_approver',
            approval: { status: 'pending', votes: [] },
          });
        at.advance(1);
        // Nobody has swept: the vote itself puts on record that it is time.
        expect(await at.store.vote(voteRequest(early.approval, omar))).toMatchObject({
          kind: 'counted',
          approval: { status: 'granted' },
        });
        expect(await at.store.vote(voteRequest(asked.approval, { ...omar, verdict: 'reject' }))).toMatchObject({
          kind: 'counted',
          approval: { status: 'rejected' },
        });
        await at.store.sweep(100);
        for (const [{ effect }, last] of [
          [early, 'granted'],
          [asked, 'rejected'],
        ] as const)
          expect((await kinds(effect.id)).map(({ kind }) => kind)).toEqual([
            'approval.requested',
            'approval.escalated',
            `approval.${last}`,
          ]);
      },
    );

    at.timed('counts the hours that the rule names: until it ends, and until others are asked', async () => {
      const now = at.store.now();
      const hours = { schedule: 'office', expiresAt: now + 9_000, escalatesAt: now + 3_000 };
      const verdict = asking({ escalate: TO, expiresMs: 5_000, hours });
      const { approval, effect } = await pending({ verdict });
      expect(approval.expiresAt).toBe(now + 9_000);
      const omar = { user: 'omar', keyId: 'key_omar', escalated: [0] } as const;
      at.advance(2_999);
      await at.store.sweep(100);
      expect(await at.store.vote(voteRequest(approval, omar))).toMatchObject({ kind: 'not_an_approver' });
      at.advance(1);
      await at.store.sweep(100);
      expect((await kinds(effect.id)).at(-1)).toMatchObject({ kind: 'approval.escalated' });
      at.advance(5_999);
      expect(await at.store.sweep(100)).toMatchObject({ approvalsExpired: 0 });
      at.advance(1);
      expect(await at.store.vote(voteRequest(approval, omar))).toMatchObject({ approval: { status: 'expired' } });
    });

    at.timed(
      'never asks those who asked themselves, their owner or the maker of the key, also when it escalates to them',
      async () => {
        const users = ['olga', 'adam', 'ulla'];
        const verdict = asking({ escalate: { afterMs: 1_000, to: { roles: [], users } } });
        const { approval } = await pending({ verdict, actor: { user: 'ulla' } });
        at.advance(1_000);
        for (const user of users)
          expect(
            await at.store.vote(voteRequest(approval, { user, keyId: `key_${user}`, escalated: [0] })),
          ).toMatchObject({
            kind: 'own_request',
            approval: { status: 'pending', votes: [] },
          });
        const own = { user: 'omar', keyId: approval.requester.keyId, escalated: [0] };
        expect(await at.store.vote(voteRequest(approval, own))).toMatchObject({ kind: 'own_request' });
      },
    );

    it('escalates to others where the time for that has come already', async () => {
      const hours = { schedule: 'office', expiresAt: at.store.now() + 3_600_000, escalatesAt: at.store.now() - 1 };
      const { approval, effect } = await pending({ verdict: asking({ escalate: TO, hours }) });
      const omar = { user: 'omar', keyId: 'key_omar', escalated: [0] } as const;
      expect(await at.store.vote(voteRequest(approval, omar))).toMatchObject({ approval: { status: 'granted' } });
      expect((await kinds(effect.id)).map(({ kind }) => kind)).toEqual([
        'approval.requested',
        'approval.escalated',
        'approval.granted',
      ]);
    });

    at.timed('escalates each requirement by its own time', async () => {
      const later = approvalBy({ rule: 'payments/b', escalate: { ...TO, afterMs: 2_000 } });
      const { approval, effect } = await pending({ verdict: permit([], [approvalBy({ escalate: TO }), later]) });
      at.advance(1_000);
      await at.store.sweep(100);
      const both = { user: 'omar', keyId: 'key_omar', requirements: [0, 1], escalated: [0, 1] };
      expect(await at.store.vote(voteRequest(approval, both))).toMatchObject({ kind: 'not_an_approver' });
      at.advance(1_000);
      await at.store.sweep(100);
      expect(await at.store.vote(voteRequest(approval, both))).toMatchObject({ approval: { status: 'granted' } });
      expect((await kinds(effect.id)).map(({ data }) => data['rules'])).toEqual([
        ['payments/large', 'payments/b'],
        ['payments/large'],
        ['payments/b'],
        undefined,
      ]);
    });

    at.timed('takes no decision from who became a user after the request', async () => {
      const { approval } = await pending();
      at.advance(10_000);
      expect(await at.store.vote(voteRequest(approval, { voterSince: approval.createdAt + 1 }))).toMatchObject({
        kind: 'own_request',
      });
      expect(await at.store.vote(voteRequest(approval, { voterSince: approval.createdAt }))).toMatchObject({
        kind: 'counted',
      });
    });

    it('takes no decision from who asked, nor from a key made afterwards', async () => {
      const { approval } = await pending();
      for (const vote of [
        { user: approval.requester.agentOwner ?? '' },
        { user: approval.requester.keyMadeBy ?? '' },
        { keyId: approval.requester.keyId },
        { voterSince: approval.createdAt + 1 },
      ]) {
        expect(await at.store.vote(voteRequest(approval, vote))).toMatchObject({ kind: 'own_request' });
      }
      expect(await at.store.vote(voteRequest(approval, { requirements: [] }))).toMatchObject({
        kind: 'not_an_approver',
      });
      expect(await at.store.approval(WORKSPACE, approval.id)).toEqual(approval);
    });

    it('keeps the votes of who approved before somebody rejected', async () => {
      const { approval } = await pending({ verdict: permit([], [approvalBy({ quorum: 2 })]) });
      await at.store.vote(voteRequest(approval, { user: 'maria' }));
      expect(await at.store.vote(voteRequest(approval, { user: 'omar', verdict: 'reject' }))).toMatchObject({
        approval: { status: 'rejected', votes: [{ user: 'maria' }, { user: 'omar', verdict: 'reject' }] },
      });
    });

    it('takes no vote after the decision, and none in another workspace', async () => {
      const { approval } = await pending();
      expect(await at.store.vote(voteRequest(approval, { workspace: 'other' }))).toEqual({ kind: 'absent' });
      await at.store.vote(voteRequest(approval));
      expect(await at.store.vote(voteRequest(approval, { user: 'omar', verdict: 'reject' }))).toMatchObject({
        kind: 'already_decided',
        approval: { status: 'granted' },
      });
    });

    at.timed('frees the key and the money of a request that nobody decided', async () => {
      const verdict = permit([budgetOf(100, 100)], [approvalBy({ expiresMs: 1_000 })]);
      const { approval, effect } = await pending({ idempotencyKey: 'k', verdict });
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 100 }]);
      at.advance(1_000);
      expect(await at.store.sweep(100)).toMatchObject({ approvalsExpired: 1 });
      expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({ status: 'expired' });
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({
        life: { state: 'denied', reason: { code: 'approval_expired' } },
      });
      await dispatched(at.store, { idempotencyKey: 'k', verdict: permit([budgetOf(100, 100)]) });
    });

    it('waits on where policy would refuse the call by now: who decides it is told so, and not who asks again', async () => {
      const { approval, effect } = await pending({ idempotencyKey: 'k' });
      const reason = { code: 'rule_denied', message: 'Not now.' } as const;
      const verdict = { kind: 'deny', decision: 'denied_policy', reason, trace: permit().trace } as const;
      expect(await at.store.admit(admitRequest({ idempotencyKey: 'k', verdict }))).toMatchObject({
        kind: 'pending',
        created: false,
        approval: { id: approval.id, status: 'pending' },
      });
      expect((await at.store.effectLedger(WORKSPACE, effect.id)).map(({ kind }) => kind)).toEqual([
        'approval.requested',
      ]);
    });

    at.timed('asks anew from the end of a request on, also when nobody has swept', async () => {
      const verdict = permit([budgetOf(100, 60)], [approvalBy({ expiresMs: 1_000 })]);
      const first = await pending({ idempotencyKey: 'k', verdict });
      at.advance(999);
      expect(await pending({ idempotencyKey: 'k', verdict })).toMatchObject({ created: false });
      at.advance(1);
      const second = await pending({ idempotencyKey: 'k', verdict });
      expect(second.created).toBe(true);
      expect([second.approval.id, second.effect.id]).not.toContain(first.approval.id);
      expect(await at.store.approval(WORKSPACE, first.approval.id)).toMatchObject({ status: 'expired' });
      expect(await at.store.effect(WORKSPACE, first.effect.id)).toMatchObject({
        life: { state: 'denied', reason: { code: 'approval_expired' } },
        holdState: 'voided',
      });
      // What the first held is given back in the same step.
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ held: 60, spent: 0 }]);
    });

    at.timed('asks anew from the end of a request on, though one of two had agreed to it', async () => {
      const verdict = asking({ quorum: 2, expiresMs: 1_000 });
      const first = await pending({ idempotencyKey: 'k', verdict });
      await at.store.vote(voteRequest(first.approval));
      at.advance(1_000);
      expect(await pending({ idempotencyKey: 'k', verdict })).toMatchObject({ created: true, approval: { votes: [] } });
    });

    at.timed('says of each end of a request whether somebody had agreed, and by whom it ended', async () => {
      const verdict = asking({ expiresMs: 1_000 });
      const [undecided, agreed] = [await pending({ verdict }), await pending({ verdict })];
      await at.store.vote(voteRequest(agreed.approval));
      at.advance(1_000);
      await at.store.sweep(100);
      const ends = [undecided, agreed].map(async ({ effect, approval }) => {
        const { life } = (await at.store.effect(WORKSPACE, effect.id)) ?? effect;
        expect((await at.store.effectLedger(WORKSPACE, effect.id)).at(-1)).toMatchObject({
          kind: 'approval.expired',
          actor: { type: 'gateway', id: 'sweeper' },
          data: { approval_id: approval.id, code: 'approval_expired' },
        });
        return life.state === 'denied' ? life.reason.message : life.state;
      });
      expect(await Promise.all(ends)).toEqual([
        expect.stringMatching(/^Nobody decided /),
        expect.stringMatching(/^It was approved, and could not be sent /),
      ]);
    });

    at.timed('says of a request that was decided in time how it was, also when its time is over', async () => {
      const [rejected, used] = [
        await pending({ verdict: asking({ expiresMs: 1_000 }) }),
        await pending({ idempotencyKey: 'used', verdict: asking({ expiresMs: 1_000 }) }),
      ];
      await at.store.vote(voteRequest(rejected.approval, { verdict: 'reject' }));
      await at.store.vote(voteRequest(used.approval));
      await dispatched(at.store, { idempotencyKey: 'used', verdict: asking({ expiresMs: 1_000 }) });
      at.advance(1_000);
      for (const [{ approval }, status] of [[rejected, 'rejected'] as const, [used, 'used'] as const]) {
        expect(await at.store.vote(voteRequest(approval, { user: 'omar' }))).toMatchObject({
          kind: 'already_decided',
          approval: { status },
        });
        expect(await at.store.approval(WORKSPACE, approval.id)).toMatchObject({ status });
      }
    });

    it('asks anew when what was asked for has changed, and earlier votes are void', async () => {
      const verdict = asking({ quorum: 2 });
      const first = await pending({ idempotencyKey: 'k', approvalDigest: 'before', verdict });
      await at.store.vote(voteRequest(first.approval));
      const second = await pending({ idempotencyKey: 'k', approvalDigest: 'after', verdict });
      expect(second.approval.id).not.toBe(first.approval.id);
      expect(second.approval.votes).toEqual([]);
      expect(await at.store.approval(WORKSPACE, first.approval.id)).toMatchObject({ status: 'expired' });
    });

    it('leaves no question open about a call that policy lets run without one by now', async () => {
      const first = await pending({ idempotencyKey: 'k' });
      const unasked = { idempotencyKey: 'k', approvalDigest: '', verdict: permit() };
      const { effect, approval } = await dispatched(at.store, unasked);
      expect([effect.id, approval]).toEqual([first.effect.id, null]);
      expect(await at.store.approval(WORKSPACE, first.approval.id)).toMatchObject({ status: 'expired' });
      expect(await list('pending')).toEqual([]);
      expect(await at.store.vote(voteRequest(first.approval))).toMatchObject({ kind: 'already_decided' });
      expect(await at.store.settle(settleRequest(effect, committed()))).toMatchObject({ kind: 'settled' });
    });

    it('says in the ledger that a call gave back what it held while it waited, where it needs no budget by now', async () => {
      const obligations = [budgetOf(100, 60)];
      const { effect } = await pending({ idempotencyKey: 'k', verdict: { ...asking(), obligations } });
      await dispatched(at.store, { idempotencyKey: 'k', approvalDigest: '', verdict: permit() });
      const events = await at.store.effectLedger(WORKSPACE, effect.id);
      expect(events.at(-1)).toMatchObject({ kind: 'budget.voided', data: { holds: [{ amount: 60 }] } });
      expect(await at.store.budgets(WORKSPACE)).toEqual([]);
    });

    it('lets at most twenty effects of an agent wait', async () => {
      for (let waiting = 0; waiting < 20; waiting += 1) await pending();
      expect(await at.store.admit(admitRequest({ verdict: asking() }))).toMatchObject({
        kind: 'refused',
        reason: { code: 'too_many_pending' },
      });
      expect(await at.store.admit(admitRequest({ verdict: asking(), actor: { agentId: 'other-bot' } }))).toMatchObject({
        kind: 'pending',
      });
    });

    it('asks anew about one of twenty that wait: it is no more than there were', async () => {
      await pending({ idempotencyKey: 'k', approvalDigest: 'before' });
      for (let waiting = 1; waiting < 20; waiting += 1) await pending();
      const renewed = await pending({ idempotencyKey: 'k', approvalDigest: 'after' });
      expect(renewed).toMatchObject({ created: true, approval: { status: 'pending' } });
      expect(await list('pending')).toHaveLength(20);
    });

    at.timed('lets an agent ask again once requests of its are rejected or over', async () => {
      const waiting = await Promise.all(Array.from({ length: 20 }, () => pending()));
      for (const { approval } of waiting.slice(0, 2)) await at.store.vote(voteRequest(approval, { verdict: 'reject' }));
      await pending();
      await pending();
      expect(await at.store.admit(admitRequest({ verdict: asking() }))).toMatchObject({ kind: 'refused' });
      at.advance(3_600_000);
      await at.store.sweep(100);
      await pending();
    });

    it('lists in pages, newest first, by status and by agent', async () => {
      const made: string[] = [];
      for (let n = 0; n < 9; n += 1) {
        const actor = { agentId: n % 3 === 0 ? 'other-bot' : 'support-bot' };
        made.push((await pending({ actor })).approval.id);
      }
      const fifth = await at.store.approval(WORKSPACE, made[4] ?? '');
      if (fifth === null) throw new Error('it waits');
      await at.store.vote(voteRequest(fifth, { verdict: 'reject' }));
      const paged = async (filter: Partial<Parameters<EffectStore['approvals']>[1]>) => {
        const ids: string[] = [];
        let cursor: string | null = null;
        do {
          const page: Page<ApprovalRecord> = await at.store.approvals(WORKSPACE, {
            ...ALL,
            limit: 2,
            ...filter,
            cursor,
          });
          expect(page.items.length).toBeLessThanOrEqual(2);
          ids.push(...page.items.map(({ id }) => id));
          cursor = page.next;
        } while (cursor !== null);
        return ids;
      };
      const newest = made.toReversed();
      expect(await paged({})).toEqual(newest);
      expect(await paged({ status: 'pending' })).toEqual(newest.filter((id) => id !== made[4]));
      expect(await paged({ agentId: 'other-bot' })).toEqual([made[6], made[3], made[0]]);
      expect(await paged({ agentId: 'other-bot', status: 'rejected' })).toEqual([]);
      expect(await paged({ agentId: 'nobody' })).toEqual([]);
    });

    it('keeps what waits, and the votes so far, over a restart', async () => {
      const { approval, effect } = await pending({ verdict: asking({ quorum: 2 }) });
      await at.store.vote(voteRequest(approval, { comment: newId('why') }));
      const before = await at.store.approval(WORKSPACE, approval.id);
      await at.reopen();
      expect(await at.store.approval(WORKSPACE, approval.id)).toEqual(before);
      expect(await at.store.effect(WORKSPACE, effect.id)).toEqual(effect);
    });

    it('covers one dispatch: a second attempt is not approved by it', async () => {
      const { approval } = await pending({ idempotencyKey: 'k' });
      await at.store.vote(voteRequest(approval));
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k', verdict: asking() });
      await at.store.settle(settleRequest(effect, { kind: 'failed', result: null }));
      const again = await pending({ idempotencyKey: 'k' });
      expect(again.approval.id).not.toBe(approval.id);
      expect(await at.store.settle(settleRequest(effect, committed()))).toMatchObject({ kind: 'refused' });
    });

    it('covers one dispatch: what became unknown is not sent again without another', async () => {
      const times = { idempotentForMs: 60_000 };
      const { approval } = await pending({ idempotencyKey: 'k', times });
      await at.store.vote(voteRequest(approval));
      const { effect } = await dispatched(at.store, { idempotencyKey: 'k', times, verdict: asking() });
      await at.store.settle(settleRequest(effect, { kind: 'unknown' }));
      const again = await at.store.admit(admitRequest({ idempotencyKey: 'k', times, verdict: asking() }));
      expect(again).toMatchObject({ kind: 'existing', safeToRetry: false, effect: { life: { state: 'unknown' } } });
      // Policy that asks nobody any more lets the upstream remove the duplicate.
      expect((await dispatched(at.store, { idempotencyKey: 'k', times })).effect).toMatchObject({ attempt: 2 });
    });
  });
}
