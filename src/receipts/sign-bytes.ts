import { type KeyObject, sign } from 'node:crypto';
import type { Sodium } from 'sodium-native';

/** Signs bytes with one Ed25519 key. The same bytes have the same signature (RFC 8032), whoever computes it. */
export type SignBytes = (bytes: Buffer) => Buffer;

/** Bytes of an Ed25519 private key; PKCS #8 ends with them (RFC 8410). */
const SEED_BYTES = 32;

/** @returns the native library, which is optional; `null` where it is absent or has no build for this platform */
export async function loadSodium(): Promise<Sodium | null> {
  try {
    return (await import('sodium-native')).default;
  } catch {
    return null;
  }
}

/**
 * Signs by the native library, which takes two thirds of the time, or by `node:crypto` where there is none. A library
 * that does not sign as `node:crypto` does is not used.
 */
export function signBytesWith(key: KeyObject, sodium: Sodium | null): SignBytes {
  const plain: SignBytes = (bytes) => sign(null, bytes, key);
  if (sodium === null) return plain;
  const native = nativeSign(key, sodium);
  const probe = Buffer.from('svc-gateway receipt key');
  return native(probe).equals(plain(probe)) ? native : plain;
}

function nativeSign(key: KeyObject, sodium: Sodium): SignBytes {
  const secret = sodium.sodium_malloc(sodium.crypto_sign_SECRETKEYBYTES);
  const exported = key.export({ type: 'pkcs8', format: 'der' });
  const publicHalf = Buffer.alloc(sodium.crypto_sign_PUBLICKEYBYTES);
  sodium.crypto_sign_seed_keypair(publicHalf, secret, exported.subarray(-SEED_BYTES));
  exported.fill(0);
  sodium.sodium_mprotect_readonly(secret);
  return (bytes) => {
    const signature = Buffer.allocUnsafe(sodium.crypto_sign_BYTES);
    sodium.crypto_sign_detached(signature, bytes, secret);
    return signature;
  };
}
