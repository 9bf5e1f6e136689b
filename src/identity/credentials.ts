/** The key that a request carries. */
export type Credentials =
  | {
      readonly kind: 'key';
      readonly key: string;
      readonly viaQuery: boolean;
      /** An `Authorization` header that is meant for the upstream: the key came elsewhere, and this holds none of ours. */
      readonly foreignAuthorization: string | null;
    }
  | { readonly kind: 'missing' }
  /** Two keys that differ, or a key where none may be. `detail` is for people, and never holds a key. */
  | { readonly kind: 'invalid'; readonly detail: string };

type Values = string | readonly string[] | undefined;

const BEARER = /^bearer +/i;
const BASIC = /^basic +/i;
/** What a key of ours begins with, whatever became of the rest of it. */
const OWN = /svc_(?:acct|agent|admin|mcp)_/i;

/**
 * Finds the key of a request: `X-API-Key`, then `Authorization: Bearer`, then the query's `api_key`. Other schemes of
 * `Authorization` are not ours, and a bearer token beside a key is the upstream's unless it looks like a key of ours.
 * The same key twice is one key; two that differ are none.
 * @param request.headers with lower-case names, as Node gives them
 * @param request.query decoded; only `api_key` is looked at
 */
export function keyFromRequest(
  request: { readonly headers: Readonly<Record<string, Values>>; readonly query: Readonly<Record<string, Values>> },
  queryKey: 'allow' | 'refuse',
): Credentials {
  const inHeader = textsOf(request.headers['x-api-key']);
  const authorization = textsOf(request.headers['authorization']);
  const query = Object.hasOwn(request.query, 'api_key') ? request.query['api_key'] : undefined;
  const inQuery = textsOf(query);
  if (inQuery.length > 0 && queryKey === 'refuse')
    return { kind: 'invalid', detail: 'Keys in the query are refused here. Send the key in the header X-API-Key.' };
  const elsewhere = inHeader.length + inQuery.length > 0;
  const inBearer = authorization
    .filter((value) => BEARER.test(value) && (!elsewhere || OWN.test(value)))
    .map((value) => value.replace(BEARER, '').trim())
    .filter((key) => key !== '');
  const [key, ...others] = [...inHeader, ...inBearer, ...inQuery];
  if (key === undefined) return { kind: 'missing' };
  if (others.some((other) => other !== key))
    return { kind: 'invalid', detail: 'The request carries two different keys.' };
  const [only, ...more] = authorization;
  const isForeign = elsewhere && only !== undefined && more.length === 0 && !holdsOwnForm(only);
  return { kind: 'key', key, viaQuery: inQuery.length > 0, foreignAuthorization: isForeign ? only : null };
}

function holdsOwnForm(authorization: string): boolean {
  if (OWN.test(authorization)) return true;
  return (
    BASIC.test(authorization) && OWN.test(Buffer.from(authorization.replace(BASIC, ''), 'base64').toString('latin1'))
  );
}

function textsOf(values: Values): readonly string[] {
  const texts = values === undefined ? [] : typeof values === 'string' ? [values] : values;
  return texts.filter((text) => text !== '');
}
