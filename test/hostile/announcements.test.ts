import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { freshKey, startWorld, type World, worldFiles } from '../system/world.ts';

/** Announces its answer for as long as anybody listens, and never gives one. */
let api: Server;
const open = new Set<Socket>();
let world: World;

beforeAll(async () => {
  api = createServer((socket) => {
    open.add(socket);
    socket.on('error', () => undefined);
    const early = Buffer.from('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(100));
    socket.once('data', () => {
      const sending = setInterval(() => socket.write(early), 5);
      socket.once('close', () => clearInterval(sending));
    });
  }).listen(0, '127.0.0.1');
  await once(api, 'listening');
  const url = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  world = await startWorld({
    files: (upstreamUrl) => {
      const { config, policies } = worldFiles(upstreamUrl);
      return {
        config: config
          .replace('upstreams: [', `upstreams: [ { id: api, url: "${url}", timeout: 60s },`)
          .replace('\nroutes:\n', `\n${TOOLS}\nroutes:\n${ROUTES}`),
        policies: { ...policies, 'early.yaml': POLICY },
      };
    },
  });
});
afterAll(async () => {
  await world.close();
  for (const socket of open) socket.destroy();
  api.close();
});

const TOOLS = `  - { name: api.write, upstream: api, kind: write, request: { method: POST, path: /write, body: "*" } }
  - { name: api.read, upstream: api, kind: read, request: { method: GET, path: /read } }`;
const ROUTES = `  - { upstream: api, prefix: /api, rules: [ { match: "POST /write", tool: api.write }, { match: "GET /read", tool: api.read } ] }
`;
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: early
owner: team-test
rules:
  - { id: all, effect: allow, match: { tools: [api.write, api.read] } }
`;

test('a server that only announces its answer is given up long before its time-out: a write is unknown', async () => {
  const { body } = await world.run({ tool: 'api.write', params: {}, idempotency_key: freshKey() }, world.keys.bot);
  expect(body.decision).toBe('unknown_effect');
});

test('… and a read fails', async () => {
  const answer = await fetch(`${world.gateway.url}/api/read`, { headers: { 'x-api-key': world.keys.bot } });
  expect(answer.status).toBe(502);
  await answer.text();
});
