import { createHmac, type KeyObject, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { KeyKind } from '../effects/model/principal.ts';
import type { KeyCarriers } from '../effects/model/key.ts';

/** `svc_<kind>_<12 base62 handle><32 base62 secret><6 base62 CRC-32 of all before it>` */
const SHAPE = /^svc_(acct|agent|admin|mcp)_([0-9A-Za-z]{12})[0-9A-Za-z]{32}([0-9A-Za-z]{6})$/;
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const HANDLE_LENGTH = 12;
const SECRET_LENGTH = 32;
const CHECK_LENGTH = 6;

const WORD_OF_KIND = { account: 'acct', agent: 'agent', administrative: 'admin', profile: 'mcp' } as const;

const KIND_OF_WORD: Readonly<Record<string, KeyKind>> = {
  acct: 'account',
  agent: 'agent',
  admin: 'administrative',
  mcp: 'profile',
};

/** A new key, with about 190 random bits, and its handle. */
export function makeKey(kind: KeyKind): { readonly key: string; readonly handle: string } {
  const handle = randomBase62(HANDLE_LENGTH);
  const body = `svc_${WORD_OF_KIND[kind]}_${handle}${randomBase62(SECRET_LENGTH)}`;
  return { key: body + checksum(body), handle };
}

/** @returns `null` unless the text is a well-formed key with the right checksum */
export function parseKey(text: string): {
  readonly kind: KeyKind;
  /** The handle to look the key up by. Logs show it. */
  readonly handle: string;
} | null {
  const match = SHAPE.exec(text);
  if (match === null) return null;
  const [, word = '', handle = '', check] = match;
  const kind = KIND_OF_WORD[word];
  if (kind === undefined || checksum(text.slice(0, -CHECK_LENGTH)) !== check) return null;
  return { kind, handle };
}

const WITHIN = /svc_(?:acct|agent|admin|mcp)_[0-9A-Za-z]{50}/g;

/** Whether a text contains a key of anybody: well-formed, with the right checksum. */
export function holdsKey(text: string): boolean {
  if (!text.includes('svc_')) return false;
  for (const [found] of text.matchAll(WITHIN)) if (parseKey(found) !== null) return true;
  return false;
}

/** The stored form of a key: HMAC-SHA-256 of the whole key under the pepper. */
export function hashKey(pepper: KeyObject, key: string): Buffer {
  return createHmac('sha256', pepper).update(key).digest();
}

function checksum(body: string): string {
  let rest = crc32(body);
  let text = '';
  for (let place = 0; place < CHECK_LENGTH; place += 1) {
    text = ALPHABET.charAt(rest % 62) + text;
    rest = Math.floor(rest / 62);
  }
  return text;
}

function randomBase62(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // 248 is the largest multiple of 62 in a byte. With larger bytes the first letters would be more frequent.
      if (byte < 248 && text.length < length) text += ALPHABET.charAt(byte % 62);
    }
  }
  return text;
}

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
