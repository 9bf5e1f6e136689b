import { isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';
import { CommandFailure } from '../../../src/cli/ports.ts';

/** As much of an MCP client as the tour needs, with messages as all clients send them. */
export interface TourClient {
  /** Names of the tools that the client sees. */
  readonly tools: readonly string[];
  /** @throws CommandFailure where the answer is no result with a decision */
  call(
    name: string,
    args: JsonObject,
  ): Promise<{
    readonly decision: string;
    readonly code: string;
    readonly happened: string;
    readonly next: string;
    /** What its model reads. */
    readonly text: string;
  }>;
}

/** Whether the action happened, and what to do: of those decisions that are no refusal. */
const MEANING: Readonly<Record<string, readonly [happened: string, next: string]>> = {
  committed: ['yes', 'proceed'],
  duplicate_blocked: ['yes', 'proceed'],
  pending_approval: ['no', 'wait'],
  in_progress: ['maybe', 'wait'],
  unknown_effect: ['maybe', 'resolve'],
  failed: ['no', 'retry'],
};

/**
 * Begins a session, as every client does, and lists the tools.
 * @param url the gateway's door to one MCP server
 * @throws CommandFailure
 */
export async function openTourClient(url: string, key: string): Promise<TourClient> {
  const headers: Record<string, string> = {
    'x-api-key': key,
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
  };
  let lastId = 0;

  const post = (message: JsonObject): Promise<Response> =>
    fetch(url, { method: 'POST', headers, body: JSON.stringify(message) });

  async function ask(method: string, params: JsonObject): Promise<JsonObject> {
    lastId += 1;
    const answer = await post({ jsonrpc: '2.0', id: lastId, method, params });
    const message: Json = JSON.parse(await answer.text());
    const session = answer.headers.get('mcp-session-id');
    if (session !== null) headers['mcp-session-id'] = session;
    if (!isJsonObject(message) || !isJsonObject(message['result']))
      throw new CommandFailure(`${method} is answered with ${answer.status}: ${JSON.stringify(message)}`);
    return message['result'];
  }

  const clientInfo = { name: 'svc tour', version: '1' };
  await ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
  headers['mcp-protocol-version'] = '2025-11-25';
  await post({ jsonrpc: '2.0', method: 'notifications/initialized' });
  const { tools } = await ask('tools/list', {});

  return {
    tools: Array.isArray(tools) ? tools.map((tool) => textIn(tool, 'name')) : [],
    async call(name, args) {
      const { content, _meta: meta } = await ask('tools/call', { name, arguments: args });
      const decision = isJsonObject(meta) ? meta['dev.svc-gateway/decision'] : undefined;
      if (!isJsonObject(decision)) throw new CommandFailure(`the call of ${name} has no decision`);
      const [first] = Array.isArray(content) ? content : [];
      const made = textIn(decision, 'decision');
      const [happened, next] = MEANING[made] ?? ['no', 'block'];
      return {
        decision: made,
        code: textIn(decision, 'code'),
        happened,
        next,
        text: textIn(first, 'text'),
      };
    },
  };
}

function textIn(value: Json | undefined, member: string): string {
  const text = isJsonObject(value) ? value[member] : undefined;
  return typeof text === 'string' ? text : '';
}
