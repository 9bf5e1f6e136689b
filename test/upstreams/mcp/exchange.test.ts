import { expect, test } from 'vitest';
import { Exchange } from '../../../src/upstreams/mcp/pipe/exchange.ts';

/** An exchange, and what its handler hears, in order. */
function exchange(gate: () => void = () => undefined) {
  const heard: unknown[] = [];
  let changes = 0;
  const made = new Exchange(
    {
      onRequestStart: () => {
        heard.push('start');
        gate();
      },
      onResponseStart: (_controller, status, headers) => void heard.push([status, headers]),
      onResponseData: (_controller, chunk) => void heard.push(chunk.toString()),
      onResponseEnd: () => void heard.push('end'),
      onResponseError: (_controller, error) => void heard.push(error.message),
    },
    () => (changes += 1),
  );
  made.headers = { 'mcp-session-id': 's1' };
  return { made, heard, changes: () => changes };
}

const EVENTS = { 'mcp-session-id': 's1', 'content-type': 'text/event-stream', 'cache-control': 'no-cache' };
const first = Buffer.from('{"n":1}');

test('a whole answer has its type, its length in bytes and the headers of its session; one without a body has no type', () => {
  const { made, heard } = exchange();
  made.start();
  made.last(Buffer.from('{"text":"ü"}'));
  const head = { 'mcp-session-id': 's1', 'content-type': 'application/json', 'content-length': '13' };
  expect(heard).toEqual(['start', [200, head], '{"text":"ü"}', 'end']);
  const empty = exchange();
  empty.made.start();
  empty.made.answer(202, null);
  expect(empty.heard).toEqual(['start', [202, { 'mcp-session-id': 's1' }], 'end']);
});

test('what comes before the last message is an event, and then the last one is, too; nothing comes after the end', () => {
  const { made, heard } = exchange();
  made.start();
  made.event(first);
  made.last(Buffer.from('{"n":2}'));
  const all = ['start', [200, EVENTS], 'event: message\ndata: {"n":1}\n\n', 'event: message\ndata: {"n":2}\n\n', 'end'];
  expect([heard, made.isOver]).toEqual([all, true]);
  made.event(first);
  made.last(first);
  made.answer(200, first);
  made.end();
  made.fail(new Error('too late'));
  made.abort(new Error('too late'));
  expect([heard, made.aborted, made.reason]).toEqual([all, false, null]);
});

test('what is held back was never sent: its handler hears why, and nothing else', () => {
  const { made, heard } = exchange(() => {
    throw new Error('paused');
  });
  expect(made.start()).toBe(false);
  made.answer(200, first);
  made.event(first);
  expect([heard, made.isOver, made.start()]).toEqual([['start', 'paused'], true, false]);
});

test('whether it may be sent is asked once, and nothing is answered before', () => {
  const { made, heard } = exchange();
  made.answer(200, first);
  made.stream();
  expect(heard).toEqual([]);
  expect([made.start(), made.start(), heard]).toEqual([true, false, ['start']]);
});

test('a reader that leaves says why, and hears so; that it pauses, reads again or has left is told', () => {
  const { made, heard, changes } = exchange();
  made.start();
  made.pause();
  expect([made.paused, changes()]).toEqual([true, 1]);
  made.resume();
  // It reads already.
  made.resume();
  expect([made.paused, changes()]).toEqual([false, 2]);
  const left = new Error('it has left');
  made.abort(left);
  expect([made.aborted, made.reason, made.isOver, changes()]).toEqual([true, left, true, 3]);
  made.abort(new Error('again'));
  expect([made.reason, heard]).toEqual([left, ['start', 'it has left']]);
});
