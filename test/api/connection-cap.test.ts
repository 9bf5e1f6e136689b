import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, Socket } from 'node:net';
import { expect, test } from 'vitest';
import { ConnectionCap } from '../../src/api/listeners.ts';

test('at the cap a tunnel is not idle: the connection too many is closed, and the tunnel goes on', async () => {
  const server = createServer();
  void new ConnectionCap(server, 1);
  server.on('upgrade', (_request, socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n');
    socket.pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const open = () => connect(port, '127.0.0.1').on('error', () => undefined);

  const tunnel = open();
  tunnel.write('GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n');
  expect(String(await once(tunnel, 'data'))).toMatch(/^HTTP\/1\.1 101 /);
  const tooMany = open().resume();
  const closed = await Promise.race([
    once(tooMany, 'close').then(() => 'the one too many'),
    once(tunnel, 'close').then(() => 'the tunnel'),
  ]);
  expect(closed).toBe('the one too many');
  tunnel.write('still here');
  expect(String(await once(tunnel, 'data'))).toBe('still here');

  tunnel.destroy();
  server.close();
});

test('at the cap the connection that was idle for longest makes room, and the new one is served', async () => {
  const server = createServer((_request, response) => response.end('served'));
  void new ConnectionCap(server, 2);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const asking = async () => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined);
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    const answer = await Promise.race([once(socket, 'data'), once(socket, 'close')]);
    expect(String(answer)).toMatch(/^HTTP\/1\.1 200 /);
    return socket.resume();
  };
  const [first, second] = [await asking(), await asking()];
  const gone = once(first, 'close');
  const third = await asking();
  await gone;
  expect([second.destroyed, third.destroyed]).toEqual([false, false]);
  for (const socket of [second, third]) socket.destroy();
  server.close();
});

test('when a caller leaves, each answer on its connection is closed once, also those that wait behind others', async () => {
  const closed: string[] = [];
  const waiting: (() => void)[] = [];
  const server = createServer((request, response) => {
    const { url = '' } = request;
    response.on('close', () => closed.push(`${url} ${response.destroyed} ${response.writableFinished}`));
    if (url === '/ended') response.end('ended');
    else waiting.push(() => void response.end('answered'));
  });
  const cap = new ConnectionCap(server, 10);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  socket.write(['/first', '/ended', '/waits'].map((path) => `GET ${path} HTTP/1.1\r\nhost: a\r\n\r\n`).join(''));
  await expect.poll(() => waiting).toHaveLength(2);
  waiting.shift()?.();
  await expect.poll(() => closed).toEqual(['/first true true', '/ended true true']);
  socket.write('GET /behind HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(20));
  await expect.poll(() => waiting).toHaveLength(21);
  socket.destroy();
  await expect.poll(() => cap.underWay.size).toBe(0);
  const last = ['/waits true false', ...Array<string>(20).fill('/behind true false')];
  await expect.poll(() => closed.slice(2).toSorted()).toEqual(last.toSorted());
  for (const answer of waiting) answer();
  server.close();
  await once(server, 'close');
  expect(closed).toHaveLength(23);
});

test('a caller that is still sending when it is refused gets the whole answer; nothing after it is served', async () => {
  const served: string[] = [];
  const server = createServer((request, response) => {
    served.push(request.url ?? '');
    // A part of the body was read.
    request.once('data', () => {
      response.writeHead(413, { connection: 'close' }).end('too large');
    });
  });
  void new ConnectionCap(server, 10);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;

  // What the server has read until then, it has read whole.
  const closed = new Promise((resolve) => server.once('connection', (socket) => socket.once('close', resolve)));
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  const failed: Error[] = [];
  socket.on('error', (error) => failed.push(error));
  let text = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    text += chunk;
  });
  const piece = 'x'.repeat(100_000);
  socket.write(`POST /large HTTP/1.1\r\nhost: a\r\ncontent-length: ${5 * piece.length}\r\n\r\n${piece}`);
  await once(socket, 'end');
  // The answer is here, and the system has sent nothing that would take it from a caller that reads late.
  for (let sent = 1; sent < 5; sent += 1) {
    const done = new Promise((resolve) => socket.write(piece, resolve));
    expect((await done) ?? null).toBeNull();
  }
  socket.end('POST /second HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx');
  await closed;
  expect(text).toMatch(/^HTTP\/1\.1 413 [^]*too large/);
  expect([served, failed]).toEqual([['/large'], []]);
  server.close();
});

