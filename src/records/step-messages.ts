import type { EffectRecord, Hold, Lease, PoolUse } from '../effects/model/effect.ts';
import type { BudgetRow } from '../effects/model/budget.ts';
import type { Observed } from '../effects/model/verdict.ts';
import type { Admission, AdmitRequest, Settlement, SettleRequest } from '../effects/store.ts';
import { readOwnJson } from '../json/read.ts';
import { stageTuples, type StageTuple, stagesOf } from './effect-text.ts';

/*
 * The two steps of every call, as they cross to the store's thread and back: members without names, and nothing that the
 * other side has already. The other steps cross as plain JSON.
 */

type AdmitTuple = readonly [
  workspace: string,
  effectId: string,
  approvalId: string,
  idempotencyKey: string,
  generationMs: number | null,
  fingerprint: string,
  action: readonly [string, string, string, string, AdmitRequest['action']['kind'], string],
  actor: readonly [
    agentId: string,
    agentOwner: string | null,
    keyId: string,
    keyKind: AdmitRequest['actor']['keyKind'],
    user: string | null,
    keyMadeBy: string | null,
    via: AdmitRequest['actor']['via'],
  ],
  verdict: AdmitRequest['verdict'],
  approvalDigest: string,
  dispatches: string | null,
  pausedBy: AdmitRequest['pausedBy'],
  policy: string,
  pauses: number,
  times: readonly [number, number, number, number | null],
  owner: string,
  nonce: string,
  claimId: string | null,
  reservationId: string | null,
  metadata: AdmitRequest['metadata'],
  sealed: string,
  stages: readonly StageTuple[],
];

export function writeAdmit(request: AdmitRequest): string {
  const { action, actor, verdict, seen, times } = request;
  const asks = verdict.kind === 'permit' && verdict.approvals.length > 0;
  const tuple: AdmitTuple = [
    request.workspace,
    request.effectId,
    // It is made where it is first asked for, and most calls never do.
    asks ? request.approvalId : '',
    request.idempotencyKey,
    request.generationMs,
    request.fingerprint,
    [action.type, action.tool, action.toolDigest, action.upstream, action.kind, action.target],
    [actor.agentId, actor.agentOwner, actor.keyId, actor.keyKind, actor.user, actor.keyMadeBy, actor.via],
    verdict,
    request.approvalDigest,
    request.dispatches,
    request.pausedBy,
    seen.policy,
    seen.pauses,
    [times.dispatchWindowMs, times.timeoutMs, times.maxProcessingMs, times.idempotentForMs],
    request.owner,
    request.nonce,
    request.claimId,
    request.reservationId,
    request.metadata,
    request.sealed,
    stageTuples(request.stages),
  ];
  return JSON.stringify(tuple);
}

export function readAdmit(text: string): AdmitRequest {
  const [workspace, effectId, approvalId, idempotencyKey, generationMs, fingerprint, action, actor, verdict, ...rest] =
    readOwnJson<AdmitTuple>(text);
  const [approvalDigest, dispatches, pausedBy, policy, pauses, times, owner, nonce, claimId, ...last] = rest;
  const [reservationId, metadata, sealed, stages] = last;
  const [type, tool, toolDigest, upstream, kind, target] = action;
  const [agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via] = actor;
  const [dispatchWindowMs, timeoutMs, maxProcessingMs, idempotentForMs] = times;
  return {
    workspace,
    effectId,
    approvalId,
    idempotencyKey,
    generationMs,
    fingerprint,
    action: { type, tool, toolDigest, upstream, kind, target },
    actor: { agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via },
    verdict,
    approvalDigest,
    dispatches,
    pausedBy,
    seen: { policy, pauses },
    times: { dispatchWindowMs, timeoutMs, maxProcessingMs, idempotentForMs },
    owner,
    nonce,
    claimId,
    reservationId,
    metadata,
    sealed,
    stages: stagesOf(stages),
  };
}

