/** The key that a request carries. */
export type Credentials =
  | { readonly kind: 'key'; readonly key: string; readonly viaQuery: boolean }
  | { readonly kind: 'missing' }
  /** Two keys that differ, or a key where none may be. `detail` is for people, and never holds a key. */
  | { readonly kind: 'invalid'; readonly detail: string };

type Values = string | readonly string[] | undefined;

const BEARER = /^bearer +/i;

/**
 * Finds the key of a request: `X-API-Key`, then `Authorization: Bearer`, then the query's `api_key`. Other schemes of
 * `Authorization` are not ours. The same key twice is one key; two that differ are none.
 * @param request.headers with lower-case names, as Node gives them
 * @param request.query decoded; only `api_key` is looked at
 */
export function keyFromRequest(
  request: { readonly headers: Readonly<Record<string, Values>>; readonly query: Readonly<Record<string, Values>> },
  queryKey: 'allow' | 'refuse',
): Credentials {
  const inHeader = textsOf(request.headers['x-api-key']);
  const inBearer = textsOf(request.headers['authorization'])
    .filter((value) => BEARER.test(value))
    .map((value) => value.replace(BEARER, '').trim())
    .filter((key) => key !== '');
  const query = Object.hasOwn(request.query, 'api_key') ? request.query['api_key'] : undefined;
  const inQuery = textsOf(query);
  if (inQuery.length > 0 && queryKey === 'refuse')
    return { kind: 'invalid', detail: 'Keys in the query are refused here. Send the key in the header X-API-Key.' };
  const [key, ...others] = [...inHeader, ...inBearer, ...inQuery];
  if (key === undefined) return { kind: 'missing' };
  if (others.some((other) => other !== key))
    return { kind: 'invalid', detail: 'The request carries two different keys.' };
  return { kind: 'key', key, viaQuery: inQuery.length > 0 };
}

function textsOf(values: Values): readonly string[] {
  const texts = values === undefined ? [] : typeof values === 'string' ? [values] : values;
  return texts.filter((text) => text !== '');
}
