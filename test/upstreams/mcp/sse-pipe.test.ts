import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { Pool } from 'undici';
import { expect, test, vi } from 'vitest';
import type { PipeHeaders } from '../../../src/upstreams/mcp/pipe/pipe.ts';
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

/** A server of which each message is answered with a status, and what became of messages to it. */
async function answering(status: number, headers: PipeHeaders = {}) {
  const posted: IncomingHttpHeaders[] = [];
  const server = createServer((request, response) => {
    if (request.method === 'POST') {
      posted.push(request.headers);
      response.writeHead(status).end();
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('event: endpoint\ndata: /messages\n\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = new Pool(url);
  const heard: string[] = [];
  const address = { url, path: '/', through, messageBytes: 1_000, now: () => performance.now() };
  const pipe = new SsePipe(address, headers, { line: () => undefined, over: (why) => void heard.push(why) });
  const send = (message: Buffer, more: PipeHeaders = {}): void =>
    pipe.send(message, more, {
      start: () => true,
      taken: () => void heard.push('taken'),
      refused: (refused) => void heard.push(`refused ${refused}`),
      lost: (error) => void heard.push(`lost: ${error.message}`),
    });
  const close = async (): Promise<void> => {
    pipe.kill('the end');
    await through.destroy();
    server.closeAllConnections();
    server.close();
  };
  return { posted, heard, pipe, send, close };
}

test.each([
  [200, 'taken'],
  [202, 'taken'],
  [302, 'refused 302'],
  [400, 'refused 400'],
  [503, 'refused 503'],
])(
  'a message that the server answers with %i is %s',
  async (status, expected) => {
    const { heard, send, close } = await answering(status);
    send(Buffer.from('{}'));
    await expect.poll(() => heard).toEqual([expected]);
    await close();
  },
  20_000,
);

test('a message has the headers of its session and its own, and nothing about the session with the gateway', async () => {
  const { posted, send, close } = await answering(202, { 'x-key': 'secret', 'mcp-session-id': 'of the gateway' });
  send(Buffer.from('{}'), { 'x-own': '1', 'mcp-session-id': 'of the gateway', 'last-event-id': '7', accept: 'a/b' });
  await expect
    .poll(() => posted)
    .toMatchObject([{ 'x-key': 'secret', 'x-own': '1', 'content-type': 'application/json' }]);
  for (const name of ['mcp-session-id', 'last-event-id', 'accept']) expect(posted[0]).not.toHaveProperty(name);
  await close();
});

test('a message that is too long is not sent, nor is one after the end; what waited then is lost, which is told once', async () => {
  const { posted, heard, pipe, send, close } = await answering(202);
  send(Buffer.alloc(1_001));
  // Nobody knows yet where it goes.
  send(Buffer.alloc(1_000));
  expect(heard).toEqual(['refused 503']);
  pipe.kill('the end');
  pipe.kill('again');
  send(Buffer.from('{}'));
  expect(heard).toEqual(['refused 503', 'lost: the end', 'the end', 'refused 503']);
  expect(posted).toEqual([]);
  await close();
});

test('a server that does not say within ten seconds where messages go is left', () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const heard: string[] = [];
  const address = { url: 'http://127.0.0.1:1', path: '/', messageBytes: 1_000, now: () => 0 };
  const events = { line: () => undefined, over: (why: string) => void heard.push(why) };
  const pipe = new SsePipe({ ...address, through: { dispatch: () => true } }, {}, events);
  vi.advanceTimersByTime(9_999);
  expect(heard).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(heard).toEqual(['it did not say within 10000 ms where messages go']);
  pipe.kill('the end');
  vi.useRealTimers();
});
