import { entitiesToWire } from '../model/entity.ts';
import type { DeniedDecision, Reason } from '../model/decision.ts';
import type { EffectRecord, Hold, Lease, Stage } from '../model/effect.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { LedgerActor, LedgerDraft } from '../model/ledger.ts';
import { advance, begin, type FreshEffect, MAX_ATTEMPTS } from './lifecycle.ts';
import type { Binding, Plan, StepView } from './plan.ts';
import type { Admission, AdmitRequest, Refusal } from '../store.ts';
import { type ApprovalRecord, costsOf, endedApproval, expiresAt } from '../model/approval.ts';
import type { satisfyObligations } from './obligations.ts';
import { holdsToWire } from './give-back.ts';
import type { Permit } from '../model/verdict.ts';

/* What an admission writes and answers where the call runs, waits for approval, or is refused. */

/** At most this many effects of one agent wait for approval. */
const MAX_PENDING = 20;

type Terms = Pick<EffectRecord, 'holds' | 'holdState' | 'claims' | 'uses' | 'trace'>;

function freshEffect(view: StepView, request: AdmitRequest, terms: Terms | null = null): FreshEffect {
  return {
    id: request.effectId,
    workspace: request.workspace,
    idempotencyKey: request.idempotencyKey,
    fingerprint: request.fingerprint,
    action: request.action,
    actor: request.actor,
    createdAt: view.now,
    attempt: 0,
    unsent: 0,
    generation: 1,
    firstDispatchAt: null,
    mayHaveHappened: false,
    closed: false,
    holds: terms?.holds ?? [],
    holdState: terms?.holdState ?? 'none',
    claims: terms?.claims ?? [],
    uses: terms?.uses ?? [],
    trace: terms?.trace ?? request.verdict.trace,
    stages: request.stages,
    metadata: request.metadata,
    sealed: request.sealed,
  };
}

export function conflict(view: StepView, request: AdmitRequest, binding: Binding): Plan<Admission> {
  const owner = binding.kind === 'effect' ? binding.effect.actor.agentId : binding.tombstone.agentId;
  const reason: Reason = {
    code: 'key_reused',
    message:
      'This idempotency key belongs to another action. Use a new key for a new action; send the first action unchanged to repeat it.',
  };
  return {
    reply: {
      kind: 'refused',
      effectId: request.effectId,
      decision: 'idempotency_conflict',
      reason,
      attempt: 0,
      budgets: [],
      retryAfterMs: null,
      foreign: owner !== request.actor.agentId,
    },
    effects: [
      {
        record: {
          ...freshEffect(view, request),
          stages: refusedStages(request.stages, view.now, reason),
          life: { state: 'denied', at: view.now, decision: 'idempotency_conflict', reason, mismatches: [] },
        },
        binding: 'keep',
      },
    ],
    events: [event('effect.conflict', request.effectId, agentOf(request), { tool: request.action.tool })],
    throttle: `${request.workspace}\n${request.idempotencyKey}\nconflict`,
  };
}

/** Records a refusal as an event and a separate effect. It binds no key and does not change an earlier effect. */
export function denial(
  view: StepView,
  request: AdmitRequest,
  decision: DeniedDecision,
  reason: Reason,
  earlier: EffectRecord | null = null,
  retryAfterMs: number | null = null,
): Plan<Admission> {
  const id = earlier?.id ?? request.effectId;
  const reply = refusedAs(id, decision, reason, earlier?.attempt ?? 0, retryAfterMs);
  const denied = event('effect.denied', id, agentOf(request), deniedData(request, decision, reason));
  const throttle = `${request.workspace}\n${throttledBy(request)}\n${reason.code}`;
  if (earlier !== null) return { reply, events: [denied], throttle };
  const record: EffectRecord = {
    ...freshEffect(view, request),
    stages: refusedStages(request.stages, view.now, reason),
    life: { state: 'denied', at: view.now, decision, reason, mismatches: [] },
  };
  return { reply, effects: [{ record, binding: 'keep' }], events: [denied], throttle };
}

