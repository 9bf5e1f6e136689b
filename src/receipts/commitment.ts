import { hash } from 'node:crypto';
import { canonicalJson } from '../json/canonical.ts';
import { SALT_BYTES, SALTED_FIELDS, type SaltedField } from '../effects/ports.ts';
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
  const salted = Buffer.concat([Buffer.from(salt, 'base64url'), Buffer.from(canonicalJson(value))]);
  return `sc1:${hash('sha256', salted, 'base64url')}`;
}

/** Like {@link commit}, for a field of a receipt with these salts. @param text the value in canonical form */
export function commitField(salts: Buffer, field: SaltedField, text: string): string {
  const place = SALTED_FIELDS.indexOf(field);
  const most = salts.length + text.length * MOST_BYTES;
  const bytes = most <= SCRATCH_BYTES ? scratch : Buffer.alloc(most);
  const salted = salts.copy(bytes, 0, place * SALT_BYTES, (place + 1) * SALT_BYTES);
  const length = salted + bytes.write(text, salted, 'utf8');
  return `sc1:${hash('sha256', bytes.subarray(0, length), 'base64url')}`;
}
