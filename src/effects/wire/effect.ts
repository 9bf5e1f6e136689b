import { mismatchToWire } from '../model/action-call.ts';
import { entitiesToWire } from '../model/entity.ts';
import { type ApprovalRecord, rejectionReason } from '../model/approval.ts';
import type { Code } from '../model/codes.ts';
import { statusShown } from '../model/answer.ts';
import { DECISION_TABLE, type Decision, type NextStep, type Reason, nextOf } from '../model/decision.ts';
import { decisionOf, BUSY, type EffectRecord, type Evidence, type Life, type SettledBy } from '../model/effect.ts';
import type { JsonObject } from '../../json/value.ts';
import { isExhausted } from '../steps/lifecycle.ts';
import { approvalToWire, changedToWire, resultMembers } from '../run/render.ts';
import type { AllowanceUse } from '../model/verdict.ts';
import type { Probed } from '../run/probe-effect.ts';
import type { Tool } from '../model/tool.ts';
import { optionalTimeToWire, timeToWire } from './time.ts';

export interface EffectWireContext {
  readonly publicUrl: string;
  readonly receiptView: (jws: string) => JsonObject;
  /** The tool as it is declared now; `null` if it no longer is. */
  readonly tool: Tool | null;
  /** The kept answer is shown only to a key that may call the tool. */
  readonly withResult: boolean;
  /** The request for approval that the effect waits for, or that was rejected, if it was looked up. */
  readonly approval: ApprovalRecord | null;
  readonly now: number;
}

/** An effect as `GET …/effects/{id}` and lists show it: its current decision, state and times. */
export function effectToWire(effect: EffectRecord, context: EffectWireContext) {
  const decision = decisionOf(effect);
  const safe = isSafeToRetry(effect, context);
  const self = `${context.publicUrl}/v1/workspaces/${effect.workspace}/effects/${effect.id}`;
  const { life } = effect;
  // Its place in the text; below it comes with what belongs to it.
  const inState = { state: life.state };
  const hasProbe = context.tool?.probe !== undefined;
  return {
    id: effect.id,
    effect_id: effect.id,
    workspace: effect.workspace,
    ...inState,
    decision,
    action_type: effect.action.type,
    tool: effect.action.tool,
    target: effect.action.target,
    upstream: effect.action.upstream,
    agent_id: effect.actor.agentId,
    key_id: effect.actor.keyId,
    via: effect.actor.via,
    idempotency_key: effect.idempotencyKey,
    fingerprint: effect.fingerprint,
    attempt: effect.attempt,
    reason: reasonToWire(reasonOf(effect, safe, context.approval, hasProbe)),
    did_it_happen: happenedTo(effect),
    safe_to_retry: safe,
    next: nextStep(effect, decision, safe),
    created_at: timeToWire(effect.createdAt),
    first_dispatch_at: optionalTimeToWire(effect.firstDispatchAt),
    settled_at: optionalTimeToWire(settledAt(life)),
    receipt_id: life.state === 'committed' ? life.receipt.id : null,
    policy: {
      version: effect.trace.policyVersion,
      matched: effect.trace.matched.map(({ rule }) => rule),
      ...(effect.trace.entities === undefined ? {} : { entities: entitiesToWire(effect.trace.entities) }),
    },
    ...(effect.trace.observed === null
      ? {}
      : { observed: { would: effect.trace.observed.would, rule: effect.trace.observed.rule } }),
    holds: effect.holds.map(({ budget, unit, window, amount }) => ({ budget, unit, window, amount })),
    hold_state: effect.holdState,
    ...(effect.trace.changed === undefined ? {} : { changed: changedToWire(effect.trace.changed) }),
    ...(effect.trace.beyond === undefined
      ? {}
      : { beyond: effect.trace.beyond.map(({ limit, by }) => ({ limit, by })) }),
    ...(effect.trace.allowance === undefined ? {} : { allowance: allowanceToWire(effect.trace.allowance) }),
    ...(effect.metadata === null ? {} : { metadata: effect.metadata }),
    ...lifeMembers(effect, context),
    links: {
      effect: self,
      run: `${self}/run`,
      ...(life.state === 'committed' ? { receipt: `${self}/receipt` } : {}),
      ...(life.state === 'unknown' ? { resolve: `${self}/resolve`, ...(hasProbe && { probe: `${self}/probe` }) } : {}),
    },
  };
}

/** When the outcome was on record, ms; `null`: it is not known yet. */
export function settledAt(life: Life): number | null {
  return life.state === 'pending_approval' || life.state === 'executing' || life.state === 'unknown' ? null : life.at;
}

/** Whose word let a call in that nobody was asked about. */
function allowanceToWire({ id, approvalId, by, use }: AllowanceUse) {
  return { id, approval_id: approvalId, given_by: by, use };
}

/** Whether it happened; of a closed one, there is evidence against what its record says. */
export function happenedTo(effect: EffectRecord): 'yes' | 'no' | 'maybe' {
  if (effect.closed && effect.life.state !== 'committed') return 'maybe';
  return DECISION_TABLE[decisionOf(effect)].happened;
}

/**
 * An unknown outcome may be sent again only if the upstream itself removes duplicates, and the tool has not changed
 * since.
 */
