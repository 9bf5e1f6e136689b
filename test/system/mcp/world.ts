import { documented } from '../../documented.ts';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';
import { makeApiKey, startGateway, type TestGateway } from '../gateway.ts';
import { lockOf, startLenientServer, TOOLS } from './lenient-server.ts';

const config = (url: string, pins: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: maria, roles: [lead] }, { id: olga, roles: [] } ]
roles: { lead: {} }
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga }, { id: cat, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - id: crm
    timeout: 10s
    credentials: { header: x-server-key, value: of the server }
    headers: { forward: [x-tenant] }
    mcp:
      url: "${url}"
      pins: "${pins}"
      trust_annotations: true
      tools:
        - { name: strict, risk: high, key_from: n }
        - { name: typed, key_from: order }
        - { name: slow, on_client_close: finish }
        - { name: asks, on_client_close: abort }
        - { name: sends, repeat_window: 0s }
        - { name: routed, meta: [example.com/tenant] }
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: crm
owner: team
rules:
  - { id: all, effect: allow, match: { upstreams: [crm] } }
  - { id: never, effect: deny, match: { tools: [crm.forbidden] }, reason: "Never" }
  - { id: no-secrets, effect: deny, match: { tools: ["crm.(resources/read)"] }, when: { params.uri: "file:///secret" }, reason: "Secret" }
  - { id: own-tenant, effect: deny, match: { tools: [crm.routed] }, when: { params._meta: { exists: true }, 'params._meta["example.com/tenant"]': other }, reason: "Tenant" }
  - { id: ask, effect: require_approval, match: { tools: [crm.ask] }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "May it?" } }
`;

export type McpWorld = Awaited<ReturnType<typeof startMcpWorld>>;

/** A lenient server behind a gateway, with a key of the agent bot, one of cat, and one of a lead. */
export async function startMcpWorld() {
  const server = await startLenientServer();
  const folder = await mkdtemp(join(tmpdir(), 'svc-pins-'));
  const pins = join(folder, 'crm.lock.json');
  await writeFile(pins, lockOf('crm', TOOLS, { server: 'lenient' }));
  let gateway: TestGateway = await startGateway({ config: config(server.url, pins), policies: { 'crm.yaml': POLICY } });
  const first = gateway;
  const agent = (id: string): Promise<string> =>
    makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: id });
  const keys = {
    bot: await agent('bot'),
    cat: await agent('cat'),
    lead: await makeApiKey(gateway, 'maria', { kind: 'account', workspace: 'demo' }),
    /** Of bot, for one tool, and one of another server that has the name of one here. */
    limited: await makeApiKey(gateway, 'olga', {
      kind: 'agent',
      workspace: 'demo',
      agent_id: 'bot',
      allowed_tools: ['crm.echo', 'shop.look'],
    }),
  };
  return {
    server,
    keys,
    url: (): string => gateway.url,
    gateway: (): TestGateway => gateway,
    /** The lock file. */
    pins,
    /** What the gateway says in its log. */
    log: (): string => gateway.log(),
    door: (): string => `${gateway.url}/mcp/crm`,
    kill: (): void => gateway.kill('SIGKILL'),
    restart: async (): Promise<void> => {
      gateway = await gateway.restart();
    },
    restartCleanly: async (): Promise<void> => {
      await gateway.stop();
      gateway = await gateway.restart();
    },
    async close() {
      await first.dispose();
      await server.close();
      await rm(folder, { recursive: true });
    },
  };
}

export interface Said {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The one message, of JSON or of the last event. */
  readonly message: JsonObject;
}

/** Sends a body to the door as it is. */
export async function post(
  world: Pick<McpWorld, 'door' | 'keys'>,
  body: string | Uint8Array<ArrayBuffer> | JsonObject,
  headers: Record<string, string> = {},
): Promise<Said> {
  const response = await fetch(world.door(), {
    method: 'POST',
    headers: {
      'x-api-key': world.keys.bot,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
    body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
  });
  const text = await response.text();
  const { pathname: path } = new URL(world.door());
  const contentType = response.headers.get('content-type');
  documented.check({ method: 'POST', path, status: response.status, contentType, text });
  return { status: response.status, headers: response.headers, text, message: lastMessage(text) };
}

function lastMessage(text: string): JsonObject {
  const data = text.startsWith('{')
    ? text
    : (
        text
          .trim()
          .split('\n')
          .findLast((line) => line.startsWith('data: ')) ?? ''
      ).slice(6);
  const value: Json = data === '' ? {} : JSON.parse(data);
  return isJsonObject(value) ? value : {};
}

let lastId = 0;

export function callOf(name: string, given: JsonObject = {}, more: JsonObject = {}): JsonObject {
  lastId += 1;
  return { jsonrpc: '2.0', id: lastId, method: 'tools/call', params: { name, arguments: given, ...more } };
}

/** The result of an answer, and the decision in it. */
export function resultOf({ message }: Said): { readonly result: JsonObject; readonly decision: JsonObject } {
  const { result } = message;
  if (!isJsonObject(result)) throw new Error(JSON.stringify(message));
  const { _meta: meta } = result;
  const decision = isJsonObject(meta) ? meta['dev.svc-gateway/decision'] : undefined;
  return { result, decision: isJsonObject(decision) ? decision : {} };
}
