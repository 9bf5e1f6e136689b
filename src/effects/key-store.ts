import type { KeyRecord } from './model/key.ts';
import type { LedgerActor } from './model/ledger.ts';

/** API keys, and the master secret that the store is used with. */
export interface KeyStore {
  putKey(key: KeyRecord, actor: LedgerActor): Promise<void>;
  /** Puts a key if there is none at all. @returns whether it did; of several gateways at once, only one does */
  putFirstKey(key: KeyRecord, actor: LedgerActor): Promise<boolean>;
  /** Finds a key by its handle. A key whose record does not fit its seal counts as absent, here and in lists. */
  key(handle: string): Promise<KeyRecord | null>;
  keys(user: string | null): Promise<readonly KeyRecord[]>;
  /**
   * Sets `revokedAt` (now) or, on rotation, `expiresAt` and `replacedBy`. A key that is already revoked or replaced is
   * not replaced: then `replacedBy` of the returned record is not the `by` of this call.
   */
  endKey(
    id: string,
    end: { readonly kind: 'revoked' } | { readonly kind: 'replaced'; readonly by: string; readonly overlapMs: number },
    actor: LedgerActor,
  ): Promise<KeyRecord | null>;
  /** Best effort, at most once a minute for each key. */
  touchKeys(ids: readonly string[], at: number): Promise<void>;
  /** The listener gets the handles whose keys may have changed; `null` means all of them. */
  onKeysChanged(listener: (handles: readonly string[] | null) => void): void;

  /** Whether any key was ever put, whether its record is sound or not. */
  hasKeys(): Promise<boolean>;

  /** The mark of the master secret that the store is used with, see {@link bindSecret}; `null` before the first. */
  secretMark(): Promise<string | null>;
  /**
   * Binds the store to a master secret by a mark derived from it. If the store has no mark yet, or has one of the given
   * marks, it gets the first of them.
   * @returns whether it is bound; a store that belongs to another secret is not changed
   */
  bindSecret(marks: readonly [string, ...string[]]): Promise<boolean>;
}
