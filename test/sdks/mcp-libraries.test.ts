import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createMCPClient } from '@ai-sdk/mcp';
import { MultiServerMCPClient } from '@langchain/mcp-adapters';
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import { z } from 'zod';
import { DECISIONS, type Decision } from '../../src/effects/model/decision.ts';
import { type McpTable, ROWS, startMcpTable } from './mcp-table.ts';

/**
 * Libraries that people call MCP tools with, as npm has them: the AI SDK, LangChain's adapter, the inspector's command
 * line. Each × every decision × tools with and without an output schema: what its user has in hand tells the decision,
 * nothing is thrown for a schema, nothing waits, and the next call works.
 */

/** What the user of a library has after a call. */
interface Seen {
  readonly as: 'result' | 'error result' | 'exception';
  /** The decision, from where the library leaves it; `null` where it leaves none. */
  readonly told: Told | null;
}

interface Told {
  readonly decision: string;
  readonly code: string;
  readonly effect: string;
  readonly retryAfterMs: number | null;
  readonly isSafe: boolean;
}

interface Connected {
  /** @param order names the call, as an idempotency key does */
  call(tool: string, word: string, note: number, order: string | null): Promise<Seen>;
  /** Makes a call that another one comes after, where a call of its own is dear. */
  readonly prepare?: Connected['call'];
  close(): Promise<void>;
}

/** What the gateway adds to a result. */
const META = z.object({
  'dev.svc-gateway/decision': z.object({
    decision: z.string(),
    code: z.string(),
    effect_id: z.string(),
    retry_after_ms: z.number().nullable(),
    safe_to_retry: z.boolean(),
  }),
});

/** The decision as text. */
const LINE = z.object({
  decision: z.string(),
  reason: z.object({ code: z.string() }),
  effect_id: z.string(),
  retry_after_ms: z.number().optional(),
  safe_to_retry: z.boolean(),
});

const RESULT = z.object({
  content: z.array(z.object({ type: z.literal('text'), text: z.string() })),
  isError: z.boolean().optional(),
  _meta: META,
});

const MESSAGE = z.object({ artifact: z.array(z.object({ type: z.string(), data: z.unknown() })) });

function inMeta(meta: unknown): Told {
  const said = META.parse(meta)['dev.svc-gateway/decision'];
  return {
    decision: said.decision,
    code: said.code,
    effect: said.effect_id,
    retryAfterMs: said.retry_after_ms,
    isSafe: said.safe_to_retry,
  };
}

/** Reads the decision in the last line of a text: all that models see, and all that is left of an exception. */
function inLastLine(text: string): Told {
  const said = LINE.parse(JSON.parse(text.split('\n').at(-1) ?? ''));
  return {
    decision: said.decision,
    code: said.reason.code,
    effect: said.effect_id,
    retryAfterMs: said.retry_after_ms ?? null,
    isSafe: said.safe_to_retry,
  };
}

/** Reads a result as MCP has it. */
function inResult(result: unknown): Seen {
  const { content, isError, _meta: meta } = RESULT.parse(result);
  const told = inMeta(meta);
  if (isError !== true) return { as: 'result', told };
  expect(inLastLine(content.map(({ text }) => text).join('\n'))).toEqual(told);
  return { as: 'error result', told };
}

const argumentsOf = (word: string, note: number, order: string | null) => ({
  word,
  note,
  ...(order === null ? {} : { order }),
});

