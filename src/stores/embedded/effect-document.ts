import type { EffectAction, EffectActor, EffectRecord, Hold, Life, PoolUse, Stage } from '../../effects/effect.ts';
import type { JsonObject } from '../../effects/json.ts';
import type { VerdictTrace } from '../../effects/verdict.ts';
import type { SqlValue } from './driver.ts';
import { decode } from './document.ts';

/**
 * An effect as two JSON texts without member names: what was asked for, which stays as it is while an attempt runs,
 * and what has become of it. Settling writes only the second, and half of a document was names.
 */
export interface EffectDocument {
  readonly call: string;
  readonly life: string;
}

/** What was asked for. Every member is known to whoever asked. */
export type CallTuple = readonly [
  id: string,
  workspace: string,
  idempotencyKey: string,
  fingerprint: string,
  action: ActionTuple,
  actor: ActorTuple,
  metadata: JsonObject | null,
  sealed: string | null,
];
type ActionTuple = readonly [
  type: string,
  tool: string,
  toolDigest: string,
  upstream: string,
  kind: EffectAction['kind'],
  target: string,
];
type ActorTuple = readonly [
  agentId: string,
  agentOwner: string | null,
  keyId: string,
  keyKind: EffectActor['keyKind'],
  user: string | null,
  keyMadeBy: string | null,
  via: EffectActor['via'],
];
type StageTuple = readonly [Stage['stage'], Stage['status'], number, number | null, string | null];
type HoldTuple = readonly [budget: string, unit: string, bucket: string, window: string, amount: number];
export type LifeTuple = readonly [
  createdAt: number,
  life: Life,
  attempt: number,
  generation: number,
  firstDispatchAt: number | null,
  mayHaveHappened: boolean,
  closed: boolean,
  holds: readonly HoldTuple[],
  holdState: EffectRecord['holdState'],
  claims: readonly string[],
  uses: readonly PoolUse[],
  trace: VerdictTrace,
  stages: readonly StageTuple[],
];

/** The members of a record that its call text carries. */
export type CallPart = Pick<
  EffectRecord,
  'id' | 'workspace' | 'idempotencyKey' | 'fingerprint' | 'action' | 'actor' | 'metadata' | 'sealed'
>;

export function encodeCall({
  id,
  workspace,
  idempotencyKey,
  fingerprint,
  metadata,
  sealed,
  ...rest
}: CallPart): string {
  const { type, tool, toolDigest, upstream, kind, target } = rest.action;
  const { agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via } = rest.actor;
  const tuple: CallTuple = [
    id,
    workspace,
    idempotencyKey,
    fingerprint,
    [type, tool, toolDigest, upstream, kind, target],
    [agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via],
    metadata,
    sealed,
  ];
  return JSON.stringify(tuple);
}

export function encodeLife(record: EffectRecord): string {
  const tuple: LifeTuple = [
    record.createdAt,
    record.life,
    record.attempt,
    record.generation,
    record.firstDispatchAt,
    record.mayHaveHappened,
    record.closed,
    record.holds.map(({ budget, unit, bucket, window, amount }): HoldTuple => [budget, unit, bucket, window, amount]),
    record.holdState,
    record.claims,
    record.uses,
    record.trace,
    record.stages.map(
      ({ stage, status, startedAt, durationMs, detail }): StageTuple => [stage, status, startedAt, durationMs, detail],
    ),
  ];
  return JSON.stringify(tuple);
}

/** Whether two records were asked for alike, so that one call text serves both. */
export function sameCall(a: CallPart, b: CallPart): boolean {
  return a.action === b.action && a.actor === b.actor && a.metadata === b.metadata && a.sealed === b.sealed;
}

export function decodeCall(call: SqlValue | undefined): CallPart {
  return callPart(decode<CallTuple>(call));
}

/** The same for a call text that stood inside another and is parsed already. */
export function callPart(tuple: CallTuple): CallPart {
  const [id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed] = tuple;
  const [type, tool, toolDigest, upstream, kind, target] = action;
  const [agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via] = actor;
  return {
    id,
    workspace,
    idempotencyKey,
    fingerprint,
    action: { type, tool, toolDigest, upstream, kind, target },
    actor: { agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via },
    metadata,
    sealed,
  };
}

/** The record that a life text makes of its call. */
export function decodeEffect(call: CallPart, life: SqlValue | undefined): EffectRecord {
  return withLife(call, decode<LifeTuple>(life));
}

/** The same for a life text that stood inside another and is parsed already. */
export function withLife(call: CallPart, tuple: LifeTuple): EffectRecord {
  const [createdAt, life, attempt, generation, firstDispatchAt, mayHaveHappened, closed, ...rest] = tuple;
  const [holds, holdState, claims, uses, trace, stages] = rest;
  return {
    id: call.id,
    workspace: call.workspace,
    idempotencyKey: call.idempotencyKey,
    fingerprint: call.fingerprint,
    action: call.action,
    actor: call.actor,
    createdAt,
    life,
    attempt,
    generation,
    firstDispatchAt,
    mayHaveHappened,
    closed,
    holds: holds.map(([budget, unit, bucket, window, amount]): Hold => ({ budget, unit, bucket, window, amount })),
    holdState,
    claims,
    uses,
    trace,
    stages: stages.map(
      ([stage, status, startedAt, durationMs, detail]): Stage => ({ stage, status, startedAt, durationMs, detail }),
    ),
    metadata: call.metadata,
    sealed: call.sealed,
  };
}
