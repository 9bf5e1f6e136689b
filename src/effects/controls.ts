import type { KeyKind, Scope } from './principal.ts';

/** An exclusive right of an agent on a target. Active while its time runs, or while an effect extends it. */
export interface ClaimRecord {
  readonly id: string;
  readonly workspace: string;
  readonly target: string;
  readonly agentId: string;
  readonly createdAt: number;
  /** End of the time asked for; `createdAt` for a claim that lives only as long as its call. */
  readonly expiresAt: number;
  /** Effects that run under this claim. */
  readonly runningEffects: readonly string[];
  /** An unknown effect extends the claim to here. */
  readonly extendedUntil: number;
  /** The key that took it last; absent of a claim that a call took for itself, and of records of before. */
  readonly keyId?: string;
}

/** Units of a pool set aside for an agent. */
export interface ReservationRecord {
  readonly id: string;
  readonly workspace: string;
  readonly pool: string;
  readonly agentId: string;
  readonly units: number;
  readonly createdAt: number;
  readonly expiresAt: number;
  /** The key that made it; absent of records of before. */
  readonly keyId?: string;
}

export type PauseScope =
  | { readonly kind: 'workspace' }
  | { readonly kind: 'tool'; readonly glob: string }
  | { readonly kind: 'agent'; readonly id: string }
  | { readonly kind: 'upstream'; readonly id: string }
  | { readonly kind: 'key'; readonly id: string };

/** A stop switch. */
export interface PauseRecord {
  readonly id: string;
  readonly workspace: string;
  readonly scope: PauseScope;
  readonly reason: string;
  /** Key that set it, its kind and user. A pause set by an administrative key is lifted only by one. */
  readonly by: { readonly keyId: string; readonly keyKind: KeyKind; readonly user: string | null };
  readonly createdAt: number;
  readonly until: number | null;
}

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

/** A budget row as it stands. */
export interface BudgetRow {
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  readonly window: string;
  readonly limit: number;
  readonly spent: number;
  readonly held: number;
  /** End of a calendar window; `null` for rolling ones. */
  readonly resetsAt: number | null;
}
