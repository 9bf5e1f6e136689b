import { expect, it } from 'vitest';
import { decidersAt, escalatesAt, isAmong } from '../../src/effects/model/approval.ts';
import { admitStep } from '../../src/effects/steps/admission.ts';
import { expireOverdueStep, giveUpStep, isOwnRequest, voteStep } from '../../src/effects/steps/voting.ts';
import { applyPlan, emptyState, type MapState, viewOf } from '../contract/map-view.ts';
import { admitRequest, approvalBy, permit, voteRequest, WORKSPACE } from '../contract/requests.ts';

const NOW = 1_750_000_000_000;
const REASON = { code: 'key_ended', message: 'The key was revoked.' } as const;
const ACTOR = { type: 'gateway', id: 'approvals' } as const;

/** What a sweep or a dispatcher read a moment ago, and what became of it since. */
function waiting(): { readonly state: MapState; readonly approvalId: string; readonly effectId: string } {
  const state = emptyState({ policy: '', pauses: 0 });
  const request = admitRequest({ verdict: permit([], [approvalBy({ expiresMs: 1_000 })]) });
  const { kind } = applyPlan(state, admitStep(viewOf(state, NOW), request), NOW);
  if (kind !== 'pending') throw new Error(kind);
  return { state, approvalId: request.approvalId, effectId: request.effectId };
}

it('a request is not expired before its time, nor once somebody has decided it, although a sweep found it open', () => {
  const { state, approvalId } = waiting();
  const expire = (at: number) => expireOverdueStep(viewOf(state, at), { workspace: WORKSPACE, approvalId });
  expect(expire(NOW + 999)).toEqual({ reply: null });
  expect(expire(NOW + 1_000).approvals).toMatchObject([{ id: approvalId, status: 'expired' }]);
  const approval = state.approvals.get(approvalId);
  if (approval === undefined) throw new Error('it waits');
  applyPlan(state, voteStep(viewOf(state, NOW), voteRequest(approval, { verdict: 'reject' })), NOW);
  expect(expire(NOW + 1_000)).toEqual({ reply: null });
  expect(expireOverdueStep(viewOf(state, NOW), { workspace: WORKSPACE, approvalId: 'apr_none' })).toEqual({
    reply: null,
  });
});

it('the event of a request that is over says why: nobody decided in time, or the call could not be made any more', () => {
  const { state, approvalId } = waiting();
  const at = viewOf(state, NOW + 1_000);
  const data = (code: string) => [{ kind: 'approval.expired', data: { approval_id: approvalId, code } }];
  expect(expireOverdueStep(at, { workspace: WORKSPACE, approvalId }).events).toMatchObject(data('approval_expired'));
  const approval = state.approvals.get(approvalId);
  if (approval === undefined) throw new Error('it waits');
  applyPlan(state, voteStep(viewOf(state, NOW), voteRequest(approval)), NOW);
  const given = { workspace: WORKSPACE, approvalId, decision: 'denied_permission', actor: ACTOR } as const;
  expect(giveUpStep(viewOf(state, NOW), { ...given, reason: REASON }).events).toMatchObject(data('key_ended'));
});

it('a request whose effect is not on record any more is expired, and can be neither voted on nor given up', () => {
  const { state, approvalId, effectId } = waiting();
  const approval = state.approvals.get(approvalId);
  if (approval === undefined) throw new Error('it waits');
  state.effects.delete(effectId);
  const view = viewOf(state, NOW + 1_000);
  expect(voteStep(viewOf(state, NOW), voteRequest(approval))).toEqual({ reply: { kind: 'absent' } });
  const granted = { ...approval, status: 'granted' } as const;
  state.approvals.set(approvalId, granted);
  const given = {
    workspace: WORKSPACE,
    approvalId,
    decision: 'denied_permission',
    reason: REASON,
    actor: ACTOR,
  } as const;
  expect(giveUpStep(view, given)).toEqual({ reply: { kind: 'absent' } });
  expect(expireOverdueStep(view, { workspace: WORKSPACE, approvalId })).toEqual({
    reply: null,
    approvals: [{ ...granted, status: 'expired', decidedAt: NOW + 1_000 }],
  });
});

