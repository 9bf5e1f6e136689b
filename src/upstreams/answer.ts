import { isUtf8 } from 'node:buffer';
import type { KeptResult } from '../effects/model/effect.ts';
import type { Json } from '../json/value.ts';
import { parseStrictJson } from '../json/strict.ts';
import type { HttpAnswer } from '../effects/upstream.ts';

type IncomingHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** Headers of one connection, which end with it (RFC 9110, 7.6.1). */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Headers that are kept with an answer for duplicates: what says how to read the body, or names what was made. */
const KEPT_HEADERS = ['content-type', 'content-language', 'content-encoding', 'etag', 'last-modified', 'location'];

/**
 * What is read of an upstream's JSON. It is trusted further than a caller, whose own limits are lower; but what it
 * answers to one call must not keep all the others waiting.
 */
const LIMITS = { depth: 64, values: 20_000 };

/**
 * Whether a header of an upstream's answer goes on to the caller: not those of the connection, not those that speak in
 * the gateway's name, and cookies only where they are asked for.
 * @param name lower case
 * @param named by the answer's own `Connection` header
 */
export function passesBack(name: string, setCookie: boolean, named: ReadonlySet<string> | null): boolean {
  if (HOP_BY_HOP.has(name) || name.startsWith('svc-') || name === 'x-should-retry') return false;
  if (name === 'set-cookie' || name === 'set-cookie2') return setCookie;
  return named === null || !named.has(name);
}

/** The names that a `Connection` header lists; `null` where it lists none beyond the usual. */
export function connectionNames(connection: string | readonly string[] | undefined): ReadonlySet<string> | null {
  if (connection === undefined || connection === 'keep-alive' || connection === 'close') return null;
  const text = typeof connection === 'string' ? connection : connection.join(',');
  return new Set(text.split(',').map((name) => name.trim().toLowerCase()));
}

/** An answer that was read, with what its upstream's kind knows of it. */
export interface ReadAnswer {
  readonly answer: HttpAnswer;
  /** Parsed when the content type is JSON and the body is valid, `undefined` otherwise. */
  readonly json: Json | undefined;
  /** What is kept for duplicates. */
  readonly result: KeptResult;
}

/**
 * Makes of what was read the answer that the rest of the gateway sees.
 * @param options.wantsJson whether somebody looks into its JSON, however long it is
 */
export function readAnswer(
  raw: { readonly status: number; readonly headers: IncomingHeaders; readonly body: Buffer; readonly whole: boolean },
  options: { readonly responseKeptBytes: number; readonly setCookie: boolean; readonly wantsJson: boolean },
): ReadAnswer {
  const named = connectionNames(raw.headers['connection']);
  const headers: Record<string, string | readonly string[]> = {};
  for (const [name, value] of Object.entries(raw.headers)) {
    if (value !== undefined && passesBack(name, options.setCookie, named)) headers[name] = value;
  }
  // What is not kept as JSON is read as JSON only where somebody looks into it.
  const isRead = options.wantsJson || raw.body.byteLength <= options.responseKeptBytes;
  const json = raw.whole && isRead && isJson(raw.headers['content-type']) ? parseJson(raw.body) : undefined;
  return {
    answer: { kind: 'http', status: raw.status, headers, body: raw.body },
    json,
    result: keep(raw, headers, json, options.responseKeptBytes),
  };
}

function keep(
  raw: { readonly status: number; readonly body: Buffer; readonly whole: boolean },
  headers: Readonly<Record<string, string | readonly string[]>>,
  json: Json | undefined,
  limit: number,
): KeptResult {
  const kept: Record<string, string> = {};
  for (const name of KEPT_HEADERS) {
    const value = headers[name];
    if (value !== undefined) kept[name] = typeof value === 'string' ? value : value.join(', ');
  }
  const { status } = raw;
  const fits = raw.body.byteLength <= limit;
  if (json !== undefined && fits) {
    return { status, headers: kept, body: { kind: 'json', value: json }, truncated: false };
  }
  const bytes = fits ? raw.body : raw.body.subarray(0, limit);
  const truncated = !fits || !raw.whole;
  if (kept['content-encoding'] === undefined) {
    const text = asText(bytes, truncated);
    if (text !== null) return { status, headers: kept, body: { kind: 'text', value: text }, truncated };
  }
  return { status, headers: kept, body: { kind: 'base64', value: bytes.toString('base64') }, truncated };
}

/** The bytes as a text, without a character that the cut has split; `null` where they are not UTF-8. */
function asText(bytes: Buffer, truncated: boolean): string | null {
  for (let cut = 0; cut <= (truncated ? 3 : 0); cut += 1) {
    const head = bytes.subarray(0, bytes.byteLength - cut);
    if (isUtf8(head)) return head.toString('utf8');
  }
  return null;
}

function isJson(contentType: string | string[] | undefined): boolean {
  return typeof contentType === 'string' && /^application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i.test(contentType);
}

function parseJson(body: Buffer): Json | undefined {
  const parsed = parseStrictJson(body, LIMITS);
  return parsed.ok ? parsed.value : undefined;
}
