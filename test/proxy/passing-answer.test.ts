import { once } from 'node:events';
import { get, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import Fastify from 'fastify';
import { afterEach, expect, test, vi } from 'vitest';
import { createPassingAnswer } from '../../src/proxy/passing-answer.ts';

const closed: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(closed.splice(0).map((close) => close()));
});

const STALL_MS = 60_000;
const EVENTS = { 'content-type': 'text/event-stream' };
const EVENT = Buffer.from('data: 1\n\n');
const COMMITTED = { 'svc-decision': 'committed', 'svc-observed': 'denied_policy', 'svc-settlement': 'pending' };
const UNKNOWN = { 'svc-decision': 'unknown_effect' };

type Passing = ReturnType<typeof createPassingAnswer>;

/** A server whose next answer is passed on by hand. */
async function start() {
  let begun = 0;
  let arrived: (answer: { readonly passing: Passing; readonly raw: ServerResponse }) => void;
  const next = new Promise<{ readonly passing: Passing; readonly raw: ServerResponse }>((resolve) => {
    arrived = resolve;
  });
  const app = Fastify();
  app.decorateReply('contained', function () {
    this.header('content-security-policy', 'sandbox');
  });
  app.get('/', (_request, reply) => {
    const options = { begun: () => void (begun += 1), headers: () => EVENTS, stallMs: STALL_MS };
    arrived({ passing: createPassingAnswer(reply, options), raw: reply.raw });
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  closed.push(async () => {
    app.server.closeAllConnections();
    await app.close();
  });
  const { port } = app.server.address() as AddressInfo;
  const begin = (
    { passing }: { readonly passing: Passing },
    status = 200,
    headers: Record<string, string> = EVENTS,
  ) => {
    const listener = passing.listen({ id: 'eff_1', workspace: 'demo' });
    listener.begin({ kind: 'http', status, headers });
    return listener;
  };
  const finish = (passing: Passing, headers: Record<string, string>): void =>
    passing.finish({ status: 504, headers, body: '{"decision":"unknown_effect"}' });
  return { port, next, begin, finish, begun: () => begun };
}

/** How an answer came: its text, its trailers, and whether it was whole. */
async function whole(answer: IncomingMessage) {
  const text = await textOf(answer).catch(() => null);
  return { text, trailers: answer.trailers, complete: answer.complete };
}

async function answerAt(port: number): Promise<IncomingMessage> {
  const [answer] = (await once(get({ host: '127.0.0.1', port, agent: false }), 'response')) as [IncomingMessage];
  return answer;
}

test('the head goes out before anything of the body, runs nothing in a browser, and ends with all that is known then', async () => {
  const { port, next, begin, finish } = await start();
  const coming = answerAt(port);
  const { passing, raw } = await next;
  const listener = begin({ passing });
  let head: IncomingMessage | null = null;
  void coming.then((answer) => (head = answer));
  await expect.poll(() => head).not.toBeNull();
  const answer = await coming;
  expect(answer.headers).toMatchObject({ ...EVENTS, 'content-security-policy': 'sandbox' });
  void listener.write(EVENT);
  finish(passing, COMMITTED);
  expect(await whole(answer)).toEqual({ text: String(EVENT), trailers: COMMITTED, complete: true });
  expect(raw.writableFinished).toBe(true);
});

test('a caller that speaks HTTP/1.0 knows no trailers, and gets the answer without', async () => {
  const { port, next, begin, finish } = await start();
  const socket = connect(port, '127.0.0.1').setEncoding('latin1');
  socket.write('GET / HTTP/1.0\r\nhost: a\r\n\r\n');
  const { passing } = await next;
  void begin({ passing }).write(EVENT);
  finish(passing, COMMITTED);
  const answer = await textOf(socket);
  expect(answer).toMatch(/^HTTP\/1\.1 200 /);
  expect(answer.toLowerCase()).not.toContain('trailer');
  expect(answer.endsWith(`\r\n\r\n${String(EVENT)}`)).toBe(true);
});

test('an answer without a body announces no trailers: it could not send them', async () => {
  const { port, next, begin, finish } = await start();
  const coming = answerAt(port);
  const { passing } = await next;
  begin({ passing }, 204);
  finish(passing, COMMITTED);
  const answer = await coming;
  expect([answer.statusCode, answer.headers.trailer]).toEqual([204, undefined]);
  expect(await whole(answer)).toMatchObject({ text: '', complete: true });
});

test('events that are packed are no events to whoever passes them on: nothing is held back, and nothing is added', async () => {
  const { port, next, begin, finish } = await start();
  const coming = answerAt(port);
  const { passing } = await next;
  const packed = begin({ passing }, 200, { ...EVENTS, 'content-encoding': 'gzip' });
  void packed.write(Buffer.from('half'));
  const answer = await coming;
  let text = '';
  answer.on('data', (piece) => (text += String(piece)));
  await expect.poll(() => text).toBe('half');
  const over = new Promise((resolve) => answer.on('error', () => {}).once('close', resolve));
  finish(passing, UNKNOWN);
  await over;
  expect(answer.complete).toBe(false);
});

test('what failed, or is not known, does not end as if it had happened', async () => {
  for (const [type, expected] of [
    [
      'text/event-stream',
      { text: `${String(EVENT)}event: error\ndata: {"decision":"unknown_effect"}\n\n`, complete: true },
    ],
    ['audio/mpeg', { text: null, complete: false }],
  ] as const)
    for (const decision of ['unknown_effect', 'failed']) {
      const { port, next, begin, finish } = await start();
      const coming = answerAt(port);
      const { passing } = await next;
      void begin({ passing }, 200, { 'content-type': type }).write(EVENT);
      const answer = await coming;
      const ended = whole(answer);
      finish(passing, { 'svc-decision': decision });
      expect(await ended).toMatchObject(expected);
    }
});

test('a caller that has gone before the answer begins is not watched any more', async () => {
  const { port, next, begin, finish, begun } = await start();
  const sent = get({ host: '127.0.0.1', port, agent: false }).on('error', () => {});
  const { passing, raw } = await next;
  const gone = once(raw, 'close');
  sent.destroy();
  await gone;
  const listener = begin({ passing });
  expect(listener.write(EVENT)).toBeUndefined();
  finish(passing, COMMITTED);
  expect(begun()).toBe(0);
});

test('a caller that was slow and takes everything after all is not cut off, and nothing of the wait is left', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { port, next, begin, finish } = await start();
  const coming = answerAt(port);
  const { passing, raw } = await next;
  const listener = begin({ passing }, 200, { 'content-type': 'audio/mpeg' });
  const answer = await coming;
  const before = raw.listenerCount('close') + raw.listenerCount('drain');
  const piece = Buffer.alloc(1_000_000, 'x');
  let sent = 0;
  let taken = 0;
  answer.on('data', (bytes: Buffer) => (taken += bytes.byteLength));
  for (let waits = 0; waits < 3; ) {
    answer.pause();
    const drained = listener.write(piece);
    sent += 1;
    if (drained === undefined) continue;
    waits += 1;
    answer.resume();
    await drained;
  }
  expect([vi.getTimerCount(), raw.listenerCount('close') + raw.listenerCount('drain')]).toEqual([0, before]);
  vi.advanceTimersByTime(2 * STALL_MS);
  expect(raw.destroyed).toBe(false);
  finish(passing, COMMITTED);
  await once(answer, 'end');
  expect([taken, answer.complete]).toEqual([sent * piece.byteLength, true]);
});

test('a caller that takes nothing for so long is cut off, and no sooner', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { port, next, begin } = await start();
  const coming = answerAt(port);
  const { passing, raw } = await next;
  const listener = begin({ passing }, 200, { 'content-type': 'audio/mpeg' });
  const answer = await coming;
  answer.on('error', () => {}).pause();
  let drained: Promise<void> | undefined;
  while (drained === undefined) drained = listener.write(Buffer.alloc(10_000_000, 'x'));
  vi.advanceTimersByTime(STALL_MS - 1);
  expect(raw.destroyed).toBe(false);
  vi.advanceTimersByTime(1);
  expect(raw.destroyed).toBe(true);
  await drained;
});
