import type { AdmitRequest, Admission } from '../store.ts';
import { type Amounts, amountToPost } from '../model/answer.ts';
import { type ApprovalRecord, rejectionReason } from '../model/approval.ts';
import { type BudgetRow, BUSY, type EffectRecord, type Evidence, type Hold, type Tombstone } from '../model/effect.ts';
import type { Reason } from '../model/decision.ts';
import type { RunOutcome, ShownBudget } from '../model/outcome.ts';
import type { Verdict } from '../model/verdict.ts';

export function baseOf(effect: EffectRecord, reason: Reason, repeat: boolean) {
  const { changed } = effect.trace;
  return {
    workspace: effect.workspace,
    effectId: effect.id,
    tool: effect.action.tool,
    target: effect.action.target,
    agentId: effect.actor.agentId,
    idempotencyKey: effect.idempotencyKey,
    attempt: effect.attempt,
    reason: changed === undefined ? reason : { ...reason, message: `${reason.message} ${changedText(changed.params)}` },
    budgets: [],
    observed: effect.trace.observed,
    repeat,
    retryAfterMs: null,
    next: null,
    ...(changed && { changed }),
  };
}

/** Tells an agent that what ran is not what it asked. */
function changedText(params: readonly string[]): string {
  return `An approver changed ${params.join(', ')} before it ran: the effect has what was asked and what ran.`;
}

/** Percent of use at which the level of a budget becomes `low`, where policy does not set it. */
export const WARN_AT = 80;

/** Budgets with what the caller may see of them, by the obligations of the verdict. */
export function shownBudgets(rows: readonly BudgetRow[], verdict: Verdict): readonly ShownBudget[] {
  const obligations = verdict.kind === 'permit' ? verdict.obligations : [];
  return rows.map((row) => {
    let sharing: ShownBudget['sharing'] = 'shared';
    let warnAt = WARN_AT;
    for (const obligation of obligations) {
      if (obligation.kind !== 'budget' || obligation.budget !== row.budget) continue;
      if (obligation.sharing === 'own') sharing = 'own';
      if (obligation.warnAt !== undefined) warnAt = obligation.warnAt;
    }
    return { row, sharing, warnAt };
  });
}

/** Budgets after the holds of an attempt were posted or given back, computed from what admission saw. */
export function settledBudgets(
  rows: readonly BudgetRow[],
  holds: readonly Hold[],
  outcome: Pick<RunOutcome, 'decision'> & { readonly amounts?: Amounts },
): readonly BudgetRow[] {
  // While the outcome is unknown, the holds stay.
  if (outcome.decision === 'unknown_effect') return rows;
  const spends = outcome.decision === 'committed' ? outcome : null;
  return rows.map((row) => {
    let { held, spent } = row;
    for (const hold of holds) {
      if (hold.budget !== row.budget || hold.bucket !== row.bucket || hold.window !== row.window) continue;
      held -= hold.amount;
      if (spends !== null) spent += amountToPost(hold, spends.amounts);
    }
    return { ...row, held, spent };
  });
}

/** The outcome of a request whose effect existed before it: the effect's present decision. */
export function outcomeOfRecord(
  effect: EffectRecord,
  safeToRetry: boolean,
  retryAfterMs: number | null,
  approval: ApprovalRecord | null = null,
): RunOutcome {
  const { life } = effect;
  switch (life.state) {
    case 'committed':
      return {
        ...baseOf(
          effect,
          { code: 'already_committed', message: 'The action happened earlier under this key; nothing ran again.' },
          true,
        ),
        decision: 'duplicate_blocked',
        receipt: life.receipt,
        result: life.result,
        resultExpired: false,
      };
    case 'executing':
      return {
        ...baseOf(
          effect,
          { code: 'executing', message: 'The action is running under this key. Ask again in a moment.' },
          true,
        ),
        decision: 'in_progress',
        retryAfterMs,
      };
    case 'unknown':
      return {
        ...baseOf(effect, unknownReason(safeToRetry), true),
        decision: 'unknown_effect',
        safeToRetry,
        settlement: 'done',
        retryAfterMs,
      };
    case 'failed':
      return {
        ...baseOf(
          effect,
          life.settledBy.by === 'resolve' || life.settledBy.by === 'probe'
            ? { code: 'resolved_not_happened', message: life.evidence.message }
            : failedReason(life.evidence),
          true,
        ),
        decision: 'failed',
        answer: null,
        result: life.result,
        settlement: 'done',
      };
    case 'rejected':
      return {
        ...baseOf(effect, rejectionReason(approval), true),
        decision: 'denied_policy',
        mismatches: [],
      };
    case 'denied': {
      const base = { ...baseOf(effect, life.reason, true), next: life.reason.next ?? null };
      return life.decision === 'idempotency_conflict'
        ? { ...base, decision: 'idempotency_conflict' }
        : { ...base, decision: life.decision, mismatches: life.mismatches };
    }
    case 'pending_approval':
      throw new TypeError('a waiting effect is answered with its approval');
  }
}

