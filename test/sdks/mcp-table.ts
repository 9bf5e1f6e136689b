import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { Decision } from '../../src/effects/model/decision.ts';
import { isJsonObject } from '../../src/json/value.ts';
import { startGateway, type TestGateway } from '../system/gateway.ts';
import { lockOf } from '../system/mcp/lenient-server.ts';
import { arrangeCases, CASES, casesPolicy } from './decision-cases.ts';
import { toolsAt } from '../system/mcp/tools-at.ts';

/*
 * What tables of MCP clients ask: a server behind a gateway, with a tool that has an output schema and one that has none,
 * and a call for each decision.
 */

/** How a call gets a decision. */
export interface Row {
  readonly word: string;
  readonly agent?: string;
  /** What the call comes after. */
  readonly after?: 'the same' | 'another of its key' | 'one that runs';
  readonly code: string;
  /** Calls that came to the server with it. */
  readonly sent: number;
}

export const ROWS: Readonly<Record<Decision, Row>> = {
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

/** The server and the gateway in front of it. */
export interface McpTable {
  readonly gateway: TestGateway;
  /** Where the gateway serves the tools. */
  readonly path: string;
  keyOf(agent: string): string;
  /** Calls that came to the server. */
  arrived(): number;
  /** Ends the call that is under way at the server. */
  release(): void;
  close(): Promise<void>;
}

interface CountingServer {
  readonly url: string;
  arrived(): number;
  release(): void;
  close(): void;
}

/** @param onHeld is given what ends the call that the server holds */
function makeServer(onHeld: (release: () => void) => void): McpServer {
  const server = new McpServer({ name: 'table', version: '1.0.0' });
  const inputSchema = z.object({ word: z.string(), note: z.number(), order: z.string().optional() });
  const run = async (word: string): Promise<'refused' | 'done'> => {
    if (word === 'held') await new Promise<void>((resolve) => onHeld(resolve));
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
async function startServer(): Promise<CountingServer> {
  let arrived = 0;
  let release: () => void = () => {};
  const handle = toNodeHandler(createMcpHandler(() => makeServer((end) => (release = end))));
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
    arrived: () => arrived,
    release: () => release(),
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
        - { name: plain, target: "case:{word}", is_error: failed, key_from: order }
        - { name: typed, target: "case:{word}", is_error: failed, key_from: order }
`;

/** Starts the server and the gateway, and arranges what leads to each decision. */
export async function startMcpTable(): Promise<McpTable> {
  const server = await startServer();
  const folder = await mkdtemp(join(tmpdir(), 'svc-table-'));
  const pins = join(folder, 'table.lock.json');
  const tools = await toolsAt(server.url);
  await writeFile(pins, lockOf('table', tools.filter(isJsonObject)));
  const gateway = await startGateway({
    config: config(server.url, pins),
    policies: { 'table.yaml': casesPolicy('{ upstreams: [table] }', 2) },
  });
  const keyOf = await arrangeCases(gateway, 'table.nothing');
  return {
    gateway,
    path: '/mcp/table',
    keyOf,
    arrived: server.arrived,
    release: server.release,
    async close() {
      await gateway.dispose();
      server.close();
      await rm(folder, { recursive: true });
    },
  };
}
