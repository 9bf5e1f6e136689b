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
