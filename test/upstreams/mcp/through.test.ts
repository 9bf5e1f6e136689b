import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Keeper } from '../../../src/upstreams/mcp/stdio/keeper.ts';
import { openThrough } from '../../../src/upstreams/mcp/through.ts';

let asked = 0;
const server = createServer((_request, response) => {
  asked += 1;
  response.end('{}');
});
beforeAll(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening');
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

test.each([
  ['any', /^200$/, 1],
  ['public', /address/, 0],
] as const)('an MCP server on this machine, where the network may be %s', async (network, said, requests) => {
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const settings = { id: 'crm', url, timeoutMs: 1_000, network, credentials: null, mcp: { path: '/mcp', allow: [] } };
  const through = openThrough(settings, new Keeper());
  asked = 0;
  if (!('request' in through)) throw new Error('it is spoken to over connections');
  const answer = await through.request({ method: 'GET', path: '/mcp' }).then(async ({ statusCode, body }) => {
    await body.dump();
    return String(statusCode);
  }, String);
  expect(answer).toMatch(said);
  expect(asked).toBe(requests);
  await through.close();
});
