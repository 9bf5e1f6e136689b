import type { LedgerActor } from './model/ledger.ts';
import type { Answered, Passkey } from './model/passkey.ts';

/** Passkeys of users. What was changed by something else than a gateway counts as absent. */
export interface PasskeyStore {
  /** In the order in which they were added. */
  passkeys(user: string): Promise<readonly Passkey[]>;
  /** @param id see {@link Passkey.id} */
  passkey(id: string): Promise<Passkey | null>;
  /** Adds a passkey. @returns `taken`: somebody has it already, or the challenge was answered before */
  addPasskey(passkey: Passkey, answered: Answered, actor: LedgerActor): Promise<'added' | 'taken' | 'too_many'>;
  /**
   * Notes that a passkey has signed. Of several gateways at once, one takes a challenge.
   * @returns whether it may count: not where it was removed, where the challenge was answered before, where the counter has
   *   not grown (a copy of the authenticator signs), or where too many challenges were answered in a short time
   */
  usePasskey(
    of: Pick<Passkey, 'id' | 'user'>,
    signed: Pick<Passkey, 'counter' | 'isBackedUp'>,
    answered: Answered,
  ): Promise<boolean>;
  removePasskey(user: string, id: string, actor: LedgerActor): Promise<Passkey | null>;
}