it('where the effect of a request does not wait any more, its end changes the request and not the effect', () => {
  const { state, approvalId, effectId } = waiting();
  const [approval, effect] = [state.approvals.get(approvalId), state.effects.get(effectId)];
  if (approval === undefined || effect === undefined) throw new Error('it waits');
  const life = { state: 'denied', at: NOW, decision: 'denied_policy', reason: REASON, mismatches: [] } as const;
  state.effects.set(effectId, { ...effect, life });
  const expired = expireOverdueStep(viewOf(state, NOW + 1_000), { workspace: WORKSPACE, approvalId });
  expect(expired).toEqual({ reply: null, approvals: [expect.objectContaining({ status: 'expired' })] });
  expect(voteStep(viewOf(state, NOW), voteRequest(approval, { verdict: 'reject' }))).toEqual({
    reply: { kind: 'already_decided', approval },
  });
  const granted = { ...approval, status: 'granted' } as const;
  state.approvals.set(approvalId, granted);
  const given = {
    workspace: WORKSPACE,
    approvalId,
    decision: 'denied_permission',
    reason: REASON,
    actor: ACTOR,
  } as const;
  expect(giveUpStep(viewOf(state, NOW), given)).toEqual({ reply: { kind: 'already_decided', approval: granted } });
});

it('a question that is asked anew has its whole time again, and others decide it no sooner', () => {
  const state = emptyState({ policy: '', pauses: 0 });
  const escalate = { afterMs: 1_000, to: { roles: ['boss'], users: [] } };
  const asked = approvalBy({ expiresMs: 5_000, escalate });
  const admit = (now: number, approvalDigest: string) => {
    const request = admitRequest({ idempotencyKey: 'k', approvalDigest, verdict: permit([], [asked]) });
    const admission = applyPlan(state, admitStep(viewOf(state, now), request), now);
    if (admission.kind !== 'pending') throw new Error(admission.kind);
    return admission.approval;
  };
  const first = admit(NOW, 'as policy was');
  const anew = admit(NOW + 900, 'as policy is');
  expect(anew.id).not.toBe(first.id);
  expect([escalatesAt(anew, asked), anew.expiresAt]).toEqual([NOW + 1_900, NOW + 5_900]);
});

it.each([
  ['the user whose key asked', { user: 'tom' }, true],
  ['the owner of the agent', { user: 'olga' }, true],
  ['who made the key', { user: 'ada' }, true],
  ['whoever holds the key that asked', { keyId: 'key_asked' }, true],
  ['a key or a user of a moment later', { voterSince: NOW + 1 }, true],
  ['somebody else, who was there', {}, false],
] as const)('a request of their own is that of %s', (_who, voter, isOwn) => {
  const requester = { user: 'tom', agentOwner: 'olga', keyMadeBy: 'ada', keyId: 'key_asked' };
  const other = { user: 'maria', keyId: 'key_other', voterSince: NOW };
  expect(isOwnRequest({ requester, createdAt: NOW }, { ...other, ...voter })).toBe(isOwn);
});

it('others may decide as well from the very moment on, and whoever was asked first goes on to', () => {
  const escalate = { afterMs: 1_000, to: { roles: ['boss'], users: ['tom'] } };
  const asked = { ...approvalBy({ approvers: { roles: ['lead'], users: ['ada'] } }), escalate };
  const at = (now: number) => decidersAt({ createdAt: NOW }, asked, now);
  expect(at(NOW + 999)).toEqual({ roles: ['lead'], users: ['ada'] });
  expect(at(NOW + 1_000)).toEqual({ roles: ['lead', 'boss'], users: ['ada', 'tom'] });
});

it.each<[string, boolean, Parameters<typeof isAmong>]>([
  ['one of two roles', true, [{ roles: ['lead', 'boss'], users: [] }, 'ada', ['boss', 'clerk']]],
  ['the name, without a role', true, [{ roles: ['lead'], users: ['ada'] }, 'ada', []]],
  ['another role', false, [{ roles: ['lead', 'boss'], users: [] }, 'ada', ['clerk']]],
  ['another name, where no role is asked for', false, [{ roles: [], users: ['tom'] }, 'ada', ['lead']]],
])('whoever has %s is among those who decide: %s', (_, is, asked) => {
  expect(isAmong(...asked)).toBe(is);
});
