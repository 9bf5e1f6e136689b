import { mismatchToWire } from '../model/action-call.ts';
import { DECISION_TABLE, isDenied, nextOf, statusOf, type NextStep } from '../model/decision.ts';
import type { ApprovalRecord } from '../model/approval.ts';
import { type KeptBody, type KeptResult, statusShown } from '../model/answer.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { RunOutcome, ShownBudget } from '../model/outcome.ts';
import type { ChangedParams } from '../model/verdict.ts';

/** What rendering needs from outside. This module does not handle signatures or addresses. */
export interface RenderContext {
  /** Origin of links, without a trailing slash. */
  readonly publicUrl: string;
  readonly receiptView: (jws: string) => JsonObject;
  /** Whether the reader is an agent. Of shared budgets, an agent sees only a level. */
  readonly forAgent: boolean;
  readonly hasProbe: (tool: string) => boolean;
}

export interface RenderedOutcome {
  readonly status: number;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: JsonObject;
}

/** Renders the answer to a run request: status by section 7, body as `design/interface.md` lists it. */
export function renderOutcome(outcome: RunOutcome, context: RenderContext): RenderedOutcome {
  const status = statusOf(outcome.decision, outcome.repeat);
  const self = `${context.publicUrl}/v1/workspaces/${outcome.workspace}/effects/${outcome.effectId}`;
  const { code, message, policy, rule } = outcome.reason;
  const body: Record<string, Json> = {
    decision: outcome.decision,
    effect_id: outcome.effectId,
    tool: outcome.tool,
    target: outcome.target,
    agent_id: outcome.agentId,
    idempotency_key: outcome.idempotencyKey,
    attempt: outcome.attempt,
    reason: { code, message, ...(policy === undefined ? {} : { policy }), ...(rule === undefined ? {} : { rule }) },
    did_it_happen: DECISION_TABLE[outcome.decision].happened,
    safe_to_retry: isSafeToRetry(outcome),
    next: nextStep(outcome),
    ...specifics(outcome, context),
    links: links(outcome, self, context),
  };
  if (outcome.budgets.length > 0 || outcome.decision === 'denied_budget')
    body['budgets'] = outcome.budgets.map((budget) => budgetToWire(budget, context.forAgent));
  if (outcome.changed !== undefined) body['changed'] = changedToWire(outcome.changed);
  if (outcome.observed !== null) body['observed'] = { would: outcome.observed.would, rule: outcome.observed.rule };
  if (outcome.retryAfterMs !== null) body['retry_after_ms'] = outcome.retryAfterMs;
  return { status, headers: outcomeHeaders(outcome), body };
}

export function changedToWire({ approvalId, params }: ChangedParams) {
  return { approval_id: approvalId, params };
}

/** The headers that name the decision, for an answer with the status of the decision. */
export function outcomeHeaders(outcome: RunOutcome): Record<string, string> {
  const headers: Record<string, string> = { 'svc-decision': outcome.decision, 'svc-effect-id': outcome.effectId };
  if (statusOf(outcome.decision, outcome.repeat) >= 300)
    headers['x-should-retry'] = shouldRetry(outcome) ? 'true' : 'false';
  if (outcome.retryAfterMs !== null)
    headers['retry-after'] = String(Math.max(1, Math.ceil(outcome.retryAfterMs / 1000)));
  return headers;
}

/**
 * Generated SDKs repeat 409 and 5xx by themselves unless told not to. A repeat helps only while a call runs, where it is
 * safe, or where the upstream was busy.
 */
function shouldRetry(outcome: RunOutcome): boolean {
  const { decision } = outcome;
  if (decision === 'failed') return outcome.askAgain === true;
  return decision === 'in_progress' || (decision === 'unknown_effect' && outcome.safeToRetry);
}

/** Whether the same call under the same key could do no harm. */
export function isSafeToRetry(outcome: RunOutcome): boolean {
  if (outcome.decision === 'unknown_effect') return outcome.safeToRetry;
  return DECISION_TABLE[outcome.decision].happened !== 'maybe' && outcome.reason.code !== 'key_closed';
}

/** What the caller should do now. */
export function nextStep(outcome: RunOutcome): NextStep {
  if (outcome.next !== null) return outcome.next;
  if (outcome.decision === 'unknown_effect' && outcome.safeToRetry) return 'retry';
  return nextOf(outcome.decision, outcome.reason.code);
}

