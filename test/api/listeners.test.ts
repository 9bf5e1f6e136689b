import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { expect, test } from 'vitest';
import { ConnectionCap } from '../../src/api/connection-cap.ts';
import { createListeners, listenerOf } from '../../src/api/listeners.ts';

const TLS = join(process.cwd(), 'test', 'system', 'tls');
const read = (name: string): string => readFileSync(join(TLS, name), 'utf8');
const PAIR = { cert: read('one.pem'), key: read('one.key.pem') };

test('one cap counts all listeners: silent connections and unfinished handshakes go, what is under way stays', async () => {
  const server = createServer((request, response) => {
    // Answered when the test says so.
    waiting.push(() => response.end(`from ${listenerOf(request.socket)}`));
  });
  const waiting: (() => void)[] = [];
  const { listeners } = createListeners(server, null, (each) => new ConnectionCap(each, 2));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const portOf = async (at: string, tls: typeof PAIR | null): Promise<number> =>
    Number(new URL(await listeners.open({ at, host: '127.0.0.1', port: 0, tls })).port);
  const tlsPort = await portOf('tls', PAIR);
  const plainPort = await portOf('plain', null);
  const quiet = (port: number): Socket =>
    connect(port, '127.0.0.1')
      .on('error', () => undefined)
      .resume();

  const call = connectTls({ port: tlsPort, host: '127.0.0.1', ca: read('ca.pem'), servername: 'localhost' });
  call.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
  await expect.poll(() => waiting.length).toBe(1);
  // Each takes the one place that is left from the one before it.
  let before: Socket | null = null;
  for (const port of [tlsPort, plainPort, tlsPort, plainPort]) {
    const gone: Promise<unknown> = before === null ? Promise.resolve() : once(before, 'close');
    before = quiet(port);
    await gone;
  }
  waiting[0]?.();
  expect(String(await once(call, 'data'))).toMatch(/from tls$/);
  // Now idle, and the one that has been so for longest is the silent one.
  const last = quiet(tlsPort);
  if (before !== null) await once(before, 'close');
  expect(call.destroyed).toBe(false);

  last.resetAndDestroy();
  call.destroy();
  await listeners.close();
  server.close();
});

test('each listener takes on its own certificate, not that of another', async () => {
  const server = createServer((request, response) => response.end(`from ${listenerOf(request.socket)}`));
  const pair = (name: string) => ({ cert: read(`${name}.pem`), key: read(`${name}.key.pem`) });
  const { listeners, connections } = createListeners(server, pair('one'), (each) => new ConnectionCap(each, 10));
  const settings = { at: 'own', host: '127.0.0.1', port: 0, tls: pair('one') };
  const port = Number(new URL(await listeners.open(settings)).port);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const main = (server.address() as AddressInfo).port;
  const nameOf = async (port: number): Promise<string> => {
    const socket = connectTls({ port, host: '127.0.0.1', ca: read('ca.pem'), servername: 'localhost' });
    await once(socket, 'secureConnect');
    const { CN } = socket.getPeerCertificate().subject;
    socket.destroy();
    return String(CN);
  };
  const names = async () => [await nameOf(main), await nameOf(port)];
  expect(await names()).toEqual(['one', 'one']);
  listeners.update(pair('one'), [{ ...settings, tls: pair('two') }]);
  expect(await names()).toEqual(['one', 'two']);
  listeners.update(pair('two'), [{ ...settings, tls: pair('one') }]);
  expect(await names()).toEqual(['two', 'one']);
  // One without a certificate stays in the clear beside them.
  const plain = await listeners.open({ ...settings, at: 'plain', tls: null });
  expect(await (await fetch(plain)).text()).toBe('from plain');
  connections.close();
  await listeners.close();
  server.close();
});
