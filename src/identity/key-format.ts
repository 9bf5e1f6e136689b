import { createHmac, type KeyObject, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { KeyKind } from '../effects/model/principal.ts';

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

/** What can be read from a key without the store. */
export interface ParsedKey {
  readonly kind: KeyKind;
  /** The handle to look the key up by. Logs show it. */
  readonly handle: string;
}

/** A new key, with about 190 random bits, and its handle. */
export function makeKey(kind: KeyKind): { readonly key: string; readonly handle: string } {
  const handle = randomBase62(HANDLE_LENGTH);
  const body = `svc_${WORD_OF_KIND[kind]}_${handle}${randomBase62(SECRET_LENGTH)}`;
  return { key: body + checksum(body), handle };
}

/** @returns `null` unless the text is a well-formed key with the right checksum */
export function parseKey(text: string): ParsedKey | null {
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
