import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { refund, startWorld, type World } from '../system/world.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 50 } as const;

/** How many files the gateway may open: fewer than there are connections in these tests. */
const OPEN_FILES = 256;

let world: World;
const opened: Socket[] = [];
beforeAll(async () => {
  world = await startWorld({ openFiles: OPEN_FILES });
});
afterAll(async () => {
  for (const socket of opened) socket.destroy();
  await world.close();
});

/** A connection that the test never closes, and that does not mind being closed. */
async function open(): Promise<Socket> {
  const { hostname, port } = new URL(world.gateway.url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  opened.push(socket);
  socket.on('error', () => {});
  socket.resume();
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  return socket;
}

/** The status of `/livez` on a connection of its own; `null` where the gateway closes it. */
async function livez(): Promise<string | null> {
  const socket = await open();
  socket.write(`GET /livez HTTP/1.1\r\nHost: ${new URL(world.gateway.url).host}\r\nConnection: close\r\n\r\n`);
  // A reset is a refusal as well.
  const first: unknown[] = await Promise.race(['data', 'end'].map((event) => once(socket, event))).catch(() => []);
  socket.destroy();
  return /^HTTP\/1\.1 (\d+)/.exec(String(first[0]))?.[1] ?? null;
}

/** Nothing was wrong with the request but its time: it may be sent again. */
const LATE = /^HTTP\/1\.1 408 [^]*x-should-retry: true\r\nretry-after: 1\r\n[^]*"next":"retry"/;

const descriptors = (): number => readdirSync(`/proc/${world.gateway.pid}/fd`).length;

async function answers(): Promise<void> {
  const ready = await fetch(`${world.gateway.url}/readyz`, { headers: { connection: 'close' } });
  expect(ready.status).toBe(200);
  await ready.text();
}

it('400 idle connections where the process may open 256 files: others are served all the while, and after', async () => {
  const before = descriptors();
  const idle = await Promise.all(Array.from({ length: 400 }, open));
  // A connection that this process had kept may be one of those that were closed: whoever comes first asks again.
  await vi.waitFor(async () => {
    await answers();
    await world.run(refund({ amount: 1 }));
  }, PATIENT);
  const began = performance.now();
  // Longer than any timer of the gateway's that might want a file of its own.
  while (performance.now() - began < 2_500) {
    await answers();
    const { status, body } = await world.run(refund({ amount: 1 }));
    expect([status, body.decision], JSON.stringify(body)).toEqual([200, 'committed']);
  }
  expect(descriptors()).toBeLessThan(OPEN_FILES - 50);
  for (const socket of idle) socket.destroy();
  await vi.waitFor(() => expect(descriptors()).toBeLessThanOrEqual(before + 10), PATIENT);
  await answers();
  expect(world.gateway.log()).not.toContain('EMFILE');
});

it('where every connection has a request under way, the next one is refused, and taken once one of them is over', async () => {
  const { hostname, port } = new URL(world.gateway.url);
  const head = `POST /v1/workspaces/demo/effects HTTP/1.1\r\nHost: ${hostname}:${port}\r\nX-API-Key: ${world.keys.bot}\r\nContent-Type: application/json\r\n`;
  // The bodies do not come: these requests stay.
  const busy: Socket[] = [];
  const hold = async (): Promise<void> => {
    const socket = await open();
    busy.push(socket);
    socket.write(`${head}Content-Length: 100\r\n\r\n`);
  };
  await Promise.all(Array.from({ length: 120 }, hold));
  // A connection that came before the last of these requests was read has taken a place: it goes to one more of them.
  await vi.waitFor(async () => {
    await hold();
    expect(await livez()).toBe(null);
  }, PATIENT);
  for (const socket of busy) socket.destroy();
  await vi.waitFor(async () => expect(await livez()).toBe('200'), PATIENT);
  await answers();
});

describe('a connection that was refused is closed, though its caller keeps it', () => {
  let beforeAny = 0;
  let silent: Promise<string>[] = [];
  beforeAll(async () => {
    beforeAny = descriptors();
    const sockets = await Promise.all(Array.from({ length: 30 }, open));
    const { host } = new URL(world.gateway.url);
    silent = sockets.map(async (socket, index) => {
      const [answer] = await once(socket, 'data');
      // One that did not hear it yet goes on with what it had to say.
      const call = JSON.stringify({ ...refund({ amount: 1 }), idempotency_key: `late-${index}` });
      socket.write(
        `POST /v1/workspaces/demo/effects HTTP/1.1\r\nHost: ${host}\r\nX-API-Key: ${world.keys.bot}\r\nContent-Type: application/json\r\nContent-Length: ${call.length}\r\n\r\n${call}`,
      );
      return String(answer);
    });
  });
  const upgrade = (path: string, key: string): string =>
    `GET ${path} HTTP/1.1\r\nHost: HOST\r\nX-API-Key: ${key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`;
  it.each([
    ['400', () => 'this is not HTTP\r\n\r\n'],
    ['431', () => `GET / HTTP/1.1\r\nHost: HOST\r\nX-Long: ${'a'.repeat(20_000)}\r\n\r\n`],
    ['501', () => 'CONNECT example.com:443 HTTP/1.1\r\nHost: HOST\r\n\r\n'],
    ['401', () => upgrade('/payments/v1/payments/pay_1', 'svc_agent_nothing')],
    ['403', () => upgrade('/payments/v1/payments/pay_1', world.keys.bot)],
  ])('%s', async (status, request) => {
    const before = descriptors();
    const { host } = new URL(world.gateway.url);
    const sockets = await Promise.all(Array.from({ length: 30 }, open));
    const got = sockets.map((socket) => once(socket, 'data'));
    for (const socket of sockets) socket.write(request().replaceAll('HOST', host));
    for (const [chunk] of await Promise.all(got)) expect(String(chunk)).toContain(`HTTP/1.1 ${status} `);
    await vi.waitFor(() => expect(descriptors()).toBeLessThanOrEqual(before + 2), PATIENT);
  });

  it('408, for one that says nothing; a call that it sends all the same does not happen', async () => {
    const { effects } = await world.upstream.counts();
    for (const answer of silent) expect(await answer).toMatch(LATE);
    await vi.waitFor(() => expect(descriptors()).toBeLessThanOrEqual(beforeAny + 2), PATIENT);
    expect((await world.upstream.counts()).effects).toBe(effects);
    const first = await world.run({ ...refund({ amount: 1 }), idempotency_key: 'late-0' });
    expect(first.body.decision, JSON.stringify(first.body)).toBe('committed');
  });
});

it('connections that say nothing, or not all of it, do not keep a gateway from stopping', async () => {
  const silent = await open();
  const partial = await open();
  partial.write('GET /livez HTTP/1.1\r\nHost: ');
  await answers();
  const ended = Promise.all(
    [silent, partial].map((socket) => Promise.race([once(socket, 'end'), once(socket, 'close')])),
  );
  const began = performance.now();
  await world.gateway.stop();
  expect(performance.now() - began).toBeLessThan(9_000);
  await ended;
});
