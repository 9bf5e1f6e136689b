import { randomUUID } from 'node:crypto';
import type { Dispatcher } from 'undici';
import { parseObject } from '../../../json/parse.ts';
import type { Json } from '../../../json/value.ts';
import { HANDSHAKE_VERSIONS, statelessVersion } from '../../../mcp-protocol/revisions.ts';
import type { ChildLimits, StdioCommand } from './child.ts';
import { Exchange, type Through } from './exchange.ts';
import type { Keeper } from './keeper.ts';
import { notStarted, StdioSession } from './session.ts';

export interface StdioServerSettings {
  readonly command: StdioCommand;
  /** Children that may run at once: one for each session. */
  readonly most: number;
  /** How long a session may be unused, ms. */
  readonly idleMs: number;
  readonly limits: ChildLimits;
}

/** What somebody has to know of an upstream that runs as children. */
export interface StdioReport {
  /** Sessions, and so children. */
  readonly running: number;
  /** Starts in a row that led to nothing. */
  readonly failures: number;
  /** Why the last child that ended by itself did; `null` if none has. */
  readonly lastEnd: string | null;
}

const FIRST_WAIT_MS = 250;
const MOST_WAIT_MS = 30_000;
const EVERY_MS = 10_000;

/**
 * An MCP server that runs as children of the gateway, in the form of one over streamable HTTP. Each session has a child
 * of its own (docs/decisions/0032): what one principal does is never seen by another. A child that ends takes its session
 * along, and the next `initialize` starts another, later each time while children do not come up.
 */
export class StdioServer implements Through {
  readonly #settings: StdioServerSettings;
  readonly #keeper: Keeper;
  readonly #now: () => number;
  readonly #sessions = new Map<string, StdioSession>();
  readonly #ending = new Set<Promise<void>>();
  #failures = 0;
  #notBefore = Number.NEGATIVE_INFINITY;
  #lastEnd: string | null = null;
  #isClosed = false;
  #sweep: NodeJS.Timeout | null = null;

  /** @param now ms of a clock that never goes back */
  constructor(settings: StdioServerSettings, keeper: Keeper, now: () => number) {
    this.#settings = settings;
    this.#keeper = keeper;
    this.#now = now;
  }

  report(): StdioReport {
    return { running: this.#sessions.size, failures: this.#failures, lastEnd: this.#lastEnd };
  }

  /** Process ids of the children, by session. */
  pids(): ReadonlyMap<string, number | null> {
    return new Map([...this.#sessions].map(([id, { pid }]) => [id, pid]));
  }

  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const id = headerOf(options.headers, 'mcp-session-id');
    const session = id === null ? undefined : this.#sessions.get(id);
    const exchange: Exchange = new Exchange(handler, () => session?.changed());
    if (options.method === 'POST') this.#post(exchange, options.body, id, session);
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
    for (const session of this.#sessions.values()) this.#end(session);
    if (this.#sweep !== null) clearInterval(this.#sweep);
    await Promise.all(this.#ending);
  }

  async destroy(): Promise<void> {
    for (const session of this.#sessions.values()) session.kill('the gateway is ending');
    await this.close();
  }

  #post(exchange: Exchange, body: unknown, id: string | null, session: StdioSession | undefined): void {
    const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : '');
    const message = parseObject(bytes.toString('utf8'));
    if (message === null) return refuse(exchange, 400, -32_700, 'The body is not one JSON-RPC message.');
    const { method, params } = message;
    const requestId = message['id'];
    const isRequest = typeof method === 'string' && requestId !== undefined;
    if (isRequest && statelessVersion(params) !== null) return unsupported(exchange, requestId, params);
    // A line ends at a line break: a message has none but between the parts of it.
    const line = bytes.includes(0x0a) ? Buffer.from(JSON.stringify(message)) : bytes;
    if (id === null && isRequest && method === 'initialize') return this.#begin(exchange, requestId, params, line);
    if (id === null) return refuse(exchange, 400, -32_600, 'There is no session: begin with initialize.');
    if (session === undefined) return refuse(exchange, 404, -32_001, 'Session not found');
    if (isRequest) session.request(exchange, requestId, method, params, line);
    else session.notify(exchange, line);
  }

  #begin(exchange: Exchange, requestId: Json, params: Json | undefined, line: Buffer): void {
    const why = this.#hindrance();
    if (why !== null) {
      if (exchange.start()) exchange.answer(503, notStarted(why));
      return;
    }
    const id = randomUUID();
    let session: StdioSession;
    try {
      session = new StdioSession(
        id,
        this.#settings.command,
        this.#keeper,
        this.#settings.limits,
        {
          begun: () => {
            this.#failures = 0;
          },
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
    session.request(exchange, requestId, 'initialize', params, line);
    // Held back, or the child took nothing: nobody knows of the session.
    if (exchange.isOver) this.#end(session);
  }

  #hindrance(): string | null {
    if (this.#isClosed) return 'the gateway is ending';
    const wait = this.#notBefore - this.#now();
    if (wait > 0)
      return `it failed ${this.#failures} times in a row, and is tried again in ${Math.ceil(wait)} ms; last: ${this.#lastEnd ?? 'unknown'}`;
    if (this.#sessions.size >= this.#settings.most)
      return `${this.#settings.most} sessions are open, each with a process of its own`;
    return null;
  }

  #over(id: string, reason: string, begun: boolean): void {
    // Those that the gateway ended are not in the list any more.
    if (!this.#sessions.delete(id)) return;
    this.#lastEnd = reason;
    if (begun) return;
    this.#failures += 1;
    this.#notBefore = this.#now() + Math.min(MOST_WAIT_MS, FIRST_WAIT_MS * 2 ** (this.#failures - 1));
  }

  #end(session: StdioSession): void {
    this.#sessions.delete(session.id);
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
    message: 'This server runs as a process for each session, and so speaks the revisions that have sessions.',
    data: { supported: [...HANDSHAKE_VERSIONS], requested: statelessVersion(params) },
  };
  exchange.answer(400, Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, error })));
}

function headerOf(headers: Dispatcher.DispatchOptions['headers'], name: string): string | null {
  if (headers === null || headers === undefined || Array.isArray(headers) || Symbol.iterator in headers) return null;
  const value = headers[name];
  return typeof value === 'string' && value !== '' ? value : null;
}
