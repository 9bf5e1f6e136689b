import { Agent, type IncomingMessage, request } from 'node:http';
import { documented } from '../documented.ts';
import { sortedHeaders } from './upstream.ts';

/** A request of a caller. */
export interface Asked {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
}

/** An answer, as it came over the wire. */
export interface Answered {
  readonly status: number;
  /** `name: value`, sorted by name. */
  readonly headers: readonly string[];
  readonly trailers: readonly string[];
  readonly body: string;
  /** Whether it came to its end; a stream that was cut did not. */
  readonly whole: boolean;
}

/** The connection was closed before there was an answer. */
const NONE: Answered = { status: 0, headers: [], trailers: [], body: '', whole: false };

/** What the gateway says when it, or the store, had no time for a request, which did nothing then. */
const TRANSIENT =
  /The gateway is overloaded|"code":"store_unavailable"|The configuration changed in between|has not heard of keys and pauses/;

/** How often a request is made in all, and the pause before the next, ms. */
const TRIES = 120;
const PAUSE_MS = 250;

export class Client {
  readonly #agent = new Agent({ keepAlive: true });
  readonly #origin: URL;
  #repeats = 0;

  constructor(origin: string) {
    this.#origin = new URL(origin);
  }

  /** How often it was asked again, because the machine was busy. */
  get repeats(): number {
    return this.#repeats;
  }

  /** Asks again, as clients do, where a request was not accepted for a while: that says something of the machine. */
  async ask(asked: Asked): Promise<Answered> {
    for (let tries = 1; ; tries += 1) {
      const answered = await this.#once(asked);
      if (tries === TRIES || !TRANSIENT.test(answered.body)) {
        const type = answered.headers.find((header) => header.startsWith('content-type: ')) ?? '';
        const contentType = type.slice('content-type: '.length);
        const { method, path } = asked;
        if (answered.whole && method !== 'HEAD')
          documented.check({ method, path, status: answered.status, contentType, text: answered.body });
        return answered;
      }
      this.#repeats += 1;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  async #once({ method, path, headers, body }: Asked): Promise<Answered> {
    const { hostname, port } = this.#origin;
    const sent = request({ agent: this.#agent, hostname, port, method, path, headers: lengthOf(headers, body) });
    const answer = new Promise<Answered>((resolve) => {
      sent.once('error', () => resolve(NONE));
      sent.once('response', (response) => resolve(readAll(response)));
    });
    sent.end(body ?? undefined);
    return answer;
  }
}

function lengthOf(headers: Readonly<Record<string, string>>, body: Buffer | null): Record<string, string> {
  return { ...headers, ...(body === null ? {} : { 'content-length': String(body.length) }) };
}

function readAll(response: IncomingMessage): Promise<Answered> {
  const pieces: Buffer[] = [];
  response.on('data', (piece: Buffer) => pieces.push(piece));
  return new Promise((resolve) => {
    const end = (): void => {
      const bytes = Buffer.concat(pieces);
      resolve({
        status: response.statusCode ?? 0,
        headers: sortedHeaders(response.rawHeaders),
        trailers: sortedHeaders(response.rawTrailers),
        body: bytes.toString(),
        whole: response.complete,
      });
    };
    response.on('error', () => undefined);
    response.once('close', end);
  });
}
