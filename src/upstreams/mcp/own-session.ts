import type { JsonObject } from '../../json/value.ts';
import { VERSION } from '../../version.ts';
import type { Dispatcher } from 'undici';
import { HANDSHAKE_VERSIONS } from '../../mcp-protocol/revisions.ts';
import { open, type Opened } from './open.ts';
import type { McpUpstreamSettings } from './settings.ts';

/** What a call in the gateway's own session is sent with. */
export interface InSession {
  readonly id: number;
  readonly beside: JsonObject;
  readonly headers: Readonly<Record<string, string>>;
}

/** A server, and what carries requests to it. */
export interface Reached {
  readonly settings: McpUpstreamSettings;
  readonly through: Pick<Dispatcher, 'dispatch'>;
  readonly now: () => number;
}

/** How long a server may take to hear an answer, or the end of a session, ms. */
const END_MS = 5_000;

const [PROTOCOL] = HANDSHAKE_VERSIONS;

/**
 * The gateway's own session with a server, for calls that did not come over MCP. It is begun when the first such call
 * comes, and again after the server has forgotten it.
 */
export class OwnSession {
  #begun: Promise<Readonly<Record<string, string>> | string> | null = null;
  #lastId = 0;

  /** Resolves with what to send, or with why there is no session. */
  async enter(upstream: Reached, timeoutMs: number): Promise<InSession | string> {
    this.#begun ??= begin(upstream, timeoutMs);
    const headers = await this.#begun;
    if (typeof headers === 'string') {
      this.#begun = null;
      return headers;
    }
    this.#lastId += 1;
    return { id: this.#lastId, beside: {}, headers };
  }

  /** The server does not know it any more: the next call begins another. */
  forget(): void {
    this.#begun = null;
  }

  /** Ends it at the server, if it was begun. Whether that is heard does not matter: servers end what is not used. */
  end(upstream: Reached): void {
    void this.#begun?.then((headers) => end(upstream, headers));
    this.#begun = null;
  }
}

async function end(
  { settings, through, now }: Reached,
  headers: Readonly<Record<string, string>> | string,
): Promise<void> {
  if (typeof headers === 'string' || headers['mcp-session-id'] === undefined) return;
  const opened = await open(
    through,
    { method: 'DELETE', path: settings.mcp.path, headers: withCredentials(settings, headers), body: null },
    { gate: () => 'go', signal: AbortSignal.timeout(END_MS), now },
  );
  if (opened.kind === 'answer') opened.body.resume();
}

/** Says something in a session that is no request. Whether the server takes it shows in what it does next. */
export async function sayInSession(
  upstream: Reached,
  headers: Readonly<Record<string, string>>,
  message: JsonObject,
): Promise<void> {
  const opened = await post(upstream, message, headers, AbortSignal.timeout(END_MS));
  if (opened.kind === 'answer') opened.body.resume();
}

function post(
  { settings, through, now }: Reached,
  message: JsonObject,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Opened> {
  return open(
    through,
    {
      method: 'POST',
      path: settings.mcp.path,
      headers: withCredentials(settings, {
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        ...headers,
      }),
      body: Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message })),
    },
    { gate: () => 'go', signal, now },
  );
}

/** Headers of a request to a server, with what the gateway itself sends. */
export function withCredentials(
  { credentials }: Pick<McpUpstreamSettings, 'credentials'>,
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const own = credentials === null ? {} : { [credentials.header.toLowerCase()]: credentials.value };
  return { 'user-agent': 'svc-gateway', ...headers, ...own };
}

async function begin(upstream: Reached, timeoutMs: number): Promise<Readonly<Record<string, string>> | string> {
  const signal = AbortSignal.timeout(timeoutMs);
  const clientInfo = { name: 'svc-gateway', version: VERSION };
  const params = { protocolVersion: PROTOCOL, capabilities: {}, clientInfo };
  const opened = await post(upstream, { id: 0, method: 'initialize', params }, {}, signal);
  if (opened.kind !== 'answer')
    return opened.kind === 'held_back' ? 'the server did not begin a session in time' : opened.message;
  opened.body.resume();
  if (opened.status !== 200) return `the server does not begin a session (${opened.status})`;
  const id = opened.headers['mcp-session-id'];
  const headers: Record<string, string> = { 'mcp-protocol-version': PROTOCOL };
  if (typeof id === 'string') headers['mcp-session-id'] = id;
  const ready = await post(upstream, { method: 'notifications/initialized' }, headers, signal);
  if (ready.kind === 'answer') ready.body.resume();
  return headers;
}