/**
 * The outcome of a settled effect for who made it and has waited since.
 * @param approval of a rejected one
 * @throws TypeError where it waits for approval still
 */
export function outcomeFor(effect: EffectRecord, approval: ApprovalRecord | null): RunOutcome {
  const { life } = effect;
  if (life.state !== 'committed') return outcomeOfRecord(effect, false, null, approval);
  const { receipt, result, accepted, responseTruncated } = life;
  return {
    ...baseOf(effect, COMMITTED, false),
    decision: 'committed',
    receipt,
    result,
    answer: null,
    accepted,
    responseTruncated,
    settlement: 'done',
  };
}

export const COMMITTED: Reason = { code: 'committed', message: 'The action happened.' };

export function failedReason({ code, message }: Pick<Evidence, 'code' | 'message'>): Reason {
  if (code === BUSY) return { code: 'upstream_busy', message: `${message}, so nothing was done` };
  return { code: code === 'connect_failed' ? 'connect_failed' : 'upstream_refused', message };
}

export function unknownReason(safeToRetry: boolean): Reason {
  return {
    code: 'outcome_unknown',
    message: safeToRetry
      ? 'Whether the action happened is not known. The upstream removes duplicates: send the same call with the same key again.'
      : 'Whether the action happened is not known. Do not send it under another key; look at the live state and resolve it.',
  };
}

export function outcomeOfAdmission(
  request: AdmitRequest,
  admission: Exclude<Admission, { kind: 'dispatch' | 'stale' | 'exceeds' }>,
): RunOutcome {
  switch (admission.kind) {
    case 'pending':
      return {
        ...baseOf(
          admission.effect,
          {
            code: 'approval_required',
            message: admission.approval.requirements[0]?.summary ?? 'The action waits for approval.',
          },
          !admission.created,
        ),
        decision: 'pending_approval',
        approval: admission.approval,
        retryAfterMs: 5000,
      };
    case 'existing':
      // The caller always gets the receipt, but the stored answer only while it may still call the tool.
      return request.verdict.kind === 'deny'
        ? withoutResult(outcomeOfRecord(admission.effect, admission.safeToRetry, admission.retryAfterMs))
        : outcomeOfRecord(admission.effect, admission.safeToRetry, admission.retryAfterMs);
    case 'expired':
      return outcomeOfTombstone(admission.tombstone);
    case 'refused': {
      const base = {
        workspace: request.workspace,
        effectId: admission.effectId,
        tool: request.action.tool,
        target: request.action.target,
        agentId: request.actor.agentId,
        idempotencyKey: request.idempotencyKey,
        attempt: admission.attempt,
        reason: admission.reason,
        budgets: shownBudgets(admission.budgets, request.verdict),
        observed: request.verdict.trace.observed,
        repeat: admission.effectId !== request.effectId,
        retryAfterMs: admission.retryAfterMs,
        next: null,
      };
      if (admission.decision === 'idempotency_conflict') return { ...base, decision: admission.decision };
      return { ...base, decision: admission.decision, mismatches: [] };
    }
  }
}

function withoutResult(outcome: RunOutcome): RunOutcome {
  return outcome.decision === 'duplicate_blocked' ? { ...outcome, result: null } : outcome;
}

function outcomeOfTombstone(tombstone: Tombstone): RunOutcome {
  const { outcome } = tombstone;
  if (outcome.state !== 'committed' || outcome.receipt.jws === null)
    throw new TypeError('only a committed tombstone with its receipt answers for its effect');
  return {
    workspace: tombstone.workspace,
    effectId: tombstone.id,
    tool: tombstone.tool,
    target: tombstone.target,
    agentId: tombstone.agentId,
    idempotencyKey: tombstone.idempotencyKey,
    attempt: tombstone.attempt,
    reason: {
      code: 'already_committed',
      message: 'The action happened earlier under this key; its result is no longer kept.',
    },
    budgets: [],
    observed: null,
    repeat: true,
    retryAfterMs: null,
    next: null,
    decision: 'duplicate_blocked',
    receipt: outcome.receipt,
    result: null,
    resultExpired: true,
  };
}

/** Why a call is not sent whose request for approval, or a vote on it, is not as a gateway wrote it. */
export const FORGED: Reason = {
  code: 'approval_forged',
  message:
    'The request for approval, or a vote on it, is not as a gateway wrote it. Nothing is approved by it: ask with a new idempotency key, and find out who else writes to the store.',
};

/** The same of an allowance. It stands for all calls alike, so a new key alone would not help. */
export const FORGED_AHEAD: Reason = {
  code: 'approval_forged',
  message:
    'What was allowed ahead for such calls is not as a gateway wrote it. Nothing is let in by it: ask somebody who may decide approvals to revoke it, and find out who else writes to the store. Then send the call again.',
};
