import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { capConnections } from '../../src/api/connection-cap.ts';

test('at the cap a tunnel is not idle: the connection too many is closed, and the tunnel goes on', async () => {
  const server = createServer();
  capConnections(server, 1);
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