function specifics(outcome: RunOutcome, context: RenderContext): JsonObject {
  if (isDenied(outcome))
    return outcome.mismatches.length === 0 ? {} : { mismatches: outcome.mismatches.map(mismatchToWire) };
  switch (outcome.decision) {
    case 'committed':
      return {
        receipt: context.receiptView(outcome.receipt.jws),
        ...resultMembers(outcome.result),
        ...(outcome.accepted ? { accepted: true } : {}),
        ...(outcome.responseTruncated ? { response_truncated: true } : {}),
        ...settlementMember(outcome.settlement),
      };
    case 'duplicate_blocked':
      return {
        receipt: context.receiptView(outcome.receipt.jws),
        ...resultMembers(outcome.result),
        ...(outcome.resultExpired ? { result_expired: true } : {}),
      };
    case 'pending_approval':
      return { approval: approvalToWire(outcome.approval, context.publicUrl) };
    case 'failed':
      return { ...resultMembers(outcome.result), ...settlementMember(outcome.settlement) };
    case 'unknown_effect':
      return settlementMember(outcome.settlement);
    case 'in_progress':
    case 'idempotency_conflict':
      return {};
  }
}

function settlementMember(settlement: 'done' | 'pending'): JsonObject {
  return settlement === 'pending' ? { settlement } : {};
}

/**
 * The kept answer of an upstream. `result` is its body: JSON, a string for text, or base64 with `result_encoding`.
 * Of an answer that was passed on it is the digest.
 * `upstream_status` is its status, if answers of its kind have one.
 */
export function resultMembers(result: KeptResult | null) {
  if (result === null) return {};
  const status = statusShown(result);
  const statusMember = status === null ? null : { upstream_status: status };
  // Either too large for a list, or sealed with a secret that is gone.
  if (result.body.kind === 'sealed') return { ...statusMember, result_omitted: true };
  return {
    result: result.body.value,
    ...statusMember,
    ...ENCODING_MEMBER[result.body.kind],
    ...(result.truncated ? { response_truncated: true } : {}),
  };
}

const ENCODING_MEMBER = {
  json: {},
  text: {},
  base64: { result_encoding: 'base64' },
  passed_on: { result_encoding: 'digest' },
  sealed: {},
} as const satisfies Record<KeptBody['kind'], object>;

/** The `approval` member of an answer. */
export function approvalToWire(approval: ApprovalRecord, publicUrl: string) {
  return {
    id: approval.id,
    status: approval.status,
    expires_at: new Date(approval.expiresAt).toISOString(),
    quorum: approval.requirements.reduce((sum, requirement) => sum + requirement.quorum, 0),
    approvals: new Set(approval.votes.filter((vote) => vote.verdict === 'approve').map((vote) => vote.user)).size,
    url: approvalUrl(approval, publicUrl),
  };
}

/** The page for people. By itself the address lets nobody see or decide anything. */
export function approvalUrl({ workspace, id }: ApprovalRecord, publicUrl: string): string {
  return `${publicUrl}/approve/${workspace}/${id}`;
}

/** A budget in an answer: figures and a level. For the shared budgets of an agent, only the level. */
export function budgetToWire({ row, sharing, warnAt }: ShownBudget, forAgent: boolean) {
  const remaining = Math.max(0, row.limit - row.spent - row.held);
  const resets = row.resetsAt === null ? null : new Date(row.resetsAt).toISOString();
  const used = row.limit - remaining;
  const level: 'exhausted' | 'low' | 'ok' =
    remaining === 0 ? 'exhausted' : used * 100 >= row.limit * warnAt ? 'low' : 'ok';
  if (forAgent && sharing === 'shared') {
    return { budget: row.budget, unit: row.unit, level, resets_at: resets };
  }
  return {
    budget: row.budget,
    unit: row.unit,
    limit: row.limit,
    spent: row.spent,
    held: row.held,
    remaining,
    level,
    resets_at: resets,
  };
}

function links(outcome: RunOutcome, self: string, { publicUrl, hasProbe }: RenderContext): JsonObject {
  const all: Record<string, string> = { docs: `${publicUrl}/docs/errors/${outcome.reason.code}` };
  // A refusal at a door, or of a key without a workspace, is an event of the ledger. There is no effect to link to.
  if (outcome.idempotencyKey !== '' && outcome.workspace !== '') all['effect'] = self;
  if (outcome.decision === 'committed' || outcome.decision === 'duplicate_blocked') all['receipt'] = `${self}/receipt`;
  if (outcome.decision === 'unknown_effect') {
    all['resolve'] = `${self}/resolve`;
    if (hasProbe(outcome.tool)) all['probe'] = `${self}/probe`;
  }
  return all;
}
