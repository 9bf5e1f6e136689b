import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { documented } from '../documented.ts';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startPaymentsUpstream } from '../../packages/demo/src/payments-upstream.ts';
import { expectSilentFsckIn } from '../silent-fsck.ts';
import { startGateway } from '../../src/gateway/start.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import type { Answer } from '../system/gateway.ts';
import { worldFiles } from '../system/world.ts';

const AJV = new Ajv2020({ strict: false, validateFormats: false });

/** Keys that MCP clients come with. */
export interface McpKeys {
  readonly account: string;
  readonly approver: string;
  readonly bot: string;
  readonly otherBot: string;
  readonly administrative: string;
  readonly readonly: string;
  readonly operator: string;
  readonly agentProfile: string;
  readonly homeless: string;
  readonly stranger: string;
}

export interface McpWorld {
  readonly url: string;
  readonly keys: McpKeys;
  /** The folder of the keys that receipts are signed with. */
  readonly receiptKeys: string;
  api(method: string, path: string, key: string, body?: unknown): Promise<{ status: number; body: Body }>;
  /** Runs a refund as the bot. */
  refund(params: object, idempotencyKey: string): Promise<Body>;
  /** Sends one message and gives the whole answer. */
  post(key: string, message: unknown, headers?: Record<string, string>): Promise<Posted>;
  /** Calls a tool as plain curl would: no `Accept`, no `_meta`. */
  call(key: string, tool: string, args?: object): Promise<Called>;
  /** Names of the tools that a key sees. */
  toolNames(key: string): Promise<readonly string[]>;
  /** The next write at the upstream happens, but its answer is lost. */
  loseNextAnswer(): void;
  /** All rows of the store as they are on disk. */
  rows(): Promise<readonly string[]>;
  close(): Promise<void>;
}

/** Bodies are asserted on by the tests, member by member. */
export type Body = Answer['body'];

export interface Posted {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Body;
}

export interface Called extends Posted {
  /** `structuredContent` of the result. */
  readonly structured: Body;
  readonly isError: boolean;
  readonly text: string;
}

