import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { HANDSHAKE_VERSIONS, META, STATELESS_VERSIONS } from '../../mcp-protocol/revisions.ts';
import type { LiveServer, ServerWords } from '../../pins/compare.ts';
import { VERSION } from '../../version.ts';
import { open } from './open.ts';
import type { Reached } from './own-session.ts';
import { serverEvents } from './server-events.ts';
import { readStrictly, wholeOf } from './whole-answer.ts';

/** Bytes of one answer, and of all pages of a list. */
const MOST_BYTES = 4 * 1024 * 1024;
const MOST_PAGES = 1_000;
const LIMITS = { depth: 128, values: 200_000, name: 10_000 };
/** How long a whole look may take, ms. */
const TIMEOUT_MS = 10_000;
const [SESSIONS] = HANDSHAKE_VERSIONS;
const [STATELESS] = STATELESS_VERSIONS;

/** By this servers, and tests, tell looks from calls. */
export const LOOKER = 'svc-gateway (pins)';

interface Answered {
  readonly session: string | null;
  readonly result: JsonObject | null;
}

/**
 * Reads what a server says of itself and of its tools, all pages, in a session of its own: one in which calls are made
 * may be told something else. Servers that do not begin one are asked in the stateless era.
 * @returns why nothing could be read, in its place
 */
export async function lookAt(server: Reached): Promise<LiveServer | string> {
  try {
    return await new Look(server).read();
  } catch (error) {
    return error instanceof Error ? error.message : 'it cannot be read';
  }
}

class Look {
  readonly #server: Reached;
  readonly #signal = AbortSignal.timeout(TIMEOUT_MS);
  #headers: Readonly<Record<string, string>> = {};
  #meta: JsonObject | null = null;
  #id = 0;
  #bytes = 0;

  constructor(server: Reached) {
    this.#server = server;
  }

  async read(): Promise<LiveServer> {
    const clientInfo = { name: LOOKER, version: VERSION };
    const begun = await this.#ask('initialize', { protocolVersion: SESSIONS, capabilities: {}, clientInfo });
    if (begun.result === null) return this.#readStateless(clientInfo);
    const { protocolVersion: version } = begun.result;
    this.#headers = {
      ...(typeof version === 'string' && { 'mcp-protocol-version': version }),
      ...(begun.session !== null && { 'mcp-session-id': begun.session }),
    };
    try {
      (await this.#post({ method: 'notifications/initialized' }, {})).body.resume();
      return { ...wordsIn(begun.result), tools: await this.#tools() };
    } finally {
      if (begun.session !== null) void this.#goodbye();
    }
  }

  async #readStateless(clientInfo: JsonObject): Promise<LiveServer> {
    this.#meta = { [META.protocolVersion]: STATELESS, [META.clientInfo]: clientInfo, [META.clientCapabilities]: {} };
    this.#headers = { 'mcp-protocol-version': STATELESS };
    const { result } = await this.#ask('server/discover', {});
    if (result === null) throw new Error('it answers neither initialize nor server/discover');
    return { ...wordsIn(result), tools: await this.#tools() };
  }

  async #tools(): Promise<readonly Json[]> {
    const tools: Json[] = [];
    let cursor: string | null = null;
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const { result }: Answered = await this.#ask('tools/list', cursor === null ? {} : { cursor });
      if (result === null || !isJsonArray(result['tools'])) throw new Error('it does not list its tools');
      tools.push(...result['tools']);
      const next = result['nextCursor'];
      if (typeof next !== 'string') return tools;
      cursor = next;
    }
    throw new Error(`its list of tools has more than ${MOST_PAGES} pages`);
  }

  async #ask(method: string, given: JsonObject): Promise<Answered> {
    this.#id += 1;
    const id = this.#id;
    const params = this.#meta === null ? given : { ...given, _meta: this.#meta };
    const answer = await this.#post({ id, method, params }, this.#meta === null ? {} : { 'mcp-method': method });
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
        if (asked !== undefined || of !== id) continue;
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

  async #post(message: JsonObject, more: Readonly<Record<string, string>>) {
    const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }));
    return this.#send('POST', { 'content-type': 'application/json', ...more }, body, this.#signal);
  }

  async #goodbye(): Promise<void> {
    const answer = await this.#send('DELETE', {}, null, AbortSignal.timeout(1_000)).catch(() => null);
    answer?.body.resume();
  }

  async #send(
    method: 'POST' | 'DELETE',
    more: Readonly<Record<string, string>>,
    body: Buffer | null,
    signal: AbortSignal,
  ) {
    const { settings, through, now } = this.#server;
    const { credentials, mcp } = settings;
    const headers = {
      accept: 'application/json, text/event-stream',
      ...this.#headers,
      ...more,
      ...(credentials !== null && { [credentials.header.toLowerCase()]: credentials.value }),
      'user-agent': LOOKER,
    };
    const opened = await open(through, { method, path: mcp.path, headers, body }, { gate: () => 'go', signal, now });
    if (opened.kind === 'held_back') throw new Error('it did not answer in time');
    if (opened.kind !== 'answer') throw new Error(opened.message);
    return opened;
  }
}

async function* dataOf(events: ReturnType<typeof serverEvents>): AsyncGenerator<Buffer> {
  for await (const { data } of events) if (data !== null && data !== '') yield Buffer.from(data);
}

/** What a server says of itself, in its answer to `initialize` or `server/discover`. */
export function wordsIn(result: JsonObject): ServerWords {
  const { instructions, _meta: meta } = result;
  const info = result['serverInfo'] ?? (isJsonObject(meta) ? meta[META.serverInfo] : undefined);
  const name = isJsonObject(info) ? info['name'] : undefined;
  return {
    server: typeof name === 'string' ? name : null,
    instructions: typeof instructions === 'string' ? instructions : null,
  };
}
