import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { makeCa } from '../upstream/certificates.ts';
import { type Seen, startTlsUpstream, type TlsUpstream } from '../upstream/tls-start.ts';
import { type Answer, makeApiKey, send, startGateway, type TestGateway } from './gateway.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 60_000, interval: 50 } as const;

const folder = mkdtempSync(join(tmpdir(), 'svc-upstream-tls-'));
const ca = makeCa('ca');
const other = makeCa('other');
const one = ca.issue('gateway-one');
const two = ca.issue('gateway-two');

let upstream: TlsUpstream;
let gateway: TestGateway;
let key: string;

/** Whole, as whoever rotates certificates does it. */
async function put(name: string, text: string): Promise<void> {
  await writeFile(join(folder, `${name}.new`), text);
  await rename(join(folder, `${name}.new`), join(folder, name));
}

const RULES = [
  'POST /notes, tool: note',
  'POST /held, tool: held',
  'POST /files, tool: file',
  'POST /cut, tool: cut',
  'GET /read, tool: read',
  'GET /stream, tool: stream',
  'GET /socket, tool: socket, frames: ungoverned',
];
const route = (upstreamId: string): string =>
  `{ upstream: ${upstreamId}, prefix: /${upstreamId}, rules: [ ${RULES.map((rule) => `{ match: ${rule.replace('tool: ', `tool: ${upstreamId}.`)}${rule.startsWith('POST') ? ', idempotency: none' : ''} }`).join(', ')} ] }`;
const toolsOf = (upstreamId: string): string =>
  [
    'note, kind: write, request: { method: POST, path: /notes, body: "*" }',
    'held, kind: write, request: { method: POST, path: /held, body: "*" }',
    'file, kind: write, request: { method: POST, path: /files, body: "*", body_type: multipart }',
    'cut, kind: write, request: { method: POST, path: /cut, body: "*", body_type: multipart }',
    'read, kind: read, request: { method: GET, path: /read }',
    'stream, kind: read, request: { method: GET, path: /stream }',
    'socket, kind: read, request: { method: GET, path: /socket }',
  ]
    .map((tool) => `  - { name: ${upstreamId}.${tool}, upstream: ${upstreamId} }\n`)
    .join('');