/** What an admission adds to its request, where it makes a new effect of it that runs at once. */
type GrantTuple = readonly [
  idempotencyKey: string,
  lease: readonly [epoch: number, n: number, owner: string, number, number, number, number],
  holds: readonly Hold[],
  claims: readonly string[],
  uses: readonly PoolUse[],
  budgets: readonly BudgetRow[],
  observed: Observed | null,
  traced: Observed | null,
  ledger: readonly [epoch: number, seq: number],
];

const GRANT = '+';

export function writeAdmission(admission: Admission, request: AdmitRequest): string {
  if (admission.kind !== 'dispatch' || admission.approval !== null) return JSON.stringify(admission);
  const { effect, budgets, observed, ledger } = admission;
  const { life } = effect;
  if (life.state !== 'executing' || effect.id !== request.effectId || effect.attempt !== 1)
    return JSON.stringify(admission);
  const { fence, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil } = life.lease;
  const tuple: GrantTuple = [
    effect.idempotencyKey,
    [fence.epoch, fence.n, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil],
    effect.holds,
    effect.claims,
    effect.uses,
    budgets,
    observed,
    effect.trace.observed,
    [ledger.epoch, ledger.seq],
  ];
  return `${GRANT}${JSON.stringify(tuple)}`;
}

export function readAdmission(text: string, request: AdmitRequest): Admission {
  if (!text.startsWith(GRANT)) return readOwnJson<Admission>(text);
  const [idempotencyKey, times, holds, claims, uses, budgets, observed, traced, [epoch, seq]] = readOwnJson<GrantTuple>(
    text.slice(GRANT.length),
  );
  const [fenceEpoch, n, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil] = times;
  const fence = { epoch: fenceEpoch, n, nonce: request.nonce };
  const lease: Lease = { fence, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil };
  const { trace } = request.verdict;
  const effect: EffectRecord = {
    id: request.effectId,
    workspace: request.workspace,
    idempotencyKey,
    fingerprint: request.fingerprint,
    action: request.action,
    actor: request.actor,
    createdAt: admittedAt,
    life: { state: 'executing', lease },
    attempt: n,
    unsent: 0,
    generation: 1,
    firstDispatchAt: admittedAt,
    mayHaveHappened: false,
    closed: false,
    holds,
    holdState: holds.length === 0 ? 'none' : 'held',
    claims,
    uses,
    trace: traced === null && trace.observed === null ? trace : { ...trace, observed: traced },
    stages: request.stages,
    metadata: request.metadata,
    sealed: request.sealed,
  };
  return { kind: 'dispatch', effect, budgets, observed, ledger: { epoch, seq }, approval: null };
}

type SettleTuple = readonly [
  workspace: string,
  effectId: string,
  fence: readonly [epoch: number, n: number, nonce: string],
  outcome: SettleRequest['outcome'],
  settledBy: SettleRequest['settledBy'],
  evidence: SettleRequest['evidence'],
  stages: readonly StageTuple[],
];

export function writeSettle({
  workspace,
  effectId,
  fence,
  outcome,
  settledBy,
  evidence,
  stages,
}: SettleRequest): string {
  const { epoch, n, nonce } = fence;
  const tuple: SettleTuple = [
    workspace,
    effectId,
    [epoch, n, nonce],
    outcome,
    settledBy,
    evidence,
    stageTuples(stages),
  ];
  return JSON.stringify(tuple);
}

export function readSettle(text: string): SettleRequest {
  const [workspace, effectId, [epoch, n, nonce], outcome, settledBy, evidence, stages] = readOwnJson<SettleTuple>(text);
  return { workspace, effectId, fence: { epoch, n, nonce }, outcome, settledBy, evidence, stages: stagesOf(stages) };
}

const SETTLED = '.';
const SETTLED_REPLY: Settlement = { kind: 'settled' };

export function writeSettlement(settlement: Settlement): string {
  return settlement.kind === 'settled' ? SETTLED : JSON.stringify(settlement);
}

export function readSettlement(text: string): Settlement {
  return text === SETTLED ? SETTLED_REPLY : readOwnJson<Settlement>(text);
}
