import { parseStrictJson } from '../../json/strict.ts';
import { type Json, type JsonObject, isJsonArray, isJsonObject } from '../../json/value.ts';
import { HANDSHAKE_VERSIONS, META, STATELESS_VERSIONS } from '../../mcp-protocol/revisions.ts';
import type { LiveServer } from '../../pins/compare.ts';
import { VERSION } from '../../version.ts';
import { CommandFailure } from '../ports.ts';
import { readEvents } from './events.ts';
import { NoAnswer, readText, Sender } from './http.ts';
import { mirrorHeaders, ToolHeaders } from './message.ts';

/** Bytes of one answer. */
const MOST = 16 * 1024 * 1024;
const LIMITS = { depth: 128, values: 1_000_000, name: 10_000 };
/** Pages of one list: a server that always has one more is not listed for ever. */
const MOST_PAGES = 1_000;
const TIMEOUT_MS = 30_000;
const [SESSIONS] = HANDSHAKE_VERSIONS;
const [STATELESS] = STATELESS_VERSIONS;

/** Where a server is, and with what it is asked. */
export interface ServerAddress {
  readonly url: URL;
  /** Headers of each request, such as `authorization`. */
  readonly headers: Readonly<Record<string, string>>;
}

interface Answered {
  readonly status: number;
  readonly session: string | null;
  /** The answer to the request; `null` where there is none. */
  readonly message: JsonObject | null;
}

/**
 * What an MCP server says of itself now: its name, its instructions, and all pages of its tools, read strictly. It is
 * asked in the era of sessions first, which most servers know, and else in the stateless one.
 * @throws CommandFailure
 */
export async function readLiveServer(address: ServerAddress): Promise<LiveServer> {
  const sender = new Sender(address.url);
  try {
    return await new Reader(address, sender).read();
  } catch (error) {
    if (error instanceof NoAnswer) throw new CommandFailure(`${address.url.href} does not answer: ${error.message}`);
    throw error;
  } finally {
    sender.close();
  }
}

class Reader {
  readonly #address: ServerAddress;
  readonly #sender: Sender;
  readonly #signal = AbortSignal.timeout(TIMEOUT_MS);
  #headers: Readonly<Record<string, string>> = {};
  #meta: JsonObject | null = null;
  #id = 0;

  constructor(address: ServerAddress, sender: Sender) {
    this.#address = address;
    this.#sender = sender;
  }

  async read(): Promise<LiveServer> {
    const clientInfo = { name: 'svc', version: VERSION };
    const params = { protocolVersion: SESSIONS, capabilities: {}, clientInfo };
    const begun = await this.#ask('initialize', params);
    const result = resultOf(begun);
    if (result === null) return this.#readStateless(clientInfo, begun);
    const version = result['protocolVersion'];
    this.#headers = {
      ...(typeof version === 'string' && { 'mcp-protocol-version': version }),
      ...(begun.session !== null && { 'mcp-session-id': begun.session }),
    };
    try {
      await this.#post({ jsonrpc: '2.0', method: 'notifications/initialized' }, {});
      return aboutOf(result, result['serverInfo'], await this.#tools());
    } finally {
      if (begun.session !== null) await this.#goodbye();
    }
  }

  async #readStateless(clientInfo: JsonObject, refused: Answered): Promise<LiveServer> {
    this.#meta = {
      [META.protocolVersion]: STATELESS,
      [META.clientInfo]: clientInfo,
      [META.clientCapabilities]: {},
    };
    this.#headers = { 'mcp-protocol-version': STATELESS };
    const result = resultOf(await this.#ask('server/discover', {}));
    if (result === null) throw this.#refused(refused);
    const meta = isJsonObject(result['_meta']) ? result['_meta'] : {};
    return aboutOf(result, result['serverInfo'] ?? meta[META.serverInfo], await this.#tools());
  }

  async #tools(): Promise<readonly Json[]> {
    const tools: Json[] = [];
    let cursor: string | null = null;
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const answered = await this.#ask('tools/list', cursor === null ? {} : { cursor });
      const result = resultOf(answered);
      if (result === null || !isJsonArray(result['tools'])) throw this.#refused(answered);
      tools.push(...result['tools']);
      const next = result['nextCursor'];
      if (typeof next !== 'string') return tools;
      cursor = next;
    }
    throw new CommandFailure(`${this.#address.url.href} lists its tools on more than ${MOST_PAGES} pages.`);
  }

  async #ask(method: string, given: JsonObject): Promise<Answered> {
    this.#id += 1;
    const params = this.#meta === null ? given : { ...given, _meta: this.#meta };
    const mirrored = this.#meta === null ? {} : mirrorHeaders(method, params, new ToolHeaders());
    return this.#post({ jsonrpc: '2.0', id: this.#id, method, params }, mirrored);
  }

  async #post(message: JsonObject, mirrored: Readonly<Record<string, string>>): Promise<Answered> {
    const { status, headers, body } = await this.#sender.send({
      method: 'POST',
      headers: {
        ...this.#address.headers,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        ...this.#headers,
        ...mirrored,
      },
      body: Buffer.from(JSON.stringify(message)),
      signal: this.#signal,
    });
    const session = headers['mcp-session-id'];
    const answered = { status, session: typeof session === 'string' ? session : null };
    if (message['id'] === undefined) {
      body.destroy();
      return { ...answered, message: null };
    }
    let found: JsonObject | null = null;
    const take = (text: string): boolean => {
      const value = this.#parse(text, status);
      if (!isJsonObject(value) || 'method' in value || value['id'] !== message['id']) return false;
      found = value;
      return true;
    };
    if (/^text\/event-stream\b/i.test(headers['content-type'] ?? ''))
      await readEvents(body, MOST, { lastId: null, retryMs: null }, async (data) => {
        if (take(data)) body.destroy();
      });
    else take((await readText(body, MOST)) ?? '');
    return { ...answered, message: found };
  }

  /** What cannot be read in one way only cannot be pinned either. */
  #parse(text: string, status: number): Json {
    const parsed = parseStrictJson(text, LIMITS);
    if (parsed.ok) return parsed.value;
    if (status < 300 && text.includes('"result"'))
      throw new CommandFailure(`${this.#address.url.href} answers with JSON that cannot be pinned: ${parsed.message}.`);
    return null;
  }

  async #goodbye(): Promise<void> {
    const headers = { ...this.#address.headers, ...this.#headers };
    const signal = AbortSignal.timeout(1_000);
    const answer = await this.#sender.send({ method: 'DELETE', headers, body: null, signal }).catch(() => null);
    answer?.body.destroy();
  }

  #refused({ status, message }: Answered): CommandFailure {
    const error = isJsonObject(message?.['error']) ? message['error'] : {};
    const said = typeof error['message'] === 'string' ? `: ${error['message'].slice(0, 500)}` : '';
    const hint = status === 401 || status === 403 ? ' Name a key with --key-env or --key-file.' : '';
    return new CommandFailure(
      `${this.#address.url.href} does not list its tools over MCP (status ${status})${said}.${hint}`,
    );
  }
}

function resultOf({ status, message }: Answered): JsonObject | null {
  const result = message?.['result'];
  return status === 200 && isJsonObject(result) ? result : null;
}

function aboutOf(result: JsonObject, info: Json | undefined, tools: readonly Json[]): LiveServer {
  const { instructions } = result;
  const name = isJsonObject(info) ? info['name'] : undefined;
  return {
    server: typeof name === 'string' ? name : null,
    instructions: typeof instructions === 'string' ? instructions : null,
    tools,
  };
}
