import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from '@modelcontextprotocol/client';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json/value.ts';
import { approverAt } from '../approver.ts';
import { textOf } from './lenient-server.ts';
import { callOf, type McpWorld, post, resultOf, type Said, startMcpWorld } from './world.ts';

/*
 * Elicitations by URL: the gateway sends people to the approver's page, for calls that wait; and no server behind it does.
 */

let world: McpWorld;
beforeAll(async () => {
  world = await startMcpWorld();
});
afterAll(() => world.close());
beforeEach(() => world.server.forget());

const VERSION = '2026-07-28';
const URLS = { elicitation: { url: {} } };
let unique = 0;
const fresh = (): JsonObject => ({ n: (unique += 1) });

function stateless(name: string, given: JsonObject, capabilities: JsonObject, more: JsonObject = {}): Promise<Said> {
  const meta = {
    'io.modelcontextprotocol/protocolVersion': VERSION,
    'io.modelcontextprotocol/clientCapabilities': capabilities,
  };
  return post(world, callOf(name, given, { ...more, _meta: meta }), {
    'mcp-protocol-version': VERSION,
    'mcp-method': 'tools/call',
    'mcp-name': name,
  });
}

/** Begins a session; what its later requests carry. */
async function session(capabilities: JsonObject, at: Pick<McpWorld, 'door' | 'keys'> = world) {
  const params = { protocolVersion: '2025-11-25', capabilities, clientInfo: { name: 't', version: '1' } };
  const { headers } = await post(at, { jsonrpc: '2.0', id: 1, method: 'initialize', params });
  return { 'mcp-session-id': headers.get('mcp-session-id') ?? '', 'mcp-protocol-version': '2025-11-25' };
}
const atAll = () => ({ ...world, door: () => `${world.url()}/mcp` });

/** The messages of a stream of events. */
const eventsOf = ({ text }: Said): JsonObject[] =>
  [...text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => JSON.parse(data));

describe('a call that waits, of a client that takes addresses', () => {
  test('without sessions: asks for the page once; called again, it is the decision, and no server hears of it', async () => {
    const given = fresh();
    const first = resultOf(await stateless('ask', given, URLS));
    const { inputRequests } = first.result;
    expect(first.result).toMatchObject({
      resultType: 'input_required',
      inputRequests: { 'svc-gateway/approval': { method: 'elicitation/create', params: { mode: 'url' } } },
    });
    expect(first.decision).toMatchObject({ decision: 'pending_approval' });
    const url = /"url":"([^"]+)"/.exec(JSON.stringify(inputRequests))?.[1] ?? '';
    expect(url).toMatch(new RegExp(`^${world.url()}/approve/demo/apr_`));
    const inputResponses = { 'svc-gateway/approval': { action: 'accept' } };
    const again = resultOf(await stateless('ask', given, URLS, { inputResponses }));
    expect(again.result).toMatchObject({ resultType: 'complete', isError: true });
    expect(again.decision).toMatchObject({
      decision: 'pending_approval',
      effect_id: first.decision['effect_id'],
    });
    const maria = await approverAt(world.url(), url, world.keys.lead);
    const { pathname } = new URL(url);
    await maria.send(pathname, { form: (await maria.look(pathname)).form, verdict: 'approve' });
    const done = resultOf(await stateless('ask', given, URLS, { inputResponses }));
    expect(done.decision).toMatchObject({ decision: 'duplicate_blocked', effect_id: first.decision['effect_id'] });
    expect(world.server.ran).toHaveLength(1);
    // What it says to the gateway goes to no server, also where the call is sent at once.
    await stateless('echo', fresh(), URLS, { inputResponses });
    expect(world.server.seen.filter(({ body }) => body.includes('svc-gateway/approval'))).toEqual([]);
  });

  test('that takes tasks, too, is a task; who takes forms alone gets the sentence', async () => {
    const tasks = { ...URLS, extensions: { 'io.modelcontextprotocol/tasks': {} } };
    expect(resultOf(await stateless('ask', fresh(), tasks)).result).toMatchObject({ resultType: 'task' });
    for (const capabilities of [{ elicitation: {} }, { elicitation: { form: {} } }, {}])
      expect(resultOf(await stateless('ask', fresh(), capabilities)).result).toMatchObject({
        resultType: 'complete',
        isError: true,
      });
  });

  test.each([
    ['one server', () => world, 'ask'],
    ['all servers', atAll, 'crm__ask'],
  ])('in a session with %s: is asked before the result, which waits for nothing', async (_which, at, name) => {
    const headers = await session(URLS, at());
    const given = fresh();
    const said = await post(at(), callOf(name, given), headers);
    expect(said.headers.get('content-type')).toBe('text/event-stream');
    const [asked, answered, ...more] = eventsOf(said);
    expect(more).toEqual([]);
    expect(asked).toMatchObject({
      method: 'elicitation/create',
      params: { mode: 'url', elicitationId: expect.stringMatching(/^apr_/), url: expect.stringContaining('/approve/') },
    });
    expect(answered?.['result']).toMatchObject({ isError: true });
    expect(resultOf(said).decision).toMatchObject({ decision: 'pending_approval' });
    // What the client answers is heard, changes nothing, and goes to no server.
    world.server.seen.length = 0;
    const reply = { jsonrpc: '2.0', id: asked?.['id'] ?? '', result: { action: 'accept' } };
    expect((await post(at(), reply, headers)).status).toBe(202);
    expect(world.server.seen).toEqual([]);
    const again = await post(at(), callOf(name, given), headers);
    expect(again.headers.get('content-type')).toMatch(/^application\/json/);
    expect(resultOf(again).decision).toMatchObject({ decision: 'pending_approval' });
  });

  test('gets the sentence in a session that began without, of an older revision, and where it takes no events', async () => {
    const [without, takes] = [await session({ elicitation: {} }), await session(URLS)];
    const { 'mcp-session-id': _, ...sessionless } = takes;
    for (const headers of [
      without,
      // Nobody has said what this client can do.
      sessionless,
      { ...takes, 'mcp-protocol-version': '2025-06-18' },
      { ...takes, accept: 'application/json' },
    ]) {
      const said = await post(world, callOf('ask', fresh()), headers);
      expect(said.headers.get('content-type')).toMatch(/^application\/json/);
      expect(resultOf(said).decision).toMatchObject({ decision: 'pending_approval' });
    }
    // A session is not made another by who uses it.
    const id = without['mcp-session-id'];
    expect((await post(world, callOf('echo', fresh()), { ...takes, 'mcp-session-id': `${id}x` })).status).toBe(404);
  });
});

