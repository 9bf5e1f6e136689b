import { isUtf8 } from 'node:buffer';
import type { HttpAnswer, KeptHttpResult } from '../../effects/model/answer.ts';
import { canonicalJson } from '../../json/text.ts';
import { isJsonObject, type Json } from '../../json/value.ts';
import { parseStrictJson } from '../../json/strict.ts';
import type { OutcomeMap } from '../../effects/model/tool.ts';

export type IncomingHeaders = Readonly<Record<string, string | string[] | undefined>>;

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

export function isJson(contentType: string | string[] | undefined): boolean {
  return typeof contentType === 'string' && /^application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i.test(contentType);
}

/** The JSON of an upstream; `undefined` if it is not JSON with a single meaning, or too large. */
export function parseJson(body: Buffer): Json | undefined {
  const parsed = parseStrictJson(body, LIMITS);
  return parsed.ok ? parsed.value : undefined;
}

/** What was seen of an attempt, without any judgement. */
export type Seen =
  /** No application byte was written on a socket. */
  | { readonly kind: 'nothing_sent'; readonly code: 'connect_failed' | 'not_dispatched'; readonly message: string }
  | {
      readonly kind: 'answer';
      readonly status: number;
      /**
       * `cut`: the status line came, but not the whole body, or the body was longer than the limit. `unreadable`: the
       * body came, but is not JSON with a single meaning.
       */
      readonly body: 'whole' | 'cut' | 'unreadable';
      /** The whole body if it is JSON. */
      readonly json: Json | undefined;
    }
  /** The answer of a tool whose answers are streams began and is not whole. The work may have ended with it. */
  | { readonly kind: 'broken'; readonly status: number; readonly code: string; readonly message: string }
  /** A byte was written, and no readable answer came. */
  | { readonly kind: 'lost'; readonly code: 'timeout' | 'reset' | 'malformed'; readonly message: string };

export type Outcome = 'committed' | 'failed' | 'unknown';

export interface Classified {
  readonly outcome: Outcome;
  /** Evidence code: `http_status`, `declared`, or the code of what was seen. */
  readonly code: string;
  readonly message: string;
  /** 202: accepted, not finished. */
  readonly accepted: boolean;
  readonly responseTruncated: boolean;
  /** The upstream said that it did nothing because it is busy: the same request may be welcome later. */
  readonly busy: boolean;
}

/** The statuses that say "not now". Whether nothing was done is another question, except after 429. */
const NOT_NOW: ReadonlySet<number> = new Set([429, 503, 529]);

/** Client errors that say that the server did nothing. */
const REFUSALS: ReadonlySet<number> = new Set([
  400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 419, 420, 421, 422, 423,
  424, 426, 428, 429, 431, 451,
]);

/**
 * What an answer means, as one table. A tool's declared outcomes come first, body before status. Then comes the status.
 */
export function classify(kind: 'read' | 'write', outcomes: OutcomeMap, seen: Seen): Classified {
  switch (seen.kind) {
    case 'nothing_sent':
      return row('failed', seen.code, seen.message);
    case 'lost':
      return row(kind === 'read' ? 'failed' : 'unknown', seen.code, seen.message);
    case 'broken':
      return row(
        kind === 'read' ? 'failed' : 'unknown',
        seen.code,
        `the upstream answered ${seen.status}, and ${seen.message}`,
      );
    case 'answer': {
      const classified = classifyAnswer(kind, outcomes, seen);
      return classified.outcome === 'failed' && NOT_NOW.has(seen.status) ? { ...classified, busy: true } : classified;
    }
  }
}

function classifyAnswer(
  kind: 'read' | 'write',
  outcomes: OutcomeMap,
  seen: Extract<Seen, { kind: 'answer' }>,
): Classified {
  const { status } = seen;
  const cut = seen.body === 'cut';
  const accepted = status === 202;
  const reason = `the upstream answered ${status}${cut ? ', and its body was cut' : ''}`;
  const declared = cut ? null : declaredByBody(outcomes, seen.json);
  if (declared !== null) {
    return { ...row(declared, 'declared', `${reason} with a body that the tool's outcomes map`), accepted };
  }
  const byStatus = declaredByStatus(outcomes, status);
  if (byStatus !== null && !(cut && kind === 'read')) {
    return {
      ...row(byStatus, 'declared', `${reason}, which the tool's outcomes map`),
      accepted,
      responseTruncated: cut && byStatus === 'committed',
    };
  }
  // If the body decides but cannot be read, the status line alone is not enough.
  const unasked = seen.body !== 'whole';
  if (status >= 200 && status < 300) {
    if (kind === 'read') return row(cut ? 'failed' : 'committed', 'http_status', reason);
    if (status === 207) return row('unknown', 'http_status', `${reason}, which says nothing of the whole`);
    if (unasked && outcomes.body.length > 0)
      return row('unknown', 'http_status', `${reason}, and its body cannot be asked`);
    return { ...row('committed', 'http_status', reason), accepted, responseTruncated: cut };
  }
  if (kind === 'read') return row('failed', 'http_status', reason);
  if (status >= 300 && status < 400) {
    // These three redirect a POST to a GET of its result, so the action may have happened.
    return row(status === 301 || status === 302 || status === 303 ? 'unknown' : 'failed', 'http_status', reason);
  }
  if (unasked && outcomes.body.some(({ outcome }) => outcome !== 'failed'))
    return row('unknown', 'http_status', reason);
  return row(REFUSALS.has(status) ? 'failed' : 'unknown', 'http_status', reason);
}

function row(outcome: Outcome, code: string, message: string): Classified {
  return { outcome, code, message, accepted: false, responseTruncated: false, busy: false };
}

function declaredByStatus(outcomes: OutcomeMap, status: number): Outcome | null {
  // If entries contradict each other, the most cautious one wins.
  if (outcomes.unknown.includes(status)) return 'unknown';
  if (outcomes.failed.includes(status)) return 'failed';
  if (outcomes.committed.includes(status)) return 'committed';
  return null;
}

function declaredByBody(outcomes: OutcomeMap, json: Json | undefined): Outcome | null {
  if (json === undefined) return null;
  for (const entry of outcomes.body) {
    const value = valueAt(json, entry.path);
    if (value !== undefined && canonicalJson(value) === canonicalJson(entry.equals)) return entry.outcome;
  }
  return null;
}

/** The value at a dotted path (`error.code`, `items.0.state`), own members only. */
export function valueAt(json: Json, path: string): Json | undefined {
  let value: Json | undefined = json;
  for (const name of path.split('.')) {
    if (isJsonObject(value)) value = Object.hasOwn(value, name) ? value[name] : undefined;
    else if (Array.isArray(value) && /^\d+$/.test(name)) value = value[Number(name)];
    else return undefined;
  }
  return value;
}
