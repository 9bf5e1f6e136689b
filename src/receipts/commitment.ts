import { hash } from 'node:crypto';
import { canonicalJson } from '../json/canonical.ts';
import type { Json } from '../json/value.ts';

/** A buffer that is used again: most values fit, and allocating one each time would be a large part of the cost. */
const SCRATCH_BYTES = 4096;
const scratch = Buffer.alloc(SCRATCH_BYTES);

/** A character of UTF-16 takes at most this many bytes of UTF-8. */
const MOST_BYTES = 3;

/**
 * A salted commitment: `sc1:` and SHA-256(salt || JCS of the value), base64url. Whoever holds salt and value can show
 * what was committed to; nobody can guess it without the salt.
 * @param salt base64url
 */
export function commit(salt: string, value: Json): string {
  return commitText(salt, canonicalJson(value));
}

/** The same to a text that is the canonical form of a value. */
export function commitText(salt: string, text: string): string {
  const most = salt.length + text.length * MOST_BYTES;
  const bytes = most <= SCRATCH_BYTES ? scratch : Buffer.alloc(most);
  const salted = bytes.write(salt, 'base64url');
  const length = salted + bytes.write(text, salted, 'utf8');
  return `sc1:${hash('sha256', bytes.subarray(0, length), 'base64url')}`;
}
