import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  conditionFaults,
  judgeCondition,
  newConditionJudge,
  expressionSize,
} from '../../src/effects/checks/conditions.ts';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { jsonEquals, newEffort, readField } from '../../src/effects/checks/state-fields.ts';
import { shortest } from '../shortest.ts';

function lookUp(of: JsonObject, field: string): Json | undefined {
  return readField(of, field, newEffort());
}

function judgeOne(of: JsonObject, field: string, condition: Json) {
  return judgeCondition(of, field, condition, newConditionJudge(newEffort()));
}

const state: JsonObject = {
  status: 'paid',
  amount: 10,
  zero: 0,
  none: null,
  at: '2026-01-02T00:00:00Z',
  tags: ['a', 'b'],
  order: { lines: [{ sku: 'A-1', n: 2 }], 'net.total': 5 },
  'order.lines': 'literal',
  'x.y': { z: 1 },
};

describe('fields', () => {
  it.each<[string, Json | undefined]>([
    ['status', 'paid'],
    ['none', null],
    ['absent', undefined],
    ['order.net.total', 5],
    ['order.lines', 'literal'],
    ['order.lines.0.sku', 'A-1'],
    ['order.lines.00.sku', undefined],
    ['order.lines.1', undefined],
    ['order.lines.-1', undefined],
    ['order.lines.length', undefined],
    ['x.y.z', 1],
    ['tags.1', 'b'],
    ['status.0', undefined],
    ['constructor', undefined],
    ['__proto__', undefined],
    ['toString', undefined],
    ['order.hasOwnProperty', undefined],
    ['', undefined],
  ])('%s', (field, value) => {
    expect(lookUp(state, field)).toEqual(value);
  });

  it('a name that holds the dots wins over the path', () => {
    expect(lookUp({ a: { b: 1 }, 'a.b': 2 }, 'a.b')).toBe(2);
    expect(lookUp({ r: { a: { b: 1 }, 'a.b': 2 } }, 'r.a.b')).toBe(2);
  });

  it('any path made of names without dots is found where it leads', () => {
    const name = fc.stringMatching(/^[a-z]{1,4}$/);
    fc.assert(
      fc.property(fc.array(name, { minLength: 1, maxLength: 6 }), fc.jsonValue(), (path, leaf) => {
        const value = leaf as Json;
        const nested = path.reduceRight<Json>((inner, key) => ({ [key]: inner }), value) as JsonObject;
        expect(lookUp(nested, path.join('.'))).toEqual(value);
      }),
    );
  });
});

describe('equality', () => {
  it.each<[Json, Json, boolean]>([
    [1, 1.0, true],
    [0, -0, true],
    [1, '1', false],
    [null, false, false],
    [[1, 2], [2, 1], false],
    [[1, 2], [1, 2, 3], false],
    [{ a: 1, b: 2 }, { b: 2, a: 1 }, true],
    [{ a: 1 }, { a: 1, b: null }, false],
    [{ a: null }, { b: null }, false],
    [[], {}, false],
    [{ toString: 1 }, { valueOf: 1 }, false],
  ])('%j and %j: %s', (left, right, equal) => {
    expect(jsonEquals(left, right)).toBe(equal);
    expect(jsonEquals(right, left)).toBe(equal);
  });

  it('is that of an independent comparison, whatever the order of members', () => {
    const shuffled = (value: Json): Json =>
      Array.isArray(value)
        ? value.map((item: Json) => shuffled(item))
        : typeof value === 'object' && value !== null
          ? Object.fromEntries(
              Object.entries(value)
                .toReversed()
                .map(([key, item]) => [key, shuffled(item)]),
            )
          : value;
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
        expect(jsonEquals(a as Json, shuffled(a as Json))).toBe(true);
        expect(jsonEquals(a as Json, b as Json)).toBe(sorted(a as Json) === sorted(b as Json));
      }),
    );
  });
});

/** An independent canonical text. */
function sorted(value: Json): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    typeof item === 'object' && item !== null && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : Object.is(item, -0)
        ? 0
        : item,
  );
}

