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
interface Reached {
  readonly settings: McpUpstreamSettings;
  readonly through: Pick<Dispatcher, 'dispatch'>;
  readonly now: () => number;
}

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
}

async function begin(upstream: Reached, timeoutMs: number): Promise<Readonly<Record<string, string>> | string> {
  const { settings, through, now } = upstream;
  const signal = AbortSignal.timeout(timeoutMs);
  const post = (message: JsonObject, headers: Readonly<Record<string, string>>): Promise<Opened> =>
    open(
      through,
      {
        method: 'POST',
        path: settings.mcp.path,
        headers: {
          'user-agent': 'svc-gateway',
          accept: 'application/json, text/event-stream',
          'content-type': 'application/json',
          ...headers,
          ...(settings.credentials === null
            ? {}
            : { [settings.credentials.header.toLowerCase()]: settings.credentials.value }),
        },
        body: Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message })),
      },
      { gate: () => 'go', signal, now },
    );
  const clientInfo = { name: 'svc-gateway', version: VERSION };
  const opened = await post(
    { id: 0, method: 'initialize', params: { protocolVersion: PROTOCOL, capabilities: {}, clientInfo } },
    {},
  );
  if (opened.kind !== 'answer')
    return opened.kind === 'held_back' ? 'the server did not begin a session in time' : opened.message;
  opened.body.resume();
  if (opened.status !== 200) return `the server does not begin a session (${opened.status})`;
  const id = opened.headers['mcp-session-id'];
  const headers: Record<string, string> = { 'mcp-protocol-version': PROTOCOL };
  if (typeof id === 'string') headers['mcp-session-id'] = id;
  const ready = await post({ method: 'notifications/initialized' }, headers);
  if (ready.kind === 'answer') ready.body.resume();
  return headers;
}
