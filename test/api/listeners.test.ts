import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, get } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { expect, test } from 'vitest';
import { ConnectionCap, createEntrances, createListeners, listenerOf } from '../../src/api/listeners.ts';
import { makeCa } from '../upstream/certificates.ts';

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
  const second = { ...settings, at: 'second' };
  const secondUrl = new URL(await listeners.open(second));
  expect([secondUrl.protocol, secondUrl.hostname]).toEqual(['https:', '127.0.0.1']);
  const secondPort = Number(secondUrl.port);
  const nameOf = async (port: number): Promise<string> => {
    const socket = connectTls({ port, host: '127.0.0.1', ca: read('ca.pem'), servername: 'localhost' });
    await once(socket, 'secureConnect');
    const { CN } = socket.getPeerCertificate().subject;
    socket.destroy();
    return String(CN);
  };
  const names = async () => [await nameOf(main), await nameOf(port), await nameOf(secondPort)];
  expect(await names()).toEqual(['one', 'one', 'one']);
  listeners.update(pair('one'), [{ ...settings, tls: pair('two') }, second]);
  expect(await names()).toEqual(['one', 'two', 'one']);
  listeners.update(pair('two'), [settings, { ...second, tls: pair('two') }]);
  expect(await names()).toEqual(['two', 'one', 'two']);
  // One without a certificate stays in the clear beside them.
  const plain = await listeners.open({ ...settings, at: 'plain', tls: null });
  expect(await (await fetch(plain)).text()).toBe('from plain');
  connections.close();
  await listeners.close();
  server.close();
});

test('a listener at an address of IPv6 says its URL as one has it, in brackets', async () => {
  const server = createServer((request, response) => response.end(`from ${listenerOf(request.socket)}`));
  const { listeners, connections } = createListeners(server, null, (each) => new ConnectionCap(each, 10));
  const url = await listeners.open({ at: 'own', host: '::1', port: 0, tls: null });
  expect(url).toMatch(/^http:\/\/\[::1\]:\d+$/);
  expect(await (await fetch(url, { headers: { connection: 'close' } })).text()).toBe('from own');
  connections.close();
  await listeners.close();
});

test('TLS 1.2 and 1.3 are spoken, also with a renewed certificate, which may have the key of the one before', async () => {
  const ca = makeCa('root of the test');
  const first = ca.issue('localhost');
  const renewed = ca.issue('localhost', { key: first.key });
  expect([renewed.key === first.key, renewed.cert === first.cert]).toEqual([true, false]);
  const server = createServer((_request, response) => response.end());
  const { listeners, connections } = createListeners(server, null, (each) => new ConnectionCap(each, 10));
  const settings = { at: 'own', host: '127.0.0.1', port: 0, tls: first };
  const port = Number(new URL(await listeners.open(settings)).port);
  const spoken = async (maxVersion: 'TLSv1.2' | 'TLSv1.3') => {
    const socket = connectTls({ port, host: '127.0.0.1', ca: ca.cert, servername: 'localhost', maxVersion });
    await once(socket, 'secureConnect');
    const seen = [socket.getProtocol(), socket.getPeerX509Certificate()?.toString().trim()];
    socket.destroy();
    return seen;
  };
  for (const { cert } of [first, renewed]) {
    listeners.update(null, [{ ...settings, tls: { cert, key: first.key } }]);
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const)
      expect(await spoken(version)).toEqual([version, cert.trim()]);
  }
  connections.close();
  await listeners.close();
});

test('a request is for the routes of its host and its listener; all else is the gateway’s at its own port alone', async () => {
  const all = [
    { listen: null, host: null },
    { listen: null, host: 'a.example' },
    { listen: 'one', host: null },
    { listen: 'one', host: 'b.example' },
    { listen: 'two', host: 'c.example' },
  ];
  let routes = all;
  const entranceOf = createEntrances(() => routes);
  const server = createServer((request, response) => response.end(JSON.stringify(entranceOf(request))));
  const { listeners, connections } = createListeners(server, null, (each) => new ConnectionCap(each, 20));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const main = (server.address() as AddressInfo).port;
  const open = async (at: string): Promise<number> =>
    Number(new URL(await listeners.open({ at, host: '127.0.0.1', port: 0, tls: null })).port);
  const [one, two] = [await open('one'), await open('two')];
  const ask = (port: number, host: string) =>
    new Promise<unknown>((resolve, reject) => {
      get({ port, host: '127.0.0.1', headers: { host }, agent: false }, (response) => {
        let text = '';
        response.on('data', (data: Buffer) => (text += String(data)));
        response.on('end', () => resolve(JSON.parse(text)));
      }).on('error', reject);
    });
  const at = (listen: string | null, host: string | null) => ({ kind: 'routes', listen, host });
  const own = { kind: 'own' };
  const none = { kind: 'none' };
  for (const [port, host, entrance] of [
    [main, 'a.example', at(null, 'a.example')],
    [main, 'A.Example.:8080', at(null, 'a.example')],
    [main, 'b.example', own],
    [main, 'x.a.example', own],
    [main, '127.0.0.1', own],
    [one, '127.0.0.1', at('one', null)],
    [one, 'a.example', at('one', null)],
    [one, 'B.example:1', at('one', 'b.example')],
    [two, 'c.example', at('two', 'c.example')],
    [two, 'b.example', none],
    [two, '127.0.0.1', none],
  ] as const)
    expect([host, await ask(port, host)]).toEqual([host, entrance]);
  // Which routes are there changes with a reload.
  routes = [{ listen: null, host: 'b.example' }];
  expect(await ask(main, 'b.example')).toEqual(at(null, 'b.example'));
  for (const [port, host, entrance] of [
    [main, 'a.example', own],
    [one, '127.0.0.1', none],
    [two, 'c.example', none],
  ] as const)
    expect([host, await ask(port, host)]).toEqual([host, entrance]);
  connections.close();
  await listeners.close();
  server.close();
});
