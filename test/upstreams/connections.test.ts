import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import { guardedConnector } from '../../src/upstreams/http/connect.ts';
import { type Connection, createConnections } from '../../src/upstreams/http/connections.ts';

/** Nothing listens there, and nothing is sent: connections open with their first request. */
const SETTINGS = { url: 'http://127.0.0.1:9', connections: 2, network: 'any' } as const;
const always = (): boolean => true;

function taken(connection: Connection | null): Connection {
  if (connection === null) throw new Error('none is free');
  return connection;
}

test('there are at most so many, and the one that was used last is used next', async () => {
  const connections = createConnections(SETTINGS);
  const first = taken(connections.take());
  const second = taken(connections.take());
  expect(first).not.toBe(second);
  expect(connections.take()).toBeNull();
  connections.release(first);
  connections.release(second);
  expect(connections.take()).toBe(second);
  expect(connections.take()).toBe(first);
  expect(connections.take()).toBeNull();
  await connections.close();
});

test('who waits first gets the next one, and who does not want it any more is passed over', async () => {
  vi.useFakeTimers();
  try {
    const connections = createConnections({ ...SETTINGS, connections: 1 });
    const only = taken(connections.take());
    const got: string[] = [];
    let isWanted = true;
    const wait = (name: string, wanted: () => boolean) =>
      connections.wait(wanted).then((connection) => got.push(`${name} ${connection === null ? 'nothing' : 'it'}`));
    const waiting = [wait('late', () => isWanted), wait('first', always), wait('second', always)];
    isWanted = false;
    connections.release(only);
    await vi.advanceTimersByTimeAsync(0);
    expect(got.toSorted()).toEqual(['first it', 'late nothing']);
    connections.release(only);
    await vi.advanceTimersByTimeAsync(0);
    expect(got.at(-1)).toBe('second it');
    await Promise.all(waiting);
    // Whose time is over is told so while all are in use.
    isWanted = true;
    const given = connections.wait(() => isWanted);
    isWanted = false;
    await vi.advanceTimersByTimeAsync(50);
    expect(await given).toBeNull();
    expect(vi.getTimerCount()).toBe(0);
    // So is who comes after nobody was waiting.
    isWanted = true;
    const later = connections.wait(() => isWanted);
    isWanted = false;
    await vi.advanceTimersByTimeAsync(50);
    expect(await Promise.race([later, Promise.resolve('waits')])).toBeNull();
    connections.release(only);
    expect(await connections.wait(always)).toBe(only);
    connections.release(only);
    await connections.close();
  } finally {
    vi.useRealTimers();
  }
});

test('with other certificates nothing goes over a connection that was opened before', async () => {
  const connections = createConnections(SETTINGS);
  const idle = taken(connections.take());
  const running = taken(connections.take());
  const waiting = connections.wait(always);
  connections.release(idle);
  // It was given to who waited.
  expect(await waiting).toBe(idle);
  connections.release(idle);
  connections.secure(null);
  expect(idle.client.closed).toBe(true);
  expect(running.client.closed).toBe(false);
  const fresh = taken(connections.take());
  expect(fresh).not.toBe(idle);
  // What runs still has its place, and gives it to a new one.
  expect(connections.take()).toBeNull();
  const next = connections.wait(always);
  connections.release(running);
  expect(running.client.closed).toBe(true);
  const given = taken(await next);
  expect([running, fresh]).not.toContain(given);
  connections.release(given);
  connections.release(fresh);
  expect([connections.take(), connections.take(), connections.take()]).toEqual([fresh, given, null]);
  await connections.close();
});

test('when they are closed, nobody who waits gets one, and none is given out', async () => {
  const connections = createConnections({ ...SETTINGS, connections: 1 });
  const only = taken(connections.take());
  const waiting = connections.wait(always);
  const closed = connections.close();
  expect(await waiting).toBeNull();
  connections.release(only);
  await closed;
  expect(only.client.closed).toBe(true);
  expect(connections.take()).toBeNull();
  expect(await connections.wait(always)).toBeNull();
});

test('an address that does not answer is given up after the time to connect', { timeout: 20_000 }, async () => {
  // The kernel answers for a process that stands still until its queue is full, and then no more.
  const listens = `const { createServer } = require('node:net');
    const server = createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => console.log(server.address().port));`;
  const frozen = spawn(process.execPath, ['-e', listens]);
  const queued: Socket[] = [];
  try {
    const [line] = await once(frozen.stdout, 'data');
    const port = String(line).trim();
    frozen.kill('SIGSTOP');
    for (let n = 0; n < 8; n += 1) queued.push(connect(Number(port), '127.0.0.1').on('error', () => {}));
    const opened = vi.fn<(socket: Socket) => void>();
    const connector = guardedConnector({ network: 'any', timeoutMs: 150, tls: null }, opened);
    const failed = await new Promise((resolve) => {
      connector({ hostname: '127.0.0.1', protocol: 'http:', port }, (...[error]) => resolve(error));
    });
    expect(failed).toMatchObject({ name: 'ConnectFailed', message: 'no connection within 150 ms' });
    expect(opened).not.toHaveBeenCalled();
  } finally {
    for (const socket of queued) socket.destroy();
    frozen.kill('SIGKILL');
  }
});

test('one that answers and never ends its handshake is given up after the same time', { timeout: 20_000 }, async () => {
  const silent = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const address = silent.address();
  const port = String(address !== null && typeof address === 'object' ? address.port : 0);
  const connector = guardedConnector({ network: 'any', timeoutMs: 1_100, tls: null }, () => undefined);
  const begun = performance.now();
  const failed = await new Promise((resolve) => {
    connector({ hostname: '127.0.0.1', protocol: 'https:', port }, (...[error]) => resolve(error));
  });
  const message = 'TLS with the upstream failed: it did not finish the handshake in time';
  expect(failed).toMatchObject({ name: 'ConnectFailed', message });
  // undici's own time is 10 s.
  expect(performance.now() - begun).toBeLessThan(8_000);
  silent.close();
});
