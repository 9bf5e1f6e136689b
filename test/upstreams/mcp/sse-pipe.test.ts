import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { Pool } from 'undici';
import { expect, test } from 'vitest';
import { SsePipe } from '../../../src/upstreams/mcp/sse/sse-pipe.ts';

test('nothing of the server comes after the end, also what had come while the pipe was paused', async () => {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('event: endpoint\ndata: /messages\n\ndata: {"n":1}\n\ndata: {"n":2}\n\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = new Pool(url);
  const heard: string[] = [];
  const pipe = new SsePipe(
    { url, path: '/', through, messageBytes: 1_000, now: () => performance.now() },
    {},
    {
      line: (bytes) => {
        heard.push(bytes.toString());
        pipe.pause();
      },
      over: (why) => void heard.push(why),
    },
  );
  await expect.poll(() => heard).toEqual(['{"n":1}']);
  pipe.kill('the end');
  for (let turn = 0; turn < 10; turn += 1) await setImmediate();
  expect(heard).toEqual(['{"n":1}', 'the end']);
  await through.destroy();
  server.closeAllConnections();
  server.close();
});

test('messages go where the server said first, whatever it says later', async () => {
  const paths: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    if (request.method === 'POST') {
      paths.push(request.url);
      response.writeHead(202).end();
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('event: endpoint\ndata: /first\n\nevent: endpoint\ndata: /second\n\ndata: {"n":1}\n\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = new Pool(url);
  const address = { url, path: '/', through, messageBytes: 1_000, now: () => performance.now() };
  let isListening = false;
  const pipe = new SsePipe(address, {}, { line: () => (isListening = true), over: () => undefined });
  await expect.poll(() => isListening).toBe(true);
  const nothing = (): void => undefined;
  pipe.send(Buffer.from('{}'), {}, { start: () => true, taken: nothing, lost: nothing, refused: nothing });
  await expect.poll(() => paths).toEqual(['/first']);
  pipe.kill('the end');
  await through.destroy();
  server.closeAllConnections();
  server.close();
});

test.each([
  ['/messages?session=1', '/messages?session=1'],
  ['messages', '/v1/messages'],
  ['?session=1', '/v1/sse?session=1'],
  ['http://localhost:1/messages', 'it names an endpoint that is not at its own origin'],
  ['http://', 'it names an endpoint that is not at its own origin'],
])('of a server that names %s, messages go to its own origin or nowhere: %s', async (endpoint, expected) => {
  const heard: string[] = [];
  const server = createServer((request, response) => {
    if (request.method === 'POST') heard.push(request.url ?? '');
    else response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (request.method === 'POST') response.writeHead(202).end();
    else response.write(`event: endpoint\ndata: ${endpoint}\n\n`);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = new Pool(url);
  const address = { url, path: '/v1/sse', through, messageBytes: 1_000, now: () => performance.now() };
  const pipe = new SsePipe(address, {}, { line: () => undefined, over: (why) => void heard.push(why) });
  const nothing = (): void => undefined;
  pipe.send(Buffer.from('{}'), {}, { start: () => true, taken: nothing, lost: nothing, refused: nothing });
  await expect.poll(() => heard).toEqual([expected]);
  pipe.kill('the end');
  await through.destroy();
  server.closeAllConnections();
  server.close();
});

test('a server that takes no message, or does not end its answer, has so many connections open and no more', async () => {
  let posted = 0;
  const answers: ServerResponse[] = [];
  const server = createServer((request, response) => {
    if (request.method === 'POST') {
      posted += 1;
      answers.push(response);
      // Half of them hear that it was taken, and nothing of the end.
      if (posted % 2 === 0) response.writeHead(202).flushHeaders();
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('event: endpoint\ndata: /messages\n\ndata: {"n":1}\n\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = new Pool(url);
  const address = { url, path: '/', through, messageBytes: 1_000, now: () => performance.now() };
  let isListening = false;
  const pipe = new SsePipe(address, {}, { line: () => (isListening = true), over: () => undefined });
  await expect.poll(() => isListening).toBe(true);
  const refused: number[] = [];
  const send = (): void => {
    const sending = { start: () => true, taken: () => undefined, lost: () => undefined };
    for (let sent = 0; sent < 100; sent += 1)
      pipe.send(Buffer.from('{}'), {}, { ...sending, refused: (status) => void refused.push(status) });
  };
  send();
  await expect.poll(() => posted).toBe(64);
  expect(refused).toEqual(Array.from({ length: 36 }, () => 503));
  for (const answer of answers.splice(0)) answer.end();
  // What was answered makes room.
  await expect.poll(() => (send(), posted)).toBeGreaterThan(64);
  pipe.kill('the end');
  await through.destroy();
  server.closeAllConnections();
  server.close();
});

test('what the server says under another name is no message, and what is not UTF-8 ends the session', async () => {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(
      'event: endpoint\ndata: /messages\n\nevent: ping\ndata: {"n":0}\n\nevent: message\ndata: {"n":1}\n\n',
    );
    response.write(Buffer.concat([Buffer.from('data: "'), Buffer.from([0xff]), Buffer.from('"\n\ndata: {"n":2}\n\n')]));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = new Pool(url);
  const heard: string[] = [];
  const hear = { line: (bytes: Buffer) => heard.push(bytes.toString()), over: (why: string) => heard.push(why) };
  const pipe = new SsePipe({ url, path: '/', through, messageBytes: 1_000, now: () => performance.now() }, {}, hear);
  await expect.poll(() => heard).toEqual(['{"n":1}', 'what it says is not UTF-8']);
  pipe.kill('the end');
  await through.destroy();
  server.closeAllConnections();
  server.close();
});
