import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createServer, type Server, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeApiKey, send, startGateway, type TestGateway } from '../system/gateway.ts';

/** A certificate and its key for `localhost`, which only these tests trust. */
const PEM = join(import.meta.dirname, 'localhost.pem');

/** What the upstream does with a call, by the call's `mode`. */
const MODES: Readonly<Record<string, (socket: TLSSocket) => void>> = {
  /** Longer than what is read of an answer. */
  endless: (socket) => {
    socket.write('HTTP/1.1 201 Created\r\ncontent-length: 20971520\r\n\r\n');
    const chunk = Buffer.alloc(65_536, 'a');
    const more = (): void => {
      while (socket.writable && socket.write(chunk));
      if (socket.writable) socket.once('drain', more);
    };
    more();
  },
  silent: () => {},
  begun: (socket) => void socket.write('HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\nabc'),
  gone: (socket) => void socket.destroy(),
  well: (socket) => void socket.write('HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok'),
};

let server: Server;
let gateway: TestGateway;
let key: string;
beforeAll(async () => {
  const pem = readFileSync(PEM);
  server = createServer({ cert: pem, key: pem }, (socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      const mode = /"mode":"(\w+)"/.exec(data.toString('latin1'))?.[1];
      if (mode !== undefined) MODES[mode]?.(socket);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  gateway = await startGateway(
    {
      config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: safe, url: "https://localhost:${port}", timeout: 10s } ]
tools:
  - name: note
    upstream: safe
    kind: write
    request: { method: POST, path: /notes, body: [mode] }
    params_schema: { type: object, properties: { mode: { type: string } }, additionalProperties: false }
    timeout: 2500ms
`,
      policies: {
        'p.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: p
owner: team-test
rules: [ { id: note, effect: allow, match: { tools: [note] } } ]
`,
      },
    },
    { env: { NODE_EXTRA_CA_CERTS: PEM } },
  );
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', agent_id: 'bot', workspace: 'demo' });
});
afterAll(async () => {
  await gateway.dispose();
  server.close();
});

test.each([
  ['endless', 200, 'committed'],
  ['silent', 504, 'unknown_effect'],
  ['begun', 200, 'committed'],
  ['gone', 504, 'unknown_effect'],
])('an upstream behind TLS: %s', async (mode, status, decision) => {
  const run = (with_: string, suffix: string) =>
    send(gateway.url, key, 'POST', '/v1/workspaces/demo/effects', {
      tool: 'note',
      params: { mode: with_ },
      idempotency_key: `tls-${mode}-${suffix}`,
    });
  const answer = await run(mode, 'odd');
  expect([answer.status, answer.body.decision]).toEqual([status, decision]);
  // The gateway lives, and its connections work.
  expect((await run('well', 'after')).body.decision).toBe('committed');
});
