import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { shortest } from '../shortest.ts';
import { freshKey, worldFiles } from '../system/world.ts';
import { startWatchedWorld, type WatchedWorld } from './watched-world.ts';

const MB = 1_000_000;
/** Bytes of one body, and how many are sent at once. Kept as they come, in pieces of a byte, they take 400 MB. */
const BYTES = MB / 4;
const AT_ONCE = 4;
/** What the gateway may grow by, bytes, and for how long its event loop may be held, CPU ms. */
const MOST_GROWTH = 100 * MB;
const MOST_HELD_MS = 50;

let api: Server;
let watched: WatchedWorld;

beforeAll(async () => {
  // Answers byte by byte, as servers do that write each character by itself.
  const inBytes = inChunks(`{"text":"${'a'.repeat(BYTES)}"}`);
  api = createServer((request, response) => {
    request.resume().once('end', () => {
      if (request.method === 'GET' || request.url === '/answer') {
        // Says that it closes: a write sent on a connection that is closing has an unknown outcome, and rightly.
        response.writeHead(200, { 'content-type': 'application/json', connection: 'close' }).flushHeaders();
        response.socket?.write(inBytes);
        response.socket?.end('0\r\n\r\n');
      } else response.end('{}');
    });
  }).listen(0, '127.0.0.1');
  await once(api, 'listening');
  const url = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  watched = await startWatchedWorld((upstreamUrl) => {
    const { config, policies } = worldFiles(upstreamUrl);
    return {
      config: config
        .replace('upstreams: [', `upstreams: [ { id: api, url: "${url}", timeout: 60s },`)
        .replace('\nroutes:\n', `\n${TOOLS}\nroutes:\n${ROUTES}`),
      policies: { ...policies, 'pieces.yaml': POLICY },
    };
  });
});
afterAll(async () => {
  await watched.close();
  api.closeAllConnections();
  api.close();
});

const TOOLS = `  - { name: api.write, upstream: api, kind: write, request: { method: POST, path: /write, body: "*" } }
  - { name: api.answer, upstream: api, kind: write, request: { method: POST, path: /answer, body: "*" } }
  - { name: api.read, upstream: api, kind: read, request: { method: GET, path: /read } }
  - { name: api.form, upstream: api, kind: write, request: { method: POST, path: /form, body: "*", body_type: multipart } }
  - { name: api.blob, upstream: api, kind: write, request: { method: PUT, path: /blob, body_as: body, body_type: opaque } }`;
const ROUTES = `  - { upstream: api, prefix: /api, rules: [ { match: "POST /write", tool: api.write }, { match: "GET /read", tool: api.read }, { match: "POST /form", tool: api.form }, { match: "PUT /blob", tool: api.blob } ] }
`;
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: pieces
owner: team-test
rules:
  - { id: all, effect: allow, match: { tools: [api.write, api.answer, api.read, api.form, api.blob] } }