function isSafeToRetry(effect: EffectRecord, context: EffectWireContext): boolean {
  if (effect.life.state !== 'unknown') return happenedTo(effect) !== 'maybe';
  const { tool, now } = context;
  const { matched, observed } = effect.trace;
  // An approval covers only one dispatch.
  const asked = observed === null && matched.some((rule) => rule.effect === 'require_approval');
  return (
    tool !== null &&
    !asked &&
    effect.trace.changed === undefined &&
    effect.trace.allowance === undefined &&
    effect.trace.beyond === undefined &&
    !effect.closed &&
    !isExhausted(effect) &&
    tool.idempotent.kind === 'header' &&
    tool.digest === effect.action.toolDigest &&
    effect.firstDispatchAt !== null &&
    now < effect.firstDispatchAt + tool.idempotent.forMs
  );
}

function nextStep(effect: EffectRecord, decision: Decision, safe: boolean): NextStep {
  if (effect.life.state === 'unknown' && safe) return 'retry';
  if (effect.life.state === 'failed' && !safe) return 'block';
  if (effect.life.state !== 'denied') return DECISION_TABLE[decision].next;
  const { reason } = effect.life;
  return reason.next ?? nextOf(decision, reason.code);
}

export function reasonCodeOf(effect: EffectRecord): Code {
  return reasonOf(effect, false, null, false).code;
}

function reasonOf(effect: EffectRecord, safe: boolean, approval: ApprovalRecord | null, hasProbe: boolean): Reason {
  const { life } = effect;
  switch (life.state) {
    case 'pending_approval':
      return { code: 'approval_required', message: 'The action waits for approval.' };
    case 'executing':
      return { code: 'executing', message: 'The action is running.' };
    case 'committed':
      return { code: 'committed', message: sentence(life.evidence.message) };
    case 'failed':
      return { code: failedCode(life), message: sentence(life.evidence.message) };
    case 'unknown':
      return {
        code: 'outcome_unknown',
        message: `${sentence(life.evidence.message)} ${safe ? 'Send the same call with the same key again.' : hasProbe ? 'Its probe finds out: POST links.probe.' : 'Look at the live state and resolve it.'}`,
      };
    case 'rejected':
      return rejectionReason(approval);
    case 'denied':
      return life.reason;
  }
}

/** A reading of a probe, as the doors answer it. */
export function probeToWire({ finding, why, isSettled, retryAfterMs }: Probed) {
  const wait = retryAfterMs === null ? {} : { retry_after_ms: Math.ceil(retryAfterMs) };
  return { said: finding, settled: isSettled, message: why, ...wait };
}

/** Turns evidence into a sentence: it is stored as a few words without a capital. */
export function sentence(note: string): string {
  const text = note.charAt(0).toUpperCase() + note.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

function lifeMembers(effect: EffectRecord, context: EffectWireContext) {
  const { life } = effect;
  switch (life.state) {
    case 'pending_approval':
      return {
        state: life.state,
        approval_id: life.approvalId,
        ...(context.approval === null ? {} : { approval: approvalToWire(context.approval, context.publicUrl) }),
      };
    case 'rejected':
      return { state: life.state, approval_id: life.approvalId, refused_until: timeToWire(life.until) };
    case 'executing':
      return { state: life.state, lease_end: timeToWire(life.lease.leaseEnd) };
    case 'unknown':
      return {
        state: life.state,
        evidence: evidenceToWire(life.evidence),
        quiesce_until: timeToWire(life.lease.quiesceUntil),
      };
    case 'committed':
      return {
        state: life.state,
        receipt: context.receiptView(life.receipt.jws),
        settled_by: settledByToWire(life.settledBy),
        evidence: evidenceToWire(life.evidence),
        ...(life.accepted ? { accepted: true } : {}),
        ...(context.withResult ? resultMembers(life.result) : {}),
        ...(life.responseTruncated ? { response_truncated: true } : {}),
      };
    case 'failed':
      return {
        state: life.state,
        settled_by: settledByToWire(life.settledBy),
        evidence: evidenceToWire(life.evidence),
        ...(context.withResult ? resultMembers(life.result) : {}),
      };
    case 'denied':
      return {
        state: life.state,
        ...(life.mismatches.length === 0 ? {} : { mismatches: life.mismatches.map(mismatchToWire) }),
      };
  }
}

export function reasonToWire({ code, message, policy, rule }: Reason) {
  return { code, message, ...(policy === undefined ? {} : { policy }), ...(rule === undefined ? {} : { rule }) };
}

function evidenceToWire(evidence: Evidence) {
  return {
    code: evidence.code,
    message: evidence.message,
    status: statusShown(evidence.answered),
    started_at: optionalTimeToWire(evidence.startedAt),
    ended_at: optionalTimeToWire(evidence.endedAt),
  };
}

function settledByToWire(settledBy: SettledBy) {
  switch (settledBy.by) {
    case 'owner':
    case 'late_answer':
      return { by: settledBy.by };
    case 'probe':
      return { by: settledBy.by, evidence: settledBy.evidence };
    case 'resolve':
      return {
        by: settledBy.by,
        key_id: settledBy.keyId,
        user: settledBy.user,
        forced: settledBy.forced,
        comment: settledBy.comment,
        evidence: settledBy.evidence,
      };
  }
}

function failedCode({ settledBy, evidence }: Extract<EffectRecord['life'], { state: 'failed' }>): Code {
  if (settledBy.by === 'resolve' || settledBy.by === 'probe') return 'resolved_not_happened';
  switch (evidence.code) {
    case 'not_dispatched':
    case 'connect_failed':
      return evidence.code;
    case BUSY:
      return 'upstream_busy';
    default:
      return 'upstream_refused';
  }
}