test('a caller that sends on for ever after its last answer is cut off', async () => {
  const server = createServer((_request, response) => response.writeHead(413, { connection: 'close' }).end());
  void new ConnectionCap(server, 10, 1_500);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => undefined);
  socket.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 999999999\r\n\r\n');
  socket.resume();
  const sending = setInterval(() => socket.write('x'), 100);
  await new Promise((resolve) => socket.once('close', resolve));
  clearInterval(sending);
  server.close();
});

test('a caller that keeps its side open after its last answer, and sends nothing, is cut off after a second', async () => {
  const server = createServer((_request, response) => response.writeHead(413, { connection: 'close' }).end());
  void new ConnectionCap(server, 10);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => undefined);
  const ended = new Promise((resolve) => server.once('connection', (served) => served.once('close', resolve)));
  socket.resume().write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 999999999\r\n\r\n');
  await once(socket, 'end');
  const began = performance.now();
  await ended;
  // One that goes on sending has ten.
  expect(performance.now() - began).toBeLessThan(6_000);
  socket.destroy();
  server.close();
});

/** A server whose answers wait until the test lets them go, and its cap. */
async function held(most: number) {
  const waiting: (() => void)[] = [];
  const server = createServer((_request, response) => waiting.push(() => response.end('served')));
  const cap = new ConnectionCap(server, most);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const open = () => connect(port, '127.0.0.1').on('error', () => undefined);
  const ask = () => {
    const socket = open();
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    return socket;
  };
  return { server, cap, waiting, open, ask };
}

test('at the cap, with a request under way on each, the new connection is closed and those are served', async () => {
  const { server, cap, waiting, open, ask } = await held(2);
  const sockets = [ask(), ask()];
  await expect.poll(() => waiting.length).toBe(2);
  expect([...cap.underWay.values()]).toEqual([1, 1]);
  await once(open().resume(), 'close');
  // Nor does a handshake begin on it.
  const another = new Socket();
  expect([cap.admit(another), another.destroyed]).toEqual([false, true]);
  for (const answer of waiting) answer();
  for (const socket of sockets) expect(String(await once(socket, 'data'))).toMatch(/^HTTP\/1\.1 200 /);
  await expect.poll(() => cap.underWay.size).toBe(0);
  for (const socket of sockets) socket.destroy();
  server.close();
});

test('several requests on one connection are one that is under way, until the last is answered', async () => {
  const { server, cap, waiting, ask } = await held(2);
  const socket = ask().resume();
  await expect.poll(() => waiting.length).toBe(1);
  socket.write('GET /2 HTTP/1.1\r\nhost: a\r\n\r\n');
  await expect.poll(() => waiting.length).toBe(2);
  expect([...cap.underWay.values()]).toEqual([2]);
  waiting[0]?.();
  await expect.poll(() => [...cap.underWay.values()]).toEqual([1]);
  waiting[1]?.();
  await expect.poll(() => cap.underWay.size).toBe(0);
  // A caller that leaves has nothing under way either.
  socket.write('GET /3 HTTP/1.1\r\nhost: a\r\n\r\n');
  await expect.poll(() => cap.underWay.size).toBe(1);
  socket.destroy();
  await expect.poll(() => cap.underWay.size).toBe(0);
  server.close();
});

test('when it closes, silent connections are closed at once, half a head a second later, and calls are answered first', async () => {
  const { server, cap, waiting, open, ask } = await held(10);
  const silent = open().resume();
  const half = open().resume();
  half.write('GET / HTTP/1.1\r\n');
  const busy = ask();
  // Nor does Node itself end the one that was answered.
  server.keepAliveTimeout = 0;
  await expect.poll(() => waiting.length).toBe(1);
  const began = Date.now();
  const closed: string[] = [];
  const whole = [silent, half].map((socket, n) =>
    once(socket, 'close').then(() => closed.push(n === 0 ? 'silent' : 'half')),
  );
  cap.close();
  server.close();
  await Promise.all(whole);
  expect(closed).toEqual(['silent', 'half']);
  expect(Date.now() - began).toBeGreaterThan(900);
  expect(busy.destroyed).toBe(false);
  const answered = once(busy, 'data');
  waiting[0]?.();
  expect(String(await answered)).toMatch(/^HTTP\/1\.1 200 /);
  await once(busy.resume(), 'close');
});
