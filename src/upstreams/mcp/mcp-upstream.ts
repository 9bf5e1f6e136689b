import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { KeptMessage } from '../../effects/model/answer.ts';
import type { Evidence } from '../../effects/model/effect.ts';
import { beginning } from '../../effects/model/shortened.ts';
import type { McpCall } from '../../effects/model/tool.ts';
import type { Dispatch, MessageListener, ProxiedMessage, UpstreamResult } from '../../effects/upstream.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { jsonParts } from '../../json/write.ts';
import { statelessVersion } from '../../mcp-protocol/revisions.ts';
import { isTask } from '../../mcp-protocol/tasks.ts';
import { connectionNames, passesBack } from '../http/answer.ts';
import { open, type Opened } from './open.ts';
import { type Guarded, guarded, isPacked, type NamesGateway } from './own-addresses.ts';
import { answerServer, OwnSession } from './own-session.ts';
import { type PinWatch, CHANGED } from './pin-watch.ts';
import { eventOf, serverEvents } from './server-events.ts';
import { withCredentials, type Reached } from './server-requests.ts';
import { inSharedSession, ownCall } from './shared-session.ts';
import type { McpUpstreamSettings } from './settings.ts';
import { TooLong, wholeOf } from './whole-answer.ts';

export interface McpUpstream {
  readonly settings: McpUpstreamSettings;
  readonly through: Pick<Dispatcher, 'dispatch'>;
  /** For calls that come without a session of their own. */
  readonly session: OwnSession;
  /** For calls of agents that are in no session with this one server. */
  readonly agentSessions: AgentSessions;
  /** Whether its tools are as they were pinned. */
  readonly pins: PinWatch;
  readonly limits: { readonly responseBytes: number; readonly responseKeptBytes: number };
  /** What no server may have the users of clients visit. */
  readonly namesGateway: NamesGateway;
  readonly now: () => number;
}

/** How soon a stream that the server ended is taken up again where it does not say, and at the soonest, ms. */
const RESUME_MS = 1_000;
const RESUME_SOONEST_MS = 100;

/** How long a server may leave a stream open behind the answer, ms. */
const END_MS = 1_000;

const NO_LISTENER: MessageListener = {
  began: () => undefined,
  passed: () => undefined,
  ended: () => undefined,
  refused: () => undefined,
};

type Heard =
  | { readonly kind: 'message'; readonly message: JsonObject; readonly rest: string }
  | { readonly kind: 'refused'; readonly status: number; readonly message: JsonObject | null }
  | { readonly kind: 'lost'; readonly code: 'timeout' | 'reset' | 'malformed'; readonly message: string };

type Ended = Heard | { readonly kind: 'paused'; readonly lastEventId: string; readonly retryMs: number };

/** Sends a call of a tool, once. Never throws. What may have reached the server and has no answer is `unknown`. */
export async function sendCall(upstream: McpUpstream, dispatch: Dispatch, call: McpCall): Promise<UpstreamResult> {
  const { tool, params, proxied } = dispatch;
  const through = await throughOf(upstream, dispatch, call, proxied?.kind === 'message' ? proxied : null);
  if (typeof through === 'string') return notSent(upstream, 'connect_failed', through);
  const { id, rest, headers } = through;
  const callParams = { ...rest, ...sentParams(call, params, rest) };
  const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: callParams }));
  const sent = createHash('sha256').update(body).digest('base64url');
  const deadline = new Deadline(tool.timeoutMs, through.signal);
  const request = {
    method: 'POST',
    path: upstream.settings.mcp.path,
    headers: withOwn(upstream.settings, { ...dispatch.headers, ...headers, 'content-type': 'application/json' }),
    body,
  } as const;
  try {
    const { signal } = deadline;
    const opened = await open(upstream.through, request, { gate: dispatch.gate, signal, now: upstream.now });
    switch (opened.kind) {
      case 'held_back': {
        const message = opened.by === 'late' ? 'the time to send it was over' : 'a pause was heard before it was sent';
        return { kind: 'held_back', by: opened.by, evidence: { ...NOT_SENT, message, endedAt: upstream.now() } };
      }
      case 'nothing_sent':
        return notSent(upstream, 'connect_failed', opened.message);
      case 'lost':
      case 'answer': {
        const heard = await hear(upstream, opened, id, { headers: request.headers, deadline }, through.hears);
        if (heard.kind === 'refused' && NOT_TAKEN.includes(heard.status)) through.notTaken();
        const { startedAt } = opened;
        const asked = { kind: tool.kind, call, isStateless: statelessVersion(rest) !== null };
        return resultOf(upstream, asked, heard, { sent, startedAt, endedAt: upstream.now() });
      }
    }
  } finally {
    deadline.end();
  }
}

