import { createHash, randomBytes } from 'node:crypto';
import type { LedgerActor } from '../../effects/model/ledger.ts';
import type { Answered, Passkey } from '../../effects/model/passkey.ts';
import type { EffectStore } from '../../effects/store.ts';
import { parseObject } from '../../json/text.ts';
import { type Assertion, type NewCredential, transportsOf } from './credentials.ts';
import type { RelyingParty } from './relying-party.ts';
import type { PasskeyVerifier } from './verifier.ts';

/** How long a challenge can be answered, ms. */
const CHALLENGE_MS = 5 * 60_000;

/** A challenge that was made here, and what proves that. */
export interface Challenge {
  /** Sealed; the browser sends it back. Nothing is kept until it is answered. */
  readonly ceremony: string;
  readonly challenge: string;
}

/** Seals texts for browsers; the vault has it. */
interface TextSeals {
  sealText(text: string, bound: CeremonyBinding): string;
  openText(sealed: string, bound: CeremonyBinding): string | null;
}
interface CeremonyBinding {
  readonly what: 'console';
  readonly workspace: '';
  readonly of: string;
  readonly part: 0;
}

/** What a challenge is for: one for something else is none. */
type Purpose = 'add' | 'enter' | 'approve';

/** Passkeys of people: challenges, and what browsers answer. */
export interface Passkeys {
  /** @param of whom the challenge is for: nobody else can answer it */
  challenge(purpose: Purpose, of: string): Challenge;
  /** What authenticators know a user by: it says nothing of the user. */
  handleOf(user: string): string;
  /** Adds a passkey, if a browser has made it for this challenge, within five minutes. */
  add(
    made: {
      readonly party: RelyingParty;
      readonly ceremony: string;
      readonly of: string;
      readonly credential: NewCredential;
    },
    owner: Pick<Passkey, 'user' | 'keyId' | 'workspace' | 'name'>,
    actor: LedgerActor,
  ): Promise<
    | { readonly kind: 'added'; readonly passkey: Passkey }
    | { readonly kind: 'refused' | 'taken' | 'too_many'; readonly why: string }
  >;
  /**
   * The passkey that has signed a challenge, at most once for each challenge; `null` where none of ours has.
   * @throws StoreUnavailable
   */
  signed(by: {
    readonly party: RelyingParty;
    readonly purpose: Purpose;
    readonly of: string;
    readonly ceremony: string;
    readonly assertion: Assertion;
  }): Promise<Passkey | null>;
}

/** The id of a passkey, which says nothing of its owner. */
function passkeyId(credential: string): string {
  return `psk_${digest(credential).slice(0, 22)}`;
}

export function createPasskeys(parts: {
  readonly store: Pick<EffectStore, 'addPasskey' | 'passkey' | 'usePasskey' | 'now'>;
  readonly seals: TextSeals;
  readonly verifier: Pick<PasskeyVerifier, 'verify'>;
}): Passkeys {
  const { store, seals, verifier } = parts;

  /** The challenge of a ceremony that began here, for this purpose and person, and not too long ago. */
  function opened(purpose: Purpose, of: string, ceremony: string): Answered | null {
    const text = seals.openText(ceremony, bindingOf(purpose, of));
    const { until } = (text === null ? null : parseObject(text)) ?? {};
    if (typeof until !== 'number' || until <= store.now()) return null;
    return { challenge: digest(ceremony), until };
  }

  return {
    challenge(purpose, of) {
      const text = JSON.stringify({ nonce: randomBytes(16).toString('base64url'), until: store.now() + CHALLENGE_MS });
      const ceremony = seals.sealText(text, bindingOf(purpose, of));
      return { ceremony, challenge: digest(ceremony) };
    },
    handleOf: (user) => digest(`user ${user}`),
    async add({ party, ceremony, of, credential }, owner, actor) {
      const answered = opened('add', of, ceremony);
      if (answered === null) return { kind: 'refused', why: 'the challenge is not of this session, or too old' };
      const { id, response } = credential;
      const verified = await verifier.verify({
        kind: 'registration',
        party,
        challenge: answered.challenge,
        id,
        clientData: response.clientDataJSON,
        attestation: response.attestationObject,
      });
      if (verified.kind !== 'registered')
        return { kind: 'refused', why: verified.kind === 'refused' ? verified.why : 'no registration' };
      const { publicKey, counter, isSynced, isBackedUp } = verified;
      const passkey: Passkey = {
        id: passkeyId(id),
        credential: id,
        publicKey,
        counter,
        transports: transportsOf(credential),
        isSynced,
        isBackedUp,
        ...owner,
        createdAt: store.now(),
        lastUsedAt: null,
      };
      const kind = await store.addPasskey(passkey, answered, actor);
      return kind === 'added' ? { kind, passkey } : { kind, why: kind };
    },
    async signed({ party, purpose, of, ceremony, assertion: { id, response } }) {
      const answered = opened(purpose, of, ceremony);
      const passkey = answered === null ? null : await store.passkey(passkeyId(id));
      if (answered === null || passkey === null) return null;
      const verified = await verifier.verify({
        kind: 'assertion',
        party,
        challenge: answered.challenge,
        passkey,
        clientData: response.clientDataJSON,
        authenticatorData: response.authenticatorData,
        signature: response.signature,
      });
      return verified.kind === 'signed' && (await store.usePasskey(passkey, verified, answered)) ? passkey : null;
    },
  };
}

function bindingOf(purpose: Purpose, of: string): CeremonyBinding {
  return { what: 'console', workspace: '', of: `passkey ${purpose} ${of}`, part: 0 };
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}
