import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, test, vi } from 'vitest';
import { createUpstreams } from '../../src/upstreams/upstreams.ts';
import { makeDispatch } from './tool.ts';

// Whatever was resolved, the connection ends at this machine: as behind a network that sends packets elsewhere.
vi.mock('node:net', async (original) => {
  const net = await original<typeof import('node:net')>();
  const connect = ({ port }: { readonly port: number }) => net.connect({ host: '127.0.0.1', port });
  return { ...net, connect };
});

const TLS = { ca: null, client: null, serverName: 'upstream.example', minVersion: 'TLSv1.2' } as const;

test.each([
  ['http', null],
  ['https', null],
  ['https', TLS],
])(
  'a connection that ends at a refused address carries no byte, whatever its name resolved to (%s)',
  async (protocol, tls) => {
    const server = createServer((socket) => socket.on('data', () => socket.end('HTTP/1.1 200 OK\r\n\r\n')));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = address !== null && typeof address === 'object' ? address.port : 0;
    const received = new Promise<number>((resolve) => {
      server.once('connection', (socket) => socket.once('close', () => resolve(socket.bytesRead)));
    });
    const upstreams = createUpstreams(
      [
        {
          id: 'payments',
          url: `${protocol}://upstream.example:${port}`,
          tls,
          timeoutMs: 10_000,
          connections: 1,
          network: 'public',
          credentials: null,
        },
      ],
      { responseBytes: 1000, responseKeptBytes: 1000 },
    );
    expect(await upstreams.send(makeDispatch())).toMatchObject({
      kind: 'failed',
      evidence: { code: 'connect_failed' },
    });
    expect(await received).toBe(0);
    await upstreams.close();
    server.close();
  },
);
