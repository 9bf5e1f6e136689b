import { type Fault, SvcError } from './error.ts';
import type { Json, JsonObject } from './json.ts';
import { isObject } from './wire.ts';

/** The part of `fetch` that the client uses. */
export type Fetch = (
  url: string,
  init: { method: string; headers: Record<string, string>; body?: string; redirect: 'error'; signal: AbortSignal },
) => Promise<{
  status: number;
  headers: { get(name: string): string | null };
  text(): Promise<string>;
  /** Only for what comes in pieces. */
  readonly body?: unknown;
}>;

/** One exchange with the gateway. */
export interface Exchange {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly path: string;
  readonly body?: JsonObject;
  /**
   * Whether sending it twice has the same effect as once. If not, it is sent again only after a refusal before
   * acceptance (429).
   */
  readonly repeatable: boolean;
  readonly signal?: AbortSignal | undefined;
  /** For a call, and a look at what has become of it: its idempotency key, for the error; `null` where it is not known. */
  readonly key?: string | null;
}

export interface Connection {
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly fetch: Fetch;
  /** How often it is sent at most, including the first time. */
  readonly attempts: number;
  /** For each sending, in ms. */
  readonly timeoutMs: number;
}

/** The request was not accepted (408: it did not arrive completely in time), or nobody is there. */
const GATEWAY_GONE = [408, 502, 503, 504];

/**
 * Sends a request until there is an answer. After a lost connection, 408, 429 or 502 to 504 it sends the same body
 * again, at most `attempts` times in all. An answer with a decision is always an answer, whatever its status.
 * @throws SvcError for a problem document, or when no answer came
 */
export async function exchange(to: Connection, request: Exchange): Promise<Json> {
  for (let attempt = 1; ; attempt++) {
    const outcome = await once(to, request);
    if (!(outcome instanceof SvcError)) return outcome;
    const again =
      outcome.status === 429 || (request.repeatable && (outcome.status === 0 || GATEWAY_GONE.includes(outcome.status)));
    if (!again || attempt >= to.attempts || request.signal?.aborted) throw outcome;
    const backoff = 100 * 2 ** attempt * (0.5 + Math.random() / 2);
    await pause(Math.min(outcome.retryAfterMs ?? backoff, 30_000), request.signal);
  }
}

/**
 * Sends a request whose answer is taken piece by piece. It is sent once; the time limit is for the first piece alone.
 * @throws SvcError for a problem document, or when no answer came
 */
export async function exchangeInPieces(to: Connection, path: string): Promise<AsyncIterable<Uint8Array>> {
  const details = { idempotencyKey: null, didItHappen: 'no' } as const;
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), to.timeoutMs);
  try {
    const { fetch } = to;
    const headers = { 'x-api-key': to.apiKey };
    const answer = await fetch(to.baseUrl + path, { method: 'GET', headers, redirect: 'error', signal: limit.signal });
    const { body } = answer;
    if (answer.status < 300 && isPieces(body)) return body;
    throw problem(answer, parse(await answer.text()), { ...details, baseUrl: to.baseUrl });
  } catch (cause) {
    if (cause instanceof SvcError) throw cause;
    throw new SvcError('no_answer', `No answer from ${to.baseUrl}`, { ...details, cause });
  } finally {
    clearTimeout(timer);
  }
}

function isPieces(body: unknown): body is AsyncIterable<Uint8Array> {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
}

async function once(to: Connection, request: Exchange): Promise<Json | SvcError> {
  // If the answer to a vote, a claim or a pause is lost, it may still be in force, just as a call may have run.
  const details = {
    idempotencyKey: request.key ?? null,
    didItHappen: request.method === 'GET' && request.key === undefined ? 'no' : 'maybe',
  } as const;
  const limit = AbortSignal.timeout(to.timeoutMs);
  try {
    request.signal?.throwIfAborted();
    const { fetch } = to; // unbound: some runtimes refuse a `this` that is not the global object
    const answer = await fetch(to.baseUrl + request.path, {
      method: request.method,
      headers: {
        'x-api-key': to.apiKey,
        accept: 'application/json',
        ...(request.body && { 'content-type': 'application/json' }),
      },
      ...(request.body && { body: JSON.stringify(request.body) }),
      redirect: 'error',
      signal: request.signal ? AbortSignal.any([request.signal, limit]) : limit,
    });
    const body = parse(await answer.text());
    if (body !== undefined && (answer.status < 300 || (isObject(body) && typeof body['decision'] === 'string')))
      return body;
    return problem(answer, body, { ...details, baseUrl: to.baseUrl }, request.method === 'GET');
  } catch (cause) {
    if (request.signal?.aborted) return new SvcError('aborted', 'The caller gave up', { ...details, cause });
    return new SvcError('no_answer', `No answer from ${to.baseUrl}`, { ...details, cause });
  }
}

function parse(text: string): Json | undefined {
  try {
    return JSON.parse(text || 'null') as Json;
  } catch {
    return undefined;
  }
}

function problem(
  answer: { status: number; headers: { get(name: string): string | null } },
  body: Json | undefined,
  details: { idempotencyKey: string | null; didItHappen: 'maybe' | 'no'; baseUrl: string },
  isRead = true,
): SvcError {
  const { status } = answer;
  const retryAfter = Number(answer.headers.get('retry-after') ?? Number.NaN);
  const known = { ...details, status, retryAfterMs: Number.isFinite(retryAfter) ? retryAfter * 1000 : null };
  if (!isObject(body) || typeof body['code'] !== 'string')
    return new SvcError('bad_answer', `HTTP ${status} without a body of the gateway`, known);
  // What refuses to look says nothing of the call.
  const happened = isRead ? null : body['did_it_happen'];
  return new SvcError(body['code'], text(body['detail']) ?? text(body['title']) ?? body['code'], {
    ...known,
    errors: (body['errors'] ?? []) as unknown as readonly Fault[],
    requestId: text(body['request_id']) ?? null,
    ...(happened === 'yes' || happened === 'no' || happened === 'maybe' ? { didItHappen: happened } : {}),
  });
}

function text(value: Json | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** Resolves after `ms`, or at once if the caller gives up. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
    function done(): void {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    }
  });
}
