import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from '@modelcontextprotocol/client';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Decision, DECISIONS } from '../../src/effects/model/decision.ts';
import { type McpTable, ROWS, startMcpTable } from './mcp-table.ts';

/**
 * Each official MCP client × each decision × tools with and without an output schema: a program reads the decision from
 * the result, the client throws nothing and waits for nothing, and its session goes on.
 */

let table: McpTable;
beforeAll(async () => {
  table = await startMcpTable();
});
afterAll(() => table.close());

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
    headers.set('x-api-key', table.keyOf(acts));
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
  await client.connect(new Transport2(new URL(table.gateway.url + table.path), transportOptions));
  expect(client.getNegotiatedProtocolVersion()).toBe(mode === 'auto' ? '2026-07-28' : '2025-11-25');
  await client.listTools();
  return { call: (...given) => client.callTool(callOf(...given), TIME), close: () => client.close() };
}

const CLIENTS: Readonly<Record<string, () => Promise<Connected>>> = {
  async 'sdk 1.32'() {
    const client = new Client1(WHO);
    const transport = new Transport1(new URL(table.gateway.url + table.path), transportOptions);
    // Its types do not allow for exactOptionalPropertyTypes.
    await client.connect(transport as Parameters<typeof client.connect>[0]);
    // From here on it checks results against output schemas.
    await client.listTools();
    return { call: (...given) => client.callTool(callOf(...given), undefined, TIME), close: () => client.close() };
  },
  'client 2.4, 2025-11-25': () => newer('legacy'),
  'client 2.4, 2026-07-28': () => newer('auto'),
};

const REFUSED: unknown = expect.stringMatching(/^Refused, nothing happened: /);
/** What a model reads first, where a library hands on the text and nothing else. */
const FIRST_WORDS: Readonly<Record<Decision, unknown>> = {
  committed: 'fine',
  duplicate_blocked: expect.stringMatching(/^Already done: /),
  pending_approval: expect.stringMatching(/^Waiting for approval: /),
  in_progress: expect.stringMatching(/^Still running: /),
  failed: expect.stringMatching(/^Not done: /),
  unknown_effect: expect.stringMatching(/^Unknown whether /),
  idempotency_conflict: expect.stringMatching(/^Not done: /),
  denied_permission: REFUSED,
  denied_policy: REFUSED,
  denied_identity: REFUSED,
  denied_budget: REFUSED,
  denied_claim: REFUSED,
  denied_reservation: REFUSED,
  denied_paused: REFUSED,
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
      const before = table.arrived();
      const first = row.after === undefined ? null : connected.call(tool, row.word, note, key);
      if (row.after === 'one that runs') await expect.poll(table.arrived).toBe(before + 1);
      else await first;
      acts = row.agent ?? 'bot';
      const seen = table.arrived();
      const again = row.after === 'another of its key' ? (notes += 1) : note;
      const result = await connected.call(tool, row.word, again, key);
      expect(table.arrived() - seen).toBe(row.sent);
      expect(result).toMatchObject({
        ...(decision === 'committed' ? {} : { isError: true }),
        // The gateway's sentence, what the server says of a refusal, and the decision as a line of JSON.
        content: [
          { type: 'text', text: FIRST_WORDS[decision] },
          ...(decision === 'failed' ? [{ type: 'text', text: 'No such thing' }] : []),
          ...(decision === 'committed' ? [] : [{ type: 'text', text: expect.stringMatching(/^\{"decision":"/) }]),
        ],
        _meta: { 'dev.svc-gateway/decision': { decision, code: row.code } },
      });
      table.release();
      await first;
      acts = 'bot';
      const next = await connected.call(tool, 'fine', (notes += 1), null);
      expect(next).toMatchObject({ _meta: { 'dev.svc-gateway/decision': { decision: 'committed' } } });
    });
  });
});