/** A gateway in this process, with an upstream and keys of every kind. */
export async function startMcpWorld(
  change: { readonly config?: (text: string) => string; readonly policy?: string } = {},
): Promise<McpWorld> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-mcp-'));
  const upstream = await startPaymentsUpstream({ port: 0 });
  const { config, policies } = worldFiles(upstream.url);
  await writeFile(
    join(folder, 'world.yaml'),
    `${(policies['world.yaml'] ?? '').replace('limit: 100000 }', 'limit: 100000000 }')}${change.policy ?? ''}`,
  );
  const configFile = join(folder, 'gateway.yaml');
  const own = `secrets: { master: { file: "${folder}/master" } }\nreceipts: { keys: "${folder}/keys" }\n`;
  await writeFile(configFile, (change.config?.(config) ?? config) + own);
  const gateway = await startGateway({
    configFile,
    environment: { SVC_TEST_DATA: join(folder, 'store'), SVC_TEST_POLICIES: join(folder, 'world.yaml') },
    port: 0,
    log: 'none',
    firstKey: 'shown',
  });
  const first = gateway.administrativeKey;
  if (first === null || !('key' in first)) throw new Error('the gateway made no first key');
  const administrative = first.key;
  const { url } = gateway;

  const api: McpWorld['api'] = async (method, path, key, body) => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { 'x-api-key': key, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    const contentType = response.headers.get('content-type');
    documented.check({ method, path, status: response.status, contentType, text });
    return { status: response.status, body: JSON.parse(text) };
  };
  const make = async (user: string, of: object): Promise<string> => {
    const { body } = await api('POST', `/v1/beta/users/${user}/keys`, administrative, { name: 'a key', ...of });
    if (typeof body['key'] !== 'string') throw new Error(`no key was made: ${JSON.stringify(body)}`);
    return body['key'];
  };
  const demo = { workspace: 'demo' };
  const keys: McpKeys = {
    administrative,
    account: await make('tom', { kind: 'account', ...demo }),
    approver: await make('maria', { kind: 'account', ...demo }),
    bot: await make('olga', { kind: 'agent', agent_id: 'bot', ...demo }),
    otherBot: await make('olga', { kind: 'agent', agent_id: 'other-bot', ...demo }),
    readonly: await make('tom', { profile: 'mcp_readonly', ...demo }),
    operator: await make('tom', { profile: 'mcp_operator', ...demo }),
    agentProfile: await make('tom', { profile: 'mcp_agent', agent_id: 'bot', ...demo }),
    homeless: await make('tom', { profile: 'mcp_operator' }),
    stranger: await make('olga', { kind: 'agent', workspace: 'elsewhere', agent_id: 'stranger' }),
  };

  let id = 0;
  const post: McpWorld['post'] = async (key, message, headers = {}) => {
    const response = await fetch(`${url}/v1/mcp`, {
      method: 'POST',
      headers: { 'x-api-key': key, 'content-type': 'application/json', ...headers },
      body: typeof message === 'string' ? message : JSON.stringify(message),
    });
    const text = await response.text();
    const contentType = response.headers.get('content-type');
    documented.check({ method: 'POST', path: '/v1/mcp', status: response.status, contentType, text });
    return { status: response.status, headers: response.headers, body: text === '' ? {} : JSON.parse(text) };
  };

  const checks = new Map<string, ValidateFunction>();
  /** What a tool answers is as it says that it answers: strict clients throw away what is not. */
  const expectDescribed = async (key: string, tool: string, structured: unknown): Promise<void> => {
    for (let cursor: unknown = null; !checks.has(tool); ) {
      id += 1;
      const params = cursor === null ? {} : { cursor };
      const { result } = (await post(key, { jsonrpc: '2.0', id, method: 'tools/list', params })).body;
      for (const { name, outputSchema } of result.tools)
        if (!checks.has(name)) checks.set(name, AJV.compile(outputSchema));
      cursor = result.nextCursor ?? null;
      if (cursor === null && !checks.has(tool)) throw new Error(`${tool} answers, and is not listed`);
    }
    const check = checks.get(tool);
    if (check?.(structured) === false)
      throw new Error(`${tool} answers otherwise than it says: ${AJV.errorsText(check.errors)}`);
  };

  return {
    url,
    keys,
    receiptKeys: join(folder, 'keys'),
    api,
    post,
    async refund(params, idempotencyKey) {
      const { body } = await api('POST', '/v1/workspaces/demo/effects', keys.bot, {
        tool: 'payments.refund',
        params,
        idempotency_key: idempotencyKey,
      });
      return body;
    },
    async call(key, tool, args) {
      id += 1;
      const params = args === undefined ? { name: tool } : { name: tool, arguments: args };
      const posted = await post(key, { jsonrpc: '2.0', id, method: 'tools/call', params });
      const result = posted.body['result'] as
        | { structuredContent?: Body; isError?: boolean; content: readonly { readonly text: string }[] }
        | undefined;
      if (result?.structuredContent !== undefined && result.isError !== true)
        await expectDescribed(key, tool, result.structuredContent);
      return {
        ...posted,
        structured: result?.structuredContent ?? {},
        isError: result?.isError === true,
        text: (result?.content ?? []).map(({ text }) => text).join('\n'),
      };
    },
    async toolNames(key) {
      id += 1;
      const { body } = await post(key, { jsonrpc: '2.0', id, method: 'tools/list', params: {} });
      const result = body['result'] as { tools: readonly { readonly name: string }[] };
      return result.tools.map(({ name }) => name);
    },
    loseNextAnswer: () => upstream.loseNextAnswer(),
    async rows() {
      const open = await loadDriver();
      const database = open(join(folder, 'store', 'store.db'));
      try {
        const tables = database.prepare(`SELECT name FROM sqlite_master WHERE type = 'table'`).all() as {
          name: string;
        }[];
        return tables.flatMap(({ name }) =>
          (database.prepare(`SELECT * FROM "${name}"`).all() as object[]).map(
            (row) => `${name} ${JSON.stringify(row)}`,
          ),
        );
      } finally {
        database.close();
      }
    },
    async close() {
      await gateway.close();
      await upstream.close();
      await expectSilentFsckIn(join(folder, 'store'));
      await rm(folder, { recursive: true, force: true });
    },
  };
}