/** The stages of a refused call. If none before the admission refused it, the admission did. */
function refusedStages(before: readonly Stage[], at: number, { rule, code }: Reason): readonly Stage[] {
  if (before.some(({ status }) => status === 'refused')) return before;
  return [...before, { stage: 'admission', status: 'refused', startedAt: at, durationMs: null, detail: rule ?? code }];
}

export function refusedAs(
  effectId: string,
  decision: DeniedDecision,
  reason: Reason,
  attempt: number,
  retryAfterMs: number | null = null,
): Refusal {
  return { kind: 'refused', effectId, decision, reason, attempt, budgets: [], retryAfterMs, foreign: false };
}

export function deniedData(request: AdmitRequest, decision: DeniedDecision, reason: Reason): JsonObject {
  const { policyVersion, entities } = request.verdict.trace;
  return {
    decision,
    code: reason.code,
    tool: request.action.tool,
    ...(reason.rule === undefined ? {} : { rule: reason.rule }),
    policy_version: policyVersion,
    ...(entities === undefined ? {} : { entities: entitiesToWire(entities) }),
  };
}

export function event(
  kind: LedgerDraft['kind'],
  effectId: string,
  actor: LedgerActor,
  data: Readonly<Record<string, Json>>,
): LedgerDraft {
  return { kind, effectId, actor, data };
}

/**
 * What refusals of a call are counted by: its idempotency key. For a caller that may not act at all, it is the API key,
 * so that other names or other idempotency keys do not help.
 */
export function throttledBy({ verdict, idempotencyKey, actor }: AdmitRequest): string {
  const mayNotAct =
    verdict.kind === 'deny' && (verdict.decision === 'denied_permission' || verdict.decision === 'denied_identity');
  return mayNotAct ? actor.keyId : idempotencyKey;
}

/** Who caused an event: the agent, or the key where it acts for no agent. */
export function agentOf({ actor }: Pick<AdmitRequest, 'actor'>): LedgerActor {
  return actor.agentId === '' ? { type: 'key', id: actor.keyId } : { type: 'agent', id: actor.agentId };
}

export const CLOSED: Reason = {
  code: 'key_closed',
  message:
    'Evidence about earlier attempts of this action contradicts itself; the key takes no more attempts. Look at the effect’s ledger and settle it by hand.',
};
export const EXHAUSTED: Reason = {
  code: 'attempts_exhausted',
  message: `The action was attempted ${MAX_ATTEMPTS} times. Find out why it fails, then use a new idempotency key.`,
};

type Met = Extract<ReturnType<typeof satisfyObligations>, { kind: 'satisfied' }>;

export function dispatch(
  view: StepView,
  request: AdmitRequest,
  earlier: EffectRecord | null,
  met: Met,
  granted: ApprovalRecord | null,
): Plan<Admission> {
  const lease = makeLease(view, request, (earlier?.attempt ?? 0) + 1);
  const { trace } = request.verdict;
  const terms: Terms = {
    holds: met.holds,
    holdState: met.holds.length === 0 ? 'none' : 'held',
    claims: met.claims.map((claim) => claim.target),
    uses: met.uses,
    trace: trace.observed === met.observed ? trace : { ...trace, observed: met.observed },
  };
  let effect: EffectRecord;
  if (earlier === null) effect = begin(freshEffect(view, request, terms), { kind: 'admit', lease });
  else {
    const base: EffectRecord = {
      ...earlier,
      ...terms,
      action: request.action,
      stages: request.stages,
      trace: tracedAs(terms.trace, granted, met.beyond),
      metadata: request.metadata ?? earlier.metadata,
      sealed: sealFor(request, earlier, granted),
    };
    const step = advance(base, { kind: 'admit', lease });
    if (step.kind === 'refused') return denial(view, request, 'denied_policy', EXHAUSTED, earlier);
    effect = step.effect;
  }
  const used: ApprovalRecord | null = granted === null ? null : { ...endedApproval(granted, 'used'), stopped: null };
  // Policy no longer asks for approval, so the open request is closed.
  const moot =
    used === null && earlier?.life.state === 'pending_approval'
      ? view.approval(request.workspace, earlier.life.approvalId)
      : null;
  const admitted: Record<string, Json> = {
    attempt: effect.attempt,
    tool: effect.action.tool,
    policy_version: request.seen.policy,
    rules: trace.matched.map((rule) => rule.rule),
  };
  if (used !== null) Object.assign(admitted, approvedAs(used, met.beyond));
  if (met.observed !== null) admitted['observed'] = { would: met.observed.would, rule: met.observed.rule };
  if (trace.shadow.length > 0) admitted['shadow'] = trace.shadow;
  if (trace.entities !== undefined) admitted['entities'] = entitiesToWire(trace.entities);
  const events: LedgerDraft[] = [event('effect.admitted', effect.id, agentOf(request), admitted)];
  events.push(...holdEvents(request, effect.id, met.holds, earlier));
  return {
    reply: {
      kind: 'dispatch',
      effect,
      budgets: met.budgets,
      observed: met.observed,
      ledger: { epoch: view.epoch, seq: view.nextSeq(request.workspace) },
      approval: used,
    },
    effects: [{ record: effect, binding: earlier === null ? 'bind' : 'keep' }],
    approvals: used !== null ? [used] : moot !== null ? [endedApproval(moot, 'expired', view.now)] : [],
    budgets: met.changes,
    ...endOfWindows(request),
    rates: met.rates,
    claims: met.claims,
    usesGone: effect.id,
    uses: met.uses.map((use) => ({ ...use, effectId: effect.id, agentId: request.actor.agentId, until: null })),
    events,
  };
}

