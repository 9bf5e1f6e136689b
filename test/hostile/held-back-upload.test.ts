import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type Server as HttpsServer } from 'node:https';
import { connect, createServer as createTcpServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeApiKey, send, startGateway, type TestGateway } from '../system/gateway.ts';
import { freshKey } from '../system/world.ts';

/** A certificate and its key for `localhost`, which only these tests trust. */
const PEM = join(import.meta.dirname, 'localhost.pem');
/** Longer than a call may wait between admission and its first byte (2 s), shorter than a handshake may take (3 s). */
const TOO_LATE_MS = 2_400;

const PAUSES = '/v1/workspaces/demo/pauses';

let upstream: HttpsServer;
let entrance: Server;
let gateway: TestGateway;
let key = '';
let account = '';
let requests = 0;
/** What happens between the connection and its handshake. */
let beforeHandshake: () => Promise<unknown> = async () => undefined;

beforeAll(async () => {
  const pem = readFileSync(PEM);
  upstream = createServer({ cert: pem, key: pem }, (request, response) => {
    requests += 1;
    request.resume().on('end', () => response.writeHead(201, { connection: 'close' }).end());
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  const inner = (upstream.address() as AddressInfo).port;
  entrance = createTcpServer((socket) => void admit(socket, inner)).listen(0, '127.0.0.1');
  await once(entrance, 'listening');
  const { port } = entrance.address() as AddressInfo;
  gateway = await startGateway(files(port), { env: { NODE_EXTRA_CA_CERTS: PEM } });
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', agent_id: 'bot', workspace: 'demo' });
  account = await makeApiKey(gateway, 'olga', { kind: 'account', workspace: 'demo' });
});
afterAll(async () => {
  await gateway.dispose();
  entrance.close();
  upstream.closeAllConnections();
  upstream.close();
});

async function admit(socket: Socket, inner: number): Promise<void> {
  socket.on('error', () => {});
  await beforeHandshake();
  const through = connect(inner, '127.0.0.1').on('error', () => {});
  socket.pipe(through).pipe(socket);
}

function files(port: number) {
  return {
    config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: safe, url: "https://localhost:${port}", timeout: 10s } ]
tools:
  - { name: multipart, upstream: safe, kind: write, request: { method: POST, path: /files, body: "*", body_type: multipart } }
  - { name: opaque, upstream: safe, kind: write, request: { method: PUT, path: /blob, body_as: body, body_type: opaque } }
routes:
  - { upstream: safe, prefix: /safe, rules: [ { match: "POST /files", tool: multipart }, { match: "PUT /blob", tool: opaque } ] }
`,
    policies: {
      'p.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: p
owner: team-test
rules: [ { id: all, effect: allow, match: { tools: ["*"] } } ]
`,
    },
  };
}

interface Decided {
  readonly status: number;
  readonly decision: string;
}

const data = Buffer.from('some bytes').toString('base64');

async function effect(tool: string, params: object): Promise<Decided> {
  const body = { tool, params, idempotency_key: freshKey() };
  const { status, body: said } = await send(gateway.url, key, 'POST', '/v1/workspaces/demo/effects', body);
  return { status, decision: String(said.decision) };
}

async function proxied(method: string, path: string, body: FormData | Buffer, type: object = {}): Promise<Decided> {
  const headers = { 'x-api-key': key, 'idempotency-key': freshKey(), ...type };
  const { status, headers: said } = await fetch(`${gateway.url}/safe${path}`, { method, headers, body });
  return { status, decision: said.get('svc-decision') ?? '' };
}

function form(): FormData {
  const filled = new FormData();
  filled.set('file', new Blob(['some bytes'], { type: 'text/plain' }), 'a.txt');
  return filled;
}

const DOORS = {
  'effects API, multipart': () =>
    effect('multipart', { file: { filename: 'a.txt', content_type: 'text/plain', data } }),
  'effects API, opaque': () => effect('opaque', { body: { content_type: 'text/plain', data } }),
  'proxy, multipart': () => proxied('POST', '/files', form()),
  'proxy, opaque': () => proxied('PUT', '/blob', Buffer.from('some bytes'), { 'content-type': 'text/plain' }),
} as const;

test.each(Object.entries(DOORS))('%s: held back, and the gateway goes on', async (_door, call) => {
  const before = requests;
  beforeHandshake = () => {
    beforeHandshake = async () => undefined;
    return new Promise((resolve) => setTimeout(resolve, TOO_LATE_MS));
  };
  expect((await call()).decision).toBe('failed');
  expect(requests).toBe(before);
  // Ends the connection as well, so that the next call needs another one.
  expect((await call()).decision).toBe('committed');

  beforeHandshake = async () => {
    beforeHandshake = async () => undefined;
    await send(gateway.url, account, 'POST', PAUSES, { scope: { workspace: true }, reason: 'test' });
    // Refused at admission: from then on the gateway has heard of the pause.
    expect((await call()).decision).toBe('denied_paused');
  };
  expect((await call()).decision).toBe('denied_paused');
  expect(requests).toBe(before + 1);

  const { body } = await send(gateway.url, account, 'GET', PAUSES);
  for (const { id } of body.pauses) await send(gateway.url, account, 'DELETE', `${PAUSES}/${id}`);
  expect((await call()).decision).toBe('committed');
});
