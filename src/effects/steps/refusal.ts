import { entitiesToWire } from '../model/entity.ts';
import type { DeniedDecision, Reason } from '../model/decision.ts';
import type { EffectRecord, Stage } from '../model/effect.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { LedgerActor, LedgerDraft } from '../model/ledger.ts';
import type { FreshEffect } from './lifecycle.ts';
import type { Binding, Plan, StepView } from './plan.ts';
import type { Admission, AdmitRequest, Refusal } from '../store.ts';

/* What an admission writes when it refuses, and helpers for all its answers. */

/** What an admission gives to an effect. */
export type Terms = Pick<EffectRecord, 'holds' | 'holdState' | 'claims' | 'uses' | 'trace'>;

export function freshEffect(view: StepView, request: AdmitRequest, terms: Terms | null = null): FreshEffect {
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
