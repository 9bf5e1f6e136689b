import type { LedgerActor, LedgerDraft } from './ledger.ts';

/** A passkey of a user (a WebAuthn credential): what is needed to check what it signs. */
export interface Passkey {
  /** `psk_` and a digest of the credential's own id. */
  readonly id: string;
  /** The credential's own id, base64url. */
  readonly credential: string;
  /** COSE key, base64url. */
  readonly publicKey: string;
  /** How often the authenticator has signed, where it counts; then it only grows. */
  readonly counter: number;
  /** How browsers reach the authenticator. */
  readonly transports: readonly string[];
  /** Whether it can be on several devices, and whether it is kept outside of one now, as the authenticator says. */
  readonly isSynced: boolean;
  readonly isBackedUp: boolean;
  readonly name: string;
  readonly user: string;
  /** The key that whoever added it had shown. Who signs in with the passkey may do what that key may. */
  readonly keyId: string;
  /** Of that key; `null` where it belongs to none. */
  readonly workspace: string | null;
  readonly createdAt: number;
  readonly lastUsedAt: number | null;
}

/** A challenge that was answered. It is remembered until it would not be taken any more. */
export interface Answered {
  readonly challenge: string;
  /** ms, by the store's clock. */
  readonly until: number;
}

/** A user has at most so many. */
export const MOST_PASSKEYS = 10;

export function passkeyAdded({ id, name, user, keyId, isSynced }: Passkey, actor: LedgerActor): LedgerDraft {
  const data = { passkey_id: id, name, user, key_id: keyId, synced: isSynced };
  return { kind: 'passkey.added', effectId: null, actor, data };
}

/** The ledger event for one that is no longer good. */
export function passkeyRemoved({ id, user, keyId }: Passkey, actor: LedgerActor): LedgerDraft {
  return { kind: 'passkey.removed', effectId: null, actor, data: { passkey_id: id, user, key_id: keyId } };
}
