import { type KeyObject, sign } from 'node:crypto';
import type { Sodium } from 'sodium-native';

/** Signs bytes with one Ed25519 key. Every implementation gives the same signature for the same bytes (RFC 8032). */
export type SignBytes = (bytes: Buffer) => Buffer;

/** Bytes of an Ed25519 private key. They are the end of its PKCS #8 form (RFC 8410). */
const SEED_BYTES = 32;

/**
 * Signs with the native library where there is one (it takes two thirds of the time), otherwise with `node:crypto`. A
 * library whose signature differs from that of `node:crypto` is not used.
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

/** Most signed texts fit. New buffers for each would be most of what one costs beside its signature. */
const scratch = Buffer.alloc(16_384);

/** The bytes of a text, until the next call. */
function bytesOf(text: string, encoding: 'utf8' | 'latin1'): Buffer {
  // A UTF-16 code unit takes at most three bytes in UTF-8.
  return 3 * text.length > scratch.length
    ? Buffer.from(text, encoding)
    : scratch.subarray(0, scratch.write(text, encoding));
}

/**
 * The signature of a JWS in compact form, base64url.
 * @param head the encoded header
 * @param payload as the text that it is
 */
export function jwsSignature(sign: SignBytes, head: string, payload: string): string {
  const encoded = bytesOf(payload, 'utf8').toString('base64url');
  return sign(bytesOf(`${head}.${encoded}`, 'latin1')).toString('base64url');
}
