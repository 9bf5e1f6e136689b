import { isUtf8 } from 'node:buffer';
import { setMaxListeners } from 'node:events';
import type { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { Dispatcher } from 'undici';
import { isEventStream } from '../../http/events.ts';
import { open } from '../open.ts';
import type { Through } from '../pipe/exchange.ts';
import { PipeServer } from '../pipe/pipe-server.ts';
import type { Pipe, PipeEvents, PipeHeaders, Sending } from '../pipe/pipe.ts';
import { serverEvents } from '../server-events.ts';
import { TooLong } from '../whole-answer.ts';

/** A server that is spoken to as the revision of 2024-11-05 says. */
export interface SseAddress {
  /** Its origin. */
  readonly url: string;
  readonly path: string;
  readonly through: Pick<Dispatcher, 'dispatch'>;
  /** Bytes of one message, in either direction. */
  readonly messageBytes: number;
  readonly now: () => number;
}

/** How long a server may take to say where messages go, ms. */
const ENDPOINT_MS = 10_000;
/** Messages that wait until that is known, or for the server to take them: each of these has a connection. */
const MOST_WAITING = 64;
const NOT_TAKEN = 'The server did not take the message';

interface Waiting {
  readonly message: Buffer;
  readonly headers: PipeHeaders;
  readonly sending: Sending;
}

/**
 * A session of the transport that came before streamable HTTP: the server says everything on one stream of events, the
 * first of which names where messages are posted. When the stream ends, so does the session.
 */
export class SsePipe implements Pipe {
  readonly pid = null;
  readonly gone = Promise.resolve();
  readonly #address: SseAddress;
  readonly #headers: PipeHeaders;
  readonly #events: PipeEvents;
  readonly #left = new AbortController();
  #waiting: Waiting[] = [];
  /** Messages that are on their way. */
  #posting = 0;
  #endpoint: string | null = null;
  #stream: Readable | null = null;
  #isPaused = false;
  /** Goes on with what the server says. */
  #goOn: () => void = () => undefined;
  #isOver = false;

  /** @param headers of the request that begins the session: credentials, and what goes on to the server */
  constructor(address: SseAddress, headers: PipeHeaders, events: PipeEvents) {
    this.#address = address;
    this.#headers = ofTransport(headers);
    this.#events = events;
    // The stream and all messages listen to it. Beyond ten Node warns of a leak.
    setMaxListeners(MOST_WAITING + 1, this.#left.signal);
    const late = setTimeout(() => {
      if (this.#endpoint === null) this.kill(`it did not say within ${ENDPOINT_MS} ms where messages go`);
    }, ENDPOINT_MS).unref();
    void this.#listen().then((why) => {
      clearTimeout(late);
      this.kill(why);
    });
  }

  send(message: Buffer, headers: PipeHeaders, sending: Sending): void {
    const waiting = this.#waiting.length + this.#posting;
    if (this.#isOver || message.length > this.#address.messageBytes || waiting >= MOST_WAITING) {
      if (sending.start()) sending.refused(503, refusal(`${NOT_TAKEN}: it is too long, or too many wait.`));
    } else if (this.#endpoint === null) this.#waiting.push({ message, headers, sending });
    else void this.#post(this.#endpoint, { message, headers, sending });
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#goOn();
  }

  end(): void {
    this.kill('its session was ended');
  }

  kill(why: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#left.abort();
    this.#stream?.destroy();
    this.#goOn();
    for (const { sending } of this.#waiting.splice(0)) sending.lost(new Error(why));
    this.#events.over(why);
  }

  /** Listens until the stream is over; the session is killed then, and the stream with it. @returns why it is over */
  async #listen(): Promise<string> {
    const { through, path, now, messageBytes } = this.#address;
    const headers = { ...this.#headers, accept: 'text/event-stream' };
    const request = { method: 'GET', path, headers, body: null } as const;
    const opened = await open(through, request, { gate: () => 'go', signal: this.#left.signal, now });
    if (opened.kind !== 'answer') return opened.kind === 'held_back' ? 'its session was ended' : opened.message;
    const { status, body } = opened;
    this.#stream = body;
    const { 'content-type': type } = opened.headers;
    if (status !== 200 || !isEventStream(type)) return `it has no stream of events at this address (${status})`;
    try {
      for await (const { bytes, data, name } of serverEvents(body, messageBytes)) {
        if (!isUtf8(bytes)) return 'what it says is not UTF-8';
        if (data === null) continue;
        if (this.#isPaused) await new Promise<void>((resolve) => (this.#goOn = resolve));
        // Nothing comes after the end.
        if (this.#isOver) break;
        const fault = name === 'endpoint' ? this.#begin(data.toString()) : null;
        if (fault !== null) return fault;
        if (name === 'message' || name === null) this.#events.line(data);
      }
    } catch (error) {
      if (error instanceof TooLong) return `what it says cannot be read: ${error.message}`;
    }
    return 'its stream of events ended';
  }

  /** The server says where messages go. @returns what is wrong with that */
  #begin(data: string): string | null {
    if (this.#endpoint !== null) return null;
    const base = new URL(this.#address.path, this.#address.url);
    const named = URL.canParse(data, base.href) ? new URL(data, base) : null;
    // Credentials go with every message: to nobody else than to whom they were given.
    if (named === null || named.origin !== base.origin) return 'it names an endpoint that is not at its own origin';
    this.#endpoint = `${named.pathname}${named.search}`;
    for (const waiting of this.#waiting.splice(0)) void this.#post(this.#endpoint, waiting);
    return null;
  }

  async #post(path: string, waiting: Waiting): Promise<void> {
    this.#posting += 1;
    const body = await this.#sent(path, waiting);
    // A server that does not end its answer keeps the connection.
    if (body !== null) await finished(body.resume()).catch(() => undefined);
    this.#posting -= 1;
  }

  /** @returns the body of the answer, of which nothing is wanted */
  async #sent(path: string, { message, headers, sending }: Waiting): Promise<Readable | null> {
    const { through, now } = this.#address;
    const sent = { ...this.#headers, ...ofTransport(headers), 'content-type': 'application/json' };
    const gate = (): 'go' | 'late' => (sending.start() ? 'go' : 'late');
    const opened = await open(
      through,
      { method: 'POST', path, headers: sent, body: message },
      { gate, signal: this.#left.signal, now },
    );
    switch (opened.kind) {
      case 'held_back':
        return null;
      case 'nothing_sent':
      case 'lost':
        sending.lost(new Error(opened.message));
        return null;
      case 'answer':
        if (opened.status >= 200 && opened.status < 300) sending.taken();
        else sending.refused(opened.status, refusal(`${NOT_TAKEN} (${opened.status}).`));
        return opened.body;
    }
  }
}

function refusal(message: string): Buffer {
  return Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32_000, message } }));
}

/** Without what is about the gateway's own session with its client, and about single messages. */
function ofTransport(headers: PipeHeaders): PipeHeaders {
  const {
    'mcp-session-id': _session,
    'last-event-id': _event,
    accept: _accept,
    'content-type': _type,
    ...others
  } = headers;
  return others;
}

interface SseServerSettings extends Omit<SseAddress, 'through'> {
  /** Streams that may be there at once: one for each session. */
  readonly most: number;
  /** How long a session may be unused, ms. */
  readonly idleMs: number;
}

/** An MCP server of the transport that came before streamable HTTP (2024-11-05). */
export class SseServer extends PipeServer {
  readonly #through: Through;

  /** @param now ms of a clock that never goes back */
  constructor(settings: SseServerSettings, through: Through, now: () => number) {
    const { most, idleMs } = settings;
    const open = (events: PipeEvents, headers: PipeHeaders): SsePipe =>
      new SsePipe({ ...settings, through }, headers, events);
    // A connection that is refused costs nothing: there is no reason to wait.
    super({ open, most, idleMs, mostWaitMs: 0 }, now);
    this.#through = through;
  }

  override async close(): Promise<void> {
    await super.close();
    await this.#through.close();
  }

  override async destroy(): Promise<void> {
    await super.destroy();
    await this.#through.destroy();
  }
}