describe('conditions', () => {
  it.each<[string, Json, ReturnType<typeof judgeCondition>]>([
    ['status', 'paid', 'holds'],
    ['status', 'open', 'refuted'],
    ['absent', 'x', 'absent'],
    ['absent', null, 'absent'],
    ['none', null, 'holds'],
    ['none', { $exists: true }, 'holds'],
    ['amount', { $eq: 10 }, 'holds'],
    ['amount', { $ne: 10 }, 'refuted'],
    ['amount', { $gt: 10 }, 'refuted'],
    ['amount', { $gte: 10, $lte: 10 }, 'holds'],
    ['amount', { $gt: 9, $lt: 10 }, 'refuted'],
    ['zero', { $lt: 1, $gte: 0 }, 'holds'],
    ['amount', { $gt: '9' }, 'refuted'],
    ['status', { $gt: 1 }, 'refuted'],
    ['at', { $gt: '2026-01-01T00:00:00Z' }, 'holds'],
    ['none', { $lt: 1 }, 'refuted'],
    ['status', { $in: ['paid', 'refunded'] }, 'holds'],
    ['status', { $nin: ['paid'] }, 'refuted'],
    ['tags', { $in: [['a', 'b']] }, 'holds'],
    ['status', { $in: [] }, 'refuted'],
    ['absent', { $ne: 1 }, 'absent'],
    ['absent', { $nin: [1] }, 'absent'],
    ['absent', { $exists: false }, 'holds'],
    ['absent', { $exists: true }, 'absent'],
    ['status', { $exists: false }, 'refuted'],
    ['absent', { $exists: false, $eq: 1 }, 'absent'],
    ['status', { $regex: '^pa' }, 'holds'],
    ['status', { $regex: 'ai' }, 'holds'],
    ['status', { $regex: '^ai$' }, 'refuted'],
    ['amount', { $regex: '1' }, 'refuted'],
    ['order.lines.0', { sku: 'A-1', n: 2 }, 'holds'],
    ['order.lines.0.n', { $gte: 2 }, 'holds'],
    ['tags', ['a', 'b'], 'holds'],
    ['status', {}, 'refuted'],
    ['status', { $bad: 1 }, 'undecidable'],
    ['status', { $regex: '(' }, 'undecidable'],
    ['status', { $bad: 1, $eq: 'open' }, 'refuted'],
  ])('%s %j: %s', (field, condition, standing) => {
    expect(judgeOne(state, field, condition)).toBe(standing);
  });

  it('does not match a text that is too long, and says that it cannot tell', () => {
    expect(judgeOne({ text: 'a'.repeat(4096) }, 'text', { $regex: 'b' })).toBe('refuted');
    expect(judgeOne({ text: 'a'.repeat(4097) }, 'text', { $regex: 'a' })).toBe('undecidable');
  });

  it('gives the expressions of one request so many steps together: what is beyond them is not guessed', () => {
    const judge = newConditionJudge(newEffort());
    const text = { text: 'a'.repeat(4000) };
    const judged = Array.from({ length: 16 }, () => judgeCondition(text, 'text', { $regex: 'b' }, judge));
    expect(new Set(judged)).toEqual(new Set(['refuted', 'undecidable']));
    expect(judged.at(-1)).toBe('undecidable');
  });

  it('takes linear time on expressions that blow up elsewhere', async () => {
    const judge = (): number => {
      const started = performance.now();
      for (const $regex of ['^(a+)+$', '(a|a)*b', '(.*a){12}c', '(x+x+)+y'])
        judgeOne({ text: `${'a'.repeat(4000)}!` }, 'text', { $regex });
      return performance.now() - started;
    };
    expect(await shortest(2000, judge)).toBeLessThan(2000);
  });

  it('lists all faults at once, with pointers', () => {
    const faults = conditionFaults(
      {
        'a/b': { $near: 1, plain: 2 },
        c: { $gt: true },
        d: { $in: 'x' },
        e: { $exists: 1 },
        f: { $regex: '(' },
        g: { $regex: `a{${500}}b{500}` },
        h: { $regex: 5 },
        fine: { $eq: { $anything: 1 } },
        alsoFine: { plain: 1 },
      },
      '/conditions',
    );
    expect(faults.map(({ path }) => path)).toEqual([
      '/conditions/a~1b/$near',
      '/conditions/a~1b/plain',
      '/conditions/c/$gt',
      '/conditions/d/$in',
      '/conditions/e/$exists',
      '/conditions/f/$regex',
      '/conditions/g/$regex',
      '/conditions/h/$regex',
    ]);
  });

  it.each<[string, number]>([
    ['', 0],
    ['abc', 3],
    ['^a.c$', 5],
    ['a+b*?c?', 3],
    ['ab{3}', 4],
    ['(?:ab){3}c', 7],
    ['(?P<n>a(?i:bc){2,4}){10}', 90],
    ['a{0}b{2,}c{0,5}', 7],
    ['[]a-z{9}]{4}', 4],
    ['[[:alpha:]_]{4}', 4],
    ['\\p{Greek}{4}\\pL{2}\\x{1F600}{2}\\.{2}', 10],
    ['a{,3}', 5],
    ['a|(?:b|c){2}', 5],
    ['\u{1F600}{3}', 3],
    ['(a', 1],
    ['a)', 1],
  ])('counts the steps of %s', (pattern, size) => {
    expect(expressionSize(pattern)).toBe(size);
  });

  it('bounds the number of expressions', () => {
    const many = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`f${index}`, { $regex: 'a' }]));
    expect(conditionFaults(many(16), '/c')).toEqual([]);
    expect(conditionFaults(many(17), '/c')).toHaveLength(1);
    // The last that may be is looked at as all others.
    expect(conditionFaults({ ...many(15), last: { $regex: '(' } }, '/c')).toMatchObject([{ path: '/c/last/$regex' }]);
  });

  it('$eq and $ne, $in and $nin are opposites on every value that is there', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (value, operand) => {
        const held = { v: value as Json };
        const is = (condition: Json) => judgeOne(held, 'v', condition) === 'holds';
        expect(is({ $eq: operand as Json })).toBe(!is({ $ne: operand as Json }));
        expect(is({ $in: [operand as Json, 1] })).toBe(!is({ $nin: [operand as Json, 1] }));
      }),
    );
  });
});