/** How the verdict was reached, with what approvers changed of the call, and the limits that they let it go beyond. */
function tracedAs(
  trace: EffectRecord['trace'],
  granted: ApprovalRecord | null,
  beyond: Met['beyond'],
): EffectRecord['trace'] {
  const { changed } = granted ?? {};
  const above = beyond.length === 0 ? trace : { ...trace, beyond };
  return changed === undefined || granted === null
    ? above
    : { ...above, changed: { approvalId: granted.id, params: changed.params } };
}

/** Of the approval of a call: its id, and the limits that it lets the call go beyond. */
function approvedAs({ id }: ApprovalRecord, beyond: Met['beyond']): JsonObject {
  return {
    approval_id: id,
    ...(beyond.length === 0 ? {} : { beyond: beyond.map(({ limit, by }) => ({ limit, by })) }),
  };
}

/**
 * The seal of what runs, or is asked. All attempts share the first one, but for one that approvers changed: that is of
 * their params, and what is asked again is what the agent asks.
 */
function sealFor(
  request: AdmitRequest,
  earlier: EffectRecord,
  granted: ApprovalRecord | null,
): NonNullable<EffectRecord['sealed']> {
  const isOther = granted?.changed !== undefined || earlier.trace.changed !== undefined;
  return isOther ? request.sealed : (earlier.sealed ?? request.sealed);
}

/** What is held from now on, and what of it the effect held before and does not hold twice. */
function holdEvents(
  request: AdmitRequest,
  effectId: string,
  holds: readonly Hold[],
  earlier: EffectRecord | null,
): readonly LedgerDraft[] {
  const before = earlier?.holdState === 'held' ? earlier.holds : [];
  const agent = agentOf(request);
  if (holds.length > 0)
    return [
      event('budget.held', effectId, agent, {
        holds: holdsToWire(holds),
        ...(before.length === 0 ? {} : { taken_over: holdsToWire(before) }),
      }),
    ];
  return before.length === 0 ? [] : [event('budget.voided', effectId, agent, { holds: holdsToWire(before) })];
}

function makeLease(view: StepView, request: AdmitRequest, n: number): Lease {
  const { dispatchWindowMs, timeoutMs, maxProcessingMs } = request.times;
  const dispatchBy = view.now + dispatchWindowMs;
  const leaseEnd = dispatchBy + timeoutMs + 2000;
  return {
    fence: { epoch: view.epoch, n, nonce: request.nonce },
    owner: view.leaseOwner ?? request.owner,
    admittedAt: view.now,
    dispatchBy,
    leaseEnd,
    quiesceUntil: leaseEnd + maxProcessingMs + view.maxFreezeMs,
  };
}

