import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { shortest } from '../shortest.ts';
import { lockOf } from '../system/mcp/lenient-server.ts';
import { worldFiles } from '../system/world.ts';
import { startWatchedWorld, type WatchedWorld } from './watched-world.ts';

/** No message of a server holds the event loop for longer, ms. */
const MOST_HELD_MS = 50;
/** The longest answer that is read (`limits.response`), less some room. */
const BYTES = 8 * 1024 * 1024 - 2_000;
/** As many values as are read of one message, less some room, and as many members of one object. */
const VALUES = 199_000;
const MEMBERS = 20_000;

const TOOL = { name: 'large', inputSchema: { type: 'object', additionalProperties: true } } as const;

function listOf(unit: (index: number) => string, most: number): string {
  const units: string[] = [];
  for (let index = 0, length = 2; index < most; index += 1) {
    const one = unit(index);
    length += Buffer.byteLength(one) + 1;
    if (length > BYTES) break;
    units.push(one);
  }
  return `[${units.join(',')}]`;
}

/** Maps of as many members as may be, with as many values in all. */
function mapsOf(name: (index: number) => string): string {
  return listOf(
    (map) => {
      const members = Array.from({ length: MEMBERS }, (_, index) => `"${name(map * MEMBERS + index)}":0`);
      return `{${members.join(',')}}`;
    },
    Math.floor(VALUES / (MEMBERS + 1)),
  );
}

const WIDTH = Math.floor(BYTES / VALUES) - 6;

