import { type AllowanceRecord, allowanceStatus, alikeObstacle, isForOthers, mostAlike } from '../model/allowance.ts';
import type { ApprovalRecord } from '../model/approval.ts';
import type { LedgerActor, LedgerDraft } from '../model/ledger.ts';
import type { Permit } from '../model/verdict.ts';
import type { Admission, AdmitRequest, AskedOf, AnswerOf } from '../store.ts';
import type { VoteRequest, VoteResult } from '../approval-store.ts';
import type { Plan, StepView } from './plan.ts';

/**
 * The open allowance for a call that people would be asked about; `null`: they are asked. One that its giver would use
 * for a call of their own counts for nothing.
 */
export function allowanceFor(view: StepView, { workspace, alike, actor }: AdmitRequest): AllowanceRecord | null {
  if (alike === undefined) return null;
  const { likeness, registeredBy } = alike;
  const allowance = view.allowanceAlike(workspace, likeness);
  if (allowance === null || allowance.likeness !== likeness) return null;
  const isOpen = allowanceStatus(allowance, view.now, view.epoch) === 'open';
  return isOpen && isForOthers(allowance, actor, registeredBy) ? allowance : null;
}

/** The call as it runs by an allowance: its trace and its stages say by whose. */
export function allowedBy(
  view: StepView,
  request: AdmitRequest,
  { id, approvalId, by, used }: AllowanceRecord,
): AdmitRequest & { readonly verdict: Permit } {
  const { verdict, stages } = request;
  if (verdict.kind !== 'permit') throw new TypeError('an allowance lets in what policy permits');
  const allowance = { id, approvalId, by: by.user, use: used + 1 };
  return {
    ...request,
    stages: [...stages, { stage: 'approval', status: 'passed', startedAt: view.now, durationMs: null, detail: id }],
    verdict: { ...verdict, trace: { ...verdict.trace, allowance } },
  };
}

/** The admission of a call by an allowance, with the use of it. The plan is not valid after the allowance's time. */
export function withUse(plan: Plan<Admission>, allowance: AllowanceRecord, actor: LedgerActor): Plan<Admission> {
  const { reply } = plan;
  if (reply.kind !== 'dispatch') return plan;
  const used = { ...allowance, used: allowance.used + 1 };
  return {
    ...plan,
    reply: { ...reply, allowance: used },
    allowances: [used],
    validUntil: Math.min(plan.validUntil ?? Infinity, allowance.expiresAt),
    events: [...(plan.events ?? []), eventOf('allowance.used', reply.effect.id, actor, used)],
  };
}

/**
 * What a vote that grants writes besides, where it allows the next calls alike. What was allowed for the same calls
 * before is over: uses do not add up.
 * @returns `null` where it cannot be allowed
 */
export function givenWith(
  view: StepView,
  { workspace, alike, change, requirements, actor }: VoteRequest,
  approval: ApprovalRecord,
): Pick<Plan<VoteResult>, 'allowances' | 'events'> | null {
  if (alike === undefined) return {};
  const most = mostAlike(approval.requirements);
  const { until, ...asked } = alike;
  const isWithin = most !== null && Number.isInteger(alike.times) && alike.times >= 1 && alike.times <= most.times;
  if (!isWithin || until <= view.now || alikeObstacle(approval, requirements, change !== null) !== null) return null;
  const expiresAt = Math.min(until, view.now + most.forMs);
  const given: AllowanceRecord = { ...asked, used: 0, givenAt: view.now, expiresAt, epoch: view.epoch };
  const before = view.allowanceAlike(workspace, alike.likeness);
  const isReplaced = before !== null && allowanceStatus(before, view.now, view.epoch) === 'open';
  const ended = { why: 'replaced', at: view.now, by: alike.by.user } as const;
  return {
    allowances: isReplaced ? [{ ...before, ended }, given] : [given],
    events: [
      eventOf('allowance.given', approval.effectId, actor, given, {
        times: given.times,
        expires_at: new Date(expiresAt).toISOString(),
        ...(isReplaced ? { instead_of: before.id } : {}),
      }),
    ],
  };
}

/** Ends an allowance. What it has let in stays as it is. */
export function revokeAllowanceStep(
  view: StepView,
  { workspace, id, by, actor }: AskedOf<'revokeAllowance'>,
): Plan<AnswerOf<'revokeAllowance'>> {
  const allowance = view.allowance(workspace, id);
  if (allowance === null) return { reply: { kind: 'absent' } };
  if (allowanceStatus(allowance, view.now, view.epoch) !== 'open') return { reply: { kind: 'over', allowance } };
  const revoked: AllowanceRecord = { ...allowance, ended: { why: 'revoked', at: view.now, by } };
  return {
    reply: { kind: 'revoked', allowance: revoked },
    allowances: [revoked],
    events: [eventOf('allowance.revoked', allowance.effectId, actor, revoked)],
  };
}

function eventOf(
  kind: Extract<LedgerDraft['kind'], `allowance.${string}`>,
  effectId: string,
  actor: LedgerActor,
  { id, approvalId, by, used }: AllowanceRecord,
  more: LedgerDraft['data'] = {},
): LedgerDraft {
  return {
    kind,
    effectId,
    actor,
    data: { allowance_id: id, approval_id: approvalId, given_by: by.user, used, ...more },
  };
}
