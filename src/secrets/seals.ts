import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type DecipherChaCha20Poly1305,
  type DecipherGCM,
  type KeyObject,
} from 'node:crypto';
import type { Sodium } from 'sodium-native';
import { randomPooled } from '../effects/run/ids.ts';

/** The first byte of a seal names its cipher. Every gateway opens both. */
const AES_256_GCM = 1;
const CHACHA20_POLY1305 = 2;

const KEY_ID_BYTES = 4;
const SUBKEY_NONCE_BYTES = 12;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const IV_AT = 1 + KEY_ID_BYTES + SUBKEY_NONCE_BYTES;
const HEAD_BYTES = IV_AT + IV_BYTES;

/** Seals made under one subkey. Their nonces are counted: none repeats, and 32 bits are enough. */
const SEALS_PER_SUBKEY = 2 ** 31;

/** The keys of one master secret, and the id that its seals carry. */
export interface SealKeys {
  readonly id: Buffer;
  readonly aes: KeyObject;
  readonly chacha: KeyObject;
}

/**
 * What seals. ChaCha20-Poly1305 by the native library where there is one; otherwise AES-256-GCM by `node:crypto`, which
 * makes an object for each seal, at three times the cost. A library that seals what `node:crypto` cannot open is not
 * used.
 * @param keys the ones to seal with, then those whose seals still open
 */
export function createSeals(keys: readonly [SealKeys, ...SealKeys[]], sodium: Sodium | null): Seals {
  if (sodium === null) return new Seals(keys, null);
  const native = new Seals(keys, sodium);
  const probe = 'svc-gateway seal';
  return native.open(native.seal(probe, '"probe"'), '"probe"') === probe ? native : new Seals(keys, null);
}

/**
 * Seals texts: authenticated encryption, bound to what a text belongs to.
 *
 * Random 96-bit nonces allow 2^32 messages under one key, and a busy gateway reaches that within weeks. So each process
 * derives its own key from a random nonce, which its seals carry, and counts the seals under it.
 */
export class Seals {
  readonly #keys: readonly [SealKeys, ...SealKeys[]];
  readonly #sodium: Sodium | null;
  readonly #head = Buffer.alloc(HEAD_BYTES);
  readonly #iv = this.#head.subarray(IV_AT);
  #seal: (text: string, bound: string) => string = () => '';
  #made = SEALS_PER_SUBKEY;

  constructor(keys: readonly [SealKeys, ...SealKeys[]], sodium: Sodium | null) {
    this.#keys = keys;
    this.#sodium = sodium;
    this.#head[0] = sodium === null ? AES_256_GCM : CHACHA20_POLY1305;
    keys[0].id.copy(this.#head, 1);
  }

  /** @param bound what the text belongs to: members of a JSON array, as text */
  seal(text: string, bound: string): string {
    if (this.#made === SEALS_PER_SUBKEY) this.#changeKey();
    this.#iv.writeUInt32BE(this.#made, IV_BYTES - 4);
    this.#made += 1;
    return this.#seal(text, bound);
  }

  /** @returns `null` when the seal is broken, is bound to something else, or its master secret is gone */
  open(sealed: string, bound: string): string | null {
    const bytes = Buffer.from(sealed, 'base64url');
    const keyId = bytes.subarray(1, 1 + KEY_ID_BYTES);
    const keys = this.#keys.find(({ id }) => id.equals(keyId));
    if (keys === undefined || bytes.length < HEAD_BYTES + TAG_BYTES) return null;
    const decipher = decipherOf(keys, bytes);
    if (decipher === null) return null;
    const content = bytes.subarray(HEAD_BYTES, -TAG_BYTES);
    decipher.setAAD(Buffer.from(`[${bytes[0]},${bound}]`), { plaintextLength: content.length });
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    try {
      const text = decipher.update(content);
      return Buffer.concat([text, decipher.final()]).toString('utf8');
    } catch {
      return null;
    }
  }

  #changeKey(): void {
    randomPooled(SUBKEY_NONCE_BYTES).copy(this.#head, 1 + KEY_ID_BYTES);
    this.#made = 0;
    const [keys] = this.#keys;
    this.#seal =
      this.#sodium === null
        ? aesSeal(this.#head, createSecretKey(subkey(keys.aes, this.#head)))
        : chachaSeal(this.#head, subkey(keys.chacha, this.#head), this.#sodium);
  }
}

/** The key of one process, or of a part of its run time, from the nonce in the heads of its seals. */
function subkey(key: KeyObject, head: Buffer): Buffer {
  return createHmac('sha256', key)
    .update(head.subarray(1 + KEY_ID_BYTES, IV_AT))
    .digest();
}

function decipherOf(keys: SealKeys, head: Buffer): DecipherGCM | DecipherChaCha20Poly1305 | null {
  const iv = head.subarray(IV_AT, HEAD_BYTES);
  const ofTag = { authTagLength: TAG_BYTES };
  if (head[0] === AES_256_GCM) return createDecipheriv('aes-256-gcm', subkey(keys.aes, head), iv, ofTag);
  if (head[0] === CHACHA20_POLY1305) return createDecipheriv('chacha20-poly1305', subkey(keys.chacha, head), iv, ofTag);
  return null;
}

function aesSeal(head: Buffer, key: KeyObject) {
  const iv = head.subarray(IV_AT);
  return (text: string, bound: string): string => {
    const cipher = createCipheriv('aes-256-gcm', key, iv);
    cipher.setAAD(Buffer.from(`[${AES_256_GCM},${bound}]`));
    const sealed = cipher.update(text, 'utf8');
    const rest = cipher.final();
    return Buffer.concat([head, sealed, rest, cipher.getAuthTag()]).toString('base64url');
  };
}

/** Most texts fit. A new buffer for each would be a large part of the cost of a seal. */
const SCRATCH_BYTES = 8192;

/** A UTF-16 code unit takes at most this many bytes in UTF-8. */
const MOST_BYTES = 3;

/** In place: head, text, tag, and after them what it is bound to. */
function chachaSeal(head: Buffer, plainKey: Buffer, sodium: Sodium) {
  const key = sodium.sodium_malloc(plainKey.length);
  plainKey.copy(key);
  plainKey.fill(0);
  sodium.sodium_mprotect_readonly(key);
  const iv = head.subarray(IV_AT);
  const scratch = Buffer.alloc(SCRATCH_BYTES);
  return (text: string, bound: string): string => {
    const associated = `[${CHACHA20_POLY1305},${bound}]`;
    const most = HEAD_BYTES + TAG_BYTES + (text.length + associated.length) * MOST_BYTES;
    const bytes = most <= SCRATCH_BYTES ? scratch : Buffer.alloc(most);
    head.copy(bytes);
    const tagAt = HEAD_BYTES + bytes.write(text, HEAD_BYTES, 'utf8');
    const end = tagAt + TAG_BYTES;
    const boundTo = bytes.subarray(end, end + bytes.write(associated, end, 'utf8'));
    const content = bytes.subarray(HEAD_BYTES, tagAt);
    const tag = bytes.subarray(tagAt, end);
    sodium.crypto_aead_chacha20poly1305_ietf_encrypt_detached(content, tag, content, boundTo, null, iv, key);
    return bytes.toString('base64url', 0, end);
  };
}
