import type { EffectAction, EffectActor, EffectRecord, Hold, Life, PoolUse, Stage } from '../../effects/effect.ts';
import type { JsonObject } from '../../effects/json.ts';
import type { VerdictTrace } from '../../effects/verdict.ts';
import type { SqlValue } from './driver.ts';
import { decode } from './document.ts';

/**
 * An effect as JSON texts without member names (they were half of a document): what was asked for, on what terms it
 * was admitted, and what has become of it. Settling writes only the last.
 */
export interface EffectDocument {
  readonly call: string;
  readonly terms: string;
  readonly life: string;
}

/** What was asked for. Every member is known to whoever asked. */
type CallTuple = readonly [
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
export type StageTuple = readonly [Stage['stage'], Stage['status'], number, number | null, string | null];
type HoldTuple = readonly [budget: string, unit: string, bucket: string, window: string, amount: number];
type LifeTuple = readonly [
  createdAt: number,
  life: Life,
  attempt: number,
  generation: number,
  firstDispatchAt: number | null,
  mayHaveHappened: boolean,
  closed: boolean,
  holdState: EffectRecord['holdState'],
  claims: readonly string[],
  uses: readonly PoolUse[],
  stages: readonly StageTuple[],
];
/** On what terms: these too stay while the attempt runs, but the admission makes them. */
type TermsTuple = readonly [trace: VerdictTrace, holds: readonly HoldTuple[]];

/** The members of a record that its call text carries. */
export type CallPart = Pick<
  EffectRecord,
  'id' | 'workspace' | 'idempotencyKey' | 'fingerprint' | 'action' | 'actor' | 'metadata' | 'sealed'
>;

/** The members of a record that its terms text carries. */
type TermsPart = Pick<EffectRecord, 'trace' | 'holds'>;

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
    record.holdState,
    record.claims,
    record.uses,
    record.stages.map(stageTuple),
  ];
  return JSON.stringify(tuple);
}

export function stageTuple({ stage, status, startedAt, durationMs, detail }: Stage): StageTuple {
  return [stage, status, startedAt, durationMs, detail];
}

export function stageOf([stage, status, startedAt, durationMs, detail]: StageTuple): Stage {
  return { stage, status, startedAt, durationMs, detail };
}

export function encodeTerms({ trace, holds }: TermsPart): string {
  const tuple: TermsTuple = [
    trace,
    holds.map(({ budget, unit, bucket, window, amount }): HoldTuple => [budget, unit, bucket, window, amount]),
  ];
  return JSON.stringify(tuple);
}

type CallMembers = Pick<CallPart, 'action' | 'actor' | 'metadata' | 'sealed'>;

/** Whether two records were asked for alike, so that one call text serves both. */
export function sameCall(a: CallMembers, b: CallMembers): boolean {
  return a.action === b.action && a.actor === b.actor && a.metadata === b.metadata && a.sealed === b.sealed;
}

export function decodeCall(call: SqlValue | undefined): CallPart {
  const [id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed] = decode<CallTuple>(call);
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

/** The record that three texts make. */
export function decodeEffect(row: { readonly [column in 'call' | 'terms' | 'life']?: SqlValue }): EffectRecord {
  return withLife(decodeCall(row.call), termsPart(decode<TermsTuple>(row.terms)), decode<LifeTuple>(row.life));
}

function termsPart([trace, holds]: TermsTuple): TermsPart {
  return {
    trace,
    holds: holds.map(([budget, unit, bucket, window, amount]): Hold => ({ budget, unit, bucket, window, amount })),
  };
}

function withLife(call: CallPart, terms: TermsPart, tuple: LifeTuple): EffectRecord {
  const [createdAt, life, attempt, generation, firstDispatchAt, mayHaveHappened, closed, ...rest] = tuple;
  const [holdState, claims, uses, stages] = rest;
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
    holds: terms.holds,
    holdState,
    claims,
    uses,
    trace: terms.trace,
    stages: stages.map(stageOf),
    metadata: call.metadata,
    sealed: call.sealed,
  };
}