/** JSON texts of up to 8 MiB that are the worst known for some part of the gateway; each is one value. */
const SHAPES: Readonly<Record<string, string>> = {
  'names as long as fit': mapsOf((index) => String(index).padStart(WIDTH, 'a')),
  'names that are numbers': mapsOf((index) => String((VALUES - index) * 7)),
  'maps of three names': listOf((index) => `{"c${index.toString(36)}":0,"b":"","a":[]}`, VALUES / 4),
  'one text of quotes': `"${String.raw`\"`.repeat(BYTES / 2)}"`,
};

/** Texts that are no single value: what stands in place of an answer as an event. */
const EVENTS: Readonly<Record<string, (answer: string) => string>> = {
  'in one event': (answer) => `data: ${answer}\n\n`,
  'in lines of data': (answer) => `data: ${answer}\n${'data:\n'.repeat(BYTES / 6 - 40)}\n`,
  'behind comments': (answer) => `${':\n'.repeat(BYTES / 2 - 200)}data: ${answer}\n\n`,
  'behind ids': (answer) => `${`${'id:1\n'.repeat(9_900)}\n`.repeat(20)}data: ${answer}\n\n`,
  'behind small events': (answer) => `${'data:1\n\n'.repeat(BYTES / 64)}data: ${answer}\n\n`,
};

/** Bytes of what a server says beside its answer. */
const FLOOD = 2 * 1024 * 1024;

/** Messages that a server may send at any time, or that are none. Each is short: what they cost is their number. */
const FLOODS: Readonly<Record<string, string>> = {
  'what is no JSON': 'no json',
  'what is no message': '1',
  progress: '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
  'news that tools have changed': '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
  'answers to nothing': '{"jsonrpc":"2.0","id":"nothing","result":{}}',
  'answers without an id': '{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}',
  elicitations: '{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}',
  pings: '{"jsonrpc":"2.0","id":1,"method":"ping"}',
};

/** As many of one message as fit, as lines for programs and as events for others. */
function flooded(unit: string, url: string): string {
  const one = url === '/' ? `${unit}\n` : `event: message\ndata: ${unit}\n\n`;
  return one.repeat(FLOOD / one.length);
}

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: { readonly uri?: string; readonly arguments?: { readonly shape: string; readonly as: string } };
}

/** What the server says to a message; empty where it says nothing. */
function answerTo({ id, method, params }: Message): string {
  if (id === undefined) return '';
  const result = (said: string): string => `{"jsonrpc":"2.0","id":${id},"result":${said}}`;
  if (method === 'initialize') return result(WORDS);
  if (method === 'tools/list') return result(`{"tools":${listed}}`);
  if (method === 'resources/read') return result(`{"contents":[],"x":${SHAPES[params?.uri ?? ''] ?? '0'}}`);
  return result(`{"content":[],"structuredContent":{"x":${SHAPES[params?.arguments?.shape ?? ''] ?? '0'}}}`);
}

const WORDS =
  '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"large","version":"1"}}';

/** The tools of the server. */
let listed = JSON.stringify([TOOL]);

/** The server, over streamable HTTP at `/mcp`, over the older transport at `/sse`, and for the program at `/`. */
function largeServer(): Server {
  /** Of the older transport, each by where its messages go. */
  const streams = new Map<string, ServerResponse>();
  const answer = (response: ServerResponse, url: string, message: Message): void => {
    const said = answerTo(message);
    const unit = FLOODS[message.params?.arguments?.as ?? ''];
    const before = unit === undefined ? '' : flooded(unit, url);
    const stream = streams.get(url);
    if (stream !== undefined) {
      response.writeHead(202).end();
      stream.write(`${before}event: message\ndata: ${said}\n\n`);
    } else if (unit !== undefined) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(before + (url === '/' ? said : `data: ${said}\n\n`));
    } else if (said === '') response.writeHead(202).end();
    else {
      const event = EVENTS[message.params?.arguments?.as ?? ''];
      const type = event === undefined ? 'application/json' : 'text/event-stream';
      response.writeHead(200, { 'content-type': type }).end(event?.(said) ?? said);
    }
  };
  return createServer((request, response) => {
    const { method, url = '' } = request;
    if (method === 'POST') void textOf(request).then((text) => answer(response, url, JSON.parse(text) as Message));
    else if (url === '/sse') {
      const messages = `/messages/${streams.size}`;
      streams.set(messages, response.writeHead(200, { 'content-type': 'text/event-stream' }));
      response.write(`event: endpoint\ndata: ${messages}\n\n`);
    } else response.writeHead(405).end();
  });
}

let folder: string;
let server: Server;
let watched: WatchedWorld;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-large-'));
  const pins = join(folder, 'lock.json');
  server = largeServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await Promise.all(
    ['web', 'old', 'program'].map((id) => writeFile(`${pins}.${id}`, lockOf(id, [TOOL], { server: 'large' }))),
  );
  const child = join(import.meta.dirname, 'large-answers-child.mjs');
  const upstreams = `
  - { id: web, timeout: 10s, mcp: { url: "${url}/mcp", pins: "${pins}.web" } }
  - { id: old, timeout: 10s, mcp: { url: "${url}/sse", transport: sse, pins: "${pins}.old" } }
  - { id: program, timeout: 10s, mcp: { command: ["${process.execPath}", "${child}", "${url}/"], pins: "${pins}.program" } }
`;
  watched = await startWatchedWorld((upstreamUrl) => {
    const { config, policies } = worldFiles(upstreamUrl);
    return {
      config: config.replace(
        /upstreams: \[ (.*) \]\n/,
        (_line, first: string) => `upstreams:\n  - ${first}${upstreams}`,
      ),
      policies: { ...policies, 'large.yaml': POLICY },
    };
  });
  for (const door of DOORS) await begin(door);
});
afterAll(async () => {
  await watched.close();
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true });
});

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: large
owner: team-test
rules:
  - { id: all, effect: allow, match: { upstreams: [web, old, program] } }
`;

const DOORS = ['/mcp/web', '/mcp/old', '/mcp/program', '/mcp'] as const;
type Door = (typeof DOORS)[number];

const sessions = new Map<Door, string>();
let lastId = 0;

async function ask(door: Door, method: string, params: object): Promise<{ status: number; text: string }> {
  lastId += 1;
  const session = sessions.get(door);
  const answered = await fetch(`${watched.world.gateway.url}${door}`, {
    method: 'POST',
    headers: {
      'x-api-key': watched.world.keys.bot,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...(session !== undefined && { 'mcp-session-id': session }),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params }),
  });
  const begun = answered.headers.get('mcp-session-id');
  if (begun !== null) sessions.set(door, begun);
  return { status: answered.status, text: await answered.text() };
}

