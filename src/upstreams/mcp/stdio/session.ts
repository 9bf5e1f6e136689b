import { parseObject } from '../../../json/parse.ts';
import { type Json, type JsonObject, isJsonObject } from '../../../json/value.ts';
import { type ChildLimits, StdioChild, type StdioCommand } from './child.ts';
import type { Exchange } from './exchange.ts';
import type { Keeper } from './keeper.ts';

/** A request that the child has not answered. `exchange` is over where its caller has gone. */
interface Open {
  readonly exchange: Exchange;
  readonly method: string;
  readonly progressToken: Json | undefined;
}

/** Requests that one session may have open. */
const MOST_OPEN = 256;
/** Messages of the child that wait for somebody who listens. */
const MOST_UNHEARD = 64;
const MOST_UNHEARD_BYTES = 1024 * 1024;

const ANSWER_IDS_OPEN = Buffer.from(
  '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"A request with this id is still open, or too many are."}}',
);
const NOT_READING = Buffer.from(
  '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"The server does not read its input, or the message is too long for it. This message was not sent."}}',
);

export interface SessionEvents {
  /** The child has answered `initialize`: it works. */
  begun(): void;
  /** Nothing can be sent any more. `begun`: whether it ever worked. */
  over(why: string, begun: boolean): void;
}

/**
 * One session, and the child that serves it alone. What the child writes goes to the request that it belongs to: answers
 * by id, progress by its token, everything else to the only request that is open, else to the session's own stream.
 * Bytes pass as they are.
 */
export class StdioSession {
  readonly id: string;
  readonly #child: StdioChild;
  readonly #open = new Map<string, Open>();
  readonly #events: SessionEvents;
  readonly #now: () => number;
  #listener: Exchange | null = null;
  #unheard: Buffer[] = [];
  #unheardBytes = 0;
  #begun = false;
  #usedAt: number;

  /** @throws Error when the keeper cannot be started */
  constructor(
    id: string,
    command: StdioCommand,
    keeper: Keeper,
    limits: ChildLimits,
    events: SessionEvents,
    now: () => number,
  ) {
    this.id = id;
    this.#events = events;
    this.#now = now;
    this.#usedAt = now();
    this.#child = new StdioChild(command, keeper, limits, {
      line: (bytes) => this.#take(bytes),
      over: (why) => this.#over(why),
    });
  }

  get pid(): number | null {
    return this.#child.pid;
  }

  get gone(): Promise<void> {
    return this.#child.gone;
  }

  /** How long nobody has asked or listened, ms. */
  idleMs(): number {
    return this.#open.size > 0 || this.#listener !== null ? 0 : this.#now() - this.#usedAt;
  }

  /** Sends a request, and answers the exchange with what comes for it. */
  request(exchange: Exchange, id: Json, method: string, params: Json | undefined, body: Buffer): void {
    this.#usedAt = this.#now();
    const name = JSON.stringify(id);
    if (this.#open.has(name) || this.#open.size >= MOST_OPEN) {
      if (exchange.start()) exchange.answer(400, ANSWER_IDS_OPEN);
      return;
    }
    if (!exchange.start()) return;
    const meta = isJsonObject(params) ? params['_meta'] : undefined;
    const progressToken = isJsonObject(meta) ? meta['progressToken'] : undefined;
    this.#open.set(name, { exchange, method, progressToken });
    if (this.#child.write(body)) return;
    this.#open.delete(name);
    exchange.answer(503, NOT_READING);
  }

  /** Sends what gets no answer. */
  notify(exchange: Exchange, body: Buffer): void {
    this.#usedAt = this.#now();
    if (!exchange.start()) return;
    if (this.#child.write(body)) exchange.answer(202, null);
    else exchange.answer(503, NOT_READING);
  }

  /** Takes the stream on which the child speaks first. @returns `false` where there is one */
  listen(exchange: Exchange): boolean {
    if (this.#listener !== null) return false;
    if (!exchange.start()) return true;
    this.#listener = exchange;
    exchange.stream();
    for (const message of this.#unheard.splice(0)) exchange.event(message);
    this.#unheardBytes = 0;
    return true;
  }

  /** A reader pauses, reads again, or has left. */
  changed(): void {
    if (this.#listener?.isOver === true) {
      this.#listener = null;
      this.#usedAt = this.#now();
    }
    const isPaused =
      this.#listener?.paused === true || [...this.#open.values()].some(({ exchange }) => exchange.paused);
    if (isPaused) this.#child.pause();
    else this.#child.resume();
  }

  end(): void {
    this.#child.end();
  }

  kill(why: string): void {
    this.#child.kill(why);
  }

  #take(bytes: Buffer): void {
    const message = parseObject(bytes.toString('utf8'));
    // What is no message is for nobody: servers print such lines by mistake.
    if (message === null) return;
    if (typeof message['method'] === 'string') return this.#pass(message, bytes);
    const name = JSON.stringify(message['id'] ?? null);
    const open = this.#open.get(name);
    if (open === undefined) return;
    this.#open.delete(name);
    this.#usedAt = this.#now();
    if (open.method === 'initialize' && !this.#begun && 'result' in message) {
      this.#begun = true;
      this.#events.begun();
    }
    open.exchange.last(bytes);
    this.changed();
  }

  #pass(message: JsonObject, bytes: Buffer): void {
    const heard = this.#hearerOf(message);
    if (heard !== null) return heard.event(bytes);
    if (this.#unheard.length < MOST_UNHEARD && this.#unheardBytes + bytes.length <= MOST_UNHEARD_BYTES) {
      this.#unheard.push(Buffer.from(bytes));
      this.#unheardBytes += bytes.length;
      return;
    }
    const { id } = message;
    if (id === undefined || id === null) return;
    const error = { code: -32_000, message: 'Nobody listens.' };
    this.#child.write(Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, error })));
  }

  #hearerOf(message: JsonObject): Exchange | null {
    const open = [...this.#open.values()].filter(({ exchange }) => !exchange.isOver);
    if (message['method'] === 'notifications/progress') {
      const params = isJsonObject(message['params']) ? message['params'] : {};
      const { progressToken } = params;
      const of = open.find((one) => progressToken !== undefined && one.progressToken === progressToken);
      if (of !== undefined) return of.exchange;
    }
    const [first, second] = open;
    if (first !== undefined && second === undefined) return first.exchange;
    return this.#listener ?? first?.exchange ?? null;
  }

  #over(why: string): void {
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const { exchange, method } of open) {
      // Of a call nobody knows whether it ran: its connection breaks. That nothing began is certain.
      if (method === 'initialize') exchange.answer(502, notStarted(why));
      else exchange.fail(new Error(why));
    }
    this.#listener?.end();
    this.#listener = null;
    this.#events.over(why, this.#begun);
  }
}

/** The answer to `initialize` where there is no server. */
export function notStarted(why: string): Buffer {
  const error = { code: -32_000, message: `The server did not start: ${why}` };
  return Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: null, error }));
}