/** The name and the arguments of a call, and what of `_meta` is among its params. */
function sentParams({ name, meta }: McpCall, params: JsonObject, { _meta: protocol }: JsonObject): JsonObject {
  if (meta === undefined || !isJsonObject(params['_meta'])) return { name, arguments: params };
  const { _meta: needed, ...given } = params;
  return {
    name,
    arguments: given,
    _meta: { ...(isJsonObject(protocol) && protocol), ...(isJsonObject(needed) && needed) },
  };
}

/** What a call is sent with, and who hears the answer. */
interface Through extends Pick<ProxiedMessage, 'id' | 'rest' | 'headers' | 'hears'> {
  readonly signal: AbortSignal | null;
  notTaken(): void;
}

/** By these a server says that it knows the session no more, or is not spoken to in this way. */
const NOT_TAKEN: readonly number[] = [400, 404];

/** What a call is sent with: in the session of its caller, or in one of the gateway's own; or why it cannot be sent. */
async function throughOf(
  upstream: McpUpstream,
  { tool, params }: Dispatch,
  call: McpCall,
  message: ProxiedMessage | null,
): Promise<Through | string> {
  // The caller begins another itself.
  if (message !== null && message.sessionOf === null) return { ...message, notTaken: () => undefined };
  const session =
    message?.sessionOf == null ? upstream.session : upstream.agentSessions.of(message.sessionOf, upstream);
  const entered = await session.enter(upstream, tool.timeoutMs);
  if (typeof entered === 'string') return entered;
  const { begun } = entered;
  const own = ownCall(entered, call, params);
  const notTaken = (): void => void session.forget(begun);
  if (message === null) return { ...own, hears: NO_LISTENER, signal: null, notTaken };
  return { ...inSharedSession(message, own, (answer) => answerServer(upstream, begun, answer)), notTaken };
}

interface Hearing {
  readonly headers: Readonly<Record<string, string>>;
  readonly deadline: Deadline;
}

/** Hears the answer to the end; takes the stream up again where the server ends it before it has answered. */
async function hear(
  upstream: McpUpstream,
  first: Extract<Opened, { kind: 'lost' | 'answer' }>,
  id: string | number,
  hearing: Hearing,
  listener: MessageListener,
): Promise<Heard> {
  let opened: Opened = first;
  for (let isFirst = true; ; isFirst = false) {
    const ended: Ended =
      opened.kind === 'answer'
        ? await hearOne(upstream, opened, id, hearing, listener, isFirst)
        : {
            kind: 'lost',
            code: hearing.deadline.isOver ? 'timeout' : 'reset',
            message: 'the connection broke before the answer came',
          };
    if (ended.kind !== 'paused') return ended;
    const { 'content-type': _type, ...headers } = hearing.headers;
    try {
      await delay(Math.max(RESUME_SOONEST_MS, ended.retryMs), undefined, { signal: hearing.deadline.signal });
    } catch {
      return { kind: 'lost', code: 'timeout', message: 'the server ended the stream without an answer' };
    }
    opened = await open(
      upstream.through,
      {
        method: 'GET',
        path: upstream.settings.mcp.path,
        headers: { ...headers, accept: 'text/event-stream', 'last-event-id': ended.lastEventId },
        body: null,
      },
      { gate: () => 'go', signal: hearing.deadline.signal, now: upstream.now },
    );
  }
}