async function begin(door: Door): Promise<void> {
  await ask(door, 'initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't' } });
  // What is compiled on first use is the start's, and not of the message that comes first.
  await call(door, 'nothing');
  await ask(door, 'tools/list', {});
}

function call(door: Door, shape: string, as = 'one message'): Promise<{ status: number; text: string }> {
  const name = door === '/mcp' ? 'web__large' : 'large';
  return ask(door, 'tools/call', { name, arguments: { shape, as, n: lastId } });
}

/** @returns what went wrong; nothing where the answer was as expected, and the loop was never held for long */
async function slowly(
  what: string,
  asked: () => Promise<{ status: number; text: string }>,
  expected: RegExp,
): Promise<readonly string[]> {
  let answer = { status: 0, text: '' };
  const held = await shortest(MOST_HELD_MS, async () => {
    await watched.watched();
    answer = await asked();
    return (await watched.watched()).held;
  });
  const ends = `${answer.text.slice(0, 100)} … ${answer.text.slice(-20_000)}`;
  const isExpected = expected.test(ends);
  return held <= MOST_HELD_MS && isExpected
    ? []
    : [`${what}: ${held} ms${isExpected ? '' : `, ${ends.slice(0, 300)}`}`];
}

describe('a message of a server holds the event loop for at most 50 ms', () => {
  test.each(Object.keys(SHAPES))('%s', async (shape) => {
    const slow = [
      ...(await slowly('called', () => call('/mcp/web', shape), /"decision":"committed"/)),
      ...(await slowly('passed on', () => ask('/mcp/web', 'resources/read', { uri: shape }), /"contents":\[\]/)),
    ];
    expect(slow).toEqual([]);
  });

  test('however it comes', async () => {
    const shape = 'names as long as fit';
    const slow: string[] = [];
    for (const door of DOORS) slow.push(...(await slowly(door, () => call(door, shape), /"decision":"committed"/)));
    slow.push(
      ...(await slowly('as an event', () => call('/mcp/web', shape, 'in one event'), /"decision":"committed"/)),
    );
    expect(slow).toEqual([]);
  });

  test.each(Object.keys(FLOODS))('a flood of %s before an answer', async (as) => {
    const slow: string[] = [];
    // A server may be given up for what it sends, but not hold the others.
    for (const door of ['/mcp/web', '/mcp/program', '/mcp/old'] as const)
      slow.push(...(await slowly(door, () => call(door, '', as), /committed|unknown_effect|failed/)));
    expect(slow).toEqual([]);
  });

  test('a stream of very many lines, or of very many events', async () => {
    const slow = [
      ...(await slowly('data', () => call('/mcp/web', '', 'in lines of data'), /unknown_effect/)),
      ...(await slowly('comments', () => call('/mcp/web', '', 'behind comments'), /unknown_effect/)),
      ...(await slowly('ids', () => call('/mcp/web', '', 'behind ids'), /unknown_effect/)),
      ...(await slowly('events', () => call('/mcp/web', '', 'behind small events'), /"decision":"committed"/)),
    ];
    expect(slow).toEqual([]);
  });
});

describe('a list of tools holds the event loop for at most 50 ms', () => {
  const schema = `{"type":"object","x":${SHAPES['names as long as fit'] ?? ''}}`;
  const LISTS: Readonly<Record<string, () => string>> = {
    'one schema of names': () => `[{"name":"large","inputSchema":${schema}}]`,
    'very many tools': () => listOf((index) => `{"name":"t${index}"}`, VALUES / 2),
    'many large tools': () => listOf((index) => `{"name":"t${index}","x":"${String.raw`\u0001`.repeat(3_000)}"}`, 450),
  };
  test('the gateway looks itself, and people see how each stands', async () => {
    // Of the whole list it reads 4 MiB.
    const tools = (count: number) =>
      listOf((index) => `{"name":"t${index}","x":"${String.raw`\u0001`.repeat(63)}"}`, count);
    listed = tools(10_000);
    const compared = async () => {
      const { status, body } = await watched.world.get('/pins/web');
      return { status, text: JSON.stringify(body) };
    };
    const slow = [...(await slowly('compared', compared, /"upstream":"web"/))];
    listed = tools(10_001);
    slow.push(...(await slowly('too many', compared, /lists more than 10000 tools/)));
    listed = JSON.stringify([TOOL]);
    expect(slow).toEqual([]);
  });

  test.each(Object.keys(LISTS))('%s', async (name) => {
    listed = LISTS[name]?.() ?? '';
    const slow = await slowly('listed', () => ask('/mcp/web', 'tools/list', {}), /"tools":\[/);
    listed = JSON.stringify([TOOL]);
    expect(slow).toEqual([]);
  });
});
