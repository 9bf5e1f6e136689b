import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { type ReadBody, readBody } from '../../src/bytes/request-body.ts';

const LIMIT = 1_000;

/** What a server reads of a body that comes in chunks of these lengths. */
async function readOf(lengths: readonly number[]): Promise<ReadBody> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const read = new Promise<ReadBody>((resolve) =>
    server.once('request', (request) => void readBody(request, LIMIT).then(resolve)),
  );
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  const chunks = lengths.map((length) => `${length.toString(16)}\r\n${'x'.repeat(length)}\r\n`);
  socket.write(`POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n${chunks.join('')}0\r\n\r\n`);
  const body = await read;
  socket.destroy();
  server.close();
  return body;
}

test.each([[[LIMIT]], [[600, 400]], [[]]])('a body in chunks of %j bytes is read', async (lengths) => {
  const body = await readOf(lengths);
  const sum = lengths.reduce((total, length) => total + length, 0);
  expect(body.kind === 'body' && body.bytes.byteLength).toBe(sum);
});

test.each([[[LIMIT + 1]], [[600, 401]], [[LIMIT, 1]]])(
  'a body in chunks of %j bytes is too large, also where the last of them makes it so',
  async (lengths) => {
    expect(await readOf(lengths)).toEqual({ kind: 'too_large' });
  },
);