/** Sets the key of calls, as the libraries can set one only when they connect. */
async function openKeyDoor(gatewayUrl: string, keyOf: () => string): Promise<{ readonly url: string; close(): void }> {
  const { hostname, port } = new URL(gatewayUrl);
  // Neither side may end a connection just as something goes over it.
  const http = createServer({ keepAliveTimeout: 600_000 }, (arriving, answering) => {
    const pieces: Buffer[] = [];
    arriving.on('data', (piece: Buffer) => pieces.push(piece));
    arriving.on('end', () => {
      const body = Buffer.concat(pieces);
      const { method, url: path, headers } = arriving;
      if (body.includes('"tools/call"')) headers['x-api-key'] = keyOf();
      const passed = request({ hostname, port, method, path, headers, agent: false }, (answer) => {
        answering.writeHead(answer.statusCode ?? 0, answer.rawHeaders);
        answer.pipe(answering);
      });
      passed.on('error', () => answering.destroy());
      passed.end(body);
    });
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    close: () => {
      http.closeAllConnections();
      http.close();
    },
  };
}

let table: McpTable;
let door: Awaited<ReturnType<typeof openKeyDoor>>;
/** Whose key goes with calls. */
let acts = 'bot';
beforeAll(async () => {
  table = await startMcpTable();
  door = await openKeyDoor(table.gateway.url, () => table.keyOf(acts));
});
afterAll(async () => {
  door.close();
  await table.close();
});

const address = (): string => door.url + table.path;
const keyHeader = () => ({ 'x-api-key': table.keyOf('bot') });

async function aiSdk(headers = keyHeader()): Promise<Connected> {
  const client = await createMCPClient({ transport: { type: 'http', url: address(), headers } });
  const tools = await client.tools();
  return {
    call: async (tool, word, note, order) =>
      inResult(await tools[tool]?.execute(argumentsOf(word, note, order), { toolCallId: 'call', messages: [] })),
    close: () => client.close(),
  };
}

const BARE = z.strictObject({ n: z.number() });

/** With schemas of the program's own, the AI SDK gives only the structured content of what went well. */
async function aiSdkWithSchemas(): Promise<Connected> {
  const client = await createMCPClient({ transport: { type: 'http', url: address(), headers: keyHeader() } });
  const inputSchema = z.object({ word: z.string(), note: z.number(), order: z.string().optional() });
  const tools = await client.tools({
    schemas: { plain: { inputSchema }, typed: { inputSchema, outputSchema: z.object({ n: z.number() }) } },
  });
  return {
    async call(tool, word, note, order) {
      const execute = tool === 'typed' ? tools.typed.execute : tools.plain.execute;
      const result: unknown = await execute(argumentsOf(word, note, order), { toolCallId: 'call', messages: [] });
      const isBare = tool === 'typed' && BARE.safeParse(result).success;
      return isBare ? { as: 'result', told: null } : inResult(result);
    },
    close: () => client.close(),
  };
}

async function langChain(headers = keyHeader()): Promise<Connected> {
  const client = new MultiServerMCPClient({
    mcpServers: { table: { transport: 'http', url: address(), headers } },
  });
  const tools = await client.getTools();
  return {
    async call(name, word, note, order) {
      const tool = tools.find((one) => one.name === name);
      try {
        const args = argumentsOf(word, note, order);
        const { artifact } = MESSAGE.parse(await tool?.invoke({ type: 'tool_call', id: 'call', name, args }));
        return { as: 'result', told: inMeta(artifact.find(({ type }) => type === 'mcp_meta')?.data) };
      } catch (error) {
        if (!(error instanceof Error) || error.name !== 'ToolException') throw error;
        return { as: 'exception', told: inLastLine(error.message) };
      }
    },
    close: () => client.close(),
  };
}

/** What `mcp-inspector --cli` starts. */
const INSPECTOR = join(dirname(fileURLToPath(import.meta.resolve('@modelcontextprotocol/inspector-cli'))), 'index.js');

/** Runs the inspector. @returns what it writes to standard output */
async function inspect(headers: { readonly 'x-api-key': string }, ...what: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [INSPECTOR, address(), '--transport', 'http', '--header', `x-api-key: ${headers['x-api-key']}`, ...what],
    // It looks for its package.json above the folder that it is started in.
    { cwd: dirname(INSPECTOR), timeout: 60_000 },
  );
  return stdout;
}

