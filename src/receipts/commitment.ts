import { hash } from 'node:crypto';
import { canonicalJson } from '../json/canonical.ts';
import type { Json } from '../json/value.ts';

/** A buffer that is used again. Most values fit, and a new buffer for each would be a large part of the cost. */
const SCRATCH_BYTES = 4096;
const scratch = Buffer.alloc(SCRATCH_BYTES);

/** A UTF-16 code unit takes at most this many bytes in UTF-8. */
const MOST_BYTES = 3;

/**
 * A salted commitment: `sc1:` and SHA-256(salt || JCS of the value), base64url. Whoever has the salt and the value can
 * show that they belong to the commitment. Without the salt nobody can guess the value.
 * @param salt base64url
 */
export function commit(salt: string, value: Json): string {
  return commitText(salt, canonicalJson(value));
}

/** Like {@link commit}, for a value that is already text in canonical form. */
export function commitText(salt: string, text: string): string {
  const most = salt.length + text.length * MOST_BYTES;
  const bytes = most <= SCRATCH_BYTES ? scratch : Buffer.alloc(most);
  const salted = bytes.write(salt, 'base64url');
  const length = salted + bytes.write(text, salted, 'utf8');
  return `sc1:${hash('sha256', bytes.subarray(0, length), 'base64url')}`;
}
