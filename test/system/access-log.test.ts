import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type FakeApi, startFakeApi } from '../sdks/fake-api.ts';
import { makeApiKey, send, startGateway, type TestGateway } from './gateway.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 50 } as const;
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';

let api: FakeApi;
let sockets: Server;
let gateway: TestGateway;
let key: string;
beforeAll(async () => {
  api = await startFakeApi(({ url }) => ({
    status: url === '/v1/gone' ? 404 : 200,
    headers: { 'svc-effect-id': 'eff_x","agent":"forged' },
    json: { id: 1 },
  }));
  sockets = createServer();
  sockets.on('upgrade', (_request, socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    socket.on('data', () => socket.end('heard'));
  });
  await once(sockets.listen(0, '127.0.0.1'), 'listening');
  const { port } = sockets.address() as AddressInfo;
  gateway = await startGateway({
    config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: api, url: "${api.url}", timeout: 10s }, { id: live, url: "http://127.0.0.1:${port}" } ]
tools:
  - { name: live.socket, upstream: live, kind: read, request: { method: GET, path: /socket } }
  - { name: live.page, upstream: live, kind: read, request: { method: GET, path: /page } }
  - { name: api.pay, upstream: api, kind: write, request: { method: POST, path: /v1/pay, body: "*" } }
  - { name: api.see, upstream: api, kind: read, request: { method: GET, path: "/v1/{what}", query: [q] } }
routes:
  - { upstream: live, prefix: /live, rules: [ { match: "GET /socket", tool: live.socket, frames: ungoverned }, { match: "GET /page", tool: live.page } ] }
  - { upstream: api, prefix: /api, rules: [ { match: "POST /v1/pay", tool: api.pay }, { match: "GET /v1/:what", tool: api.see } ] }
`,
    policies: {
      'p.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: p
owner: team
rules:
  - { id: all, effect: allow, match: { tools: [api.pay, api.see, live.socket, live.page] } }
  - { id: not, effect: deny, match: { tools: [api.pay] }, when: { params.amount: { gt: 100 } }, reason: "Too much" }
`,
    },
  });
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
});
afterAll(async () => {
  await gateway.dispose();
  await api.close();
  sockets.closeAllConnections();
  sockets.close();
});

interface Line {
  readonly [name: string]: unknown;
}

/** The line of a request, once it stands in the log. */
async function lineOf(requestId: string): Promise<Line> {
  const find = (): string | undefined =>
    gateway
      .log()
      .split('\n')
      .find((line) => line.includes('"msg":"call"') && line.includes(requestId));
  await vi.waitFor(() => expect(find()).toBeDefined(), PATIENT);
  expect(gateway.log().split(requestId).length).toBe(2);
  const line: Line = JSON.parse(find() ?? '');
  return line;
}

const idOf = (answer: { readonly headers: Headers }): string => answer.headers.get('x-request-id') ?? '';

it('is one for each request, with what became of it, and without path, params and keys', async () => {
  const paid = await send(
    gateway.url,
    key,
    'POST',
    '/api/v1/pay',
    { amount: 5, to: 'secret-recipient' },
    {
      'idempotency-key': 'a',
      traceparent: `00-${TRACE}-00f067aa0ba902b7-01`,
    },
  );
  expect(await lineOf(idOf(paid))).toEqual({
    level: 'info',
    time: expect.stringMatching(/^\d{4}-/),
    msg: 'call',
    request_id: idOf(paid),
    method: 'POST',
    workspace: 'demo',
    agent: 'bot',
    tool: 'api.pay',
    upstream: 'api',
    decision: 'committed',
    status: 200,
    bytes_in: expect.any(Number),
    bytes_out: expect.any(Number),
    duration_ms: expect.any(Number),
    auth_ms: expect.any(Number),
    effect_id: paid.headers.get('svc-effect-id'),
    trace_id: TRACE,
  });
  const denied = await send(gateway.url, key, 'POST', '/api/v1/pay', { amount: 500 }, { 'idempotency-key': 'b' });
  expect(await lineOf(idOf(denied))).toMatchObject({ decision: 'denied_policy', status: 403, tool: 'api.pay' });
  const read = await send(gateway.url, key, 'GET', '/api/v1/secret-path?q=secret-query');
  expect(await lineOf(idOf(read))).toMatchObject({
    decision: 'committed',
    status: 200,
    tool: 'api.see',
    effect_id: null,
  });
  const gone = await send(gateway.url, key, 'GET', '/api/v1/gone');
  expect(await lineOf(idOf(gone))).toMatchObject({ decision: 'failed', status: 404 });
  const undeclared = await send(gateway.url, key, 'DELETE', '/api/v1/secret-path');
  expect(await lineOf(idOf(undeclared))).toMatchObject({ decision: 'denied_policy', tool: null, upstream: 'api' });
  const nobody = await send(gateway.url, 'svc_agent_nobody', 'GET', '/api/v1/x');
  expect(await lineOf(idOf(nobody))).toMatchObject({ status: 401, decision: null, agent: null, workspace: '' });
  expect(gateway.log()).not.toMatch(/secret-|forged|idempotency/);
  expect(gateway.log()).not.toContain(key);
  expect((await send(gateway.url, gateway.administrativeKey, 'GET', '/livez')).status).toBe(200);
});