async function hearOne(
  upstream: McpUpstream,
  opened: Extract<Opened, { kind: 'answer' }>,
  id: string | number,
  { deadline }: Hearing,
  listener: MessageListener,
  isFirst: boolean,
): Promise<Ended> {
  const { status, headers, body } = opened;
  const lost = (code: 'reset' | 'malformed', message: string): Heard =>
    deadline.isOver
      ? { kind: 'lost', code: 'timeout', message: 'no answer within the time-out' }
      : { kind: 'lost', code, message };
  let lastEventId: string | null = null;
  let retryMs = RESUME_MS;
  let isAnswered = false;
  try {
    const type = String(headers['content-type'] ?? '');
    if (!isFirst && status !== 200) return lost('reset', `the stream cannot be taken up again (${status})`);
    if (status !== 200 || !/^text\/event-stream\b/i.test(type)) {
      const received = await guardedWhole(headers, await wholeOf(body, upstream.limits.responseBytes), upstream);
      const { bytes: whole, message } = received;
      if (message !== null && isAnswer(message, id)) {
        if (status === 200) {
          listener.ended(message, '');
          return { kind: 'message', message, rest: '' };
        }
        if (isFirst) listener.refused({ kind: 'http', status, headers: headersOf(headers), body: whole });
        return { kind: 'refused', status, message };
      }
      if (status === 200) return lost('malformed', 'the server’s answer is not the answer to the call');
      listener.refused({ kind: 'http', status, headers: headersOf(headers), body: whole });
      return { kind: 'refused', status, message };
    }
    if (isFirst) listener.began({ kind: 'http', status, headers: headersOf(headers) });
    for await (const event of serverEvents(body.iterator({ destroyOnReturn: false }), upstream.limits.responseBytes)) {
      lastEventId = event.id ?? lastEventId;
      retryMs = event.retryMs ?? retryMs;
      const { data } = event;
      // Whoever calls: in a session that clients share, none of them hears it.
      if (data?.includes(CHANGED) === true) upstream.pins.doubt(upstream);
      const received = data === null ? null : await guarded(data, upstream.namesGateway);
      // What a client might read as something else than the gateway is left out.
      if (data !== null && received === null) continue;
      const message = received?.message ?? null;
      if (message !== null && isAnswer(message, id)) {
        isAnswered = true;
        listener.ended(message, event.rest);
        return { kind: 'message', message, rest: event.rest };
      }
      await listener.passed(
        received === null || received.bytes === data ? event.bytes : eventOf(event, received.bytes),
        message,
      );
    }
    if (lastEventId !== null && lastEventId !== '') return { kind: 'paused', lastEventId, retryMs };
    return lost('reset', 'the server ended the stream without an answer');
  } catch (error) {
    if (lastEventId !== null && lastEventId !== '' && !deadline.isOver) return { kind: 'paused', lastEventId, retryMs };
    return lost('reset', error instanceof TooLong ? error.message : 'the connection broke before the answer came');
  } finally {
    // Most servers end the stream right behind the answer, and then the connection carries the next call.
    if (isAnswered) endSoon(body);
    else body.destroy();
  }
}

function endSoon(body: Readable): void {
  const timer = setTimeout(() => body.destroy(), END_MS).unref();
  body.once('close', () => clearTimeout(timer)).resume();
}

/** An answer that is no stream; what must not go on is left out of it. */
async function guardedWhole(
  headers: Parameters<typeof isPacked>[0],
  bytes: Buffer,
  { namesGateway }: McpUpstream,
): Promise<Pick<Guarded, 'bytes' | 'message'>> {
  const nothing = { bytes: Buffer.alloc(0), message: null };
  return isPacked(headers) ? nothing : ((await guarded(bytes, namesGateway)) ?? nothing);
}

function isAnswer(message: JsonObject, id: string | number): boolean {
  return (
    message['method'] === undefined &&
    message['id'] === id &&
    (isJsonObject(message['result']) || isJsonObject(message['error']))
  );
}

export function headersOf(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): Readonly<Record<string, string | readonly string[]>> {
  const named = connectionNames(headers['connection']);
  const passed: Record<string, string | readonly string[]> = {};
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && passesBack(name, false, named)) passed[name] = value;
  return passed;
}

/** Adds what the gateway itself sends. */
export function withOwn(
  settings: McpUpstreamSettings,
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  return withCredentials(settings, { accept: 'application/json, text/event-stream', ...headers });
}

const NOT_SENT: Evidence = { code: 'not_dispatched', message: '', answered: null, startedAt: null, endedAt: null };

function notSent({ now }: McpUpstream, code: string, message: string): UpstreamResult {
  return { kind: 'failed', evidence: { ...NOT_SENT, code, message, endedAt: now() }, answer: null, result: null };
}

/**
 * JSON-RPC codes by which a server says that it has not begun. The last two: the client has to be able to do something,
 * and the user has to visit an address first.
 */
const NOT_BEGUN: readonly Json[] = [-32_700, -32_600, -32_601, -32_602, -32_021, -32_042];

/** What the answer to a call is read by. */
interface Asked {
  readonly kind: 'read' | 'write';
  readonly call: McpCall;
  /** In this era a result says itself whether it is one. */
  readonly isStateless: boolean;
}

