import type { EffectState } from '../model/effect.ts';
import type { LedgerDraft, LedgerEvent, LedgerKind } from '../model/ledger.ts';

/**
 * The state of an effect after each event of the ledger; `null`: the event leaves it as it is. The steps write by this
 * table, and fsck reads by it. Where a step leads to another state, its event says so ({@link recordedAs}).
 */
const STATES: Readonly<Record<LedgerKind, EffectState | null>> = {
  'effect.denied': 'denied',
  'effect.admitted': 'executing',
  'effect.duplicate_blocked': null,
  'effect.probed': null,
  'effect.reconciled': 'failed',
  'effect.resolved': 'failed',
  'effect.erased': null,
  'effect.contradiction': null,
  'effect.conflict': 'denied',
  'approval.requested': 'pending_approval',
  'approval.granted': null,
  'approval.rejected': 'rejected',
  'approval.expired': 'denied',
  'approval.renewed': 'pending_approval',
  'approval.escalated': null,
  'allowance.given': null,
  'allowance.used': null,
  'allowance.revoked': null,
  'state.verified': null,
  'state.drifted': null,
  'execution.started': null,
  'execution.succeeded': 'committed',
  'execution.failed': 'failed',
  'execution.lost': 'unknown',
  'budget.held': null,
  'budget.posted': null,
  'budget.voided': null,
  'budget.overdraft': null,
  'budget.reset': null,
  'receipt.issued': null,
  'read.batch': null,
  'key.created': null,
  'key.revoked': null,
  'key.rotated': null,
  'passkey.added': null,
  'passkey.removed': null,
  'user.added': null,
  'user.removed': null,
  'user.roles_changed': null,
  'workspace.created': null,
  'agent.registered': null,
  'policy.loaded': null,
  'policy.activated': null,
  'policy.rolled_back': null,
  'policy.rejected': null,
  'policy.proposed': null,
  'policy.confirmed': null,
  'policy.withdrawn': null,
  'store.loss_accepted': null,
  'store.restored': null,
  'store.time_accepted': null,
  'archive.segment': null,
  'gateway.declared_lost': null,
  'pause.set': null,
  'pause.lifted': null,
  'claim.taken': null,
  'claim.renewed': null,
  'claim.released': null,
  'reservation.made': null,
  'reservation.released': null,
  'brain.entities_put': null,
  'brain.entities_removed': null,
};

/** What the event of an outcome says of the state that it leads to, where the table has another. */
export function recordedAs(kind: LedgerDraft['kind'], state: EffectState): { readonly recorded_as?: EffectState } {
  return STATES[kind] === state ? {} : { recorded_as: state };
}

/** The state of an effect after an event; `before`: `null` where it has none yet. */
export function stateAfter(
  before: EffectState | null,
  { kind, data }: Pick<LedgerEvent, 'kind' | 'data'>,
): EffectState | null {
  const { attempt, outcome, recorded_as: recorded } = data;
  // A call that was refused at admission leaves what its key is bound to as it is.
  if (kind === 'effect.denied' && attempt === undefined && before !== null) return before;
  if ((kind === 'effect.resolved' || kind === 'effect.reconciled') && outcome === 'happened') return 'committed';
  if (recorded === 'unknown' || recorded === 'failed' || recorded === 'committed') return recorded;
  return STATES[kind] ?? before;
}
