import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { Pool } from 'undici';
import { expect, test, vi } from 'vitest';
import type { PipeHeaders } from '../../../src/upstreams/mcp/pipe/pipe.ts';
import { SsePipe, SseServer } from '../../../src/upstreams/mcp/sse/sse-pipe.ts';
import { ask } from '../mcp-stdio/ask.ts';

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
  const warnings: string[] = [];
  const warned = ({ message }: Error): void => void warnings.push(message);
  process.on('warning', warned);
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
  process.off('warning', warned);
  expect(warnings).toEqual([]);
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

/** A pipe to a server, and what is heard: its messages, what became of messages to it, and why it is over. */
async function served(listener: RequestListener, headers: PipeHeaders = {}) {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const through = new Pool(url);
  const heard: string[] = [];
  const address = { url, path: '/', through, messageBytes: 1_000, now: () => performance.now() };
  const pipe = new SsePipe(address, headers, {
    line: (bytes) => void heard.push(bytes.toString()),
    over: (why) => void heard.push(why),
  });
  const send = (message: Buffer, more: PipeHeaders = {}, mayGo = true): void =>
    pipe.send(message, more, {
      start: () => mayGo,
      taken: () => void heard.push('taken'),
      refused: (refused, answer) => {
        heard.push(`refused ${refused}`);
        expect(JSON.parse(answer.toString())).toMatchObject({
          id: null,
          error: { code: -32_000, message: expect.stringMatching(/^The server did not take the message.*\.$/) },
        });
      },
      lost: (error) => void heard.push(`lost: ${error.message}`),
    });
  const close = async (): Promise<void> => {
    pipe.kill('the end');
    await through.destroy();
    server.closeAllConnections();
    server.close();
  };
  return { heard, pipe, send, close };
}

/** The same, of a server that answers each message with a status. */
async function answering(status: number, headers: PipeHeaders = {}) {
  const asked: IncomingHttpHeaders[] = [];
  const posted: IncomingHttpHeaders[] = [];
  const made = await served((request, response) => {
    if (request.method === 'POST') {
      posted.push(request.headers);
      response.writeHead(status).end();
      return;
    }
    asked.push(request.headers);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('event: endpoint\ndata: /messages\n\n');
  }, headers);
  return { asked, posted, ...made };
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
  const { asked, posted, send, close } = await answering(202, {
    'x-key': 'secret',
    'mcp-session-id': 'of the gateway',
  });
  send(Buffer.from('{}'), { 'x-own': '1', 'mcp-session-id': 'of the gateway', 'last-event-id': '7', accept: 'a/b' });
  await expect
    .poll(() => posted)
    .toMatchObject([{ 'x-key': 'secret', 'x-own': '1', 'content-type': 'application/json' }]);
  for (const name of ['mcp-session-id', 'last-event-id', 'accept']) expect(posted[0]).not.toHaveProperty(name);
  expect(asked).toMatchObject([{ 'x-key': 'secret', accept: 'text/event-stream' }]);
  expect(asked[0]).not.toHaveProperty('mcp-session-id');
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

const STREAM = { 'content-type': 'text/event-stream' };

test.each([
  [404, STREAM],
  [200, { 'content-type': 'text/html' }],
])('what answers with %i and %o has no stream of events, and is not listened to', async (status, type) => {
  let isLeft = false;
  const { heard, close } = await served((_request, response) => {
    response.writeHead(status, type).write('data: {}\n\n');
    response.once('close', () => (isLeft = true));
  });
  await expect.poll(() => heard).toEqual([`it has no stream of events at this address (${status})`]);
  await expect.poll(() => isLeft).toBe(true);
  await close();
});

test('a stream that ends, or says more than a message may be, is over with its reason, and so is one that never was', async () => {
  const ended = await served((_request, response) => {
    response.writeHead(200, STREAM).end('data: {"n":1}\n\n');
  });
  await expect.poll(() => ended.heard).toEqual(['{"n":1}', 'its stream of events ended']);
  const loud = await served((_request, response) => {
    response.writeHead(200, STREAM).write(`data: ${'x'.repeat(100_000)}\n\n`);
  });
  await expect.poll(() => loud.heard).toEqual([expect.stringMatching(/^what it says cannot be read: \w/)]);
  const cut = await served((_request, response) => response.destroy());
  await expect.poll(() => cut.heard).toEqual([expect.not.stringContaining('its stream of events ended')]);
  for (const { close } of [ended, loud, cut]) await close();
});

test('of what comes while the pipe is paused nothing is lost', async () => {
  const { heard, pipe, close } = await served((_request, response) => {
    response.writeHead(200, STREAM).write('data: 1\n\ndata: 2\n\ndata: 3\n\n');
  });
  pipe.pause();
  for (let turn = 0; turn < 10; turn += 1) await setImmediate();
  expect(heard).toEqual([]);
  pipe.resume();
  await expect.poll(() => heard).toEqual(['1', '2', '3']);
  await close();
});

test('a session that ends leaves its server, also before it has answered', async () => {
  let left = 0;
  const { pipe, close } = await served((_request, response) => void response.once('close', () => (left += 1)));
  const stands = await served((_request, response) => {
    response.once('close', () => (left += 1));
    response.writeHead(200, STREAM).write('data: 1\n\n');
  });
  await expect.poll(() => stands.heard).toEqual(['1']);
  pipe.end();
  stands.pipe.end();
  await expect.poll(() => left).toBe(2);
  expect(stands.heard).toEqual(['1', 'its session was ended']);
  for (const one of [close, stands.close]) await one();
});

test('a message whose connection breaks is lost; one that is held back is not sent, and not refused', async () => {
  let posted = 0;
  const { heard, send, close } = await served((request, response) => {
    if (request.method === 'POST') {
      posted += 1;
      request.socket.destroy();
    } else response.writeHead(200, STREAM).write('event: endpoint\ndata: /messages\n\ndata: up\n\n');
  });
  await expect.poll(() => heard).toEqual(['up']);
  send(Buffer.from('{}'), {}, false);
  send(Buffer.alloc(1_001), {}, false);
  send(Buffer.from('{}'));
  await expect.poll(() => heard).toEqual(['up', expect.stringMatching(/^lost: \w/)]);
  expect(posted).toBe(1);
  await close();
});

test('so many messages wait for a server to say where they go, and no more', async () => {
  const { heard, send, close } = await served(() => undefined);
  for (let sent = 0; sent < 66; sent += 1) send(Buffer.from('{}'));
  expect(heard).toEqual(['refused 503', 'refused 503']);
  await close();
});

test('a server that is away can be asked again at once, and its connections end with it', async () => {
  for (const [end, isOver] of [
    ['close', ({ closed }: Pool) => closed],
    ['destroy', ({ destroyed }: Pool) => destroyed],
  ] as const) {
    const url = 'http://127.0.0.1:1';
    const through = new Pool(url);
    const now = (): number => 0;
    const server = new SseServer({ url, path: '/', messageBytes: 1_000, most: 1, idleMs: 60_000, now }, through, now);
    for (let time = 0; time < 2; time += 1) {
      const asked = ask(server, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} });
      // Not a word of a time to wait.
      await expect(asked.end).rejects.toThrow('ECONNREFUSED');
    }
    await server[end]();
    expect(isOver(through)).toBe(true);
  }
});
