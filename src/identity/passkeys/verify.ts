import { verifyAuthenticationResponse, verifyRegistrationResponse } from '@simplewebauthn/server';
import { decodeAttestationObject, isoBase64URL } from '@simplewebauthn/server/helpers';
import type { Passkey } from '../../effects/model/passkey.ts';
import type { RelyingParty } from './relying-party.ts';

/** What is asked of the thread. All texts of browsers are base64url. */
export type VerifyRequest = { readonly party: RelyingParty; readonly challenge: string } & (
  | {
      readonly kind: 'registration';
      readonly id: string;
      readonly clientData: string;
      readonly attestation: string;
    }
  | {
      readonly kind: 'assertion';
      readonly passkey: Pick<Passkey, 'credential' | 'publicKey' | 'counter'>;
      readonly clientData: string;
      readonly authenticatorData: string;
      readonly signature: string;
    }
);

export type Verified =
  | ({ readonly kind: 'registered' } & Pick<Passkey, 'publicKey' | 'counter' | 'isSynced' | 'isBackedUp'>)
  | ({ readonly kind: 'signed' } & Pick<Passkey, 'counter' | 'isBackedUp'>)
  /** For logs and tests; people are not told more than that it was refused. */
  | { readonly kind: 'refused'; readonly why: string };

/** Checks what an authenticator has signed. Runs in a thread of its own ({@link createVerifier}). */
export async function verify(request: VerifyRequest): Promise<Verified> {
  try {
    return request.kind === 'registration' ? await registered(request) : await signed(request);
  } catch (error) {
    return { kind: 'refused', why: error instanceof Error ? error.message : 'unknown' };
  }
}

const NO_EXTENSIONS = {} as const;
const expected = ({ party, challenge }: VerifyRequest) =>
  ({
    expectedChallenge: challenge,
    expectedOrigin: party.origin,
    expectedRPID: party.id,
    requireUserVerification: true,
  }) as const;

async function registered(request: Extract<VerifyRequest, { kind: 'registration' }>): Promise<Verified> {
  const { id, clientData, attestation } = request;
  // None is asked for. To check the others, the library would ask hosts that a certificate of the caller names.
  const format = decodeAttestationObject(isoBase64URL.toBuffer(attestation)).get('fmt');
  if (format !== 'none') return { kind: 'refused', why: 'an attestation that nobody asked for' };
  const { verified, registrationInfo: info } = await verifyRegistrationResponse({
    ...expected(request),
    response: {
      id,
      rawId: id,
      type: 'public-key',
      clientExtensionResults: NO_EXTENSIONS,
      response: { clientDataJSON: clientData, attestationObject: attestation },
    },
  });
  if (!verified || info === undefined || info.credential.id !== id)
    return { kind: 'refused', why: 'what was signed is another credential' };
  const { publicKey, counter } = info.credential;
  return {
    kind: 'registered',
    publicKey: Buffer.from(publicKey).toString('base64url'),
    counter,
    isSynced: info.credentialDeviceType === 'multiDevice',
    isBackedUp: info.credentialBackedUp,
  };
}

async function signed(request: Extract<VerifyRequest, { kind: 'assertion' }>): Promise<Verified> {
  const { passkey, clientData, authenticatorData, signature } = request;
  const { credential: id, publicKey, counter } = passkey;
  const { verified, authenticationInfo: info } = await verifyAuthenticationResponse({
    ...expected(request),
    credential: { id, publicKey: new Uint8Array(Buffer.from(publicKey, 'base64url')), counter },
    response: {
      id,
      rawId: id,
      type: 'public-key',
      clientExtensionResults: NO_EXTENSIONS,
      response: { clientDataJSON: clientData, authenticatorData, signature },
    },
  });
  if (!verified) return { kind: 'refused', why: 'the signature is wrong' };
  return { kind: 'signed', counter: info.newCounter, isBackedUp: info.credentialBackedUp };
}
