import type { JsonObject } from '../json/value.ts';
import { HANDSHAKE_VERSIONS, STATELESS_VERSIONS } from '../mcp-protocol/revisions.ts';

/*
 * The doors that speak MCP, for the OpenAPI document. It says what each of them is as an HTTP route; what goes through
 * it is told by MCP's own methods (`tools/list`), and differs for each key.
 */

const TEXT = { type: 'string' };
const TAGS = ['mcp'];

const ID = { type: ['string', 'integer'] };
const ERROR = {
  type: 'object',
  required: ['code', 'message'],
  properties: {
    code: { type: 'integer' },
    message: TEXT,
    data: { description: 'The problem, where the gateway refused the message.' },
  },
};

/** Under `components.schemas`. */
export const MCP_SCHEMAS: JsonObject = {
  McpMessage: {
    title: 'McpMessage',
    description:
      'One JSON-RPC 2.0 message of the Model Context Protocol: a request has `method` and `id`, a notification `method` alone, an answer `id` and `result` or `error`. Batches and `id: null` are refused.',
    type: 'object',
    required: ['jsonrpc'],
    properties: {
      jsonrpc: { const: '2.0' },
      id: ID,
      method: TEXT,
      params: { type: 'object', additionalProperties: true },
      result: { type: 'object', additionalProperties: true },
      error: ERROR,
    },
    anyOf: [{ required: ['method'] }, { required: ['id', 'result'] }, { required: ['error'] }],
  },
  McpAnswer: {
    title: 'McpAnswer',
    description:
      'A JSON-RPC 2.0 answer. An error about a message whose `id` was not read has the `id` null; before the key is known, with 401, it has none.',
    oneOf: [
      {
        type: 'object',
        required: ['jsonrpc', 'id', 'result'],
        properties: { jsonrpc: { const: '2.0' }, id: ID, result: { type: 'object', additionalProperties: true } },
      },
      {
        type: 'object',
        required: ['jsonrpc', 'error'],
        properties: { jsonrpc: { const: '2.0' }, id: { type: ['string', 'integer', 'null'] }, error: ERROR },
      },
    ],
  },
};

const header = (name: string, description: string): JsonObject => ({ name, in: 'header', schema: TEXT, description });

const VERSION = header(
  'MCP-Protocol-Version',
  `${[...STATELESS_VERSIONS, ...HANDSHAKE_VERSIONS].join(', ')}. In ${STATELESS_VERSIONS.join(', ')} it is required, with \`Mcp-Method\` and, where the message names something, \`Mcp-Name\`.`,
);
const OF_SERVERS = [
  VERSION,
  header('Mcp-Session-Id', 'As the answer to `initialize` gave it. It is of no use to other agents.'),
  header('Svc-Agent-Id', 'Names the agent, with a key that belongs to none.'),
];
const KEY = header('Idempotency-Key', 'For `tools/call`. Without it, and without one in `_meta`, a key is derived.');
const UPSTREAM = { name: 'upstream', in: 'path', required: true, schema: TEXT, description: 'The id of the upstream.' };

/** Whoever is refused before anything is read gets no message. */
const unread: JsonObject = { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } };
const refusals = {
  description:
    'A JSON-RPC error; the problem is in `error.data`. Where nothing was read (the gateway is overloaded, or stops) it is the problem itself.',
  content: { ...json('McpAnswer'), ...unread },
};

function json(name: keyof typeof MCP_SCHEMAS & string): JsonObject {
  return { 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } };
}

/** The answers to a message. @param streams as the server gives it: events, one message, or a list of them */
function answers(streams: boolean): JsonObject {
  const answer = { $ref: '#/components/schemas/McpAnswer' };
  const given: JsonObject = {
    'application/json': { schema: { anyOf: [answer, { type: 'array', items: { type: 'object' } }] } },
    'text/event-stream': { schema: TEXT },
  };
  const refused = streams ? { ...refusals, content: { ...given, ...unread } } : refusals;
  return {
    '200': {
      description: 'The answer. A decision on a call is a result of the call, also where it was refused.',
      content: streams ? given : json('McpAnswer'),
    },
    '202': { description: 'A notification, or an answer to a question of the server, was taken.' },
    '4XX': refused,
    '5XX': refused,
  };
}

function operation(
  operationId: string,
  summary: string,
  parameters: readonly JsonObject[],
  responses: JsonObject,
): JsonObject {
  return { operationId, summary, tags: TAGS, parameters, responses };
}

function post(operationId: string, summary: string, parameters: readonly JsonObject[], streams: boolean): JsonObject {
  return {
    ...operation(operationId, summary, parameters, answers(streams)),
    requestBody: { required: true, content: json('McpMessage') },
  };
}

const NONE = { description: 'There is none here.', headers: { Allow: { schema: TEXT } } };

const URL_TEXT = { type: 'string', format: 'uri' };
const object = (properties: JsonObject): JsonObject => ({
  type: 'object',
  required: Object.keys(properties),
  properties,
});
const DISCOVERY = object({
  name: TEXT,
  title: TEXT,
  version: TEXT,
  protocol: { const: 'mcp' },
  transport: { const: 'streamable-http' },
  protocol_versions: { type: 'array', items: TEXT },
  url: URL_TEXT,
  tools: object({ url: URL_TEXT, method: { const: 'tools/list' } }),
  key_profiles_url: URL_TEXT,
  auth: object({ scheme: { const: 'api_key' }, header: TEXT, also: { type: 'array', items: TEXT } }),
  instructions: TEXT,
  docs_url: URL_TEXT,
});

/** Under `paths`. */
export const MCP_PATHS: Readonly<Record<string, JsonObject>> = {
  '/v1/mcp': {
    get: operation('describeMcpControl', 'What the MCP control plane is, for whoever configures a client', [], {
      '200': {
        description: 'Name, versions, address and how to authenticate.',
        content: { 'application/json': { schema: DISCOVERY } },
      },
      '405': {
        ...refusals,
        ...NONE,
        description: 'With `Accept: text/event-stream`: there is no stream of messages.',
      },
      '4XX': refusals,
      '5XX': refusals,
    }),
    post: post('callMcpControl', 'One message to the MCP control plane: tools that only read', [VERSION], false),
  },
  '/mcp': {
    post: post('callMcpServers', 'One message to the tools of all MCP servers', [...OF_SERVERS, KEY], true),
    get: operation('streamMcpServers', 'No stream: the gateway sends nothing but answers', OF_SERVERS, {
      '405': { ...refusals, ...NONE },
      '4XX': refusals,
      '5XX': refusals,
    }),
    delete: operation('endMcpServersSession', 'End a session', OF_SERVERS, {
      '204': { description: 'It has ended.' },
      '4XX': refusals,
      '5XX': refusals,
    }),
  },
  '/mcp/{upstream}': {
    post: post('callMcpServer', 'One message to an MCP server', [UPSTREAM, ...OF_SERVERS, KEY], true),
    get: operation(
      'streamMcpServer',
      'The stream on which an MCP server speaks first',
      [UPSTREAM, ...OF_SERVERS, header('Last-Event-ID', 'The event after which a stream of this session goes on.')],
      {
        '200': { description: 'Messages of the server.', content: { 'text/event-stream': { schema: TEXT } } },
        '4XX': refusals,
        '5XX': refusals,
      },
    ),
    delete: operation('endMcpServerSession', 'End a session', [UPSTREAM, ...OF_SERVERS], {
      '2XX': { description: 'As the server answers.' },
      '4XX': refusals,
      '5XX': refusals,
    }),
  },
};
