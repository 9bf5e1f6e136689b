import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PIECES_A_TURN } from '../../src/bytes/pieces-a-turn.ts';
import type { AnswerHead } from '../../src/effects/model/answer.ts';
import type { AnswerListener, UpstreamResult } from '../../src/effects/upstream.ts';
import { createEventScan, endOfEvent, isEventStream } from '../../src/upstreams/http/events.ts';
import { createPassedOn } from '../../src/upstreams/http/http-upstream.ts';
import { createUpstreams, type Upstreams } from '../../src/upstreams/upstreams.ts';
import { makeDispatch, makeTool } from './tool.ts';

/*
 * Answers that are passed on while they come, from a server whose every byte the test writes.
 */

const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';
const FIRST = 'data: {"n":1}\n\n';
const LAST = 'data: [DONE]\n\n';

let server: Server;
let upstreams: Upstreams;
let sockets: Socket[];

beforeAll(async () => {
  server = createServer((socket) => {
    socket.on('error', () => undefined);
    sockets.push(socket);
    server.emit('arrived');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(() => server.close());
beforeEach(() => {
  sockets = [];
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  upstreams = createUpstreams(
    [
      {
        id: 'payments',
        url: `http://127.0.0.1:${port}`,
        timeoutMs: 10_000,
        connections: 4,
        network: 'any',
        credentials: null,
      },
    ],
    { responseBytes: 100_000, responseKeptBytes: 1000 },
  );
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await upstreams.close();
});

function chunk(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
}

/** A listener that remembers, and takes pieces only when it is let. */
function listener() {
  const heads: AnswerHead[] = [];
  const pieces: string[] = [];
  let heard: (() => void) | null = null;
  let wait: Promise<void> | undefined;
  const hears: AnswerListener = {
    begin: (head) => void heads.push(head),
    write: (piece) => {
      pieces.push(piece.toString());
      heard?.();
      return wait;
    },
  };
  return {
    hears,
    heads,
    text: () => pieces.join(''),
    piece: () =>
      new Promise<void>((resolve) => {
        heard = resolve;
      }),
    hold() {
      let go: () => void = () => undefined;
      wait = new Promise((resolve) => {
        go = resolve;
      });
      return () => {
        wait = undefined;
        go();
      };
    },
  };
}

async function begun(
  hears: AnswerListener | null,
  changes: Parameters<typeof makeTool>[0] = {},
): Promise<{ readonly socket: Socket; readonly result: Promise<UpstreamResult> }> {
  const streams = { totalMs: 60_000, bytes: 1_000_000 };
  const tool = makeTool({ timeoutMs: 30_000, streams, ...changes });
  const arrived = once(server, 'arrived');
  const result = upstreams.send(makeDispatch({ tool, listener: hears }));
  await arrived;
  const socket = sockets.at(-1);
  if (socket === undefined) throw new Error('nothing has arrived');
  return { socket, result };
}

describe('a stream that is whole', () => {
  test('is passed on as it comes, and kept as digest and end', async () => {
    const heard = listener();
    const { socket, result } = await begun(heard.hears);
    const first = heard.piece();
    socket.write(`${HEAD}${chunk(FIRST)}`);
    await first;
    expect(heard.heads).toEqual([{ kind: 'http', status: 200, headers: { 'content-type': 'text/event-stream' } }]);
    expect(heard.text()).toBe(FIRST);
    socket.write(`${chunk(LAST)}0\r\n\r\n`);
    const sent = createHash('sha256').update('POST /v1/payments/p1/refunds\n{"amount":100}').digest('base64url');
    expect(await result).toMatchObject({
      kind: 'committed',
      evidence: { sent },
      answer: { kind: 'passed_on' },
      result: {
        status: 200,
        truncated: false,
        body: {
          kind: 'passed_on',
          value: {
            bytes: FIRST.length + LAST.length,
            sha256: createHash('sha256').update(FIRST).update(LAST).digest('hex'),
            tail: FIRST + LAST,
          },
        },
      },
    });
    expect(heard.text()).toBe(FIRST + LAST);
  });

  test.each([true, false])('with its cookies where the configuration asks for them: %s', async (setCookie) => {
    const heard = listener();
    const request = { method: 'POST', pathAndQuery: '/', headers: {}, body: null, setCookie } as const;
    const arrived = once(server, 'arrived');
    const tool = makeTool({ timeoutMs: 30_000, streams: { totalMs: 60_000, bytes: 1_000_000 } });
    const result = upstreams.send(makeDispatch({ tool, listener: heard.hears, proxied: { kind: 'http', ...request } }));
    await arrived;
    sockets.at(-1)?.write(`${HEAD.replace('\r\n', '\r\nset-cookie: a=1\r\n')}${chunk(LAST)}0\r\n\r\n`);
    expect((await result).kind).toBe('committed');
    expect(Object.keys(heard.heads[0]?.headers ?? {}).includes('set-cookie')).toBe(setCookie);
  });

  test.each([
    ['passed on', true],
    ['collected', false],
  ])('what was spent is what its events say, whether it is %s', async (_, isHeard) => {
    const actual = { token: [['usage.total']] };
    const { socket, result } = await begun(isHeard ? listener().hears : null, { actual });
    socket.write(`${HEAD}${chunk('data: {"usage":{"total":7}}\n\n')}${chunk(LAST)}0\r\n\r\n`);
    expect(await result).toMatchObject({ kind: 'committed', amounts: { token: 7 } });
  });

  test('where nobody listens, it is collected within the same times: `timeout` holds for each pause in it', async () => {
    const { socket, result } = await begun(null, { timeoutMs: 2_000 });
    socket.write(`${HEAD}${chunk(FIRST)}`);
    for (const text of [FIRST, LAST]) {
      await new Promise((resolve) => setTimeout(resolve, 1_200));
      socket.write(chunk(text));
    }
    socket.write('0\r\n\r\n');
    expect(await result).toMatchObject({ kind: 'committed', result: { status: 200, truncated: false } });
  });

  test('of a long one the end is kept, from the beginning of an event', async () => {
    const heard = listener();
    const { socket, result } = await begun(heard.hears);
    const events = Array.from({ length: 200 }, (_, n) => `data: {"n":"é${n}"}\n\n`);
    socket.write(HEAD);
    for (const event of events) socket.write(chunk(event));
    socket.write('0\r\n\r\n');
    const ended = await result;
    const body = ended.kind === 'committed' ? ended.result.body : null;
    const tail = body?.kind === 'passed_on' ? (body.value.tail ?? '') : '';
    expect(tail.length).toBeGreaterThan(900);
    expect(events.join('').endsWith(tail)).toBe(true);
    expect(tail.startsWith('data: {"n":"é')).toBe(true);
  });

  test.each([
    [1_000_000, 4_096],
    [1_000, 1_000],
    [0, 0],
  ])('of one of which %i bytes may be kept, the last %i are', (may, kept) => {
    const passed = createPassedOn(may);
    for (let piece = 0; piece < 100; piece += 1) passed.take(Buffer.alloc(100, 'x'));
    const { bytes, tail } = passed.facts();
    expect([bytes, tail?.length]).toEqual([10_000, kept]);
  });

  test('the end of what is no text is not kept as one', () => {
    for (const last of [[0xff, 0xfe], [0xc3]]) {
      const passed = createPassedOn(1_000);
      passed.take(Buffer.from('data: x\n\n'));
      passed.take(Buffer.from(last));
      expect(passed.facts()).toMatchObject({ bytes: 9 + last.length, tail: null });
    }
  });

  test('the end that is kept begins with a whole character, or is no text', () => {
    const endOf = (text: Buffer) => {
      const passed = createPassedOn(9);
      passed.take(text);
      return passed.facts().tail;
    };
    expect(endOf(Buffer.from('é'.repeat(8)))).toBe('é'.repeat(4));
    expect(endOf(Buffer.from('😀'.repeat(4)))).toBe('😀'.repeat(2));
    expect(endOf(Buffer.alloc(16, 0xff))).toBeNull();
    expect(endOf(Buffer.from('12345678'))).toBe('12345678');
  });

  test('the upstream is not read while the caller does not take what came', async () => {
    const heard = listener();
    const { socket, result } = await begun(heard.hears, { timeoutMs: 50 });
    const first = heard.piece();
    const goOn = heard.hold();
    socket.write(`${HEAD}${chunk(FIRST)}`);
    await first;
    const piece = 'x'.repeat(60_000);
    let isFull = false;
    for (let written = 0; !isFull && written < 2000; written += 1) {
      isFull = !socket.write(chunk(piece)) && socket.writableLength > 1_000_000;
    }
    // What the upstream has written stands in buffers of the system and in its own: nothing more was taken. Longer than
    // the time-out: the upstream was not silent, it was not read.
    await new Promise((resolve) => setTimeout(resolve, 120));
    expect(isFull).toBe(true);
    expect(heard.text()).toBe(FIRST);
    goOn();
    expect((await result).evidence.code).toBe('too_long');
  });
});

test('a caller that takes nothing for longer than the time-out, and then reads on, has the whole stream', async () => {
  const heard = listener();
  const { socket, result } = await begun(heard.hears, { timeoutMs: 800 });
  const first = heard.piece();
  const goOn = heard.hold();
  socket.write(`${HEAD}${chunk(FIRST)}`);
  await first;
  const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
  await wait(1_500);
  goOn();
  // The upstream needs some of its own time to say more: it counts from when it is read again.
  await wait(350);
  socket.write(`${chunk(LAST)}0\r\n\r\n`);
  expect([(await result).kind, heard.text()]).toEqual(['committed', FIRST + LAST]);
});

test('of very many pieces at once so many are taken in a turn of the event loop, and others have the next', async () => {
  let [inTurn, most, taken] = [0, 0, 0];
  const { socket, result } = await begun({
    begin: () => undefined,
    write: () => {
      if (inTurn === 0) setImmediate(() => (inTurn = 0));
      inTurn += 1;
      taken += 1;
      most = Math.max(most, inTurn);
      return undefined;
    },
  });
  socket.write(`${HEAD}${chunk('x').repeat(20 * PIECES_A_TURN)}0\r\n\r\n`);
  expect((await result).kind).toBe('committed');
  expect(taken).toBe(20 * PIECES_A_TURN);
  expect(most).toBeLessThanOrEqual(PIECES_A_TURN);
});

describe('what is not a whole stream', () => {
  test('cut in the middle: unknown, not committed', async () => {
    const heard = listener();
    const { socket, result } = await begun(heard.hears);
    const first = heard.piece();
    socket.write(`${HEAD}${chunk(FIRST)}`);
    await first;
    socket.destroy();
    expect(await result).toMatchObject({ kind: 'unknown', evidence: { code: 'reset', answered: { status: 200 } } });
  });

  test('ended by the end of the connection alone: unknown', async () => {
    const heard = listener();
    const { socket, result } = await begun(heard.hears);
    socket.end(`HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n${FIRST}${LAST}`);
    expect(await result).toMatchObject({ kind: 'unknown', evidence: { code: 'reset' } });
    expect(heard.text()).toBe(FIRST + LAST);
  });

  test('silent for longer than the time-out, or not over in time: unknown', async () => {
    for (const [timeoutMs, totalMs, says] of [
      [500, 60_000, 'nothing more came within 500 ms'],
      [60_000, 500, 'not over after 500 ms'],
    ] as const) {
      const heard = listener();
      const { socket, result } = await begun(heard.hears, { timeoutMs, streams: { totalMs, bytes: 1_000_000 } });
      socket.write(`${HEAD}${chunk(FIRST)}`);
      const { kind, evidence } = await result;
      expect([kind, evidence.code]).toEqual(['unknown', 'timeout']);
      expect(evidence.message).toContain(says);
    }
  });

  test.each([
    ['while pieces keep coming', false],
    ['while its caller takes nothing', true],
  ])('not over in time %s: unknown', async (_, isHeld) => {
    const heard = listener();
    const letGo = isHeld ? heard.hold() : () => {};
    const { socket, result } = await begun(heard.hears, { streams: { totalMs: 150, bytes: 1_000_000 } });
    socket.write(HEAD);
    let left = 60;
    const writing = setInterval(() => {
      left -= 1;
      socket.write(left > 0 ? chunk(FIRST) : '0\r\n\r\n');
      if (left > 0) return;
      clearInterval(writing);
      letGo();
    }, 10);
    const { kind, evidence } = await result;
    clearInterval(writing);
    expect([kind, evidence.code, evidence.message]).toEqual([
      'unknown',
      'timeout',
      expect.stringContaining('not over after 150 ms'),
    ]);
  });

  test('longer than the limit: unknown, and the rest is not passed on', async () => {
    const heard = listener();
    const { socket, result } = await begun(heard.hears, { streams: { totalMs: 60_000, bytes: 20 } });
    socket.write(`${HEAD}${chunk(FIRST)}${chunk(LAST)}`);
    const evidence = { code: 'too_long', message: expect.stringContaining('longer than the 20 bytes') };
    expect(await result).toMatchObject({ kind: 'unknown', evidence });
    expect(heard.text()).toBe(FIRST);
    // It is told so: nothing takes what it still says.
    await expect.poll(() => socket.destroyed).toBe(true);
  });

  test('as long as the limit: it is whole', async () => {
    const heard = listener();
    const bytes = FIRST.length + LAST.length;
    const { socket, result } = await begun(heard.hears, { streams: { totalMs: 60_000, bytes } });
    socket.write(`${HEAD}${chunk(FIRST)}${chunk(LAST)}0\r\n\r\n`);
    expect((await result).kind).toBe('committed');
    expect(heard.text()).toBe(FIRST + LAST);
  });

  test('for a caller that takes it as a whole, it is unknown too', async () => {
    const { socket, result } = await begun(null);
    socket.end(`${HEAD}${chunk(FIRST)}`);
    expect(await result).toMatchObject({ kind: 'unknown', evidence: { code: 'reset' } });
  });
});

describe('what remains of a call that is over', () => {
  /** Answers each request that comes over the connection, after so many ms. */
  function answerAfter(socket: Socket, ...delays: readonly number[]): void {
    const left = [...delays];
    const answer = (): void =>
      void setTimeout(() => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'), left.shift() ?? 0);
    socket.on('data', answer);
  }

  test.each([
    ['its time-out', { timeoutMs: 300 }],
    ['the time of its whole stream', { timeoutMs: 30_000, streams: { totalMs: 300, bytes: 1_000_000 } }],
  ])('%s does not end the next one on its connection', async (_, tool) => {
    const arrived = once(server, 'arrived');
    const first = upstreams.send(makeDispatch({ tool: makeTool(tool) }));
    await arrived;
    const [socket] = sockets;
    if (socket === undefined) throw new Error('nothing has arrived');
    answerAfter(socket, 0, 600);
    expect((await first).kind).toBe('committed');
    const next = await upstreams.send(makeDispatch({ tool: makeTool({ timeoutMs: 30_000 }) }));
    expect([next.kind, sockets.length]).toEqual(['committed', 1]);
  });

  test('of a stream each piece begins the time of silence anew', async () => {
    const heard = listener();
    const { socket, result } = await begun(heard.hears, { timeoutMs: 1_000 });
    const wait = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 550));
    await wait();
    socket.write(HEAD);
    await wait();
    socket.write(chunk(FIRST));
    await wait();
    socket.write(`${chunk(LAST)}0\r\n\r\n`);
    expect((await result).kind).toBe('committed');
  });
});

describe('what is sent', () => {
  const said = (socket: Socket): Promise<string> =>
    new Promise((resolve) => {
      let text = '';
      socket.on('data', (piece: Buffer) => {
        text += piece.toString();
        socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
        resolve(text);
      });
    });

  test.each([
    ['a short one', 'ä'],
    ['a long one', 'ä'.repeat(3_000)],
  ])('is what the receipt has the digest of: %s', async (_, note) => {
    const arrived = once(server, 'arrived');
    const sending = upstreams.send(makeDispatch({ params: { payment_id: 'p1', amount: 7, note } }));
    await arrived;
    const [socket] = sockets;
    if (socket === undefined) throw new Error('nothing has arrived');
    void said(socket);
    const result = await sending;
    const line = 'POST /v1/payments/p1/refunds\n';
    const body = JSON.stringify({ amount: 7, note });
    expect(result.evidence.sent).toBe(createHash('sha256').update(line).update(body).digest('base64url'));
  });
});

describe('what is not passed on', () => {
  test.each([
    ['a refusal', 'HTTP/1.1 400 Bad Request\r\ncontent-type: text/event-stream', 'failed'],
    ['an error', 'HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/event-stream', 'unknown'],
    ['JSON', 'HTTP/1.1 200 OK\r\ncontent-type: application/json', 'committed'],
    ['what may be JSON', 'HTTP/1.1 200 OK\r\nx-type: none', 'committed'],
    [
      'a success that says nothing of the whole',
      'HTTP/1.1 207 Multi-Status\r\ncontent-type: text/event-stream',
      'unknown',
    ],
  ])('%s', async (_, head, kind) => {
    const heard = listener();
    const { socket, result } = await begun(heard.hears);
    socket.write(`${head}\r\ncontent-length: 8\r\n\r\n{"n": 1}`);
    expect((await result).kind).toBe(kind);
    expect(heard.heads).toEqual([]);
    expect(heard.text()).toBe('');
  });

  test('a refusal that breaks off, which is one all the same', async () => {
    const { socket, result } = await begun(listener().hears);
    socket.end('HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"error"');
    expect(await result).toMatchObject({ kind: 'failed', evidence: { code: 'http_status' } });
  });

  test('the answer of a tool whose answers are no streams', async () => {
    const heard = listener();
    const arrived = once(server, 'arrived');
    const result = upstreams.send(makeDispatch({ listener: heard.hears }));
    await arrived;
    sockets.at(-1)?.write(`${HEAD}${chunk(FIRST)}0\r\n\r\n`);
    expect(await result).toMatchObject({ kind: 'committed', result: { body: { kind: 'text', value: FIRST } } });
    expect(heard.heads).toEqual([]);
  });
});

test.each(['\n', '\r\n', '\r'])(
  'the first event of several ends where the next begins, with lines that end in %j',
  (end) => {
    const first = `event: a${end}data: 1${end}${end}`;
    expect(endOfEvent(Buffer.from(`${first}data: 2${end}${end}data: 3`))).toBe(first.length);
    expect(endOfEvent(Buffer.from(`data: 1${end}data: 2`))).toBe(0);
    const mixed = Buffer.from(`${first}data: 2\n\ndata: 3\r\n\r\n`);
    expect(endOfEvent(mixed)).toBe(first.length);
  },
);

test.each([
  ['text/event-stream', true],
  ['Text/Event-Stream ; charset=utf-8', true],
  ['text/event-streams', false],
  ['application/json, text/event-stream', false],
  [['text/event-stream'], false],
  [undefined, false],
])('%j is a stream of events: %s', (type, is) => {
  expect(isEventStream(type)).toBe(is);
});

test('events end with an empty line, however lines end and pieces fall', () => {
  for (const end of ['\n', '\r\n', '\r']) {
    const events = [`: hello${end}${end}`, `event: a${end}data: 1${end}${end}`, `data: 2${end}${end}`];
    const bytes = Buffer.from(events.join(''));
    const ends = events.map((_, index) => events.slice(0, index + 1).join('').length);
    for (let size = 1; size <= bytes.length; size += 1) {
      const scan = createEventScan();
      const found = new Set<number>();
      for (let at = 0; at < bytes.length; at += size) {
        const over = scan.over(bytes.subarray(at, at + size));
        if (over > 0) found.add(at + over);
        // Nothing is called over that is not, but for the second half of a line's end.
        if (over > 0 && end !== '\r\n') expect(ends).toContain(at + over);
      }
      expect(found.has(bytes.length)).toBe(true);
    }
    expect(createEventScan().over(Buffer.from(`data: 1${end}data: 2${end}`))).toBe(0);
  }
});
