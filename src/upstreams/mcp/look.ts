import { isJsonObject, type JsonObject } from '../../json/value.ts';
import { type Answered, MOST_PAGES, readServer, type ServerLine, type Unread } from '../../mcp-protocol/read-server.ts';
import type { LiveServer } from '../../pins/compare.ts';
import { VERSION } from '../../version.ts';
import { open } from './open.ts';
import { type Reached, withCredentials } from './own-session.ts';
import { serverEvents } from './server-events.ts';
import { readStrictly, wholeOf } from './whole-answer.ts';

/** Bytes of one answer, and of all pages of a list. */
const MOST_BYTES = 4 * 1024 * 1024;
const LIMITS = { depth: 128, values: 200_000, name: 10_000 };
/** How long a whole look may take, ms. */
const TIMEOUT_MS = 10_000;

/** By this servers, and tests, tell looks from calls. */
export const LOOKER = 'svc-gateway (pins)';

/**
 * Reads what a server says of itself and of its tools, all pages, in a session of its own: one in which calls are made
 * may be told something else.
 * @returns why nothing could be read, in its place
 */
export async function lookAt(server: Reached): Promise<LiveServer | string> {
  try {
    return await readServer(new Look(server), { name: LOOKER, version: VERSION });
  } catch (error) {
    return error instanceof Error ? error.message : 'it cannot be read';
  }
}

class Look implements ServerLine<Answered> {
  readonly #server: Reached;
  readonly #signal = AbortSignal.timeout(TIMEOUT_MS);
  #bytes = 0;

  constructor(server: Reached) {
    this.#server = server;
  }

  async ask(request: JsonObject & { readonly id: number }, headers: Readonly<Record<string, string>>) {
    const answer = await this.#post(request, headers);
    const { 'mcp-session-id': session, 'content-type': type } = answer.headers;
    try {
      const messages = /^text\/event-stream\b/i.test(String(type ?? ''))
        ? dataOf(serverEvents(answer.body.iterator({ destroyOnReturn: false }), MOST_BYTES))
        : [await wholeOf(answer.body, MOST_BYTES)];
      for await (const text of messages) {
        this.#bytes += text.byteLength;
        if (this.#bytes > MOST_BYTES) throw new Error(`what it says is longer than ${MOST_BYTES} bytes`);
        const parsed = await readStrictly(text, LIMITS);
        if (!parsed.ok && answer.status === 200) throw new Error(`it answers with JSON that is not strict`);
        if (!parsed.ok || !isJsonObject(parsed.value)) continue;
        const { id: of, method: asked, result } = parsed.value;
        if (asked !== undefined || of !== request.id) continue;
        return {
          session: typeof session === 'string' ? session : null,
          result: answer.status === 200 && isJsonObject(result) ? result : null,
        };
      }
      return { session: null, result: null };
    } finally {
      // What is left of a stream is nothing that was asked for. A whole answer leaves its connection to the next.
      if (!answer.body.readableEnded) answer.body.destroy();
    }
  }

  async tell(notification: JsonObject, headers: Readonly<Record<string, string>>): Promise<void> {
    (await this.#post(notification, headers)).body.resume();
  }

  /** Nobody waits for it. */
  async end(headers: Readonly<Record<string, string>>): Promise<void> {
    void this.#send('DELETE', headers, null, AbortSignal.timeout(1_000)).then(
      ({ body }) => body.resume(),
      () => undefined,
    );
  }

  unread(why: Unread): Error {
    switch (why) {
      case 'not_begun':
        return new Error('it answers neither initialize nor server/discover');
      case 'not_listed':
        return new Error('it does not list its tools');
      case 'endless':
        return new Error(`its list of tools has more than ${MOST_PAGES} pages`);
    }
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
      'user-agent': LOOKER,
    });
    const request = { method, path: settings.mcp.path, headers: sent, body };
    const opened = await open(through, request, { gate: () => 'go', signal, now });
    if (opened.kind === 'held_back') throw new Error('it did not answer in time');
    if (opened.kind !== 'answer') throw new Error(opened.message);
    return opened;
  }
}

async function* dataOf(events: ReturnType<typeof serverEvents>): AsyncGenerator<Buffer> {
  for await (const { data } of events) if (data !== null && data !== '') yield Buffer.from(data);
}
