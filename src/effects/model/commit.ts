import { hash } from 'node:crypto';
import { canonicalJson } from '../../json/text.ts';
import type { Json } from '../../json/value.ts';

/**
 * A salted commitment: `sc1:` and SHA-256(salt || JCS of the value), base64url. Whoever has the salt and the value can
 * show that they belong to the commitment. Without the salt nobody can guess the value.
 * @param salt base64url
 */
export function commit(salt: string, value: Json): string {
  const salted = Buffer.concat([Buffer.from(salt, 'base64url'), Buffer.from(canonicalJson(value))]);
  return `sc1:${hash('sha256', salted, 'base64url')}`;
}
