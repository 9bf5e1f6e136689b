import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { bodyPieces, type ReadBody, readBody, TinyPieces } from '../../src/bytes/gathered.ts';

const LIMIT = 1_000;

/** What a server makes of a request whose sender writes this after its first line. */
async function serve<Made>(
  text: string,
  make: (request: IncomingMessage, sender: Socket) => Made | Promise<Made>,
): Promise<Made> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  socket.write(`POST / HTTP/1.1\r\nhost: a\r\n${text}`);
  const [request]: IncomingMessage[] = await once(server, 'request');
  if (request === undefined) throw new Error('no request came');
  const made = await make(request, socket);
  socket.destroy();
  server.close();
  return made;
}

function chunked(lengths: readonly number[]): string {
  const chunks = lengths.map((length) => `${length.toString(16)}\r\n${'x'.repeat(length)}\r\n`);
  return `transfer-encoding: chunked\r\n\r\n${chunks.join('')}0\r\n\r\n`;
}

/** What a server reads of a body that comes in chunks of these lengths. */
function readOf(lengths: readonly number[], limit = LIMIT): Promise<ReadBody> {
  return serve(chunked(lengths), (request) => readBody(request, limit));
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

test('a body that says that it is too large is not waited for; one that ends with its sender is told of', async () => {
  const said = (bytes: number): string => `content-length: ${bytes}\r\n\r\n`;
  expect(await serve(said(LIMIT + 1), (request) => readBody(request, LIMIT))).toEqual({ kind: 'too_large' });
  const gone = await serve(`${said(LIMIT)}some of it`, (request, sender) => {
    request.once('data', () => sender.destroy());
    return readBody(request, LIMIT);
  });
  expect(gone).toEqual({ kind: 'gone' });
});

const many = (pieces: number, bytes: number): readonly number[] => Array.from({ length: pieces }, () => bytes);

test('512 pieces have 16 bytes each, on average: a body with fewer is refused, and what follows is not kept', async () => {
  const kindOf = async (lengths: readonly number[]): Promise<string> => (await readOf(lengths, 100_000)).kind;
  expect(await kindOf(many(511, 1))).toBe('body');
  expect(await kindOf(many(512, 16))).toBe('body');
  expect(await kindOf([...many(511, 16), 15])).toBe('tiny_pieces');
  expect(await kindOf([4_096, ...many(1_000, 1)])).toBe('tiny_pieces');
});

test('at most 512 pieces of a body are taken in one turn, however many have come', async () => {
  let inTurn = 0;
  let most = 0;
  const read = await serve(chunked(many(3_000, 20)), (request) => {
    request.on('data', () => {
      if (inTurn === 0) setImmediate(() => (inTurn = 0));
      inTurn += 1;
      most = Math.max(most, inTurn);
    });
    return readBody(request, 100_000);
  });
  expect(read.kind === 'body' && read.bytes.byteLength).toBe(60_000);
  expect(most).toBeLessThanOrEqual(513);
});

test('a body that nobody reads on waits at its sender, and all of it comes when somebody does', async () => {
  const all = 2_000_000;
  const sizes = await serve(`content-length: ${all}\r\n\r\n${'x'.repeat(all)}`, async (request) => {
    const pieces = bodyPieces(request);
    const found = [(await pieces.next()).value?.byteLength ?? 0];
    for (let rounds = 0; rounds < 3; rounds += 1) {
      await expect.poll(() => request.isPaused()).toBe(true);
      found.push((await pieces.next()).value?.byteLength ?? 0);
    }
    for await (const piece of pieces) found.push(piece.byteLength);
    return found;
  });
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(all);
  expect(Math.max(...sizes)).toBeLessThan(3 * 65_536);
});

test('who leaves a body early leaves the rest unread; tiny pieces end it', async () => {
  const left = await serve(chunked(many(100, 1_000)), async (request) => {
    for await (const piece of bodyPieces(request)) if (piece.byteLength > 0) break;
    return [request.isPaused(), request.listenerCount('data'), request.destroyed];
  });
  expect(left).toEqual([true, 0, false]);
  const pieces = serve(chunked(many(600, 1)), async (request) => {
    for await (const _ of bodyPieces(request));
  });
  await expect(pieces).rejects.toThrow(TinyPieces);
});
