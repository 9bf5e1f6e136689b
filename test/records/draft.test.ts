import { expect, it } from 'vitest';
import { createDraft } from '../../src/records/draft.ts';
import { ABSENT } from '../../src/stores/port.ts';

it('a row that came and went within a step is not written, and is guarded to have been absent', () => {
  const draft = createDraft({ workspace: 'w', now: 0, epoch: 1, row: () => null, counter: () => undefined });
  draft.put('thing', 'a', 'text', [], []);
  draft.put('thing', 'a', null, [], []);
  expect(draft.change('c1')?.change).toMatchObject({
    puts: [],
    guards: [{ kind: 'thing', id: 'a', version: ABSENT }],
  });
});

it('a row is one, however many were looked at and however often it is put: the last put counts', () => {
  const draft = createDraft({ workspace: 'w', now: 0, epoch: 1, row: () => null, counter: () => undefined });
  for (let n = 0; n < 40; n += 1) draft.row('thing', String(n));
  for (const [text, list] of [
    ['one', 'first'],
    ['two', 'second'],
  ] as const)
    draft.put('thing', '39', text, [{ list, at: 1 }], []);
  expect(draft.row('thing', '39')?.text).toBe('two');
  const { puts = [], guards = [] } = draft.change('c1')?.change ?? {};
  expect(puts).toEqual([
    { kind: 'thing', id: '39', version: ABSENT, text: 'two', enter: [{ list: 'second', at: 1 }], leave: [] },
  ]);
  expect(guards).toHaveLength(39);
});

it('a row leaves the places where it was and enters where it is, and what it replaces stays what was there', () => {
  const stored = { version: 'v1', text: 'before' };
  const draft = createDraft({ workspace: 'w', now: 0, epoch: 1, row: () => stored, counter: () => undefined });
  draft.row('thing', 'a');
  const [stays, was, is] = [
    { list: 'all', at: 1 },
    { list: 'due', at: 1 },
    { list: 'due', at: 2 },
  ];
  draft.put('thing', 'a', 'after', [stays, is], [stays, was]);
  expect(draft.replaced('thing', 'a')).toBe(stored);
  expect(draft.change('c1')?.change.puts).toMatchObject([{ version: 'v1', enter: [is], leave: [was] }]);
});

it('a change is for two seconds around its step, or until the step says that it holds no longer', () => {
  const span = (...until: readonly number[]) => {
    const draft = createDraft({ workspace: 'w', now: 10_000, epoch: 1, row: () => null, counter: () => undefined });
    // Whatever else there is to write: a reset alone is a change.
    draft.reset('group');
    for (const at of until) draft.validUntil(at);
    return draft.change('c1')?.change;
  };
  expect(span()).toMatchObject({ from: 8_000, at: 10_000, until: 12_000, resets: ['group'] });
  expect(span(11_000, 10_500, 11_500)).toMatchObject({ from: 8_000, until: 10_500 });
  expect(span(20_000)).toMatchObject({ until: 12_000 });
});

it('two changes of one figure in a step are one, within the lesser limit of both', () => {
  const draft = createDraft({ workspace: 'w', now: 0, epoch: 1, row: () => null, counter: () => undefined });
  const figure = { name: 'f', span: { kind: 'until', end: 9 }, group: 'g' } as const;
  const limits = [
    [10, null, null],
    [5, 7, 'EUR'],
    [null, 8, null],
  ] as const;
  for (const [limit, most, text] of limits) draft.sum({ ...figure, hold: 1, spend: 2, limit, most, text });
  expect(draft.change('c1')?.change.sums).toEqual([{ ...figure, hold: 3, spend: 6, limit: 5, most: 7, text: 'EUR' }]);
});
