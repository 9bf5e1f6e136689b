import { expect, it } from 'vitest';
import { type AnswerTo, type Asked, FORMS, type Operation } from '../../src/stores/threads/operations.ts';
import { type Form, Decoder, Encoder } from '../../src/stores/threads/operations.ts';
import type { SumChange } from '../../src/stores/port.ts';

const until: SumChange = {
  name: 'figure',
  span: { kind: 'until', end: 9007199254740991 },
  group: 'group',
  hold: -3,
  spend: 0,
  limit: 0,
  most: null,
  text: '',
};

/** Of each operation what is asked and what is answered, so that no field has the value of another one. */
const SAMPLES: { readonly [Op in Operation]: { asked: readonly Asked<Op>[]; answers: readonly AnswerTo<Op>[] } } = {
  commit: {
    asked: [
      {
        id: 'change',
        workspace: 'workspace',
        epoch: 1,
        at: 2,
        from: 3,
        until: 4,
        guards: [
          { kind: 'kind', id: '\0 \ud800 \u{1f600}', version: '' },
          { kind: 'kind', id: '', follow: 'other', version: 'version' },
        ],
        puts: [
          { kind: 'kind', id: 'one', version: '', text: null, enter: [], leave: [{ list: 'left', at: 5 }] },
          {
            kind: 'kind',
            id: 'two',
            follow: 'other',
            version: 'v',
            text: '',
            enter: [{ list: 'l', at: 6 }],
            leave: [],
          },
        ],
        sums: [until, { ...until, span: { kind: 'rolling', ms: 7 }, limit: null, most: 8, text: null, spend: 9 }],
        resets: ['group', ''],
        events: [
          { about: null, text: 'event' },
          { about: '', text: '' },
        ],
      },
    ],
    answers: [
      { kind: 'done', now: 1, epoch: 2, seq: 3, counters: [{ spent: 4, held: 5, rows: 6 }] },
      { kind: 'moved', now: 1, epoch: 2, rows: [{ kind: 'kind', id: 'id', row: null }], counters: [] },
    ],
  },
  read: {
    asked: [
      {
        workspace: 'workspace',
        wants: [{ kind: 'kind', id: 'id' }],
        sums: [{ name: 'n', span: until.span, group: 'g' }],
        isShown: true,
      },
      { workspace: 'workspace', wants: [], sums: [], isShown: false },
    ],
    answers: [
      { now: 1, epoch: 2, rows: [{ kind: 'kind', id: 'id', row: { version: 'v', text: 'text' } }], counters: [] },
    ],
  },
  list: {
    asked: [
      { workspace: 'w', list: 'l', kind: 'k', order: 'up', from: null, to: 1, after: null, limit: 2, characters: 3 },
    ],
    answers: [
      { entries: [{ at: 1, id: 'id', row: { version: 'v', text: 'text' } }], more: true },
      { entries: [], more: false },
    ],
  },
  rows: {
    asked: [{ workspace: 'w', names: [{ kind: 'k', id: 'i' }] }],
    answers: [[{ version: 'v', text: 'text' }, null, { version: '', text: '' }], []],
  },
  ledger: {
    asked: [{ workspace: 'w', about: null, order: 'down', after: 1, limit: 2 }],
    answers: [[{ epoch: 1, seq: 2, at: 3, about: null, text: 'event' }]],
  },
  sums: {
    asked: [{ workspace: 'w', after: null, limit: 1 }],
    answers: [[{ spent: 1, held: 2, rows: 3, name: 'name', group: 'group', text: 'text' }]],
  },
  prune: { asked: [{ workspace: 'w', limit: 1 }], answers: [7] },
  program: { asked: ['', '["run"]'], answers: ['{}'] },
  read_program: { asked: ['{}'], answers: ['{}\n'] },
  watch: { asked: [['kind', 'other']], answers: [null] },
  settled: { asked: [null], answers: [null] },
  sums_page: {
    asked: [
      { workspace: 'w', from: null },
      { workspace: 'w', from: { groups: ['g', 'h'], place: '17' } },
    ],
    answers: [
      { sums: [], next: { groups: ['h'], place: '0' } },
      { sums: [{ spent: 1, held: 2, rows: 3, name: 'name', group: 'group', text: 'text' }], next: null },
    ],
  },
  ended_known: { asked: ['w'], answers: [null] },
  announce: { asked: [{ policies: 'p', configuration: 'c' }], answers: [null] },
};

const OPERATIONS = Object.keys(SAMPLES) as Operation[];

/** All values in one message, read again. */
function crossed<T>(form: Form<T>, values: readonly T[]): readonly T[] {
  const written = new Encoder();
  for (const value of values) form(written, value);
  const read = new Decoder(written.take() ?? '');
  const there: T[] = [];
  while (!read.isAtEnd()) there.push(form(read));
  return there;
}

it.each(OPERATIONS)(
  '%s: what is asked and answered comes to the other thread as it was',
  <Op extends Operation>(op: Op) => {
    const { asked, answers } = SAMPLES[op];
    const forms = FORMS[op];
    expect(crossed(forms.asked, [...asked, ...asked])).toEqual([...asked, ...asked]);
    expect(crossed(forms.answer, [...answers, ...answers])).toEqual([...answers, ...answers]);
  },
);

it('a message that lacks something is no message', () => {
  const written = new Encoder();
  expect(written.take()).toBeNull();
  expect(() => FORMS.commit.asked(written)).toThrow(TypeError);
  const whole = new Encoder();
  FORMS.read.answer(whole, { now: 1, epoch: 2, rows: [], counters: [{ spent: 1, held: 2, rows: 3 }] });
  const message = whole.take() ?? '';
  expect(message).toBe('1,2,0,1,1,2,3\n');
  expect(() => FORMS.read.answer(new Decoder(message.replace(',3\n', '\n')))).toThrow('ends too soon');
});

it('numbers and texts of any kind come as they were', () => {
  const numbers = [0, -1, 1e-7, 1.0000000000000002, Number.MAX_SAFE_INTEGER, -Number.MAX_VALUE, Infinity, -Infinity];
  const texts = ['', '\n', ',', '1,2\n3', 'ü', '\ud800', '𝄞', '\0'];
  const written = new Encoder();
  for (const number of numbers) written.number(number);
  for (const text of texts) written.text(text);
  const read = new Decoder(written.take() ?? '');
  expect(numbers.map(() => read.number())).toEqual(numbers);
  expect(texts.map(() => read.text())).toEqual(texts);
  expect(read.isAtEnd()).toBe(true);
});
