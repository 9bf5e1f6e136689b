import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from '@modelcontextprotocol/client';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { readLiveServer } from '../../src/cli/mcp/live-server.ts';
import { DECISIONS, type Decision } from '../../src/effects/model/decision.ts';
import { isJsonObject } from '../../src/json/value.ts';
import { startGateway, type TestGateway } from '../system/gateway.ts';
import { lockOf } from '../system/mcp/lenient-server.ts';
import { arrangeCases, CASES, casesPolicy } from './decision-cases.ts';

/**
 * Each official MCP client × each decision × tools with and without an output schema: a program reads the decision from
 * the result, the client throws nothing and waits for nothing, and its session goes on.
 */

/** Ends the call that is under way at the server. */
let release: () => void = () => {};
/** Calls that came to the server. */
let arrived = 0;

function makeServer(): McpServer {
  const server = new McpServer({ name: 'table', version: '1.0.0' });
  const inputSchema = z.object({ word: z.string(), note: z.number() });
  const run = async (word: string): Promise<'refused' | 'done'> => {
    if (word === 'held') await new Promise<void>((resolve) => (release = resolve));
    return word === 'refused' ? 'refused' : 'done';
  };
  const refusal = { content: [{ type: 'text' as const, text: 'No such thing' }], isError: true };
  server.registerTool('plain', { inputSchema }, async ({ word }) =>
    (await run(word)) === 'refused' ? refusal : { content: [{ type: 'text', text: word }] },
  );
  server.registerTool('typed', { inputSchema, outputSchema: z.object({ n: z.number() }) }, async ({ word, note }) =>
    (await run(word)) === 'refused'
      ? refusal
      : { content: [{ type: 'text', text: word }], structuredContent: { n: note } },
  );
  return server;
}

/** Serves both eras. The connection of a call that is lost breaks once the call has come. */
async function startServer(): Promise<{ readonly url: string; close(): void }> {
  const handle = toNodeHandler(createMcpHandler(makeServer));
  const http = createServer((request, response) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of request as AsyncIterable<Buffer>) pieces.push(piece);
      const body = Buffer.concat(pieces).toString();
      if (body.includes('"tools/call"')) arrived += 1;
      if (body.includes('"word":"lost"')) {
        response.destroy();
        return;
      }
      const named = Object.assign(request, { method: request.method ?? '', url: request.url ?? '' });
      await handle(named, response, body === '' ? undefined : JSON.parse(body));
    })().catch(() => response.destroy());
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    close: () => {
      release();
      http.closeAllConnections();
      http.close();
    },
  };
}

const config = (url: string, pins: string): string => `${CASES}upstreams:
  - id: table
    timeout: 20s
    mcp:
      url: "${url}"
      pins: "${pins}"
      tools:
        - { name: plain, target: "case:{word}", is_error: failed }
        - { name: typed, target: "case:{word}", is_error: failed }
`;

let server: Awaited<ReturnType<typeof startServer>>;
let gateway: TestGateway;
let folder: string;
let keyOf: (name: string) => string = () => '';

beforeAll(async () => {
  server = await startServer();
  folder = await mkdtemp(join(tmpdir(), 'svc-table-'));
  const pins = join(folder, 'table.lock.json');
  const { tools } = await readLiveServer({ url: new URL(server.url), headers: {} });
  await writeFile(pins, lockOf('table', tools.filter(isJsonObject)));
  gateway = await startGateway({
    config: config(server.url, pins),
    policies: { 'table.yaml': casesPolicy('{ upstreams: [table] }', 2) },
  });
  keyOf = await arrangeCases(gateway, 'table.nothing');
});
afterAll(async () => {
  await gateway.dispose();
  server.close();
  await rm(folder, { recursive: true });
});

/** What the tests need of a client, whatever its version. */
interface Connected {
  call(name: string, word: string, note: number, key: string | null): Promise<object>;
  close(): Promise<void>;
}

/** Whose key goes with the next requests. A client that may not connect is never told a decision. */
let acts = 'bot';
const transportOptions = {
  fetch: (url: string | URL, init?: RequestInit): Promise<Response> => {
    const headers = new Headers(init?.headers);
    headers.set('x-api-key', keyOf(acts));
    return fetch(url, { ...init, headers });
  },
};
const WHO = { name: 'table', version: '1' };
const TIME = { timeout: 10_000 };
const KEY = 'dev.svc-gateway/idempotency-key';
const callOf = (name: string, word: string, note: number, key: string | null) => ({
  name,
  arguments: { word, note },
  ...(key === null ? {} : { _meta: { [KEY]: key } }),
});

