import { expect, test } from 'vitest';
import { createRecentRows } from '../../src/records/recent-rows.ts';
import type { ReadRow } from '../../src/stores/port.ts';

test('what a change wrote is remembered once it is done; a row that is over only while the change runs', () => {
  const recent = createRecentRows();
  const row: ReadRow = { version: '1', text: 'x' };
  const over: ReadRow = { ...row, isOver: true };
  const change = recent.begin('demo', [
    { kind: 'thing', id: 'open', row },
    { kind: 'thing', id: 'over', row: over },
    { kind: 'thing', id: 'gone', row: null },
  ]);
  const known = () => ['open', 'over'].map((id) => recent.get('demo', 'thing', id)?.text);
  expect(known()).toEqual(['x', 'x']);
  recent.done(change);
  expect(known()).toEqual(['x', undefined]);
  expect(recent.get('demo', 'thing', 'gone')).toBeUndefined();
});

const rowOf = (text: string): ReadRow => ({ version: '1', text });
/** A store's answer about things, to a question that was asked at `asked`. */
function recentRows() {
  const recent = createRecentRows();
  return {
    recent,
    learn: (id: string, row: ReadRow | null, asked = recent.tick()) =>
      recent.learn('demo', [{ kind: 'thing', id, row }], asked),
    begin: (id: string, row: ReadRow | null) => recent.begin('demo', [{ kind: 'thing', id, row }]),
    text: (id: string) => recent.get('demo', 'thing', id)?.text,
  };
}

test('an answer that was asked for before a change began, or was done, is older than what the change wrote', () => {
  const { recent, learn, begin, text } = recentRows();
  const before = recent.tick();
  const change = begin('a', rowOf('new'));
  learn('a', rowOf('old'), before);
  expect(text('a')).toBe('new');
  const meanwhile = recent.tick();
  learn('a', rowOf('old'), meanwhile);
  expect(text('a')).toBe('new');
  recent.done(change);
  learn('a', rowOf('old'), meanwhile);
  expect(text('a')).toBe('new');
  learn('a', rowOf('newer'));
  expect(text('a')).toBe('newer');
  learn('a', null);
  expect(text('a')).toBeUndefined();
});

test('a change that was refused is forgotten; its answer says nothing of a later one of the same row', () => {
  const { recent, begin, text } = recentRows();
  const first = begin('a', rowOf('first'));
  const second = begin('a', rowOf('second'));
  recent.drop(first);
  expect(text('a')).toBe('second');
  recent.drop(second);
  expect(text('a')).toBeUndefined();
  const removal = begin('a', null);
  const put = begin('a', rowOf('third'));
  recent.done(removal);
  recent.done(put);
  expect(text('a')).toBe('third');
});

test('20,000 rows are remembered, and what running changes write: beyond that the oldest are forgotten', () => {
  const { recent, learn, begin, text } = recentRows();
  const running = begin('running', rowOf('x'));
  for (let n = 1; n < 20_000; n += 1) learn(`${n}`, rowOf('x'));
  expect(text('1')).toBe('x');
  learn('1', rowOf('x'));
  learn('20000', rowOf('x'));
  expect(text('running')).toBe('x');
  expect(text('2')).toBeUndefined();
  // It was told of again, and so it is younger than those that were not.
  expect(text('1')).toBe('x');
  expect(text('20000')).toBe('x');
  const left = Array.from({ length: 20_000 }, (_, n) => text(`${n + 1}`)).filter((one) => one !== undefined);
  expect(left.length).toBeGreaterThan(17_000);
  expect(left.length).toBeLessThanOrEqual(18_000);
  recent.done(running);
  expect(text('running')).toBe('x');
});

test('32 Mi characters of rows are remembered, counted once however often a row is learned or written', () => {
  const { recent, learn, begin, text } = recentRows();
  const large = 'x'.repeat(1024 * 1024);
  for (let times = 0; times < 40; times += 1) {
    learn('a', rowOf(large));
    recent.done(begin('b', rowOf(large)));
    recent.drop(begin('c', rowOf(large)));
  }
  expect([text('a'), text('b')]).toEqual([large, large]);
  for (let n = 0; n < 30; n += 1) learn(`${n}`, rowOf(large));
  expect(text('a')).toBe(large);
  learn('one more', rowOf('x'));
  expect(text('a')).toBeUndefined();
  expect(text('29')).toBe(large);
});
