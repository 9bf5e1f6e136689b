import { isUtf8 } from 'node:buffer';
import type { HttpAnswer, KeptHttpResult } from '../../effects/model/answer.ts';
import type { Json } from '../../json/value.ts';
import { parseStrictJson } from '../../json/strict.ts';

type IncomingHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** Headers that are for one connection only (RFC 9110, 7.6.1). */
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

/**
 * Headers that are kept with an answer for duplicates: those that say how to read the body, or name what was created.
 */
const KEPT_HEADERS = ['content-type', 'content-language', 'content-encoding', 'etag', 'last-modified', 'location'];

/**
 * Limits for reading an upstream's JSON. They are higher than those for callers, because an upstream is trusted more.
 * But its answer to one call must not keep all other calls waiting.
 */
const LIMITS = { depth: 64, values: 20_000 };

/**
 * Whether a header of an upstream's answer goes on to the caller. Headers of the connection and headers that speak for
 * the gateway do not. Cookies do only if the configuration asks for them.
 * @param name lower case
 * @param named by the answer's own `Connection` header
 */
export function passesBack(name: string, setCookie: boolean, named: ReadonlySet<string> | null): boolean {
  const fate = fates.get(name) ?? fateOf(name);
  return fate === 'cookie' ? setCookie : fate === 'pass' && (named === null || !named.has(name));
}

/**
 * What a browser would do at the gateway's own origin, where people approve: leave the page, forget its data, let other
 * sites read it, or let scripts of it take over.
 */
const OF_THE_ORIGIN = /^(?:refresh|clear-site-data|service-worker-allowed|access-control-.*)$/;

type Fate = 'pass' | 'cookie' | 'end';

function fateOf(name: string): Fate {
  const ends = HOP_BY_HOP.has(name) || name.startsWith('svc-') || name === 'x-should-retry' || OF_THE_ORIGIN.test(name);
  const fate: Fate = ends ? 'end' : name === 'set-cookie' || name === 'set-cookie2' ? 'cookie' : 'pass';
  if (fates.size < MOST_REMEMBERED) fates.set(name, fate);
  return fate;
}

/** The most names whose fate is remembered. There is a limit because upstreams choose the names. */
const MOST_REMEMBERED = 500;

const fates = new Map<string, Fate>();

/** The names that a `Connection` header lists; `null` where it lists none beyond the usual. */
export function connectionNames(connection: string | readonly string[] | undefined): ReadonlySet<string> | null {
  if (connection === undefined || connection === 'keep-alive' || connection === 'close') return null;
  const text = typeof connection === 'string' ? connection : connection.join(',');
  return new Set(text.split(',').map((name) => name.trim().toLowerCase()));
}

/** An answer that was read, in the forms that the gateway needs. */
export interface ReadAnswer {
  readonly answer: HttpAnswer;
  /** Parsed when the content type is JSON and the body is valid, `undefined` otherwise. */
  readonly json: Json | undefined;
  /** What is kept for duplicates. */
  readonly result: KeptHttpResult;
}

/**
 * Turns what was read into the answer that the rest of the gateway sees.
 * @param options.wantsJson whether somebody needs its JSON, however long it is
 */
export function readAnswer(
  raw: { readonly status: number; readonly headers: IncomingHeaders; readonly body: Buffer; readonly whole: boolean },
  options: { readonly responseKeptBytes: number; readonly setCookie: boolean; readonly wantsJson: boolean },
): ReadAnswer {
  const headers = headersBack(raw.headers, options.setCookie);
  // An answer that is too long to keep is parsed only if somebody needs its JSON.
  const isRead = options.wantsJson || raw.body.byteLength <= options.responseKeptBytes;
  const json = raw.whole && isRead && isJson(raw.headers['content-type']) ? parseJson(raw.body) : undefined;
  return {
    answer: { kind: 'http', status: raw.status, headers, body: raw.body },
    json,
    result: keep(raw, headers, json, options.responseKeptBytes),
  };
}

/** The headers of an answer that go on to the caller. */
export function headersBack(incoming: IncomingHeaders, setCookie: boolean): HttpAnswer['headers'] {
  const named = connectionNames(incoming['connection']);
  const headers: Record<string, string | readonly string[]> = {};
  for (const name of Object.keys(incoming)) {
    const value = incoming[name];
    if (value === undefined) continue;
    // No call for each of the headers that most answers have.
    const isPlain = named === null && fates.get(name) === 'pass';
    if (isPlain || passesBack(name, setCookie, named)) headers[name] = value;
  }
  return headers;
}

/** Those of them that are kept with the answer. */
export function headersKept(headers: HttpAnswer['headers']): KeptHttpResult['headers'] {
  const kept: Record<string, string> = {};
  for (const name of KEPT_HEADERS) {
    const value = headers[name];
    if (value !== undefined) kept[name] = typeof value === 'string' ? value : value.join(', ');
  }
  return kept;
}

function keep(
  raw: { readonly status: number; readonly body: Buffer; readonly whole: boolean },
  headers: Readonly<Record<string, string | readonly string[]>>,
  json: Json | undefined,
  limit: number,
): KeptHttpResult {
  const kept = headersKept(headers);
  const { status } = raw;
  const fits = raw.body.byteLength <= limit;
  if (json !== undefined && fits) {
    return { kind: 'http', status, headers: kept, body: { kind: 'json', value: json }, truncated: false };
  }
  const bytes = fits ? raw.body : raw.body.subarray(0, limit);
  const truncated = !fits || !raw.whole;
  if (kept['content-encoding'] === undefined) {
    const text = asText(bytes, truncated);
    if (text !== null) return { kind: 'http', status, headers: kept, body: { kind: 'text', value: text }, truncated };
  }
  return { kind: 'http', status, headers: kept, body: { kind: 'base64', value: bytes.toString('base64') }, truncated };
}

/** The bytes as a text, without a character that was cut in two; `null` if they are not UTF-8. */
function asText(bytes: Buffer, truncated: boolean): string | null {
  for (let cut = 0; cut <= (truncated ? 3 : 0); cut += 1) {
    const head = bytes.subarray(0, bytes.byteLength - cut);
    if (isUtf8(head)) return head.toString('utf8');
  }
  return null;
}

/** Whether a body of this content type is JSON. */
export function isJson(contentType: string | string[] | undefined): boolean {
  return typeof contentType === 'string' && /^application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i.test(contentType);
}

/** The JSON of an upstream; `undefined` if it is not JSON with a single meaning, or too large. */
export function parseJson(body: Buffer): Json | undefined {
  const parsed = parseStrictJson(body, LIMITS);
  return parsed.ok ? parsed.value : undefined;
}
