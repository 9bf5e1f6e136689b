import type { AskedOf, AnswerOf } from '../store.ts';
import type { JsonObject } from '../../json/value.ts';
import {
  type ApprovalRecord,
  endedApproval,
  escalatesAt,
  escalating,
  isQuorate,
  type Vote,
} from '../model/approval.ts';
import type { Code } from '../model/codes.ts';
import { commit } from '../model/commit.ts';
import type { EffectRecord } from '../model/effect.ts';
import type { LedgerActor, LedgerDraft } from '../model/ledger.ts';
import { givenWith } from './allowances.ts';
import { advance } from './lifecycle.ts';
import type { Plan, StepView } from './plan.ts';
import { release } from './give-back.ts';
import type { ApprovalChange, VoteRequest, VoteResult } from '../approval-store.ts';

/** After a rejection, the same action is refused under any key for this long, ms. */
export const REJECTION_COOLDOWN_MS = 24 * 60 * 60 * 1000;

/** One person's vote on a request for approval. The last needed approval grants; one rejection rejects. */
export function voteStep(view: StepView, request: VoteRequest): Plan<VoteResult> {
  const approval = view.approval(request.workspace, request.approvalId);
  if (approval === null) return { reply: { kind: 'absent' } };
  const effect = view.effect(request.workspace, approval.effectId);
  if (effect === null) return { reply: { kind: 'absent' } };
  if (approval.status === 'pending' && view.now >= approval.expiresAt) {
    const { reply: _, ...expired } = expireApprovalStep(view, effect, approval);
    return {
      ...expired,
      reply: { kind: 'already_decided', approval: endedApproval(approval, 'expired', view.now) },
    };
  }
  if (approval.status !== 'pending') return { reply: { kind: 'already_decided', approval } };
  if (isOwnRequest(approval, request)) return { reply: { kind: 'own_request', approval } };
  if (request.requirements.length === 0 || isTooEarly(view, request, approval))
    return { reply: { kind: 'not_an_approver', approval } };
  if (request.digest !== approval.digest) return { reply: { kind: 'question_changed', approval } };
  const isMute = request.verdict === 'reject' && (request.comment ?? '').trim() === '';
  if (isMute && approval.requirements.some(({ requireReason }) => requireReason === true))
    return { reply: { kind: 'reason_required', approval } };
  const vote: Vote = {
    user: request.user,
    keyId: request.keyId,
    verdict: request.verdict,
    at: view.now,
    comment: request.comment,
    requirements: request.requirements,
    ...(request.salt === undefined ? null : { salt: request.salt }),
    ...(request.seal === undefined ? null : { seal: request.seal }),
  };
  // Whose vote counts only since then stands in the ledger before the vote.
  const { approval: asked, events } = escalated(view, approval);
  const plan =
    request.verdict === 'approve'
      ? approve(view, request, asked, effect, vote)
      : reject(view, request, asked, effect, vote);
  return plan.events === undefined || events.length === 0 ? plan : { ...plan, events: [...events, ...plan.events] };
}

/** Whether somebody votes who may only once the request has escalated, by the store's clock. */
function isTooEarly(view: StepView, { escalated: by }: VoteRequest, approval: ApprovalRecord): boolean {
  return by.some((index) => {
    const requirement = approval.requirements[index];
    return requirement === undefined || view.now < escalatesAt(approval, requirement);
  });
}

/** A request with the escalations that are due on record, and the events that put them there. */
function escalated(
  view: StepView,
  approval: ApprovalRecord,
): { readonly approval: ApprovalRecord; readonly events: readonly LedgerDraft[] } {
  const due = escalating(approval, view.now);
  if (due.length === 0) return { approval, events: [] };
  const event: LedgerDraft = {
    kind: 'approval.escalated',
    effectId: approval.effectId,
    actor: { type: 'gateway', id: 'sweeper' },
    data: {
      approval_id: approval.id,
      rules: due.map(({ rule }) => rule),
      roles: [...new Set(due.flatMap(({ escalate }) => escalate?.to.roles ?? []))],
      users: [...new Set(due.flatMap(({ escalate }) => escalate?.to.users ?? []))],
      expires_at: new Date(approval.expiresAt).toISOString(),
    },
  };
  return { approval: { ...approval, escalatedTo: view.now }, events: [event] };
}

/** Whether somebody may decide nothing about a request: who made it, whose agent or key it is, or who came after it. */
export function isOwnRequest(
  {
    requester,
    createdAt,
  }: {
    readonly requester: Pick<ApprovalRecord['requester'], 'user' | 'agentOwner' | 'keyMadeBy' | 'keyId'>;
    readonly createdAt: number;
  },
  { user, keyId, voterSince }: Pick<VoteRequest, 'user' | 'keyId' | 'voterSince'>,
): boolean {
  const tooClose = [requester.user, requester.agentOwner, requester.keyMadeBy].includes(user);
  return tooClose || keyId === requester.keyId || voterSince > createdAt;
}

function approve(
  view: StepView,
  request: VoteRequest,
  approval: ApprovalRecord,
  effect: EffectRecord,
  vote: Vote,
): Plan<VoteResult> {
  const { change } = request;
  // Who approved the question before it was changed has not approved this one.
  const earlier = change === null ? approval.votes : [];
  if (earlier.some(({ user }) => user === vote.user)) return { reply: { kind: 'voted_already', approval, effect } };
  const given = givenWith(view, request, approval);
  if (given === null) return { reply: { kind: 'alike_refused', approval } };
  const votes = [...earlier, vote];
  const asked = change === null ? approval : changedBy(approval, change, vote);
  const granted = isQuorate(asked.requirements, votes);
  const next: ApprovalRecord = {
    ...asked,
    votes,
    status: granted ? 'granted' : 'pending',
    decidedAt: granted ? view.now : null,
  };
  return {
    ...given,
    reply: { kind: 'counted', approval: next, effect },
    approvals: [next],
    events: [
      {
        kind: 'approval.granted',
        effectId: effect.id,
        actor: request.actor,
        data: {
          approval_id: approval.id,
          ...votedBy(request),
          complete: granted,
          ...(request.isVoid === true ? { void: true } : {}),
          digest: next.digest,
          ...(change === null ? {} : { changed: change.params, instead_of: approval.digest }),
        },
      },
      ...(given.events ?? []),
    ],
  };
}

