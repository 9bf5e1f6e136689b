import type { LedgerDraft } from '../effects/model/ledger.ts';

/** The event that says that an operator accepted a clock as right. Times in ms. */
export function timeAccepted({ before, time }: { readonly before: number; readonly time: number }): LedgerDraft {
  return {
    kind: 'store.time_accepted',
    effectId: null,
    actor: { type: 'gateway', id: 'svc store accept-time' },
    data: { before: new Date(before).toISOString(), accepted: new Date(time).toISOString() },
  };
}
