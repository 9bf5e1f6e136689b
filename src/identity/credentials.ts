/** The key of a request, or why there is none. */
export type Credentials =
  | {
      readonly kind: 'key';
      readonly key: string;
      readonly viaQuery: boolean;
      /** Headers that hold the key, apart from `Authorization`. */
      readonly carriedIn: readonly string[];
      /**
       * An `Authorization` header that is meant for the upstream: the key came elsewhere, and this header holds no
       * gateway key.
       */
      readonly foreignAuthorization: string | null;
    }
  | { readonly kind: 'missing' }
  /** Two keys that differ, or a key in a place that is refused. `detail` is for people, and never contains a key. */
  | { readonly kind: 'invalid'; readonly detail: string };

type Values = string | readonly string[] | undefined;

/** How callers send their key. */
export interface KeyCarriers {
  /** Headers whose whole value is the key, in lower case. */
  readonly headers: readonly string[];
  /** Schemes of `Authorization`. */
  readonly schemes: readonly ('bearer' | 'token' | 'basic')[];
  /** Query parameters. */
  readonly query: readonly string[];
}

/** The carriers when nothing is configured. */
export const USUAL_CARRIERS: KeyCarriers = { headers: ['x-api-key'], schemes: ['bearer'], query: ['api_key'] };

const BASIC = /^basic +/i;
/** How every gateway key begins. The rest may be cut or damaged. */
const OWN = /svc_(?:acct|agent|admin|mcp)_/i;

/**
 * Finds the key of a request in its carriers: headers, the query, `Authorization`. Other schemes of `Authorization` are
 * ignored. A token that comes with a key belongs to the upstream, unless it looks like a gateway key. The same key twice counts
 * as one key. Two different keys are invalid.
 * @param request.headers with lower-case names, as Node gives them
 * @param request.query decoded; only `api_key` is read
 */
export function keyFromRequest(
  request: { readonly headers: Readonly<Record<string, Values>>; readonly query: Readonly<Record<string, Values>> },
  queryKey: 'allow' | 'refuse',
  carriers: KeyCarriers = USUAL_CARRIERS,
): Credentials {
  const { headers } = request;
  const usual = headers['x-api-key'];
  // Most callers send one header, and nothing else that could hold a key.
  if (
    carriers.headers.length === 1 &&
    carriers.headers[0] === 'x-api-key' &&
    typeof usual === 'string' &&
    usual !== '' &&
    headers['authorization'] === undefined &&
    !Object.hasOwn(request.query, 'api_key')
  )
    return { kind: 'key', key: usual, viaQuery: false, carriedIn: carriers.headers, foreignAuthorization: null };
  const authorization = textsOf(headers['authorization']);
  const query = Object.hasOwn(request.query, 'api_key') ? request.query['api_key'] : undefined;
  const inQuery = textsOf(query);
  if (inQuery.length > 0 && queryKey === 'refuse')
    return { kind: 'invalid', detail: 'Keys in the query are refused here. Send the key in the header X-API-Key.' };
  const sure = carriers.headers.includes('x-api-key') ? textsOf(headers['x-api-key']) : [];
  const others = carriers.headers.flatMap((name) => (name === 'x-api-key' ? [] : textsOf(headers[name])));
  const schemed = authorization.flatMap((value) => keysIn(value, carriers));
  // A value that could also belong to the upstream counts only if it looks like a gateway key, or if there is no other.
  const isSure = sure.length + inQuery.length > 0;
  const own = [...others, ...schemed].filter((key) => OWN.test(key));
  const found = isSure || own.length > 0 ? [...sure, ...own, ...inQuery] : [...others, ...schemed];
  const [key, ...more] = found;
  if (key === undefined) return { kind: 'missing' };
  if (more.some((other) => other !== key))
    return { kind: 'invalid', detail: 'The request carries two different keys.' };
  const [only, ...rest] = authorization;
  const isForeign = only !== undefined && rest.length === 0 && !schemed.includes(key) && !holdsOwnForm(only);
  return {
    kind: 'key',
    key,
    viaQuery: inQuery.length > 0,
    carriedIn: carriers.headers.filter((name) => textsOf(headers[name]).includes(key)),
    foreignAuthorization: isForeign ? only : null,
  };
}

/** Whether an `Authorization` header contains something that looks like a gateway key. */
export function holdsOwnForm(authorization: string): boolean {
  return OWN.test(authorization) || OWN.test(basicText(authorization) ?? '');
}

/** The possible keys in an `Authorization` header. */
function keysIn(authorization: string, { schemes }: KeyCarriers): readonly string[] {
  const [, word = '', rest = ''] = /^([A-Za-z]+) +(.*)$/.exec(authorization) ?? [];
  const scheme = schemes.find((one) => one === word.toLowerCase());
  switch (scheme) {
    case undefined:
      return [];
    case 'bearer':
      return [rest.trim()].filter((key) => key !== '');
    case 'token':
      return [(/^token="([^"]*)"$/i.exec(rest.trim())?.[1] ?? rest).trim()].filter((key) => key !== '');
    case 'basic': {
      const text = basicText(authorization) ?? '';
      const colon = text.indexOf(':');
      const parts = [colon === -1 ? text : text.slice(0, colon), colon === -1 ? '' : text.slice(colon + 1)];
      const given = parts.filter((part) => part !== '');
      // Some APIs expect the key as the user, some as the password.
      return given.filter((part) => OWN.test(part)).length > 0
        ? given.filter((part) => OWN.test(part))
        : given.slice(0, 1);
    }
  }
}

function basicText(authorization: string): string | null {
  return BASIC.test(authorization) ? Buffer.from(authorization.replace(BASIC, ''), 'base64').toString('latin1') : null;
}

function textsOf(values: Values): readonly string[] {
  const texts = values === undefined ? [] : typeof values === 'string' ? [values] : values;
  return texts.filter((text) => text !== '');
}
