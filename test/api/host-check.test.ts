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