/** A process, and a connection, for each call. */
async function inspector(): Promise<Connected> {
  const other = await aiSdk();
  return {
    async call(tool, word, note, order) {
      const given = Object.entries(argumentsOf(word, note, order)).map(([name, value]) => `${name}=${value}`);
      const args = given.flatMap((pair) => ['--tool-arg', pair]);
      const said = await inspect(keyHeader(), '--method', 'tools/call', '--tool-name', tool, ...args);
      return inResult(JSON.parse(said));
    },
    prepare: other.call,
    close: other.close,
  };
}

const LIBRARIES: Readonly<Record<string, { readonly error: Seen['as']; connect(): Promise<Connected> }>> = {
  'AI SDK': { error: 'error result', connect: aiSdk },
  'AI SDK with schemas': { error: 'error result', connect: aiSdkWithSchemas },
  LangChain: { error: 'exception', connect: langChain },
  inspector: { error: 'error result', connect: inspector },
};

/** These say when to come again. (The refusal by the budget here does not: the call costs more than the whole.) */
const WITH_TIME: readonly Decision[] = ['pending_approval', 'in_progress', 'denied_claim', 'denied_reservation'];

const MAYBE_DONE: readonly Decision[] = ['in_progress', 'unknown_effect'];

let notes = 0;

describe.each(Object.entries(LIBRARIES))('%s', (library, { error, connect }) => {
  let connected: Connected;
  beforeAll(async () => {
    acts = 'bot';
    connected = await connect();
  });
  afterAll(() => connected.close());

  describe.each(['plain', 'typed'])('a tool that is %s', (tool) => {
    const isBare = library === 'AI SDK with schemas' && tool === 'typed';
    const orderOf = (decision: string): string => `${library} ${tool} ${decision}`.replaceAll(' ', '-');
    const first: Connected['call'] = (...given) => (connected.prepare ?? connected.call)(...given);

    it.each(DECISIONS.map((decision) => [decision, ROWS[decision]] as const))('%s', async (decision, row) => {
      acts = 'bot';
      const note = (notes += 1);
      const order = row.after === 'another of its key' ? orderOf(decision) : null;
      const before = table.arrived();
      const earlier = row.after === undefined ? null : first(tool, row.word, note, order);
      if (row.after === 'one that runs') await expect.poll(table.arrived).toBe(before + 1);
      else await earlier;
      acts = row.agent ?? 'bot';
      const seen = table.arrived();
      const again = row.after === 'another of its key' ? (notes += 1) : note;
      const { as, told } = await connected.call(tool, row.word, again, order);
      expect(table.arrived() - seen).toBe(row.sent);
      expect(as).toBe(decision === 'committed' ? 'result' : error);
      if (decision === 'committed' && isBare) expect(told).toBeNull();
      else
        expect(told).toEqual({
          decision,
          code: row.code,
          effect: expect.stringMatching(/^eff_/),
          retryAfterMs: WITH_TIME.includes(decision) ? expect.any(Number) : null,
          isSafe: !MAYBE_DONE.includes(decision),
        });
      table.release();
      await earlier;
      // The next process of the inspector is the next decision's.
      if (library === 'inspector') return;
      acts = 'bot';
      expect((await connected.call(tool, 'fine', (notes += 1), null)).as).toBe('result');
    });

    it('a repetition under a key of its own gets the first result, and is told apart', async () => {
      acts = 'bot';
      const note = (notes += 1);
      await first(tool, 'fine', note, orderOf('repetition'));
      const seen = table.arrived();
      const { as, told } = await connected.call(tool, 'fine', note, orderOf('repetition'));
      expect([as, told?.decision, table.arrived() - seen]).toEqual([
        'result',
        isBare ? undefined : 'duplicate_blocked',
        0,
      ]);
    });
  });
});

describe('a key of an agent that may do nothing is refused when the client connects', () => {
  const headers = () => ({ 'x-api-key': table.keyOf('disabled') });
  test.each([
    ['AI SDK', () => aiSdk(headers())],
    ['LangChain', () => langChain(headers())],
    ['inspector', () => inspect(headers(), '--method', 'tools/list')],
  ])('%s', async (_, connect) => {
    await expect(connect()).rejects.toThrow(/agent_disabled/);
  });
});
