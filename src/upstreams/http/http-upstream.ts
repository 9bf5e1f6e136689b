import { createHash, hash } from 'node:crypto';
import type { Amounts, AnswerHead, HttpAnswer, PassedOnAnswer, PassedOnFacts } from '../../effects/model/answer.ts';
import { type Evidence, BUSY } from '../../effects/model/effect.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { type CallFiles, NO_FILES } from '../../effects/model/files.ts';
import type { HttpTool } from '../../effects/model/tool.ts';
import type { Dispatch, StateReading, UpstreamResult, HeaderSettings, UpstreamTls } from '../../effects/upstream.ts';
import { type Attempt, attempt, type AttemptOptions, type AttemptRequest, type Passing } from './attempt.ts';
import {
  type Classified,
  classify,
  headersBack,
  headersKept,
  isJson,
  type ReadAnswer,
  readAnswer,
  type Seen,
} from './answer.ts';
import type { Connections } from './connections.ts';
import { isEventStream, endOfEvent } from './events.ts';
import { amountsIn, createEventAmounts } from './read-amounts.ts';
import { planOf, type RenderedRequest, renderRequest } from './request-template.ts';
import { sentBody } from './sent-body.ts';
import { isUtf8 } from 'node:buffer';

export interface UpstreamSettings {
  readonly id: string;
  /** An http or https origin. */
  readonly url: string;
  readonly timeoutMs: number;
  readonly connections: number;
  readonly network: 'any' | 'public';
  readonly credentials: { readonly header: string; readonly value: string } | null;
  /** Absent if it has no rules of its own. */
  readonly headers?: HeaderSettings;
  /** Absent, or `null`, if nothing is configured. */
  readonly tls?: UpstreamTls | null;
}

export interface UpstreamLimits {
  /** The most bytes of an answer that are read. */
  readonly responseBytes: number;
  /** The most bytes of an answer that are kept for duplicates. */
  readonly responseKeptBytes: number;
}

export interface HttpUpstream {
  readonly settings: UpstreamSettings;
  readonly connections: Connections;
  readonly limits: UpstreamLimits;
  /** ms since the epoch, for evidence. */
  readonly now: () => number;
}

/**
 * Sends a dispatch, once. Never throws: every failure is a result. If the request might have reached the upstream, the
 * result is `unknown`.
 */
export function sendDispatch(upstream: HttpUpstream, dispatch: Dispatch, tool: HttpTool): Promise<UpstreamResult> {
  let request: RenderedRequest;
  try {
    request = requestOf(upstream, dispatch, tool);
  } catch (error) {
    return Promise.resolve(notDispatched(error instanceof Error ? error.message : 'the request cannot be made', null));
  }
  const passing = passingTo(upstream, dispatch, tool);
  const options: AttemptOptions = {
    gate: dispatch.gate,
    timeoutMs: tool.timeoutMs,
    stream: tool.streams ?? null,
    passing,
    responseBytes: upstream.limits.responseBytes,
    now: upstream.now,
  };
  const { sending, digest } = digested(request, dispatch.files);
  return attemptOn(upstream, sending, options, (outcome) =>
    resultOfAttempt(upstream, dispatch, tool, outcome, passing, digest),
  );
}

/** @param digest of what was sent */
function resultOfAttempt(
  upstream: HttpUpstream,
  dispatch: Dispatch,
  tool: HttpTool,
  result: Attempt,
  passing: PassingOn | null,
  digest: () => string | null,
): UpstreamResult {
  const { outcomes } = tool.call;
  const sent = 'startedAt' in result ? digest() : null;
  const endedAt = upstream.now();
  switch (result.kind) {
    case 'held_back':
      return {
        kind: 'held_back',
        by: result.by,
        evidence: {
          code: 'not_dispatched',
          message: result.by === 'late' ? 'the time to send it was over' : 'a pause was heard before it was sent',
          answered: null,
          startedAt: null,
          endedAt,
        },
      };
    case 'nothing_sent':
      return resultOf(
        classify(tool.kind, outcomes, { ...result, code: 'connect_failed' }),
        result,
        endedAt,
        null,
        null,
      );
    case 'lost':
      return resultOf(classify(tool.kind, outcomes, result), result, endedAt, null, sent);
    case 'passed_on': {
      const { status, broke } = result;
      const seen: Seen =
        broke === null
          ? { kind: 'answer', status, body: 'whole', json: undefined }
          : { kind: 'broken', status, ...broke };
      return resultOf(classify(tool.kind, outcomes, seen), result, endedAt, passing?.read() ?? null, sent);
    }
    case 'answer': {
      const setCookie = dispatch.proxied?.kind === 'http' && dispatch.proxied.setCookie;
      const read = readAnswer(result, {
        responseKeptBytes: upstream.limits.responseKeptBytes,
        setCookie,
        wantsJson: outcomes.body.length > 0 || tool.actual !== undefined,
      });
      const isBroken = !result.whole && tool.streams !== undefined && result.status < 300;
      const seen: Seen = isBroken
        ? { kind: 'broken', status: result.status, code: 'reset', message: 'its answer broke off' }
        : {
            kind: 'answer',
            status: result.status,
            body: !result.whole ? 'cut' : read.json === undefined && result.body.length > 0 ? 'unreadable' : 'whole',
            json: read.json,
          };
      return resultOf(
        classify(tool.kind, outcomes, seen),
        result,
        endedAt,
        tool.actual === undefined ? read : { ...read, ...spentIn(tool, result, read.json) },
        sent,
      );
    }
  }
}

