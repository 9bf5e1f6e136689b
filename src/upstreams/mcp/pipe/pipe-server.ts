import { randomUUID } from 'node:crypto';
import type { Dispatcher } from 'undici';
import { parseObject } from '../../../json/text.ts';
import type { Json } from '../../../json/value.ts';
import { HANDSHAKE_VERSIONS, statelessVersion } from '../../../mcp-protocol/revisions.ts';
import { INSPECTOR } from '../inspect-server.ts';
import { Exchange, type Through } from './exchange.ts';
import type { Pipe, PipeEvents, PipeHeaders } from './pipe.ts';
import { notStarted, PipeSession } from './session.ts';

export interface PipeServerSettings {
  /** Opens a pipe for a session. @throws Error where there cannot be one now */
  readonly open: (events: PipeEvents, headers: PipeHeaders) => Pipe;
  /** Sessions that may be there at once, each with a pipe of its own. */
  readonly most: number;
  /** How long a session may be unused, ms. */
  readonly idleMs: number;
  /** How long at most the next pipe waits after some that led to nothing, ms. */
  readonly mostWaitMs: number;
}

/** A request, and whose session it begins. */
type HeldOptions = Dispatcher.DispatchOptions & { readonly holder?: string };

const FIRST_WAIT_MS = 250;
/** A session that was not used for so long may go when another holder has none, ms. */
const UNUSED_MS = 60_000;
const EVERY_MS = 10_000;

/**
 * An MCP server that is spoken to over pipes of messages, in the form of one over streamable HTTP. Each session has a
 * pipe of its own (docs/decisions/0032): what one principal does is never seen by another. A pipe that ends takes its
 * session along, and the next `initialize` opens another.
 */
export class PipeServer implements Through {
  readonly #settings: PipeServerSettings;
  readonly #now: () => number;
  readonly #sessions = new Map<string, PipeSession>();
  /** Those that made room for others: they take no requests, and end once theirs are answered. */
  readonly #leaving = new Map<string, PipeSession>();
  readonly #ending = new Set<Promise<void>>();
  #failures = 0;
  #notBefore = Number.NEGATIVE_INFINITY;
  #lastEnd: string | null = null;
  #isClosed = false;
  #sweep: NodeJS.Timeout | null = null;

  /** @param now ms of a clock that never goes back */
  constructor(settings: PipeServerSettings, now: () => number) {
    this.#settings = settings;
    this.#now = now;
  }

