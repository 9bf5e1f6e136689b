import { Agent as HttpAgent, type IncomingHttpHeaders, type IncomingMessage, request as overHttp } from 'node:http';
import { Agent as HttpsAgent, request as overHttps } from 'node:https';

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

/**
 * The body as text.
 * @returns `null` when it is longer than `most` bytes, or when the connection broke
 */
export async function readText(body: IncomingMessage, most: number): Promise<string | null> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > most) return null;
      chunks.push(chunk);
    }
  } catch {
    return null;
  } finally {
    body.destroy();
  }
  return Buffer.concat(chunks).toString('utf8');
}
