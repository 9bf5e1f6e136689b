/** The content of `Idempotency-Key` in a request. */
export type ReadKey =
  | { readonly kind: 'key'; readonly key: string }
  | { readonly kind: 'absent' }
  | { readonly kind: 'invalid'; readonly message: string };

/**
 * Reads `Idempotency-Key`. A key in quotes (as in the IETF draft) and the same key without quotes (as in common use)
 * are equal.
 * @param header as Node gives it. Node joins repeated headers with a comma and a space, and the space is refused
 */
export function readIdempotencyKey(header: string | readonly string[] | undefined): ReadKey {
  if (header === undefined) return { kind: 'absent' };
  if (typeof header !== 'string') return { kind: 'invalid', message: 'stands more than once' };
  const quoted = /^"((?:[^"\\]|\\["\\])*)"$/.exec(header)?.[1];
  const key = quoted === undefined ? header : quoted.replaceAll(/\\(["\\])/g, '$1');
  if (/^[\x21-\x7e]{1,255}$/.test(key) && (quoted !== undefined || !key.startsWith('"'))) return { kind: 'key', key };
  return { kind: 'invalid', message: 'must be 1 to 255 visible ASCII characters, bare or in double quotes' };
}
