import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { connectTo, type OneRequest, postOnce, readOnce } from '../../src/upstreams/http/request-once.ts';

/** @returns its port, and the requests that it got */
async function listening(answer: RequestListener): Promise<{ readonly port: number; readonly seen: string[] }> {
  const seen: string[] = [];
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    answer(request, response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, seen };
}

const to = (port: number, changes: Partial<OneRequest> = {}): OneRequest => ({
  method: 'POST',
  url: `http://127.0.0.1:${port}/hook?of=svc`,
  headers: {},
  body: '{}',
  network: 'any',
  timeoutMs: 10_000,
  ...changes,
});

test.each([
  ['3', 3_000],
  ['0', 0],
  ['999999', 999_999_000],
  ['1000000', 0],
  ['1.5', 0],
  ['Tue, 24 Nov 2026 00:00:07 GMT', 0],
  [undefined, 0],
])('of an answer that says to come back after %s it is known in ms', async (after, retryAfterMs) => {
  const { port, seen } = await listening((_request, response) => {
    response.writeHead(503, after === undefined ? {} : { 'retry-after': after }).end();
  });
  expect(await postOnce(to(port))).toEqual({ status: 503, retryAfterMs });
  expect(seen).toEqual(['POST /hook?of=svc']);
});

test('an answer is read up to so many bytes, and refused with one more; each on a connection of its own', async () => {
  const { port } = await listening((_request, response) => {
    response.writeHead(200, { 'content-length': 10 }).write('01234');
    response.end('56789');
  });
  const read = to(port, { method: 'GET', body: null });
  expect(await readOnce(read, 10)).toEqual({ status: 200, body: Buffer.from('0123456789') });
  await expect(readOnce(read, 9)).rejects.toThrow('the answer has more than 9 bytes');
});

test('the rules about addresses are those of upstreams, for requests and for plain connections', async () => {
  const { port, seen } = await listening((_request, response) => response.end());
  const refused = { name: 'ConnectFailed', message: expect.stringContaining('address is refused') };
  await expect(postOnce(to(port, { network: 'public' }))).rejects.toMatchObject(refused);
  await expect(connectTo('127.0.0.1', port, 'public')).rejects.toMatchObject(refused);
  expect(seen).toEqual([]);
  const socket = await connectTo('127.0.0.1', port, 'any');
  expect([socket.remotePort, socket.destroyed]).toEqual([port, false]);
  socket.destroy();
});
