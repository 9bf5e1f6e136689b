import { ask, type Json, type JsonObject } from './api.ts';

/** What was checked of a receipt, each with whether it holds. */
export interface Checked {
  readonly checks: readonly { readonly what: string; readonly holds: boolean }[];
  readonly payload: JsonObject;
}

/**
 * Checks a receipt in this browser: nothing of it rests on the word of the gateway but the public keys, which anybody
 * can keep elsewhere.
 * @param jws compact, as the gateway signed it
 * @throws Error where this browser cannot check it
 */
export async function checkReceipt(jws: string, workspace: string, effectId: string): Promise<Checked> {
  const [head = '', body = '', signature = ''] = jws.split('.');
  const header = objectIn(head);
  const payload = objectIn(body);
  const { keys } = await ask<{ keys: readonly JsonObject[] }>('GET', '/.well-known/jwks.json');
  const found = await keyOf(keys, header['kid']);
  const signed = new TextEncoder().encode(`${head}.${body}`);
  const isSigned = found !== null && (await crypto.subtle.verify('Ed25519', found, bytesIn(signature), signed));
  const effect = payload['effect'];
  const names = typeof effect === 'object' && effect !== null && 'id' in effect && effect['id'] === effectId;
  return {
    payload,
    checks: [
      {
        what: 'It is a receipt of svc-gateway',
        holds: header['typ'] === 'svc-receipt+jws' && header['alg'] === 'Ed25519',
      },
      { what: 'Signed by a key that this gateway publishes', holds: found !== null },
      { what: 'The signature holds: nothing was changed since', holds: isSigned },
      { what: 'It is about this effect, in this workspace', holds: names && payload['ws'] === workspace },
    ],
  };
}

/** The key with a thumbprint (RFC 7638), which is computed: what a set calls its keys does not count. */
async function keyOf(keys: readonly JsonObject[], kid: Json | undefined): Promise<CryptoKey | null> {
  for (const { kty, crv, x } of keys) {
    if (kty !== 'OKP' || crv !== 'Ed25519' || typeof x !== 'string') continue;
    const text = `{"crv":"Ed25519","kty":"OKP","x":"${x}"}`;
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
    const thumbprint = btoa(String.fromCharCode(...digest))
      .replaceAll('+', '-')
      .replaceAll('/', '_')
      .replaceAll('=', '');
    if (thumbprint === kid) return crypto.subtle.importKey('jwk', { kty, crv, x }, 'Ed25519', false, ['verify']);
  }
  return null;
}

function objectIn(part: string): JsonObject {
  const value: unknown = JSON.parse(new TextDecoder().decode(bytesIn(part)));
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('This is no receipt.');
  return value as JsonObject;
}

function bytesIn(part: string): Uint8Array<ArrayBuffer> {
  const text = atob(part.replaceAll('-', '+').replaceAll('_', '/'));
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}
