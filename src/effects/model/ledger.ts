import type { JsonObject } from '../../json/value.ts';

export const LEDGER_KINDS = [
  'effect.denied',
  'effect.admitted',
  'effect.duplicate_blocked',
  'effect.probed',
  'effect.reconciled',
  'effect.resolved',
  'effect.erased',
  'effect.contradiction',
  'effect.conflict',
  'approval.requested',
  'approval.granted',
  'approval.rejected',
  'approval.expired',
  'approval.renewed',
  'approval.escalated',
  'allowance.given',
  'allowance.used',
  'allowance.revoked',
  'state.verified',
  'state.drifted',
  'execution.started',
  'execution.succeeded',
  'execution.failed',
  'execution.lost',
  'budget.held',
  'budget.posted',
  'budget.voided',
  'budget.overdraft',
  'budget.reset',
  'receipt.issued',
  'read.batch',
  'key.created',
  'key.revoked',
  'key.rotated',
  'passkey.added',
  'passkey.removed',
  'user.added',
  'user.removed',
  'user.roles_changed',
  'workspace.created',
  'agent.registered',
  'policy.loaded',
  'policy.activated',
  'policy.rolled_back',
  'policy.rejected',
  'policy.proposed',
  'policy.confirmed',
  'policy.withdrawn',
  'store.loss_accepted',
  'store.restored',
  'store.time_accepted',
  'archive.segment',
  'gateway.declared_lost',
  'pause.set',
  'pause.lifted',
  'claim.taken',
  'claim.renewed',
  'claim.released',
  'reservation.made',
  'reservation.released',
  'brain.entities_put',
  'brain.entities_removed',
] as const;

export type LedgerKind = (typeof LEDGER_KINDS)[number];

/** What stands before the dot: all kinds about one thing. */
export const LEDGER_GROUPS = [
  'effect',
  'approval',
  'allowance',
  'state',
  'execution',
  'budget',
  'receipt',
  'read',
  'key',
  'passkey',
  'user',
  'workspace',
  'agent',
  'policy',
  'store',
  'archive',
  'gateway',
  'pause',
  'claim',
  'reservation',
  'brain',
] as const satisfies readonly GroupOf<LedgerKind>[];

type GroupOf<Kind extends LedgerKind> = Kind extends `${infer Group}.${string}` ? Group : never;

/**
 * The ledger for everything outside workspaces: administrative keys, the files in force, refusals of keys without a
 * workspace.
 */
export const INSTALLATION = '';

export interface LedgerActor {
  readonly type: 'agent' | 'user' | 'key' | 'gateway';
  readonly id: string;
}

/** An event before the store gives it a number, an id and a time. */
export interface LedgerDraft {
  readonly kind: LedgerKind;
  readonly effectId: string | null;
  readonly actor: LedgerActor;
  readonly data: JsonObject;
}

/** An event of the append-only ledger. `seq` has no gaps within a workspace and an epoch. */
export interface LedgerEvent extends LedgerDraft {
  readonly seq: number;
  readonly id: string;
  /** ms since the epoch by the store's clock. */
  readonly at: number;
}

/** Which events of the ledger: those that fit all that is given. */
export interface LedgerFilter {
  /** A kind, or the kinds of a group: what stands before the dot. */
  readonly kind?: LedgerKind | (typeof LEDGER_GROUPS)[number] | undefined;
  readonly effectId?: string | undefined;
  /** The id of who caused the event. */
  readonly actor?: string | undefined;
  /** Of the event, or of the effect that it is about. */
  readonly agentId?: string | undefined;
  readonly tool?: string | undefined;
  readonly target?: string | undefined;
  readonly rule?: string | undefined;
  /** Who acted, whom it is about, or whose key made the call. */
  readonly user?: string | undefined;
  readonly keyId?: string | undefined;
  /** ms, inclusive. */
  readonly since: number | null;
  /** ms, exclusive. */
  readonly until: number | null;
  readonly limit: number;
  readonly cursor: string | null;
}

export function ledgerEventToWire(event: LedgerEvent) {
  const recordedAt = new Date(event.at).toISOString();
  // The start is put on record only when the attempt has ended.
  const { at: startedAt } = event.data;
  const began = event.kind === 'execution.started' && typeof startedAt === 'string' ? startedAt : undefined;
  return {
    seq: event.seq,
    id: event.id,
    at: began ?? recordedAt,
    ...(began === undefined ? {} : { recorded_at: recordedAt }),
    kind: event.kind,
    effect_id: event.effectId,
    actor: { type: event.actor.type, id: event.actor.id },
    data: event.data,
  };
}
