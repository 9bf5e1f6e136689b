import { hash } from 'node:crypto';
import { canonicalJson } from '../effects/canonical-json.ts';
import type { Json } from '../effects/json.ts';

/**
 * A salted commitment: `sc1:` and SHA-256(salt || JCS of the value), base64url. Whoever holds salt and value can show
 * what was committed to; nobody can guess it without the salt.
 * @param salt base64url
 */
export function commit(salt: string, value: Json): string {
  const bytes = Buffer.concat([Buffer.from(salt, 'base64url'), Buffer.from(canonicalJson(value))]);
  return `sc1:${hash('sha256', bytes, 'base64url')}`;
}
