import { once } from 'node:events';
import { createServer, IncomingMessage, type RequestListener } from 'node:http';
import { type AddressInfo, Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import { Allowance, sparing } from '../../src/cli/mcp/bounds.ts';
import { firstAnswer, NOTHING_READ, readEvents } from '../../src/cli/mcp/events.ts';
import { type Answer, idHeader, isStream, readText, Sender, sessionHeaders } from '../../src/cli/mcp/http.ts';

/** @returns the answers of a server that answers so, one after the other */
async function answersOf(answer: RequestListener) {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const sender = new Sender(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  return {
    next: (): Promise<Answer> =>
      sender.send({ method: 'GET', headers: {}, body: null, signal: AbortSignal.timeout(60_000) }),
    close(): void {
      sender.close();
      server.close();
    },
  };
}

test('an answer is read up to its own bound, whatever all of them may hold, and gives back what it held', async () => {
  const answers = await answersOf((_request, response) => response.end('x'.repeat(100)));
  const allowance = new Allowance(150);
  const read = async (most: number) => readText((await answers.next()).body, most, allowance);
  try {
    expect(await read(99)).toEqual({ kind: 'too_long' });
    for (const _ of [1, 2]) expect(await read(100)).toEqual({ kind: 'text', text: 'x'.repeat(100) });
    expect(allowance.take(51)).toBe(true);
    expect(await read(100)).toEqual({ kind: 'too_long' });
  } finally {
    answers.close();
  }
});

test('a stream gives back what it held: at its end, where it breaks within an event, and where that is too long', async () => {
  const texts = ['data: {}\n\n', 'data: {"half', `data: ${'x'.repeat(90)}`];
  const answers = await answersOf((_request, response) => {
    const text = texts.shift() ?? '';
    response.write(text, () => (text.endsWith('\n\n') ? response.end() : setTimeout(() => response.destroy(), 20)));
  });
  const allowance = new Allowance(150);
  const read: unknown[] = [];
  try {
    for (const isTooLong of [false, false, true]) {
      const { body } = await answers.next();
      const end = await readEvents(body, { most: 50, allowance }, NOTHING_READ, async (data) => void read.push(data));
      expect([end.isTooLong, allowance.take(150)]).toEqual([isTooLong, true]);
      allowance.giveBack(150);
    }
    expect(read).toEqual(['{}']);
  } finally {
    answers.close();
  }
});

test('of a stream its messages are taken, one after the other; its last id, and how long to wait, are kept for the next', async () => {
  const texts = [
    'id: 1\ndata:\n\nevent: ping\ndata: no\n\ndata: {"n":1}\n\nevent: message\nid: 2\ndata: {"n":2}\n\nretry: 90000\n\n',
    'data: {"n":3}\n\n',
    'retry: 250\n\n: still here\n\n',
  ];
  const answers = await answersOf((_request, response) => response.end(texts.shift()));
  const bounds = { most: 1_000, allowance: new Allowance(1_000) };
  const taken: string[] = [];
  let isBusy = false;
  const take = async (data: string): Promise<void> => {
    expect(isBusy).toBe(false);
    isBusy = true;
    await new Promise((resolve) => setImmediate(resolve));
    isBusy = false;
    taken.push(data);
  };
  try {
    const first = await readEvents((await answers.next()).body, bounds, NOTHING_READ, take);
    expect(first).toEqual({ lastId: '2', retryMs: 60_000, isTooLong: false });
    const second = await readEvents((await answers.next()).body, bounds, first, take);
    expect(second).toEqual(first);
    expect(await readEvents((await answers.next()).body, bounds, second, take)).toEqual({ ...first, retryMs: 250 });
    expect(taken).toEqual(['{"n":1}', '{"n":2}', '{"n":3}']);
  } finally {
    answers.close();
  }
});

test('a character that comes in two pieces is whole, and what was held is given back with each event and each comment', async () => {
  const events = Array.from({ length: 20 }, (_, n) => `data: ${n}\n\n`).join('');
  const comments = `: ${'x'.repeat(17)}\n`.repeat(20);
  const body = new IncomingMessage(new Socket());
  const taken: string[] = [];
  const end = readEvents(body, { most: 1_000, allowance: new Allowance(60) }, NOTHING_READ, async (data) => {
    taken.push(data);
  });
  const text = Buffer.from(`data: €\n\n${events}${comments}`);
  for (const [from, to] of [[0, 7], ...Array.from({ length: 40 }, (_, n) => [7 + n * 20, 27 + n * 20])]) {
    body.push(text.subarray(from, to));
    // Each piece is read by itself.
    await new Promise((resolve) => setImmediate(resolve));
  }
  body.push(null);
  expect([(await end).isTooLong, taken]).toEqual([false, ['€', ...Array.from({ length: 20 }, (_, n) => `${n}`)]]);
});

test('the answer of a stream is its first message that is none of the server itself, and ends it', async () => {
  const streams = [
    'data: {"method":"ping"}\n\ndata: [1]\n\ndata: {"id":1}\n\ndata: {"id":2}\n\n',
    'data: {"method":"ping"}\n\n',
  ];
  const ended: boolean[] = [];
  const answers = await answersOf((_request, response) => {
    const text = streams.shift() ?? '';
    response.on('close', () => ended.push(response.writableFinished));
    // The first of them stays open.
    if (streams.length === 1) response.write(text);
    else response.end(text);
  });
  const bounds = { most: 1_000, allowance: new Allowance(1_000) };
  try {
    expect(await firstAnswer((await answers.next()).body, bounds)).toEqual({ kind: 'text', text: '{"id":1}' });
    await expect.poll(() => ended).toEqual([false]);
    expect(await firstAnswer((await answers.next()).body, bounds)).toEqual({ kind: 'broken' });
  } finally {
    answers.close();
  }
  // Sooner than the request itself would end.
}, 20_000);

test('a stream is one by its status and type; headers have a session as far as there is one, and ids as bytes', async () => {
  const types: [number, string][] = [
    [200, 'Text/Event-Stream; charset=utf-8'],
    [200, 'application/json'],
    [202, 'text/event-stream'],
  ];
  const answers = await answersOf((_request, response) => {
    const [status, type] = types.shift() ?? [200, ''];
    response.writeHead(status, { 'content-type': type }).end();
  });
  try {
    const found: boolean[] = [];
    for (const _ of [1, 2, 3]) {
      const answer = await answers.next();
      found.push(isStream(answer));
      await readText(answer.body, 10, new Allowance(10));
    }
    expect(found).toEqual([true, false, false]);
  } finally {
    answers.close();
  }
  expect([null, { id: 's', version: null }, { id: null, version: 'v' }].map(sessionHeaders)).toEqual([
    {},
    { 'mcp-session-id': 's' },
    { 'mcp-protocol-version': 'v' },
  ]);
  expect(idHeader('é')).toEqual({ 'last-event-id': 'Ã©' });
});

test('a log takes twenty lines at once and one more each second, and says how many it left out', () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  try {
    const lines: string[] = [];
    const log = sparing((line) => lines.push(line));
    for (let line = 1; line <= 23; line += 1) log(`${line}`);
    expect(lines).toEqual(Array.from({ length: 20 }, (_, at) => `${at + 1}`));
    vi.advanceTimersByTime(1_999);
    for (const line of ['24', '25']) log(line);
    vi.advanceTimersByTime(60_000);
    for (let line = 26; line <= 50; line += 1) log(`${line}`);
    expect(lines.slice(20, 23)).toEqual(['24 (and 3 lines more before)', '26 (and 1 lines more before)', '27']);
    expect(lines).toHaveLength(41);
  } finally {
    vi.useRealTimers();
  }
});