describe('official clients are sent to the page once, and can read the decision', () => {
  const options = () => ({ requestInit: { headers: { 'x-api-key': world.keys.bot } } });
  const seen: JsonObject[] = [];
  beforeEach(() => {
    seen.length = 0;
  });
  const judged = (said: unknown, action: string) => {
    expect(JSON.stringify(said), action).toContain('"decision":"pending_approval"');
    expect(seen).toHaveLength(1);
    expect(textOf(seen[0]?.['url'])).toContain('/approve/demo/apr_');
  };

  test.each([
    ['accept', '/mcp', 'crm__ask'],
    ['decline', '/mcp/crm', 'ask'],
  ] as const)('sdk 1.32, whose user would %s, at %s', async (action, door, name) => {
    const client = new Client1({ name: 'asked', version: '1' }, { capabilities: URLS });
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      seen.push({ ...params, url: 'url' in params ? String(params.url) : '' } as JsonObject);
      return { action };
    });
    const transport = new Transport1(new URL(`${world.url()}${door}`), options());
    await client.connect(transport as Parameters<typeof client.connect>[0]);
    try {
      const said = await client.callTool({ name, arguments: fresh() });
      await expect.poll(() => seen.length).toBe(1);
      judged(said, action);
    } finally {
      await client.close();
    }
  });

  test.each(['accept', 'decline'] as const)('client 2.4 without sessions, whose user would %s', async (action) => {
    const client = new Client2(
      { name: 'asked', version: '1' },
      { capabilities: URLS, versionNegotiation: { mode: 'auto' } },
    );
    client.setRequestHandler('elicitation/create', ({ params }) => {
      seen.push({ url: 'url' in params ? String(params.url) : '' });
      return { action };
    });
    await client.connect(new Transport2(new URL(`${world.url()}/mcp`), options()));
    try {
      expect(client.getNegotiatedProtocolVersion()).toBe(VERSION);
      judged(await client.callTool({ name: 'crm__ask', arguments: fresh() }), action);
    } finally {
      await client.close();
    }
  });
});

