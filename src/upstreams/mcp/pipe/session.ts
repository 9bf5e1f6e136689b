import { type Json, type JsonObject, isJsonObject } from '../../../json/value.ts';
import { parseObject } from '../../../json/text.ts';
import { LARGE_TEXT } from '../../../json/strict.ts';
import type { Exchange } from './exchange.ts';
import { readStrictly } from '../whole-answer.ts';
import type { Pipe, PipeEvents, PipeHeaders, Sending } from './pipe.ts';

/** A request that the server has not answered. `exchange` is over where its caller has gone. */
interface Open {
  readonly exchange: Exchange;
  readonly method: string;
  readonly progressToken: Json | undefined;
}

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;

/** Requests that one session may have open. */
const MOST_OPEN = 256;
/** Messages of the server that wait for somebody who listens. */
const MOST_UNHEARD = 64;
const MOST_UNHEARD_BYTES = 1024 * 1024;

const ANSWER_IDS_OPEN = Buffer.from(
  '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"A request with this id is still open, or too many are."}}',
);
/** Whoever sends it does not wait. */
const UNHEARD: Sending = {
  start: () => true,
  taken: () => undefined,
  refused: () => undefined,
  lost: () => undefined,
};

export interface SessionEvents {
  /** The server has answered `initialize`: it works. */
  begun(): void;
  /** Nothing can be sent any more. `begun`: whether it ever worked. */
  over(why: string, begun: boolean): void;
}

/**
 * One session, and the pipe that serves it alone. What the server says goes to the request that it belongs to: answers
 * by id, progress by its token, everything else to the only request that is open, else to the session's own stream.
 * Bytes pass as they are.
 */
export class PipeSession {
  readonly id: string;
  readonly holder: string;
  readonly #pipe: Pipe;
  readonly #open = new Map<string, Open>();
  readonly #events: SessionEvents;
  readonly #now: () => number;
  #listener: Exchange | null = null;
  #unheard: Buffer[] = [];
  #unheardBytes = 0;
  #begun = false;
  /** What was said and not read yet, the message first that is being read. */
  readonly #unread: Buffer[] = [];
  /** Why nothing comes any more, as soon as that is read. */
  #ended: string | null = null;
  #usedAt: number;
  #isLeaving = false;

  /** @throws what `open` throws */
  constructor(
    { id, holder }: Pick<PipeSession, 'id' | 'holder'>,
    open: (events: PipeEvents) => Pipe,
    events: SessionEvents,
    now: () => number,
  ) {
    this.id = id;
    this.holder = holder;
    this.#events = events;
    this.#now = now;
    this.#usedAt = now();
    this.#pipe = open({ line: (bytes) => this.#take(bytes), over: (why) => this.#over(why) });
  }

  get pid(): number | null {
    return this.#pipe.pid;
  }

  get gone(): Promise<void> {
    return this.#pipe.gone;
  }

  /** How long nobody has asked or listened, ms. What is cancelled is never answered: nobody waits for it. */
  idleMs(): number {
    return this.isBusy || this.#listener !== null ? 0 : this.#now() - this.#usedAt;
  }

  /** When something was asked or answered last, by the clock of the session; the later, the more in use. */
  get usedAt(): number {
    return this.#usedAt;
  }

  /** Whether somebody waits for an answer. */
  get isBusy(): boolean {
    return [...this.#open.values()].some(({ exchange }) => !exchange.isOver);
  }

  /** Sends a request, and answers the exchange with what comes for it. */
  request(
    exchange: Exchange,
    { id, method, params }: { readonly id: Json; readonly method: string; readonly params: Json | undefined },
    body: Buffer,
    headers: PipeHeaders,
  ): void {
    this.#usedAt = this.#now();
    const name = JSON.stringify(id);
    if (this.#open.has(name) || this.#open.size >= MOST_OPEN) {
      if (exchange.start()) exchange.answer(400, ANSWER_IDS_OPEN);
      return;
    }
    const meta = isJsonObject(params) ? params['_meta'] : undefined;
    const progressToken = isJsonObject(meta) ? meta['progressToken'] : undefined;
    this.#open.set(name, { exchange, method, progressToken });
    const leave = (): void => {
      // Once it is answered, another may have its id.
      if (this.#open.get(name)?.exchange === exchange) this.#open.delete(name);
    };
    this.#pipe.send(body, headers, {
      start() {
        const mayGo = exchange.start();
        if (!mayGo) leave();
        return mayGo;
      },
      // Its answer comes as a message.
      taken: () => undefined,
      refused(status, answer) {
        leave();
        exchange.answer(status, answer);
      },
      lost(error) {
        leave();
        exchange.fail(error);
      },
    });
  }