/** Reads the live state that a tool's `state` request names. */
export async function readToolState(upstream: HttpUpstream, tool: HttpTool, params: JsonObject): Promise<StateReading> {
  const { state } = tool.call;
  if (state === null) return unreadable('the tool declares no request for its state');
  let request: RenderedRequest;
  try {
    const rendered = renderRequest(planOf(state), params);
    const headers = { ...OWN_HEADERS, ...rendered.headers };
    addCredentials(headers, upstream.settings);
    request = { ...rendered, headers };
  } catch (error) {
    return unreadable(error instanceof Error ? error.message : 'the request cannot be made');
  }
  const deadline = performance.now() + tool.timeoutMs;
  const options: AttemptOptions = {
    gate: () => (performance.now() < deadline ? 'go' : 'late'),
    timeoutMs: tool.timeoutMs,
    stream: null,
    passing: null,
    responseBytes: upstream.limits.responseBytes,
    now: upstream.now,
  };
  return attemptOn(upstream, digested(request, NO_FILES).sending, options, stateOfAttempt);
}

function stateOfAttempt(result: Attempt): StateReading {
  switch (result.kind) {
    case 'passed_on':
    case 'held_back':
      return unreadable('no connection became free in time');
    case 'nothing_sent':
    case 'lost':
      return unreadable(result.message);
    case 'answer': {
      if (result.status < 200 || result.status > 299) return unreadable(`the upstream answered ${result.status}`);
      if (!result.whole) return unreadable('the answer was cut, or longer than what is read');
      const { json } = readAnswer(result, { responseKeptBytes: 0, setCookie: false, wantsJson: true });
      return isJsonObject(json) ? { kind: 'read', state: json } : unreadable('the answer is not a JSON object');
    }
  }
}

/** An answer that was read: what goes to the caller, and what is kept. */
type Read = Pick<ReadAnswer, 'result'> & Spent & { readonly answer: HttpAnswer | PassedOnAnswer };

/** Of a tool that says where it stands, what was really spent. */
interface Spent {
  readonly amounts?: Amounts;
}

function spentIn({ actual }: HttpTool, { headers, body }: Pick<Answered, 'headers' | 'body'>, json?: Json): Spent {
  if (actual === undefined) return {};
  if (!isPlainEvents(headers)) return { amounts: amountsIn(actual, json) };
  const events = createEventAmounts(actual);
  events.take(body);
  return { amounts: events.amounts() };
}

type Answered = Extract<Attempt, { kind: 'answer' }>;

function isPlainEvents(headers: Answered['headers']): boolean {
  return isEventStream(headers['content-type']) && headers['content-encoding'] === undefined;
}

interface PassingOn extends Passing {
  /** `null` if nothing was passed on. Called once, when nothing more comes. */
  read(): Read | null;
}

/**
 * Passes an answer on if it is a stream that may be committed. JSON is no stream: nobody can use a part of it, and as a
 * whole it is told apart, kept, and sent with its decision.
 */
function passingTo({ limits }: HttpUpstream, { listener, proxied }: Dispatch, tool: HttpTool): PassingOn | null {
  if (listener === null || tool.streams === undefined) return null;
  const passed = createPassedOn(limits.responseKeptBytes);
  let head: AnswerHead | null = null;
  let events: ReturnType<typeof createEventAmounts> | null = null;
  return {
    begin(status, incoming) {
      const seen: Seen = { kind: 'answer', status, body: 'whole', json: undefined };
      const type = incoming['content-type'];
      if (classify(tool.kind, tool.call.outcomes, seen).outcome !== 'committed' || type === undefined || isJson(type))
        return false;
      head = { kind: 'http', status, headers: headersBack(incoming, proxied?.kind === 'http' && proxied.setCookie) };
      if (tool.actual !== undefined && isPlainEvents(incoming)) events = createEventAmounts(tool.actual);
      listener.begin(head);
      return true;
    },
    write(piece) {
      passed.take(piece);
      events?.take(piece);
      return listener.write(piece);
    },
    read() {
      if (head === null) return null;
      const { status, headers } = head;
      const body = { kind: 'passed_on', value: passed.facts() } as const;
      return {
        answer: { kind: 'passed_on' },
        ...(tool.actual === undefined ? {} : { amounts: events?.amounts() ?? amountsIn(tool.actual, undefined) }),
        result: { kind: 'http', status, headers: headersKept(headers), body, truncated: false },
      };
    },
  };
}

