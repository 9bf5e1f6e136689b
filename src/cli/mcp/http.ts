import { Agent as HttpAgent, type IncomingHttpHeaders, type IncomingMessage, request as overHttp } from 'node:http';
import { Agent as HttpsAgent, request as overHttps } from 'node:https';
import { Gathered } from '../../bytes/gathered.ts';
import type { Allowance } from './bounds.ts';

/** An answer whose body is still to be read. Nothing is read before somebody asks: that is the back-pressure. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: IncomingMessage;
}

/** A request that got no answer. */
export class NoAnswer extends Error {
  /** Whether the server may have got the request. */
  readonly mayHaveArrived: boolean;
  constructor(why: string, mayHaveArrived: boolean) {
    super(why);
    this.name = 'NoAnswer';
    this.mayHaveArrived = mayHaveArrived;
  }
}

export interface Outgoing {
  readonly method: 'POST' | 'GET' | 'DELETE';
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
  readonly signal: AbortSignal;
}

/**
 * Sends requests to one address. There is no time limit for an answer: a call may take as long as it takes. Redirects
 * are not followed: the key would go along.
 */
export class Sender {
  readonly #url: URL;
  readonly #agent: HttpAgent | HttpsAgent;

  constructor(url: URL) {
    this.#url = url;
    const options = { keepAlive: true, maxFreeSockets: 8 };
    this.#agent = url.protocol === 'https:' ? new HttpsAgent(options) : new HttpAgent(options);
  }

  /** @throws NoAnswer */
  send({ method, headers, body, signal }: Outgoing): Promise<Answer> {
    return new Promise((resolve, reject) => {
      let isConnected = false;
      const begin = this.#url.protocol === 'https:' ? overHttps : overHttp;
      const length = body === null ? {} : { 'content-length': String(body.length) };
      const request = begin(this.#url, { method, headers: { ...headers, ...length }, agent: this.#agent, signal });
      request.on('socket', (socket) => {
        const ready = (): void => {
          isConnected = true;
        };
        if (!socket.connecting) ready();
        else socket.once(this.#url.protocol === 'https:' ? 'secureConnect' : 'connect', ready);
      });
      request.on('response', (response) => {
        // Whoever reads the body hears of its end; without a listener an aborted one would end the process.
        response.on('error', () => {});
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response });
      });
      request.on('error', (error) => reject(new NoAnswer(error.message, isConnected)));
      request.end(body ?? undefined);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** The body of an answer, or why there is none: it is longer than allowed, or the connection broke. */
export type Text =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'too_long' }
  | { readonly kind: 'broken' };

/**
 * The body as text.
 * @param most bytes of it
 * @param allowance what all that is read at once may hold
 */
export async function readText(body: IncomingMessage, most: number, allowance: Allowance): Promise<Text> {
  const gathered = new Gathered();
  let length = 0;
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      if (length + chunk.length > most || !allowance.take(chunk.length)) return { kind: 'too_long' };
      length += chunk.length;
      gathered.add(chunk);
    }
    return { kind: 'text', text: gathered.take().toString('utf8') };
  } catch {
    return { kind: 'broken' };
  } finally {
    allowance.giveBack(length);
    body.destroy();
  }
}

export function isStream({ status, headers }: Answer): boolean {
  return status === 200 && /^text\/event-stream\b/i.test(headers['content-type'] ?? '');
}

export function headerText(value: string | readonly string[] | undefined): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

/** The session of the older era: it begins with `initialize`, and is begun anew where the server has forgotten it. */
export interface Session {
  readonly id: string | null;
  readonly version: string | null;
}

/** @returns what names a session to the server, and nothing where there is none */
export function sessionHeaders(session: Session | null): Record<string, string> {
  return {
    ...(session !== null && session.id !== null && { 'mcp-session-id': session.id }),
    ...(session !== null && session.version !== null && { 'mcp-protocol-version': session.version }),
  };
}

/** Ids are text in UTF-8, and headers are bytes. */
export function idHeader(lastId: string): { readonly 'last-event-id': string } {
  return { 'last-event-id': Buffer.from(lastId, 'utf8').toString('latin1') };
}