export function askForApproval(
  view: StepView,
  request: AdmitRequest,
  permit: Permit,
  earlier: EffectRecord | null,
  met: Met | null = null,
): Plan<Admission> {
  const renews = earlier?.life.state === 'pending_approval';
  if (!renews && view.pendingApprovals(request.workspace, request.actor.agentId) >= MAX_PENDING) {
    return denial(
      view,
      request,
      'denied_policy',
      {
        code: 'too_many_pending',
        message: `${MAX_PENDING} actions of this agent wait for approval already. Wait until some are decided.`,
      },
      earlier,
    );
  }
  const base = earlier ?? freshEffect(view, request);
  const old =
    earlier?.life.state === 'pending_approval' ? view.approval(request.workspace, earlier.life.approvalId) : null;
  const counted = [...(old?.rates ?? []), ...(met?.rates ?? []).map(({ id, bucket }) => ({ id, bucket }))];
  const approval = newApproval(view, request, permit, base.id, counted);
  const holds = met === null ? base.holds : met.holds;
  const fresh: FreshEffect = {
    ...base,
    action: request.action,
    holds,
    holdState: holds.length === 0 ? 'none' : 'held',
    trace: permit.trace,
    stages: request.stages,
    sealed: earlier === null ? request.sealed : sealFor(request, earlier, null),
  };
  let effect: EffectRecord;
  if (earlier === null) effect = begin(fresh, { kind: 'ask', approvalId: approval.id });
  else {
    const step = advance({ ...fresh, life: earlier.life }, { kind: 'ask', approvalId: approval.id });
    if (step.kind === 'refused') return denial(view, request, 'denied_policy', CLOSED, earlier);
    effect = step.effect;
  }
  const events = [
    event(renews ? 'approval.renewed' : 'approval.requested', effect.id, agentOf(request), {
      approval_id: approval.id,
      rules: permit.approvals.map((requirement) => requirement.rule),
      ...(old === null ? {} : { instead_of: old.id }),
      expires_at: new Date(approval.expiresAt).toISOString(),
      policy_version: request.seen.policy,
      ...beyondOf(permit),
    }),
  ];
  if (met !== null) events.push(...holdEvents(request, effect.id, met.holds, earlier));
  return {
    reply: { kind: 'pending', effect, approval, created: true },
    effects: [{ record: effect, binding: earlier === null ? 'bind' : 'keep' }],
    approvals: old === null ? [approval] : [endedApproval(old, 'expired', view.now), approval],
    budgets: met?.changes ?? [],
    ...endOfWindows(request),
    rates: met?.rates ?? [],
    events,
  };
}

/** The limits that people are asked to let the call go beyond. */
function beyondOf({ approvals }: Permit): JsonObject {
  const limits = approvals.flatMap(({ beyond }) => beyond ?? []);
  return limits.length === 0 ? {} : { beyond: limits };
}

/**
 * Holds belong to the windows at the time of the evaluation, so the plan is valid only until the first of them ends.
 */
function endOfWindows({ verdict }: AdmitRequest): Pick<Plan<unknown>, 'validUntil'> {
  let until = Infinity;
  for (const obligation of verdict.kind === 'permit' ? verdict.obligations : [])
    if (obligation.kind === 'budget' && obligation.window.kind === 'calendar')
      until = Math.min(until, obligation.window.end);
  return until === Infinity ? {} : { validUntil: until };
}

function newApproval(
  view: StepView,
  request: AdmitRequest,
  permit: Permit,
  effectId: string,
  rates: NonNullable<ApprovalRecord['rates']>,
): ApprovalRecord {
  return {
    id: request.approvalId,
    workspace: request.workspace,
    effectId,
    digest: request.approvalDigest,
    tool: request.action.tool,
    target: request.action.target,
    requester: {
      agentId: request.actor.agentId,
      agentOwner: request.actor.agentOwner,
      user: request.actor.user,
      keyId: request.actor.keyId,
      keyMadeBy: request.actor.keyMadeBy,
    },
    requirements: permit.approvals,
    costs: costsOf(permit.obligations),
    votes: [],
    status: 'pending',
    createdAt: view.now,
    expiresAt: Math.min(...permit.approvals.map((one) => expiresAt(one, view.now))),
    decidedAt: null,
    stopped: null,
    ...(rates.length === 0 ? {} : { rates }),
  };
}
