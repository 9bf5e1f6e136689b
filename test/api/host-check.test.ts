import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { expect, it } from 'vitest';
import { createDoorCheck } from '../../src/api/listeners.ts';

it('a name that is taken out of the configuration is not let in any more, also where it was before', () => {
  let settings = { publicUrl: 'https://gateway.example', allowedHosts: ['old.example'] };
  const check = createDoorCheck(() => settings);
  const socket = new Socket();
  const ask = (host: string) => {
    const request = new IncomingMessage(socket);
    request.url = '/v1/workspaces';
    request.headers.host = host;
    return check(request)?.code ?? null;
  };
  for (const host of ['old.example', 'old.example', 'gateway.example']) expect(ask(host)).toBeNull();
  settings = { publicUrl: 'https://other.example', allowedHosts: [] };
  for (const host of ['old.example', 'gateway.example']) expect(ask(host)).toBe('host_not_allowed');
  expect(ask('other.example')).toBeNull();
  socket.destroy();
});

it('a name that is taken out alone is not let in any more either', () => {
  let settings = { publicUrl: 'https://gateway.example', allowedHosts: ['old.example'] };
  const check = createDoorCheck(() => settings);
  const ask = (host: string) => asked(check, { host });
  expect([ask('old.example'), ask('gateway.example')]).toEqual([null, null]);
  settings = { ...settings, allowedHosts: [] };
  expect([ask('old.example'), ask('gateway.example')]).toEqual(['host_not_allowed', null]);
  settings = { ...settings, publicUrl: 'https://other.example' };
  expect([ask('gateway.example'), ask('other.example')]).toEqual(['host_not_allowed', null]);
});

it('a name is the same in capitals, with a port, and with the dot that ends a full name; no other is', () => {
  const check = createDoorCheck(() => ({ publicUrl: 'https://gateway.example', allowedHosts: ['also.example'] }));
  const ask = (host: string) => asked(check, { host });
  for (const host of ['Gateway.EXAMPLE', 'gateway.example:8443', 'gateway.example.', 'also.example.:443'])
    expect([host, ask(host)]).toEqual([host, null]);
  for (const host of ['gateway.example..', '.gateway.example', 'gateway.example.evil', 'gateway'])
    expect([host, ask(host)]).toEqual([host, 'host_not_allowed']);
});

it('a name under which a listener has no route is let in nowhere, whatever the gateway is called', () => {
  const settings = { publicUrl: 'https://gateway.example', allowedHosts: [] };
  const socket = new Socket();
  const request = new IncomingMessage(socket);
  request.url = '/v1/workspaces';
  request.headers.host = 'gateway.example';
  expect(createDoorCheck(() => settings)(request)).toBeNull();
  const check = createDoorCheck(
    () => settings,
    () => ({ kind: 'none' }),
  );
  expect(check(request)).toMatchObject({ code: 'host_not_allowed', detail: expect.stringContaining('No route') });
  socket.destroy();
});

it('a target with a host of its own is refused where routes are, and elsewhere counts besides the header', () => {
  const settings = { publicUrl: 'https://gateway.example', allowedHosts: [] };
  const socket = new Socket();
  const ask = (check: ReturnType<typeof createDoorCheck>, url: string, host: string) => {
    const request = new IncomingMessage(socket);
    request.url = url;
    request.headers.host = host;
    return check(request)?.code ?? null;
  };
  const own = createDoorCheck(() => settings);
  expect(ask(own, 'https://gateway.example/v1/workspaces', 'gateway.example')).toBeNull();
  expect(ask(own, 'https://other.example/v1/workspaces', 'gateway.example')).toBe('host_not_allowed');
  for (const host of [null, 'api.example']) {
    const routes = createDoorCheck(
      () => settings,
      () => ({ kind: 'routes', listen: '127.0.0.1:9090', host }),
    );
    const name = host ?? 'gateway.example';
    expect(ask(routes, '/v1/charges', name)).toBeNull();
    expect(ask(routes, `https://${name}/v1/charges`, name)).toBe('invalid_request');
    expect(ask(routes, 'https://gateway.example/v1/charges', name)).toBe('invalid_request');
  }
  socket.destroy();
});