function attemptOn<Result>(
  { connections }: HttpUpstream,
  request: AttemptRequest,
  options: AttemptOptions,
  read: (outcome: Attempt) => Result,
): Promise<Result> {
  const connection = connections.take();
  return connection === null
    ? attemptWhenFree(connections, request, options, read)
    : attempt(connection, request, options, connections.release, read);
}

async function attemptWhenFree<Result>(
  connections: Connections,
  request: AttemptRequest,
  options: AttemptOptions,
  read: (outcome: Attempt) => Result,
): Promise<Result> {
  const connection = await connections.wait(() => options.gate() === 'go');
  if (connection !== null) return attempt(connection, request, options, connections.release, read);
  const gate = options.gate();
  return read(
    gate === 'go'
      ? { kind: 'nothing_sent', message: 'the gateway closes its connections' }
      : { kind: 'held_back', by: gate },
  );
}

const OWN_HEADERS = { 'user-agent': 'svc-gateway', accept: '*/*' };

function requestOf({ settings }: HttpUpstream, dispatch: Dispatch, tool: HttpTool): RenderedRequest {
  // The original bytes go on, so that what was evaluated is what is sent.
  const { proxied } = dispatch;
  const request = proxied?.kind === 'http' ? proxied : renderRequest(planOf(tool.call.request), dispatch.params);
  const { method, pathAndQuery, body } = request;
  // Every call comes here: spreads of these would cost 3 µs more.
  const headers: Record<string, string> = Object.assign({}, OWN_HEADERS, request.headers, dispatch.headers);
  // A body that is written anew has another boundary than the caller's type names.
  if (body !== null && !Buffer.isBuffer(body) && body.contentType !== null) headers['content-type'] = body.contentType;
  // The upstream's own key, if the tool says that the upstream removes duplicates by it.
  if (tool.idempotent.kind === 'header') headers[tool.idempotent.header.toLowerCase()] = dispatch.upstreamKey;
  addCredentials(headers, settings);
  return { method, pathAndQuery, headers, body };
}

function addCredentials(headers: Record<string, string>, { credentials }: UpstreamSettings): void {
  if (credentials !== null) headers[credentials.header.toLowerCase()] = credentials.value;
}

/** A buffer that is reused. Most requests fit, and one digest over everything costs a third of several updates. */
const SCRATCH_BYTES = 4096;
const scratch = Buffer.alloc(SCRATCH_BYTES);

/** A character of UTF-16 takes at most this many bytes of UTF-8. */
const MOST_BYTES = 3;

/**
 * The digest of the bytes that a receipt commits to: method, path with query, and body. Credentials and transport are
 * left out.
 */
function digestOf({ method, pathAndQuery }: RenderedRequest, body: Buffer | null): string {
  const line = `${method} ${pathAndQuery}\n`;
  const length = body?.length ?? 0;
  if (line.length * MOST_BYTES + length > SCRATCH_BYTES) {
    const digest = createHash('sha256').update(line);
    if (body !== null) digest.update(body);
    return digest.digest('base64url');
  }
  const at = scratch.write(line, 'utf8');
  body?.copy(scratch, at);
  return hash('sha256', scratch.subarray(0, at + length), 'base64url');
}

/**
 * A request as it is sent, and the digest of its bytes. The digest of a body in pieces is made as they are sent: `null`
 * if not all of them were.
 */
function digested(
  request: RenderedRequest,
  files: CallFiles,
): { readonly sending: AttemptRequest; readonly digest: () => string | null } {
  const { method, pathAndQuery, body } = request;
  if (body === null || Buffer.isBuffer(body))
    return { sending: { method, pathAndQuery, headers: request.headers, body }, digest: () => digestOf(request, body) };
  const digest = createHash('sha256').update(`${method} ${pathAndQuery}\n`);
  let isWhole = false;
  const sent = sentBody(
    body,
    files,
    (bytes) => digest.update(bytes),
    () => {
      isWhole = true;
    },
  );
  const headers = { ...request.headers, 'content-length': String(body.length) };
  return { sending: { ...request, headers, body: sent }, digest: () => (isWhole ? digest.digest('base64url') : null) };
}