beforeAll(async () => {
  const server = ca.issue('localhost');
  upstream = await startTlsUpstream({ ...server, ca: ca.cert, requestCert: true, rejectUnauthorized: true });
  await put('ca.pem', ca.cert);
  await put('other.pem', other.cert);
  await put('cert.pem', one.cert);
  await put('key.pem', one.key);
  const own = 'cert: "${TLS}/cert.pem", key: "${TLS}/key.pem"';
  gateway = await startGateway(
    {
      config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - { id: api, url: "${upstream.url}", timeout: 60s, tls: { ca: "\${TLS}/ca.pem", ${own} } }
  - { id: strange, url: "${upstream.url}", tls: { ca: "\${TLS}/other.pem", ${own} } }
tools:
${toolsOf('api')}${toolsOf('strange')}
routes: [ ${route('api')}, ${route('strange')} ]
`,
      policies: {
        'p.yaml':
          'apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nowner: team\nrules: [ { id: all, effect: allow, match: { tools: ["api.*", "strange.*"] } } ]\n',
      },
    },
    // Neither of them may make the gateway trust more for an upstream that names its CA.
    { env: { TLS: folder, NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem'), NODE_TLS_REJECT_UNAUTHORIZED: '0' } },
  );
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
});
afterAll(async () => {
  await gateway.dispose();
  await upstream.stop();
  rmSync(folder, { recursive: true });
});

let calls = 0;

/** By the effects API. */
function run(tool: string): Promise<Answer> {
  calls += 1;
  const body = { tool, params: { text: `n${calls}` }, idempotency_key: `tls-${calls}` };
  return send(gateway.url, key, 'POST', '/v1/workspaces/demo/effects', body);
}

function upload(path: string, bytes: number): Promise<Response> {
  const body = new FormData();
  body.append('file', new Blob([new Uint8Array(bytes)]), 'f.bin');
  return fetch(`${gateway.url}${path}`, { method: 'POST', headers: { 'x-api-key': key }, body });
}

interface Tunnel {
  readonly socket: Socket;
  /** Resolves when this was received. */
  heard(text: string): Promise<void>;
  all(): string;
}

function tunnel(path: string): Tunnel {
  const { hostname, port, host } = new URL(gateway.url);
  const socket = connect(Number(port), hostname).setEncoding('latin1');
  let all = '';
  socket.on('error', () => {}).on('data', (data) => (all += String(data)));
  socket.write(
    `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nX-API-Key: ${key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
  );
  return {
    socket,
    all: () => all,
    heard: (text) => vi.waitFor(() => expect(all).toContain(text), PATIENT),
  };
}

/** One request of each kind; what the upstream saw of them. */
async function eachWay(): Promise<readonly Seen[]> {
  const before = (await upstream.seen()).length;
  expect((await run('api.note')).body).toMatchObject({ decision: 'committed' });
  expect((await send(gateway.url, key, 'POST', '/api/notes', { text: 'x' })).status).toBe(201);
  expect((await upload('/api/files', 300_000)).status).toBe(201);
  expect((await send(gateway.url, key, 'GET', '/api/read')).status).toBe(200);
  const { socket, heard } = tunnel('/api/socket');
  await heard('hello ');
  socket.destroy();
  return (await upstream.seen()).slice(before);
}

test('every way to the upstream trusts the private CA and shows the certificate', async () => {
  const seen = await eachWay();
  expect(seen.map(({ method, url, client }) => `${method} ${url} ${client}`)).toEqual(
    ['POST /notes', 'POST /notes', 'POST /files', 'GET /read', 'GET /socket'].map((each) => `${each} gateway-one`),
  );
  expect(seen[2]?.bytes).toBeGreaterThan(300_000);
});

describe('an upstream whose CA is not the one that is named', () => {
  const why = 'TLS with the upstream failed: no CA that is trusted for it has signed its certificate';
  test('gets no byte of a call, a read, a stream, an upload or a tunnel, and the reason is named', async () => {
    const before = (await upstream.seen()).length;
    const call = await run('strange.note');
    expect([call.status, call.body]).toEqual([
      502,
      expect.objectContaining({
        decision: 'failed',
        did_it_happen: 'no',
        reason: expect.objectContaining({ code: 'connect_failed', message: why }),
      }),
    ]);
    const reason = { code: 'connect_failed', message: expect.stringContaining(why) };
    expect(await (await upload('/strange/files', 300_000)).json()).toMatchObject({ decision: 'failed', reason });
    for (const path of ['/strange/read', '/strange/stream'])
      expect((await send(gateway.url, key, 'GET', path)).body).toMatchObject({ did_it_happen: 'no', reason });
    const { heard, all } = tunnel('/strange/socket');
    await heard('did_it_happen');
    expect(all()).toMatch(/^HTTP\/1\.1 502 [^]*"decision":"failed"/);
    expect(all()).toContain(why);
    expect((await upstream.seen()).length).toBe(before);
  });
});

test('an upload over TLS that breaks off in the middle may have happened', async () => {
  const answer = await upload('/api/cut', 3_000_000);
  expect(await answer.json()).toMatchObject({ decision: 'unknown_effect' });
  expect((await upstream.seen()).at(-1)?.bytes).toBeGreaterThan(0);
});

test('files that change: a broken one leaves those before in force; what runs is not cut; then all have the new one', async () => {
  const said = async (): Promise<string> => (await fetch(`${gateway.url}/readyz`)).text();
  const clients = async (): Promise<readonly (string | null)[]> => [
    ...new Set((await eachWay()).map(({ client }) => client)),
  ];
  const held = run('api.held');
  const stream = await fetch(`${gateway.url}/api/stream`, { headers: { 'x-api-key': key } });
  const events = stream.body?.getReader();
  expect(Buffer.from((await events?.read())?.value ?? []).toString()).toContain('begun');
  const open = tunnel('/api/socket');
  await open.heard('hello gateway-one');
  await vi.waitFor(async () => expect((await upstream.seen()).some(({ url }) => url === '/held')).toBe(true), PATIENT);

  // The new certificate with the key of the one before.
  await put('cert.pem', two.cert);
  await vi.waitFor(async () => expect(await said()).toMatch(/last good version is in force/), PATIENT);
  // The line of the log may come after the answer.
  await vi.waitFor(
    () => expect(gateway.log()).toMatch(/key\.pem is not the key of the certificate in .*cert\.pem/),
    PATIENT,
  );
  expect(await clients()).toEqual(['gateway-one']);

  await put('key.pem', two.key);
  await vi.waitFor(async () => expect(await said()).not.toMatch(/last good version is in force/), PATIENT);
  expect(await clients()).toEqual(['gateway-two']);

  // A CA that is no more, then one that is another.
  await put('ca.pem', '');
  await vi.waitFor(async () => expect(await said()).toMatch(/last good version is in force/), PATIENT);
  await vi.waitFor(() => expect(gateway.log()).toMatch(/ca\.pem holds no PEM/), PATIENT);
  expect(await clients()).toEqual(['gateway-two']);
  await put('ca.pem', other.cert);
  await vi.waitFor(async () => expect(await said()).not.toMatch(/last good version is in force/), PATIENT);
  expect((await run('api.note')).body).toMatchObject({ decision: 'failed', reason: { code: 'connect_failed' } });
  expect((await send(gateway.url, key, 'GET', '/api/read')).status).toBe(502);
  await put('ca.pem', `${other.cert}${ca.cert}`);
  await vi.waitFor(async () => expect((await run('api.note')).body.decision).toBe('committed'), PATIENT);
  expect(await clients()).toEqual(['gateway-two']);

  // What was begun with the first certificate goes on.
  await upstream.release();
  expect((await held).body).toMatchObject({ decision: 'committed' });
  await upstream.tick();
  expect(Buffer.from((await events?.read())?.value ?? []).toString()).toContain('more');
  await events?.cancel();
  open.socket.write('still there');
  await open.heard('still there');
  const gone = once(open.socket, 'close');
  open.socket.destroy();
  await gone;
  // Nobody is shown a key.
  expect(gateway.log()).not.toContain('PRIVATE KEY');
  expect(gateway.log()).not.toContain(two.key.split('\n')[1]);
});
