import type { KeyKind, Scope } from './principal.ts';

/** A key as it is stored: everything but the secret. */
export interface KeyRecord {
  /** `key_` and the handle. */
  readonly id: string;
  /** The 12 characters of the key that stand in the clear. */
  readonly handle: string;
  /** HMAC-SHA-256 of the whole key under the pepper, base64url. */
  readonly hash: string;
  readonly kind: KeyKind;
  readonly name: string;
  readonly user: string | null;
  readonly madeBy: string | null;
  readonly workspace: string | null;
  readonly agentId: string | null;
  readonly profile: string | null;
  readonly scopes: readonly Scope[];
  readonly allowedTools: readonly string[] | null;
  readonly readOnly: boolean;
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly lastUsedAt: number | null;
  readonly replacedBy: string | null;
}

/** Vouches for records of keys: who can only write to the store can neither make one nor change it. */
export interface KeySeals {
  /** A text that fits this record, whenever it was last used, and no other. */
  seal(key: KeyRecord): string;
  /**
   * Whether a record is as it was sealed. One that is not counts as absent.
   * @param seal `undefined` where the record has none
   */
  fits(key: KeyRecord, seal: string | undefined): boolean;
}