describe('a server that sends people to the gateway', () => {
  const bad = () => `${world.url()}/approve/demo/apr_1`;
  const asks = (url: string): JsonObject => ({ mode: 'url', elicitationId: 'e', url, message: 'Approve this' });
  const request = (url: string): JsonObject => ({
    jsonrpc: '2.0',
    id: 'q',
    method: 'elicitation/create',
    params: asks(url),
  });
  const error = (url: string): JsonObject => ({ code: -32_042, message: 'Visit', data: { elicitations: [asks(url)] } });
  const needs = (url: string): JsonObject => ({
    resultType: 'input_required',
    inputRequests: { sure: { method: 'elicitation/create', params: asks(url) } },
  });
  const REFUSED = 'https://refused.invalid/';
  const isHarmless = (text: string): void => {
    expect(text).toContain(REFUSED);
    expect(text).not.toContain('/approve/');
    expect(text).not.toContain('Approve this');
  };
  const read = (headers: Record<string, string> = {}, more: JsonObject = {}) =>
    post(world, { jsonrpc: '2.0', id: 7, method: 'resources/read', params: { uri: 'file:///x', ...more } }, headers);

  test('by a request in the middle of a call: the address is another, all else goes on', async () => {
    const note = '{ "jsonrpc":"2.0",  "method":"notifications/message", "params":{"level":"info","data":"x"} }';
    const fine = JSON.stringify(request('https://crm.example/ok'));
    const events = [note, JSON.stringify(request(bad())), fine];
    const said = await post(world, callOf('sends', { events, ...fresh() }));
    isHarmless(said.text.replaceAll(fine, ''));
    expect(said.text).toContain(`data: ${note}\n\n`);
    expect(said.text).toContain(`data: ${fine}\n\n`);
    expect(resultOf(said).decision).toMatchObject({ decision: 'committed' });
  });

  test('in what could be read in two ways: it is left out', async () => {
    const twice = JSON.stringify(request('https://crm.example/ok')).replace('"url":', `"url":"${bad()}","url":`);
    const said = await post(world, callOf('sends', { events: [twice, `\ufeff${twice}`], ...fresh() }));
    expect(said.text).not.toContain('elicitation/create');
    expect(resultOf(said).decision).toMatchObject({ decision: 'committed' });
    world.server.readAs = { status: 200, type: 'application/json', text: twice };
    expect((await read()).text).not.toContain('elicitation/create');
  });

  test.each([
    ['an error', () => ({ error: error(bad()) })],
    ['a result that asks for more', () => ({ result: needs(bad()) })],
  ])('by %s of a call, at either door; nothing else is kept', async (_form, answer) => {
    const given = { answer: answer(), ...fresh() };
    const said = await stateless('says', given, URLS);
    isHarmless(said.text);
    const effects = `${world.url()}/v1/workspaces/demo/effects?tool=crm.says`;
    const kept = await (await fetch(effects, { headers: { 'x-api-key': world.keys.lead } })).text();
    expect(kept).toContain('crm.says');
    expect(kept).not.toContain('/approve/');
    const federated = await post(atAll(), callOf('crm__says', { answer: answer(), ...fresh() }));
    expect(federated.text).not.toContain('/approve/');
  });

  test.each([
    ['an error', 200, () => ({ error: error(bad()) })],
    ['an error with a status', 403, () => ({ error: error(bad()) })],
    ['a result', 200, () => ({ result: needs(bad()) })],
  ])('by %s of what is no call (%i), whole and in a stream', async (_form, status, answer) => {
    const text = JSON.stringify({ jsonrpc: '2.0', id: 7, ...answer() });
    world.server.readAs = { status, type: 'application/json; charset=utf-8', text };
    const whole = await read();
    expect(whole.status).toBe(status);
    isHarmless(whole.text);
    world.server.readAs = { status, type: 'text/event-stream', text: `: x\nid: 1\ndata: ${text}\n\n` };
    const streamed = await read();
    isHarmless(streamed.text);
    expect(streamed.text).toMatch(/^: x\nid: 1\.[\w-]{43}\ndata: /);
    world.server.readAs = { status, type: 'application/json', text: `[${text}]` };
    isHarmless((await read()).text);
  });

  test('with bytes that nobody here can read: it is refused', async () => {
    const text = JSON.stringify({ jsonrpc: '2.0', id: 7, error: error(bad()) });
    world.server.readAs = { status: 200, type: 'application/json', text, packed: true };
    const { status, message } = await read();
    expect([status, message['error']]).toMatchObject([503, { data: { code: 'not_ready' } }]);
  });

  test('on the stream that stands open', async () => {
    const gone = new AbortController();
    const headers = { 'x-api-key': world.keys.bot, accept: 'text/event-stream', ...(await session(URLS)) };
    const { body } = await fetch(world.door(), { headers, signal: gone.signal });
    world.server.tell(JSON.stringify(request(bad())));
    world.server.tell('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"last"}}');
    let text = '';
    for await (const piece of body ?? []) {
      text += Buffer.from(piece).toString();
      if (text.includes('"last"')) break;
    }
    gone.abort();
    isHarmless(text);
  });

  test('what names nobody here goes on byte for byte', async () => {
    const text = `{ "jsonrpc":"2.0", "id":7,\n "error": ${JSON.stringify(error('https://crm.example/ok'))} }`;
    world.server.readAs = { status: 200, type: 'application/json', text };
    expect((await read()).text).toBe(text);
  });
});