function resultOf(
  classified: Classified,
  attempted: Attempt,
  endedAt: number,
  read: Read | null,
  sent: string | null,
): UpstreamResult {
  const { message } = classified;
  const busy = classified.busy ? notNow(attempted, endedAt) : null;
  const code = busy === null ? classified.code : BUSY;
  const answered = read === null ? null : ({ kind: 'http', status: read.result.status } as const);
  const startedAt = 'startedAt' in attempted ? attempted.startedAt : null;
  const evidence: Evidence =
    sent === null
      ? { code, message, answered, startedAt, endedAt }
      : { sent, code, message, answered, startedAt, endedAt };
  switch (classified.outcome) {
    case 'committed': {
      if (read === null) return { kind: 'unknown', evidence };
      const { accepted, responseTruncated } = classified;
      const { answer, result, amounts } = read;
      const committed = { kind: 'committed', evidence, answer, result, accepted, responseTruncated } as const;
      return amounts === undefined ? committed : { ...committed, amounts };
    }
    case 'failed':
      return { kind: 'failed', evidence, answer: read?.answer ?? null, result: read?.result ?? null, ...busy };
    case 'unknown':
      return { kind: 'unknown', evidence };
  }
}

function notDispatched(message: string, endedAt: number | null): UpstreamResult {
  return {
    kind: 'failed',
    evidence: { code: 'not_dispatched', message, answered: null, startedAt: null, endedAt },
    answer: null,
    result: null,
  };
}

function unreadable(message: string): StateReading {
  return { kind: 'unreadable', message };
}

/** The most bytes of the end of an answer that was passed on which are kept. */
const MOST_TAIL = 4096;

/** @param keptBytes the most bytes that may be kept of an answer */
export function createPassedOn(keptBytes: number): {
  take(piece: Buffer): void;
  facts(): PassedOnFacts;
} {
  const most = Math.min(keptBytes, MOST_TAIL);
  const digest = createHash('sha256');
  let bytes = 0;
  let tail = Buffer.alloc(0);
  return {
    take(piece) {
      bytes += piece.byteLength;
      digest.update(piece);
      // A copy: a slice would keep the whole piece, and all that was read with it, in memory.
      const before =
        piece.byteLength < most ? tail.subarray(Math.max(0, tail.byteLength + piece.byteLength - most)) : [];
      tail = Buffer.concat([Buffer.from(before), piece.subarray(Math.max(0, piece.byteLength - most))]);
    },
    facts: () => ({ bytes, sha256: digest.digest('hex'), tail: tailText(tail, bytes > tail.byteLength) }),
  };
}

/** @param isCut whether something came before it */
function tailText(tail: Buffer, isCut: boolean): string | null {
  if (!isCut) return isUtf8(tail) ? tail.toString('utf8') : null;
  // The first event is cut, and perhaps a character.
  const start = endOfEvent(tail);
  for (let from = start; from <= start + 3; from += 1) {
    const end = tail.subarray(from);
    if (isUtf8(end)) return end.toString('utf8');
  }
  return null;
}

/** A library waits a minute at most; nobody waits longer than this. */
const MOST_MS = 24 * 60 * 60 * 1000;

/** What a busy upstream says about another try. @returns `null` where it says that there should be none */
export function notNow(attempted: Attempt, now: number): { readonly retryAfterMs?: number } | null {
  if (attempted.kind !== 'answer') return {};
  const { headers } = attempted;
  if (headers['x-should-retry'] === 'false' || headers['stripe-should-retry'] === 'false') return null;
  const retryAfterMs = delayOf(headers['retry-after-ms'], headers['retry-after'], now);
  return retryAfterMs === null ? {} : { retryAfterMs };
}

type Value = string | string[] | undefined;

function delayOf(milliseconds: Value, after: Value, now: number): number | null {
  if (typeof milliseconds === 'string' && NUMBER.test(milliseconds)) return Math.min(MOST_MS, Number(milliseconds));
  if (typeof after !== 'string') return null;
  if (NUMBER.test(after)) return Math.min(MOST_MS, Number(after) * 1000);
  // `Date.parse` takes many texts for dates that are none in HTTP.
  const date = after.endsWith(' GMT') ? Date.parse(after) : Number.NaN;
  return Number.isNaN(date) ? null : Math.min(MOST_MS, Math.max(0, date - now));
}

const NUMBER = /^\d+(?:\.\d+)?$/;