async function newer(mode: 'legacy' | 'auto'): Promise<Connected> {
  const client = new Client2(WHO, { versionNegotiation: { mode } });
  await client.connect(new Transport2(new URL(`${gateway.url}/mcp/table`), transportOptions));
  expect(client.getNegotiatedProtocolVersion()).toBe(mode === 'auto' ? '2026-07-28' : '2025-11-25');
  await client.listTools();
  return { call: (...given) => client.callTool(callOf(...given), TIME), close: () => client.close() };
}

const CLIENTS: Readonly<Record<string, () => Promise<Connected>>> = {
  async 'sdk 1.32'() {
    const client = new Client1(WHO);
    const transport = new Transport1(new URL(`${gateway.url}/mcp/table`), transportOptions);
    // Its types do not allow for exactOptionalPropertyTypes.
    await client.connect(transport as Parameters<typeof client.connect>[0]);
    // From here on it checks results against output schemas.
    await client.listTools();
    return { call: (...given) => client.callTool(callOf(...given), undefined, TIME), close: () => client.close() };
  },
  'client 2.4, 2025-11-25': () => newer('legacy'),
  'client 2.4, 2026-07-28': () => newer('auto'),
};

/** How a call gets a decision. */
interface Row {
  readonly word: string;
  readonly agent?: string;
  /** What the call comes after. */
  readonly after?: 'the same' | 'another of its key' | 'one that runs';
  readonly code: string;
  /** Calls that came to the server with it. */
  readonly sent: number;
}

const ROWS: Readonly<Record<Decision, Row>> = {
  committed: { word: 'fine', code: 'committed', sent: 1 },
  duplicate_blocked: { word: 'fine', after: 'the same', code: 'already_committed', sent: 0 },
  pending_approval: { word: 'ask', code: 'approval_required', sent: 0 },
  in_progress: { word: 'held', after: 'one that runs', code: 'executing', sent: 0 },
  denied_permission: { word: 'fine', agent: 'narrow', code: 'tool_not_allowed', sent: 0 },
  denied_policy: { word: 'no', code: 'rule_denied', sent: 0 },
  denied_identity: { word: 'fine', agent: 'disabled', code: 'agent_disabled', sent: 0 },
  denied_budget: { word: 'costly', code: 'budget_exceeded', sent: 0 },
  denied_claim: { word: 'claimed', code: 'claim_held', sent: 0 },
  idempotency_conflict: { word: 'fine', after: 'another of its key', code: 'key_reused', sent: 0 },
  denied_reservation: { word: 'reserved', code: 'pool_exhausted', sent: 0 },
  denied_paused: { word: 'fine', agent: 'stopped', code: 'paused', sent: 0 },
  failed: { word: 'refused', code: 'upstream_refused', sent: 1 },
  unknown_effect: { word: 'lost', code: 'outcome_unknown', sent: 1 },
};

let notes = 0;

describe.each(Object.entries(CLIENTS))('%s', (client, connect) => {
  let connected: Connected;
  beforeAll(async () => {
    acts = 'bot';
    connected = await connect();
  });
  afterAll(() => connected.close());

  describe.each(['plain', 'typed'])('a tool that is %s', (tool) => {
    it.each(DECISIONS.map((decision) => [decision, ROWS[decision]] as const))('%s', async (decision, row) => {
      acts = 'bot';
      const note = (notes += 1);
      const key = row.after === 'another of its key' ? `${client} ${tool}`.replaceAll(' ', '-') : null;
      const before = arrived;
      const first = row.after === undefined ? null : connected.call(tool, row.word, note, key);
      if (row.after === 'one that runs') await expect.poll(() => arrived).toBe(before + 1);
      else await first;
      acts = row.agent ?? 'bot';
      const seen = arrived;
      const again = row.after === 'another of its key' ? (notes += 1) : note;
      const result = await connected.call(tool, row.word, again, key);
      expect(arrived - seen).toBe(row.sent);
      expect(result).toMatchObject({
        ...(decision === 'committed' ? {} : { isError: true }),
        content: [{ type: 'text' }, ...(['committed', 'failed'].includes(decision) ? [] : [{ type: 'text' }])],
        _meta: { 'dev.svc-gateway/decision': { decision, code: row.code } },
      });
      release();
      await first;
      acts = 'bot';
      const next = await connected.call(tool, 'fine', (notes += 1), null);
      expect(next).toMatchObject({ _meta: { 'dev.svc-gateway/decision': { decision: 'committed' } } });
    });
  });
});