/** Who votes, and by which credential. */
function votedBy({ user, keyId, passkey }: VoteRequest): JsonObject {
  return { user, key_id: keyId, ...(passkey === undefined ? {} : { passkey_id: passkey }) };
}

/** The commitment to the words of a rejection, which stays when the request is gone. */
function wordsOf({ comment, salt }: Vote): JsonObject {
  return comment === null || salt === undefined ? {} : { comment: commit(salt, comment) };
}

/** The request as one of its approvers changed it. */
function changedBy(
  approval: ApprovalRecord,
  { digest, requirements, costs, params, sealed }: ApprovalChange,
  { user, at }: Vote,
): ApprovalRecord {
  const askedDigest = approval.changed?.askedDigest ?? approval.digest;
  return { ...approval, digest, requirements, costs, changed: { by: user, at, params, sealed, askedDigest } };
}

function reject(
  view: StepView,
  request: VoteRequest,
  approval: ApprovalRecord,
  effect: EffectRecord,
  vote: Vote,
): Plan<VoteResult> {
  const until = view.now + REJECTION_COOLDOWN_MS;
  const step = advance(effect, { kind: 'reject', at: view.now, until });
  if (step.kind === 'refused') return { reply: { kind: 'already_decided', approval } };
  const released = release(view, step.effect, 'void', null);
  const next = { ...endedApproval(approval, 'rejected', view.now), votes: [...approval.votes, vote] };
  return {
    ...released.plan,
    reply: { kind: 'counted', approval: next, effect: released.effect },
    effects: [{ record: released.effect, binding: 'keep' }],
    approvals: [next],
    rejection: { fingerprint: effect.fingerprint, effectId: effect.id, until },
    events: [
      {
        kind: 'approval.rejected',
        effectId: effect.id,
        actor: request.actor,
        data: { approval_id: approval.id, ...votedBy(request), digest: approval.digest, ...wordsOf(vote) },
      },
      ...released.events,
    ],
  };
}

/** Ends a request for approval whose time is over: the effect is denied, its holds are void, its key is free. */
export function expireApprovalStep(view: StepView, effect: EffectRecord, approval: ApprovalRecord): Plan<EffectRecord> {
  const expired = endedApproval(approval, 'expired', view.now);
  const step = advance(effect, { kind: 'expire', at: view.now, granted: approval.status === 'granted' });
  if (step.kind === 'refused') return { reply: effect, approvals: [expired] };
  return ended(view, step.effect, expired, { type: 'gateway', id: 'sweeper' }, 'approval_expired');
}

/**
 * Expires a request for approval that is still open, if its time is over; else asks others, if it is time for that, and
 * says so.
 */
export function expireOverdueStep(
  view: StepView,
  { workspace, approvalId }: { readonly workspace: string; readonly approvalId: string },
): Plan<'escalated' | null> {
  const approval = view.approval(workspace, approvalId);
  if (approval === null || (approval.status !== 'pending' && approval.status !== 'granted')) return { reply: null };
  if (view.now < approval.expiresAt) {
    const { approval: asked, events } = escalated(view, approval);
    return events.length === 0 ? { reply: null } : { reply: 'escalated', approvals: [asked], events };
  }
  const effect = view.effect(workspace, approval.effectId);
  return effect === null
    ? { reply: null, approvals: [endedApproval(approval, 'expired', view.now)] }
    : { ...expireApprovalStep(view, effect, approval), reply: null };
}

/** Ends a granted request whose call can no longer be made, like an expired one, and records why. */
export function giveUpStep(view: StepView, request: AskedOf<'giveUp'>): Plan<AnswerOf<'giveUp'>> {
  const { decision, reason, actor } = request;
  const approval = view.approval(request.workspace, request.approvalId);
  const effect = approval === null ? null : view.effect(request.workspace, approval.effectId);
  if (approval === null || effect === null) return { reply: { kind: 'absent' } };
  if (approval.status !== 'granted') return { reply: { kind: 'already_decided', approval } };
  const step = advance(effect, { kind: 'give_up', at: view.now, decision, reason });
  if (step.kind === 'refused') return { reply: { kind: 'already_decided', approval } };
  const stopped = { at: view.now, decision, reason };
  const over: ApprovalRecord = { ...endedApproval(approval, 'expired', view.now), stopped };
  const { reply, ...plan } = ended(view, step.effect, over, actor, reason.code);
  return { ...plan, reply: { kind: 'given_up', approval: over, effect: reply } };
}

function ended(
  view: StepView,
  effect: EffectRecord,
  approval: ApprovalRecord,
  actor: LedgerActor,
  code: Code,
): Plan<EffectRecord> {
  const released = release(view, effect, 'void', null);
  return {
    ...released.plan,
    reply: released.effect,
    effects: [{ record: released.effect, binding: 'release' }],
    approvals: [approval],
    events: [
      { kind: 'approval.expired', effectId: effect.id, actor, data: { approval_id: approval.id, code } },
      ...released.events,
    ],
  };
}
