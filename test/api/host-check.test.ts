import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { expect, it } from 'vitest';
import { createDoorCheck } from '../../src/api/host-check.ts';

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