function resultOf(
  upstream: McpUpstream,
  { kind, call, isStateless }: Asked,
  heard: Heard,
  seen: Pick<Evidence, 'sent' | 'startedAt' | 'endedAt'>,
): UpstreamResult {
  const evidence = (code: string, message: string): Evidence => ({
    ...seen,
    code,
    message,
    answered: heard.kind === 'lost' ? null : { kind: 'message' },
  });
  /** What did not go well: of a read nothing is left to know. */
  const bad = (code: string, message: string, received: Json | null, hasFailed: boolean): UpstreamResult => {
    if (kind === 'write' && !hasFailed) return { kind: 'unknown', evidence: evidence(code, message) };
    const answer = received === null ? null : ({ kind: 'message', message: received } as const);
    const result = received === null ? null : kept(received, upstream.limits.responseKeptBytes);
    return { kind: 'failed', evidence: evidence(code, message), answer, result };
  };
  switch (heard.kind) {
    case 'lost':
      return bad(heard.code, heard.message, null, false);
    case 'refused':
      // A server that refuses the request as such has not read the call. One that fails may have.
      return bad(
        `http_${heard.status}`,
        `the server answered ${heard.status}`,
        heard.message,
        heard.status >= 300 && heard.status < 500,
      );
    case 'message': {
      const { result, error } = heard.message;
      if (isJsonObject(error)) {
        const received = typeof error['message'] === 'string' ? error['message'].slice(0, 500) : 'it gives no reason';
        return bad(
          'rpc_error',
          `the server answered with an error: ${received}`,
          { error },
          NOT_BEGUN.includes(error['code'] ?? null),
        );
      }
      if (!isJsonObject(result)) return bad('malformed', 'the server’s answer has no result', null, false);
      const type = isStateless ? (result['resultType'] ?? 'complete') : 'complete';
      // Nothing is done yet: the client asks its user or model, and calls again with what they say.
      if (type === 'input_required') return bad('input_required', 'the tool asks for more input', result, true);
      if (type !== 'complete')
        return bad('result_type', `the server answered with a result of another kind: ${textOf(type)}`, result, false);
      if (isTask(result))
        return bad('task', 'the server answered with a task, which the gateway does not follow', result, false);
      if (result['isError'] === true)
        return bad('tool_error', 'the tool answered with an error', result, call.isError === 'failed');
      return {
        kind: 'committed',
        evidence: evidence('tool_result', 'the tool answered'),
        answer: { kind: 'message', message: result },
        result: kept(result, upstream.limits.responseKeptBytes),
        accepted: false,
        responseTruncated: false,
      };
    }
  }
}

function kept(message: Json, most: number): KeptMessage {
  const text = beginningOf(message, most);
  if (text === null) return { kind: 'message', body: { kind: 'json', value: message }, truncated: false };
  // A UTF-16 code unit takes at most three bytes.
  const value = beginning(text, Math.floor(most / 3));
  return { kind: 'message', body: { kind: 'text', value }, truncated: true };
}

/** The beginning of a message that is longer than so many bytes; `null` where it is not. No more of it is written. */
function beginningOf(message: Json, most: number): string | null {
  const parts: Buffer[] = [];
  let length = 0;
  for (const part of jsonParts(message)) {
    parts.push(part);
    length += part.byteLength;
    if (length > most) return Buffer.concat(parts).toString();
  }
  return null;
}

function textOf(value: Json): string {
  return (beginningOf(value, 100) ?? JSON.stringify(value)).slice(0, 100);
}

/**
 * The time that a call has. `AbortSignal.timeout` would keep its timer, and whatever hangs on it, until the time is over,
 * also for calls that were answered at once.
 */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #caller: AbortSignal | null;
  readonly #giveUp = (): void => this.#controller.abort();
  #isOver = false;

  /** @param caller aborts too: whoever asked does not want the answer any more */
  constructor(ms: number, caller: AbortSignal | null) {
    this.#caller = caller;
    this.#timer = setTimeout(() => {
      this.#isOver = true;
      this.#giveUp();
    }, ms).unref();
    if (caller?.aborted === true) this.#giveUp();
    caller?.addEventListener('abort', this.#giveUp, { once: true });
  }

  /** Aborts when the time is over, or when the caller gives up. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** The call has ended: nothing is aborted any more. */
  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener('abort', this.#giveUp);
  }
}

/** Sessions with one server at once. */
const MOST = 1_000;
/** How long one may be unused before it is ended, where the server does not say, ms. */
const IDLE_MS = 30 * 60_000;

/**
 * The gateway's sessions with one server for agents that call it without one of their own: each agent has one, so that
 * no agent sees what another does in its own.
 */
export class AgentSessions {
  readonly #now: () => number;
  /** The one that was used last is last. */
  readonly #sessions = new Map<string, { readonly session: OwnSession; readonly usedAt: number }>();

  /** @param now ms of a clock that never goes back */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** The session of an agent. Ends those that nobody has used for long, and the oldest where there are too many. */
  of(agent: string, upstream: Reached): OwnSession {
    const now = this.#now();
    const session = this.#sessions.get(agent)?.session ?? new OwnSession(agent);
    this.#sessions.delete(agent);
    this.#sessions.set(agent, { session, usedAt: now });
    const { child, sse } = upstream.settings.mcp;
    const idleMs = child?.idleMs ?? sse?.idleMs ?? IDLE_MS;
    for (const [other, { session: unused, usedAt }] of this.#sessions) {
      if (now - usedAt <= idleMs && this.#sessions.size <= MOST) break;
      this.#sessions.delete(other);
      unused.end(upstream);
    }
    return session;
  }
}
