import type { EffectState } from '../model/effect.ts';
import type { LedgerDraft, LedgerEvent, LedgerKind } from '../model/ledger.ts';

/**
 * The state of an effect after events of the ledger; all others leave it as it is. The steps write by this table, and fsck
 * reads by it. Where a step leads to another state, its event says so ({@link recordedAs}).
 */
const STATES: Readonly<Partial<Record<LedgerKind, EffectState>>> = {
  'effect.denied': 'denied',
  'effect.admitted': 'executing',
  'effect.reconciled': 'failed',
  'effect.resolved': 'failed',
  'effect.conflict': 'denied',
  'approval.requested': 'pending_approval',
  'approval.rejected': 'rejected',
  'approval.expired': 'denied',
  'approval.renewed': 'pending_approval',
  'execution.succeeded': 'committed',
  'execution.failed': 'failed',
  'execution.lost': 'unknown',
};

/** What the event of an outcome says of the state that it leads to, where the table has another. */
export function recordedAs(kind: LedgerDraft['kind'], state: EffectState): { readonly recorded_as?: EffectState } {
  return STATES[kind] === state ? {} : { recorded_as: state };
}

/** The state of an effect after an event; `before`: `null` where it has none yet. */
export function stateAfter(before: EffectState | null, { kind, data }: LedgerEvent): EffectState | null {
  const { attempt, outcome, recorded_as: recorded } = data;
  // A call that was refused at admission leaves what its key is bound to as it is.
  if (kind === 'effect.denied' && attempt === undefined && before !== null) return before;
  if ((kind === 'effect.resolved' || kind === 'effect.reconciled') && outcome === 'happened') return 'committed';
  if (recorded === 'unknown' || recorded === 'failed' || recorded === 'committed') return recorded;
  return STATES[kind] ?? before;
}
