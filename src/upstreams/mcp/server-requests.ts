import { finished } from 'node:stream/promises';
import { isJsonObject, type JsonObject } from '../../json/value.ts';
import type { Answered, Line } from '../../mcp-protocol/begin.ts';
import type { Dispatcher } from 'undici';
import { open } from './open.ts';
import { serverEvents } from './server-events.ts';
import type { McpUpstreamSettings } from './settings.ts';
import { readStrictly, wholeOf } from './whole-answer.ts';

/** A server, and what carries requests to it. */
export interface Reached {
  readonly settings: McpUpstreamSettings;
  readonly through: Pick<Dispatcher, 'dispatch'>;
  readonly now: () => number;
}

export interface LineAnswered extends Answered {
  readonly status: number;
  /** The error that it answered with, in its words; `null` where there is none. */
  readonly error: string | null;
}

/** Bytes of one answer, and of all answers on one line. */
const MOST_BYTES = 4 * 1024 * 1024;
/** Characters of an error that are shown. */
const MOST_ERROR = 500;
/** How long a server may take to hear the end of a session, ms. */
const END_MS = 5_000;

/** Asks a server on the gateway's own behalf. What it says is read strictly, and up to a length. */
export class ServerRequests implements Line<LineAnswered> {
  readonly #server: Reached;
  readonly #name: string;
  readonly #signal: AbortSignal;
  readonly #holder: { readonly holder?: string };
  #bytes = 0;

  /**
   * @param name what the gateway calls itself
   * @param signal the time that all requests together have
   * @param holder whom a session is for that they begin; absent: for the gateway itself
   */
  constructor(server: Reached, name: string, signal: AbortSignal, holder?: string) {
    this.#server = server;
    this.#name = name;
    this.#signal = signal;
    this.#holder = holder === undefined ? {} : { holder };
  }

  /** @throws Error where it does not answer, or in what reads in more than one way */
  async ask(
    request: JsonObject & { readonly id: number },
    headers: Readonly<Record<string, string>>,
  ): Promise<LineAnswered> {
    const answer = await this.#post(request, headers);
    const { status } = answer;
    const { 'mcp-session-id': session, 'content-type': type } = answer.headers;
    try {
      const messages = /^text\/event-stream\b/i.test(String(type ?? ''))
        ? dataOf(serverEvents(answer.body.iterator({ destroyOnReturn: false }), MOST_BYTES))
        : [await wholeOf(answer.body, MOST_BYTES)];
      for await (const text of messages) {
        this.#bytes += text.byteLength;
        if (this.#bytes > MOST_BYTES) throw new Error(`what it says is longer than ${MOST_BYTES} bytes`);
        const parsed = await readStrictly(text);
        // What is no answer at all, such as a page, says nothing.
        if (!parsed.ok && status === 200 && text.includes('"result"'))
          throw new Error(`its JSON cannot be pinned: ${parsed.message}`);
        if (!parsed.ok || !isJsonObject(parsed.value)) continue;
        const { id: of, method: asked, result, error } = parsed.value;
        if (asked !== undefined || of !== request.id) continue;
        return {
          status,
          session: typeof session === 'string' ? session : null,
          result: status === 200 && isJsonObject(result) ? result : null,
          error:
            isJsonObject(error) && typeof error['message'] === 'string' ? error['message'].slice(0, MOST_ERROR) : null,
        };
      }
      return { status, session: null, result: null, error: null };
    } finally {
      // What is left of a stream is nothing that was asked for. A whole answer leaves its connection to the next.
      if (!answer.body.readableEnded) answer.body.destroy();
    }
  }

  async notify(notification: JsonObject, headers: Readonly<Record<string, string>>): Promise<void> {
    (await this.#post(notification, headers)).body.resume();
  }

  /** Says something that the server need not have heard. Resolves when nothing of it is open any more. */
  async tell(message: JsonObject, headers: Readonly<Record<string, string>>): Promise<void> {
    try {
      await finished((await this.#post(message, headers)).body.resume());
    } catch {
      // It did not take it, or not in time.
    }
  }

  /** Nobody waits for it. */
  async end(headers: Readonly<Record<string, string>>): Promise<void> {
    void this.#send('DELETE', headers, null, AbortSignal.timeout(END_MS)).then(
      ({ body }) => body.resume(),
      () => undefined,
    );
  }

  async #post(message: JsonObject, headers: Readonly<Record<string, string>>) {
    const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }));
    return this.#send('POST', { 'content-type': 'application/json', ...headers }, body, this.#signal);
  }

  async #send(
    method: 'POST' | 'DELETE',
    headers: Readonly<Record<string, string>>,
    body: Buffer | null,
    signal: AbortSignal,
  ) {
    const { settings, through, now } = this.#server;
    const sent = withCredentials(settings, {
      accept: 'application/json, text/event-stream',
      ...headers,
      'user-agent': this.#name,
    });
    const request = { method, path: settings.mcp.path, headers: sent, body, ...this.#holder };
    const opened = await open(through, request, { gate: () => 'go', signal, now });
    if (opened.kind === 'held_back') throw new Error('it did not answer in time');
    if (opened.kind !== 'answer') throw new Error(opened.message);
    return opened;
  }
}

/** Headers of a request to a server, with what the gateway itself sends. */
export function withCredentials(
  { credentials }: Pick<McpUpstreamSettings, 'credentials'>,
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const own = credentials === null ? {} : { [credentials.header.toLowerCase()]: credentials.value };
  return { 'user-agent': 'svc-gateway', ...headers, ...own };
}

async function* dataOf(events: ReturnType<typeof serverEvents>): AsyncGenerator<Buffer> {
  for await (const { data } of events) if (data !== null) yield data;
}
