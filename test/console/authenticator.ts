import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';

/** What the authenticator puts in, other than a real one would. */
export interface Signed {
  readonly challenge: string;
  readonly origin?: string;
  readonly rpId?: string;
  readonly counter?: number;
  /** Whether it asked for finger, face or PIN. */
  readonly isVerified?: boolean;
  /** Whether its credentials may be on several devices, and this one is. */
  readonly isSynced?: boolean;
  readonly isBackedUp?: boolean;
}

const ORIGIN = 'http://localhost:8080';
const sha256 = (of: string | Buffer): Buffer => createHash('sha256').update(of).digest();

/** The head of a CBOR item, and a text or bytes as one. */
function head(major: number, length: number): Buffer {
  if (length < 24) return Buffer.from([(major << 5) | length]);
  return length < 256
    ? Buffer.from([(major << 5) | 24, length])
    : Buffer.from([(major << 5) | 25, length >> 8, length & 255]);
}
const text = (of: string): Buffer => Buffer.concat([head(3, Buffer.byteLength(of)), Buffer.from(of)]);
const bytes = (of: Buffer): Buffer => Buffer.concat([head(2, of.length), of]);

/** An authenticator in software, with one credential, which signs whatever a test wants. */
export function createAuthenticator() {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const credential = randomBytes(32);
  const id = credential.toString('base64url');
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
  const cose = Buffer.concat([
    Buffer.from([0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21]),
    bytes(Buffer.from(x, 'base64url')),
    Buffer.from([0x22]),
    bytes(Buffer.from(y, 'base64url')),
  ]);

  const clientData = (type: string, { challenge, origin = ORIGIN }: Signed): Buffer =>
    Buffer.from(JSON.stringify({ type, challenge, origin, crossOrigin: false }));

  function authenticatorData(signed: Signed, more: Buffer): Buffer {
    const { rpId = 'localhost', counter = 0, isVerified = true, isSynced = false, isBackedUp = false } = signed;
    const synced = (isSynced ? 0x08 : 0) | (isBackedUp ? 0x10 : 0);
    const flags = 0x01 | (isVerified ? 0x04 : 0) | synced | (more.length > 0 ? 0x40 : 0);
    const count = Buffer.alloc(4);
    count.writeUInt32BE(counter);
    return Buffer.concat([sha256(rpId), Buffer.from([flags]), count, more]);
  }

  return {
    id,
    /** A new credential, as a browser writes it down. */
    make(signed: Signed, format = 'none') {
      const attested = Buffer.concat([Buffer.alloc(16), Buffer.from([0, credential.length]), credential, cose]);
      const attestation = Buffer.concat([
        head(5, 3),
        text('fmt'),
        text(format),
        text('attStmt'),
        head(5, 0),
        text('authData'),
        bytes(authenticatorData(signed, attested)),
      ]);
      return {
        id,
        response: {
          clientDataJSON: clientData('webauthn.create', signed).toString('base64url'),
          attestationObject: attestation.toString('base64url'),
          transports: ['internal', 'telepathy'],
        },
      };
    },
    /** An assertion, as a browser writes it down. */
    get(signed: Signed) {
      const data = authenticatorData(signed, Buffer.alloc(0));
      const client = clientData('webauthn.get', signed);
      const signature = sign('sha256', Buffer.concat([data, sha256(client)]), privateKey);
      return {
        id,
        response: {
          clientDataJSON: client.toString('base64url'),
          authenticatorData: data.toString('base64url'),
          signature: signature.toString('base64url'),
        },
      };
    },
  };
}