  /** Sends what gets no answer. */
  notify(exchange: Exchange, body: Buffer, headers: PipeHeaders): void {
    this.#usedAt = this.#now();
    this.#pipe.send(body, headers, {
      start: () => exchange.start(),
      taken: () => exchange.answer(202, null),
      refused: (status, answer) => exchange.answer(status, answer),
      lost: (error) => exchange.fail(error),
    });
  }

  /** Takes the stream on which the server speaks first. @returns `false` where there is one */
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
    this.#usedAt = this.#now();
    if (this.#listener?.isOver === true) this.#listener = null;
    this.#flow();
  }

  /** The pipe is read as fast as its readers read. */
  #flow(): void {
    const isPaused =
      this.#unread.length > 0 ||
      this.#listener?.paused === true ||
      [...this.#open.values()].some(({ exchange }) => exchange.paused);
    if (isPaused) this.#pipe.pause();
    else this.#pipe.resume();
    this.#endIfLeft();
  }

  end(): void {
    this.#pipe.end();
  }

  /** Ends it as soon as nobody waits for an answer. */
  leave(): void {
    this.#isLeaving = true;
    this.#endIfLeft();
  }

  #endIfLeft(): void {
    if (this.#isLeaving && !this.isBusy) this.end();
  }

  kill(why: string): void {
    this.#pipe.kill(why);
  }

  #take(bytes: Buffer): void {
    if (this.#unread.length === 0 && bytes.length < LARGE_TEXT) this.#hear(parseObject(bytes.toString('utf8')), bytes);
    else if (this.#unread.push(bytes) === 1) void this.#readOn();
  }

  /** Reads long messages in parts, and what comes behind them. Meanwhile the pipe waits. */
  async #readOn(): Promise<void> {
    this.#flow();
    for (let [bytes] = this.#unread; bytes !== undefined; [bytes] = this.#unread) {
      if (bytes.length < LARGE_TEXT) this.#hear(parseObject(bytes.toString('utf8')), bytes);
      else {
        const read = await readStrictly(bytes);
        if (read.ok) this.#hear(isJsonObject(read.value) ? read.value : null, bytes);
        else if (/^\s*\{/.test(bytes.toString('utf8', 0, LARGE_TEXT))) this.#lose(read.message);
      }
      this.#unread.shift();
    }
    if (this.#ended !== null) this.#over(this.#ended);
    else this.#flow();
  }

  /** A long message cannot be read: whoever waits may wait for it. */
  #lose(why: string): void {
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const { exchange } of open) exchange.fail(new Error(`it said something that is not strict JSON: ${why}`));
  }

  #hear(message: JsonObject | null, raw: Buffer): void {
    // What is no message is for nobody: servers print such lines by mistake.
    if (message === null) return;
    const bytes = inOneLine(raw);
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
    this.#flow();
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
    this.#pipe.send(Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, error })), {}, UNHEARD);
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
    this.#ended = why;
    if (this.#unread.length > 0) return;
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const { exchange, method } of open) {
      // Of a call nobody knows whether it ran: its connection breaks. That nothing began is certain.
      if (method === 'initialize') {
        exchange.start();
        exchange.answer(502, notStarted(why));
      } else exchange.fail(new Error(why));
    }
    this.#listener?.end();
    this.#listener = null;
    this.#events.over(why, this.#begun);
  }
}

/** Line breaks stand between the parts of a message only. */
function inOneLine(bytes: Buffer): Buffer {
  if (!bytes.includes(LF) && !bytes.includes(CR)) return bytes;
  const line = Buffer.from(bytes);
  for (let at = 0; at < line.length; at += 1) if (line[at] === LF || line[at] === CR) line[at] = SPACE;
  return line;
}

/** The answer to `initialize` where there is no server. */
export function notStarted(why: string): Buffer {
  const error = { code: -32_000, message: `The server did not start: ${why}` };
  return Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: null, error }));
}
