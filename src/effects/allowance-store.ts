import type { AllowanceRecord } from './model/allowance.ts';
import type { LedgerActor } from './model/ledger.ts';
import type { Page } from './model/page.ts';

/** Allowances are given by votes and used by admissions; here they are listed and ended. */
export interface AllowanceStore {
  /** Newest first, also those that are over, for a day. A page can be short although more follow. */
  allowances(
    workspace: string,
    filter: { readonly agentId: string | null; readonly limit: number; readonly cursor: string | null },
  ): Promise<Page<AllowanceRecord>>;
  allowance(workspace: string, id: string): Promise<AllowanceRecord | null>;
  revokeAllowance(request: {
    readonly workspace: string;
    readonly id: string;
    /** The user who revokes it, or the key where it belongs to none. */
    readonly by: string;
    readonly actor: LedgerActor;
  }): Promise<
    | { readonly kind: 'revoked'; readonly allowance: AllowanceRecord }
    /** It lets nothing in any more: it is used up, its time is over, or somebody ended it. */
    | { readonly kind: 'over'; readonly allowance: AllowanceRecord }
    | { readonly kind: 'absent' }
  >;
}
