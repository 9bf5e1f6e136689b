import type { KeyKind, Scope } from './principal.ts';

/** The stored form of a key: everything but the secret. */
export interface KeyRecord {
  /** `key_` and the handle. */
  readonly id: string;
  /** The 12 characters of the key that are not secret. */
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

/**
 * Seals for records of keys. Somebody who can only write to the store can neither make such a record nor change one.
 */
export interface KeySeals {
  /** A seal that is valid for this record only. `lastUsedAt` may change. */
  seal(key: KeyRecord): string;
  /**
   * Whether a record is unchanged since it was sealed. A changed record counts as absent.
   * @param seal `undefined` where the record has none
   */
  fits(key: KeyRecord, seal: string | undefined): boolean;
  /** The same for another row: an agent, a user, the pauses of a workspace. `row`: which one it is. */
  sealRow(row: string, text: string): string;
  fitsRow(row: string, text: string, seal: string | undefined): boolean;
}

/** How callers send their key. */
export interface KeyCarriers {
  /** Headers whose whole value is the key, in lower case. */
  readonly headers: readonly string[];
  /** Schemes of `Authorization`. */
  readonly schemes: readonly ('bearer' | 'token' | 'basic')[];
  readonly query: readonly string[];
}

/** What a key made from the profile may do. */
export interface KeyProfile {
  readonly name: string;
  readonly description: string;
  readonly scopes: readonly Scope[];
  /** Tools that the key may call or see; `null` for no limit. */
  readonly allowedTools: readonly string[] | null;
  readonly readOnly: boolean;
}
