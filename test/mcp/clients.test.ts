import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from '@modelcontextprotocol/client';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Body, type McpWorld, startMcpWorld } from './world.ts';

let world: McpWorld;
let effect: Body;
/** They are idle while the other tests run. */
let idle: { readonly clients: readonly Connected[]; readonly since: number };

beforeAll(async () => {
  world = await startMcpWorld();
  effect = await world.refund({ payment_id: 'pay_1', amount: 100, currency: 'EUR' }, 'first');
  const clients = await Promise.all(Object.values(CLIENTS).map((connect) => connect(world.keys.account)));
  idle = { clients, since: Date.now() };
});
afterAll(() => world.close());

const WHO = { name: 'test', version: '1' };

/** What the tests need of a client, whatever its version. */
interface AnyClient {
  listTools(): Promise<{ readonly tools: readonly { readonly name: string }[] }>;
  callTool(call: { name: string; arguments: Record<string, unknown> }): Promise<object>;
  close(): Promise<void>;
}

interface Connected {
  readonly client: AnyClient;
  readonly version: () => string | undefined;
  /** Method and status of each request of the client. */
  readonly requests: string[];
}

/** The official clients, as they are on npm. `requests` sees what they send. */
const CLIENTS: Readonly<Record<string, (key: string) => Promise<Connected>>> = {
  async 'sdk 1.32'(key) {
    const requests: string[] = [];
    const client = new Client1(WHO);
    const transport = new Transport1(new URL(`${world.url}/v1/mcp`), options(key, requests));
    await client.connect(transport);
    return { client, requests, version: () => transport.protocolVersion };
  },
  async 'client 2.4, 2025-11-25'(key) {
    const requests: string[] = [];
    const client = new Client2(WHO);
    const transport = new Transport2(new URL(`${world.url}/v1/mcp`), options(key, requests));
    await client.connect(transport);
    return { client, requests, version: () => client.getNegotiatedProtocolVersion() };
  },
  async 'client 2.4, 2026-07-28'(key) {
    const requests: string[] = [];
    const client = new Client2(WHO, { versionNegotiation: { mode: 'auto' } });
    const transport = new Transport2(new URL(`${world.url}/v1/mcp`), options(key, requests));
    await client.connect(transport);
    return { client, requests, version: () => client.getNegotiatedProtocolVersion() };
  },
};

function options(key: string, requests: string[]) {
  return {
    requestInit: { headers: { 'X-API-Key': key } },
    fetch: async (url: string | URL, init?: RequestInit): Promise<Response> => {
      const response = await fetch(url, init);
      requests.push(`${init?.method ?? 'GET'} ${response.status}`);
      return response;
    },
  };
}

describe.each(Object.entries(CLIENTS))('%s', (name, connect) => {
  it('connects, lists, and calls each tool: what it gets fits the schema that it was told', async () => {
    const { client, version } = await connect(world.keys.account);
    expect(version()).toBe(name.endsWith('2026-07-28') ? '2026-07-28' : '2025-11-25');
    const { tools } = await client.listTools();
    expect(tools.length).toBe(15);
    const bot = { agent_id: 'bot', params: { payment_id: 'pay_5', amount: 3, currency: 'EUR' } };
    const id = { effect_id: effect.effect_id };
    const calls: Readonly<Record<string, Record<string, unknown>>> = {
      'svc.tools.search': {},
      'svc.tools.describe': { tool: 'payments.refund' },
      'svc.preflight.check': { tool: 'payments.refund', ...bot },
      'svc.policy.simulate': { action: 'payments.refund', ...bot },
      'svc.policy.explain': id,
      'svc.company_brain.query': { query: 'acme', entity_type: 'customer', join_to: { entity_type: 'order' } },
      'svc.approvals.list': {},
      'svc.executions.list': {},
      'svc.executions.get': id,
      'svc.executions.trace': id,
      'svc.receipts.verify': { receipt: effect.receipt },
      'svc.observability.summary': { window: '1h', group_by: 'agent' },
      'svc.governance.readiness': {},
    };
    // Clients of both lines check `structuredContent` against `outputSchema`, and throw where it does not fit.
    for (const [tool, args] of Object.entries(calls)) {
      const result = await client.callTool({ name: tool, arguments: args });
      expect(result, tool).toMatchObject({ isError: false, structuredContent: expect.any(Object) as unknown });
    }
    await client.close();
  });

  it('gets an error of a tool as a result, and goes on', async () => {
    const { client } = await connect(world.keys.account);
    await client.listTools();
    for (const args of [{ effect_id: 'eff_none' }, {}]) {
      const failed = await client.callTool({ name: 'svc.executions.get', arguments: args });
      expect(failed).toMatchObject({ isError: true });
    }
    await expect(client.callTool({ name: 'svc.nothing', arguments: {} })).rejects.toThrow(/no tool/);
    expect(await client.callTool({ name: 'svc.executions.list', arguments: {} })).toMatchObject({ isError: false });
    await client.close();
  });

  it('reads why a key is not taken, and why it may not', async () => {
    await expect(connect('svc_acct_wrong')).rejects.toThrow(/401|[Uu]nauthorized|malformed|API key/);
    const { client } = await connect(world.keys.bot);
    const forbidden = client.callTool({ name: 'svc.governance.readiness', arguments: {} });
    await expect(forbidden).rejects.toThrow(/may not do this/);
    expect(await client.callTool({ name: 'svc.executions.list', arguments: {} })).toMatchObject({ isError: false });
    await client.close();
  });
});

it('an idle client asks for a stream once at most in ten seconds, not once a second', async () => {
  await delay(Math.max(0, idle.since + 10_000 - Date.now()));
  for (const { client, requests } of idle.clients) {
    const gets = requests.filter((one) => one.startsWith('GET'));
    expect(gets.length, gets.join()).toBeLessThanOrEqual(1);
    for (const get of gets) expect(get).toBe('GET 405');
    await client.close();
  }
  expect(idle.clients[0]?.requests).toContain('GET 405');
});