/** What the check says of a request that came in at an address. */
function asked(
  check: ReturnType<typeof createDoorCheck>,
  headers: IncomingMessage['headers'],
  { localAddress = '192.0.2.1', httpVersion = '1.1' } = {},
): string | null {
  const socket = new Socket();
  Object.defineProperty(socket, 'localAddress', { value: localAddress });
  const request = new IncomingMessage(socket);
  request.url = '/v1/workspaces';
  request.httpVersion = httpVersion;
  Object.assign(request.headers, headers);
  const code = check(request)?.code ?? null;
  socket.destroy();
  return code;
}

const PUBLIC = { publicUrl: 'https://gateway.example/base', allowedHosts: ['Also.Example'] };

it.each([
  ['the address that it came in on', { host: '192.0.2.1:8080' }, null],
  ['the published name, whatever its port and case', { host: 'GATEWAY.example:1' }, null],
  ['a name that is allowed, whatever its case', { host: 'also.example' }, null],
  ['another address of the machine', { host: '192.0.2.2' }, 'host_not_allowed'],
  ['this machine, where it did not come in on loopback', { host: 'localhost' }, 'host_not_allowed'],
  ['nothing', {}, 'invalid_request'],
  ['two names', { host: 'gateway.example, evil.example' }, 'invalid_request'],
  ['a page of its own', { host: 'gateway.example', origin: 'https://gateway.example' }, null],
  ['a page of another', { host: 'gateway.example', origin: 'https://evil.example' }, 'origin_not_allowed'],
  ['a page that says not which', { host: 'gateway.example', origin: 'null' }, 'origin_not_allowed'],
  ['a page by another scheme', { host: 'gateway.example', origin: 'ftp://gateway.example' }, 'origin_not_allowed'],
])('a request that names %s', (_, headers, code) => {
  expect(
    asked(
      createDoorCheck(() => PUBLIC),
      headers,
    ),
  ).toBe(code);
});

it('on loopback every name of this machine is one, and a name that was known there is not known elsewhere', () => {
  const check = createDoorCheck(() => PUBLIC);
  for (const localAddress of ['127.0.0.1', '::1', '::ffff:127.0.0.1'])
    for (const host of ['localhost', '127.0.0.1:80', '[::1]:8080'])
      expect([localAddress, host, asked(check, { host }, { localAddress })]).toEqual([localAddress, host, null]);
  expect(asked(check, { host: 'localhost' })).toBe('host_not_allowed');
  expect(asked(check, { host: 'evil.example' }, { localAddress: '127.0.0.1' })).toBe('host_not_allowed');
  // Published on loopback out of a container, it is asked under the address of that.
  const contained = createDoorCheck(() => ({ publicUrl: 'http://localhost:8080/', allowedHosts: [] }));
  for (const host of ['localhost:8080', '127.0.0.1:8080', '[::1]:8080'])
    expect([host, asked(contained, { host }, { localAddress: '172.17.0.2' })]).toEqual([host, null]);
});

it('HTTP/1.0 has no chunks: a server before this one may have read another request', () => {
  const check = createDoorCheck(() => PUBLIC);
  const headers = { host: 'gateway.example', 'transfer-encoding': 'chunked' };
  expect(asked(check, headers, { httpVersion: '1.0' })).toBe('invalid_request');
  expect(asked(check, headers)).toBeNull();
  expect(asked(check, { host: 'gateway.example' }, { httpVersion: '1.0' })).toBeNull();
});

it('a route with a name of its own takes pages of that name and of the gateway, and no others', () => {
  const check = createDoorCheck(
    () => PUBLIC,
    () => ({ kind: 'routes', listen: null, host: 'api.example' }),
  );
  const from = (origin: string) => asked(check, { host: 'api.example', origin });
  expect(asked(check, { host: 'api.example' })).toBeNull();
  for (const origin of ['https://api.example', 'http://API.example:81', 'https://gateway.example'])
    expect([origin, from(origin)]).toEqual([origin, null]);
  for (const origin of ['https://evil.example', 'null', 'ftp://api.example'])
    expect([origin, from(origin)]).toEqual([origin, 'origin_not_allowed']);
});