it('counts the bytes of each request on a connection that is kept', async () => {
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname);
  const ask = `GET /api/v1/x HTTP/1.1\r\nHost: ${hostname}\r\nX-API-Key: ${key}\r\n\r\n`;
  let all = '';
  socket.setEncoding('latin1').on('data', (data: string) => (all += data));
  const answers = (): string[] =>
    all
      .split('HTTP/1.1 200')
      .slice(1)
      .map((each) => `HTTP/1.1 200${each}`);
  for (const count of [1, 2, 3]) {
    socket.write(ask);
    await vi.waitFor(
      () => expect(answers().filter((each) => each.endsWith('\r\n0\r\n\r\n')).length).toBe(count),
      PATIENT,
    );
  }
  socket.destroy();
  for (const answer of answers()) {
    const id = /x-request-id: (\S+)/.exec(answer)?.[1] ?? '';
    expect(await lineOf(id)).toMatchObject({ bytes_in: ask.length, bytes_out: answer.length });
  }
});

it('is one for each upgrade: a tunnel when it is over, and one that is refused', async () => {
  const { hostname, port } = new URL(gateway.url);
  const upgrade = async (path: string, more: string): Promise<string> => {
    const socket = connect(Number(port), hostname);
    socket.write(
      `GET /live/${path} HTTP/1.1\r\nHost: ${hostname}\r\nX-API-Key: ${key}\r\ntraceparent: 00-${TRACE}-00f067aa0ba902b7-01\r\n` +
        'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
    );
    let all = '';
    for await (const data of socket.setEncoding('latin1')) {
      all += data;
      if (more !== '' && all.endsWith('\r\n\r\n')) socket.write(more);
    }
    return all;
  };
  const lines = (tool: string): readonly Line[] =>
    gateway
      .log()
      .split('\n')
      .filter((line) => line.includes('"msg":"call"') && line.includes(`"tool":"${tool}"`))
      .map((line) => JSON.parse(line) as Line);
  const heard = await upgrade('socket', 'x'.repeat(1000));
  expect(heard).toMatch(/heard$/);
  await vi.waitFor(() => expect(lines('live.socket').length).toBe(1), PATIENT);
  const [tunnel] = lines('live.socket');
  expect(tunnel).toMatchObject({ agent: 'bot', upstream: 'live', decision: 'committed', status: 101, trace_id: TRACE });
  expect(tunnel).toMatchObject({ bytes_out: heard.length, auth_ms: expect.any(Number) });
  expect(Number(tunnel?.['bytes_in'])).toBeGreaterThan(1000);
  expect(tunnel).not.toHaveProperty('cut');
  expect(await upgrade('page', '')).toContain('403 Forbidden');
  await vi.waitFor(() => expect(lines('live.page').length).toBe(1), PATIENT);
  expect(lines('live.page')).toMatchObject([
    { decision: 'denied_policy', status: 403, effect_id: expect.stringMatching(/^eff_/) },
  ]);
  expect(await (await fetch(`${gateway.url}/metrics`)).text()).not.toContain('tool="live.socket",decision="committed"');
});

it('metrics tell calls by upstream, tool and decision', async () => {
  const text = await (await fetch(`${gateway.url}/metrics`)).text();
  expect(text).toMatch(/svc_proxy_call_seconds_count\{upstream="api",tool="api\.pay",decision="committed"\} 1/);
  expect(text).toMatch(/svc_proxy_call_seconds_count\{upstream="api",tool="none",decision="denied_policy"\} 1/);
});