  report(): {
    /** Sessions, and so pipes. */
    readonly running: number;
    /** Pipes in a row that led to nothing. */
    readonly failures: number;
    /** Why the last pipe that ended by itself did; `null` if none has. */
    readonly lastEnd: string | null;
  } {
    return { running: this.#sessions.size + this.#leaving.size, failures: this.#failures, lastEnd: this.#lastEnd };
  }

  /** Process ids of the processes, by session. */
  pids(): ReadonlyMap<string, number | null> {
    return new Map([...this.#sessions].map(([id, { pid }]) => [id, pid]));
  }

  dispatch(options: HeldOptions, handler: Dispatcher.DispatchHandler): boolean {
    const id = headersIn(options.headers)['mcp-session-id'] ?? null;
    const session = id === null ? undefined : (this.#sessions.get(id) ?? this.#leaving.get(id));
    const exchange: Exchange = new Exchange(handler, () => session?.changed());
    if (options.method === 'POST') this.#post(exchange, options, id, session);
    else if (session === undefined) refuse(exchange, 404, -32_001, 'Session not found');
    else if (options.method === 'GET') {
      if (!session.listen(exchange)) refuse(exchange, 409, -32_000, 'The session has a stream already.');
    } else if (options.method === 'DELETE') {
      if (exchange.start()) {
        this.#end(session);
        exchange.answer(200, null);
      }
    } else refuse(exchange, 405, -32_000, 'Method not allowed.');
    return true;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const session of [...this.#sessions.values(), ...this.#leaving.values()]) this.#end(session);
    if (this.#sweep !== null) clearInterval(this.#sweep);
    await Promise.all(this.#ending);
  }

  async destroy(): Promise<void> {
    for (const session of [...this.#sessions.values(), ...this.#leaving.values()])
      session.kill('the gateway is ending');
    await this.close();
  }

  #post(
    exchange: Exchange,
    { body, headers, holder = '' }: HeldOptions,
    id: string | null,
    session: PipeSession | undefined,
  ): void {
    const stated = headersIn(headers);
    const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : '');
    const message = parseObject(bytes.toString('utf8'));
    if (message === null) return refuse(exchange, 400, -32_700, 'The body is not one JSON-RPC message.');
    const { method, params } = message;
    const requestId = message['id'];
    const isRequest = typeof method === 'string' && requestId !== undefined;
    if (isRequest && statelessVersion(params) !== null) return unsupported(exchange, requestId, params);
    // A line ends at a line break: a message has none but between the parts of it.
    const line = bytes.includes(0x0a) ? Buffer.from(JSON.stringify(message)) : bytes;
    if (id === null && isRequest && method === 'initialize')
      return this.#begin(exchange, { id: requestId, method, params }, line, stated, holder);
    if (id === null) return refuse(exchange, 400, -32_600, 'There is no session: begin with initialize.');
    if (session === undefined || (isRequest && this.#leaving.has(id)))
      return refuse(exchange, 404, -32_001, 'Session not found');
    if (isRequest) session.request(exchange, { id: requestId, method, params }, line, stated);
    else session.notify(exchange, line, stated);
  }

  #begin(
    exchange: Exchange,
    request: { readonly id: Json; readonly method: string; readonly params: Json | undefined },
    line: Buffer,
    headers: PipeHeaders,
    holder: string,
  ): void {
    const why = this.#hindrance(holder);
    if (why !== null) {
      if (exchange.start()) exchange.answer(503, notStarted(why));
      return;
    }
    const id = randomUUID();
    let session: PipeSession;
    try {
      session = new PipeSession(
        { id, holder },
        (events) => this.#settings.open(events, headers),
        {
          begun: () => (this.#failures = 0),
          over: (reason, begun) => this.#over(id, reason, begun),
        },
        this.#now,
      );
    } catch (error) {
      if (exchange.start()) exchange.answer(502, notStarted(error instanceof Error ? error.message : String(error)));
      return;
    }
    this.#sessions.set(id, session);
    const gone = session.gone.finally(() => this.#ending.delete(gone));
    this.#ending.add(gone);
    this.#sweep ??= setInterval(() => this.#endIdle(), Math.min(EVERY_MS, this.#settings.idleMs)).unref();
    exchange.headers = { 'mcp-session-id': id };
    session.request(exchange, request, line, headers);
    // Held back, or nothing was taken: nobody knows of the session.
    if (exchange.isOver) this.#end(session);
  }

  #hindrance(holder: string): string | null {
    if (this.#isClosed) return 'the gateway is ending';
    const wait = this.#notBefore - this.#now();
    if (wait > 0)
      return `it failed ${this.#failures} times in a row, and is tried again in ${Math.ceil(wait)} ms; last: ${this.#lastEnd ?? 'unknown'}`;
    // A look of the gateway's own, one at a time, takes no place from agents.
    if (holder === INSPECTOR) return null;
    const open = [...this.#sessions.values()].filter(({ holder: of }) => of !== INSPECTOR);
    if (open.length >= this.#settings.most && !this.#makeRoom(holder, open))
      return `${this.#settings.most} sessions are open, and there may be no more`;
    return null;
  }

  /**
   * Lets the largest holder's idlest session go, where that holder would still have as many as this one then; else where
   * nobody has used it for a while. What it is asked at that moment is still answered.
   */
  #makeRoom(holder: string, open: readonly PipeSession[]): boolean {
    if (this.#leaving.size >= this.#settings.most) return false;
    const held = new Map<string, number>();
    for (const { holder: of } of open) held.set(of, (held.get(of) ?? 0) + 1);
    const largest = Math.max(...held.values());
    const [idlest] = open
      .filter(({ holder: of }) => held.get(of) === largest)
      .toSorted((one, other) => Number(one.isBusy) - Number(other.isBusy) || one.usedAt - other.usedAt);
    const isMore = largest >= (held.get(holder) ?? 0) + 2;
    if (idlest === undefined || !(isMore || idlest.idleMs() >= UNUSED_MS)) return false;
    this.#sessions.delete(idlest.id);
    this.#leaving.set(idlest.id, idlest);
    idlest.leave();
    return true;
  }

  #over(id: string, reason: string, begun: boolean): void {
    // Those that the gateway ended are not in the list any more.
    if (this.#leaving.delete(id) || !this.#sessions.delete(id)) return;
    this.#lastEnd = reason;
    if (begun) return;
    this.#failures += 1;
    this.#notBefore = this.#now() + Math.min(this.#settings.mostWaitMs, FIRST_WAIT_MS * 2 ** (this.#failures - 1));
  }

  #end(session: PipeSession): void {
    this.#sessions.delete(session.id);
    this.#leaving.delete(session.id);
    session.end();
  }

  #endIdle(): void {
    for (const session of this.#sessions.values()) if (session.idleMs() > this.#settings.idleMs) this.#end(session);
  }
}

function refuse(exchange: Exchange, status: number, code: number, message: string): void {
  if (!exchange.start()) return;
  exchange.answer(status, Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code, message } })));
}

/** Clients of the stateless era begin a session after this answer. */
function unsupported(exchange: Exchange, id: Json, params: Json | undefined): void {
  if (!exchange.start()) return;
  const error = {
    code: -32_022,
    message: 'This server speaks the revisions that have sessions, and no others.',
    data: { supported: [...HANDSHAKE_VERSIONS], requested: statelessVersion(params) },
  };
  exchange.answer(400, Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, error })));
}

function headersIn(headers: Dispatcher.DispatchOptions['headers']): PipeHeaders {
  if (headers === null || headers === undefined || Array.isArray(headers) || Symbol.iterator in headers) return {};
  const found: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers))
    if (typeof value === 'string' && value !== '') found[name] = value;
  return found;
}
