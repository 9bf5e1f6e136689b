import { createPublicKey, hash, type KeyObject } from 'node:crypto';
import type { JsonObject } from '../json/value.ts';

/** The one algorithm of receipts (RFC 9864). */
export const RECEIPT_ALG = 'Ed25519';
/** The `typ` of receipts. Without it, another JWS signed with the same key could pass for a receipt. */
export const RECEIPT_TYP = 'svc-receipt+jws';

/** The public half of a receipt key as a JWK (RFC 8037). @throws Error when the key is not Ed25519 */
export function publicJwk(key: KeyObject): { readonly kid: string; readonly jwk: JsonObject } {
  const { crv, x } = key.export({ format: 'jwk' });
  if (crv !== 'Ed25519' || typeof x !== 'string') throw new Error('A receipt key is an Ed25519 key.');
  const kid = thumbprint(x);
  return { kid, jwk: { kty: 'OKP', crv, x, kid, alg: RECEIPT_ALG, use: 'sig' } };
}

/**
 * A key of a JWKS that may have signed receipts. The thumbprint is computed from the key; the `kid` in the set is
 * ignored.
 * @returns `null` for keys of another kind
 */
export function receiptKeyOf(jwk: JsonObject): { readonly kid: string; readonly key: KeyObject } | null {
  const { kty, crv, x, use, alg } = jwk;
  if (kty !== 'OKP' || crv !== 'Ed25519' || typeof x !== 'string') return null;
  if (use !== undefined && use !== 'sig') return null;
  if (alg !== undefined && alg !== RECEIPT_ALG && alg !== 'EdDSA') return null;
  if (decodeBase64url(x)?.length !== 32) return null;
  try {
    return { kid: thumbprint(x), key: createPublicKey({ key: { kty, crv, x }, format: 'jwk' }) };
  } catch {
    return null;
  }
}

/** RFC 7638: SHA-256 of the required members, sorted by name. */
function thumbprint(x: string): string {
  return hash('sha256', `{"crv":"Ed25519","kty":"OKP","x":"${x}"}`, 'base64url');
}

/**
 * Strict base64url (RFC 4648, section 5, without padding). Node's decoder also accepts other letters, padding, line
 * ends and unused bits at the end. Each of these would be a second spelling of the same JWS.
 * @returns `null` unless the text is exactly what encoding gives
 */
export function decodeBase64url(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : null;
}
