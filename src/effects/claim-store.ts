import type { ClaimRecord } from './model/claim.ts';
import type { LedgerActor } from './model/ledger.ts';

/** The claim, or what is in the way. */
export type ClaimResult =
  | { readonly kind: 'made'; readonly claim: ClaimRecord }
  | { readonly kind: 'held'; readonly claim: ClaimRecord }
  | { readonly kind: 'too_many'; readonly of: 'agent' | 'key'; readonly limit: number };

/** Claims: what an agent has for itself, for a time. */
export interface ClaimStore {
  /** `ttlMs` counts from the store's `now`. */
  takeClaim(request: {
    readonly id: string;
    readonly workspace: string;
    readonly target: string;
    readonly agentId: string;
    readonly keyId: string;
    readonly ttlMs: number;
    readonly actor: LedgerActor;
  }): Promise<ClaimResult>;
  renewClaim(workspace: string, id: string, ttlMs: number, actor: LedgerActor): Promise<ClaimRecord | null>;
  releaseClaim(workspace: string, id: string, actor: LedgerActor): Promise<ClaimRecord | null>;
  claim(workspace: string, id: string): Promise<ClaimRecord | null>;
  claims(workspace: string): Promise<readonly ClaimRecord[]>;
}