`;

/** A text as the body of an HTTP message, in chunks of a byte each, or of more. */
function inChunks(text: string, size = 1): Buffer {
  return Buffer.from(
    text.replaceAll(new RegExp(`[^]{1,${size}}`, 'g'), (piece) => `${piece.length.toString(16)}\r\n${piece}\r\n`),
    'latin1',
  );
}

interface Sent {
  readonly socket: Socket;
  /** All that has come back. */
  readonly answer: () => string;
  /** Settles once the connection has ended. */
  readonly over: Promise<unknown>;
}

/** Opens a connection, and sends the head of a request with a body in chunks. */
async function begin(target: string, headers: Readonly<Record<string, string>>): Promise<Sent> {
  const { hostname, port } = new URL(watched.world.gateway.url);
  const socket = connect(Number(port), hostname);
  let text = '';
  socket.on('data', (bytes) => (text += bytes.toString('latin1')));
  socket.on('error', () => undefined);
  const over = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  const lines = Object.entries({ host: '127.0.0.1', 'transfer-encoding': 'chunked', ...headers });
  socket.write(`${target} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`);
  return { socket, answer: () => text, over };
}

/** Sends a request whose body comes in chunks of so many bytes. */
async function send(target: string, headers: Readonly<Record<string, string>>, body: string, size: number) {
  const sent = await begin(target, { ...headers, connection: 'close' });
  sent.socket.write(inChunks(body, size));
  sent.socket.write('0\r\n\r\n');
  await sent.over;
  const answer = sent.answer();
  return { status: statusOf(sent), isTold: answer.includes('pieces of fewer than 16 bytes') };
}

/** By how much the gateway's memory grew at most while something was done, bytes. */
async function growth(work: () => Promise<unknown>): Promise<number> {
  const { pid } = watched.world.gateway;
  await watched.settled();
  // From now on the peak is counted anew.
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  const inKb = (name: string): number =>
    Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  const before = inKb('VmRSS');
  await work();
  return (inKb('VmHWM') - before) * 1024;
}

const FORM = '--b\r\nContent-Disposition: form-data; name="text"\r\n\r\n';
const FILE = '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n';
const TEXT = 'a'.repeat(BYTES);

const READ_ONLY = 'the effects API, by a key that may only read';

type Send = (size: number) => ReturnType<typeof send>;

/** What is sent to each door, and the status it is answered with where its pieces are large enough. */
const DOORS: Readonly<Record<string, { readonly status: number; readonly send: Send }>> = {
  [READ_ONLY]: {
    status: 403,
    send: (size) =>
      send(
        'POST /v1/workspaces/demo/effects',
        { 'x-api-key': watched.world.keys.readonly, 'content-type': 'application/json' },
        JSON.stringify({ tool: 'api.write', params: { text: TEXT }, idempotency_key: freshKey() }),
        size,
      ),
  },
  'a proxied write': {
    status: 200,
    send: (size) =>
      send('POST /api/write', { ...own(), 'content-type': 'application/json' }, JSON.stringify({ text: TEXT }), size),
  },
  'a field of a form': {
    status: 200,
    send: (size) =>
      send(
        'POST /api/form',
        { ...own(), 'content-type': 'multipart/form-data; boundary=b' },
        `${FORM}${TEXT}\r\n--b--`,
        size,
      ),
  },
  'a file of a form': {
    status: 200,
    send: (size) =>
      send(
        'POST /api/form',
        { ...own(), 'content-type': 'multipart/form-data; boundary=b' },
        `${FILE}${TEXT}\r\n--b--`,
        size,
      ),
  },
  'an opaque body': {
    status: 200,
    send: (size) => send('PUT /api/blob', { ...own(), 'content-type': 'video/mp4' }, TEXT, size),
  },
  'the MCP control plane': {
    status: 200,
    send: (size) =>
      send(
        'POST /v1/mcp',
        { 'x-api-key': watched.world.keys.readonly, 'content-type': 'application/json' },
        JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping', params: { text: TEXT } }),
        size,
      ),
  },
};

const own = () => ({ 'x-api-key': watched.world.keys.bot, 'idempotency-key': freshKey() });

/** Done many times at once it grows by little; done once, it holds the loop for short. @returns what each time gave */
async function bounded<Result>(work: () => Promise<Result>): Promise<readonly Result[]> {
  const results: Result[] = [];
  // Garbage that is not collected yet counts as well, and is less another time.
  const grown = await shortest(MOST_GROWTH, () =>
    growth(async () => void results.push(...(await Promise.all(Array.from({ length: AT_ONCE }, work))))),
  );
  const held = await shortest(MOST_HELD_MS, async () => {
    await watched.watched();
    results.push(await work());
    return (await watched.watched()).held;
  });
  expect(grown).toBeLessThan(MOST_GROWTH);
  expect(held).toBeLessThan(MOST_HELD_MS);
  return results;
}

test.each(Object.entries(DOORS))('bodies in chunks of one byte are refused: %s', async (door, { send: sendOne }) => {
  const answers = await bounded(() => sendOne(1));
  // A key that may not do it is refused before that.
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([door === READ_ONLY ? 403 : 400]));
  // The connection breaks off below a sender that goes on: mostly the whole answer came before.
  expect(answers.some(({ isTold }) => isTold)).toBe(door !== READ_ONLY);
});

test.each(Object.entries(DOORS))('bodies in chunks of 32 bytes are read: %s', async (_door, door) => {
  const answers = await bounded(() => door.send(32));
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([door.status]));
});

test('answers of upstreams in chunks of one byte', async () => {
  const answered = await bounded(() =>
    watched.world.run({ tool: 'api.answer', params: {}, idempotency_key: freshKey() }, watched.world.keys.bot),
  );
  expect(new Set(answered.map(({ body }) => body.decision))).toEqual(new Set(['committed']));
  const read = async () => {
    const answer = await fetch(`${watched.world.gateway.url}/api/read`, { headers: own() });
    return (await answer.text()).length;
  };
  expect(new Set(await bounded(read))).toEqual(new Set([BYTES + '{"text":""}'.length]));
});

test('60 forms of the approver’s page without a key', async () => {
  let all: readonly Sent[] = [];
  const grown = await growth(async () => {
    all = await Promise.all(
      Array.from({ length: 60 }, async () => {
        const sent = await begin('POST /approve/demo/apr_1/key', {
          'content-type': 'application/x-www-form-urlencoded',
        });
        sent.socket.write(inChunks(`key=${'a'.repeat(30_000)}`));
        return sent;
      }),
    );
    expect((await fetch(`${watched.world.gateway.url}/livez`)).status).toBe(200);
    await Promise.all(all.map(({ over }) => over));
  });
  expect(grown).toBeLessThan(MOST_GROWTH);
  expect(new Set(all.map((sent) => statusOf(sent)))).toEqual(new Set([400]));
});

/** Sends a request whose body has no end. @returns its status, once its connection has ended */
async function sendForEver(
  target: string,
  headers: Readonly<Record<string, string>>,
  piece: string | Buffer,
): Promise<number> {
  const sent = await begin(target, { ...headers, 'content-type': 'application/json' });
  const sending = setInterval(() => sent.socket.write(piece), 10);
  await sent.over;
  clearInterval(sending);
  const status = statusOf(sent);
  // A machine that is busy with other things as well makes the gateway turn away what comes.
  return status === 503 ? sendForEver(target, headers, piece) : status;
}

const TAKERS = ['POST /v1/workspaces/demo/effects', 'POST /api/write', 'POST /v1/mcp', 'POST /mcp'];

test.each(TAKERS)(
  'a body without an end is answered before it is read, and ends with its connection: %s',
  async (target) => {
    expect(await sendForEver(target, {}, inChunks('{'.repeat(100)))).toBe(401);
    expect(await sendForEver(target, { 'x-api-key': 'svc_nobody' }, inChunks('{'.repeat(100)))).toBe(401);
  },
);

test.each(TAKERS)('a body that is too long is answered so, and ends with its connection: %s', async (target) => {
  const key = target.endsWith('/v1/mcp') ? watched.world.keys.readonly : watched.world.keys.bot;
  const headers = { 'x-api-key': key, 'idempotency-key': freshKey() };
  expect(await sendForEver(target, headers, `10000\r\n${'a'.repeat(0x10000)}\r\n`)).toBe(413);
});

test('after a short body that was not read, the connection carries the next request', async () => {
  const { hostname, port } = new URL(watched.world.gateway.url);
  const socket = connect(Number(port), hostname);
  const one = 'POST /v1/workspaces/demo/effects HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\n\r\n';
  let text = '';
  socket.on('data', (bytes) => (text += bytes.toString()));
  const answers = () => text.match(/HTTP\/1\.1 \d+/g)?.length ?? 0;
  socket.write(one);
  await expect.poll(answers).toBe(1);
  socket.write(`12345${one}12345`);
  await expect.poll(answers).toBe(2);
  socket.destroy();
});

function statusOf({ answer }: Sent): number {
  return Number(/^HTTP\/1\.1 (\d+)/.exec(answer())?.[1] ?? 0);
}
