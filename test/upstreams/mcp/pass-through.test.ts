import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Change, passThrough } from '../../../src/upstreams/mcp/pass-through.ts';
import { reached } from './reached.ts';

let answer: (response: ServerResponse) => void;
let closed: Promise<unknown>;
let server: Server;
beforeAll(async () => {
  server = createServer((request, response) => {
    closed = once(response, 'close');
    request.resume().on('end', () => answer(response));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const REQUEST = { method: 'POST', path: '/mcp', headers: {}, body: Buffer.from('{}') } as const;
/** What the gateway makes of the answer to request 1. */
const CHANGE: Change = { id: 1, change: (message) => ({ ...message, result: { changed: true } }) };
const JSON_TEXT = { 'content-type': 'application/json' };
const STREAM = { 'content-type': 'text/event-stream' };

/** What a request that the server answers so is answered with. */
async function passed(how: (response: ServerResponse) => void, changed: Change | null = CHANGE) {
  answer = how;
  return passThrough(reached(server), REQUEST, new AbortController().signal, changed);
}

/** The same, as its client reads it. */
async function read(how: (response: ServerResponse) => void, changed: Change | null = CHANGE) {
  const answered = await passed(how, changed);
  if (answered.kind === 'failed') return answered.message;
  const { status, headers, body } = answered;
  return { status, length: headers['content-length'], text: (await buffer(body)).toString() };
}

const said = (text: string, headers: object = {}, status = 200) => {
  return (response: ServerResponse) =>
    void response.writeHead(status, { ...JSON_TEXT, 'content-length': Buffer.byteLength(text), ...headers }).end(text);
};
const ANSWER = '{"jsonrpc":"2.0","id":1,"result":{"as":"it came"}}';
const CHANGED = '{"jsonrpc":"2.0","id":1,"result":{"changed":true}}';

test('an answer that is changed has the length that it has then; one with another status passes as it came', async () => {
  const shorter: Change = { id: 1, change: ({ id }) => ({ id: id ?? null }) };
  expect(await read(said(ANSWER), shorter)).toEqual({ status: 200, length: '8', text: '{"id":1}' });
  expect(await read(said(ANSWER, {}, 400))).toEqual({ status: 400, length: String(ANSWER.length), text: ANSWER });
  expect(await read(said(ANSWER), null)).toEqual({ status: 200, length: String(ANSWER.length), text: ANSWER });
});

test('where an answer is to be changed nothing passes that is another, or may be read as another', async () => {
  expect(await read(said(ANSWER.replace('1', '2')))).toContain('its answer is not the answer to the request');
  expect(await read(said(ANSWER.replace('{', '{"id":7,')))).toContain('is not strict JSON');
  expect(await read(said('', { 'content-length': 0 }))).toMatch(/not strict JSON/);
});

test('what is packed does not pass: nobody here has read it', async () => {
  const packed = gzipSync(ANSWER);
  for (const encoding of ['gzip', 'GZIP', 'identity, gzip'])
    expect(
      await read(
        (response) => void response.writeHead(200, { ...JSON_TEXT, 'content-encoding': encoding }).end(packed),
        null,
      ),
    ).toContain('packed');
  expect(await read(said(ANSWER, { 'content-encoding': 'Identity' }), null)).toMatchObject({ text: ANSWER });
});

test('an answer that is too long is not read to its end, and its connection is closed', async () => {
  expect(await read((response) => void response.writeHead(200, JSON_TEXT).write('x'.repeat(20_000)))).toContain(
    '10000 bytes',
  );
  await closed;
}, 20_000);

test('events are changed one by one, without the length that a server gave for all; who leaves closes the connection', async () => {
  const events = `: on\n\ndata: ${ANSWER}\n\n`;
  const whole = { ...STREAM, 'content-length': Buffer.byteLength(events) };
  const changed = `: on\n\ndata: ${CHANGED}\n\n`;
  expect(await read((response) => void response.writeHead(200, whole).end(events))).toEqual({
    status: 200,
    length: undefined,
    text: changed,
  });
  for (const isRead of [true, false]) {
    const standing = await passed((response) => void response.writeHead(200, STREAM).write(events));
    if (standing.kind === 'failed') throw new Error(standing.message);
    if (isRead) {
      const [first] = (await once(standing.body, 'data')) as [Buffer];
      expect(changed.startsWith(first.toString())).toBe(true);
    }
    standing.body.destroy();
    await closed;
  }
}, 20_000);

test('headers about the connection itself end at the gateway, also those that it names', async () => {
  const hop = { connection: 'keep-alive, x-hop', 'x-hop': '1', 'x-own': '2', 'set-cookie': 'a=b' };
  const answered = await passed(said(ANSWER, hop), null);
  if (answered.kind === 'failed') throw new Error(answered.message);
  expect(answered.headers).toMatchObject({ 'x-own': '2' });
  for (const name of ['connection', 'x-hop', 'keep-alive']) expect(answered.headers).not.toHaveProperty(name);
  answered.body.destroy();
});
